"""Sines, tangents and their inverses, with an exact reduction of large arguments."""

from __future__ import annotations

import math

from headrace.kernel.lanes.float_bits import (
    SIGN_MASK,
    absolute,
    constant_like,
    copy_sign,
    is_finite,
    is_nan,
    polynomial,
)
from headrace.kernel.lanes.machine import UNSIGNED_OF, Value

# 1216 bits of 2 / pi, enough for the largest f64.
_TWO_OVER_PI = (
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561"
    "b7246e3a424dd2e006492eea09d1921cfe1deb1cb129a73ee88235f52ebb4484"
    "e99c7026b45f7e413991d639835339f49c845f8bbdf9283b1ff897ffde05980f"
    "ef2f118b5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d7527bac7ebe5f17b"
    "3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b6bab"
)
_QUARTER_PI = math.pi / 4


def _wide_product(a: Value, b: Value, bits: int) -> tuple[Value, Value]:
    """High and low half of the product of two unsigned words."""
    half = bits // 2
    mask = (1 << half) - 1
    a_high, a_low, b_high, b_low = a >> half, a & mask, b >> half, b & mask
    low = a_low * b_low
    middle = a_high * b_low + (low >> half)
    other = a_low * b_high + (middle & mask)
    return a_high * b_high + (middle >> half) + (other >> half), a * b


def _reduced(x: Value) -> tuple[Value, Value]:
    """`(quadrant, r)` with `|x| = quadrant * pi/2 + r`, `r` in [-pi/4, pi/4].

    Payne and Hanek: a window of 2/pi is chosen by the exponent, so that the product's
    two bits above the point are the quadrant, however large `x` is.
    """
    machine, kind = x.machine, x.type
    word = UNSIGNED_OF[kind]
    bits, mantissa, bias = (32, 23, 127) if kind == "f32" else (64, 52, 1023)
    a = is_finite(x).select(absolute(x), 1.0)
    pattern = a.bits
    significand = (pattern & ((1 << mantissa) - 1)) | (1 << mantissa)
    exponent = (pattern >> mantissa).to("i32")
    # One zero word stands before the table, so that windows may begin before the point.
    start = exponent + (bits - bias - 2 - (mantissa + 1) + 1)
    start = start.gt(0).select(start, 0)
    first, shift = start >> (5 if bits == 32 else 6), (start & (bits - 1)).to(word)
    last = ((2 * bias) + bits - bias - 2 - mantissa) // bits
    digits = bits // 4
    starts = range(0, len(_TWO_OVER_PI), digits)
    words = [0, *(int(_TWO_OVER_PI[at : at + digits], 16) for at in starts)]
    picked: list[Value] = []
    for k in range(4):
        chosen = machine.constant(word, words[k])
        for option in range(1, last + 1):
            entry = words[option + k] if option + k < len(words) else 0
            chosen = first.eq(option).select(machine.constant(word, entry), chosen)
        picked.append(chosen)
    # Two shifts: one by the whole width would be undefined.
    rest = ((shift ^ (bits - 1)) & (bits - 1)).to(word)
    q = [(picked[k] << shift) | ((picked[k + 1] >> 1) >> rest) for k in range(3)]
    high2, low2 = _wide_product(significand, q[2], bits)
    high1, low1 = _wide_product(significand, q[1], bits)
    middle = low1 + high2
    carry = middle.lt(low1).select(machine.constant(word, 1), 0)
    top = significand * q[0] + high1 + carry
    quadrant = top >> (bits - 2)
    upper = (top << 2) | (middle >> (bits - 2))
    lower = (middle << 2) | (low2 >> (bits - 2))
    minus = upper.ge(1 << (bits - 1))
    quadrant = minus.select(quadrant + 1, quadrant)
    upper = minus.select(~upper, upper)
    lower = minus.select(~lower, lower)
    fraction = upper.to(kind) * 2.0**-bits + lower.to(kind) * 2.0 ** (-2 * bits)
    r = fraction * (math.pi / 2)
    r = minus.select(-r, r)
    near = a.lt(_QUARTER_PI)
    return near.select(machine.constant(word, 0), quadrant), near.select(a, r)


def _sine_and_cosine_near(r: Value) -> tuple[Value, Value]:
    """For |r| <= pi/4."""
    z = r * r
    count = 6 if r.type == "f32" else 10
    sine = [(-1.0) ** n / math.factorial(2 * n + 1) for n in range(1, count)]
    cosine = [(-1.0) ** n / math.factorial(2 * n) for n in range(2, count)]
    half = z * 0.5
    w = constant_like(r, 1.0) - half
    lost = (constant_like(r, 1.0) - w) - half
    return (
        r + r * z * polynomial(z, sine),
        w + (lost + z * z * polynomial(z, cosine)),
    )


def _invalid(x: Value, result: Value) -> Value:
    return is_finite(x).select(result, constant_like(x, math.nan))


def sine(x: Value) -> Value:
    quadrant, r = _reduced(x)
    s, c = _sine_and_cosine_near(r)
    value = (quadrant & 1).eq(1).select(c, s)
    value = (quadrant & 2).eq(2).select(-value, value)
    return _invalid(x, (value.bits ^ (x.bits & SIGN_MASK[x.type])).bitcast(x.type))


def cosine(x: Value) -> Value:
    quadrant, r = _reduced(x)
    s, c = _sine_and_cosine_near(r)
    value = (quadrant & 1).eq(1).select(s, c)
    minus = ((quadrant + 1) & 2).eq(2)
    return _invalid(x, minus.select(-value, value))


def tangent(x: Value) -> Value:
    quadrant, r = _reduced(x)
    s, c = _sine_and_cosine_near(r)
    odd = (quadrant & 1).eq(1)
    value = odd.select(-c, s) / odd.select(s, c)
    return _invalid(x, (value.bits ^ (x.bits & SIGN_MASK[x.type])).bitcast(x.type))


_ATAN = {
    "f32": (
        0.99999999938870577, -0.33333307374791207, 0.19998204347022454,
        -0.14239862670034925, 0.10571913819366321, -0.060309097965581086,
    ),
    "f64": (
        1.0, -0.33333333333333324, 0.1999999999999706, -0.14285714285334504,
        0.11111111085577163, -0.090909080670160732, 0.076922812579800512,
        -0.066662073127090885, 0.058768517266771812, -0.052174132138732258,
        0.044998614236424022, -0.033395209242079827, 0.015120336241411503,
    ),
}  # fmt: skip


def _arctangent_of_ratio(above: Value, below: Value) -> Value:
    """`atan(above / below)`, both not negative and finite, not both 0."""
    kind = above.type
    swap = above.gt(below)
    small, large = swap.select(below, above), swap.select(above, below)
    ratio = small / large
    # atan(q) = pi/4 + atan((q - 1) / (q + 1)) brings q into [-0.414, 0.414].
    fold = ratio.gt(math.sqrt(2.0) - 1.0)
    q = fold.select((small - large) / (small + large), ratio)
    value = q * polynomial(q * q, _ATAN[kind])
    value = fold.select(value + _QUARTER_PI, value)
    low = 6.123233995736766e-17 if kind == "f64" else -4.371139000186241e-08
    half_pi = math.pi / 2 if kind == "f64" else 1.57079637050628662109375
    return swap.select(constant_like(value, half_pi) - (value - low), value)


def arctangent2(y: Value, x: Value) -> Value:
    """C's `atan2`."""
    a, b = absolute(y), absolute(x)
    both_zero = a.eq(0.0) & b.eq(0.0)
    y_infinite, x_infinite = a.eq(math.inf), b.eq(math.inf)
    one, zero = constant_like(x, 1.0), constant_like(x, 0.0)
    some_infinite = y_infinite | x_infinite
    above = some_infinite.select(y_infinite.select(one, zero), a)
    below = some_infinite.select(x_infinite.select(one, zero), both_zero.select(one, b))
    # Halving keeps the sum in the fold finite.
    halve = above.gt(1e30) | below.gt(1e30)
    above = halve.select(above * 0.25, above)
    below = halve.select(below * 0.25, below)
    angle = _arctangent_of_ratio(above, below)
    pi = 3.1415927410125732421875 if x.type == "f32" else math.pi
    pi_low = -8.742278000372482e-08 if x.type == "f32" else 1.2246467991473532e-16
    left = x.bits.ge(SIGN_MASK[x.type])
    angle = left.select(constant_like(x, pi) - (angle - pi_low), angle)
    result = copy_sign(angle, y)
    return is_nan(y).select(y, is_nan(x).select(x, result))


def arctangent(x: Value) -> Value:
    return arctangent2(x, constant_like(x, 1.0))


def arcsine(x: Value) -> Value:
    below = (constant_like(x, 1.0) - x) * (x + 1.0)
    outside = absolute(x).gt(1.0)
    root = outside.select(constant_like(x, math.nan), below).sqrt()
    return outside.select(constant_like(x, math.nan), arctangent2(x, root))


def arccosine(x: Value) -> Value:
    below = (constant_like(x, 1.0) - x) * (x + 1.0)
    outside = absolute(x).gt(1.0)
    root = outside.select(constant_like(x, 0.0), below).sqrt()
    return outside.select(constant_like(x, math.nan), arctangent2(root, x))
