"""Complex functions on pairs of machine values: real and imaginary part."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from headrace.kernel.lanes import elementary, float_bits, trigonometry
from headrace.kernel.lanes.machine import Value

Pair: TypeAlias = tuple[Value, Value]


def _one(x: Value) -> Value:
    return x.machine.constant(x.type, 1.0)


def _zero(x: Value) -> Value:
    return x.machine.constant(x.type, 0.0)


def absolute(z: Pair) -> Value:
    """The magnitude, without overflow on the way."""
    x, y = (float_bits.absolute(part) for part in z)
    wide = x.gt(y)
    large, small = wide.select(x, y), wide.select(y, x)
    ratio = small / large.eq(0.0).select(_one(large), large)
    size = large * (ratio * ratio + 1.0).sqrt()
    infinite = x.eq(math.inf) | y.eq(math.inf)
    return infinite.select(large.machine.constant(large.type, math.inf), size)


def add(z: Pair, w: Pair) -> Pair:
    return z[0] + w[0], z[1] + w[1]


def subtract(z: Pair, w: Pair) -> Pair:
    return z[0] - w[0], z[1] - w[1]


def multiply(z: Pair, w: Pair) -> Pair:
    return z[0] * w[0] - z[1] * w[1], z[0] * w[1] + z[1] * w[0]


def divide(z: Pair, w: Pair) -> Pair:
    """Smith's method: scaled by the larger part of the divisor."""
    (a, b), (c, d) = z, w
    wide = float_bits.absolute(c).ge(float_bits.absolute(d))
    large, small = wide.select(c, d), wide.select(d, c)
    ratio = small / large
    below = large + small * ratio
    real = wide.select(a + b * ratio, a * ratio + b) / below
    imaginary = wide.select(b - a * ratio, b * ratio - a) / below
    return real, imaginary


def negate(z: Pair) -> Pair:
    return -z[0], -z[1]


def sign(z: Pair) -> Pair:
    size = absolute(z)
    safe = size.eq(0.0).select(_one(size), size)
    return z[0] / safe, z[1] / safe


def exponential(z: Pair) -> Pair:
    size = elementary.exponential(z[0])
    return size * trigonometry.cosine(z[1]), size * trigonometry.sine(z[1])


def exponential_minus_one(z: Pair) -> Pair:
    """`expm1(x) cos y - 2 sin(y/2)**2` keeps the accuracy near 0."""
    grown = elementary.exponential_minus_one(z[0])
    half = trigonometry.sine(z[1] * 0.5)
    real = grown * trigonometry.cosine(z[1]) - half * half * 2.0
    return real, (grown + 1.0) * trigonometry.sine(z[1])


def logarithm(z: Pair) -> Pair:
    return elementary.logarithm(absolute(z)), trigonometry.arctangent2(z[1], z[0])


def log_plus_one(z: Pair) -> Pair:
    """The real part from `|1 + z|**2 - 1`, accurate near 0."""
    x, y = z
    near = elementary.log_plus_one(x * 2.0 + (x * x + y * y)) * 0.5
    far = elementary.logarithm(absolute((x + 1.0, y)))
    small = float_bits.absolute(x).lt(0.5) & float_bits.absolute(y).lt(0.5)
    return small.select(near, far), trigonometry.arctangent2(y, x + 1.0)


def square_root(z: Pair) -> Pair:
    a, b = z
    half = ((absolute(z) + float_bits.absolute(a)) * 0.5).sqrt()
    safe = half.eq(0.0).select(_one(half), half)
    other = b / (safe * 2.0)
    left = a.lt(0.0)
    real = left.select(float_bits.absolute(other), half)
    return real, left.select(float_bits.copy_sign(half, b), other)


def reciprocal_root(z: Pair) -> Pair:
    return divide((_one(z[0]), _zero(z[0])), square_root(z))


def power(z: Pair, w: Pair) -> Pair:
    """`exp(w log z)`; 0 to a power is 0, and 1 to the power 0."""
    x, y = exponential(multiply(w, logarithm(z)))
    zero = z[0].eq(0.0) & z[1].eq(0.0)
    unit = w[0].eq(0.0) & w[1].eq(0.0)
    real = zero.select(_zero(x), x)
    imaginary = zero.select(_zero(y), y)
    return unit.select(_one(x), real), unit.select(_zero(y), imaginary)


def cube_root(z: Pair) -> Pair:
    """The principal root."""
    size = elementary.cube_root(absolute(z))
    angle = trigonometry.arctangent2(z[1], z[0]) * (1.0 / 3.0)
    return size * trigonometry.cosine(angle), size * trigonometry.sine(angle)


def sine(z: Pair) -> Pair:
    x, y = z
    real = trigonometry.sine(x) * elementary.cosh(y)
    return real, trigonometry.cosine(x) * elementary.sinh(y)


def cosine(z: Pair) -> Pair:
    x, y = z
    real = trigonometry.cosine(x) * elementary.cosh(y)
    return real, -(trigonometry.sine(x) * elementary.sinh(y))


def tanh(z: Pair) -> Pair:
    """By the tangent of the imaginary part, so that large arguments do not overflow."""
    t = elementary.tanh(z[0])
    u = trigonometry.tangent(z[1])
    below = t * t * u * u + 1.0
    real = t * (u * u + 1.0) / below
    return real, u * (_one(t) - t * t) / below


def tangent(z: Pair) -> Pair:
    """`tan z = -i tanh(i z)`."""
    real, imaginary = tanh((-z[1], z[0]))
    return imaginary, -real


def logistic(z: Pair) -> Pair:
    grown, turned = exponential(negate(z))
    one = _one(z[0])
    return divide((one, _zero(one)), (grown + 1.0, turned))


UNARY: dict[str, Callable[[Pair], Pair]] = {
    "cbrt": cube_root,
    "cosine": cosine,
    "exponential": exponential,
    "exponential_minus_one": exponential_minus_one,
    "log": logarithm,
    "log_plus_one": log_plus_one,
    "logistic": logistic,
    "negate": negate,
    "rsqrt": reciprocal_root,
    "sign": sign,
    "sine": sine,
    "sqrt": square_root,
    "tan": tangent,
    "tanh": tanh,
}
"""Complex in, complex out."""

PARTS: dict[str, Callable[[Pair], Value]] = {
    "abs": absolute,
    "imag": lambda z: z[1],
    "is_finite": lambda z: float_bits.is_finite(z[0]) & float_bits.is_finite(z[1]),
    "real": lambda z: z[0],
}
"""Complex in, one real value out."""

BINARY: dict[str, Callable[[Pair, Pair], Pair]] = {
    "add": add,
    "divide": divide,
    "multiply": multiply,
    "power": power,
    "subtract": subtract,
}
