"""Elementwise operations, with the implicit broadcasts of older dialects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from xdsl.ir import SSAValue

from headrace.base.dtypes import BY_NAME, I1, DType
from headrace.base.symbols import ONE
from headrace.importers.hlo.helpers import (
    result_type,
)
from headrace.importers.hlo.registry import (
    Unsupported,
    Value,
    converter,
    integers_of,
    operation_key,
)
from headrace.importers.hlo.tree import HloOperation
from headrace.ir.types import dtype_of, shape_of
from headrace.tensor.build import TensorBuilder

if TYPE_CHECKING:
    from headrace.importers.hlo.convert import FunctionConverter


@converter(
    "abs", "cbrt", "ceil", "copy", "cosine", "count_leading_zeros", "erf", "exponential",
    "exponential_minus_one", "floor", "is_finite", "log", "log_plus_one", "logistic", "negate",
    "not", "popcnt", "round_nearest_afz", "round_nearest_even", "rsqrt", "sign", "sine", "sqrt",
    "tan", "tanh",
)  # fmt: skip
def _unary(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    return [at.builder.unary(operation_key(operation.name), at.operand(operation, 0))]


@converter(
    "add", "and", "atan2", "divide", "maximum", "minimum", "multiply", "or", "power",
    "complex", "remainder", "shift_left", "shift_right_arithmetic", "shift_right_logical", "subtract",
    "xor",
)  # fmt: skip
def _binary(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    lhs, rhs = at.operand(operation, 0), at.operand(operation, 1)
    lhs, rhs = _broadcast_pair(at.builder, lhs, rhs, operation.attributes)
    key = operation_key(operation.name)
    if dtype_of(lhs).kind == "complex" and key in ("maximum", "minimum"):
        return [_of_complex(at.builder, "GT" if key == "maximum" else "LT", lhs, rhs)]
    return [at.builder.binary(key, lhs, rhs)]


def _of_complex(b: TensorBuilder, direction: str, lhs: SSAValue, rhs: SSAValue) -> SSAValue:
    """Complex numbers are ordered by their real parts, then by their imaginary parts."""
    (x, y), (u, v) = ((b.unary("real", z), b.unary("imag", z)) for z in (lhs, rhs))
    tie = b.binary("and", b.compare("EQ", x, u), b.compare(direction, y, v))
    first = b.binary("or", b.compare(direction, x, u), tie)
    return b.select(first, lhs, rhs)


def _broadcast_pair(
    builder: TensorBuilder, lhs: SSAValue, rhs: SSAValue, attributes: dict[str, Any]
) -> tuple[SSAValue, SSAValue]:
    """xla_hlo of 2019 and CHLO broadcast implicitly, by `broadcast_dimensions` or at the end."""
    left, right = shape_of(lhs), shape_of(rhs)
    if left == right:
        return lhs, rhs
    given = attributes.get("broadcast_dimensions")
    if len(left) < len(right):
        dims = (
            integers_of(given)
            if given is not None
            else range(len(right) - len(left), len(right))
        )
        return builder.broadcast_in_dim(lhs, list(dims), right), rhs
    dims = integers_of(given) if given is not None else range(len(left) - len(right), len(left))
    if len(left) > len(right):
        return lhs, builder.broadcast_in_dim(rhs, list(dims), left)
    shape = [b if a == ONE else a for a, b in zip(left, right, strict=True)]
    return builder.broadcast_to(lhs, shape), builder.broadcast_to(rhs, shape)


@converter("broadcast_add", "broadcast_subtract", "broadcast_multiply", "broadcast_divide",
           "broadcast_maximum", "broadcast_minimum", "broadcast_power")  # fmt: skip
def _broadcast_binary(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    lhs, rhs = _broadcast_pair(
        at.builder, at.operand(operation, 0), at.operand(operation, 1), operation.attributes
    )
    return [
        at.builder.binary(operation_key(operation.name).removeprefix("broadcast_"), lhs, rhs)
    ]


@converter("square")
def _square(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    value = at.operand(operation, 0)
    return [at.builder.binary("multiply", value, value)]


_DIRECTIONS = {
    "eq": "EQ", "ne": "NE", "slt": "LT", "sle": "LE", "sgt": "GT", "sge": "GE",
    "oeq": "EQ", "une": "NE", "olt": "LT", "ole": "LE", "ogt": "GT", "oge": "GE",
    "ult": "LT", "ule": "LE", "ugt": "GT", "uge": "GE",
}  # fmt: skip


@converter("compare", "cmpi", "cmpf")
def _compare(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    attributes = operation.attributes
    direction = attributes.get("comparison_direction", attributes.get("predicate", ""))
    text = str(direction)
    lhs, rhs = _broadcast_pair(
        at.builder, at.operand(operation, 0), at.operand(operation, 1), attributes
    )
    kind = dtype_of(lhs)
    if text in ("ult", "ule", "ugt", "uge"):
        if kind.kind != "signed":
            raise Unsupported(f"comparing {kind} by '{text}'")
        unsigned = BY_NAME[f"u{kind.name}"]
        lhs, rhs = (at.builder.bitcast_convert(value, unsigned) for value in (lhs, rhs))
    return [at.builder.compare(_DIRECTIONS.get(text, text.upper()), lhs, rhs)]


@converter("extract_element")
def _extract_element(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    """Of a tensor without dimensions: what it holds."""
    (value, *indices) = at.operands(operation)
    if indices or shape_of(value):
        raise Unsupported("an element of a tensor with dimensions")
    return [value]


@converter("select")
def _select(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    predicate, on_true, on_false = at.operands(operation)
    if not shape_of(predicate):
        predicate = at.builder.broadcast_in_dim(predicate, (), shape_of(on_true))
    return [at.builder.select(predicate, on_true, on_false)]


@converter("clamp")
def _clamp(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    low, value, high = at.operands(operation)
    shape = shape_of(value)
    low, high = (
        b if shape_of(b) == shape else at.builder.broadcast_in_dim(b, (), shape)
        for b in (low, high)
    )
    return [at.builder.clamp(low, value, high)]


@converter("convert")
def _convert(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    return [at.builder.convert(at.operand(operation, 0), result_type(operation).dtype)]


@converter("bitcast_convert")
def _bitcast_convert(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    """Of another width: a last dimension of parts, least significant first, comes or goes."""
    b, x = at.builder, at.operand(operation, 0)
    source, target = dtype_of(x), result_type(operation).dtype
    wide, narrow = _width(source), _width(target)
    if source == target:
        return [x]
    if wide == narrow:
        return [b.bitcast_convert(x, target)]
    shape = shape_of(x)
    if wide > narrow:
        words, part = _word(wide), _word(narrow)
        count = wide // narrow
        bits = b.reshape(x if source == words else b.bitcast_convert(x, words), [*shape, 1])
        bits = b.broadcast_in_dim(bits, range(len(shape) + 1), [*shape, count])
        places = b.iota(words, [*shape, count], len(shape))
        amount = b.binary("multiply", places, b.splat(narrow, words, [*shape, count]))
        moved = b.binary("shift_right_logical", bits, amount)
        if narrow == 1:
            moved = b.binary("and", moved, b.splat(1, words, [*shape, count]))
        parts = b.convert(moved, part)
        return [parts if part == target else b.bitcast_convert(parts, target)]
    part, words = _word(wide), _word(narrow)
    bits = b.convert(x if source == part else b.bitcast_convert(x, part), words)
    places = b.iota(words, shape, len(shape) - 1)
    amount = b.binary("multiply", places, b.splat(wide, words, shape))
    moved = b.binary("shift_left", bits, amount)
    (joined,) = b.reduce(moved, b.scalar(0, words), [len(shape) - 1], "or")
    return [joined if words == target else b.bitcast_convert(joined, target)]


def _width(dtype: DType) -> int:
    """Bits that an element holds."""
    return 1 if dtype.kind == "bool" else dtype.bits


def _word(bits: int) -> DType:
    """The unsigned integers of a width; booleans of one bit."""
    if bits == 1:
        return I1
    if f"ui{bits}" not in BY_NAME:
        raise Unsupported(f"elements of {bits} bits are not taken apart")
    return BY_NAME[f"ui{bits}"]


@converter("real", "imag")
def _part(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    operand, key = at.operand(operation, 0), operation_key(operation.name)
    if dtype_of(operand).kind == "complex":
        return [at.builder.unary(key, operand)]
    zero = at.builder.splat(0, dtype_of(operand), shape_of(operand))
    return [operand if key == "real" else zero]
