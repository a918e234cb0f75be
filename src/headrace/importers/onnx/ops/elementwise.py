"""Elementwise arithmetic.

Specification: https://onnx.ai/onnx/operators/ , as for every family here. Broadcasts are
numpy's, made explicit.
"""

from __future__ import annotations

import math
from functools import reduce

from xdsl.ir import SSAValue

from headrace.base.dtypes import F32, F64, DType
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.ops.points import working_type
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import dtype_of, shape_of

_UNARY = {
    "Abs": "abs",
    "Ceil": "ceil",
    "Cos": "cosine",
    "Exp": "exponential",
    "Floor": "floor",
    "Log": "log",
    "Neg": "negate",
    "Round": "round_nearest_even",
    "Sigmoid": "logistic",
    "Sign": "sign",
    "Sin": "sine",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
}
_BINARY = {"Add": "add", "Sub": "subtract", "Mul": "multiply", "Div": "divide"}
_VARIADIC = {"Max": "maximum", "Min": "minimum", "Sum": "add"}


@onnx_op(*_UNARY)
def unary(c: NodeContext) -> SSAValue:
    return c.build.unary(_UNARY[c.node.op_type], c.data(0))


@onnx_op("Erf")
def erf(c: NodeContext) -> SSAValue:
    """Of integers too, computed in f32 and cut."""
    x, b = c.data(0), c.build
    work = F32 if dtype_of(x).is_integer else dtype_of(x)
    return b.convert(b.unary("erf", b.convert(x, work)), dtype_of(x))


@onnx_op(*_BINARY)
def binary(c: NodeContext) -> SSAValue:
    return c.binary(_BINARY[c.node.op_type], c.data(0), aligned_operand(c))


def aligned_operand(c: NodeContext) -> SSAValue:
    """Input 1; before opset 7 an attribute `axis` says where its first dimension stands."""
    value = c.data(1)
    if c.opset >= 7 or not c.has_attribute("axis"):
        return value
    shape, rank = shape_of(value), len(c.shape(0))
    behind = rank - c.axis("axis", rank, -1) - len(shape)
    return c.build.reshape(value, (*shape, *[1] * behind))


@onnx_op(*_VARIADIC)
def variadic(c: NodeContext) -> SSAValue:
    name = _VARIADIC[c.node.op_type]
    return reduce(lambda a, b: c.build.binary(name, a, b), c.broadcast(*c.all_data()))


@onnx_op("Mean")
def mean(c: NodeContext) -> SSAValue:
    total = reduce(lambda a, b: c.build.binary("add", a, b), c.broadcast(*c.all_data()))
    return c.with_scalar("divide", total, len(c.inputs))


@onnx_op("Reciprocal")
def reciprocal(c: NodeContext) -> SSAValue:
    x = c.data(0)
    return c.build.binary("divide", c.scalar_like(1, x), x)


@onnx_op("Pow")
def power(c: NodeContext) -> SSAValue:
    """The result has the base's type; of mixed types the wider float computes.

    Integers to a whole power are whole: what a float power lacks of that is rounding.
    """
    base, exponent = c.data(0), aligned_operand(c)
    kind = dtype_of(base)
    if kind == dtype_of(exponent):
        return c.binary("power", base, exponent)
    work = _common_type(kind, dtype_of(exponent))
    b = c.build
    base, exponent = c.broadcast(b.convert(base, work), b.convert(exponent, work))
    made = b.binary("power", base, exponent)
    if kind.is_integer:
        whole = b.compare("EQ", b.unary("floor", exponent), exponent)
        made = b.select(whole, b.unary("round_nearest_even", made), made)
    return b.convert(made, kind)


def _common_type(a: DType, b: DType) -> DType:
    if a.is_float and b.is_float:
        return a if a.bits >= b.bits else b
    if a.is_float:
        return a
    if b.is_float:
        return F64 if a.bits > 16 or b == F64 else F32
    return a if a.bits >= b.bits else b


@onnx_op("Mod")
def modulo(c: NodeContext) -> SSAValue:
    """`fmod=1` has the sign of the dividend, else integers have that of the divisor."""
    a, b = c.broadcast(c.data(0), c.data(1))
    rest = c.build.binary("remainder", a, b)
    if c.flag("fmod") or dtype_of(a).kind == "unsigned":
        return rest
    zero = c.scalar_like(0, rest)
    signs_differ = c.build.binary(
        "xor", c.build.compare("LT", rest, zero), c.build.compare("LT", b, zero)
    )
    wrong = c.build.binary("and", signs_differ, c.build.compare("NE", rest, zero))
    return c.build.select(wrong, c.build.binary("add", rest, b), rest)


@onnx_op("Clip")
def clip(c: NodeContext) -> SSAValue:
    """Bounds are attributes before opset 11, then inputs that may be left out."""
    x = c.data(0)
    if c.opset < 11:
        low = c.scalar_like(c.float("min"), x) if c.has_attribute("min") else None
        high = c.scalar_like(c.float("max"), x) if c.has_attribute("max") else None
    else:
        low = c.broadcast(x, c.data(1))[1] if c.has(1) else None
        high = c.broadcast(x, c.data(2))[1] if c.has(2) else None
    if low is not None and high is not None:
        return c.build.clamp(low, x, high)
    if low is not None:
        x = c.build.binary("maximum", x, low)
    if high is not None:
        x = c.build.binary("minimum", x, high)
    return x


# -- trigonometry -----------------------------------------------------------------


@onnx_op("Sinh", "Cosh")
def hyperbolic(c: NodeContext) -> SSAValue:
    """sinh = (u + u / (u + 1)) / 2 with u = e^|x| - 1 and x's sign, accurate near zero.

    In f16 e^x is beyond the largest float where its half is not: those compute in f32.
    """
    b, kind = c.build, c.dtype(0)
    x = b.convert(c.data(0), working_type(kind))
    if c.node.op_type == "Sinh":
        # Of negative x, u + 1 would lose what is left of e^x.
        u = b.unary("exponential_minus_one", b.unary("abs", x))
        shifted = b.binary("divide", u, c.with_scalar("add", u, 1))
        # Where e^x overflows u / (u + 1) is NaN; it is 1 there.
        infinite = b.compare("EQ", u, c.scalar_like(math.inf, u))
        shifted = b.select(infinite, c.scalar_like(1, u), shifted)
        half = c.with_scalar("multiply", b.binary("add", u, shifted), 0.5)
        signed = b.select(
            b.compare("LT", x, c.scalar_like(0, x)), b.unary("negate", half), half
        )
        return b.convert(signed, kind)
    both = b.binary(
        "add", b.unary("exponential", x), b.unary("exponential", b.unary("negate", x))
    )
    return b.convert(c.with_scalar("multiply", both, 0.5), kind)


@onnx_op("Asinh", "Acosh", "Atanh")
def inverse_hyperbolic(c: NodeContext) -> SSAValue:
    x, b = c.data(0), c.build
    if c.node.op_type == "Atanh":
        ratio = b.binary(
            "subtract",
            b.unary("log_plus_one", x),
            b.unary("log_plus_one", b.unary("negate", x)),
        )
        return c.with_scalar("multiply", ratio, 0.5)
    square = b.binary("multiply", x, x)
    if c.node.op_type == "Acosh":
        root = b.unary("sqrt", c.with_scalar("subtract", square, 1))
        return b.unary("log", b.binary("add", x, root))
    # asinh(|x|) = log1p(|x| + x^2 / (1 + sqrt(x^2 + 1))): no cancellation near zero.
    size = b.unary("abs", x)
    root = c.with_scalar("add", b.unary("sqrt", c.with_scalar("add", square, 1)), 1)
    grown = b.binary("add", size, b.binary("divide", square, root))
    return b.binary("multiply", b.unary("sign", x), b.unary("log_plus_one", grown))


@onnx_op("Asin", "Acos", "Atan")
def inverse_trigonometric(c: NodeContext) -> SSAValue:
    """By atan2, as StableHLO's decompositions do."""
    x, b = c.data(0), c.build
    if c.node.op_type == "Atan":
        return b.binary("atan2", x, c.scalar_like(1, x))
    # sqrt((1 - x) (1 + x)) keeps its digits near one.
    one = c.scalar_like(1, x)
    root = b.unary(
        "sqrt",
        b.binary("multiply", b.binary("subtract", one, x), b.binary("add", one, x)),
    )
    if c.node.op_type == "Asin":
        return b.binary("atan2", x, root)
    return b.binary("atan2", root, x)
