"""`com.microsoft`: operators that converters use where ONNX's old opsets have none.

`Trilu`, `GatherND`, `GridSample` and `Pad` are ONNX's, registered beside them.
Definitions: onnxruntime's docs/ContribOperators.md .
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from headrace.base.symbols import as_expr
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.ops.microsoft_fused import DOMAIN
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import shape_of


@onnx_op("CDist", domain=DOMAIN)
def distances(c: NodeContext) -> SSAValue:
    """Of the rows of [M, K] from those of [N, K]: [M, N].

    Sums of squared differences: onnxruntime's sum of products loses what cancels.
    """
    rule = c.string("metric", "sqeuclidean")
    if rule not in ("euclidean", "sqeuclidean"):
        raise c.malformed(f"metric '{rule}' is unknown")
    b, left, right = c.build, c.data(0), c.data(1)
    (rows, inner), (columns, other) = shape_of(left), shape_of(right)
    shape = (rows, columns, c.dims.same(inner, other))
    apart = b.binary(
        "subtract",
        b.broadcast_in_dim(left, (0, 2), shape),
        b.broadcast_in_dim(right, (1, 2), shape),
    )
    total = c.reduce(b.binary("multiply", apart, apart), 0, [2], "add")
    return b.unary("sqrt", total) if rule == "euclidean" else total


@onnx_op("ExpandDims", domain=DOMAIN)
def expand_dims(c: NodeContext) -> SSAValue:
    """The axis is a constant; a negative one counts from the end of the result."""
    x = c.data(0)
    (axis,) = c.normal_axes(c.integers_at(1), c.rank(0) + 1)
    shape = list(shape_of(x))
    shape.insert(axis, as_expr(1))
    return c.build.reshape(x, shape)
