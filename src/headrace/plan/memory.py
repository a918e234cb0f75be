"""Places transients and scratch in one slab.

What is alive at the same step must not overlap; what is not may share bytes. Placing is
greedy: largest first, each at the lowest of its tightest gaps. Several orders are tried
and the best kept; the sum of what is alive at the fullest step is a lower bound, and
most models reach it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace.plan.model import Placement
from headrace.plan.steps import FlatFunction, Step

ALIGNMENT_BYTES = 64
PAGE_BYTES = 4096
_TRIES = 24
_GOOD = 1.01  # times the lower bound: not worth the milliseconds that moving takes
_PLACINGS = 6_000  # of intervals, over all tries: what there is time for


@dataclass(slots=True)
class Interval:
    """Bytes needed from step `first` to step `last`, both included.

    `resource` is -1 for the scratch of step `first`.
    """

    resource: int
    size_bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class SlabLayout:
    """Where everything stands.

    Attributes:
        slab_bytes: all.
        offsets: of each transient resource that is used.
        scratch: offset of the scratch of a step, for steps that have some.
        placements: for pictures; steps count as commands here.
        lower_bound_bytes: no layout can be smaller.
    """

    slab_bytes: int
    offsets: dict[int, int]
    scratch: dict[int, int]
    placements: tuple[Placement, ...]
    lower_bound_bytes: int

    @property
    def allocated_bytes(self) -> int:
        """What the slab takes: memory comes in whole pages of 4 KiB."""
        return -(-self.slab_bytes // PAGE_BYTES) * PAGE_BYTES


def aligned(size_bytes: int) -> int:
    """`size_bytes` rounded up to whole alignments."""
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def plan_slab(flat: FlatFunction, threads: int) -> SlabLayout:
    """The slab of a function.

    Args:
        threads: workers that each need a launch's scratch; 1 on a GPU.
    """
    intervals = live_intervals(flat)
    shared = _scratch_intervals(flat, threads)
    intervals += shared
    places, slab_bytes, bound = place_intervals(intervals)
    offsets: dict[int, int] = {}
    scratch: dict[int, int] = {}
    placements: list[Placement] = []
    for interval, offset in zip(intervals, places, strict=True):
        if interval.resource < 0:
            steps = range(interval.first, interval.last + 1)
            scratch.update((s, offset) for s in steps if flat.steps[s].scratch_bytes)
        else:
            offsets[interval.resource] = offset
            placements.append(
                Placement(
                    interval.resource,
                    offset,
                    interval.size_bytes,
                    interval.first,
                    interval.last,
                )
            )
    return SlabLayout(slab_bytes, offsets, scratch, tuple(placements), bound)


def _scratch_intervals(flat: FlatFunction, threads: int) -> list[Interval]:
    """Scratch by launches; the launches of one dispatch hand it on to each other."""
    found: list[Interval] = []
    for index, step in enumerate(flat.steps):
        if not step.scratch_bytes:
            continue
        size = aligned(step.scratch_bytes) * threads
        last = found[-1] if found else None
        before = flat.steps[index - 1] if index else None
        if last is not None and last.last == index - 1 and _same_dispatch(before, step):
            found[-1] = Interval(-1, max(size, last.size_bytes), last.first, index)
        else:
            found.append(Interval(-1, size, index, index))
    return found


def _same_dispatch(before: Step | None, step: Step) -> bool:
    """Whether two steps are launches of one dispatch: the same command, other functions."""
    return (
        before is not None
        and before.kind == step.kind == "dispatch"
        and before.command == step.command
        and before.executable == step.executable
        and before.symbol != step.symbol
    )


def live_intervals(flat: FlatFunction) -> list[Interval]:
    """From which to which step each transient holds a value, in order of resources.

    What a loop reads before it writes, or what is alive around it, keeps its place for
    all of the loop. Values used in one branch only are alive in that branch only, so two
    branches overlay.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    reads_first: set[int] = set()
    uses: dict[int, list[int]] = {}
    for index, step in enumerate(flat.steps):
        for operand in step.operands:
            resource = operand.resource
            if resource not in first:
                first[resource] = index
                whole = operand.size_bytes == flat.sizes_bytes[resource]
                if operand.reads or not whole:
                    reads_first.add(resource)
            last[resource] = index
            if flat.loops:
                uses.setdefault(resource, []).append(index)
    kinds = flat.function.resources
    found: list[Interval] = []
    for resource in sorted(first):
        if kinds[resource].lifetime not in ("transient", "staging"):
            continue
        size = aligned(flat.sizes_bytes[resource])
        if not size:
            continue
        start, end = first[resource], last[resource]
        # Inner loops stand after outer ones: going backwards widens from inside out.
        for span in reversed(flat.loops):
            inside = any(span.first <= use <= span.last for use in uses[resource])
            if not inside:
                continue
            local = start >= span.first and end <= span.last
            if not local or resource in reads_first:
                start, end = min(start, span.first), max(end, span.last)
        found.append(Interval(resource, size, start, end))
    return found


def place_intervals(intervals: Sequence[Interval]) -> tuple[list[int], int, int]:
    """Offsets in the order given, bytes of all, and the lower bound."""
    if not intervals:
        return [], 0, 0
    loads = _loads(intervals)
    bound = max(loads)
    best: tuple[int, list[int]] | None = None
    for order in _orders(intervals, loads):
        size, places = _place(intervals, order)
        if best is None or size < best[0]:
            best = (size, places)
        if size == bound:
            break
    assert best is not None
    if best[0] > bound * _GOOD:
        best = _improve(intervals, best, bound)
    return best[1], best[0], bound


def _loads(intervals: Sequence[Interval]) -> list[int]:
    """Bytes alive at each step."""
    end = max(i.last for i in intervals) + 1
    change = [0] * (end + 1)
    for interval in intervals:
        change[interval.first] += interval.size_bytes
        change[interval.last + 1] -= interval.size_bytes
    loads: list[int] = []
    alive = 0
    for step in range(end):
        alive += change[step]
        loads.append(alive)
    return loads


def _orders(intervals: Sequence[Interval], loads: list[int]) -> Iterator[list[int]]:
    """Orders to place in; made one by one, for the first is mostly enough."""
    indices = range(len(intervals))

    def size(index: int) -> tuple[int, int, int]:
        interval = intervals[index]
        return -interval.size_bytes, interval.first, index

    yield sorted(indices, key=size)
    lengths = [i.last - i.first + 1 for i in intervals]
    yield sorted(indices, key=lambda i: (-intervals[i].size_bytes * lengths[i], size(i)))
    yield sorted(indices, key=lambda i: (intervals[i].first, size(i)))
    # The fullest step an interval lives through.
    pressure = [max(loads[i.first : i.last + 1]) for i in intervals]
    yield sorted(indices, key=lambda i: (-pressure[i], size(i)))


def _place(intervals: Sequence[Interval], order: Sequence[int]) -> tuple[int, list[int]]:
    """Greedy best fit in that order: total bytes and offsets."""
    steps = max(i.last for i in intervals) + 1
    alive: list[list[int]] = [[] for _ in range(steps)]
    places = [-1] * len(intervals)
    top = 0
    for index in order:
        interval = intervals[index]
        size = interval.size_bytes
        if interval.first == interval.last:
            others = alive[interval.first]
        else:
            gathered: set[int] = set()
            for step in range(interval.first, interval.last + 1):
                gathered.update(alive[step])
            others = gathered
        spans = sorted([(places[o], intervals[o].size_bytes) for o in others])
        offset = _best_gap(spans, size)
        places[index] = offset
        top = max(top, offset + size)
        for step in range(interval.first, interval.last + 1):
            alive[step].append(index)
    return top, places


def _best_gap(spans: list[tuple[int, int]], size: int) -> int:
    """The tightest gap between `spans` (offset, size; sorted) that takes `size` bytes."""
    best = -1
    tightest = 1 << 62
    end = 0
    for offset, span in spans:
        gap = offset - end
        if size <= gap < tightest:
            best, tightest = end, gap
        end = max(end, offset + span)
    return best if best >= 0 else end


def _improve(
    intervals: Sequence[Interval], best: tuple[int, list[int]], bound: int
) -> tuple[int, list[int]]:
    """Moves what stands at the very top to the front of the order, a few times."""
    order = sorted(range(len(intervals)), key=lambda i: (-intervals[i].size_bytes, i))
    size, places = best
    seen: set[tuple[int, ...]] = set()
    for _ in range(min(_TRIES, _PLACINGS // len(intervals))):
        highest = [i for i in order if places[i] + intervals[i].size_bytes == size]
        order = highest + [i for i in order if i not in set(highest)]
        head = tuple(order[:16])
        if head in seen:
            break
        seen.add(head)
        size, places = _place(intervals, order)
        if size < best[0]:
            best = (size, places)
        if best[0] == bound:
            break
    return best
