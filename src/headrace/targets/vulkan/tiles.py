"""Products and convolutions by tiles: what a workgroup computes goes through shared memory.

A workgroup has a tile of the result, some lanes in several *slices*: each slice sums a part
of the depth, so that products with few tiles still fill a device. While a slice multiplies
one piece of the depth, it loads the next; pieces alternate between two places in shared
memory. A lane keeps `lane_rows` x `lane_columns` sums in registers. In the end slices are
added in order, and the maps behind the sum run over the tile, neighbouring lanes on
neighbouring columns. A convolution is the same: patches are never written down.

Factors are whatever the phase's body computes (loads, conversions, dequantisation).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.base.symbols import ONE, Expr, ceildiv
from headrace.kernel.description import Axis, Kernel, Load
from headrace.kernel.lanes.lower import Lowering
from headrace.kernel.lanes.machine import Value, compute_type
from headrace.kernel.lanes.scalar import element_dtype
from headrace.kernel.products import (
    Product,
    as_product,
    cone_of,
    flat_size,
    is_contiguous,
)
from headrace.kernel.target import Code
from headrace.targets.vulkan.limits import check_limits
from headrace.targets.vulkan.shared import Pool
from headrace.targets.vulkan.slices import SlicedShader, column_slices, keep_sum, product_code

FEATURE = "gpu"
"""Devices whose shared memory is faster than their caches."""

_PAD = 4
"""Elements behind each row of a tile, so that lanes meet in few banks."""

_LEAST_WORKGROUPS = 200
_MOST_LANES = 256
_UNKNOWN_SIZE = 64
"""What a size that is only known at run time is taken for."""


@dataclass(frozen=True)
class Tiles:
    """The schedule.

    Attributes:
        rows, columns, depth: of a tile; depth of one slice's piece.
        lane_rows, lane_columns: sums that a lane keeps.
        slices: parts of the depth that are summed side by side.
    """

    rows: int
    columns: int
    depth: int
    lane_rows: int
    lane_columns: int
    slices: int

    @property
    def slice_lanes(self) -> int:
        return self.rows * self.columns // (self.lane_rows * self.lane_columns)

    @property
    def lanes(self) -> int:
        return self.slice_lanes * self.slices


_CHOICES = (Tiles(64, 64, 16, 8, 4, 1), Tiles(32, 32, 8, 4, 4, 1), Tiles(16, 16, 8, 4, 2, 1))
"""The largest first."""


def known_size(size: Expr) -> int:
    """A size, as a schedule takes it."""
    return size.value if size.is_constant else _UNKNOWN_SIZE


def choose_tiles(found: Product) -> Tiles:
    """Tiles from sizes alone: the same at every budget."""
    rows, columns = known_size(flat_size(found.rows)), known_size(flat_size(found.columns))
    batch, depth = known_size(flat_size(found.batch)), known_size(flat_size(found.depth))

    def workgroups(tiles: Tiles) -> int:
        return -(-rows // tiles.rows) * -(-columns // tiles.columns) * batch

    chosen = next((t for t in _CHOICES if workgroups(t) >= _LEAST_WORKGROUPS), _CHOICES[-1])
    slices = 1
    while (
        2 * slices * chosen.slice_lanes <= _MOST_LANES
        and depth >= 2 * slices * 4 * chosen.depth
        and (workgroups(chosen) * slices * chosen.slice_lanes < 264 * 512 or slices < 2)
    ):
        slices *= 2
    deep = 8 if slices > 1 else chosen.depth
    return Tiles(
        chosen.rows, chosen.columns, deep, chosen.lane_rows, chosen.lane_columns, slices
    )


def _is_one(axes: tuple[Axis, ...]) -> bool:
    """One row or column: `rows.py` has lanes for the depth."""
    return flat_size(axes) == ONE


@dataclass(frozen=True)
class _Side:
    """One factor of the product.

    Attributes:
        factor: its name in the body.
        axes: rows or columns.
        extent: of the tile.
        places: for each element that a lane loads, its row or column in the tile.
        depths: for each, its place in the depth of the piece.
        outer: for each, the value in the whole product, kept inside.
        base: first element in a place of the pool.
    """

    factor: str
    axes: tuple[Axis, ...]
    extent: int
    places: list[Value]
    depths: list[Value]
    outer: list[Value]
    base: int


class TileLowering(Lowering):
    """Emits a product by tiles."""

    def __init__(
        self, kernel: Kernel, shader: SlicedShader, found: Product, tiles: Tiles
    ) -> None:
        super().__init__(kernel, shader)
        self.shader = shader
        self.found = found
        self.tiles = tiles

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
        piece = tiles.depth * (tiles.rows + _PAD)
        sides = (
            self._side(found.left, found.rows, tiles.rows, self._first_row, lane, 0),
            self._side(
                found.right, found.columns, tiles.columns, self._first_column, lane, piece
            ),
        )
        piece += tiles.depth * (tiles.columns + _PAD)
        self._piece = piece
        sums = tiles.slices * tiles.rows * tiles.columns
        self._pool = Pool(shader, max(2 * tiles.slices * piece, sums))
        self._multiply(sides, lane)
        self._maps()

    def _bind(self, axes: tuple[Axis, ...], linear: Value) -> None:
        sizes = [a.size for a in axes]
        for axis, value in zip(axes, self._coordinates(linear, sizes), strict=True):
            self._bind_axis(axis, value)

    def _side(
        self,
        factor: str,
        axes: tuple[Axis, ...],
        extent: int,
        first: Value,
        lane: Value,
        base: int,
    ) -> _Side:
        """Which elements of a piece a lane loads, neighbours in memory by neighbouring lanes."""
        tiles, index = self.tiles, self.indices
        lanes, deep = tiles.slice_lanes, tiles.depth
        count = extent * deep // lanes
        if self._runs_along_depth(factor):
            depths = [lane % deep] * count
            places = [lane / deep + i * (lanes // deep) for i in range(count)]
        elif lanes >= extent:
            places = [lane % extent] * count
            depths = [lane / extent + i * (lanes // extent) for i in range(count)]
        else:
            wide = extent // lanes
            places = [lane + i % wide * lanes for i in range(count)]
            depths = [index.constant(i // wide) for i in range(count)]
        last = index.value(flat_size(axes)) - 1
        outer: list[Value] = []
        for place in places:
            value = first + place
            outer.append(value.lt(last).select(value, last))
        return _Side(factor, axes, extent, places, depths, outer, base)

    def _runs_along_depth(self, factor: str) -> bool:
        phase = self.kernel.phases[0]
        values = {o.result: o for o in phase.body}
        loads = [o for o in cone_of(values, factor) if isinstance(o, Load)]
        axes = [a.name for a in self.found.depth if a.size != ONE]
        if not loads or not axes:
            return True
        widest = max(loads, key=lambda o: len(o.index))
        operand = self.kernel.operands[widest.operand]
        return is_contiguous(operand, widest.index, axes[-1])

    # -- sums -------------------------------------------------------------------------

    def _multiply(self, sides: tuple[_Side, _Side], lane: Value) -> None:
        shader, tiles = self.shader, self.tiles
        depth = flat_size(self.found.depth)
        trips = ceildiv(ceildiv(depth, tiles.slices), tiles.depth)
        trip_count = self.indices.value(trips)
        start = self._slice * (trip_count * tiles.depth)
        zero = shader.constant("f32", 0.0)
        sums = [
            [shader.variable("f32") for _ in range(tiles.lane_columns)]
            for _ in range(tiles.lane_rows)
        ]
        for row in sums:
            for cell in row:
                shader.write(cell, zero)
        mine = self._slice * (2 * self._piece)
        self._put(sides, self._load_piece(sides, start), mine)
        shader.barrier()
        per_row = tiles.columns // tiles.lane_columns
        row = lane / per_row * tiles.lane_rows
        column = lane % per_row * tiles.lane_columns

        def piece(trip: Value) -> None:
            following = self._load_piece(sides, start + (trip + 1) * tiles.depth)
            odd = trip & 1
            here = mine + odd * self._piece
            self._add_products(sides, here, row, column, sums)
            self._put(sides, following, mine + (1 - odd) * self._piece)
            shader.barrier()

        shader.loop(trip_count, piece)
        area = tiles.rows * tiles.columns
        for i in range(tiles.lane_rows):
            place = self._slice * area + (row + i) * tiles.columns + column
            self._pool.store_run(place, [shader.read(cell) for cell in sums[i]])
        shader.barrier()

    def _load_piece(self, sides: tuple[_Side, _Side], first: Value) -> list[list[Value]]:
        return [self._load_side(side, first) for side in sides]

    def _load_side(self, side: _Side, first: Value) -> list[Value]:
        """What a lane loads of one factor; zeros behind the depth."""
        phase, found = self.kernel.phases[0], self.found
        names, ranges = dict(self.indices.names), dict(self.indices.ranges)
        cone = cone_of({o.result: o for o in phase.body}, side.factor)
        depth = self.indices.value(flat_size(found.depth))
        loaded: list[Value] = []
        known: dict[int, tuple[Value, dict[str, Value]]] = {}
        for place, outer in zip(side.depths, side.outer, strict=True):
            if id(place) not in known:
                at = first + place
                inside = at.lt(depth)
                self._bind(found.depth, inside.select(at, depth - 1))
                axes = {a.name: self.indices.names[a.name] for a in found.depth}
                known[id(place)] = inside, axes
            inside, axes = known[id(place)]
            self.indices.names.update(axes)
            self._bind(side.axes, outer)
            value = self._body(cone)[side.factor].parts[0]
            loaded.append(inside.select(value, 0.0))
        self.indices.names, self.indices.ranges = names, ranges
        return loaded

    def _put(self, sides: tuple[_Side, _Side], loaded: list[list[Value]], base: Value) -> None:
        for side, values in zip(sides, loaded, strict=True):
            for place, depth, value in zip(side.places, side.depths, values, strict=True):
                at = base + side.base + depth * (side.extent + _PAD) + place
                self._pool.store(at, value)

    def _add_products(
        self,
        sides: tuple[_Side, _Side],
        base: Value,
        row: Value,
        column: Value,
        sums: Sequence[Sequence[object]],
    ) -> None:
        """Adds the products of one piece, element of the depth by element."""
        shader, tiles = self.shader, self.tiles
        left, right = sides
        values = [[shader.read(cell) for cell in cells] for cells in sums]
        for k in range(tiles.depth):
            at = base + row + (left.base + k * (left.extent + _PAD))
            ones = self._pool.load_run(at, tiles.lane_rows)
            at = base + column + (right.base + k * (right.extent + _PAD))
            others = self._pool.load_run(at, tiles.lane_columns)
            for i, one in enumerate(ones):
                for j, other in enumerate(others):
                    values[i][j] = shader.fused(one, other, values[i][j])
        for cells, row_values in zip(sums, values, strict=True):
            for cell, value in zip(cells, row_values, strict=True):
                shader.write(cell, value)

    # -- maps -------------------------------------------------------------------------

    def _maps(self) -> None:
        """Adds the slices of each element and runs the maps behind the sum."""
        shader, tiles, kernel = self.shader, self.tiles, self.kernel
        area = tiles.rows * tiles.columns
        rows = self.indices.value(flat_size(self.found.rows))
        columns = self.indices.value(flat_size(self.found.columns))
        for local in kernel.locals:
            kind = compute_type(element_dtype(local.dtype))
            self.cells[local.name] = (shader.variable(kind),)

        def element(number: Value) -> None:
            at = number * tiles.lanes + self._lane
            row = self._first_row + at / tiles.columns
            column = self._first_column + at % tiles.columns
            total = self._total(at)

            def maps() -> None:
                self._bind(self.found.rows, row)
                self._bind(self.found.columns, column)
                keep_sum(self, kernel.phases[0], total)
                for phase in kernel.phases[1:]:
                    self._phase(phase)

            shader.guarded(row.lt(rows) & column.lt(columns), maps)

        shader.loop(self.indices.constant(-(-area // tiles.lanes)), element)

    def _total(self, at: Value) -> Value:
        """The slices of one element of the tile, added in order."""
        area = self.tiles.rows * self.tiles.columns
        total = self._pool.load(at)
        for part in range(1, self.tiles.slices):
            total = total + self._pool.load(at + part * area)
        return total


def translate(name: str, kernel: Kernel) -> Code | None:
    """The kernel by tiles in shared memory; None where it is no product of matrices.

    Raises:
        HeadraceError HR2401, HR2411, HR2412: as the naive emitter.
    """
    found = as_product(kernel)
    if found is None or any(_is_one(axes) for axes in (found.rows, found.columns)):
        return None
    check_limits(name, kernel)
    tiles = choose_tiles(found)
    rule = column_slices(kernel, found, tiles.columns)
    shader = SlicedShader(name, kernel, tiles.lanes, rule)
    shader.native_halves = True
    TileLowering(kernel, shader, found, tiles).emit()
    tile = (tiles.rows, tiles.columns)
    return product_code(name, shader, found, tile, rule, features=(FEATURE,))
