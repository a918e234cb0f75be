"""What a step should cost: kernel times, and the two timelines of computing and fetching."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from headrace.plan.profile import Profile
from headrace.plan.steps import FlatFunction, Step, step_key

_MOST_STEPS = 6
_BRANCH_NS = 15_000
"""What each further slice of a launch costs as a branch of a CUDA graph: to begin, to be waited
for, and tiles that share no cache with their neighbours (measured on an H200, 28 slices of
products of 2048 rows)."""


@dataclass(frozen=True)
class Concurrency:
    """How a device runs the slices of one launch; by default one after another.

    Attributes:
        slots: workgroups that it runs at once, by executable and symbol, of launches that
            may be cut. What is not there takes time by its workgroups.
        branches: a slice runs beside those before it from when its weights are there.
            Otherwise it does where they are there when the first of them begins; where they
            come later it runs after them.
        steps_end_whole: a step begins when all that the one before brought for it is there,
            as a graph does whose end brings it.
        between_steps_ns: from when the outputs of a step are there until the next one may
            bring weights.
    """

    slots: Mapping[tuple[int, str], int] = field(default_factory=dict[tuple[int, str], int])
    branches: bool = True
    steps_end_whole: bool = False
    between_steps_ns: int = 0


class PartTimes:
    """What parts of launches take, where a part of one takes longer than its share.

    A GPU runs so many workgroups of a launch at once (`slots`), so a launch takes whole
    *waves*: a part of a wave takes as long as a wave. Parts of one launch run beside one
    another where the weights of all are there.

    Attributes:
        slots: workgroups that run at once, by step; 0 where time grows with the workgroups,
            and parts run one after another.
        branches, steps_end_whole, between_steps_ns: see `Concurrency`.
        branch_ns: what a slice costs that runs beside another.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        times_ns: Sequence[int],
        concurrency: Concurrency,
        launch_ns: int,
    ) -> None:
        """`launch_ns` is the profile's overhead."""
        self.branches = concurrency.branches
        self.steps_end_whole = concurrency.steps_end_whole
        self.between_steps_ns = concurrency.between_steps_ns
        self.branch_ns = _BRANCH_NS if concurrency.branches else 0
        self._times = times_ns
        self._launch_ns = launch_ns
        self._known: list[dict[int, int]] = [{} for _ in steps]
        self._groups = [1] * len(steps)
        self._beside = [1] * len(steps)  # workgroups for each along the axis
        self.slots = [0] * len(steps)
        self.together = [False] * len(steps)
        for index, step in enumerate(steps):
            slots = concurrency.slots.get((step.executable, step.symbol), 0)
            if step.slice is None or not slots:
                continue
            # Parts that share a place for scratch cannot run beside one another.
            self.together[index] = not step.scratch_bytes
            x, y, z = step.workgroups
            self._groups[index] = max(1, step.workgroups[step.slice[1]])
            self._beside[index] = max(1, x * y * z // self._groups[index])
            self.slots[index] = slots

    def part_ns(self, step: int, count: int) -> int:
        """Time of `count` workgroups along the axis, of a step with slots."""
        if count <= 0:
            return 0
        known = self._known[step].get(count)
        if known is not None:
            return known
        whole, slots, beside = self._times[step], self.slots[step], self._beside[step]
        launch = min(self._launch_ns, whole)
        waves = -(-count * beside // slots)
        found = launch + (whole - launch) * waves // -(-self._groups[step] * beside // slots)
        self._known[step][count] = found
        return found

    def more_ns(self, step: int, count: int) -> int:
        """What `count` workgroups along the axis take beside their share of the launch."""
        return self.part_ns(step, count) - self._times[step] * count // self._groups[step]


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
        head_ns: where its begin goes on with a launch begun before it (`PartTimes`): the
            part of that, at the begin of it; else 0.
        together_ns: what the launch takes up to the end of that part with all weights there.
        open_ns: where the next event goes on with a launch of this one: computing since the
            launch began; -1 where it began before this event.
    """

    units: tuple[int, ...]
    using_ns: int
    trailing_ns: int
    first_atom: int
    last_atom: int
    run: int
    head_ns: int = 0
    together_ns: int = 0
    open_ns: int = 0


@dataclass(slots=True)
class Transfer:
    """One unit brought once: needed at event `first`, last read at event `last`.

    `after` is the event of this step after which its place in the ring is free (-1 from
    the start), `previous` the one of the step before (-1 for none). `at_begin`: it is brought
    when its own step begins, not before.
    """

    unit: int
    size_bytes: int
    first: int
    last: int
    offset_bytes: int = 0
    after: int = -1
    previous: int = -1
    at_begin: bool = False


@dataclass(frozen=True)
class Timing:
    """A steady step: its time and the part of it spent waiting."""

    step_ns: int
    stall_ns: int


@dataclass
class Waits:
    """Where the two timelines of a steady step wait for one another, in ns.

    Attributes:
        computing: by event, for weights.
        link: by transfer, for its place in the ring.
    """

    computing: dict[int, int] = field(default_factory=dict[int, int])
    link: dict[int, int] = field(default_factory=dict[int, int])


def transfer_ns(size_bytes: int, profile: Profile) -> int:
    """Time of one transfer."""
    return profile.fetch_overhead_ns + int(size_bytes * 1e9 / profile.link_bytes_per_s)


def simulate(
    events: Sequence[Event],
    transfers: Sequence[Transfer],
    profile: Profile,
    compute_ns: int,
    concurrency: Concurrency | PartTimes,
    waits: Waits | None = None,
) -> Timing:
    """Runs the two timelines until two steps take the same time.

    Args:
        compute_ns: of a step with every weight there.
        concurrency: all of it but the slots.
        waits: takes those of the last step.

    The link brings transfers in order, each when the one before has arrived and its
    place is free; an event begins when the one before has ended and its units are there.
    In a function of several runs nothing is fetched before its run begins.
    """
    if not transfers:
        return Timing(compute_ns, 0)
    overhead_ns, link_bytes_per_s = profile.fetch_overhead_ns, profile.link_bytes_per_s
    branches, between_ns = concurrency.branches, concurrency.between_steps_ns
    several_runs = events[-1].run != events[0].run
    ends_whole = concurrency.steps_end_whole and not several_runs
    # Both lines are played some times over: what an event needs is looked up once.
    opening: dict[int, list[tuple[int, int, int, int]]] = {}
    heads: list[tuple[int, int, int]] = []
    busy = 0
    for number, transfer in enumerate(transfers):
        time = overhead_ns + int(transfer.size_bytes * 1e9 / link_bytes_per_s)
        busy += time
        if ends_whole and transfer.after < 0 and not transfer.at_begin:
            heads.append((time, transfer.previous, number))
            continue
        arrivals = opening.setdefault(transfer.first, [])
        arrivals.append((time, transfer.after, transfer.previous, number))
    shared = compute_ns + int(busy * profile.contention)
    line = [
        (opening.get(n, ()), e.head_ns, e.using_ns, e.trailing_ns, e.together_ns, e.open_ns)
        for n, e in enumerate(events)
    ]
    begins_run = {0}
    if several_runs:
        begins_run |= {n for n, (a, b) in enumerate(pairwise(events), 1) if a.run != b.run}
    released = [0] * len(events)
    # When the open launch began: what runs beside it counts from there. `group` is when
    # the slices began that run together now.
    link = now = begin = launch = group = 0
    last_period = -1
    for _ in range(_MOST_STEPS):
        before, released = released, [0] * len(events)
        if waits is not None:
            waits.computing.clear()
            waits.link.clear()
        for index, (arrivals, head, using, trailing, together, opens) in enumerate(line):
            if several_runs and index in begins_run and link < now:
                link = now
            there = 0
            for time, after, previous, number in arrivals:
                if after >= 0:
                    free = released[after]
                else:
                    free = before[previous] if previous >= 0 else 0
                if link < free:
                    if waits is not None:
                        waits.link[number] = free - link
                    link = free
                there = link = link + time
            if not head:
                if now < there:
                    if waits is not None:
                        waits.computing[index] = there - now
                    now = there
                now += using
                released[index] = now
                now += trailing
            else:
                if not branches and there > group:
                    group = now = max(now, there)
                    now += head
                    launch = now - together
                else:
                    # The part runs beside those before it, from when its weights are there.
                    alone = max(now, launch + together)
                    now = max(alone, max(launch, there) + head)
                    if waits is not None and now > alone:
                        waits.computing[index] = now - alone
                released[index] = now + max(0, using - head)
                now += using + trailing - head
            if opens >= 0:
                launch = group = now - opens
        ready = now
        for time, previous, number in heads:
            free = released[previous] if previous >= 0 else 0
            if waits is not None and link < free:
                waits.link[number] = free - link
            link = max(link, free) + time
        if ends_whole:
            # What is left of the head comes when the next step has begun. Its launches' times
            # have their part of what lies between steps.
            now = max(link, ready)
            link = max(link, ready + between_ns)
        period = now - begin
        begin = now
        if period == last_period:
            break
        last_period = period
    step = max(last_period, shared, busy)
    return Timing(step, step - compute_ns)
