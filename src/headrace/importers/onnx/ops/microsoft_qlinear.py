"""`com.microsoft`: operators on quantised numbers, matrix products apart.

What is not linear is computed in f32 between taking numbers to floats and back.
Definitions: onnxruntime's docs/ContribOperators.md .
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.ir import SSAValue

from headrace.base.dtypes import F32, I32
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.ops.contraction import matmul_values
from headrace.importers.onnx.ops.microsoft_fused import DOMAIN
from headrace.importers.onnx.ops.pooling import average_windows, largest_of_windows
from headrace.importers.onnx.ops.quantization import (
    less_zero,
    quantised,
    quantised_convolution,
    rankless,
)
from headrace.importers.onnx.ops.softmax import softmax_along, softmax_from
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import shape_of


def _floats(c: NodeContext, x: int) -> SSAValue:
    """Input x with the scale and the zero point behind it, as f32."""
    b = c.build
    wide = b.convert(less_zero(c, c.data(x), x + 2), F32)
    return c.binary("multiply", wide, rankless(c, b.convert(c.data(x + 1), F32)))


def _numbers(c: NodeContext, x: SSAValue, scale: int, like: int) -> SSAValue:
    """f32 as numbers of the scale that is an input and the zero point behind it.

    Args:
        like: the input that has the result's type where there is no zero point.
    """
    b, has_zero = c.build, c.has(scale + 1)
    kind = c.dtype(scale + 1 if has_zero else like)
    spread_scale = b.broadcast_to(rankless(c, c.data(scale)), shape_of(x))
    zero = None
    if has_zero:
        point = rankless(c, b.convert(c.data(scale + 1), I32))
        zero = b.broadcast_to(point, shape_of(x))
    return quantised(c, x, spread_scale, zero, kind)


@onnx_op("QLinearAdd", "QLinearMul", domain=DOMAIN)
def qlinear_binary(c: NodeContext) -> SSAValue:
    name = "add" if c.node.op_type == "QLinearAdd" else "multiply"
    return _numbers(c, c.binary(name, _floats(c, 0), _floats(c, 3)), 6, 0)


@onnx_op("QLinearSigmoid", "QLinearLeakyRelu", domain=DOMAIN)
def qlinear_unary(c: NodeContext) -> SSAValue:
    b, x = c.build, _floats(c, 0)
    if c.node.op_type == "QLinearSigmoid":
        return _numbers(c, b.unary("logistic", x), 3, 0)
    low = b.compare("LT", x, c.scalar_like(0, x))
    slope = c.with_scalar("multiply", x, c.float("alpha", 0.01))
    return _numbers(c, b.select(low, slope, x), 3, 0)


@onnx_op("QLinearSoftmax", domain=DOMAIN)
def qlinear_softmax(c: NodeContext) -> SSAValue:
    """By the attribute `opset` along one axis, or before 13 over all from `axis` on."""
    x = _floats(c, 0)
    axis = c.axis("axis", len(shape_of(x)), -1)
    along = softmax_along if c.int("opset", 13) >= 13 else softmax_from
    return _numbers(c, along(c, x, axis), 3, 0)


@onnx_op("QLinearReduceMean", domain=DOMAIN)
def qlinear_reduce_mean(c: NodeContext) -> SSAValue:
    x = _floats(c, 0)
    rank = len(shape_of(x))
    axes = c.normal_axes(c.ints("axes") or range(rank), rank)
    return _numbers(c, c.mean(x, axes, keep=c.flag("keepdims", True)), 3, 0)


@onnx_op("QLinearWhere", domain=DOMAIN)
def qlinear_where(c: NodeContext) -> SSAValue:
    condition, x, y = c.broadcast(c.data(0), _floats(c, 1), _floats(c, 4))
    return _numbers(c, c.build.select(condition, x, y), 7, 1)


@onnx_op("QLinearConcat", domain=DOMAIN)
def qlinear_concat(c: NodeContext) -> SSAValue:
    """The result's scale and zero point come first, then three inputs a part."""
    parts = [_floats(c, n) for n in range(2, len(c.inputs), 3)]
    if not parts:
        raise c.malformed("there is nothing to concatenate")
    axis = c.normal_axis(c.int("axis"), len(shape_of(parts[0])))
    for part in parts[1:]:
        for n, (one, other) in enumerate(zip(shape_of(parts[0]), shape_of(part), strict=True)):
            if n != axis:
                c.dims.same(one, other)
    return _numbers(c, c.build.concatenate(parts, axis), 0, 2)


# -- images -------------------------------------------------------------------------------------


def channels_second(
    c: NodeContext, x: SSAValue, last: bool, of: Callable[[SSAValue], SSAValue]
) -> SSAValue:
    """What `of` makes of an image with channels second, where `last` they stand last."""
    if not last:
        return of(x)
    b, rank = c.build, len(shape_of(x))
    made = of(b.transpose(x, (0, rank - 1, *range(1, rank - 1))))
    return b.transpose(made, (0, *range(2, rank), 1))


def _pooled(c: NodeContext, pool: Callable[[SSAValue], SSAValue]) -> SSAValue:
    made = channels_second(c, _floats(c, 0), c.flag("channels_last"), pool)
    return _numbers(c, made, 3, 0)


@onnx_op("QLinearConv", domain=DOMAIN)
def qlinear_conv(c: NodeContext) -> SSAValue:
    """ONNX's, of images whose channels may be last; the kernel's are second."""
    last = c.flag("channels_last")
    return channels_second(c, c.data(0), last, lambda x: quantised_convolution(c, x))


@onnx_op("NhwcMaxPool", domain=DOMAIN)
def channels_last_max_pool(c: NodeContext) -> SSAValue:
    return channels_second(c, c.data(0), True, lambda x: largest_of_windows(c, x))


@onnx_op("QLinearGlobalAveragePool", domain=DOMAIN)
def qlinear_global_average_pool(c: NodeContext) -> SSAValue:
    return _pooled(c, lambda x: c.mean(x, range(2, len(shape_of(x))), keep=True))


@onnx_op("QLinearAveragePool", domain=DOMAIN)
def qlinear_average_pool(c: NodeContext) -> SSAValue:
    return _pooled(c, lambda x: average_windows(c, x))


# -- a product ------------------------------------------------------------------------------------


@onnx_op("QGemm", domain=DOMAIN)
def quantised_gemm(c: NodeContext) -> SSAValue:
    """alpha * A' * B' + C, C in i32 with the products' scale; floats without a scale for them."""
    b = c.build
    left = b.transpose(c.data(0), (1, 0)) if c.flag("transA") else c.data(0)
    right = b.transpose(c.data(3), (1, 0)) if c.flag("transB") else c.data(3)
    sums = matmul_values(c, less_zero(c, left, 2), less_zero(c, right, 5), I32)
    if c.has(6):
        sums = c.binary("add", sums, c.data(6))
    scale = c.binary("multiply", rankless(c, c.data(1)), rankless(c, c.data(4)))
    scale = c.with_scalar("multiply", scale, c.float("alpha", 1.0))
    made = c.binary("multiply", b.convert(sums, F32), scale)
    return _numbers(c, made, 7, 0) if c.has(7) else made
