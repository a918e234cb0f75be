"""Whether a plan can be kept by a device with memory of its own: every read, every place.

Replays a plan's commands and fetches with nothing but their ranges. What a plan of
another device would do wrong shows here, without the device.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from headrace.artifact import schema
from headrace.plan.model import (
    Address,
    Fetch,
    Plan,
    PlannedBranch,
    PlannedCopy,
    PlannedDispatch,
    PlannedFill,
    PlannedJump,
)
from headrace.plan.profile import Profile
from headrace.runtime.ranges import covers, merged

_RESIDENT, _IN_PLACE = -1, -2

Range = tuple[int, int]


@dataclass
class _Replay:
    module: schema.Module
    program: schema.Program
    plan: Plan
    facts: list[str] = field(default_factory=list[str])
    written: dict[tuple[str, int], list[Range]] = field(
        default_factory=dict[tuple[str, int], list[Range]]
    )
    here: set[int] = field(default_factory=set[int])
    slices: dict[tuple[int, str], schema.SliceRule] = field(
        default_factory=dict[tuple[int, str], schema.SliceRule]
    )

    def __post_init__(self) -> None:
        """Collects how launches may be cut, by executable and symbol."""
        for index, executable in enumerate(self.program.executables):
            for variant in executable.variants:
                for entry_point in variant.entry_points:
                    for launch in (x for case in entry_point for x in case.launches):
                        if launch.slice is not None:
                            self.slices[index, launch.symbol] = launch.slice

    def note(self, number: int, fact: str) -> None:
        self.facts.append(f"command {number} {fact}")


def check_plan(module: schema.Module, program: schema.Program, plan: Plan) -> list[str]:
    """Everything that is wrong with a plan; empty for a sound one."""
    replay = _Replay(module, program, plan)
    _check_budget(replay)
    _check_ring(replay)
    function = program.functions[plan.function]
    # Inputs hold values from the start; so does the state.
    for index, signature in enumerate(function.inputs):
        size = function.resources[signature.resource].size_bytes.evaluate(dict(plan.dims))
        replay.written["external", index] = [(0, size)]
    for number, command in enumerate(plan.commands):
        if isinstance(command, PlannedDispatch):
            _dispatch(replay, number, command)
        elif isinstance(command, PlannedCopy):
            _read(replay, number, command.source, command.size_bytes)
            _write(replay, number, command.target, command.size_bytes)
        elif isinstance(command, PlannedFill):
            _write(replay, number, command.target, command.size_bytes)
        elif isinstance(command, PlannedBranch):
            _read(replay, number, command.condition, 1)
        elif not 0 <= command.target <= len(plan.commands):
            replay.note(number, f"jumps to {command.target}")
    if replay.here:
        replay.facts.append(f"fetches {sorted(replay.here)} are never released")
    return replay.facts


def _check_budget(replay: _Replay) -> None:
    plan = replay.plan
    resident = sum(replay.module.segments[i].size_bytes for i in plan.resident)
    if resident + plan.ring_bytes > plan.budget_bytes:
        replay.facts.append(
            f"{resident} resident bytes and a ring of {plan.ring_bytes} pass the budget of "
            f"{plan.budget_bytes}"
        )
    for index, fetch in enumerate(plan.fetches):
        if fetch.ring_offset_bytes < 0 or _end(fetch) > plan.ring_bytes:
            replay.facts.append(f"fetch {index} lands outside the ring")


def _end(fetch: Fetch) -> int:
    return fetch.ring_offset_bytes + fetch.size_bytes


def overlap(left: Fetch, right: Fetch) -> bool:
    """Whether two fetches use a common byte of the ring."""
    return left.ring_offset_bytes < _end(right) and right.ring_offset_bytes < _end(left)


def _check_ring(replay: _Replay) -> None:
    """No fetch may be issued while its place is still read, in this step or the last."""
    fetches = replay.plan.fetches
    for index, fetch in enumerate(fetches):
        if not fetch.issue_after < fetch.needed_by <= fetch.released_after:
            replay.facts.append(f"fetch {index} is issued after it is needed")
        for other, before in enumerate(fetches):
            if not overlap(fetch, before):
                continue
            if other < index and before.released_after > fetch.issue_after:
                replay.facts.append(f"fetch {index} overwrites fetch {other}, still read")
            late = before.released_after > fetch.previous_issue_after
            if other >= index and fetch.issue_after < 0 and late:
                replay.facts.append(
                    f"fetch {index} overwrites fetch {other} of the step before, still read"
                )


def _dispatch(replay: _Replay, number: int, command: PlannedDispatch) -> None:
    for fetch in command.waits:
        replay.here.add(fetch)
    executable = replay.program.executables[command.executable]
    access = executable.entry_points[command.entry_point].bindings
    pairs = list(zip(access, command.addresses, command.sizes_bytes, strict=True))
    rule = replay.slices.get((command.executable, command.symbol))
    for binding, (kind, address, size) in enumerate(pairs):
        if kind not in ("ro", "rw"):
            continue
        if rule is None or binding != rule.binding:
            _read(replay, number, address, size)
            continue
        # A slice reads only the part of the weight that its workgroups use.
        step = rule.step_bytes.evaluate(dict(replay.plan.dims))
        first = command.first_workgroup[rule.axis]
        low = min(size, first * step)
        high = min(size, (first + command.workgroups[rule.axis]) * step)
        part = replace(address, offset_bytes=address.offset_bytes + low)
        _read(replay, number, part, high - low)
    for kind, address, size in pairs:
        if kind != "ro":
            _write(replay, number, address, size)
    for fetch in command.releases:
        if fetch not in replay.here:
            replay.note(number, f"releases fetch {fetch}, which is not there")
        replay.here.discard(fetch)


def _read(replay: _Replay, number: int, address: Address, size: int) -> None:
    if not size or address.space == "variable":
        return
    begin, end = address.offset_bytes, address.offset_bytes + size
    if address.space == "pool":
        _read_pool(replay, number, address.index, begin, end)
        return
    written = replay.written.get((address.space, _index(address)), [])
    if not covers(written, begin, end):
        replay.note(number, f"reads {address.space} bytes {begin} to {end} before any writes")


def _read_pool(replay: _Replay, number: int, index: int, begin: int, end: int) -> None:
    module, plan = replay.module, replay.plan
    if index == _RESIDENT:
        kept = [_pool_range(module.segments[i]) for i in plan.resident]
        if not covers(kept, begin, end):
            replay.note(number, f"reads weights {begin} to {end}, which do not stay")
        return
    if index == _IN_PLACE:
        tables = [_pool_range(w) for w in module.weights if w.row_bytes]
        if not covers(tables, begin, end):
            replay.note(number, f"reads weights {begin} to {end} in place, which are no table")
        return
    # The parts of one operand stand side by side in the ring.
    shift = plan.fetches[index].ring_offset_bytes - plan.fetches[index].offset_bytes
    there = [
        _pool_range(f)
        for f in (plan.fetches[i] for i in sorted(replay.here))
        if f.ring_offset_bytes - f.offset_bytes == shift
    ]
    if not covers(there, begin, end):
        replay.note(number, f"reads weights {begin} to {end}, which have not all arrived")


def _pool_range(part: schema.Segment | schema.Weight | Fetch) -> Range:
    return part.offset_bytes, part.offset_bytes + part.size_bytes


def _index(address: Address) -> int:
    return address.index if address.space == "external" else -1


def _write(replay: _Replay, number: int, address: Address, size: int) -> None:
    if not size:
        return
    begin, end = address.offset_bytes, address.offset_bytes + size
    if address.space == "pool":
        replay.note(number, "writes to the weights")
        return
    if address.space == "slab" and end > replay.plan.slab_bytes:
        replay.note(number, f"writes slab bytes {begin} to {end}, outside the slab")
    if address.space != "variable":
        key = address.space, _index(address)
        replay.written[key] = merged([*replay.written.get(key, []), (begin, end)])


@dataclass(frozen=True)
class SimulatedStep:
    """A steady step as two timelines: the link and the commands.

    Attributes:
        wait_ns: of each fetch.
        commands_ns, fetches_ns: begin and end of each, from the begin of the step: a fetch
            that the step before brings begins before 0.
    """

    step_ns: int
    stall_ns: int
    wait_ns: tuple[int, ...]
    commands_ns: tuple[tuple[int, int], ...] = ()
    fetches_ns: tuple[tuple[int, int], ...] = ()


def simulate(plan: Plan, profile: Profile, steps: int = 3) -> SimulatedStep:
    """Plays a plan without branches for some steps and returns the last.

    Transfers run one after another, each when its place is free; a command starts when
    the one before has ended and its fetches are there.
    """
    fetches = plan.fetches
    ends_before = [0] * len(plan.commands)
    ends: list[int] = []
    now = link = begin = launch = 0
    wait_ns: list[int] = []
    brought: list[tuple[int, int]] = []
    ran: list[tuple[int, int]] = []
    for _ in range(steps):
        begin = now
        wait_ns = [0] * len(fetches)
        issued = 0
        ends = []
        brought, ran = [], []
        for command in plan.commands:
            duration = there = 0
            if isinstance(command, PlannedDispatch):
                duration = command.predicted_ns
                for needed in sorted(command.waits):
                    while issued <= needed:
                        fetch = fetches[issued]
                        if fetch.issue_after >= 0:
                            free = ends[fetch.issue_after]
                        else:
                            previous = fetch.previous_issue_after
                            free = ends_before[previous] if previous >= 0 else 0
                        bytes_ns = int(fetch.size_bytes * 1e9 / profile.link_bytes_per_s)
                        issue = max(link, free)
                        link = issue + bytes_ns + profile.fetch_overhead_ns
                        brought.append((issue - begin, link - begin))
                        if link > max(now, there):
                            wait_ns[issued] += link - max(now, there)
                        there = link
                        issued += 1
            elif isinstance(command, PlannedBranch | PlannedJump):
                duration = profile.launch_overhead_ns
            together = getattr(command, "together_ns", 0)
            if not together:
                launch = max(now, there)
                now = launch + duration
            else:
                # A slice beside those of its launch before it.
                now = max(now, launch + together, max(launch, there) + duration)
            ran.append((now - begin - duration, now - begin))
            ends.append(now)
        ends_before = ends
    return SimulatedStep(now - begin, sum(wait_ns), tuple(wait_ns), tuple(ran), tuple(brought))
