"""Activation functions."""

from __future__ import annotations

import math

from xdsl.ir import SSAValue

from headrace.base.dtypes import F32
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import dtype_of


def _positive(c: NodeContext, x: SSAValue) -> SSAValue:
    return c.build.compare("GT", x, c.scalar_like(0, x))


def _exponential_part(c: NodeContext, x: SSAValue) -> SSAValue:
    """e^x - 1 where x is at most 0 (and 0 above, so that nothing overflows)."""
    low = c.build.binary("minimum", x, c.scalar_like(0, x))
    return c.build.unary("exponential_minus_one", low)


@onnx_op("Relu")
def relu(c: NodeContext) -> SSAValue:
    x = c.data(0)
    return c.build.binary("maximum", x, c.scalar_like(0, x))


@onnx_op("LeakyRelu")
def leaky_relu(c: NodeContext) -> SSAValue:
    x = c.data(0)
    negative = c.build.compare("LT", x, c.scalar_like(0, x))
    return c.build.select(negative, c.with_scalar("multiply", x, c.float("alpha", 0.01)), x)


@onnx_op("PRelu")
def prelu(c: NodeContext) -> SSAValue:
    """Before opset 7 a slope of rank 1 belongs to the channels."""
    x, slope = c.data(0), c.data(1)
    if c.opset < 7 and len(c.shape(1)) == 1 and len(c.shape(0)) > 1:
        slope = c.build.reshape(slope, (*c.shape(1), *[1] * (len(c.shape(0)) - 2)))
    x, slope = c.broadcast(x, slope)
    negative = c.build.compare("LT", x, c.scalar_like(0, x))
    return c.build.select(negative, c.build.binary("multiply", x, slope), x)


@onnx_op("ThresholdedRelu")
def thresholded_relu(c: NodeContext) -> SSAValue:
    x = c.data(0)
    above = c.build.compare("GT", x, c.scalar_like(c.float("alpha", 1.0), x))
    return c.build.select(above, x, c.scalar_like(0, x))


@onnx_op("Elu")
def elu(c: NodeContext) -> SSAValue:
    x = c.data(0)
    low = c.with_scalar("multiply", _exponential_part(c, x), c.float("alpha", 1.0))
    return c.build.select(_positive(c, x), x, low)


@onnx_op("Selu")
def selu(c: NodeContext) -> SSAValue:
    x = c.data(0)
    alpha = c.float("alpha", 1.67326319217681884765625)
    gamma = c.float("gamma", 1.05070102214813232421875)
    low = c.with_scalar("multiply", _exponential_part(c, x), alpha)
    return c.with_scalar("multiply", c.build.select(_positive(c, x), x, low), gamma)


@onnx_op("Celu")
def celu(c: NodeContext) -> SSAValue:
    x, alpha = c.data(0), c.float("alpha", 1.0)
    scaled = c.with_scalar("divide", x, alpha)
    low = c.with_scalar("multiply", _exponential_part(c, scaled), alpha)
    return c.build.select(_positive(c, x), x, low)


@onnx_op("Softplus")
def softplus(c: NodeContext) -> SSAValue:
    return _softplus(c, c.data(0))


def _softplus(c: NodeContext, x: SSAValue) -> SSAValue:
    """max(x, 0) + log1p(e^-|x|), which does not overflow."""
    b = c.build
    tail = b.unary("exponential", b.unary("negate", b.unary("abs", x)))
    positive = b.binary("maximum", x, c.scalar_like(0, x))
    return b.binary("add", positive, b.unary("log_plus_one", tail))


@onnx_op("Softsign")
def softsign(c: NodeContext) -> SSAValue:
    x, b = c.data(0), c.build
    return b.binary("divide", x, c.with_scalar("add", b.unary("abs", x), 1))


def hard_sigmoid_of(c: NodeContext, x: SSAValue, alpha: float, beta: float) -> SSAValue:
    """alpha * x + beta, cut off at 0 and 1."""
    line = c.with_scalar("add", c.with_scalar("multiply", x, alpha), beta)
    return c.build.clamp(c.scalar_like(0, x), line, c.scalar_like(1, x))


@onnx_op("HardSigmoid")
def hard_sigmoid(c: NodeContext) -> SSAValue:
    return hard_sigmoid_of(c, c.data(0), c.float("alpha", 0.2), c.float("beta", 0.5))


@onnx_op("HardSwish")
def hard_swish(c: NodeContext) -> SSAValue:
    x = c.data(0)
    return c.build.binary("multiply", x, hard_sigmoid_of(c, x, 1 / 6, 0.5))


@onnx_op("Mish")
def mish(c: NodeContext) -> SSAValue:
    x, b = c.data(0), c.build
    return b.binary("multiply", x, b.unary("tanh", _softplus(c, x)))


@onnx_op("Swish")
def swish(c: NodeContext) -> SSAValue:
    x = c.data(0)
    scaled = c.with_scalar("multiply", x, c.float("alpha", 1.0))
    return c.build.binary("multiply", x, c.build.unary("logistic", scaled))


@onnx_op("Gelu")
def gelu(c: NodeContext) -> SSAValue:
    return gelu_of(c, c.data(0), c.string("approximate", "none") == "tanh")


def gelu_of(c: NodeContext, x: SSAValue, by_tanh: bool) -> SSAValue:
    """x times the normal distribution's function, by erf or by its approximation."""
    b = c.build
    if by_tanh:
        cube = b.binary("multiply", x, b.binary("multiply", x, x))
        inner = b.binary("add", x, c.with_scalar("multiply", cube, 0.044715))
        bent = b.unary("tanh", c.with_scalar("multiply", inner, math.sqrt(2 / math.pi)))
    else:
        bent = b.unary("erf", c.with_scalar("multiply", x, math.sqrt(0.5)))
    half = c.with_scalar("multiply", x, 0.5)
    return b.binary("multiply", half, c.with_scalar("add", bent, 1))


@onnx_op("Shrink")
def shrink(c: NodeContext) -> SSAValue:
    """Of integers the bias need not be one: it is added in f32, then cut."""
    x, b = c.data(0), c.build
    lambd, bias = c.float("lambd", 0.5), c.float("bias")
    kind = dtype_of(x)
    if kind.is_integer:
        x = b.convert(x, F32)
    zero = c.scalar_like(0, x)
    above = b.compare("GT", x, c.scalar_like(lambd, x))
    below = b.compare("LT", x, c.scalar_like(-lambd, x))
    low = b.select(below, c.with_scalar("add", x, bias), zero)
    return b.convert(b.select(above, c.with_scalar("subtract", x, bias), low), kind)
