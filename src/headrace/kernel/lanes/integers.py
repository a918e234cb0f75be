"""Integer operations in a machine's primitives, corner cases as the tensor stage has them."""

from __future__ import annotations

from headrace.base.dtypes import DType
from headrace.kernel.lanes.machine import BITS, SIGNED_OF, UNSIGNED_OF, Value
from headrace.kernel.lanes.unknown import unknown_operation


def _population(x: Value) -> Value:
    """Bits set in an unsigned value."""
    width = BITS[x.type]
    masks = [0x5555555555555555, 0x3333333333333333, 0x0F0F0F0F0F0F0F0F]
    fives, threes, nibbles = (m & ((1 << width) - 1) for m in masks)
    x = x - ((x >> 1) & fives)
    x = (x & threes) + ((x >> 2) & threes)
    x = (x + (x >> 4)) & nibbles
    return (x * (0x0101010101010101 & ((1 << width) - 1))) >> (width - 8)


def leading_zeros(x: Value, bits: int) -> Value:
    """Zeros above the highest bit set, of an unsigned value of `bits` bits."""
    width = BITS[x.type]
    shift = 1
    while shift < width:
        x = x | (x >> shift)
        shift *= 2
    return x.machine.constant(x.type, bits) - _population(x)


def _safe_divisor(left: Value, right: Value, dtype: DType) -> Value:
    bad = right.eq(0)
    if dtype.kind == "signed":
        # The least integer over -1 overflows: dividing by 1 gives what wrapping would.
        bad = bad | (left.eq(-(1 << (BITS[left.type] - 1))) & right.eq(-1))
    return bad.select(right.machine.constant(right.type, 1), right)


def _integer_divide(left: Value, right: Value, dtype: DType) -> Value:
    quotient = left / _safe_divisor(left, right, dtype)
    ones = -1 if dtype.kind == "signed" else (1 << dtype.bits) - 1
    return right.eq(0).select(left.machine.constant(left.type, ones), quotient)


def _integer_remainder(left: Value, right: Value, dtype: DType) -> Value:
    rest = left % _safe_divisor(left, right, dtype)
    return right.eq(0).select(left, rest)


def _integer_power(base: Value, exponent: Value, dtype: DType) -> Value:
    machine = base.machine
    one = machine.constant(base.type, 1)
    total, square, left = (machine.variable(base.type) for _ in range(3))
    negative = exponent.lt(0) if dtype.kind == "signed" else exponent.ne(exponent)
    machine.write(total, one)
    machine.write(square, base)
    machine.write(left, negative.select(machine.constant(base.type, 0), exponent))

    def turn(_: Value) -> None:
        bits, factor = machine.read(left), machine.read(square)
        odd = (bits & 1).ne(0)
        machine.write(total, odd.select(machine.read(total) * factor, machine.read(total)))
        machine.write(square, factor * factor)
        machine.write(left, bits >> 1)

    machine.loop(machine.constant(machine.index_type, dtype.bits), turn)
    result = machine.read(total)
    if dtype.kind != "signed":
        return result
    odd = (exponent & 1).ne(0)
    minus = base.eq(-1).select(odd.select(base, one), machine.constant(base.type, 0))
    return negative.select(base.eq(1).select(one, minus), result)


def _shift(operation: str, value: Value, amount: Value, dtype: DType) -> Value:
    machine, bits = value.machine, dtype.bits
    unsigned = UNSIGNED_OF[value.type]
    count = amount.bitcast(unsigned)
    over = count.ge(bits)
    count = over.select(machine.constant(unsigned, bits - 1), count)
    zero = machine.constant(value.type, 0)
    if operation == "shift_left":
        moved = value << count.bitcast(value.type)
        return over.select(zero, moved)
    if operation == "shift_right_arithmetic":
        # The sign is the top bit of the element's own width, also for unsigned types.
        signed = value.bitcast(SIGNED_OF[value.type])
        if dtype.kind == "unsigned" and bits < BITS[value.type]:
            by = BITS[value.type] - bits
            signed = (signed << by) >> by
        return (signed >> count.bitcast(signed.type)).bitcast(value.type)
    pattern = value.bitcast(unsigned)
    if bits < BITS[value.type]:
        pattern = pattern & ((1 << bits) - 1)
    return over.select(zero, (pattern >> count).bitcast(value.type))


def apply(operation: str, values: tuple[Value, ...], dtype: DType) -> Value:
    """An operation on integers; the result is not yet wrapped to a narrow type.

    Raises:
        HeadraceError HR2401: there is no such operation.
    """
    x = values[0]
    signed = dtype.kind == "signed"
    if operation in ("add", "subtract", "multiply", "and", "or", "xor"):
        method = {
            "add": Value.__add__, "subtract": Value.__sub__, "multiply": Value.__mul__,
            "and": Value.__and__, "or": Value.__or__, "xor": Value.__xor__,
        }[operation]  # fmt: skip
        return method(x, values[1])
    if operation == "maximum":
        return x.gt(values[1]).select(x, values[1])
    if operation == "minimum":
        return x.lt(values[1]).select(x, values[1])
    if operation == "divide":
        return _integer_divide(x, values[1], dtype)
    if operation == "remainder":
        return _integer_remainder(x, values[1], dtype)
    if operation == "power":
        return _integer_power(x, values[1], dtype)
    if operation.startswith("shift_"):
        return _shift(operation, x, values[1], dtype)
    if operation == "negate":
        return x.machine.constant(x.type, 0) - x
    if operation == "not":
        return ~x
    if operation == "abs":
        return x.lt(0).select(x.machine.constant(x.type, 0) - x, x) if signed else x
    if operation == "sign":
        one = x.machine.constant(x.type, 1)
        return x.gt(0).select(one, x.lt(0).select(-one, 0) if signed else x)
    if operation in ("popcnt", "count_leading_zeros"):
        bits = x.bits
        if dtype.bits < BITS[x.type]:
            bits = bits & ((1 << dtype.bits) - 1)
        popcnt = operation == "popcnt"
        count = _population(bits) if popcnt else leading_zeros(bits, dtype.bits)
        return count.bitcast(x.type)
    raise unknown_operation(operation, dtype.name)
