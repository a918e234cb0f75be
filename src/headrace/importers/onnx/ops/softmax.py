"""Softmax and its kin."""

from __future__ import annotations

from xdsl.ir import SSAValue

from headrace.base.dtypes import F32, I64
from headrace.base.symbols import product
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.ops.pooling import first_largest, lowest
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import dtype_of, shape_of


def softmax_along(c: NodeContext, x: SSAValue, axis: int) -> SSAValue:
    """e^(x - max) over its sum."""
    b = c.build
    exponentials = b.unary("exponential", _shifted(c, x, axis))
    total = c.reduce(exponentials, 0, [axis], "add", keep=True)
    return b.binary("divide", exponentials, b.broadcast_to(total, shape_of(x)))


def softmax_from(c: NodeContext, x: SSAValue, axis: int) -> SSAValue:
    """Over all axes from `axis` on as one."""
    shape = shape_of(x)
    flat = c.build.reshape(x, (product(shape[:axis]), product(shape[axis:])))
    return c.build.reshape(softmax_along(c, flat, 1), shape)


def _shifted(c: NodeContext, x: SSAValue, axis: int) -> SSAValue:
    peak = c.reduce(x, lowest(dtype_of(x)), [axis], "maximum", keep=True)
    return c.build.binary("subtract", x, c.build.broadcast_to(peak, shape_of(x)))


def _log_softmax_along(c: NodeContext, x: SSAValue, axis: int) -> SSAValue:
    b = c.build
    shifted = _shifted(c, x, axis)
    total = c.reduce(b.unary("exponential", shifted), 0, [axis], "add", keep=True)
    return b.binary("subtract", shifted, b.broadcast_to(b.unary("log", total), shape_of(x)))


def _hardmax_along(c: NodeContext, x: SSAValue, axis: int) -> SSAValue:
    """One at the first largest element, zero elsewhere."""
    b = c.build
    kind, shape = dtype_of(x), shape_of(x)
    places = b.iota(I64, shape, axis)
    starts = [b.scalar(lowest(kind), kind), b.scalar((1 << 63) - 1, I64)]
    best = b.reduce([x, places], starts, [axis], first_largest)[1]
    kept = [n for n in range(len(shape)) if n != axis]
    hit = b.compare("EQ", places, b.broadcast_in_dim(best, kept, shape))
    return b.convert(hit, kind)


_ALONG = {
    "Softmax": softmax_along,
    "LogSoftmax": _log_softmax_along,
    "Hardmax": _hardmax_along,
}


@onnx_op("Softmax", "LogSoftmax", "Hardmax")
def softmax(c: NodeContext) -> SSAValue:
    """Along one axis from opset 13; before, over all axes from `axis` on as one."""
    x, b = c.data(0), c.build
    kind, shape = dtype_of(x), shape_of(x)
    along = _ALONG[c.node.op_type]
    if kind.is_float and kind.bits < 32:
        x = b.convert(x, F32)
    if c.opset >= 13:
        return b.convert(along(c, x, c.axis("axis", len(shape), -1)), kind)
    axis = c.axis("axis", len(shape), 1)
    if axis == len(shape) - 1:
        return b.convert(along(c, x, axis), kind)
    flat = b.reshape(x, (product(shape[:axis]), product(shape[axis:])))
    return b.convert(b.reshape(along(c, flat, 1), shape), kind)
