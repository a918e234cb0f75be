"""Products and convolutions in registers: for devices whose loads all cost the same (CPUs).

A lane computes a block of the result: for each element of the depth it loads a column of
the left factor and a row of the right one, and adds all their products. Nothing is shared,
so every device runs it: it stands where the naive emitter would.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.base.symbols import ONE, Expr
from headrace.kernel.description import Axis, Kernel
from headrace.kernel.lanes.lower import Lowering
from headrace.kernel.lanes.machine import Value, compute_type
from headrace.kernel.lanes.scalar import element_dtype
from headrace.kernel.products import Product, as_product, cone_of, flat_size
from headrace.kernel.target import Code
from headrace.targets.vulkan.limits import check_limits
from headrace.targets.vulkan.slices import SlicedShader, column_slices, keep_sum, product_code

_ACCUMULATED = "sums"


@dataclass(frozen=True)
class Blocks:
    """The schedule: a lane's block, and the lanes of a workgroup, both ways."""

    rows: int
    columns: int
    lanes_high: int
    lanes_wide: int

    @property
    def group_rows(self) -> int:
        return self.rows * self.lanes_high

    @property
    def group_columns(self) -> int:
        return self.columns * self.lanes_wide

    @property
    def lanes(self) -> int:
        return self.lanes_high * self.lanes_wide


_LEAST_LANES = 8
"""Subgroups of lavapipe; workgroups are whole ones."""


def _block(size: Expr) -> int:
    """How long a lane's block is along a size."""
    if not size.is_constant:
        return 4
    return next(
        (n for n in (8, 4, 2) if size.value >= 8 * n or size.value == n),
        1 if size == ONE else 4,
    )


def choose_blocks(found: Product) -> Blocks:
    """Blocks from sizes alone."""
    rows, columns = flat_size(found.rows), flat_size(found.columns)
    high, wide = _block(rows), _block(columns)
    lanes_high = _LEAST_LANES
    while rows.is_constant and lanes_high > 1 and rows.value <= high * lanes_high // 2:
        lanes_high //= 2
    return Blocks(high, wide, lanes_high, _LEAST_LANES // lanes_high)


class _Lowering(Lowering):
    def __init__(
        self, kernel: Kernel, shader: SlicedShader, found: Product, blocks: Blocks
    ) -> None:
        super().__init__(kernel, shader)
        self.shader = shader
        self.found = found
        self.blocks = blocks

    def emit(self) -> None:
        """The whole body."""
        shader, blocks, found = self.shader, self.blocks, self.found
        row_group, column_group, batch = shader.workgroup()
        lane = shader.local_index()
        self._bind(found.batch, batch)
        first_row = row_group * blocks.group_rows + lane % blocks.lanes_high * blocks.rows
        first_column = (
            column_group * blocks.group_columns + lane / blocks.lanes_high * blocks.columns
        )
        zero = shader.constant("f32", 0.0)
        sums = [
            [shader.variable("f32") for _ in range(blocks.columns)] for _ in range(blocks.rows)
        ]
        for cells in sums:
            for cell in cells:
                shader.write(cell, zero)
        rows = self._side(found.rows, first_row, blocks.rows)
        columns = self._side(found.columns, first_column, blocks.columns)

        def add() -> None:
            lefts = [self._factor(found.left, place) for place in rows]
            rights = [self._factor(found.right, place) for place in columns]
            for left, cells in zip(lefts, sums, strict=True):
                for right, cell in zip(rights, cells, strict=True):
                    shader.write(cell, shader.fused(left, right, shader.read(cell)))

        names, ranges = dict(self.indices.names), dict(self.indices.ranges)
        self._nest(found.depth, add)
        self.indices.names, self.indices.ranges = names, ranges
        shader.private_array(_ACCUMULATED, "f32", blocks.rows * blocks.columns)
        for i, cells in enumerate(sums):
            for j, cell in enumerate(cells):
                at = self.indices.constant(i * blocks.columns + j)
                shader.store_array(_ACCUMULATED, at, shader.read(cell))
        self._maps(first_row, first_column)

    def _bind(self, axes: tuple[Axis, ...], linear: Value) -> None:
        sizes = [a.size for a in axes]
        for axis, value in zip(axes, self._coordinates(linear, sizes), strict=True):
            self._bind_axis(axis, value)

    def _side(self, axes: tuple[Axis, ...], first: Value, count: int) -> list[dict[str, Value]]:
        """Axes of each row (or column) of the block; those behind the end do the last again."""
        last = self.indices.value(flat_size(axes)) - 1
        found: list[dict[str, Value]] = []
        for i in range(count):
            at = first + i
            self._bind(axes, at.lt(last).select(at, last))
            found.append({a.name: self.indices.names[a.name] for a in axes})
        return found

    def _factor(self, name: str, place: dict[str, Value]) -> Value:
        self.indices.names.update(place)
        cone = cone_of({o.result: o for o in self.kernel.phases[0].body}, name)
        return self._body(cone)[name].parts[0]

    def _maps(self, first_row: Value, first_column: Value) -> None:
        shader, blocks, kernel = self.shader, self.blocks, self.kernel
        rows = self.indices.value(flat_size(self.found.rows))
        columns = self.indices.value(flat_size(self.found.columns))
        for local in kernel.locals:
            kind = compute_type(element_dtype(local.dtype))
            self.cells[local.name] = (shader.variable(kind),)

        def element(at: Value) -> None:
            row = first_row + at / blocks.columns
            column = first_column + at % blocks.columns

            def maps() -> None:
                self._bind(self.found.rows, row)
                self._bind(self.found.columns, column)
                keep_sum(self, kernel.phases[0], shader.load_array(_ACCUMULATED, at))
                for phase in kernel.phases[1:]:
                    self._phase(phase)

            shader.guarded(row.lt(rows) & column.lt(columns), maps)

        shader.loop(self.indices.constant(blocks.rows * blocks.columns), element)


def translate(name: str, kernel: Kernel) -> Code | None:
    """The kernel in registers; None where it is no product of matrices.

    Raises:
        HeadraceError HR2401, HR2411, HR2412: as the naive emitter.
    """
    found = as_product(kernel)
    if found is None:
        return None
    check_limits(name, kernel)
    blocks = choose_blocks(found)
    rule = column_slices(kernel, found, blocks.group_columns)
    shader = SlicedShader(name, kernel, blocks.lanes, rule)
    _Lowering(kernel, shader, found, blocks).emit()
    return product_code(name, shader, found, (blocks.group_rows, blocks.group_columns), rule)
