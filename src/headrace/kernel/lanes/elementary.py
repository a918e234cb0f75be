"""Functions that no device computes accurately enough, in a machine's primitives.

GLSL's `Exp` is off by 62 units in the last place on one device and `Tanh` loses all
accuracy near 0 on another (notes/vulkan.md), so each is computed here from additions,
multiplications, divisions and bit operations: the same on every device, within about
two units in the last place in `f32` and `f64`. Polynomials are Taylor series where the
argument is small, and Chebyshev fits made with mpmath at 60 digits. Nothing may be
contracted to fused operations: the compensated sums rely on plain rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from headrace.kernel.lanes.machine import SIGNED_OF, UNSIGNED_OF, Value

_MANTISSA = {"f32": 23, "f64": 52}
_BIAS = {"f32": 127, "f64": 1023}
_EXPONENT_MASK = {"f32": 0x7F800000, "f64": 0x7FF0000000000000}
_SIGN_MASK = {"f32": 1 << 31, "f64": 1 << 63}
# ln 2 in two parts; the high part has so few bits that its product with an exponent is exact.
_LN2_HIGH = {"f32": 0.693145751953125, "f64": 0.6931471803691238}
_LN2_LOW = {"f32": 1.4286068203094172e-06, "f64": 1.9082149292705877e-10}
_SPLITTER = {"f32": 4097.0, "f64": 134217729.0}


def is_nan(x: Value) -> Value:
    """By its bits: compilers may assume that no value is NaN."""
    return (x.bits & (_SIGN_MASK[x.type] - 1)).gt(_EXPONENT_MASK[x.type])


def is_finite(x: Value) -> Value:
    return (x.bits & _EXPONENT_MASK[x.type]).ne(_EXPONENT_MASK[x.type])


def absolute(x: Value) -> Value:
    return (x.bits & (_SIGN_MASK[x.type] - 1)).bitcast(x.type)


def copy_sign(magnitude: Value, sign: Value) -> Value:
    """`magnitude`, which is not negative, with the sign bit of `sign`."""
    return (magnitude.bits | (sign.bits & _SIGN_MASK[sign.type])).bitcast(magnitude.type)


def _constant(x: Value, value: float) -> Value:
    return x.machine.constant(x.type, value)


def _polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """Horner's rule; the constant term comes first."""
    total = _constant(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + coefficient
    return total


def _power_of_two(exponent: Value, like: Value) -> Value:
    """`2 ** exponent` for exponents of normal numbers."""
    biased = exponent + _BIAS[like.type]
    return (biased << _MANTISSA[like.type]).bitcast(like.type)


# -- rounding -----------------------------------------------------------------


def ceiling(x: Value) -> Value:
    return -((-x).floor())


def truncated(x: Value) -> Value:
    return copy_sign(absolute(x).floor(), x)


def round_half_away(x: Value) -> Value:
    magnitude = absolute(x)
    whole = magnitude.floor()
    up = (magnitude - whole).ge(0.5)
    return copy_sign(up.select(whole + 1.0, whole), x)


def round_half_even(x: Value) -> Value:
    magnitude = absolute(x)
    whole = magnitude.floor()
    rest = magnitude - whole
    half = whole * 0.5
    up = rest.gt(0.5) | (rest.eq(0.5) & half.ne(half.floor()))
    return copy_sign(up.select(whole + 1.0, whole), x)


# -- exponentials ---------------------------------------------------------------


def _exponential_of_pair(high: Value, low: Value | None) -> Value:
    """`exp(high + low)`, `low` tiny beside `high`; NaN comes out as 1."""
    kind = high.type
    least, most = (-110.0, 90.0) if kind == "f32" else (-760.0, 720.0)
    x = high.lt(least).select(_constant(high, least), high)
    x = x.gt(most).select(_constant(high, most), x)
    x = is_nan(high).select(_constant(high, 0.0), x)
    count = (x * (1.0 / math.log(2.0)) + 0.5).floor()
    r = x - count * _LN2_HIGH[kind]
    rest = count * -_LN2_LOW[kind]
    if low is not None:
        rest = rest + low
    s = r + rest
    rest = rest - (s - r)
    terms = 8 if kind == "f32" else 14
    tail = _polynomial(s, [1.0 / math.factorial(n) for n in range(2, terms)])
    value = (s * s * tail + rest + s) + 1.0
    exponent = count.to(SIGNED_OF[kind])
    first = exponent >> 1
    return value * _power_of_two(first, x) * _power_of_two(exponent - first, x)


def exponential(x: Value) -> Value:
    return is_nan(x).select(x, _exponential_of_pair(x, None))


def exponential_minus_one(x: Value) -> Value:
    """Accurate near 0."""
    terms = 12 if x.type == "f32" else 21
    tail = _polynomial(x, [1.0 / math.factorial(n) for n in range(2, terms)])
    near = x * x * tail + x
    near = absolute(x).lt(1e-30 if x.type == "f32" else 1e-290).select(x, near)
    return absolute(x).lt(0.6).select(near, exponential(x) - 1.0)


def logistic(x: Value) -> Value:
    one = _constant(x, 1.0)
    return one / (exponential(-x) + 1.0)


def tanh(x: Value) -> Value:
    doubled = exponential_minus_one(absolute(x) * 2.0)
    limit = 10.0 if x.type == "f32" else 22.0
    ratio = absolute(x).gt(limit).select(_constant(x, 1.0), doubled / (doubled + 2.0))
    return is_nan(x).select(x, copy_sign(ratio, x))


def sinh(x: Value) -> Value:
    t = exponential_minus_one(absolute(x))
    near = (t + t / (t + 1.0)) * 0.5
    # Beyond exp's range the half exponential is squared instead.
    half = exponential(absolute(x) * 0.5)
    limit = 20.0 if x.type == "f32" else 40.0
    far = half * 0.5 * half
    return is_nan(x).select(x, copy_sign(absolute(x).gt(limit).select(far, near), x))


def cosh(x: Value) -> Value:
    half = exponential(absolute(x) * 0.5)
    e = half * half
    limit = 20.0 if x.type == "f32" else 40.0
    near = (e + _constant(x, 1.0) / e) * 0.5
    return absolute(x).gt(limit).select(half * 0.5 * half, near)


# -- logarithms -------------------------------------------------------------------


def _exponent_and_fraction(x: Value) -> tuple[Value, Value]:
    """`(e, m)` with `x = m * 2**e`, `m` in about [0.707, 1.414); `x` positive, finite."""
    kind = x.type
    integer = SIGNED_OF[kind]
    mantissa = _MANTISSA[kind]
    tiny = x.lt(2.0 ** (1 - _BIAS[kind]))
    scaled = tiny.select(x * 2.0 ** (mantissa + 1), x).bitcast(integer)
    root = 0x3F3504F3 if kind == "f32" else 0x3FE6A09E667F3BCD
    exponent = (scaled - root) >> mantissa
    fraction = (scaled - (exponent << mantissa)).bitcast(kind)
    shift = x.machine.constant(integer, mantissa + 1)
    return tiny.select(exponent - shift, exponent), fraction


def _log_series(kind: str) -> list[float]:
    return [2.0 / n for n in range(3, 13 if kind == "f32" else 27, 2)]


def logarithm(x: Value) -> Value:
    positive = (x.gt(0.0) & is_finite(x)).select(x, 1.0)
    exponent, fraction = _exponent_and_fraction(positive)
    e = exponent.to(x.type)
    f = fraction - 1.0
    s = f / (f + 2.0)
    z = s * s
    series = z * _polynomial(z, _log_series(x.type))
    half_square = f * f * 0.5
    small = s * (half_square + series) + e * _LN2_LOW[x.type]
    result = e * _LN2_HIGH[x.type] - ((half_square - small) - f)
    result = x.eq(0.0).select(_constant(x, -math.inf), result)
    result = x.lt(0.0).select(_constant(x, math.nan), result)
    return (is_nan(x) | x.eq(math.inf)).select(x, result)


def log_plus_one(x: Value) -> Value:
    """Accurate near 0: `log(u) * x / (u - 1)` takes back what `u = x + 1` lost."""
    u = x + 1.0
    d = u - 1.0
    same = d.eq(0.0)
    result = logarithm(u) * x / same.select(_constant(x, 1.0), d)
    return (same | is_nan(x) | x.eq(math.inf)).select(x, result)


# -- powers ---------------------------------------------------------------------------


def _two_sum(a: Value, b: Value) -> tuple[Value, Value]:
    """`a + b` and what rounding lost."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


def _two_product(a: Value, b: Value) -> tuple[Value, Value]:
    """`a * b` and what rounding lost (Dekker)."""

    def split(x: Value) -> tuple[Value, Value]:
        scaled = x * _SPLITTER[x.type]
        high = scaled - (scaled - x)
        return high, x - high

    total = a * b
    a_high, a_low = split(a)
    b_high, b_low = split(b)
    lost = a_high * b_high - total + a_high * b_low + a_low * b_high + a_low * b_low
    return total, lost


def _logarithm_pair(x: Value) -> tuple[Value, Value]:
    """`log(x)` as a sum of two, for `x` positive and finite."""
    exponent, fraction = _exponent_and_fraction(x)
    e = exponent.to(x.type)
    f = fraction - 1.0
    below, below_lost = _two_sum(fraction, _constant(x, 1.0))
    s = f / below
    product, product_lost = _two_product(s, below)
    s_low = ((f - product) - product_lost - s * below_lost) / below
    z = s * s
    tail = s * z * _polynomial(z, _log_series(x.type))
    high, lost = _two_sum(e * _LN2_HIGH[x.type], s * 2.0)
    low = lost + (tail + (s_low * 2.0 + e * _LN2_LOW[x.type]))
    return _two_sum(high, low)


def power(x: Value, y: Value) -> Value:
    """C's `pow`."""
    one = _constant(x, 1.0)
    base = absolute(x)
    ordinary = base.gt(0.0) & is_finite(x)
    log_high, log_low = _logarithm_pair(ordinary.select(base, 1.0))
    # Beyond this exponent every base but 1 is out of range already.
    limit = 2.0**40 if x.type == "f32" else 2.0**70
    exponent = y.gt(limit).select(_constant(x, limit), y)
    exponent = y.lt(-limit).select(_constant(x, -limit), exponent)
    high, low = _two_product(log_high, exponent)
    low = low + log_low * exponent
    bounded = absolute(high).lt(2000.0).select(low, 0.0)
    result = _exponential_of_pair(high, bounded)
    up = base.eq(0.0).select(y.lt(0.0).select(one, 0.0), y.gt(0.0).select(one, 0.0)).eq(1.0)
    result = ordinary.select(result, up.select(_constant(x, math.inf), 0.0))
    whole = y.floor().eq(y)
    half = y * 0.5
    odd = whole & half.floor().ne(half)
    negative = x.bits.ge(_SIGN_MASK[x.type])
    result = (negative & odd).select(-result, result)
    bad = x.lt(0.0) & is_finite(x) & ~whole
    result = bad.select(_constant(x, math.nan), result)
    result = is_nan(y).select(y, is_nan(x).select(x, result))
    return (y.eq(0.0) | x.eq(1.0)).select(one, result)


def cube_root(x: Value) -> Value:
    magnitude = absolute(x)
    ordinary = magnitude.gt(0.0) & is_finite(x)
    base = ordinary.select(magnitude, 1.0)
    # Scaling keeps the cube in the refinement inside the normal range.
    scale = 2.0**24 if x.type == "f32" else 2.0**54
    small = base.lt(1.0 / scale)
    base = small.select(base * scale * scale * scale, base)
    large = base.gt(scale)
    base = large.select(base * (1.0 / scale), base)
    y = _exponential_of_pair(logarithm(base) * (1.0 / 3.0), None)
    y = y - (y * y * y - base) / (y * y * 3.0)
    root_of_scale = 2.0**8 if x.type == "f32" else 2.0**18
    y = large.select(y * root_of_scale, y)
    y = small.select(y * (1.0 / scale), y)
    return ordinary.select(copy_sign(y, x), x)


# -- error function ---------------------------------------------------------------------

_ERF_SMALL = {
    "f32": (
        1.1283791670623609, -0.37612638475991322, 0.11283782622062184,
        -0.026865438310515114, 0.0052210534125376749, -0.00084843965506018934,
        0.00011268253894199437, -9.6735908117507825e-6,
    ),
    "f64": (
        1.1283791670955126, -0.37612638903183752, 0.1128379167095512,
        -0.026866170645129854, 0.0052239776254234544, -0.00085483270219454273,
        0.00012055332903350668, -1.4925647581008593e-5, 1.6462045711013025e-6,
        -1.6364645854816388e-7, 1.4792435426962471e-8, -1.2164764337224506e-9,
        8.7097552328517897e-11, -4.2320376764874592e-12,
    ),
}  # fmt: skip
# erfc(x) * exp(x * x) * (x + 4) in t = (x - 4) / (x + 4).
_ERFC_LARGE = {
    "f32": (
        1.0959956641785547, -0.97654871554784053, 0.77320179634766104,
        -0.54100017992586037, 0.32964936486225445, -0.17898415900863808,
        0.065293784518185828, -0.039208469601917622,
    ),
    "f64": (
        1.0959956610004911, -0.97654872908088197, 0.77320870226523526,
        -0.54085383131324575, 0.33085158787830391, -0.17401093723843846,
        0.076381514893253948, -0.026370053436720054, 0.0061120559734380342,
        -0.00028095596136418497, -0.00045505213150903644, 0.00017677563243640854,
        -3.7215042682423031e-6, -1.877189793899708e-5, 5.3674129738785974e-6,
        2.569372121258788e-6, -5.288785428151532e-8,
    ),
}  # fmt: skip


def _erf_parts(x: Value) -> tuple[Value, Value]:
    """`erf` for |x| <= 1 and `erfc(|x|)` for |x| in [1, 6.5]."""
    small = x * _polynomial(x * x, _ERF_SMALL[x.type])
    limit = 4.2 if x.type == "f32" else 6.5
    a = absolute(x)
    a = a.lt(limit).select(a, limit)
    a = a.gt(1.0).select(a, 1.0)
    t = (a - 4.0) / (a + 4.0)
    square, lost = _two_product(a, a)
    large = _exponential_of_pair(-square, -lost) * _polynomial(t, _ERFC_LARGE[x.type])
    return small, large / (a + 4.0)


def erf(x: Value) -> Value:
    small, large = _erf_parts(x)
    far = copy_sign(_constant(x, 1.0) - large, x)
    return is_nan(x).select(x, absolute(x).lt(1.0).select(small, far))


# -- trigonometry -----------------------------------------------------------------------

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
    w = _constant(r, 1.0) - half
    lost = (_constant(r, 1.0) - w) - half
    return (
        r + r * z * _polynomial(z, sine),
        w + (lost + z * z * _polynomial(z, cosine)),
    )


def _invalid(x: Value, result: Value) -> Value:
    return is_finite(x).select(result, _constant(x, math.nan))


def sine(x: Value) -> Value:
    quadrant, r = _reduced(x)
    s, c = _sine_and_cosine_near(r)
    value = (quadrant & 1).eq(1).select(c, s)
    value = (quadrant & 2).eq(2).select(-value, value)
    return _invalid(x, (value.bits ^ (x.bits & _SIGN_MASK[x.type])).bitcast(x.type))


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
    return _invalid(x, (value.bits ^ (x.bits & _SIGN_MASK[x.type])).bitcast(x.type))


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
    value = q * _polynomial(q * q, _ATAN[kind])
    value = fold.select(value + _QUARTER_PI, value)
    low = 6.123233995736766e-17 if kind == "f64" else -4.371139000186241e-08
    half_pi = math.pi / 2 if kind == "f64" else 1.57079637050628662109375
    return swap.select(_constant(value, half_pi) - (value - low), value)


def arctangent2(y: Value, x: Value) -> Value:
    """C's `atan2`."""
    a, b = absolute(y), absolute(x)
    both_zero = a.eq(0.0) & b.eq(0.0)
    y_infinite, x_infinite = a.eq(math.inf), b.eq(math.inf)
    one, zero = _constant(x, 1.0), _constant(x, 0.0)
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
    left = x.bits.ge(_SIGN_MASK[x.type])
    angle = left.select(_constant(x, pi) - (angle - pi_low), angle)
    result = copy_sign(angle, y)
    return is_nan(y).select(y, is_nan(x).select(x, result))


def arctangent(x: Value) -> Value:
    return arctangent2(x, _constant(x, 1.0))


def arcsine(x: Value) -> Value:
    below = (_constant(x, 1.0) - x) * (x + 1.0)
    outside = absolute(x).gt(1.0)
    root = outside.select(_constant(x, math.nan), below).sqrt()
    return outside.select(_constant(x, math.nan), arctangent2(x, root))


def arccosine(x: Value) -> Value:
    below = (_constant(x, 1.0) - x) * (x + 1.0)
    outside = absolute(x).gt(1.0)
    root = outside.select(_constant(x, 0.0), below).sqrt()
    return outside.select(_constant(x, math.nan), arctangent2(root, x))


def arcsinh(x: Value) -> Value:
    a = absolute(x)
    large = a.gt(2.0**28)
    inner = large.select(_constant(x, 1.0), a)
    square = inner * inner
    near = log_plus_one(inner + square / ((square + 1.0).sqrt() + 1.0))
    far = logarithm(large.select(a, 1.0)) + math.log(2.0)
    return is_nan(x).select(x, copy_sign(large.select(far, near), x))


def arccosh(x: Value) -> Value:
    large = x.gt(2.0**28)
    t = large.select(_constant(x, 1.0), x) - 1.0
    near = log_plus_one(t + (t * 2.0 + t * t).sqrt())
    far = logarithm(large.select(x, 1.0)) + math.log(2.0)
    result = large.select(far, near)
    return x.lt(1.0).select(_constant(x, math.nan), result)


def arctanh(x: Value) -> Value:
    a = absolute(x)
    one = _constant(x, 1.0)
    result = copy_sign(log_plus_one(a * 2.0 / (one - a)) * 0.5, x)
    return a.gt(1.0).select(_constant(x, math.nan), is_nan(x).select(x, result))


# -- remainder ----------------------------------------------------------------------------


def remainder(x: Value, y: Value) -> Value:
    """C's `fmod`, exact: long division of the significands, several bits a step."""
    machine, kind = x.machine, x.type
    mantissa, step, turns = (23, 8, 36) if kind == "f32" else (52, 11, 192)
    word = UNSIGNED_OF[kind]
    hidden = 1 << mantissa

    def parts(v: Value) -> tuple[Value, Value]:
        pattern = v.bits & (_SIGN_MASK[kind] - 1)
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
    result = usable.select(result, _constant(x, math.nan))
    return is_nan(y).select(y, is_nan(x).select(x, result))


Unary = Callable[[Value], Value]
Binary = Callable[[Value, Value], Value]

UNARY: dict[str, Unary] = {
    "acos": arccosine,
    "acosh": arccosh,
    "asin": arcsine,
    "asinh": arcsinh,
    "atan": arctangent,
    "atanh": arctanh,
    "cbrt": cube_root,
    "ceil": ceiling,
    "cosh": cosh,
    "cosine": cosine,
    "erf": erf,
    "exponential": exponential,
    "exponential_minus_one": exponential_minus_one,
    "floor": Value.floor,
    "log": logarithm,
    "log_plus_one": log_plus_one,
    "logistic": logistic,
    "round_nearest_afz": round_half_away,
    "round_nearest_even": round_half_even,
    "sine": sine,
    "sinh": sinh,
    "sqrt": Value.sqrt,
    "tan": tangent,
    "tanh": tanh,
}
"""Float functions of one argument by the tensor stage's names."""
