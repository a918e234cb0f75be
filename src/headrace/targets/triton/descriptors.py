"""Factors that come by tensor descriptors: one thread asks for a whole tile at once.

From sm_90 on a descriptor (address, sizes, strides, tile) lets the copy engine bring a tile into
shared memory, with zeros for what lies outside, so that no thread computes an address or a
mask. The driver makes them, for each launch once, and they are parameters of it (`TensorMap`):
made by every program on the device they took 1.5 us of each launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.base.symbols import ONE, ZERO, Expr, as_expr, atom_names
from headrace.kernel.description import Axis, Kernel, Load
from headrace.kernel.products import Product, flat_size, unconverted
from headrace.kernel.target import TensorMap

_ALIGNMENT_BYTES = 16

_MOST_RUN_BYTES = 128
"""Of a row of a tile that come at once, side by side in shared memory."""

_SWIZZLES = {32: 1, 64: 2, 128: 3}
"""By bytes of a run, the driver's number for the order that tensor cores read."""


@dataclass(frozen=True)
class Matrix:
    """A factor as a matrix whose rows are runs in memory.

    Attributes:
        operand: its number.
        offset: of the first element.
        rows, depth: sizes.
        stride: elements from row to row.
        width: bytes of an element.
    """

    operand: int
    offset: int
    rows: Expr
    depth: Expr
    stride: int
    width: int

    def tensor_map(self, rows: int, depth: int) -> TensorMap:
        """For tiles of so many rows and depths."""
        run = min(depth * self.width, _MOST_RUN_BYTES)
        return TensorMap(
            self.operand,
            self.offset * self.width,
            self.rows,
            self.depth,
            self.stride * self.width,
            (rows, run // self.width),
            _SWIZZLES[run],
        )


def matrix(kernel: Kernel, found: Product, name: str, axes: Sequence[Axis]) -> Matrix | None:
    """A factor as a matrix of its rows or columns, by depth; None where it is none.

    Args:
        name: of the factor in the body of the sum.
        axes: those of its rows, or of its columns.
    """
    load = unconverted({o.result: o for o in kernel.phases[0].body}, name)
    if not found.narrow or not isinstance(load, Load) or load.bounded:
        return None
    operand = kernel.operands[load.operand]
    layout = operand.layout
    if layout.codes is not None or any(d.tile != 1 for d in layout.dimensions):
        return None
    used = [a for a in (*axes, *found.depth) if a.size != ONE]
    single = [a.name for a in (*kernel.outer, *found.depth) if a.size == ONE]
    offset = layout.element_offset(load.index).substitute(dict.fromkeys(single, 0))
    if offset.names - {a.name for a in used}:
        return None
    stride, step = _flat_stride(offset, axes), _flat_stride(offset, found.depth)
    origin = offset.substitute({a.name: 0 for a in used})
    width = operand.dtype.size_bytes
    if stride is None or step != 1 or not origin.is_constant:
        return None
    if stride * width % _ALIGNMENT_BYTES or origin.value * width % _ALIGNMENT_BYTES:
        return None
    size, depth = flat_size(axes), flat_size(found.depth)
    return Matrix(load.operand, origin.value, size, depth, stride, width)


@dataclass(frozen=True)
class Rows:
    """A tile of neighbouring elements along an axis as rows of a matrix.

    Attributes:
        matrix: all rows that there are.
        row, column: of the axis's first element.
        ends: behind the last element along the axis there are no rows: a tile has zeros there.
    """

    matrix: Matrix
    row: Expr
    column: Expr
    ends: bool


def rows_along(kernel: Kernel, load: Load, axis: Axis, width: str) -> Rows | None:
    """What a load reads along an axis, as rows; None where these are no runs of memory.

    Args:
        width: the axis along a row.
    """
    operand = kernel.operands[load.operand]
    layout = operand.layout
    single = [a.name for a in kernel.outer if a.size == ONE]
    offset = layout.element_offset(load.index).substitute(dict.fromkeys(single, 0))
    stride = _step(offset, axis.name)
    if layout.codes is not None or not stride or _step(offset, width) != 1:
        return None
    size_bytes = operand.dtype.size_bytes
    if stride < 0 or stride * size_bytes % _ALIGNMENT_BYTES:
        return None
    rest = offset.substitute({axis.name: 0, width: 0})
    row, column = ZERO, ZERO
    for monomial, coefficient in rest.terms:
        above = coefficient // stride if monomial == () or coefficient % stride == 0 else 0
        row = row + Expr(((monomial, 1),)) * above
        column = column + Expr(((monomial, 1),)) * (coefficient - above * stride)
    ends = row == ZERO
    rows = axis.size if ends else layout.size // stride
    return Rows(
        Matrix(load.operand, 0, rows, as_expr(stride), stride, size_bytes), row, column, ends
    )


def _flat_stride(offset: Expr, axes: Sequence[Axis]) -> int | None:
    """Elements between neighbours along axes that are flattened, where that is one number.

    Only the outermost axis may be of a size that is not known.
    """
    stride: int | None = None
    wanted: int | None = None
    for axis in reversed(axes):
        if axis.size == ONE:
            continue
        own = _step(offset, axis.name)
        if own is None or (stride is not None and own != wanted):
            return None
        stride = own if stride is None else stride
        wanted = own * axis.size.value if axis.size.is_constant else None
    return stride


def _step(offset: Expr, name: str) -> int | None:
    """Elements of a step along an axis, where they are the same everywhere."""
    found: int | None = None
    for monomial, coefficient in offset.terms:
        if any(name in atom_names(atom) for atom, _ in monomial):
            if monomial != ((name, 1),):
                return None
            found = coefficient
    return found
