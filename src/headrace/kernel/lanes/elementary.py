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
from collections.abc import Callable

from headrace.kernel.lanes import trigonometry
from headrace.kernel.lanes.float_bits import (
    BIAS,
    MANTISSA,
    SIGN_MASK,
    absolute,
    constant_like,
    copy_sign,
    is_finite,
    is_nan,
    polynomial,
    power_of_two,
)
from headrace.kernel.lanes.machine import SIGNED_OF, Value

# ln 2 in two parts; the high part has so few bits that its product with an exponent is exact.
_LN2_HIGH = {"f32": 0.693145751953125, "f64": 0.6931471803691238}
_LN2_LOW = {"f32": 1.4286068203094172e-06, "f64": 1.9082149292705877e-10}
_SPLITTER = {"f32": 4097.0, "f64": 134217729.0}


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
    x = high.lt(least).select(constant_like(high, least), high)
    x = x.gt(most).select(constant_like(high, most), x)
    x = is_nan(high).select(constant_like(high, 0.0), x)
    count = (x * (1.0 / math.log(2.0)) + 0.5).floor()
    r = x - count * _LN2_HIGH[kind]
    rest = count * -_LN2_LOW[kind]
    if low is not None:
        rest = rest + low
    s = r + rest
    rest = rest - (s - r)
    terms = 8 if kind == "f32" else 14
    tail = polynomial(s, [1.0 / math.factorial(n) for n in range(2, terms)])
    value = (s * s * tail + rest + s) + 1.0
    exponent = count.to(SIGNED_OF[kind])
    first = exponent >> 1
    return value * power_of_two(first, x) * power_of_two(exponent - first, x)


def exponential(x: Value) -> Value:
    return is_nan(x).select(x, _exponential_of_pair(x, None))


def exponential_minus_one(x: Value) -> Value:
    """Accurate near 0."""
    terms = 12 if x.type == "f32" else 21
    tail = polynomial(x, [1.0 / math.factorial(n) for n in range(2, terms)])
    near = x * x * tail + x
    near = absolute(x).lt(1e-30 if x.type == "f32" else 1e-290).select(x, near)
    return absolute(x).lt(0.6).select(near, exponential(x) - 1.0)


def logistic(x: Value) -> Value:
    one = constant_like(x, 1.0)
    return one / (exponential(-x) + 1.0)


def tanh(x: Value) -> Value:
    doubled = exponential_minus_one(absolute(x) * 2.0)
    limit = 10.0 if x.type == "f32" else 22.0
    ratio = absolute(x).gt(limit).select(constant_like(x, 1.0), doubled / (doubled + 2.0))
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
    near = (e + constant_like(x, 1.0) / e) * 0.5
    return absolute(x).gt(limit).select(half * 0.5 * half, near)


# -- logarithms -------------------------------------------------------------------


def _exponent_and_fraction(x: Value) -> tuple[Value, Value]:
    """`(e, m)` with `x = m * 2**e`, `m` in about [0.707, 1.414); `x` positive, finite."""
    kind = x.type
    integer = SIGNED_OF[kind]
    mantissa = MANTISSA[kind]
    tiny = x.lt(2.0 ** (1 - BIAS[kind]))
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
    series = z * polynomial(z, _log_series(x.type))
    half_square = f * f * 0.5
    small = s * (half_square + series) + e * _LN2_LOW[x.type]
    result = e * _LN2_HIGH[x.type] - ((half_square - small) - f)
    result = x.eq(0.0).select(constant_like(x, -math.inf), result)
    result = x.lt(0.0).select(constant_like(x, math.nan), result)
    return (is_nan(x) | x.eq(math.inf)).select(x, result)


def log_plus_one(x: Value) -> Value:
    """Accurate near 0: `log(u) * x / (u - 1)` takes back what `u = x + 1` lost."""
    u = x + 1.0
    d = u - 1.0
    same = d.eq(0.0)
    result = logarithm(u) * x / same.select(constant_like(x, 1.0), d)
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
    below, below_lost = _two_sum(fraction, constant_like(x, 1.0))
    s = f / below
    product, product_lost = _two_product(s, below)
    s_low = ((f - product) - product_lost - s * below_lost) / below
    z = s * s
    tail = s * z * polynomial(z, _log_series(x.type))
    high, lost = _two_sum(e * _LN2_HIGH[x.type], s * 2.0)
    low = lost + (tail + (s_low * 2.0 + e * _LN2_LOW[x.type]))
    return _two_sum(high, low)


def power(x: Value, y: Value) -> Value:
    """C's `pow`."""
    one = constant_like(x, 1.0)
    base = absolute(x)
    ordinary = base.gt(0.0) & is_finite(x)
    log_high, log_low = _logarithm_pair(ordinary.select(base, 1.0))
    # Beyond this exponent every base but 1 is out of range already.
    limit = 2.0**40 if x.type == "f32" else 2.0**70
    exponent = y.gt(limit).select(constant_like(x, limit), y)
    exponent = y.lt(-limit).select(constant_like(x, -limit), exponent)
    high, low = _two_product(log_high, exponent)
    low = low + log_low * exponent
    bounded = absolute(high).lt(2000.0).select(low, 0.0)
    result = _exponential_of_pair(high, bounded)
    up = base.eq(0.0).select(y.lt(0.0).select(one, 0.0), y.gt(0.0).select(one, 0.0)).eq(1.0)
    result = ordinary.select(result, up.select(constant_like(x, math.inf), 0.0))
    whole = y.floor().eq(y)
    half = y * 0.5
    odd = whole & half.floor().ne(half)
    negative = x.bits.ge(SIGN_MASK[x.type])
    result = (negative & odd).select(-result, result)
    bad = x.lt(0.0) & is_finite(x) & ~whole
    result = bad.select(constant_like(x, math.nan), result)
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
    small = x * polynomial(x * x, _ERF_SMALL[x.type])
    limit = 4.2 if x.type == "f32" else 6.5
    a = absolute(x)
    a = a.lt(limit).select(a, limit)
    a = a.gt(1.0).select(a, 1.0)
    t = (a - 4.0) / (a + 4.0)
    square, lost = _two_product(a, a)
    large = _exponential_of_pair(-square, -lost) * polynomial(t, _ERFC_LARGE[x.type])
    return small, large / (a + 4.0)


def erf(x: Value) -> Value:
    small, large = _erf_parts(x)
    far = copy_sign(constant_like(x, 1.0) - large, x)
    return is_nan(x).select(x, absolute(x).lt(1.0).select(small, far))


# -- inverse hyperbolic functions --------------------------------------------------


def arcsinh(x: Value) -> Value:
    a = absolute(x)
    large = a.gt(2.0**28)
    inner = large.select(constant_like(x, 1.0), a)
    square = inner * inner
    near = log_plus_one(inner + square / ((square + 1.0).sqrt() + 1.0))
    far = logarithm(large.select(a, 1.0)) + math.log(2.0)
    return is_nan(x).select(x, copy_sign(large.select(far, near), x))


def arccosh(x: Value) -> Value:
    large = x.gt(2.0**28)
    t = large.select(constant_like(x, 1.0), x) - 1.0
    near = log_plus_one(t + (t * 2.0 + t * t).sqrt())
    far = logarithm(large.select(x, 1.0)) + math.log(2.0)
    result = large.select(far, near)
    return x.lt(1.0).select(constant_like(x, math.nan), result)


def arctanh(x: Value) -> Value:
    a = absolute(x)
    one = constant_like(x, 1.0)
    result = copy_sign(log_plus_one(a * 2.0 / (one - a)) * 0.5, x)
    return a.gt(1.0).select(constant_like(x, math.nan), is_nan(x).select(x, result))


Unary = Callable[[Value], Value]

UNARY: dict[str, Unary] = {
    "acos": trigonometry.arccosine,
    "acosh": arccosh,
    "asin": trigonometry.arcsine,
    "asinh": arcsinh,
    "atan": trigonometry.arctangent,
    "atanh": arctanh,
    "cbrt": cube_root,
    "ceil": ceiling,
    "cosh": cosh,
    "cosine": trigonometry.cosine,
    "erf": erf,
    "exponential": exponential,
    "exponential_minus_one": exponential_minus_one,
    "floor": Value.floor,
    "log": logarithm,
    "log_plus_one": log_plus_one,
    "logistic": logistic,
    "round_nearest_afz": round_half_away,
    "round_nearest_even": round_half_even,
    "sine": trigonometry.sine,
    "sinh": sinh,
    "sqrt": Value.sqrt,
    "tan": trigonometry.tangent,
    "tanh": tanh,
}
"""Float functions of one argument by the tensor stage's names."""
