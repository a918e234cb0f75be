"""Floats by their bits, and polynomials: the tools of the elementary functions."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.kernel.lanes.machine import Value

MANTISSA = {"f32": 23, "f64": 52}
BIAS = {"f32": 127, "f64": 1023}
EXPONENT_MASK = {"f32": 0x7F800000, "f64": 0x7FF0000000000000}
SIGN_MASK = {"f32": 1 << 31, "f64": 1 << 63}


def is_nan(x: Value) -> Value:
    """By its bits: compilers may assume that no value is NaN."""
    return (x.bits & (SIGN_MASK[x.type] - 1)).gt(EXPONENT_MASK[x.type])


def is_finite(x: Value) -> Value:
    """Neither infinite nor NaN."""
    return (x.bits & EXPONENT_MASK[x.type]).ne(EXPONENT_MASK[x.type])


def absolute(x: Value) -> Value:
    """The sign bit cleared, of NaN too."""
    return (x.bits & (SIGN_MASK[x.type] - 1)).bitcast(x.type)


def copy_sign(magnitude: Value, sign: Value) -> Value:
    """`magnitude`, which is not negative, with the sign bit of `sign`."""
    return (magnitude.bits | (sign.bits & SIGN_MASK[sign.type])).bitcast(magnitude.type)


def constant_like(x: Value, value: float) -> Value:
    """A constant of the same float type."""
    return x.machine.constant(x.type, value)


def polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """Horner's rule; the constant term comes first."""
    total = constant_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + coefficient
    return total


def power_of_two(exponent: Value, like: Value) -> Value:
    """`2 ** exponent` for exponents of normal numbers."""
    biased = exponent + BIAS[like.type]
    return (biased << MANTISSA[like.type]).bitcast(like.type)
