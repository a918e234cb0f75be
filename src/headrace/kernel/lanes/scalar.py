"""Every elementwise operation on one lane's scalars, in a machine's primitives.

Narrow integers are computed in 32 bits and wrapped after each operation; narrow floats
in `f32` and rounded after each; a complex value is a pair. Corner cases follow the
tensor stage: maxima propagate NaN, integer division by zero gives -1 (remainder: the
dividend), shifts by the width or more give 0 or the sign, floats convert to integers
with saturation and NaN as 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.base.dtypes import BY_NAME, I1, DType
from headrace.kernel.description import Scalar as Literal
from headrace.kernel.lanes import (
    complex_numbers,
    elementary,
    float_bits,
    formats,
    integers,
    trigonometry,
)
from headrace.kernel.lanes.machine import (
    BITS,
    UNSIGNED_OF,
    Machine,
    MachineType,
    Value,
    compute_type,
    raw_type,
)
from headrace.kernel.lanes.remainder import remainder
from headrace.kernel.lanes.unknown import unknown_operation


@dataclass(frozen=True)
class Scalar:
    """A typed scalar: one machine value, or real and imaginary part."""

    dtype: DType
    parts: tuple[Value, ...]

    @property
    def value(self) -> Value:
        return self.parts[0]


def element_dtype(dtype: DType) -> DType:
    """The real type of a complex one's parts; any other type itself."""
    return BY_NAME[dtype.name[8:-1]] if dtype.kind == "complex" else dtype


def is_narrow_float(dtype: DType) -> bool:
    return dtype.is_float and dtype.bits < 32


def literal(machine: Machine, dtype: DType, value: Literal) -> Scalar:
    """A constant; narrow ones are rounded by the conversion of numpy or ml_dtypes."""
    element = element_dtype(dtype)
    kind = compute_type(element)
    if dtype.kind == "complex":
        whole = complex(value)
        pair = (machine.constant(kind, whole.real), machine.constant(kind, whole.imag))
        return Scalar(dtype, pair)
    if isinstance(value, complex):
        value = value.real
    if element.kind == "bool":
        return Scalar(dtype, (machine.constant("bool", bool(value)),))
    if element.is_float:
        number = float(value)
        if is_narrow_float(dtype):
            number = float(dtype.numpy_dtype.type(number))
        return Scalar(dtype, (machine.constant(kind, number),))
    return Scalar(dtype, (machine.constant(kind, _wrapped_literal(dtype, int(value))),))


def _wrapped_literal(dtype: DType, value: int) -> int:
    value &= (1 << dtype.bits) - 1
    if dtype.kind == "signed" and value >> (dtype.bits - 1):
        value -= 1 << dtype.bits
    return value


# -- storage ----------------------------------------------------------------------


def decode(dtype: DType, raw: tuple[Value, ...]) -> Scalar:
    """A scalar from the raw values of its elements in memory."""
    if dtype.kind == "bool":
        return Scalar(dtype, (raw[0].ne(0),))
    if dtype.bits >= 32:
        return Scalar(dtype, raw)
    if dtype.is_float:
        return Scalar(dtype, (formats.decode(dtype, raw[0]),))
    return Scalar(dtype, (_wrap(dtype, raw[0].bitcast(compute_type(dtype))),))


def encode(scalar: Scalar) -> tuple[Value, ...]:
    """The raw values to store."""
    dtype = scalar.dtype
    if dtype.kind == "bool":
        value = scalar.value
        return (value.select(value.machine.constant("u32", 1), 0),)
    if dtype.bits >= 32:
        return scalar.parts
    if dtype.is_float:
        return (formats.encode(dtype, scalar.value),)
    return (scalar.value.bitcast("u32"),)


def _wrap(dtype: DType, value: Value) -> Value:
    width = BITS[value.type]
    if dtype.bits >= width:
        return value
    if dtype.kind == "unsigned":
        return value & ((1 << dtype.bits) - 1)
    shift = width - dtype.bits
    return (value << shift) >> shift


# -- operations -----------------------------------------------------------------------


def compute(
    operation: str,
    operands: tuple[Scalar, ...],
    dtype: DType,
    attribute: str = "",
    keep_wide: bool = False,
) -> Scalar:
    """One elementwise operation.

    Args:
        dtype: the result's.
        attribute: compare's direction.
        keep_wide: leave a narrow float unrounded (partial results of a reduction).

    Raises:
        HeadraceError HR2401: there is no such operation on that type.
    """
    if operation == "copy":
        return operands[0]
    if operation == "convert":
        return convert(operands[0], dtype)
    if operation == "bitcast_convert":
        return decode(dtype, _raw_of_same_width(operands[0], dtype))
    if operation == "select":
        return _select(operands, dtype)
    if any(o.dtype.kind == "complex" for o in operands):
        return _complex(operation, operands, dtype, attribute)
    values = tuple(o.value for o in operands)
    if operation == "complex":
        return Scalar(dtype, values)
    if operation == "compare":
        return Scalar(dtype, (compare(attribute, *values),))
    if operation == "is_finite":
        return Scalar(dtype, (float_bits.is_finite(values[0]),))
    source = operands[0].dtype
    if operation == "clamp":
        low, value, high = values
        raised = maximum(value, low)
        return Scalar(dtype, (minimum(raised, high),))
    if source.kind == "bool":
        return Scalar(dtype, (_boolean(operation, values),))
    if source.is_float:
        result = _rounded_after(operation, values, dtype) or _float(operation, values)
        if is_narrow_float(dtype) and not keep_wide and operation not in _EXACT:
            result = formats.rounded(dtype, result)
        return Scalar(dtype, (result,))
    return Scalar(dtype, (_wrap(dtype, integers.apply(operation, values, source)),))


_EXACT = frozenset(("abs", "maximum", "minimum", "negate", "ceil", "floor", "sign", "real"))


def _select(operands: tuple[Scalar, ...], dtype: DType) -> Scalar:
    condition, yes, no = operands
    pairs = zip(yes.parts, no.parts, strict=True)
    return Scalar(dtype, tuple(condition.value.select(y, n) for y, n in pairs))


def compare(direction: str, left: Value, right: Value) -> Value:
    """`EQ NE LT LE GT GE`; false < true."""
    if left.type == "bool":
        one = left.machine.constant("u32", 1)
        left, right = left.select(one, 0), right.select(one, 0)
    return getattr(left, direction.lower())(right)


def _boolean(operation: str, values: tuple[Value, ...]) -> Value:
    if operation == "not":
        return ~values[0]
    if operation in ("add", "or", "maximum"):
        return values[0] | values[1]
    if operation in ("multiply", "and", "minimum"):
        return values[0] & values[1]
    if operation in ("xor", "subtract"):
        return values[0] ^ values[1]
    raise unknown_operation(operation, "boolean")


# -- floats ---------------------------------------------------------------------------


def maximum(left: Value, right: Value) -> Value:
    """NaN where either is NaN; +0 above -0."""
    if not left.is_float:
        return left.gt(right).select(left, right)
    native = left.machine.native_extreme("maximum", left, right)
    if native is not None:
        return native
    both = (left.bits & right.bits).bitcast(left.type)
    larger = left.eq(right).select(both, left.gt(right).select(left, right))
    return _or_nan(left, right, larger)


def minimum(left: Value, right: Value) -> Value:
    """NaN where either is NaN; -0 below +0."""
    if not left.is_float:
        return left.lt(right).select(left, right)
    native = left.machine.native_extreme("minimum", left, right)
    if native is not None:
        return native
    both = (left.bits | right.bits).bitcast(left.type)
    smaller = left.eq(right).select(both, left.lt(right).select(left, right))
    return _or_nan(left, right, smaller)


def _or_nan(left: Value, right: Value, result: Value) -> Value:
    right_or = float_bits.is_nan(right).select(right, result)
    return float_bits.is_nan(left).select(left, right_or)


def _float_sign(x: Value) -> Value:
    one = float_bits.copy_sign(x.machine.constant(x.type, 1.0), x)
    return (x.eq(0.0) | float_bits.is_nan(x)).select(x, one)


def _reciprocal_root(x: Value) -> Value:
    return x.machine.constant(x.type, 1.0) / x.sqrt()


_FLOAT_UNARY: dict[str, Callable[[Value], Value]] = {
    **elementary.UNARY,
    "abs": float_bits.absolute,
    "negate": lambda x: -x,
    "sign": _float_sign,
    "rsqrt": _reciprocal_root,
    "real": lambda x: x,
    "imag": lambda x: x.machine.constant(x.type, 0.0),
}
_FLOAT_BINARY: dict[str, Callable[[Value, Value], Value]] = {
    "add": Value.__add__,
    "subtract": Value.__sub__,
    "multiply": Value.__mul__,
    "divide": Value.__truediv__,
    "maximum": maximum,
    "minimum": minimum,
    "atan2": trigonometry.arctangent2,
    "power": elementary.power,
    "remainder": remainder,
}


def _rounded_after(operation: str, values: tuple[Value, ...], dtype: DType) -> Value | None:
    """The machine's own function, for results that are 16-bit floats."""
    if len(values) != 1 or not is_narrow_float(dtype) or values[0].type != "f32":
        return None
    return values[0].machine.native_function(operation, values[0])


def _float(operation: str, values: tuple[Value, ...]) -> Value:
    if len(values) == 1 and operation in _FLOAT_UNARY:
        return _FLOAT_UNARY[operation](values[0])
    if len(values) == 2 and operation in _FLOAT_BINARY:
        return _FLOAT_BINARY[operation](*values)
    raise unknown_operation(operation, "float")


# -- conversions --------------------------------------------------------------------------


def convert(scalar: Scalar, dtype: DType) -> Scalar:
    """StableHLO's convert; floats saturate to integers, NaN gives 0."""
    if dtype.kind == "complex":
        element = element_dtype(dtype)
        real = [convert(_part(scalar, i), element).value for i in range(len(scalar.parts))]
        zero = scalar.value.machine.constant(compute_type(element), 0.0)
        return Scalar(dtype, (real[0], real[1] if len(real) == 2 else zero))
    if scalar.dtype.kind == "complex":
        if dtype.kind == "bool":
            return Scalar(dtype, (scalar.parts[0].ne(0.0) | scalar.parts[1].ne(0.0),))
        return convert(_part(scalar, 0), dtype)
    value, source, kind = scalar.value, scalar.dtype, compute_type(dtype)
    if source == dtype:
        return scalar
    if dtype.kind == "bool":
        return Scalar(dtype, (value.ne(0),))
    if source.kind == "bool":
        value = value.select(value.machine.constant("u32", 1), 0)
    if value.is_float and not dtype.is_float:
        return Scalar(dtype, (_to_integer(value, dtype),))
    if is_narrow_float(dtype):
        if not value.is_float:
            # An integer of more than 24 bits goes through f64 only where f32 would round it.
            value = _narrow_from_integer(value, source)
        return Scalar(dtype, (formats.decode(dtype, formats.encode(dtype, value)),))
    if dtype.is_float:
        return Scalar(dtype, (value.to(kind),))
    return Scalar(dtype, (_wrap(dtype, value.to(kind)),))


def _narrow_from_integer(value: Value, source: DType) -> Value:
    """A float that rounds on to a narrow one as the integer itself would.

    Bits below the 24 that `f32` holds are folded into the last one (round to odd), so
    rounding twice is rounding once.
    """
    if source.bits <= 16 or source.kind == "bool":
        return value.to("f32")
    machine = value.machine
    unsigned: MachineType = UNSIGNED_OF[value.type]
    minus = value.lt(0) if source.kind == "signed" else value.ne(value)
    magnitude = minus.select(machine.constant(value.type, 0) - value, value).bitcast(unsigned)
    excess = BITS[unsigned] - 24
    zeros = integers.leading_zeros(magnitude, BITS[unsigned])
    drop = zeros.gt(excess).select(machine.constant(unsigned, 0), zeros.bitcast(unsigned))
    drop = zeros.gt(excess).select(drop, machine.constant(unsigned, excess) - drop)
    kept = magnitude >> drop
    lost = (kept << drop).ne(magnitude)
    kept = lost.select(kept | 1, kept)
    whole = (kept << drop).to("f32")
    return minus.select(-whole, whole)


def _part(scalar: Scalar, index: int) -> Scalar:
    return Scalar(element_dtype(scalar.dtype), (scalar.parts[index],))


def _to_integer(value: Value, dtype: DType) -> Value:
    machine, kind = value.machine, compute_type(dtype)
    low, high = 0, (1 << dtype.bits) - 1
    if dtype.kind == "signed":
        low, high = -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    # high + 1 is a power of two, exact in any float type.
    above = value.ge(float(high + 1))
    below = value.le(float(low))
    inside = ~(above | below | float_bits.is_nan(value))
    whole = inside.select(value, 0.0).to(kind)
    whole = above.select(machine.constant(kind, high), whole)
    return below.select(machine.constant(kind, low), whole)


def _raw_of_same_width(scalar: Scalar, dtype: DType) -> tuple[Value, ...]:
    if scalar.dtype.kind == "complex" or dtype.kind == "complex":
        raise unknown_operation("bitcast_convert", "complex")
    if scalar.dtype.bits != dtype.bits:
        raise unknown_operation("bitcast_convert", f"{scalar.dtype.name} to {dtype.name}")
    raw = encode(scalar)[0]
    if dtype.bits < 32 and dtype.kind != "bool":
        raw = raw & ((1 << dtype.bits) - 1)
    return (raw.bitcast(raw_type(dtype)),)


def _complex(
    operation: str, operands: tuple[Scalar, ...], dtype: DType, attribute: str
) -> Scalar:
    pairs = [(o.parts[0], o.parts[1]) for o in operands]
    if operation == "compare" and attribute in ("EQ", "NE"):
        equal = pairs[0][0].eq(pairs[1][0]) & pairs[0][1].eq(pairs[1][1])
        return Scalar(I1, (equal if attribute == "EQ" else ~equal,))
    if len(pairs) == 1 and operation in complex_numbers.UNARY:
        return Scalar(dtype, complex_numbers.UNARY[operation](pairs[0]))
    if len(pairs) == 1 and operation in complex_numbers.PARTS:
        return Scalar(dtype, (complex_numbers.PARTS[operation](pairs[0]),))
    if len(pairs) == 2 and operation in complex_numbers.BINARY:
        return Scalar(dtype, complex_numbers.BINARY[operation](pairs[0], pairs[1]))
    raise unknown_operation(operation, "complex")
