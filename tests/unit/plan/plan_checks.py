"""What every plan must keep, checked from the plan and the module alone."""

from __future__ import annotations

from headrace.artifact import schema as s
from headrace.plan.model import (
    Fetch,
    Plan,
    PlannedBranch,
    PlannedCopy,
    PlannedDispatch,
    PlannedJump,
)


def allocated_bytes(plan: Plan) -> int:
    """What the slab takes: whole pages."""
    return -(-plan.slab_bytes // 4096) * 4096


def check_plan(module: s.Module, plan: Plan, budget: int) -> None:
    """Asserts all of it."""
    segments = module.segments
    resident = sum(segments[i].size_bytes for i in plan.resident)
    weights = resident + plan.ring_bytes + plan.row_bytes
    assert plan.row_bytes >= 0 and weights <= budget
    assert plan.prediction.peak_bytes == allocated_bytes(plan) + weights
    assert plan.prediction.streamed_bytes == sum(f.size_bytes for f in plan.fetches)
    assert plan.prediction.step_ns >= plan.prediction.compute_ns
    check_slab(plan)
    check_ring(plan)
    check_waits(module, plan)
    check_slices(module, plan)


def check_slab(plan: Plan) -> None:
    """No two values or scratches that live at the same time overlap."""
    spans = [
        (p.offset_bytes, p.offset_bytes + p.size_bytes, p.first_command, p.last_command)
        for p in plan.placements
    ]
    seen: set[tuple[int, int, int, int]] = set()
    for index, command in enumerate(plan.commands):
        if isinstance(command, PlannedDispatch) and command.scratch_bytes:
            assert command.scratch_bytes % 64 == 0 == command.scratch_offset_bytes % 64
            begin = command.scratch_offset_bytes
            seen.add((begin, begin + command.scratch_bytes, index, index))
    spans += sorted(seen)
    for index, (start, end, first, last) in enumerate(spans):
        assert 0 <= start <= end <= plan.slab_bytes
        for other_start, other_end, other_first, other_last in spans[index + 1 :]:
            alive = first <= other_last and other_first <= last
            assert not (alive and start < other_end and other_start < end)


def in_flight(plan: Plan) -> list[tuple[Fetch, int, int]]:
    """Fetches of two steps with the first and last command at which their place is theirs."""
    count = len(plan.commands)
    found: list[tuple[Fetch, int, int]] = []
    for step in range(2):
        for fetch in plan.fetches:
            begin = fetch.issue_after + 1 + step * count
            if fetch.issue_after < 0 and fetch.previous_issue_after >= 0:
                begin = fetch.previous_issue_after + 1 + (step - 1) * count
            elif fetch.issue_after < 0:
                begin = (step - 1) * count
            found.append((fetch, begin, fetch.released_after + step * count))
    return found


def check_ring(plan: Plan) -> None:
    """Ranges in flight never overlap, also across the end of a step; order is kept."""
    needed = -1
    for fetch in plan.fetches:
        assert fetch.needed_by >= needed
        needed = fetch.needed_by
        assert fetch.issue_after < fetch.needed_by <= fetch.released_after
        assert fetch.ring_offset_bytes >= 0
        assert fetch.ring_offset_bytes + fetch.size_bytes <= plan.ring_bytes
        assert fetch.ring_offset_bytes % 4096 == 0 == fetch.size_bytes % 4096
    flying = in_flight(plan)
    for index, (fetch, begin, end) in enumerate(flying):
        low, high = fetch.ring_offset_bytes, fetch.ring_offset_bytes + fetch.size_bytes
        for other, other_begin, other_end in flying[index + 1 :]:
            other_low = other.ring_offset_bytes
            if low < other_low + other.size_bytes and other_low < high:
                assert end < other_begin or other_end < begin


def check_waits(module: s.Module, plan: Plan) -> None:
    """Every byte of a weight that a command reads is resident or has been waited for."""
    program = module.programs[0]
    arrived: dict[int, Fetch] = {}
    released: set[int] = set()
    tables = {i for i, segment in enumerate(module.segments) if _is_table(module, segment)}
    for number, command in enumerate(plan.commands):
        if isinstance(command, (PlannedBranch, PlannedJump)):
            assert not arrived.keys() - released, "something stays in flight over a branch"
        if isinstance(command, PlannedCopy):
            assert command.source.space != "pool" or command.source.index == -1
        if not isinstance(command, PlannedDispatch):
            continue
        for wait in command.waits:
            assert plan.fetches[wait].needed_by == number
            assert wait not in arrived
            arrived[wait] = plan.fetches[wait]
        held = {f.segment: k for k, f in arrived.items() if k not in released}
        for position, (address, size) in enumerate(
            zip(command.addresses, command.sizes_bytes, strict=True)
        ):
            if address.space != "pool" or not size:
                continue
            low, high = _read_range(program, command, position, address.offset_bytes, size)
            for index, segment in enumerate(module.segments):
                end = segment.offset_bytes + segment.size_bytes
                if low >= end or high <= segment.offset_bytes:
                    continue
                if index in plan.resident:
                    continue
                if index in tables:
                    assert address.index == -2
                    continue
                assert index in held, f"command {number} reads segment {index} too early"
                first = plan.fetches[address.index]
                mine = plan.fetches[held[index]]
                # One base serves the whole read: places in the ring are as far apart as
                # in the pool.
                assert (
                    mine.ring_offset_bytes - first.ring_offset_bytes
                    == mine.offset_bytes - first.offset_bytes
                )
        for release in command.releases:
            assert plan.fetches[release].released_after == number
            assert release in arrived and release not in released
            released.add(release)
    assert len(released) == len(plan.fetches)


def _is_table(module: s.Module, segment: s.Segment) -> bool:
    end = segment.offset_bytes + segment.size_bytes
    inside = [
        w
        for w in module.weights
        if w.size_bytes
        and w.offset_bytes < end
        and w.offset_bytes + w.size_bytes > segment.offset_bytes
    ]
    return bool(inside) and all(w.row_bytes for w in inside)


def _launch(program: s.Program, command: PlannedDispatch) -> s.Launch:
    variant = program.executables[command.executable].variants[0]
    for specialisation in variant.entry_points[command.entry_point]:
        for launch in specialisation.launches:
            if launch.symbol == command.symbol:
                return launch
    raise AssertionError(command.symbol)


def _read_range(
    program: s.Program, command: PlannedDispatch, position: int, offset: int, size: int
) -> tuple[int, int]:
    rule = _launch(program, command).slice
    if rule is None or rule.binding != position:
        return offset, offset + size
    step = rule.step_bytes.value
    low = command.first_workgroup[rule.axis] * step
    high = low + command.workgroups[rule.axis] * step
    return offset + low, offset + min(high, size)


def check_slices(module: s.Module, plan: Plan) -> None:
    """The slices of each launch cover its workgroups once, in order."""
    program = module.programs[0]
    covered: dict[tuple[int, int, str], int] = {}
    for command in plan.commands:
        if not isinstance(command, PlannedDispatch):
            continue
        launch = _launch(program, command)
        whole = tuple(w.value for w in launch.workgroups)
        axis = launch.slice.axis if launch.slice else 0
        key = (command.executable, command.command, command.symbol)
        before = covered.get(key, 0)
        if before == whole[axis]:
            before = 0
        assert command.first_workgroup[axis] == before
        covered[key] = before + command.workgroups[axis]
        others = [i for i in range(3) if i != axis]
        assert all(command.workgroups[i] == whole[i] for i in others)
        assert all(command.first_workgroup[i] == 0 for i in others)
    for (executable, entry, symbol), count in covered.items():
        launch = next(
            la
            for sp in program.executables[executable].variants[0].entry_points[0]
            for la in sp.launches
            if la.symbol == symbol
        )
        axis = launch.slice.axis if launch.slice else 0
        assert count == launch.workgroups[axis].value, entry
