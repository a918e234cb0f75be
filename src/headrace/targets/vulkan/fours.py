"""Products whose factors both lie along the depth, in fours: most convolutions and linear layers.

As `tiles.py`, but a lane moves four neighbours of the depth at once, from memory to shared
memory and from there to its registers. The place of an element is worked out once for four,
which for a convolution at batch 1 is most of what a tile of elements costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.base.symbols import ONE, ceildiv
from headrace.kernel.description import Axis, Kernel, Load
from headrace.kernel.lanes.machine import Value, compute_type
from headrace.kernel.lanes.scalar import Scalar, element_dtype
from headrace.kernel.products import Product, as_product, flat_size, unconverted
from headrace.kernel.target import Code
from headrace.targets.vulkan.limits import check_limits
from headrace.targets.vulkan.shared import Pool
from headrace.targets.vulkan.slices import SlicedShader, column_slices, keep_sum, product_code
from headrace.targets.vulkan.tiles import FEATURE, TileLowering, Tiles, known_size

SUBGROUP = 32
"""Lanes that run together, where slices count on it."""

_FOUR = 4
_ELEMENTS = 4
"""Of the result that a lane has under way at once when it maps them."""

_PAD = 4
"""Elements behind each run of the depth, so that lanes on neighbouring rows meet in few banks."""


@dataclass(frozen=True)
class _Factor:
    """One factor.

    Attributes:
        load: how the kernel reads it.
        axes: rows or columns.
        extent: of the tile.
        outer: row or column of each four that a lane loads, in the whole product.
        base: of the factor in a place of the pool.
    """

    load: Load
    axes: tuple[Axis, ...]
    extent: int
    outer: list[Value]
    base: int


def _runs_in_fours(kernel: Kernel, load: Load, axis: Axis) -> bool:
    """Whether elements along the innermost axis of the depth lie in aligned fours."""
    operand = kernel.operands[load.operand]
    if operand.dtype.name != "f32" or operand.access != "ro":
        return False
    if any(axis.name in load.index[d].names for d in load.bounded):
        return False
    offset = operand.layout.element_offset(load.index)
    try:
        along = offset.coefficient(axis.name)
    except ValueError:
        return False
    others = offset.substitute({axis.name: 0})
    return along == ONE and all(coefficient % _FOUR == 0 for _, coefficient in others.terms)


def _loads(kernel: Kernel, found: Product) -> tuple[Load, Load] | None:
    """Both factors' loads, where this family takes them."""
    values = {o.result: o for o in kernel.phases[0].body}
    axes = [a for a in found.depth if a.size != ONE]
    if found.loaded != "f32" or not axes:
        return None
    inner = axes[-1]
    if not inner.size.is_constant or inner.size.value % _FOUR:
        return None
    left, right = (unconverted(values, f) for f in (found.left, found.right))
    if not isinstance(left, Load) or not isinstance(right, Load):
        return None
    fit = all(_runs_in_fours(kernel, load, inner) for load in (left, right))
    return (left, right) if fit else None


class _FourLowering(TileLowering):
    def __init__(
        self,
        kernel: Kernel,
        shader: SlicedShader,
        found: Product,
        tiles: Tiles,
        loads: tuple[Load, Load],
    ) -> None:
        super().__init__(kernel, shader, found, tiles)
        self._loads = loads
        self._run = tiles.depth + _PAD
        self._by_subgroup = slices_are_subgroups(tiles)

    def emit(self) -> None:
        """The whole body."""
        shader, found, tiles = self.shader, self.found, self.tiles
        row_tile, column_tile, batch = shader.workgroup()
        self._lane = shader.local_index()
        lane = self._lane % tiles.slice_lanes if tiles.slices > 1 else self._lane
        self._slice = self._lane / tiles.slice_lanes
        self._bind(found.batch, batch)
        self._first_row = row_tile * tiles.rows
        self._first_column = column_tile * tiles.columns
        wide = tiles.depth // _FOUR
        self._place, self._deep = lane / wide, lane % wide * _FOUR
        left, right = self._loads
        factors = (
            self._factor(left, found.rows, tiles.rows, self._first_row, 0),
            self._factor(
                right,
                found.columns,
                tiles.columns,
                self._first_column,
                self._run * tiles.rows,
            ),
        )
        self._piece = self._run * (tiles.rows + tiles.columns)
        self._pool = Pool(shader, shared_elements(tiles))
        self._sum(factors, lane)
        self._maps()

    def _factor(
        self, load: Load, axes: tuple[Axis, ...], extent: int, first: Value, base: int
    ) -> _Factor:
        tiles = self.tiles
        step = tiles.slice_lanes // (tiles.depth // _FOUR)
        last = self.indices.value(flat_size(axes)) - 1
        outer: list[Value] = []
        for number in range(extent // step):
            value = first + (self._place + number * step)
            outer.append(value.lt(last).select(value, last))
        return _Factor(load, axes, extent, outer, base)

    def _sum(self, factors: tuple[_Factor, _Factor], lane: Value) -> None:
        shader, tiles = self.shader, self.tiles
        depth = flat_size(self.found.depth)
        trips = ceildiv(ceildiv(depth, tiles.slices), tiles.depth)
        trip_count = self.indices.value(trips)
        whole = trips * (tiles.slices * tiles.depth)
        # Where pieces fill the depth, only what is loaded ahead of the last lies behind it.
        self._fills = whole.is_constant and depth.is_constant and whole.value == depth.value
        start = self._slice * (trip_count * tiles.depth)
        zero = shader.constant("f32", 0.0)
        sums = [
            [shader.variable("f32") for _ in range(tiles.lane_columns)]
            for _ in range(tiles.lane_rows)
        ]
        for cells in sums:
            for cell in cells:
                shader.write(cell, zero)
        mine = self._slice * (_places(tiles) * self._piece)
        self._keep(factors, [self._fetch(f, start) for f in factors], mine)
        if self._by_subgroup:
            shader.subgroup_barrier()
        else:
            shader.barrier()
        per_row = tiles.columns // tiles.lane_columns
        row, column = lane / per_row, lane % per_row

        def piece(trip: Value) -> None:
            ahead = start + (trip + 1) * tiles.depth
            following = [self._fetch(f, ahead) for f in factors]
            if self._by_subgroup:
                self._add(factors, mine, row, column, sums)
                shader.subgroup_barrier()
                self._keep(factors, following, mine)
                shader.subgroup_barrier()
                return
            odd = trip & 1
            self._add(factors, mine + odd * self._piece, row, column, sums)
            self._keep(factors, following, mine + (1 - odd) * self._piece)
            shader.barrier()

        shader.loop(trip_count, piece)
        if self._by_subgroup:
            shader.barrier()  # others' pieces stand where the sums will
        high, wide = tiles.rows // tiles.lane_rows, per_row
        first = self._slice * (tiles.rows * tiles.columns)
        for i, cells in enumerate(sums):
            for j, cell in enumerate(cells):
                at = first + (row + i * high) * tiles.columns + (column + j * wide)
                self._pool.store(at, shader.read(cell))
        shader.barrier()

    def _fetch(self, factor: _Factor, first: Value) -> list[list[Value]]:
        """The fours that a lane loads of one factor; zeros behind the depth."""
        names, ranges = dict(self.indices.names), dict(self.indices.ranges)
        depth = self.indices.value(flat_size(self.found.depth))
        at = first + self._deep
        inside = at.lt(depth)
        self._bind(self.found.depth, inside.select(at, depth - _FOUR))
        operand, found = self.kernel.operands[factor.load.operand], list[list[Value]]()
        for outer in factor.outer:
            self._bind(factor.axes, outer)
            mask = self._inside(operand, factor.load.index, factor.load.bounded)
            if not self._fills:
                mask = inside if mask is None else mask & inside
            (offset,) = self._elements(operand, factor.load.index)
            found.append(self.shader.load_four(factor.load.operand, offset, mask))
        self.indices.names, self.indices.ranges = names, ranges
        return found

    def _keep(
        self, factors: Sequence[_Factor], fetched: Sequence[list[list[Value]]], base: Value
    ) -> None:
        tiles = self.tiles
        step = tiles.slice_lanes // (tiles.depth // _FOUR)
        for factor, fours in zip(factors, fetched, strict=True):
            for number, four in enumerate(fours):
                place = self._place + number * step
                at = base + (place * self._run + self._deep) + factor.base
                self._pool.store_run(at, four)

    def _add(
        self,
        factors: tuple[_Factor, _Factor],
        base: Value,
        row: Value,
        column: Value,
        sums: Sequence[Sequence[object]],
    ) -> None:
        """Adds the products of one piece, four elements of the depth after four."""
        shader, tiles = self.shader, self.tiles
        left, right = factors
        high, wide = tiles.rows // tiles.lane_rows, tiles.columns // tiles.lane_columns
        values = [[shader.read(cell) for cell in cells] for cells in sums]
        first = base + row * self._run + left.base
        other = base + column * self._run + right.base
        for k in range(0, tiles.depth, _FOUR):
            rows = [
                self._pool.load_run(first + (i * high * self._run + k), _FOUR)
                for i in range(tiles.lane_rows)
            ]
            columns = [
                self._pool.load_run(other + (j * wide * self._run + k), _FOUR)
                for j in range(tiles.lane_columns)
            ]
            for part in range(_FOUR):
                for i, one in enumerate(rows):
                    for j, two in enumerate(columns):
                        values[i][j] = shader.fused(one[part], two[part], values[i][j])
        for cells, row_values in zip(sums, values, strict=True):
            for cell, value in zip(cells, row_values, strict=True):
                shader.write(cell, value)

    # -- maps -------------------------------------------------------------------------

    def _maps(self) -> None:
        """As `TileLowering`, but some elements' loads stand before the first of their stores."""
        kernel = self.kernel
        maps = kernel.phases[1:]
        if len(maps) != 1 or maps[0].parallel:
            super()._maps()
            return
        tiles, found = self.tiles, self.found
        for local in kernel.locals:
            kind = compute_type(element_dtype(local.dtype))
            self.cells[local.name] = (self.shader.variable(kind),)
        sizes = [flat_size(axes) for axes in (found.rows, found.columns)]
        counts = [self.indices.value(size) for size in sizes]
        # Whether every tile is whole; the lanes of a workgroup may be more than its elements.
        self._whole = tiles.rows * tiles.columns >= tiles.lanes and all(
            size.is_constant and size.value % side == 0
            for size, side in zip(sizes, (tiles.rows, tiles.columns), strict=True)
        )
        each = -(-tiles.rows * tiles.columns // tiles.lanes)
        some = next(n for n in (_ELEMENTS, _ELEMENTS // 2, 2, 1) if each % n == 0)

        def elements(number: Value) -> None:
            begin = number * (some * tiles.lanes) + self._lane
            made = [self._element(begin + n * tiles.lanes, counts) for n in range(some)]
            for inside, names, values in made:
                self.indices.names = names

                def store(values: dict[str, Scalar] = values) -> None:
                    for item in maps[0].stores:
                        self._store(item, values)

                if self._whole:
                    store()
                else:
                    self.shader.guarded(inside, store)

        self.shader.loop(self.indices.constant(each // some), elements)

    def _element(
        self, at: Value, counts: Sequence[Value]
    ) -> tuple[Value, dict[str, Value], dict[str, Scalar]]:
        """What the map computes of one element: whether it is inside, its axes, its values."""
        tiles, kernel = self.tiles, self.kernel
        area = tiles.rows * tiles.columns
        row = self._first_row + at / tiles.columns
        column = self._first_column + at % tiles.columns
        inside = row.lt(counts[0]) & column.lt(counts[1])
        if area < tiles.lanes:
            inside = inside & at.lt(area)
            at = inside.select(at, 0)
        if not self._whole:
            row, column = (
                inside.select(value, first)
                for value, first in ((row, self._first_row), (column, self._first_column))
            )
        total = self._total(at)
        self._bind(self.found.rows, row)
        self._bind(self.found.columns, column)
        keep_sum(self, kernel.phases[0], total)
        values = self._body(kernel.phases[1].body)
        return inside, dict(self.indices.names), values


def slices_are_subgroups(tiles: Tiles) -> bool:
    """Whether the lanes of a slice meet without the others."""
    return tiles.slice_lanes == SUBGROUP


def _places(tiles: Tiles) -> int:
    """Pieces of a slice that stand in shared memory: a second one saves a barrier of all."""
    return 1 if slices_are_subgroups(tiles) else 2


def shared_elements(tiles: Tiles) -> int:
    """Floats that a workgroup shares."""
    piece = (tiles.depth + _PAD) * (tiles.rows + tiles.columns)
    return tiles.slices * max(_places(tiles) * piece, tiles.rows * tiles.columns)


@dataclass(frozen=True)
class _Choice:
    """Tiles with one slice.

    Attributes:
        workgroups, depth: from how many on they are taken.
        lanes: of the launch, up to which slices double.
    """

    tiles: Tiles
    workgroups: int
    depth: int = 0
    lanes: int = 34_000


_CHOICES = (
    _Choice(Tiles(64, 64, 16, 8, 4, 1), 528),
    _Choice(Tiles(32, 32, 16, 8, 4, 1), 80, 768, 1 << 30),
    _Choice(Tiles(32, 32, 16, 4, 4, 1), 80),
    _Choice(Tiles(16, 32, 16, 4, 4, 1), 80),
    _Choice(Tiles(16, 16, 32, 4, 2, 1), 0),
)
"""The first that fits is taken; measured on an H200 (132 multiprocessors). Much of the depth is for
slices that are subgroups, many of them: then a workgroup is done soon too, as are the few of a
part of a launch whose weights have just come."""

_MOST_LANES = 256
_MOST_SHARED_BYTES = 48 << 10


def choose(found: Product) -> Tiles:
    """Tiles from sizes alone: the same at every budget."""
    rows, columns, batch, depth = (
        known_size(flat_size(axes))
        for axes in (found.rows, found.columns, found.batch, found.depth)
    )

    def workgroups(tiles: Tiles) -> int:
        return -(-rows // tiles.rows) * -(-columns // tiles.columns) * batch

    choice = next(
        c for c in _CHOICES if workgroups(c.tiles) >= c.workgroups and depth >= c.depth
    )
    chosen = choice.tiles
    while True:
        more = replace(chosen, slices=2 * chosen.slices)
        if (
            more.lanes > _MOST_LANES
            or 4 * shared_elements(more) > _MOST_SHARED_BYTES
            or depth < more.slices * more.depth
            or workgroups(more) * more.lanes > choice.lanes
        ):
            return chosen
        chosen = more


def translate(name: str, kernel: Kernel) -> Code | None:
    """The kernel in fours of the depth; None where it is no such product.

    Raises:
        HeadraceError HR2401, HR2411, HR2412: as the naive emitter.
    """
    found = as_product(kernel)
    if found is None or any(flat_size(a) == ONE for a in (found.rows, found.columns)):
        return None
    loads = _loads(kernel, found)
    if loads is None:
        return None
    check_limits(name, kernel)
    tiles = choose(found)
    rule = column_slices(kernel, found, tiles.columns)
    fours = tuple(sorted({load.operand for load in loads}))
    shader = SlicedShader(name, kernel, tiles.lanes, rule, fours=fours)
    _FourLowering(kernel, shader, found, tiles, loads).emit()
    subgroups = (f"subgroup{SUBGROUP}",) if slices_are_subgroups(tiles) else ()
    tile = (tiles.rows, tiles.columns)
    return product_code(name, shader, found, tile, rule, features=(FEATURE, *subgroups))
