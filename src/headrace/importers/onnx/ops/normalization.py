"""Normalisations, decomposed as their ONNX function bodies say."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from headrace.base.dtypes import F32, DType
from headrace.base.symbols import as_expr
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.registry import onnx_op
from headrace.importers.onnx.weights import element_dtype
from headrace.ir.types import dtype_of, shape_of


def _number_along(c: NodeContext, vector: SSAValue, x: SSAValue) -> SSAValue:
    return c.along(vector, 1, shape_of(x))


def _working_type(kind: DType) -> DType:
    return F32 if kind.is_float and kind.bits < 32 else kind


def normalised(
    c: NodeContext, x: SSAValue, axes: Sequence[int], epsilon: float
) -> tuple[SSAValue, SSAValue, SSAValue]:
    """(x - mean) / sqrt(variance + epsilon) over axes; also the mean and 1 / deviation.

    The variance is the mean of squared differences, as the reference computes it: the
    difference of means in the function body cancels where the mean is large.
    """
    b = c.build
    mean = c.mean(x, axes, keep=True)
    centred = b.binary("subtract", x, b.broadcast_to(mean, shape_of(x)))
    variance = c.mean(b.binary("multiply", centred, centred), axes, keep=True)
    deviation = b.unary("sqrt", c.with_scalar("add", variance, epsilon))
    result = b.binary("divide", centred, b.broadcast_to(deviation, shape_of(x)))
    return result, mean, deviation


@onnx_op("BatchNormalization")
def batch_normalization(c: NodeContext) -> list[SSAValue]:
    """x * factor + shift, where both come from weights alone and fold into a convolution.

    In training mode (from opset 14) mean and variance are those of the batch, and the
    running ones are outputs.
    """
    b = c.build
    if c.opset < 14 and c.output_count > 1:
        raise c.unsupported("training mode is supported from opset 14 on")
    x = c.data(0)
    kind = dtype_of(x)
    given = [c.data(n) for n in range(1, 5)]
    work = _working_type(dtype_of(given[3]))
    scale, bias, mean, variance = (b.convert(g, work) for g in given)
    wide = b.convert(x, work)
    running: list[SSAValue] = []
    if c.flag("training_mode"):
        old = [mean, variance]
        mean, variance = _batch_statistics(c, wide)
        momentum = c.float("momentum", 0.9)
        for before, now, like in zip(old, (mean, variance), given[2:], strict=True):
            kept = c.with_scalar("multiply", before, momentum)
            added = c.with_scalar("multiply", now, 1 - momentum)
            running.append(b.convert(b.binary("add", kept, added), dtype_of(like)))
    deviation = b.unary("sqrt", c.with_scalar("add", variance, c.float("epsilon", 1e-5)))
    factor = b.binary("divide", scale, deviation)
    shift = b.binary("subtract", bias, b.binary("multiply", mean, factor))
    scaled = b.binary("multiply", wide, _number_along(c, factor, x))
    return [b.convert(b.binary("add", scaled, _number_along(c, shift, x)), kind), *running]


def _batch_statistics(c: NodeContext, x: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Mean and (population) variance of each channel."""
    b = c.build
    axes = [n for n in range(len(shape_of(x))) if n != 1]
    mean = c.mean(x, axes, keep=False)
    centred = b.binary("subtract", x, _number_along(c, mean, x))
    return mean, c.mean(b.binary("multiply", centred, centred), axes, keep=False)


@onnx_op("InstanceNormalization")
def instance_normalization(c: NodeContext) -> SSAValue:
    x, b = c.data(0), c.build
    axes = list(range(2, len(shape_of(x))))
    kind = dtype_of(x)
    work = _working_type(kind)
    made = normalised(c, b.convert(x, work), axes, c.float("epsilon", 1e-5))[0]
    scale, bias = b.convert(c.data(1), work), b.convert(c.data(2), work)
    scaled = b.binary("multiply", made, _number_along(c, scale, x))
    return b.convert(b.binary("add", scaled, _number_along(c, bias, x)), kind)


@onnx_op("LayerNormalization")
def layer_normalization(c: NodeContext) -> list[SSAValue]:
    """Also yields the mean and 1 / deviation, in the type `stash_type`."""
    x, b = c.data(0), c.build
    kind = dtype_of(x)
    stash = element_dtype(c.int("stash_type", 1), c.node.place)
    work = kind if kind.bits > stash.bits else stash
    first = c.axis("axis", len(shape_of(x)), -1)
    axes = list(range(first, len(shape_of(x))))
    made, mean, deviation = normalised(c, b.convert(x, work), axes, c.float("epsilon", 1e-5))
    made = b.convert(made, kind)
    made = c.binary("multiply", made, c.data(1))
    if c.has(2):
        made = c.binary("add", made, c.data(2))
    results = [made]
    if c.wants(1) or c.wants(2):
        inverse = b.binary("divide", c.scalar_like(1, deviation), deviation)
        results += [b.convert(mean, stash), b.convert(inverse, stash)]
    return results


@onnx_op("RMSNormalization", "SimplifiedLayerNormalization")
def rms_normalization(c: NodeContext) -> SSAValue:
    x, b = c.data(0), c.build
    kind = dtype_of(x)
    stash = element_dtype(c.int("stash_type", 1), c.node.place)
    work = kind if kind.bits > stash.bits else stash
    wide = b.convert(x, work)
    first = c.axis("axis", len(shape_of(x)), -1)
    axes = list(range(first, len(shape_of(x))))
    square = c.mean(b.binary("multiply", wide, wide), axes, keep=True)
    root = b.unary("sqrt", c.with_scalar("add", square, c.float("epsilon", 1e-5)))
    made = b.binary("divide", wide, b.broadcast_to(root, shape_of(x)))
    return c.binary("multiply", b.convert(made, kind), b.convert(c.data(1), kind))


@onnx_op("GroupNormalization")
def group_normalization(c: NodeContext) -> SSAValue:
    """Scale and bias belong to groups before opset 21, to channels from there on."""
    x, b = c.data(0), c.build
    kind, shape = dtype_of(x), shape_of(x)
    work = _working_type(kind)
    groups = c.int("num_groups")
    if groups < 1:
        raise c.malformed("'num_groups' must be positive")
    channels = shape[1]
    c.dims.same(channels, channels // groups * groups)
    if c.opset >= 21:
        c.dims.same(channels, c.shape(1)[0])
    parted = (shape[0], as_expr(groups), channels // groups, *shape[2:])
    wide = b.reshape(b.convert(x, work), parted)
    axes = list(range(2, len(parted)))
    made = normalised(c, wide, axes, c.float("epsilon", 1e-5))[0]
    scale, bias = b.convert(c.data(1), work), b.convert(c.data(2), work)
    if c.opset < 21:
        made = b.binary("multiply", made, c.along(scale, 1, parted))
        made = b.binary("add", made, c.along(bias, 1, parted))
        return b.convert(b.reshape(made, shape), kind)
    made = b.reshape(made, shape)
    made = b.binary("multiply", made, c.along(scale, 1, shape))
    return b.convert(b.binary("add", made, c.along(bias, 1, shape)), kind)


@onnx_op("LRN")
def local_response_normalization(c: NodeContext) -> SSAValue:
    """x / (bias + alpha / size * the sum of squares over near channels) ^ beta."""
    x, b = c.data(0), c.build
    size = c.int("size")
    rank = len(shape_of(x))
    window = [1] * rank
    window[1] = size
    low, high = [0] * rank, [0] * rank
    low[1], high[1] = (size - 1) // 2, size - 1 - (size - 1) // 2
    total = b.reduce_window(
        b.binary("multiply", x, x),
        b.scalar(0, dtype_of(x)),
        "add",
        window_dimensions=window,
        window_strides=[1] * rank,
        padding_low=low,
        padding_high=high,
    )[0]
    scaled = c.with_scalar("multiply", total, c.float("alpha", 1e-4) / size)
    base = c.with_scalar("add", scaled, c.float("bias", 1.0))
    return b.binary("divide", x, c.with_scalar("power", base, c.float("beta", 0.75)))


@onnx_op("LpNormalization")
def lp_normalization(c: NodeContext) -> SSAValue:
    """x over its norm along an axis; a zero norm gives zeros."""
    x, b = c.data(0), c.build
    axis = c.axis("axis", len(shape_of(x)), -1)
    if c.int("p", 2) == 1:
        norm = c.reduce(b.unary("abs", x), 0, [axis], "add", keep=True)
    else:
        square = c.reduce(b.binary("multiply", x, x), 0, [axis], "add", keep=True)
        norm = b.unary("sqrt", square)
    wide = b.broadcast_to(norm, shape_of(x))
    zero = c.scalar_like(0, x)
    empty = b.compare("EQ", wide, zero)
    return b.select(empty, zero, b.binary("divide", x, wide))


@onnx_op("MeanVarianceNormalization")
def mean_variance_normalization(c: NodeContext) -> SSAValue:
    x, b = c.data(0), c.build
    axes = c.normal_axes(c.ints("axes", [0, 2, 3]) or [], len(shape_of(x)))
    mean = c.mean(x, axes, keep=True)
    centred = b.binary("subtract", x, b.broadcast_to(mean, shape_of(x)))
    variance = c.mean(b.binary("multiply", centred, centred), axes, keep=True)
    deviation = c.with_scalar("add", b.unary("sqrt", variance), 1e-9)
    return b.binary("divide", centred, b.broadcast_to(deviation, shape_of(x)))
