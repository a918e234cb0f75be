"""The remainder of floats, exact."""

from __future__ import annotations

import math

from headrace.kernel.lanes.float_bits import (
    SIGN_MASK,
    absolute,
    constant_like,
    copy_sign,
    is_finite,
    is_nan,
)
from headrace.kernel.lanes.machine import UNSIGNED_OF, Value


def remainder(x: Value, y: Value) -> Value:
    """C's `fmod`, exact: long division of the significands, several bits a step."""
    machine, kind = x.machine, x.type
    mantissa, step, turns = (23, 8, 36) if kind == "f32" else (52, 11, 192)
    word = UNSIGNED_OF[kind]
    hidden = 1 << mantissa

    def parts(v: Value) -> tuple[Value, Value]:
        pattern = v.bits & (SIGN_MASK[kind] - 1)
        exponent = (pattern >> mantissa).to("i32")
        fraction = pattern & (hidden - 1)
        normal = exponent.gt(0)
        return normal.select(exponent, 1), normal.select(fraction | hidden, fraction)

    usable = is_finite(x) & ~is_nan(y) & y.ne(0.0)
    x_exponent, x_fraction = parts(usable.select(x, 1.0))
    y_exponent, y_fraction = parts((usable & is_finite(y)).select(y, 1.0))
    left = machine.variable("i32")
    rest = machine.variable(word)
    machine.write(left, x_exponent - y_exponent)
    # With a lower exponent the significand may still be above: `smaller` decides then.
    machine.write(rest, x_fraction % y_fraction)

    def turn(_: Value) -> None:
        count = machine.read(left)
        now = count.gt(step).select(machine.constant("i32", step), count)
        now = now.gt(0).select(now, 0)
        machine.write(rest, (machine.read(rest) << now.to(word)) % y_fraction)
        machine.write(left, count - now)

    machine.loop(machine.constant(machine.index_type, turns), turn)
    # The result is `rest * 2 ** (y_exponent - bias - mantissa)`, built without rounding.
    value = machine.read(rest)
    low = machine.variable(word)
    exponent = machine.variable("i32")
    machine.write(low, value)
    machine.write(exponent, y_exponent)

    def normalise(_: Value) -> None:
        bits, at = machine.read(low), machine.read(exponent)
        again = bits.lt(hidden) & at.gt(1)
        machine.write(low, again.select(bits << 1, bits))
        machine.write(exponent, again.select(at - 1, at))

    machine.loop(machine.constant(machine.index_type, mantissa + 1), normalise)
    bits, at = machine.read(low), machine.read(exponent)
    normal = bits.ge(hidden)
    pattern = normal.select((bits & (hidden - 1)) | (at.to(word) << mantissa), bits)
    pattern = value.eq(0).select(machine.constant(word, 0), pattern)
    result = copy_sign(pattern.bitcast(kind), x)
    smaller = absolute(x).lt(absolute(y))
    result = smaller.select(x, result)
    result = usable.select(result, constant_like(x, math.nan))
    return is_nan(y).select(y, is_nan(x).select(x, result))
