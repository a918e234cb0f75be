"""CHLO, the dialect of what clients call: each operation in operations of StableHLO.

Real functions of floats narrower than f64 are computed in f64 and rounded once, so that
plain formulas are accurate; those of f64 take the form that loses nothing near zeros.
The formulas stand in `real_formulas.py` and `complex_formulas.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from headrace.base.dtypes import BY_NAME, F64, I32
from headrace.importers.hlo import complex_formulas, real_formulas
from headrace.importers.hlo.numbers import Number, number
from headrace.importers.hlo.registry import Unsupported, Value, converter, integers_of
from headrace.importers.hlo.tree import HloOperation
from headrace.ir.types import dtype_of, shape_of
from headrace.tensor.build import TensorBuilder

if TYPE_CHECKING:
    from headrace.importers.hlo.convert import FunctionConverter as At


def _in_f64(at: At, operand: SSAValue, function: Callable[[Number], Number]) -> SSAValue:
    """A real function, computed in f64."""
    kind = dtype_of(operand)
    x = number(at.builder, at.builder.convert(operand, F64))
    return at.builder.convert(function(x).value, kind)


@converter(*real_formulas.FUNCTIONS)
def _function(at: At, operation: HloOperation) -> Sequence[Value]:
    operand = at.operand(operation, 0)
    name = operation.name.rpartition(".")[2]
    if dtype_of(operand).kind != "complex":
        return [_in_f64(at, operand, real_formulas.FUNCTIONS[name])]
    function = complex_formulas.FUNCTIONS.get(name)
    if function is None:
        raise Unsupported(f"'{name}' of complex numbers is not supported")
    return [complex_formulas.apply(at.builder, operand, function)]


@converter("is_inf", "is_pos_inf", "is_neg_inf")
def _is_infinite(at: At, operation: HloOperation) -> Sequence[Value]:
    x, b = at.operand(operation, 0), at.builder
    name = operation.name.rpartition(".")[2]
    value = b.unary("abs", x) if name == "is_inf" else x
    wanted = -math.inf if name == "is_neg_inf" else math.inf
    return [b.compare("EQ", value, b.splat(wanted, dtype_of(x), shape_of(x)))]


@converter("conj")
def _conj(at: At, operation: HloOperation) -> Sequence[Value]:
    z, b = at.operand(operation, 0), at.builder
    if dtype_of(z).kind != "complex":
        return [z]
    return [b.binary("complex", b.unary("real", z), b.unary("negate", b.unary("imag", z)))]


@converter("constant_like")
def _constant_like(at: At, operation: HloOperation) -> Sequence[Value]:
    x = at.operand(operation, 0)
    return [at.builder.splat(operation.attributes["value"], dtype_of(x), shape_of(x))]


@converter("next_after")
def _next_after(at: At, operation: HloOperation) -> Sequence[Value]:
    """The next value of the type from x towards y: a step of the bits as an integer."""
    b = at.builder
    x, y = at.operands(operation)
    kind, shape = dtype_of(x), shape_of(x)
    word = BY_NAME[f"i{kind.bits}"]

    def bits(value: int) -> SSAValue:
        return b.splat(value, word, shape)

    sign = -(1 << (kind.bits - 1))
    pattern, zero = b.bitcast_convert(x, word), b.splat(0.0, kind, shape)
    magnitude = b.binary("and", pattern, bits(~sign))
    grows = b.compare("GT", b.unary("abs", y), b.unary("abs", x))
    x_sign, y_sign = (
        b.binary("and", v, bits(sign)) for v in (pattern, b.bitcast_convert(y, word))
    )
    same_side = b.compare("EQ", x_sign, y_sign)
    outwards = b.binary("and", grows, same_side)
    step = b.select(outwards, bits(1), bits(-1))
    moved = b.bitcast_convert(b.binary("add", pattern, step), kind)
    least = b.bitcast_convert(b.binary("or", y_sign, bits(1)), kind)
    moved = b.select(b.compare("EQ", magnitude, bits(0)), least, moved)
    moved = b.select(b.compare("EQ", x, y), y, moved)
    unordered = b.binary("or", b.compare("NE", x, x), b.compare("NE", y, y))
    nan = b.binary("add", b.splat(math.nan, kind, shape), zero)
    return [b.select(unordered, nan, moved)]


@converter("top_k")
def _top_k(at: At, operation: HloOperation) -> Sequence[Value]:
    """The k largest of the last dimension and where they stood; equals in order."""
    b, x = at.builder, at.operand(operation, 0)
    shape = shape_of(x)
    (k,) = integers_of(operation.attributes["k"])
    last = len(shape) - 1
    places = b.iota(I32, shape, last)

    def before(
        inner: TensorBuilder, x0: SSAValue, _i0: SSAValue, x1: SSAValue, _i1: SSAValue
    ) -> Sequence[SSAValue]:
        return [total_order(inner, "GT", x0, x1)]

    ordered = b.sort([x, places], last, before)
    start = [0] * len(shape)
    limit = [*shape[:last], k]
    return [b.slice(v, start, limit, [1] * len(shape)) for v in ordered]


def total_order(
    builder: TensorBuilder, direction: str, lhs: SSAValue, rhs: SSAValue
) -> SSAValue:
    """Compares floats by the order of their bits: -NaN, -inf, ..., -0, +0, ..., inf, NaN."""
    kind = dtype_of(lhs)
    if not kind.is_float:
        return builder.compare(direction, lhs, rhs)
    word = BY_NAME[f"i{kind.bits}"]

    def ordered(value: SSAValue) -> SSAValue:
        bits, shape = builder.bitcast_convert(value, word), shape_of(value)
        flipped = builder.binary(
            "xor", bits, builder.splat((1 << (kind.bits - 1)) - 1, word, shape)
        )
        negative = builder.compare("LT", bits, builder.splat(0, word, shape))
        return builder.select(negative, flipped, bits)

    return builder.compare(direction, ordered(lhs), ordered(rhs))
