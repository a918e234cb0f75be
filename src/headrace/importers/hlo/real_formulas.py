"""Functions of real numbers that CHLO has and StableHLO lacks, for tensors of f64.

Formulas: NIST Digital Library of Mathematical Functions (https://dlmf.nist.gov), numbers
of sections below; other sources are named where they stand.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from headrace.importers.hlo.numbers import Number, choose


def sinh(x: Number) -> Number:
    """4.28; by expm1, and in two factors where the exponential would overflow."""
    a = abs(x)
    t = a.expm1()
    near = (t + t / (t + 1.0)) * 0.5
    half = (a * 0.5).exp()
    far = half * 0.5 * half
    return choose(a > 30.0, far, near).with_sign_of(x)


def cosh(x: Number) -> Number:
    half = (abs(x) * 0.5).exp()
    far = half * 0.5 * half
    e = half * half
    return choose(abs(x) > 30.0, far, (e + 1.0 / e) * 0.5)


def asinh(x: Number) -> Number:
    """sign(x) log(|x| + sqrt(x**2 + 1)), by log1p near 0 and halves of the logarithm far."""
    a = abs(x)
    near = (a + a * a / (1.0 + (a * a + 1.0).sqrt())).log1p()
    far = a.log() + math.log(2.0)
    return choose(a > 1e8, far, near).with_sign_of(x)


def acosh(x: Number) -> Number:
    below = x - 1.0
    near = (below + (below * (x + 1.0)).sqrt()).log1p()
    return choose(x > 1e8, x.log() + math.log(2.0), near)


def atanh(x: Number) -> Number:
    a = abs(x)
    return ((a * 2.0 / (1.0 - a)).log1p() * 0.5).with_sign_of(x)


def erfc(x: Number) -> Number:
    """1 - erf(x) where that is accurate; else a continued fraction (7.9.4)."""
    a = abs(x)
    z = choose(a > 0.5, a, x.like(1.0))
    fraction = z
    for n in range(40, 0, -1):
        fraction = z + (n / 2.0) / fraction
    # exp(-z**2) with z in a coarse and a fine part: z**2 alone would lose digits.
    coarse = (z * 16.0).floor() * 0.0625
    fine = (z - coarse) * (z + coarse)
    tail = (-(coarse * coarse)).exp() * (-fine).exp() / (fraction * math.sqrt(math.pi))
    tail = choose(a > 28.0, x.like(0.0), tail)
    outer = choose(x < 0.0, 2.0 - tail, tail)
    near = 1.0 - x.erf()
    return choose(x.is_nan(), x, choose(a < 2.0, _erfc_middle(x, near), outer))


def _erfc_middle(x: Number, near: Number) -> Number:
    """Between 0.5 and 2, where 1 - erf loses digits: a Taylor series about 1.25 (7.10)."""
    # Derivatives of erfc at c are -2/sqrt(pi) exp(-c*c) H_(n-1)(c) (-1)**(n-1).
    c, count = 1.25, 40
    hermite = [1.0, 2.0 * c]
    for n in range(1, count):
        hermite.append(2.0 * c * hermite[n] - 2.0 * n * hermite[n - 1])
    scale = -2.0 / math.sqrt(math.pi) * math.exp(-c * c)
    coefficients = [math.erfc(c)]
    coefficients += [
        scale * (-1.0) ** (n - 1) * hermite[n - 1] / math.factorial(n) for n in range(1, count)
    ]
    inside = choose((x > 0.5).both(x < 2.0), x, x.like(c))
    series = (inside - c).polynomial(coefficients)
    return choose((x > 0.5).both(x < 2.0), series, near)


# Giles, "Approximating the erfinv function" (2010): a start that one step polishes.
_ERF_INV_NEAR = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
_ERF_INV_FAR = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
    -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip


def erf_inv(x: Number) -> Number:
    a = abs(x)
    inside = choose(a < 1.0, x, x.like(0.0))
    w = -((1.0 - inside) * (1.0 + inside)).log()
    near = (w - 2.5).polynomial(_ERF_INV_NEAR[::-1])
    far = (choose(w < 5.0, x.like(9.0), w).sqrt() - 3.0).polynomial(_ERF_INV_FAR[::-1])
    y = choose(w < 5.0, near, far) * inside
    # Halley's step on erf(y) - x; near 1 on the complement, which keeps its digits.
    beyond = ((1.0 - abs(inside)) - erfc(abs(y))) * inside.sign()
    miss = choose(abs(inside) < 0.5, y.erf() - inside, beyond)
    step = miss * (y * y).exp() * (math.sqrt(math.pi) / 2.0)
    y = y - step / (1.0 + y * step)
    result = choose(a < 1.0, y, x * math.inf)
    return choose(a > 1.0, x.like(math.nan), result)


# Lanczos' approximation with g = 7, nine terms (P. Godfrey), as XLA uses it.
_LANCZOS = (
    676.520368121885098567009190444019, -1259.13921672240287047156078755283,
    771.3234287776530788486528258894, -176.61502916214059906584551354,
    12.507343278686904814458936853, -0.13857109526572011689554707,
    9.984369578019570859563e-6, 1.50563273514931155834e-7,
)  # fmt: skip
_LANCZOS_FIRST = 0.99999999999980993227684700473478
_G = 7.0


def _lanczos(z: Number) -> Number:
    """The sum for z >= -0.5."""
    total = z.like(_LANCZOS_FIRST)
    for n, coefficient in enumerate(_LANCZOS):
        total = total + coefficient / (z + (n + 1.0))
    return total


def lgamma(x: Number) -> Number:
    """log |gamma(x)|; below 0.5 by reflection (5.5.3)."""
    reflect = x < 0.5
    z = choose(reflect, -x, x - 1.0)
    total = _lanczos(z)
    t = z + (_G + 0.5)
    log_t = (z / (_G + 0.5)).log1p() + math.log(_G + 0.5)
    plain = (z + 0.5 - t / log_t) * log_t + math.log(math.sqrt(2 * math.pi)) + total.log()
    plain = _lgamma_near(x, plain)
    part = abs(x) - abs(x).floor()
    part = choose(part > 0.5, 1.0 - part, part)
    sine = (part * math.pi).sin().log()
    reflected = math.log(math.pi) - sine - plain
    reflected = choose(sine.is_finite(), reflected, -sine)
    result = choose(reflect, reflected, plain)
    return choose(abs(x).equals(math.inf), x.like(math.inf), result)


_EULER = 0.57721566490153286060651209


def _lgamma_near(x: Number, otherwise: Number) -> Number:
    """Near its zeros 1 and 2, where sums cancel, by Taylor's series."""

    def series(d: Number) -> Number:
        terms = [0.0, 1.0 - _EULER]
        terms += [
            (-1.0) ** n * (_zeta_minus_one(n)) / n for n in range(2, 40)
        ]  # of log gamma(2 + d)
        return d.polynomial(terms)

    near_two = abs(x - 2.0) < 0.3
    near_one = abs(x - 1.0) < 0.3
    two = series(choose(near_two, x - 2.0, x.like(0.0)))
    d = choose(near_one, x - 1.0, x.like(0.0))
    one = series(d) - d.log1p()
    return choose(near_two, two, choose(near_one, one, otherwise))


def _zeta_minus_one(n: int) -> float:
    """zeta(n) - 1, by the first terms and an integral with corrections (25.2.9)."""
    cut = 20
    total = sum(k ** -float(n) for k in range(2, cut))
    total += cut ** (1.0 - n) / (n - 1.0) + 0.5 * cut ** -float(n)
    return (
        total + n * cut ** (-1.0 - n) / 12.0 - n * (n + 1) * (n + 2) * cut ** (-3.0 - n) / 720.0
    )


def digamma(x: Number) -> Number:
    """5.11.2 after raising the argument to 12 and more; below 0.5 by reflection (5.5.4)."""
    reflect = x < 0.5
    z = choose(reflect, 1.0 - x, x)
    shifted, recurrence = z, z.like(0.0)
    for _ in range(12):
        low = shifted < 12.0
        recurrence = recurrence + choose(low, 1.0 / shifted, z.like(0.0))
        shifted = choose(low, shifted + 1.0, shifted)
    inverse = 1.0 / (shifted * shifted)
    bernoulli = (0.0, 1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
    value = shifted.log() - 0.5 / shifted - inverse.polynomial(bernoulli) - recurrence
    part = (x - (x + 0.5).floor()) * math.pi
    value = choose(reflect, value - math.pi / part.tan(), value)
    pole = (x <= 0.0).both(x.equals(x.floor()))
    return choose(pole, x.like(math.nan), value)


def bessel_i1e(x: Number) -> Number:
    """exp(-|x|) I1(x): the power series (10.25.2) up to 30, beyond it 10.40.1."""
    a = abs(x)
    inside = choose(a < 30.0, a, x.like(0.0))
    q = inside * inside * 0.25
    terms = [1.0]
    for k in range(1, 70):
        terms.append(terms[-1] / (k * (k + 1.0)))
    near = inside * 0.5 * q.polynomial(terms) * (-inside).exp()
    outside = choose(a < 30.0, x.like(30.0), a)
    inverse = 1.0 / outside
    far_terms = [1.0]
    for k in range(1, 20):
        far_terms.append(far_terms[-1] * -(4.0 - (2.0 * k - 1.0) ** 2) / (8.0 * k))
    far = inverse.polynomial(far_terms) / (outside * (2.0 * math.pi)).sqrt()
    return choose(a < 30.0, near, far).with_sign_of(x)


FUNCTIONS: dict[str, Callable[[Number], Number]] = {
    "acos": lambda x: ((1.0 - x) * (1.0 + x)).sqrt().atan2(x),
    "acosh": acosh,
    "asin": lambda x: x.atan2(((1.0 - x) * (1.0 + x)).sqrt()),
    "asinh": asinh,
    "atan": lambda x: x.atan2(x.like(1.0)),
    "atanh": atanh,
    "bessel_i1e": bessel_i1e,
    "cosh": cosh,
    "digamma": digamma,
    "erf_inv": erf_inv,
    "erfc": erfc,
    "lgamma": lgamma,
    "sinh": sinh,
}
"""Name in CHLO -> function."""
