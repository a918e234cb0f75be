"""The meaning in numpy of every elementwise operation, corner cases as StableHLO has them.

Floats narrower than 32 bits compute in f32 and round once; integers narrower than a byte
compute in a byte and wrap.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.base.dtypes import DType, from_numpy

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def apply(operation: str, operands: list[Any], dtype: DType, attribute: str = "") -> Any:
    """Applies an elementwise operation to numpy arrays that broadcast together.

    Args:
        operation: the name of a tensor-stage elementwise operation, without `tensor.`.
        operands: arrays of the operand element types.
        dtype: the result's element type.
        attribute: compare's direction.

    Raises:
        KeyError: there is no such operation.
    """
    with np.errstate(all="ignore"):
        if operation == "convert":
            return convert(operands[0], dtype)
        if operation == "bitcast_convert":
            return np.ascontiguousarray(operands[0]).view(dtype.numpy_dtype)
        if operation == "compare":
            left, right = (widened(o) for o in operands)
            return _COMPARE[attribute](left, right)
        if operation == "select":
            return np.where(operands[0], operands[1], operands[2])
        if operation == "is_finite":
            return np.isfinite(widened(operands[0]))
        if operation == "copy":
            return operands[0]
        wide = [widened(o) for o in operands]
        return narrowed(FUNCTIONS[operation](*wide), dtype)


def widened(array: Any) -> Any:
    """The array in the type that its operations compute in."""
    kind = from_numpy(array.dtype)
    if kind.kind == "float" and kind.bits < 32:
        return array.astype(np.float32)
    if kind.is_integer and kind.bits < 8:
        return array.astype(np.int8 if kind.kind == "signed" else np.uint8)
    return array


def narrowed(array: Any, dtype: DType) -> Any:
    """A computed array in the element type asked for; narrow integers wrap."""
    if array.dtype == dtype.numpy_dtype:
        return array
    if dtype.is_integer and dtype.bits < 8:
        return _wrap(array.astype(np.int8), dtype)
    return array.astype(dtype.numpy_dtype)


def _wrap(array: Any, dtype: DType) -> Any:
    """Keeps the low bits of a byte, sign-extended for signed types."""
    unused = 8 - dtype.bits
    low = (array.view(np.uint8) << unused).astype(np.uint8)
    byte = low.view(np.int8) if dtype.kind == "signed" else low
    return (byte >> unused).astype(dtype.numpy_dtype)


def convert(array: Any, dtype: DType) -> Any:
    """Converts elements: floats to integers truncate and saturate, NaN gives 0."""
    source = from_numpy(array.dtype)
    if source == dtype:
        return array
    wide = widened(array)
    if dtype.kind == "bool":
        return wide != 0
    if source.kind == "complex" and dtype.kind != "complex":
        wide = wide.real
    if dtype.is_integer and wide.dtype.kind == "f":
        return _saturate(wide, dtype)
    if dtype.is_integer and dtype.bits < 8:
        return _wrap(wide.astype(np.int8), dtype)
    return wide.astype(dtype.numpy_dtype)


def _saturate(array: Any, dtype: DType) -> Any:
    bits = dtype.bits
    signed = dtype.kind == "signed"
    least = -(1 << (bits - 1)) if signed else 0
    greatest = (1 << (bits - 1 if signed else bits)) - 1
    wide = array.astype(np.float64)
    clean = np.where(np.isnan(wide), 0.0, np.trunc(wide))
    # The greatest 64-bit integer is no double: compare with the power of two above it.
    over, under = clean >= float(greatest + 1), clean <= float(least)
    inside = np.where(over | under, 0.0, clean)
    storage = np.int64 if signed else np.uint64
    whole = inside.astype(storage)
    whole = np.where(over, np.array(greatest, storage), whole)
    whole = np.where(under, np.array(least, storage), whole)
    return whole.astype(dtype.numpy_dtype)


# -- functions ----------------------------------------------------------------------

_erf_ufunc = np.frompyfunc(math.erf, 1, 1)


def _is_integer(array: Any) -> bool:
    return array.dtype.kind in "iu"


def _erf(x: Any) -> Any:
    return np.asarray(_erf_ufunc(x.astype(np.float64))).astype(x.dtype)


def _logistic(x: Any) -> Any:
    return np.asarray(1, x.dtype) / (np.asarray(1, x.dtype) + np.exp(-x))


def _cbrt(x: Any) -> Any:
    return np.cbrt(x)


def _round_afz(x: Any) -> Any:
    whole = np.trunc(x)
    away = np.abs(x - whole) >= 0.5
    return np.where(away, whole + np.copysign(np.asarray(1, x.dtype), x), whole)


def _sign(x: Any) -> Any:
    if x.dtype.kind == "c":
        size = np.abs(x)
        return np.where(size == 0, x, x / np.where(size == 0, 1, size).astype(size.dtype))
    if _is_integer(x):
        return np.sign(x)
    return np.where((x == 0) | np.isnan(x), x, np.sign(x))


def _unsigned(x: Any) -> Any:
    return np.ascontiguousarray(x).view(np.dtype(f"u{x.dtype.itemsize}"))


def _popcnt(x: Any) -> Any:
    return np.bitwise_count(_unsigned(x)).astype(x.dtype)


def _count_leading_zeros(x: Any) -> Any:
    bits = _unsigned(x)
    width = x.dtype.itemsize * 8
    left = np.full(x.shape, width, np.int64)
    for position in range(width):
        left = np.where(
            (bits >> np.asarray(position, bits.dtype)) & 1, width - 1 - position, left
        )
    return left.astype(x.dtype)


def _not(x: Any) -> Any:
    return np.invert(x)


def _negate(x: Any) -> Any:
    return np.negative(x)


def _subtract(x: Any, y: Any) -> Any:
    return np.logical_xor(x, y) if x.dtype == np.bool_ else x - y


def _divide(x: Any, y: Any) -> Any:
    if not _is_integer(x):
        return x / y
    zero = y == 0
    safe = np.where(zero, 1, y).astype(y.dtype)
    quotient = x // safe
    if x.dtype.kind == "i":
        remainder = x - quotient * safe
        quotient = quotient + ((remainder != 0) & ((x < 0) != (safe < 0))).astype(x.dtype)
    return np.where(zero, np.asarray(-1).astype(x.dtype), quotient)


def _remainder(x: Any, y: Any) -> Any:
    if not _is_integer(x):
        return np.fmod(x, y)
    zero = y == 0
    return np.where(zero, x, np.fmod(x, np.where(zero, 1, y).astype(y.dtype)))


def _power(x: Any, y: Any) -> Any:
    if not _is_integer(x):
        return np.power(x, y)
    x, y = np.broadcast_arrays(x, y)
    result, base, exponent = np.ones_like(x), x.copy(), np.where(y < 0, 0, y)
    while exponent.any():
        result = np.where(exponent & 1, result * base, result)
        base, exponent = base * base, exponent >> 1
    if x.dtype.kind == "u":
        return result
    odd = np.where(y & 1, x, 1).astype(x.dtype)
    inverse = np.where(x == 1, 1, np.where(x == -1, odd, 0)).astype(x.dtype)
    return np.where(y < 0, inverse, result)


def _shift(x: Any, y: Any, by: Callable[[Any, Any], Any], beyond: Any) -> Any:
    width = x.dtype.itemsize * 8
    amount = _unsigned(y)
    safe = np.where(amount < width, amount, 0).astype(y.dtype)
    return np.where(amount < width, by(x, safe), beyond).astype(x.dtype)


def _shift_left(x: Any, y: Any) -> Any:
    return _shift(x, y, np.left_shift, 0)


def _shift_right_logical(x: Any, y: Any) -> Any:
    bits = _unsigned(x)
    return _shift(bits, y.astype(bits.dtype), np.right_shift, 0).view(x.dtype)


def _shift_right_arithmetic(x: Any, y: Any) -> Any:
    signed = np.ascontiguousarray(x).view(np.dtype(f"i{x.dtype.itemsize}"))
    return _shift(signed, y, np.right_shift, np.where(signed < 0, -1, 0)).view(x.dtype)


def _clamp(low: Any, x: Any, high: Any) -> Any:
    return np.minimum(np.maximum(x, low), high)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "add": np.add,
    "and": np.bitwise_and,
    "atan2": np.arctan2,
    "cbrt": _cbrt,
    "ceil": np.ceil,
    "clamp": _clamp,
    "cosine": np.cos,
    "count_leading_zeros": _count_leading_zeros,
    "divide": _divide,
    "erf": _erf,
    "exponential": np.exp,
    "exponential_minus_one": np.expm1,
    "floor": np.floor,
    "log": np.log,
    "log_plus_one": np.log1p,
    "logistic": _logistic,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "negate": _negate,
    "not": _not,
    "or": np.bitwise_or,
    "popcnt": _popcnt,
    "power": _power,
    "remainder": _remainder,
    "round_nearest_afz": _round_afz,
    "round_nearest_even": np.rint,
    "rsqrt": lambda x: np.asarray(1, x.dtype) / np.sqrt(x),
    "shift_left": _shift_left,
    "shift_right_arithmetic": _shift_right_arithmetic,
    "shift_right_logical": _shift_right_logical,
    "sign": _sign,
    "sine": np.sin,
    "sqrt": np.sqrt,
    "subtract": _subtract,
    "tan": np.tan,
    "tanh": np.tanh,
    "xor": np.bitwise_xor,
}
"""What computes each operation; arguments are already in a computing type."""
