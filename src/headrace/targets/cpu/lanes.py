"""Which axis to run vectors along, and how large tiles are: a small cost model.

Costs are in scalar instructions. They need to be right only in order: contiguous loads
beat broadcasts of lanes, which beat gathers; a vector of a long axis beats one of a
short axis.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from headrace.base.symbols import Expr
from headrace.kernel.description import Axis, Compute, IndexValue
from headrace.targets.cpu.elementwise import EXPENSIVE, IN_F32, LANE_BY_LANE
from headrace.targets.cpu.emit import IDENTITY_KINDS, Schedule, widths_for
from headrace.targets.cpu.machine import Machine
from headrace.targets.cpu.nest import Access, Nest, NestPhase, Read, guard_varies, stride

_DYNAMIC_EXTENT = 64
_TILE_COST = 4096
_TILE_POINTS = 8192
_LEAST_TILE_COST = 1024
_TILES_TO_SHARE = 16
_WINDOW_ROWS = 14
_NEAREST_BYTES = 20 << 10
"""Half of the nearest cache and a little: windows that read more go channels outermost."""

_CHUNK_STEP = 64
_HEAVY = 8


@dataclass(frozen=True)
class Choice:
    """A way to vectorise, and what a point of the outer domain then costs.

    Attributes:
        cost: per outer point.
        lanes, axis: along an outer axis; 1 and None otherwise.
        inner: per phase, an inner axis and its lanes.
    """

    cost: float
    lanes: int
    axis: Axis | None
    inner: tuple[tuple[str, int] | None, ...]


def extent(size: Expr) -> int:
    """The size, or a guess where it is dynamic."""
    return size.value if size.is_constant else _DYNAMIC_EXTENT


def _trips(axes: Iterable[Axis]) -> float:
    total = 1.0
    for axis in axes:
        total *= extent(axis.size)
    return total


def natural_lanes(phases: Iterable[NestPhase], machine: Machine) -> int:
    """Lanes that keep a few registers of the widest type busy: more for light bodies.

    Where some phases loop, only those weigh: their sums need several chains at once, and
    what follows them runs once a point.
    """
    phases = tuple(phases)
    looping = any(p.axes for p in phases)
    bits, weight = 8, 0.0
    for phase in phases:
        for item in phase.body:
            bits = max(bits, 32, item.dtype.bits)
            if isinstance(item, Compute) and (phase.axes or not looping):
                weight += _HEAVY + 1 if item.operation in EXPENSIVE else 1
                if item.operation in EXPENSIVE and item.operation not in IN_F32:
                    bits = 64
    registers = 2 if weight > _HEAVY else 4
    return max(2, registers * machine.vector_bits // max(32, bits))


def _varying(phase: NestPhase, axis: str) -> frozenset[str]:
    """Body values that differ along an axis (local scalars are taken to)."""
    found: set[str] = {axis}
    for item in phase.body:
        if isinstance(item, Read):
            names = item.access.names
        elif isinstance(item, IndexValue):
            names = item.value.names
        elif isinstance(item, Compute):
            names = frozenset(item.operands)
        else:
            continue
        if names & found:
            found.add(item.result)
    return frozenset(found)


def _access_cost(access: Access, axis: str, lanes: int, varying: frozenset[str]) -> float:
    if lanes == 1:
        return 1.0 + 2 * len(access.guards)
    guards = sum(2.0 for index, _ in access.guards if axis not in index.names)
    through = (access.offset.names - {axis}) & varying
    if guard_varies(access, axis):
        return guards + (3.0 if stride(access, axis) == 1 and not through else 4.0 * lanes)
    if through:
        return guards + 3.0 * lanes
    step = stride(access, axis)
    if step is None:
        return guards + 4.0 * lanes
    if step in (0, 1):
        return guards + 1.0
    return guards + 1.5 * lanes


def phase_cost(phase: NestPhase, axis: str, lanes: int) -> float:
    """One execution of the body, `lanes` along `axis`."""
    varying = _varying(phase, axis)
    cost = 0.5
    for item in phase.body:
        if isinstance(item, Read):
            cost += _access_cost(item.access, axis, lanes, varying)
        elif isinstance(item, Compute):
            one = 10.0 if item.operation in EXPENSIVE else 1.0
            if item.operation in EXPENSIVE and item.operation not in IN_F32:
                one *= 3
            cost += one * lanes if item.operation in LANE_BY_LANE else one
    for write in phase.writes:
        cost += _access_cost(write.access, axis, lanes, varying)
    return cost + (1.0 if phase.reduction else 0.0)


def naive_cost(nest: Nest) -> float:
    """A point of the outer domain without vectors."""
    return sum(phase_cost(p, "", 1) * _trips(p.axes) for p in nest.phases)


def _mean_lanes(size: Expr, lanes: int) -> float:
    """Points per round of the loops that `widths_for` leads to."""
    if not size.is_constant:
        return lanes * 0.8
    rest = size.value
    rounds = 0
    for width in widths_for(size, lanes):
        rounds += rest // width
        rest %= width
    return size.value / max(1, rounds)


def outer_choices(nest: Nest, machine: Machine) -> list[Choice]:
    """Vectors along each of the outer axes, the cheapest first."""
    found: list[Choice] = []
    lanes = natural_lanes(nest.phases, machine)
    none = (None,) * len(nest.phases)
    for axis in nest.outer:
        width = lanes
        while axis.size.is_constant and width > max(1, axis.size.value):
            width //= 2
        if width == 1 or not _vectorisable(nest, axis):
            continue
        cost = sum(phase_cost(p, axis.name, width) * _trips(p.axes) for p in nest.phases)
        found.append(Choice(cost / _mean_lanes(axis.size, width), width, axis, none))
    return sorted(found, key=lambda c: c.cost)


def inner_choice(nest: Nest, machine: Machine) -> Choice:
    """For each phase the best of its own axes, or none."""
    picked: list[tuple[str, int] | None] = []
    total = 0.0
    for phase in nest.phases:
        best: tuple[float, tuple[str, int] | None] = (phase_cost(phase, "", 1), None)
        for axis in _inner_axes(phase, machine):
            width = natural_lanes((phase,), machine)
            while axis.size.is_constant and width > max(1, axis.size.value):
                width //= 2
            if width == 1 or phase.serial or not _independent(phase):
                continue
            cost = phase_cost(phase, axis.name, width) / _mean_lanes(axis.size, width)
            if cost < best[0]:
                best = (cost, (axis.name, width))
        picked.append(best[1])
        total += best[0] * _trips(phase.axes)
    return Choice(total, 1, None, tuple(picked))


def _inner_axes(phase: NestPhase, machine: Machine) -> tuple[Axis, ...]:
    """Axes that may be cut into lanes."""
    if phase.reduction is None:
        return phase.axes
    if phase.reduction.combiner.kind not in IDENTITY_KINDS:
        return phase.parallel
    return phase.parallel if machine.ordered_sums and _rounds(phase) else phase.axes


def _rounds(phase: NestPhase) -> bool:
    """Whether the order in which a phase folds shows in its bits."""
    assert phase.reduction is not None
    kind = phase.reduction.combiner.kind
    return kind in ("add", "multiply") and any(not r.dtype.is_integer for r in phase.results)


def _vectorisable(nest: Nest, axis: Axis) -> bool:
    return all(_independent(p) for p in nest.phases)


def _independent(phase: NestPhase) -> bool:
    """Whether lanes cannot see each other's writes within the phase."""
    written = {w.access.place: w.access.offset for w in phase.writes}
    for read in phase.reads:
        place = read.access.place
        if place in written and written[place] != read.access.offset:
            return False
    return True


def schedule_tiles(nest: Nest, choice: Choice, family: str) -> Schedule:
    """The schedule of a choice: the axis order, and tiles of a few microseconds."""
    order = tuple(a for a in nest.outer if a is not choice.axis)
    if choice.axis is not None:
        order = (*order, choice.axis)
    schedule = Schedule(family, order, choice.lanes, choice.inner, 0, 1)
    if not order:
        return schedule
    points = _tile_points(nest, choice)
    last = order[-1].size
    if last.is_constant and last.value <= points * 3 // 2:
        rows = max(1, points // max(1, last.value))
        if family == "window" and _window_bytes(nest, last.value) > _NEAREST_BYTES:
            rows = max(rows, _WINDOW_ROWS)  # neighbours share what they read
            schedule = replace(schedule, turned=True)
        return replace(schedule, rows=_balanced(order[:-1], rows))
    chunk = points
    if last.is_constant:
        pieces = -(-last.value // points)
        chunk = -(-last.value // pieces)
    return replace(schedule, chunk=-(-chunk // _step(choice)) * _step(choice))


def _window_bytes(nest: Nest, channels: int) -> float:
    """What a pixel reads: its window and about as much of weights, of all channels."""
    taps = max(_trips(p.axes) for p in nest.phases)
    return 8 * taps * channels


def _tile_points(nest: Nest, choice: Choice) -> int:
    """Points of a tile: less than a full tile's where there would be too few to share."""
    cost = max(choice.cost, 0.05)
    points = min(_TILE_POINTS, int(_TILE_COST / cost))
    if all(a.size.is_constant for a in nest.outer):
        shared = int(_trips(nest.outer)) // _TILES_TO_SHARE
        points = min(points, max(shared, int(_LEAST_TILE_COST / cost)))
    return max(1, points)


def _step(choice: Choice) -> int:
    return max(_CHUNK_STEP, choice.lanes) if choice.lanes > 1 else 1


def _balanced(axes: tuple[Axis, ...], rows: int) -> int:
    """Rows per tile so that tiles are alike; at least 8 tiles where there are 8 rows."""
    if any(not a.size.is_constant for a in axes):
        return rows
    total = int(_trips(axes))
    if total == 0:
        return rows
    rows = max(1, min(rows, total))
    pieces = -(-total // rows)
    return -(-total // pieces)
