"""Which kernels are attention, and how one is cut.

Scores of each row against all keys, folds and maps over the row (scale, mask, softmax:
whatever they are), the product of the row with the values, maps of that. The phases over a
row stay as the kernel has them, so nothing about them is assumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.base.dtypes import F32
from headrace.base.symbols import ZERO, Expr, ceildiv, dim, product
from headrace.kernel.description import Axis, Kernel
from headrace.kernel.target import LayoutWish
from headrace.targets.cpu.contract_plan import (
    PANEL_COLUMNS,
    WIDENED,
    product_factors,
    rows_of_tile,
)
from headrace.targets.cpu.keep import keep_expensive
from headrace.targets.cpu.lanes import inner_choice
from headrace.targets.cpu.machine import Machine
from headrace.targets.cpu.nest import Nest, NestPhase, Read, Write, lower, stride

_FEW_ROWS = 4
"""Up to so many rows a head, keys and values are read where they stand: a decode step."""

_LEAST_ROWS = 48
"""Rows of a workgroup: each lays keys and values out anew, which 48 rows pay for."""

_WORKGROUPS = 16


@dataclass(frozen=True)
class Product:
    """One of the two products.

    Attributes:
        left, right: its reads; of the second the left one is of the row.
        column: the axis it runs along in parallel.
        term: the axis it sums over.
        result: the local array it goes to.
        start: what its sums start from.
    """

    left: Read
    right: Read
    column: Axis
    term: Axis
    result: Write
    start: float


@dataclass(frozen=True)
class AttentionPlan:
    """How attention becomes loops.

    Attributes:
        nest: all phases; the first is `scores`, the last product is number `mix_at`.
        inner: per phase the inner axis that vectors run along, and its lanes.
        scores, mix: the products.
        mix_at: number of the phase that is `mix`.
        rows, batch: outer axes that keys and values do not, and do, depend on.
        row_tile, row_block: rows of a register tile, and of a workgroup.
        few: whether there are so few rows that nothing is laid out anew.
    """

    nest: Nest
    inner: tuple[tuple[str, int] | None, ...]
    scores: Product
    mix: Product
    mix_at: int
    rows: tuple[Axis, ...]
    batch: tuple[Axis, ...]
    row_tile: int
    row_block: int
    few: bool

    @property
    def late(self) -> tuple[str, ...]:
        """Single values of a row that the maps at the end read (the sum of a softmax)."""
        found = [
            str(r.access.place)
            for p in self.nest.phases[self.mix_at + 1 :]
            for r in p.reads
            if r.access.place in self.nest.scalars
        ]
        return tuple(dict.fromkeys(found))

    @property
    def row_count(self) -> Expr:
        return product(a.size for a in self.rows)

    @property
    def key_panels(self) -> Expr:
        return ceildiv(self.scores.column.size, PANEL_COLUMNS)

    @property
    def width_panels(self) -> Expr:
        return ceildiv(self.mix.column.size, PANEL_COLUMNS)

    @property
    def row_bytes(self) -> Expr:
        """Of a row in scratch: whole panels of f32."""
        return self.key_panels * (PANEL_COLUMNS * 4)

    @property
    def keys_bytes(self) -> Expr:
        """Of the keys of a workgroup in panels."""
        return self.row_bytes * self.scores.term.size

    @property
    def values_bytes(self) -> Expr:
        """Of the values of a workgroup in panels."""
        return self.width_panels * self.mix.term.size * (PANEL_COLUMNS * 4)


def match(kernel: Kernel, machine: Machine) -> AttentionPlan | None:
    """Kernels whose rows of one product are folded, mapped and multiplied again."""
    if len(kernel.phases) < 3:
        return None
    nest = keep_expensive(lower(kernel))
    scores = _scores(nest)
    at = next((n for n, p in enumerate(nest.phases) if n and p.parallel and p.reduction), 0)
    mix = _mix(nest, nest.phases[at]) if at else None
    if scores is None or mix is None or mix.term.size != scores.column.size:
        return None
    if not mix.column.size.is_constant:
        return None
    middle, maps = nest.phases[1:at], nest.phases[at + 1 :]
    if not all(_over_row(p, scores.column.size) for p in middle):
        return None
    if not maps or not all(_over_result(p, mix) for p in maps):
        return None
    arrays = {r.access.place for p in maps for r in p.reads} & set(nest.arrays)
    if arrays - {mix.result.access.place}:
        return None
    held = scores.right.access.names | mix.right.access.names
    rows = tuple(a for a in nest.outer if a.name not in held)
    batch = tuple(a for a in nest.outer if a.name in held)
    count = product(a.size for a in rows)
    few = count.is_constant and count.value <= _FEW_ROWS
    row_tile = min(rows_of_tile(machine), count.value if few else rows_of_tile(machine))
    if few and not (_side_by_side(mix) and stride(scores.right.access, scores.term.name) == 1):
        few, row_tile = False, rows_of_tile(machine)
    inner = inner_choice(nest, machine).inner
    plan = AttentionPlan(nest, inner, scores, mix, at, rows, batch, row_tile, 0, few)
    return replace(plan, row_block=_row_block(plan))


def layout_wishes(kernel: Kernel, machine: Machine) -> Mapping[int, LayoutWish] | None:
    """Any strides will do: what is read often is laid out anew by each workgroup."""
    return {} if match(kernel, machine) is not None else None


def _side_by_side(mix: Product) -> bool:
    """Whether whole vectors of the values can be read where they stand."""
    width = mix.column.size
    whole = width.is_constant and width.value % PANEL_COLUMNS == 0
    return whole and stride(mix.right.access, mix.column.name) == 1


def _row_block(plan: AttentionPlan) -> int:
    """Rows of a workgroup: 16 workgroups or more, if their rows pay for the laying out."""
    rows, batch = (
        size.value if size.is_constant else 128
        for size in (plan.row_count, product(a.size for a in plan.batch))
    )
    pieces = max(1, min(rows // _LEAST_ROWS, round(_WORKGROUPS / max(1, batch))))
    tiles = max(1, -(-rows // plan.row_tile))
    return -(-tiles // pieces) * plan.row_tile


def _parts(phase: NestPhase) -> tuple[Axis, Axis, tuple[Read, Read], float] | None:
    """Column, term, reads and start of a phase that sums products for each column."""
    reduction, reads = phase.reduction, phase.reads
    if reduction is None or len(phase.parallel) != 1 or len(phase.reduction_axes) != 1:
        return None
    if reduction.combiner.kind != "add" or phase.writes or len(reads) != 2:
        return None
    if product_factors(phase.body) != {r.result for r in reads}:
        return None
    (result,), (start,) = phase.results, reduction.initial
    column = phase.parallel[0]
    if result.dtype != F32 or result.access.offset != dim(column.name):
        return None
    assert isinstance(start, (int, float))
    return column, phase.reduction_axes[0], (reads[0], reads[1]), float(start)


def _plain(read: Read, axes: Sequence[Axis]) -> bool:
    """An operand that is walked through in steps of known direction along the axes."""
    names = [a.name for a in axes]
    offset = read.access.offset
    if not isinstance(read.access.place, int) or read.access.guards:
        return False
    if read.dtype not in WIDENED or not offset.is_linear_in(names):
        return False
    return not any(n.startswith("%") for a in names for n in offset.coefficient(a).names)


def _scores(nest: Nest) -> Product | None:
    found = _parts(nest.phases[0])
    if found is None:
        return None
    column, term, reads, start = found
    for left, right in (reads, reads[::-1]):
        fits = _plain(left, [term]) and _plain(right, [column, term])
        if fits and column.name not in left.access.names and column.name in right.access.names:
            (result,) = nest.phases[0].results
            return Product(left, right, column, term, result, start)
    return None


def _mix(nest: Nest, phase: NestPhase) -> Product | None:
    found = _parts(phase)
    if found is None:
        return None
    column, term, reads, start = found
    for left, right in (reads, reads[::-1]):
        row = isinstance(left.access.place, str) and left.dtype == F32
        if row and left.access.offset == dim(term.name) and _plain(right, [column, term]):
            (result,) = phase.results
            return Product(left, right, column, term, result, start)
    return None


def _over_row(phase: NestPhase, size: Expr) -> bool:
    """A fold or map over the row, or of single values, that writes no operand."""
    if phase.serial or len(phase.axes) > 1 or any(a.size != size for a in phase.axes):
        return False
    places = [w.access.place for w in (*phase.writes, *phase.results)]
    return not any(isinstance(p, int) for p in places)


def _over_result(phase: NestPhase, mix: Product) -> bool:
    """A map along the columns of the second product that reads them as registers."""
    if phase.reduction is not None or phase.serial or len(phase.parallel) != 1:
        return False
    (axis,) = phase.parallel
    if axis.size != mix.column.size or any(
        isinstance(w.access.place, str) for w in phase.writes
    ):
        return False
    held = [r for r in phase.reads if isinstance(r.access.place, str)]
    own = [r for r in held if r.access.place == mix.result.access.place]
    if any(r.dtype != F32 or r.access.offset != ZERO for r in held if r not in own):
        return False
    return all(r.access.offset == dim(axis.name) for r in own)
