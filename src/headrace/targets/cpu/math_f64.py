"""Elementary functions of f64, on scalars and vectors alike, in our own code.

No call leaves the object file. Each is good to a few units in the last place; f32
functions without a code of their own (`math_f32.py`) go through these, which makes them
correctly rounded but for rare ties. Polynomials are Taylor series or Chebyshev fits of
40 digits; the reductions are the classical ones (Cody and Waite;
Muller, "Elementary Functions", 2016).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from headrace.targets.cpu.ir_text import Function, Value, constant, mangled, width_of

_MAGIC = 6755399441055744.0  # 1.5 * 2**52: adding it rounds to an integer
_LN2_HIGH = 6.93147180369123816490e-01  # 32 bits: exact times an exponent
_LN2_LOW = 1.90821492927058770002e-10
_INFINITY = math.inf


def polynomial(f: Function, x: Value, coefficients: Sequence[float]) -> Value:
    """Horner's scheme; the highest coefficient first."""
    total = constant(x.type, coefficients[0])
    for coefficient in coefficients[1:]:
        total = f.fma(total, x, coefficient)
    return total


def absolute(f: Function, x: Value) -> Value:
    """The absolute value of a float."""
    return f.intrinsic(f"llvm.fabs.{mangled(x.type)}", x.type, x)


def copysign(f: Function, magnitude: Value, sign: Value) -> Value:
    """The magnitude of one float with the sign of another."""
    name = f"llvm.copysign.{mangled(magnitude.type)}"
    return f.intrinsic(name, magnitude.type, magnitude, sign)


def square_root(f: Function, x: Value) -> Value:
    """The square root, correctly rounded (an instruction)."""
    return f.intrinsic(f"llvm.sqrt.{mangled(x.type)}", x.type, x)


def _integers(x: Value) -> str:
    return "i64" if width_of(x.type) == 1 else f"<{width_of(x.type)} x i64>"


def _nearest(f: Function, x: Value) -> tuple[Value, Value]:
    """The nearest integer of a moderate x, as a float and as i64."""
    shifted = f.add(x, _MAGIC)
    bits = f.bitcast(shifted, _integers(x))
    magic = f.bitcast(constant(x.type, _MAGIC), _integers(x))
    return f.sub(shifted, _MAGIC), f.sub(bits, magic)


def _power_of_two(f: Function, exponent: Value, type_: str) -> Value:
    biased = f.add(exponent, 1023)
    return f.bitcast(f.binary("shl", biased, 52), type_)


def _clamp(f: Function, x: Value, low: float, high: float) -> Value:
    """x in low..high; NaN stays."""
    x = f.select(f.compare("olt", x, low), low, x)
    return f.select(f.compare("ogt", x, high), high, x)


def scale(f: Function, x: Value, exponent: Value) -> Value:
    """x * 2**exponent, right at overflow and below the normal numbers."""
    half = f.binary("ashr", exponent, 1)
    rest = f.sub(exponent, half)
    x = f.mul(x, _power_of_two(f, half, x.type))
    return f.mul(x, _power_of_two(f, rest, x.type))


def _exponential_parts(f: Function, x: Value) -> tuple[Value, Value]:
    """(p, n) with e**x = p * 2**n; x is clamped to where the result is finite or 0."""
    x = _clamp(f, x, -760.0, 720.0)
    whole, n = _nearest(f, f.mul(x, 1.4426950408889634))
    r = f.fma(f.neg(whole), _LN2_HIGH, x)
    r = f.fma(f.neg(whole), _LN2_LOW, r)
    tail = polynomial(f, r, [1.0 / math.factorial(k) for k in range(13, 1, -1)])
    return f.add(f.fma(f.mul(r, r), tail, r), 1.0), n


def exponential(f: Function, x: Value) -> Value:
    """e**x."""
    p, n = _exponential_parts(f, x)
    return scale(f, p, n)


def exponential_minus_one(f: Function, x: Value) -> Value:
    """e**x - 1."""
    near = f.compare("olt", absolute(f, x), 0.5)
    small = f.select(near, x, 0.0)
    series = polynomial(f, small, [1.0 / math.factorial(k) for k in range(17, 1, -1)])
    series = f.fma(f.mul(small, small), series, small)
    large = f.sub(exponential(f, x), 1.0)
    return f.select(f.compare("oeq", x, 0.0), x, f.select(near, series, large))


def _split(f: Function, x: Value) -> tuple[Value, Value]:
    """(m, k) with x = m * 2**k and m between sqrt(1/2) and sqrt(2); x > 0, finite."""
    tiny = f.compare("olt", x, 2.2250738585072014e-308)
    x = f.select(tiny, f.mul(x, 2.0**54), x)
    bits = f.bitcast(x, _integers(x))
    # Adding moves the border of the exponent from 1 to sqrt(1/2).
    offset = 0x3FE6A09E667F3BCD
    moved = f.sub(bits, offset)
    k = f.binary("ashr", moved, 52)
    mantissa = f.sub(bits, f.binary("shl", k, 52))
    k = f.sub(k, f.select(tiny, f.value(54, k.type), f.value(0, k.type)))
    return f.bitcast(mantissa, x.type), k


_LOG = [2.0 / k for k in range(21, 1, -2)]


def _log_tail(f: Function, s: Value) -> Value:
    """(log((1 + s) / (1 - s)) - 2 s) / s**3."""
    return polynomial(f, f.mul(s, s), _LOG)


def log(f: Function, x: Value) -> Value:
    """The natural logarithm."""
    m, k = _split(f, x)
    whole = f.cast("sitofp", k, "double")
    d = f.sub(m, 1.0)
    s = f.div(d, f.add(d, 2.0))
    half_square = f.mul(f.mul(d, d), 0.5)
    z = f.mul(s, s)
    r = f.mul(z, _log_tail(f, s))
    # log m = d - (d*d/2 - s*(d*d/2 + r)); small terms first.
    inner = f.add(f.mul(s, f.add(half_square, r)), f.mul(whole, _LN2_LOW))
    y = f.sub(f.mul(whole, _LN2_HIGH), f.sub(f.sub(half_square, inner), d))
    y = f.select(f.compare("oeq", x, _INFINITY), _INFINITY, y)
    y = f.select(f.compare("oeq", x, 0.0), -_INFINITY, y)
    y = f.select(f.compare("olt", x, 0.0), math.nan, y)
    return f.select(f.compare("uno", x, x), x, y)


def log_plus_one(f: Function, x: Value) -> Value:
    """log(1 + x)."""
    u = f.add(x, 1.0)
    y = log(f, u)
    less = f.sub(u, 1.0)
    corrected = f.div(f.mul(y, x), less)
    plain = f.binary("or", f.compare("ogt", absolute(f, x), 2.0**60), f.compare("ole", u, 0.0))
    y = f.select(plain, y, corrected)
    return f.select(f.compare("oeq", less, 0.0), x, y)


def two_product(f: Function, a: Value, b: Value) -> tuple[Value, Value]:
    """(p, e) with a * b = p + e exactly."""
    p = f.mul(a, b)
    if f.has_fma:
        return p, f.fma(a, b, f.neg(p))

    def split(x: Value) -> tuple[Value, Value]:
        wide = f.mul(x, 134217729.0)
        high = f.sub(wide, f.sub(wide, x))
        return high, f.sub(x, high)

    ah, al = split(a)
    bh, bl = split(b)
    e = f.sub(f.mul(ah, bh), p)
    e = f.add(f.add(e, f.mul(ah, bl)), f.mul(al, bh))
    return p, f.add(e, f.mul(al, bl))


def _log_double(f: Function, x: Value) -> tuple[Value, Value]:
    """The logarithm of a positive finite x as a sum of two floats."""
    m, k = _split(f, x)
    whole = f.cast("sitofp", k, "double")
    d = f.sub(m, 1.0)
    t = f.add(m, 1.0)
    t_low = f.sub(m, f.sub(t, 1.0))
    s = f.div(d, t)
    p, e = two_product(f, s, t)
    rest = f.sub(f.sub(f.sub(d, p), e), f.mul(s, t_low))
    s_low = f.div(rest, t)
    cube = f.mul(f.mul(s, s), s)
    low = f.fma(cube, _log_tail(f, s), f.mul(s_low, 2.0))
    high = f.mul(s, 2.0)
    base = f.mul(whole, _LN2_HIGH)
    total = f.add(base, high)
    # |base| >= |high| or base == 0.
    lost = f.add(f.sub(base, total), high)
    low = f.add(f.add(lost, low), f.mul(whole, _LN2_LOW))
    top = f.add(total, low)
    return top, f.add(f.sub(total, top), low)


def power(f: Function, x: Value, y: Value) -> Value:
    """x**y with IEEE's `pow` corner cases."""
    a = absolute(f, x)
    ordinary = f.binary("and", f.compare("ogt", a, 0.0), f.compare("olt", a, _INFINITY))
    high, low = _log_double(f, f.select(ordinary, a, 1.0))
    p, e = two_product(f, y, high)
    e = f.fma(y, low, e)
    clamped = _clamp(f, p, -800.0, 800.0)
    e = f.select(f.compare("oeq", clamped, p), e, 0.0)
    mantissa, n = _exponential_parts(f, clamped)
    result = scale(f, f.fma(mantissa, e, mantissa), n)
    # |x| of 0 or infinity, or y infinite: the sign of y * log |x| decides.
    zero = constant(x.type, 0.0)
    infinite = constant(x.type, _INFINITY)
    rises = f.binary("xor", f.compare("ogt", a, 1.0), f.compare("olt", y, 0.0))
    edge = f.select(rises, infinite, zero)
    extreme = f.binary("or", _not(f, ordinary), f.compare("oeq", absolute(f, y), _INFINITY))
    result = f.select(extreme, edge, result)
    result = f.select(f.compare("oeq", a, 1.0), 1.0, result)
    # Negative x: only integers are powers, odd ones keep the sign.
    whole = truncate(f, y)
    is_integer = f.compare("oeq", whole, y)
    half = f.mul(y, 0.5)
    odd = f.binary("and", is_integer, f.compare("une", truncate(f, half), half))
    bits = f.bitcast(x, _integers(x))
    negative = f.compare("slt", bits, 0)
    result = f.select(f.binary("and", negative, odd), f.neg(result), result)
    fails = f.binary("and", f.compare("olt", x, 0.0), _not(f, is_integer))
    fails = f.binary("and", fails, f.compare("ogt", x, -_INFINITY))
    result = f.select(fails, math.nan, result)
    result = f.select(f.compare("uno", x, y), math.nan, result)
    one = f.binary("or", f.compare("oeq", y, 0.0), f.compare("oeq", x, 1.0))
    return f.select(one, 1.0, result)


def _not(f: Function, condition: Value) -> Value:
    return f.binary("xor", condition, 1)


def truncate(f: Function, x: Value) -> Value:
    """Rounds toward zero."""
    if f.has_round:
        return f.intrinsic(f"llvm.trunc.{mangled(x.type)}", x.type, x)
    nearest = round_even(f, absolute(f, x))
    over = f.compare("ogt", nearest, absolute(f, x))
    return copysign(f, f.select(over, f.sub(nearest, 1.0), nearest), x)


def round_even(f: Function, x: Value) -> Value:
    """Rounds to the nearest integer, halves to even."""
    if f.has_round:
        return f.intrinsic(f"llvm.roundeven.{mangled(x.type)}", x.type, x)
    limit = 2.0**52 if x.type.find("double") >= 0 else 2.0**23
    a = absolute(f, x)
    rounded = f.sub(f.add(a, limit), limit)
    return copysign(f, f.select(f.compare("olt", a, limit), rounded, a), x)


def floor(f: Function, x: Value) -> Value:
    """Rounds down."""
    if f.has_round:
        return f.intrinsic(f"llvm.floor.{mangled(x.type)}", x.type, x)
    t = truncate(f, x)
    return f.select(f.compare("ogt", t, x), f.sub(t, 1.0), t)


def ceil(f: Function, x: Value) -> Value:
    """Rounds up."""
    if f.has_round:
        return f.intrinsic(f"llvm.ceil.{mangled(x.type)}", x.type, x)
    return f.neg(floor(f, f.neg(x)))


def _reduced_angle(f: Function, x: Value) -> tuple[Value, Value]:
    """(r, n): x = n * pi/2 + r with |r| <= pi/4 (n modulo 4 matters).

    Three parts of pi/2 up to 2**27; beyond, and for f64 alone, `large_angle` reduces
    each lane with 192 bits of 2/pi.
    """
    whole, n = _nearest(f, f.mul(_clamp(f, x, -1e9, 1e9), 2 / math.pi))
    minus = f.neg(whole)
    if f.has_fma:
        r = f.fma(minus, 1.5707963267948966, x)
        r = f.fma(minus, 6.123233995736766e-17, r)
        r = f.fma(minus, -1.4973849048591833e-33, r)
    else:
        r = f.add(f.mul(minus, 1.57079632673412561417e00), x)
        r = f.add(f.mul(minus, 6.07710050630396597660e-11), r)
        r = f.add(f.mul(minus, 2.02226624871116645580e-21), r)
    return r, n


def _sine_kernel(f: Function, r: Value) -> Value:
    z = f.mul(r, r)
    tail = polynomial(f, z, [(-1.0) ** k / math.factorial(2 * k + 1) for k in range(8, 0, -1)])
    return f.fma(f.mul(r, z), tail, r)


def _cosine_kernel(f: Function, r: Value) -> Value:
    z = f.mul(r, r)
    tail = polynomial(f, z, [(-1.0) ** k / math.factorial(2 * k) for k in range(8, 1, -1)])
    half = f.mul(z, 0.5)
    w = f.sub(constant(r.type, 1.0), half)
    lost = f.sub(f.sub(constant(r.type, 1.0), w), half)
    return f.add(w, f.fma(f.mul(z, z), tail, lost))


def _circular(f: Function, x: Value) -> tuple[Value, Value]:
    """(sine, cosine)."""
    from headrace.targets.cpu.math_angle import reduce_large

    r, n = _reduced_angle(f, x)
    r, n = reduce_large(f, x, r, n)
    sine, cosine = _sine_kernel(f, r), _cosine_kernel(f, r)
    swap = f.compare("ne", f.binary("and", n, 1), 0)
    s = f.select(swap, cosine, sine)
    c = f.select(swap, sine, cosine)
    s_sign = f.compare("ne", f.binary("and", n, 2), 0)
    c_sign = f.compare("ne", f.binary("and", f.add(n, 1), 2), 0)
    s = f.select(s_sign, f.neg(s), s)
    c = f.select(c_sign, f.neg(c), c)
    wrong = f.binary("or", f.compare("uno", x, x), f.compare("oeq", absolute(f, x), _INFINITY))
    s = f.select(f.compare("oeq", x, 0.0), x, s)
    return f.select(wrong, math.nan, s), f.select(wrong, math.nan, c)


def sine(f: Function, x: Value) -> Value:
    """The sine of an angle in radians."""
    return _circular(f, x)[0]


def cosine(f: Function, x: Value) -> Value:
    """The cosine of an angle in radians."""
    return _circular(f, x)[1]


def tan(f: Function, x: Value) -> Value:
    """The tangent of an angle in radians."""
    s, c = _circular(f, x)
    return f.div(s, c)


_ATAN = (
    -0.3001478206532529,
    0.27990549505541484,
    -0.09053206654387935,
    -0.018704354266283092,
    0.053568461296608465,
    -0.06613396698914917,
    0.07688753309017092,
    -0.09090755970335218,
    0.11111107051243643,
    -0.1428571422526673,
    0.19999999999578555,
    -0.33333333333332477,
)


def atan_positive(f: Function, y: Value, x: Value) -> Value:
    """atan(y / x) for y, x >= 0, not both 0 or infinite."""
    # Fold to a quotient of at most tan(pi/8): swap, then turn by pi/4.
    swap = f.compare("ogt", y, x)
    small, large = f.select(swap, x, y), f.select(swap, y, x)
    q = f.div(small, large)
    turn = f.compare("ogt", q, math.tan(math.pi / 8))
    t = f.select(turn, f.div(f.sub(q, 1.0), f.add(q, 1.0)), q)
    z = f.mul(t, t)
    a = f.fma(f.mul(t, z), polynomial(f, z, _ATAN), t)
    low = f.select(turn, 3.061616997868383e-17, f.value(0.0, a.type))
    a = f.add(f.select(turn, f.value(math.pi / 4, a.type), f.value(0.0, a.type)), f.add(a, low))
    other = f.sub(constant(a.type, math.pi / 2), f.sub(a, 6.123233995736766e-17))
    return f.select(swap, other, a)


def atan2(f: Function, y: Value, x: Value) -> Value:
    """The angle of the point (x, y)."""
    ay, ax = absolute(f, y), absolute(f, x)
    both_zero = f.binary("and", f.compare("oeq", ay, 0.0), f.compare("oeq", ax, 0.0))
    both_infinite = f.binary(
        "and", f.compare("oeq", ay, _INFINITY), f.compare("oeq", ax, _INFINITY)
    )
    ay = f.select(both_infinite, 1.0, ay)
    ax = f.select(f.binary("or", both_zero, both_infinite), 1.0, ax)
    a = atan_positive(f, ay, ax)
    negative = f.compare("slt", f.bitcast(x, _integers(x)), 0)
    turned = f.sub(constant(a.type, math.pi), f.sub(a, 1.2246467991473532e-16))
    a = f.select(negative, turned, a)
    a = copysign(f, a, y)
    return f.select(f.compare("uno", x, y), math.nan, a)


def cbrt(f: Function, x: Value) -> Value:
    """The cube root."""
    a = absolute(f, x)
    tiny = f.compare("olt", a, 2.2250738585072014e-308)
    scaled = f.select(tiny, f.mul(a, 2.0**54), a)
    bits = f.bitcast(scaled, _integers(x))
    # A third of the exponent and mantissa is within a twentieth of the root.
    third = f.add(f.binary("udiv", bits, 3), 0x2A9F7893782DA1CE)
    t = f.bitcast(third, x.type)
    for _ in range(3):
        cube = f.mul(f.mul(t, t), t)
        top = f.add(cube, f.add(scaled, scaled))
        bottom = f.add(f.add(cube, cube), scaled)
        t = f.mul(t, f.div(top, bottom))
    # One Newton step with the exact square removes the last rounding errors.
    square, e = two_product(f, t, t)
    rest = f.sub(f.sub(f.div(scaled, square), t), f.div(f.mul(e, t), square))
    t = f.fma(rest, constant(x.type, 1.0 / 3.0), t)
    t = f.select(tiny, f.mul(t, 2.0**-18), t)
    plain = f.binary("or", f.compare("oeq", a, 0.0), f.compare("ueq", a, _INFINITY))
    return f.select(plain, x, copysign(f, t, x))


def tanh(f: Function, x: Value) -> Value:
    """The hyperbolic tangent."""
    a = _clamp(f, absolute(f, x), 0.0, 22.0)
    t = exponential_minus_one(f, f.mul(a, 2.0))
    return copysign(f, f.div(t, f.add(t, 2.0)), x)


def logistic(f: Function, x: Value) -> Value:
    """1 / (1 + e**-x)."""
    return f.div(constant(x.type, 1.0), f.add(exponential(f, f.neg(x)), 1.0))


# erf(x) / x - 1 over x**2 in 0..1.
_ERF_SMALL = (
    5.957176147748911e-11,
    -1.1372848856791674e-09,
    1.4659775274047436e-08,
    -1.6350312701054695e-07,
    1.6461000484121368e-06,
    -1.4925595266831182e-05,
    0.0001205533111164271,
    -0.000854832698083379,
    0.0052239776248180145,
    -0.026866170645076792,
    0.11283791670954879,
    -0.3761263890318375,
    0.1283791670955126,
)
# erfc(x) * e**(x*x) over (x - 2) / (x + 2), x in 1..6.2.
_ERFCX = (
    1.574116219767281e-07,
    -6.455965854212365e-07,
    -5.043915347430313e-07,
    1.269382010353077e-06,
    3.7563710081972943e-06,
    1.378276162536471e-06,
    -1.3960571957974797e-05,
    -2.757880944558994e-05,
    2.7524665128628192e-05,
    0.00017436113332546522,
    4.3555650385975625e-05,
    -0.0009819770266605637,
    -0.0008471432524724093,
    0.006997461739224897,
    0.0037328924043526076,
    -0.0789785810157325,
    0.24165819424246632,
    -0.4271858474139584,
    0.25539567631050575,
)


def erf(f: Function, x: Value) -> Value:
    """The error function."""
    a = absolute(f, x)
    near = f.compare("olt", a, 1.0)
    small = f.select(near, x, 0.0)
    inner = f.fma(polynomial(f, f.mul(small, small), _ERF_SMALL), small, small)
    far = _clamp(f, a, 1.0, 6.2)
    t = f.div(f.sub(far, 2.0), f.add(far, 2.0))
    tail = f.mul(exponential(f, f.neg(f.mul(far, far))), polynomial(f, t, _ERFCX))
    outer = copysign(f, f.sub(constant(x.type, 1.0), tail), x)
    return f.select(near, inner, outer)
