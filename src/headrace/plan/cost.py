"""What a step should cost: kernel times, and the two timelines of computing and fetching."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.plan.profile import Profile
from headrace.plan.steps import FlatFunction, Step, step_key

_MOST_STEPS = 6


def kernel_times_ns(
    flat: FlatFunction, profile: Profile, dims: tuple[tuple[str, int], ...]
) -> list[int]:
    """Time of each step run whole with its weights there: measured, or by default rates."""
    known = profile.kernel_ns
    times: list[int] = []
    for step in flat.steps:
        measured = (
            known.get(step_key(step, dims)) if known and step.kind == "dispatch" else None
        )
        times.append(_estimated_ns(step, profile) if measured is None else measured)
    return times


def _estimated_ns(step: Step, profile: Profile) -> int:
    if step.kind in ("branch", "jump"):
        return profile.launch_overhead_ns
    moved = sum(o.size_bytes for o in step.operands)
    work_s = max(step.operations / profile.operations_per_s, moved / profile.memory_bytes_per_s)
    return profile.launch_overhead_ns + int(work_s * 1e9)


@dataclass(slots=True)
class Event:
    """A stretch of computing that needs the same weights throughout.

    Attributes:
        units: what must be there from its begin to `using_ns` after it.
        using_ns: computing that reads them.
        trailing_ns: computing after that, which needs no weights that stream.
        first_atom, last_atom: of the part that reads.
        run: the straight run it belongs to.
    """

    units: tuple[int, ...]
    using_ns: int
    trailing_ns: int
    first_atom: int
    last_atom: int
    run: int


@dataclass(slots=True)
class Transfer:
    """One unit brought once: needed at event `first`, last read at event `last`.

    `after` is the event of this step after which its place in the ring is free (-1 from
    the start), `previous` the one of the step before (-1 for none).
    """

    unit: int
    size_bytes: int
    first: int
    last: int
    offset_bytes: int = 0
    after: int = -1
    previous: int = -1


@dataclass(frozen=True)
class Timing:
    """A steady step: its time and the part of it spent waiting."""

    step_ns: int
    stall_ns: int


def transfer_ns(size_bytes: int, profile: Profile) -> int:
    """Time of one transfer."""
    return profile.fetch_overhead_ns + int(size_bytes * 1e9 / profile.link_bytes_per_s)


def simulate(
    events: Sequence[Event], transfers: Sequence[Transfer], profile: Profile
) -> Timing:
    """Runs the two timelines until two steps take the same time.

    The link brings transfers in order, each when the one before has arrived and its
    place is free; an event begins when the one before has ended and its units are there.
    In a function of several runs nothing is fetched before its run begins.
    """
    compute = sum(e.using_ns + e.trailing_ns for e in events)
    if not transfers:
        return Timing(compute, 0)
    busy = sum(transfer_ns(t.size_bytes, profile) for t in transfers)
    shared = compute + int(busy * profile.contention)
    opening: list[list[tuple[int, int, int]]] = [[] for _ in events]
    for transfer in transfers:
        time = transfer_ns(transfer.size_bytes, profile)
        opening[transfer.first].append((time, transfer.after, transfer.previous))
    several_runs = events[-1].run != events[0].run
    released = [0] * len(events)
    link = now = begin = 0
    last_period = -1
    for _ in range(_MOST_STEPS):
        before, released = released, [0] * len(events)
        run = -1
        for index, event in enumerate(events):
            if several_runs and event.run != run:
                run = event.run
                link = max(link, now)
            for time, after, previous in opening[index]:
                if after >= 0:
                    free = released[after]
                else:
                    free = before[previous] if previous >= 0 else 0
                link = max(link, free) + time
                now = max(now, link)
            now += event.using_ns
            released[index] = now
            now += event.trailing_ns
        period = now - begin
        begin = now
        if period == last_period:
            break
        last_period = period
    step = max(last_period, shared, busy)
    return Timing(step, step - compute)
