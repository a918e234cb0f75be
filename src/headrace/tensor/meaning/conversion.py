"""`convert` and `bitcast_convert`."""

from __future__ import annotations

import numpy as np

from headrace.base.dtypes import DType
from headrace.tensor.meaning.arguments import (
    Arguments,
    Array,
    Meaning,
    dtype_of_array,
    narrow,
    widen,
)


def convert(array: Array, target: DType) -> Array:
    """Converts the element type, value for value.

    To i1: whether it is not zero. Floats to integers truncate and saturate, NaN gives 0.
    Integers wrap. Everything to a float rounds to nearest even. Complex numbers drop
    their imaginary part on the way to a real type.
    """
    source = dtype_of_array(np.asarray(array).dtype)
    if source == target:
        return np.asarray(array)
    value = widen(array)
    if source.kind == "complex" and target.kind != "complex":
        value = np.real(value)
    if target.kind == "bool":
        return np.not_equal(value, 0)
    if target.is_integer and value.dtype.kind == "f":
        return _float_to_integer(value, target)
    if target.is_float and value.dtype.kind in "iu" and value.dtype.itemsize >= 4:
        # i32 and i64 to a narrow float: through f64, which holds them (nearly) exactly.
        if target.bits < 32:
            value = value.astype(np.float64)
    elif target.is_float and value.dtype.kind == "b":
        value = value.astype(np.float32)
    return narrow(value, target)


def _float_to_integer(value: Array, target: DType) -> Array:
    signed = target.kind == "signed"
    low = -(1 << (target.bits - 1)) if signed else 0
    high = (1 << (target.bits - (1 if signed else 0))) - 1
    with np.errstate(all="ignore"):
        whole = np.trunc(value.astype(np.float64))
        whole = np.where(np.isnan(whole), 0.0, whole)
        above, below = whole >= float(high), whole <= float(low)
        inside = np.where(above | below, 0.0, whole)
        if target.name == "ui64":
            found = inside.astype(np.uint64)
            bounds = (np.uint64(low), np.uint64(high))
        else:
            found = inside.astype(np.int64)
            bounds = (np.int64(low), np.int64(high))
    found = np.where(above, bounds[1], np.where(below, bounds[0], found))
    return narrow(found, target)


def _convert(arguments: Arguments) -> Array:
    return convert(arguments.arrays[0], arguments.dtype)


def _bitcast_convert(arguments: Arguments) -> Array:
    array = np.asarray(arguments.arrays[0])
    return np.ascontiguousarray(array).view(arguments.dtype.numpy_dtype).reshape(array.shape)


MEANINGS: dict[str, Meaning] = {"convert": _convert, "bitcast_convert": _bitcast_convert}
