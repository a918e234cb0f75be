"""The largest or smallest elements along an axis."""

from __future__ import annotations

from xdsl.ir import SSAValue

from headrace.base.dtypes import I64
from headrace.base.symbols import Expr, as_expr
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import dtype_of, shape_of
from headrace.tensor.build import TensorBuilder


@onnx_op("TopK")
def top_k(c: NodeContext) -> list[SSAValue]:
    """Values and places of the first k elements in order; of equal ones the lower place.

    NaN counts as larger than every number. An order is always given, so `sorted=0` is not
    another operation.
    """
    x, b = c.data(0), c.build
    shape = shape_of(x)
    axis = c.axis("axis", len(shape), -1)
    count: Expr = c.size(1) if c.opset >= 10 else as_expr(c.int("k"))
    if c.dims.at_least(count - shape[axis], 1):
        raise c.malformed(f"k is {count}, the axis has {shape[axis]} elements")
    largest = c.flag("largest", True)
    is_float = dtype_of(x).is_float

    def before(
        inner: TensorBuilder, left: SSAValue, _: SSAValue, right: SSAValue, __: SSAValue
    ) -> list[SSAValue]:
        ordered = inner.compare("GT" if largest else "LT", left, right)
        if not is_float:
            return [ordered]
        odd, other = (left, right) if largest else (right, left)
        is_nan = inner.compare("NE", odd, odd)
        is_number = inner.compare("EQ", other, other)
        return [inner.binary("or", ordered, inner.binary("and", is_nan, is_number))]

    both = b.sort([x, b.iota(I64, shape, axis)], axis, before)
    return [c.slice_axis(v, axis, 0, count) for v in both]
