"""Products of f16 matrices by cooperative matrices (`SPV_KHR_cooperative_matrix`).

A subgroup holds some 16 x 16 sums in f32 and reads its factors where they stand: this family
takes products whose factors are plain matrices, and whose sizes are multiples of the tile.
The maps behind the sum run over one 16 x 16 part after the other, through shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.base.symbols import ONE, Expr
from headrace.kernel.description import Axis, Kernel, Load
from headrace.kernel.lanes.lower import Lowering
from headrace.kernel.lanes.machine import Value, compute_type
from headrace.kernel.lanes.scalar import element_dtype
from headrace.kernel.products import Product, as_product, flat_size, unconverted
from headrace.kernel.target import Code
from headrace.targets.vulkan.assembler import Id
from headrace.targets.vulkan.limits import check_limits
from headrace.targets.vulkan.shared import SharedArray
from headrace.targets.vulkan.slices import SlicedShader, column_slices, keep_sum, product_code

FEATURES = ("gpu", "subgroup32")
"""Beside the module's capabilities: lanes of a subgroup are counted on."""

_SIDE = 16
"""Rows, columns and depth of one product."""

_SUBGROUP = 32
_SUBGROUP_SCOPE = 3
_ROW_MAJOR, _COLUMN_MAJOR = 0, 1
_LEFT, _RIGHT, _SUM = 0, 1, 2
_STRIDE_ELEMENTS = 8
"""Rows begin at multiples of 16 bytes."""


@dataclass(frozen=True)
class Tiles:
    """The schedule: 16 x 16 parts of a subgroup, and subgroups of a workgroup, both ways."""

    parts_high: int
    parts_wide: int
    groups_high: int
    groups_wide: int

    @property
    def rows(self) -> int:
        return _SIDE * self.parts_high * self.groups_high

    @property
    def columns(self) -> int:
        return _SIDE * self.parts_wide * self.groups_wide

    @property
    def groups(self) -> int:
        return self.groups_high * self.groups_wide


_CHOICES = (Tiles(4, 4, 2, 2), Tiles(4, 4, 1, 1), Tiles(2, 2, 1, 1), Tiles(1, 1, 1, 1))
"""The largest first."""

_LEAST_WORKGROUPS = 100


@dataclass(frozen=True)
class _Matrix:
    """A factor as a matrix in memory.

    Attributes:
        operand: which.
        load: how the kernel reads it.
        outer, depth: its two axes.
        outer_step, depth_step: elements between neighbours along them; one is 1.
    """

    operand: int
    load: Load
    outer: Axis
    depth: Axis
    outer_step: int
    depth_step: int


def _matrix(
    kernel: Kernel, factor: str, outer: tuple[Axis, ...], depth: tuple[Axis, ...]
) -> _Matrix | None:
    values = {o.result: o for o in kernel.phases[0].body}
    load = unconverted(values, factor)
    axes = [[a for a in group if a.size != ONE] for group in (outer, depth)]
    if not isinstance(load, Load) or load.bounded or any(len(a) != 1 for a in axes):
        return None
    (one,), (other,) = axes
    operand = kernel.operands[load.operand]
    offset = operand.layout.element_offset(load.index)
    steps = [_step(offset, one, other), _step(offset, other, one)]
    if None in steps or 1 not in steps:
        return None
    outer_step, depth_step = steps
    assert outer_step is not None and depth_step is not None
    wide = depth_step if outer_step == 1 else outer_step
    if wide % _STRIDE_ELEMENTS or wide < _SIDE:
        return None
    return _Matrix(load.operand, load, one, other, outer_step, depth_step)


def _step(offset: Expr, axis: Axis, other: Axis) -> int | None:
    """Elements from one place along an axis to the next, where it is the same everywhere."""
    if not axis.size.is_constant:
        return None
    first = offset.substitute({axis.name: 1}) - offset.substitute({axis.name: 0})
    last = axis.size.value - 1
    whole = offset.substitute({axis.name: last}) - offset.substitute({axis.name: 0})
    if not first.is_constant or not whole.is_constant or whole.value != first.value * last:
        return None
    return first.value if not offset.names & {"%tile"} and other.size.is_constant else None


def _choose(found: Product) -> Tiles | None:
    sizes = [flat_size(axes) for axes in (found.rows, found.columns, found.depth, found.batch)]
    if not all(s.is_constant for s in sizes):
        return None
    rows, columns, depth, batch = (s.value for s in sizes)
    if depth % _SIDE:
        return None
    fitting = [t for t in _CHOICES if rows % t.rows == 0 and columns % t.columns == 0]
    many = [
        t
        for t in fitting
        if rows // t.rows * (columns // t.columns) * batch >= _LEAST_WORKGROUPS
    ]
    return (many or fitting[-1:] or [None])[0]


class _Lowering(Lowering):
    def __init__(
        self,
        kernel: Kernel,
        shader: SlicedShader,
        found: Product,
        sides: tuple[_Matrix, _Matrix],
        tiles: Tiles,
    ) -> None:
        super().__init__(kernel, shader)
        self.shader = shader
        self.found = found
        self.sides = sides
        self.tiles = tiles

    def emit(self) -> None:
        """The whole body."""
        shader, tiles = self.shader, self.tiles
        row_tile, column_tile, batch = shader.workgroup()
        local = shader.local_index()
        self._lane = local % _SUBGROUP
        self._group = local / _SUBGROUP
        self._bind(self.found.batch, batch)
        high = self._group / tiles.groups_wide * (_SIDE * tiles.parts_high)
        wide = self._group % tiles.groups_wide * (_SIDE * tiles.parts_wide)
        self._row = row_tile * tiles.rows + high
        self._column = column_tile * tiles.columns + wide
        half = shader.half_id()
        single = shader.type_id("f32")
        self._types = (
            self._type(half, _LEFT),
            self._type(half, _RIGHT),
            self._type(single, _SUM),
        )
        zero = shader.module.unique("OpConstantNull", type=self._types[_SUM])
        sums = [
            [shader.local_variable(self._types[_SUM]) for _ in range(tiles.parts_wide)]
            for _ in range(tiles.parts_high)
        ]
        for cells in sums:
            for cell in cells:
                shader.instruct("OpStore", cell, zero)
        depth = flat_size(self.found.depth).value

        def piece(number: Value) -> None:
            self._add(number * _SIDE, sums)

        shader.loop(self.indices.constant(depth // _SIDE), piece)
        self._maps(sums)

    def _bind(self, axes: tuple[Axis, ...], linear: Value) -> None:
        sizes = [a.size for a in axes]
        for axis, value in zip(axes, self._coordinates(linear, sizes), strict=True):
            self._bind_axis(axis, value)

    def _type(self, component: Id, use: int) -> Id:
        module = self.shader.module
        side, scope, what = (module.unsigned_constant(n) for n in (_SIDE, _SUBGROUP_SCOPE, use))
        return module.unique("OpTypeCooperativeMatrixKHR", component, scope, side, side, what)

    def _load_part(self, use: int, outer: Value, depth: Value) -> Id:
        """One 16 x 16 part of a factor, from where it stands."""
        shader, side = self.shader, self.sides[use]
        names = dict(self.indices.names)
        for axes in (self.found.rows, self.found.columns, self.found.depth):
            for axis in axes:
                self.indices.names[axis.name] = self.indices.constant(0)
        self.indices.names[side.outer.name] = outer
        self.indices.names[side.depth.name] = depth
        (offset,) = self._elements(self.kernel.operands[side.operand], side.load.index)
        offset = shader.from_slice(side.operand, offset)
        self.indices.names = names
        # Rows of the left factor and columns of the right one are what is not depth.
        along_depth = side.depth_step == 1
        row_major = along_depth if use == _LEFT else not along_depth
        stride = side.outer_step if along_depth else side.depth_step
        layout = shader.module.unsigned_constant(_ROW_MAJOR if row_major else _COLUMN_MAJOR)
        place = shader.element_pointer(side.operand, offset)
        return shader.operation(
            "OpCooperativeMatrixLoadKHR",
            self._types[use],
            place,
            layout,
            shader.module.unsigned_constant(stride),
        )

    def _add(self, depth: Value, sums: list[list[Id]]) -> None:
        shader, tiles = self.shader, self.tiles
        lefts = [
            self._load_part(_LEFT, self._row + _SIDE * i, depth)
            for i in range(tiles.parts_high)
        ]
        rights = [
            self._load_part(_RIGHT, self._column + _SIDE * j, depth)
            for j in range(tiles.parts_wide)
        ]
        kind = self._types[_SUM]
        for left, cells in zip(lefts, sums, strict=True):
            for right, cell in zip(rights, cells, strict=True):
                before = shader.operation("OpLoad", kind, cell)
                after = shader.operation(
                    "OpCooperativeMatrixMulAddKHR", kind, left, right, before
                )
                shader.instruct("OpStore", cell, after)

    # -- maps -------------------------------------------------------------------------

    def _maps(self, sums: list[list[Id]]) -> None:
        shader, kernel = self.shader, self.kernel
        for local in kernel.locals:
            kind = compute_type(element_dtype(local.dtype))
            self.cells[local.name] = (shader.variable(kind),)
        part = _SIDE * _SIDE
        shared = SharedArray(shader, "f32", part * self.tiles.groups)
        base = self._group * part
        layout = shader.module.unsigned_constant(_ROW_MAJOR)
        stride = shader.module.unsigned_constant(_SIDE)
        for i, cells in enumerate(sums):
            for j, cell in enumerate(cells):
                value = shader.operation("OpLoad", self._types[_SUM], cell)
                place = shared.pointer(base).handle
                shader.instruct(
                    "OpCooperativeMatrixStoreKHR", place, value, layout, stride, *shared.access
                )
                shader.barrier()
                self._map_part(shared, base, self._row + _SIDE * i, self._column + _SIDE * j)
                shader.barrier()

    def _map_part(self, shared: SharedArray, base: Value, row: Value, column: Value) -> None:
        def element(number: Value) -> None:
            at = number * _SUBGROUP + self._lane
            self._bind(self.found.rows, row + at / _SIDE)
            self._bind(self.found.columns, column + at % _SIDE)
            keep_sum(self, self.kernel.phases[0], shared.load(base + at))
            for phase in self.kernel.phases[1:]:
                self._phase(phase)

        self.shader.loop(self.indices.constant(_SIDE * _SIDE // _SUBGROUP), element)


def translate(name: str, kernel: Kernel) -> Code | None:
    """The kernel by cooperative matrices; None where it is no product that they do.

    Raises:
        HeadraceError HR2401, HR2411, HR2412: as the naive emitter.
    """
    found = as_product(kernel)
    if found is None or found.narrow != "f16":
        return None
    left = _matrix(kernel, found.left, found.rows, found.depth)
    right = _matrix(kernel, found.right, found.columns, found.depth)
    tiles = _choose(found)
    if left is None or right is None or tiles is None:
        return None
    read_again = {o.operand for p in kernel.phases[1:] for o in p.body if isinstance(o, Load)}
    if read_again & {left.operand, right.operand}:
        return None
    check_limits(name, kernel)
    rule = column_slices(kernel, found, tiles.columns)
    halves = (left.operand, right.operand)
    shader = SlicedShader(name, kernel, _SUBGROUP * tiles.groups, rule, halves)
    shader.module.capability("CooperativeMatrixKHR")
    shader.module.capability("VulkanMemoryModel")
    shader.module.memory_model = "Vulkan"
    shader.module.extension("SPV_KHR_cooperative_matrix")
    _Lowering(kernel, shader, found, (left, right), tiles).emit()
    tile = (tiles.rows, tiles.columns)
    return product_code(name, shader, found, tile, rule, "matrices", FEATURES)
