"""Elementwise operations, as StableHLO's specification and XLA's corner cases have them.

Exact operations (sum, product, quotient, root) are computed in the operands' own type;
transcendental ones in f64 and rounded once, so that a difference is the backend's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.tensor.meaning.arguments import Arguments, Array, Meaning, narrow, widen


def _is_integer(array: Array) -> bool:
    return array.dtype.kind in "iu"


# -- unary ---------------------------------------------------------------------------


def _precise(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Computes real floats in f64; complex numbers in their own type."""

    def compute(x: Array) -> Array:
        return function(x if x.dtype.kind == "c" else x.astype(np.float64))

    return compute


def _erf(x: Array) -> Array:
    flat = np.fromiter(map(math.erf, x.reshape(-1).tolist()), np.float64, x.size)
    return flat.reshape(x.shape)


def _logistic(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def _round_nearest_afz(x: Array) -> Array:
    whole = np.trunc(x)
    # x - whole is exact; adding 0.5 first would round 0.49999997 up.
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(x.dtype.type(1), x), whole)


def _sign(x: Array) -> Array:
    if _is_integer(x) or x.dtype.kind == "c":
        return np.sign(x)
    return np.where(x == 0, x, np.sign(x))  # keeps -0


def _negate(x: Array) -> Array:
    return np.subtract(np.zeros((), x.dtype), x) if _is_integer(x) else np.negative(x)


def _not(x: Array) -> Array:
    return np.logical_not(x) if x.dtype.kind == "b" else np.invert(x)


def _unsigned_view(x: Array) -> Array:
    return np.ascontiguousarray(x).view(np.dtype(f"u{x.dtype.itemsize}")).reshape(x.shape)


def _popcnt(x: Array, width: int) -> Array:
    masked = _unsigned_view(x)
    if width < 8:
        masked = masked & masked.dtype.type((1 << width) - 1)
    return np.bitwise_count(masked).astype(x.dtype)


def _count_leading_zeros(x: Array, width: int) -> Array:
    value = _unsigned_view(x).astype(np.uint64)
    if width < 8:
        value = value & np.uint64((1 << width) - 1)
    zeros = np.full(x.shape, width, np.int64)
    remaining = value.copy()
    for _ in range(width):
        zeros -= (remaining != 0).astype(np.int64)
        remaining >>= np.uint64(1)
    return zeros.astype(x.dtype)


_UNARY: dict[str, Callable[[Array], Array]] = {
    "abs": np.abs,
    "cbrt": _precise(np.cbrt),
    "ceil": np.ceil,
    "copy": lambda x: x,
    "cosine": _precise(np.cos),
    "erf": _precise(_erf),
    "exponential": _precise(np.exp),
    "exponential_minus_one": _precise(np.expm1),
    "floor": np.floor,
    "is_finite": np.isfinite,
    "log": _precise(np.log),
    "log_plus_one": _precise(np.log1p),
    "logistic": _precise(_logistic),
    "negate": _negate,
    "real": np.real,
    "imag": np.imag,
    "not": _not,
    "round_nearest_afz": _round_nearest_afz,
    "round_nearest_even": np.rint,
    "rsqrt": _precise(lambda x: 1.0 / np.sqrt(x)),
    "sign": _sign,
    "sine": _precise(np.sin),
    "sqrt": np.sqrt,
    "tan": _precise(np.tan),
    "tanh": _precise(np.tanh),
}


# -- binary --------------------------------------------------------------------------


def _divide(x: Array, y: Array) -> Array:
    if not _is_integer(x):
        return np.true_divide(x, y)
    ones = x.dtype.type(-1) if x.dtype.kind == "i" else np.iinfo(x.dtype).max
    # INT_MIN / -1 wraps to INT_MIN: dividing by 1 instead and negating does just that.
    minus_one = (y == -1) if x.dtype.kind == "i" else np.zeros(np.shape(y), np.bool_)
    safe = np.where((y == 0) | minus_one, y.dtype.type(1), y)
    floor = np.floor_divide(x, safe)
    inexact = floor * safe != x
    toward_zero = floor + (inexact & ((x < 0) != (safe < 0))).astype(x.dtype)
    quotient = np.where(minus_one, _negate(x), toward_zero)
    return np.where(y == 0, ones, quotient).astype(x.dtype)


def _remainder(x: Array, y: Array) -> Array:
    if not _is_integer(x):
        return np.fmod(x, y)
    trivial = (y == 0) | ((y == -1) if x.dtype.kind == "i" else (y == 0))
    safe = np.where(trivial, y.dtype.type(1), y)
    found = np.where(trivial, x.dtype.type(0), np.fmod(x, safe))
    return np.where(y == 0, x, found).astype(x.dtype)


def _maximum(x: Array, y: Array) -> Array:
    larger = np.maximum(x, y)
    if x.dtype.kind != "f":
        return larger
    return np.where((x == 0) & (y == 0), x + y, larger)  # +0 is above -0


def _minimum(x: Array, y: Array) -> Array:
    smaller = np.minimum(x, y)
    if x.dtype.kind != "f":
        return smaller
    return np.where((x == 0) & (y == 0), -((-x) + (-y)), smaller)


def _complex(x: Array, y: Array) -> Array:
    """Not `x + 1j * y`, which spreads NaN and infinity to the other part."""
    x, y = np.broadcast_arrays(x, y)
    made = np.empty(x.shape, np.result_type(x.dtype, np.complex64))
    made.real, made.imag = x, y
    return made


def _power(x: Array, y: Array) -> Array:
    if not _is_integer(x):
        if x.dtype.kind == "c":
            return np.power(x, y)
        return np.power(x.astype(np.float64), y.astype(np.float64))
    x, y = np.broadcast_arrays(x, y)
    result, base = np.ones(x.shape, x.dtype), x.copy()
    exponent = np.where(y > 0, y, y.dtype.type(0))
    while np.any(exponent):
        result = np.where(exponent & 1, result * base, result)
        base = base * base
        exponent = exponent >> 1
    if x.dtype.kind == "u":
        return result
    # x to a negative power is a fraction, so 0, but for the units.
    odd = (y & 1) != 0
    unit = np.where(x == 1, 1, np.where(x == -1, np.where(odd, -1, 1), 0)).astype(x.dtype)
    return np.where(y < 0, unit, result)


def _bitwise(logical: Any, bitwise: Any) -> Callable[[Array, Array], Array]:
    return lambda x, y: logical(x, y) if x.dtype.kind == "b" else bitwise(x, y)


_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,  # on booleans numpy's sum is logical or, its product logical and
    "and": _bitwise(np.logical_and, np.bitwise_and),
    "complex": _complex,
    "atan2": lambda y, x: np.arctan2(y.astype(np.float64), x.astype(np.float64)),
    "divide": _divide,
    "maximum": _maximum,
    "minimum": _minimum,
    "multiply": np.multiply,
    "or": _bitwise(np.logical_or, np.bitwise_or),
    "power": _power,
    "remainder": _remainder,
    "subtract": np.subtract,
    "xor": _bitwise(np.logical_xor, np.bitwise_xor),
}


def _shift(name: str, x: Array, y: Array, width: int) -> Array:
    """Amounts at or above the width, and negative ones (huge as unsigned), shift all out."""
    inside = (y >= 0) & (y < width)
    amount = np.where(inside, y, y.dtype.type(0))
    if name == "shift_left":
        return np.where(inside, np.left_shift(x, amount), x.dtype.type(0))
    if name == "shift_right_arithmetic":
        signed = x if x.dtype.kind == "i" else x.view(np.dtype(f"i{x.dtype.itemsize}"))
        spare = 8 * x.dtype.itemsize - width
        narrow = spare > 0 and x.dtype.kind != "i"
        if narrow:  # the sign stands inside the byte
            signed = np.right_shift(np.left_shift(signed, spare), spare)
        count = np.where(inside, y, y.dtype.type(width - 1)).astype(signed.dtype)
        shifted = np.right_shift(signed, count).astype(x.dtype)
        return shifted & x.dtype.type((1 << width) - 1) if narrow else shifted
    unsigned = _unsigned_view(x)
    if width < 8:
        unsigned = unsigned & unsigned.dtype.type((1 << width) - 1)
    shifted = np.right_shift(unsigned, amount.astype(unsigned.dtype))
    return np.where(inside, shifted, unsigned.dtype.type(0)).astype(x.dtype)


_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


# -- the table -----------------------------------------------------------------------


def _unary_meaning(function: Callable[[Array], Array]) -> Meaning:
    def compute(arguments: Arguments) -> Array:
        with np.errstate(all="ignore"):
            return narrow(function(widen(arguments.arrays[0])), arguments.dtype)

    return compute


def _binary_meaning(function: Callable[[Array, Array], Array]) -> Meaning:
    def compute(arguments: Arguments) -> Array:
        with np.errstate(all="ignore"):
            x, y = arguments.arrays
            return narrow(function(widen(x), widen(y)), arguments.dtype)

    return compute


def _counting_meaning(function: Callable[[Array, int], Array]) -> Meaning:
    def compute(arguments: Arguments) -> Array:
        width = arguments.dtype.bits
        return narrow(function(widen(arguments.arrays[0]), width), arguments.dtype)

    return compute


def _shift_meaning(name: str) -> Meaning:
    def compute(arguments: Arguments) -> Array:
        x, y = (np.atleast_1d(widen(a)) for a in arguments.arrays)
        shape = np.broadcast_shapes(*(np.shape(a) for a in arguments.arrays))
        shifted = _shift(name, x, y, arguments.dtype.bits)
        return narrow(shifted.reshape(shape), arguments.dtype)

    return compute


def _compare(arguments: Arguments) -> Array:
    x, y = (widen(a) for a in arguments.arrays)
    return _COMPARE[arguments.attributes["direction"]](x, y)


def _select(arguments: Arguments) -> Array:
    predicate, on_true, on_false = arguments.arrays
    return np.where(predicate, on_true, on_false)


def _clamp(arguments: Arguments) -> Array:
    low, x, high = (widen(a) for a in arguments.arrays)
    return narrow(_minimum(_maximum(x, low), high), arguments.dtype)


MEANINGS: dict[str, Meaning] = {
    **{name: _unary_meaning(f) for name, f in _UNARY.items()},
    **{name: _binary_meaning(f) for name, f in _BINARY.items()},
    **{
        name: _shift_meaning(name)
        for name in ("shift_left", "shift_right_arithmetic", "shift_right_logical")
    },
    "count_leading_zeros": _counting_meaning(_count_leading_zeros),
    "popcnt": _counting_meaning(_popcnt),
    "compare": _compare,
    "select": _select,
    "clamp": _clamp,
}
"""Name without the `tensor.` -> meaning."""
