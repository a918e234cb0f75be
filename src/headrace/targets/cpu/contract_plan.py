"""How a product or convolution is cut: which axes are what, register tiles, blocks.

See `contract.py` for the family. Blocks are chosen so that what a workgroup rereads stays
in the nearest caches: a panel's weights while row tiles pass over them, or the rows of a
tile while panels pass over them. Deep sums are cut along the sum as well; the partial sums
then wait in the worker's scratch. Each element's terms are added in one order whatever the
cut, so the bits are the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.base.dtypes import BF16, F16, F32, I8, I16, I32, UI8, DType
from headrace.base.symbols import ONE, Expr, as_expr, ceildiv, dim, product
from headrace.kernel.description import Axis, Compute, Kernel, Load
from headrace.targets.cpu.choices import contract_key, with_contract_choice
from headrace.targets.cpu.machine import Machine
from headrace.targets.cpu.nest import Nest, Read, lower, stride
from headrace.targets.cpu.products import FEW_SUMS, UNROLL

WIDENED = (F32, F16, BF16)
"""Element types of operands; the narrow ones are widened as they are loaded."""

INTEGERS = (I8, UI8, I16)
"""Element types of operands whose products are summed in i32; see `integer_products`."""

FACTORS = {F32: WIDENED, I32: INTEGERS}
"""Element types of the operands by that of the sum."""

PANEL_COLUMNS = 16
"""Columns of a packed panel, on every CPU: variants for several share their weights."""
_ACCUMULATORS = 12
_L2_BYTES = 192 << 10
"""Weights of a column block up to this are reread for every row tile (L2 holds 512 KiB)."""

_HUGE_PAGE_BYTES = 2 << 20

_ROW_BYTES = 128 << 10
"""Left operands up to this are read again for every column block, not cut into row blocks."""

_MOST_WIDENED = 1 << 16
"""Longest runs of integers that are widened into scratch."""

_MOST_PACKED = 256
"""Longest sums whose right operand is laid out anew by each workgroup."""

_PACKED_BYTES = 64 << 10

_DEEP = 1024
"""Sums of at least as many terms are cut."""

_DEPTH_BLOCK = 512
"""Terms of a part: a panel of them is 32 KiB."""

_DEEP_ROWS = 216
"""Rows of a workgroup whose sums are cut."""


@dataclass(frozen=True)
class ContractPlan:
    """How a contraction becomes loops.

    Attributes:
        nest: the kernel on offsets; phase 0 is the sum of products.
        left, right: its two reads.
        column, rows, batch: the outer axes by role.
        sums: reduction axes, outermost first.
        tile: columns of one panel; a multiple of the vector width.
        row_tile: rows of one tile.
        panels: panels that one tile covers at once (few rows need more columns).
        row_block, column_block: rows, and panels, of one workgroup.
        rows_outside: whether a workgroup passes over its panels for each row tile, not
            over its row tiles for each panel.
        depth_block: terms of the innermost sum that are added before the partial sums
            wait in scratch; 0 where sums stay in registers throughout.
        packed: whether each workgroup first lays its part of the right operand out in
            panels, in scratch: its columns stand apart, its terms side by side (the keys
            of attention).
        in_bytes: whether four products of bytes are one instruction (`byte_products`).
    """

    nest: Nest
    left: Read
    right: Read
    column: Axis
    rows: tuple[Axis, ...]
    batch: tuple[Axis, ...]
    sums: tuple[Axis, ...]
    tile: int
    row_tile: int
    panels: int
    row_block: int = 0
    column_block: int = 0
    rows_outside: bool = False
    depth_block: int = 0
    packed: bool = False
    in_bytes: bool = False

    @property
    def sum_dtype(self) -> DType:
        """What the sums are kept in: f32 or i32."""
        return I32 if self.left.dtype in INTEGERS else F32

    @property
    def row_count(self) -> Expr:
        return product(a.size for a in self.rows)

    @property
    def panel_count(self) -> Expr:
        return ceildiv(self.column.size, self.tile)

    def has_few_sums(self, width: int) -> bool:
        """Whether totals fit into registers beside the largest tile's sums, of vectors
        `width` wide."""
        count = self.row_count
        if not count.is_constant:
            return False
        tall = min(count.value, self.row_tile)
        return tall * self.panels * self.tile // width <= FEW_SUMS

    @property
    def scratch_bytes(self) -> int:
        """All of it: the block's, then the widened rows of a tile."""
        return self.block_bytes + self.row_tile * self.widened_bytes

    @property
    def widened_bytes(self) -> int:
        """A row of narrow left elements as f32 (integers: as i16): widened once a tile and
        run, not at each use. 0 where they are wide, or do not stand side by side."""
        inner = self.sums[-1]
        if self.in_bytes:
            return 0
        if self.sum_dtype == I32:
            beside = self.left.access.offset.coefficient(inner.name) == ONE
            if self.left.dtype == I16 and beside:
                return 0
            return -(-inner.size.value * I16.size_bytes // 64) * 64
        if self.left.dtype == F32 or not inner.size.is_constant or inner.size.value % 8:
            return 0
        if self.left.access.offset.coefficient(inner.name) != ONE:
            return 0
        return (self.depth_block or inner.size.value) * 4 + 64

    @property
    def block_bytes(self) -> int:
        """For the partial sums of a workgroup, or for its part of the right operand."""
        rows = self.row_block if self.depth_block else 0
        if self.packed:
            rows = self.sums[0].size.value
        return rows * self.column_block * self.tile * 4


def match(kernel: Kernel, machine: Machine) -> ContractPlan | None:
    """Kernels of one sum of products, in f32 or i32, and maps after it."""
    nest = lower(kernel)
    if not nest.phases:
        return None
    first, *rest = nest.phases
    if first.reduction is None or first.parallel or first.writes or not first.reduction_axes:
        return None
    if first.reduction.combiner.kind != "add" or len(first.results) != 1:
        return None
    dtype = first.results[0].dtype
    if first.results[0].access.place not in nest.scalars or dtype not in FACTORS:
        return None
    if any(p.axes or p.reduction is not None for p in rest):
        return None
    reads = first.reads
    factors = product_factors(first.body, dtype)
    if len(reads) != 2 or factors is None or factors != {r.result for r in reads}:
        return None
    if any(r.dtype not in FACTORS[dtype] for r in reads) or any(r.access.guards for r in reads):
        return None
    if not all(isinstance(r.access.place, int) for r in reads):
        return None
    for packed in (False, True) if dtype == F32 else (False,):
        for left, right in (reads, reads[::-1]):
            plan = _plan(nest, left, right, machine, packed)
            if plan is not None:
                key = contract_key(plan) or ""
                return with_contract_choice(plan, machine.table.get(key), key)
    return None


def product_factors(body: Sequence[object], dtype: DType = F32) -> set[str] | None:
    """The two values that a product in `dtype` multiplies, widenings to it seen through.

    None where the body has anything else beside loads.
    """
    items = [i for i in body if not isinstance(i, (Read, Load))]
    if not items:
        return None
    *before, last = items
    if not isinstance(last, Compute) or last.operation != "multiply" or last.dtype != dtype:
        return None
    widened: dict[str, str] = {}
    for item in before:
        if not isinstance(item, Compute) or item.operation != "convert" or item.dtype != dtype:
            return None
        widened[item.result] = item.operands[0]
    factors = {widened.get(o, o) for o in last.operands}
    return factors if set(widened) <= set(last.operands) else None


def _plan(
    nest: Nest, left: Read, right: Read, machine: Machine, packed: bool
) -> ContractPlan | None:
    a, b = left.access.offset, right.access.offset
    sums = nest.phases[0].reduction_axes
    names = [s.name for s in sums]
    outer = {axis.name for axis in nest.outer}
    for offset in (a, b):
        if not offset.is_linear_in(names):
            return None
        if any(offset.coefficient(n).names & (outer | set(names)) for n in names):
            return None
    ordered = tuple(sorted(sums, key=lambda s: -_guess(b.coefficient(s.name))))
    if left.dtype in INTEGERS:
        inner = ordered[-1].size
        if not inner.is_constant or inner.value > _MOST_WIDENED:
            return None
    tile = PANEL_COLUMNS
    columns = [x for x in nest.outer if x.name not in a.names and x.name in b.names]
    if packed:
        columns = [x for x in columns if _packable(nest, right, x)]
    else:
        columns = [x for x in columns if _contiguous(b, x.name, tile)]
    if not columns:
        return None
    column = max(columns, key=lambda x: _guess(x.size))
    rows = tuple(x for x in nest.outer if x is not column and x.name not in b.names)
    batch = tuple(x for x in nest.outer if x is not column and x not in rows)
    row_tile, panels = _register_tile(rows, column, tile // machine.width, tile)
    plan = ContractPlan(nest, left, right, column, rows, batch, ordered, tile, row_tile, panels)
    beside = a.coefficient(ordered[-1].name) == ONE
    if machine.byte_features and beside and {left.dtype, right.dtype} <= {I8, UI8}:
        plan = replace(plan, in_bytes=True)
    if packed:
        if row_tile < _ACCUMULATORS // 2 * machine.width // tile:
            return None
        flat = _flat_blocks(replace(plan, packed=True))
        most = max(1, _PACKED_BYTES // (sums[0].size.value * tile * 4))
        return replace(flat, column_block=min(flat.column_block, most), rows_outside=True)
    return _with_blocks(plan)


def _packable(nest: Nest, right: Read, axis: Axis) -> bool:
    """Whether the terms of one sum stand side by side and results along the axis do too."""
    offset, sums = right.access.offset, nest.phases[0].reduction_axes
    if len(sums) != 1 or not sums[0].size.is_constant or sums[0].size.value % 8:
        return False
    if offset.coefficient(sums[0].name) != ONE or sums[0].size.value > _MOST_PACKED:
        return False
    if not offset.is_linear_in([axis.name, sums[0].name]):
        return False
    names = {x.name for x in (*nest.outer, *sums)}
    if offset.coefficient(axis.name).names & names:
        return False
    writes = [w.access for phase in nest.phases[1:] for w in phase.writes]
    return all(stride(w, axis.name) == 1 for w in writes if isinstance(w.place, int))


def _guess(size: Expr) -> int:
    """At least 1: a product without elements has a plan too."""
    return max(1, size.value) if size.is_constant else 64


def _contiguous(offset: Expr, axis: str, tile: int) -> bool:
    """Whether `tile` columns from a multiple of it stand side by side."""
    if axis not in offset.names:
        return False
    panel = dim("%p") * tile
    first = offset.substitute({axis: panel})
    return all(
        offset.substitute({axis: panel + c}) - first == as_expr(c) for c in range(1, tile)
    )


def rows_of_tile(machine: Machine) -> int:
    """Rows of a register tile of one panel: 12 accumulators hide the FMA's latency."""
    return _ACCUMULATORS * machine.width // PANEL_COLUMNS


def _register_tile(
    rows: Sequence[Axis], column: Axis, vectors: int, tile: int
) -> tuple[int, int]:
    """Rows and panels of a tile: 12 accumulators hide the FMA's latency."""
    row_tile = _ACCUMULATORS // vectors
    count = product(a.size for a in rows)
    if not count.is_constant or count.value >= row_tile:
        return row_tile, 1
    few = max(1, count.value)
    panels = max(1, 8 // (few * vectors))
    if column.size.is_constant:
        panels = min(panels, max(1, column.size.value // tile))
    return few, panels


def _with_blocks(plan: ContractPlan) -> ContractPlan:
    """Workgroups: enough to share out, each with what it rereads in the nearest cache."""
    deep = _deep_blocks(plan)
    return deep if deep is not None else _flat_blocks(plan)


def _deep_blocks(plan: ContractPlan) -> ContractPlan | None:
    """Blocks of a long sum: a panel's part of it stays near while all rows pass over it."""
    sizes = [a.size for a in (*plan.sums, *plan.rows, plan.column)]
    if plan.batch or plan.panels > 1 or any(not s.is_constant for s in sizes):
        return None
    if plan.sum_dtype != F32:
        return None  # a panel of bytes is a quarter as large
    inner = plan.sums[-1].size.value
    depth = product(a.size for a in plan.sums).value
    if len(plan.sums) > 2 or depth < _DEEP or inner % UNROLL or inner < 64:
        return None
    rows, panels = plan.row_count.value, plan.panel_count.value
    if rows < 2 * plan.row_tile or (depth == _DEEP and rows > 64):
        return None
    pieces = -(-inner // _DEPTH_BLOCK)
    depth_block = -(-inner // pieces // UNROLL) * UNROLL
    row_tiles = -(-rows // plan.row_tile)
    row_blocks = -(-rows // _DEEP_ROWS)
    block_tiles = -(-row_tiles // row_blocks)
    columns = min(panels, max(8, 24 // row_blocks))
    column_block = -(-panels // columns)
    return replace(
        plan,
        row_block=block_tiles * plan.row_tile,
        column_block=column_block,
        depth_block=depth_block,
    )


def _flat_blocks(plan: ContractPlan) -> ContractPlan:
    """Blocks of a sum that stays in registers.

    Large weights are cut along columns, so that a part of them is enough for a workgroup
    (streaming slices them there); small ones along rows. A part as large as pages of 2 MiB
    ends with one: the file is mapped in such, and taken whole.
    """
    depth = 1
    for axis in plan.sums:
        depth *= _guess(axis.size)
    panel_bytes = depth * plan.tile * 4
    panel_count = max(1, _guess(plan.panel_count))
    row_tiles = max(1, -(-_guess_rows(plan) // plan.row_tile))
    batch = 1
    for axis in plan.batch:
        batch *= _guess(axis.size)
    if panel_bytes * panel_count <= _L2_BYTES and row_tiles * batch >= 16:
        column_block = panel_count
    else:
        wanted = 16 if row_tiles * batch < 8 else 8
        if row_tiles * plan.row_tile * depth * 4 <= _ROW_BYTES:
            wanted = 24 // batch or 1  # All rows fit beside a few panels: weights pass once.
        column_block = max(
            1, panel_count // wanted, min(panel_count, _L2_BYTES // panel_bytes // 2)
        )
        column_block = min(column_block, max(1, panel_count // max(8, wanted)))
    column_block = -(-column_block // plan.panels) * plan.panels
    whole = math.lcm(panel_bytes * plan.panels, _HUGE_PAGE_BYTES) // panel_bytes
    if whole <= column_block:
        column_block -= column_block % whole
    columns = max(1, -(-panel_count // column_block))
    pieces = max(1, 24 // (columns * batch))
    block_tiles = max(1, -(-row_tiles // pieces))
    # Below 100,000 multiply-adds a workgroup costs more to hand out than it saves.
    least = max(1, 100_000 // max(1, plan.row_tile * column_block * plan.tile * depth))
    block_tiles = min(max(block_tiles, least), row_tiles)
    return replace(
        plan,
        row_block=block_tiles * plan.row_tile,
        column_block=column_block,
        rows_outside=panel_bytes * column_block <= _L2_BYTES,
    )


def _guess_rows(plan: ContractPlan) -> int:
    total = 1
    for axis in plan.rows:
        total *= axis.size.value if axis.size.is_constant else 128
    return total
