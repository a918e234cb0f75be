"""Elementary functions of f32 that models spend time in, on scalars and vectors.

Straight-line code without branches or libm: 1 to 2 units in the last place. What is
missing here goes through f64 (`math_f64.py`).
"""

from __future__ import annotations

from headrace.targets.cpu.ir_text import Function, Value, constant, integer_type_of
from headrace.targets.cpu.math_f64 import absolute, copysign, polynomial

_MAGIC = 12582912.0  # 1.5 * 2**23: adding it rounds to an integer
_LOG2_E = 1.44269504088896341
_LN2_HIGH = 0.693359375
_LN2_LOW = -2.12194440e-4
# (e**r - 1 - r) / r**2 for |r| <= ln 2 / 2, least squares.
_EXPONENTIAL = (0.00139336504, 0.00836318012, 0.0416664649, 0.16666577, 0.500000001)


def _clamp(f: Function, x: Value, low: float, high: float) -> Value:
    """x in low..high, one instruction each; NaN stays."""
    bound = constant(x.type, low)
    x = f.select(f.compare("ogt", bound, x), bound, x)
    bound = constant(x.type, high)
    return f.select(f.compare("olt", bound, x), bound, x)


def _parts(f: Function, x: Value) -> tuple[Value, Value]:
    """(p, n) with e**x = p * 2**n."""
    integers = integer_type_of(x.type)
    shifted = f.fma(x, _LOG2_E, _MAGIC)
    n = f.sub(f.bitcast(shifted, integers), f.bitcast(constant(x.type, _MAGIC), integers))
    whole = f.sub(shifted, _MAGIC)
    minus = f.neg(whole)
    r = f.fma(minus, _LN2_HIGH, x)
    r = f.fma(minus, _LN2_LOW, r)
    p = f.fma(polynomial(f, r, _EXPONENTIAL), f.mul(r, r), r)
    return f.add(p, 1.0), n


def _power_of_two(f: Function, n: Value, type_: str) -> Value:
    return f.bitcast(f.binary("shl", f.add(n, 127), 23), type_)


def exponential(f: Function, x: Value) -> Value:
    """e**x; overflows to infinity and underflows gradually as it must.

    What underflows to 0 is 0 before it is scaled: a product that underflows costs tens of
    cycles, and masked scores are many (half of them masked: attention takes 1.3 x as long).
    """
    p, n = _parts(f, _clamp(f, x, -104.0, 89.0))
    p = f.select(f.compare("olt", x, -104.0), 0.0, p)
    half = f.binary("ashr", n, 1)
    rest = f.sub(n, half)
    return f.mul(f.mul(p, _power_of_two(f, half, x.type)), _power_of_two(f, rest, x.type))


def exponential_normal(f: Function, x: Value) -> Value:
    """e**x where results below the normal numbers may be 2**-126: x is held in -87..88."""
    p, n = _parts(f, _clamp(f, x, -87.0, 88.0))
    return f.mul(p, _power_of_two(f, n, x.type))


def logistic(f: Function, x: Value) -> Value:
    """1 / (1 + e**-x)."""
    return f.div(constant(x.type, 1.0), f.add(exponential(f, f.neg(x)), 1.0))


# (tanh(x) / x - 1) / x**2 over x**2 in 0..0.4, least squares.
_TANH = (-0.00605310249, 0.0209676515, -0.0538448283, 0.13332731, -0.333333286)


def tanh(f: Function, x: Value) -> Value:
    """The hyperbolic tangent."""
    a = absolute(f, x)
    z = f.mul(x, x)
    small = f.fma(f.mul(x, z), polynomial(f, z, _TANH), x)
    e = exponential_normal(f, f.mul(a, 2.0))
    big = f.sub(constant(x.type, 1.0), f.div(constant(x.type, 2.0), f.add(e, 1.0)))
    return copysign(f, f.select(f.compare("olt", a, 0.625), small, big), x)


# erf(x) / x - 1 over x**2 in 0..0.9, and -log(erfc(x)) / x over x in 0.92..4.
_ERF_SMALL = (
    -0.000588760657,
    0.00497316866,
    -0.0267532684,
    0.11281461,
    -0.376124617,
    0.128379145,
)
_ERF_LARGE = (
    1.21649549e-05,
    -0.00033181475,
    0.00367772274,
    -0.0238337295,
    0.106316712,
    0.635105052,
    1.1286594,
)


def erf(f: Function, x: Value) -> Value:
    """The error function."""
    a = absolute(f, x)
    s = f.mul(x, x)
    small = f.fma(polynomial(f, s, _ERF_SMALL), x, x)
    t = _clamp(f, a, 0.0, 4.0)
    e = exponential_normal(f, f.neg(f.mul(t, polynomial(f, t, _ERF_LARGE))))
    big = copysign(f, f.sub(constant(x.type, 1.0), e), x)
    return f.select(f.compare("olt", a, 0.9375), small, big)
