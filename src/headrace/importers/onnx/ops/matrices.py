"""Determinants."""

from __future__ import annotations

from xdsl.ir import SSAValue

from headrace.base.dtypes import I64
from headrace.base.symbols import as_expr, product
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.ops.points import working_type
from headrace.importers.onnx.ops.pooling import first_largest, lowest
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import dtype_of, shape_of

_MOST_ROWS = 64  # one step of elimination each


@onnx_op("Det")
def determinant(c: NodeContext) -> SSAValue:
    """The product of the pivots of an elimination that takes the largest one each time."""
    b, x = c.build, c.data(0)
    kind, shape = dtype_of(x), shape_of(x)
    size = c.dims.same(shape[-2], shape[-1])
    if not size.is_constant or size.value > _MOST_ROWS:
        raise c.unsupported(f"a matrix of {size} rows; at most {_MOST_ROWS} are written out")
    work = working_type(kind)
    batch = product(shape[:-2])
    rest = b.reshape(b.convert(x, work), (batch, size, size))
    result = b.splat(1, work, (batch,))
    for rows in range(size.value, 0, -1):
        pivot_row, others, swapped = _pivot(c, rest, rows)
        pivot = b.reshape(c.slice_axis(pivot_row, 1, 0, 1), (batch,))
        result = b.binary("multiply", result, pivot)
        result = b.select(swapped, b.unary("negate", result), result)
        if rows > 1:
            rest = _eliminated(c, pivot, pivot_row, others, rows)
    return b.convert(b.reshape(result, shape[:-2]), kind)


def _pivot(c: NodeContext, x: SSAValue, rows: int) -> tuple[SSAValue, SSAValue, SSAValue]:
    """The row with the largest first element, the other rows, and whether rows changed
    places."""
    b, kind = c.build, dtype_of(x)
    batch = shape_of(x)[0]
    column = b.unary("abs", b.reshape(c.slice_axis(x, 2, 0, 1), (batch, rows)))
    starts = [b.scalar(lowest(kind), kind), b.scalar((1 << 63) - 1, I64)]
    places = b.iota(I64, shape_of(column), 1)
    at = b.reduce([column, places], starts, [1], first_largest)[1]
    at = b.binary("minimum", at, c.scalar_like(rows - 1, at))  # NaN is never the largest
    row = b.gather(
        x,
        b.reshape(at, (batch, 1)),
        offset_dims=[1],
        collapsed_slice_dims=[1],
        operand_batching_dims=[0],
        start_indices_batching_dims=[0],
        start_index_map=[1],
        index_vector_dim=1,
        slice_sizes=[1, 1, rows],
    )
    others = c.slice_axis(x, 1, 1, rows)
    if rows > 1:
        taken = c.with_scalar("add", b.iota(I64, shape_of(others), 1), 1)
        hole = b.compare("EQ", taken, b.broadcast_in_dim(at, (0,), shape_of(others)))
        first = b.reshape(c.slice_axis(x, 1, 0, 1), (batch, rows))
        others = b.select(hole, b.broadcast_in_dim(first, (0, 2), shape_of(others)), others)
    return row, others, b.compare("NE", at, c.scalar_like(0, at))


def _eliminated(
    c: NodeContext, pivot: SSAValue, pivot_row: SSAValue, others: SSAValue, rows: int
) -> SSAValue:
    """The other rows without their first column, the pivot's row taken off."""
    b, batch = c.build, shape_of(pivot)[0]
    # A pivot of 0 heads a column of zeros: nothing is taken off, the result stays 0.
    zero = b.compare("EQ", pivot, c.scalar_like(0, pivot))
    safe = b.select(zero, c.scalar_like(1, pivot), pivot)
    shape = (batch, as_expr(rows - 1), as_expr(rows - 1))
    head = b.reshape(c.slice_axis(others, 2, 0, 1), (batch, rows - 1))
    factor = b.binary("divide", head, b.broadcast_in_dim(safe, (0,), shape_of(head)))
    taken = b.binary(
        "multiply",
        b.broadcast_in_dim(factor, (0, 1), shape),
        b.broadcast_in_dim(c.slice_axis(pivot_row, 1, 1, rows), (0, 2), shape),
    )
    return b.binary("subtract", c.slice_axis(others, 2, 1, rows), taken)
