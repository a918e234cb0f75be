"""Functions of complex numbers that CHLO has and StableHLO lacks.

W. Kahan, "Branch cuts for complex elementary functions" (1987): formulas that keep their
accuracy and the right side of each cut.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from xdsl.ir import SSAValue

from headrace.base.dtypes import BY_NAME, F64
from headrace.importers.hlo.numbers import Number, choose, number
from headrace.importers.hlo.real_formulas import asinh, cosh, sinh
from headrace.ir.types import dtype_of
from headrace.tensor.build import TensorBuilder

Pair: TypeAlias = tuple[Number, Number]


def apply(
    builder: TensorBuilder, operand: SSAValue, function: Callable[[Pair], Pair]
) -> SSAValue:
    """The function of a complex tensor, computed in parts of f64."""
    kind = dtype_of(operand)
    wide = builder.convert(operand, BY_NAME["complex<f64>"])
    pair = (
        number(builder, builder.unary("real", wide)),
        number(builder, builder.unary("imag", wide)),
    )
    assert dtype_of(pair[0].value) == F64
    real, imaginary = function(pair)
    return builder.convert(builder.binary("complex", real.value, imaginary.value), kind)


def _magnitude(x: Number, y: Number) -> Number:
    a, b = abs(x), abs(y)
    large, small = choose(a > b, a, b), choose(a > b, b, a)
    ratio = small / choose(large.equals(0.0), large.like(1.0), large)
    return large * (ratio * ratio + 1.0).sqrt()


def _square_root(z: Pair) -> Pair:
    x, y = z
    half = ((_magnitude(x, y) + abs(x)) * 0.5).sqrt()
    other = abs(y) * 0.5 / choose(half.equals(0.0), half.like(1.0), half)
    right = x >= 0.0
    real, imaginary = choose(right, half, other), choose(right, other, half)
    return real, choose(y < 0.0, -imaginary, imaginary)


def _sinh(z: Pair) -> Pair:
    x, y = z
    return sinh(x) * y.cos(), cosh(x) * y.sin()


def _cosh(z: Pair) -> Pair:
    x, y = z
    return cosh(x) * y.cos(), sinh(x) * y.sin()


def _roots(z: Pair) -> tuple[Pair, Pair]:
    """The square roots of 1 - z and 1 + z."""
    x, y = z
    return _square_root((1.0 - x, -y)), _square_root((1.0 + x, y))


def _asin(z: Pair) -> Pair:
    below, above = _roots(z)
    real = z[0].atan2(below[0] * above[0] - below[1] * above[1])
    return real, asinh(below[0] * above[1] - below[1] * above[0])


def _acos(z: Pair) -> Pair:
    below, above = _roots(z)
    real = below[0].atan2(above[0]) * 2.0
    return real, asinh(above[0] * below[1] - above[1] * below[0])


def _acosh(z: Pair) -> Pair:
    below, above = _square_root((z[0] - 1.0, z[1])), _square_root((z[0] + 1.0, z[1]))
    real = asinh(below[0] * above[0] + below[1] * above[1])
    return real, below[1].atan2(above[0]) * 2.0


def _asinh(z: Pair) -> Pair:
    real, imaginary = _asin((-z[1], z[0]))
    return imaginary, -real


def _atanh(z: Pair) -> Pair:
    x, y = z
    distance = (1.0 - x) * (1.0 - x) + y * y
    real = (x * 4.0 / distance).log1p() * 0.25
    return real, (y * 2.0).atan2((1.0 - x) * (1.0 + x) - y * y) * 0.5


def _atan(z: Pair) -> Pair:
    real, imaginary = _atanh((-z[1], z[0]))
    return imaginary, -real


FUNCTIONS: dict[str, Callable[[Pair], Pair]] = {
    "acos": _acos,
    "acosh": _acosh,
    "asin": _asin,
    "asinh": _asinh,
    "atan": _atan,
    "atanh": _atanh,
    "cosh": _cosh,
    "sinh": _sinh,
}
"""Name in CHLO -> function of real and imaginary part."""
