"""What a meaning is given, and how element types are widened and narrowed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from headrace.base.dtypes import DType, from_numpy

Array: TypeAlias = Any
"""A numpy array; its element type may be one of ml_dtypes'."""

Combine: TypeAlias = Callable[[Sequence[Array], Sequence[Array]], list[Array]]
"""Folds the values on the left with those on the right, elementwise over arrays."""


@dataclass(frozen=True)
class Reducer:
    """The body of a reduction.

    Attributes:
        kind: a name of `build.REDUCERS` where the body is that one operation, else None.
        combine: the meaning of the body over whole arrays.
    """

    kind: str | None
    combine: Combine


@dataclass(frozen=True)
class Arguments:
    """One application of an operation.

    Attributes:
        arrays: the operands in order.
        attributes: property name -> str, int, float or tuple of integers; size
            expressions are evaluated already.
        dtype, shape: of the (first) result; `shape` is ignored by elementwise meanings.
        reducer: of `reduce` and `reduce_window`.
    """

    arrays: tuple[Array, ...]
    attributes: Mapping[str, Any]
    dtype: DType
    shape: tuple[int, ...]
    reducer: Reducer | None = None

    def integers(self, name: str) -> tuple[int, ...]:
        """A list-of-integers attribute."""
        value = self.attributes[name]
        return (int(value),) if isinstance(value, int) else tuple(int(v) for v in value)


Meaning: TypeAlias = Callable[[Arguments], Any]


@cache
def dtype_of_array(numpy_dtype: Any) -> DType:
    """The element type of a numpy dtype (cached: the lookup is a scan)."""
    return from_numpy(numpy_dtype)


def wide_numpy_dtype(kind: DType) -> Any:
    """The numpy type to compute in: f32 for narrow floats, i8/ui8 for sub-byte integers.

    Sums, products, quotients and roots of narrow floats rounded from f32 are correctly
    rounded: 24 significand bits are at least twice 11 plus 2.
    """
    if kind.is_float and kind.bits < 32:
        return np.dtype(np.float32)
    if kind.is_integer and kind.bits < 8:
        return np.dtype(np.int8 if kind.kind == "signed" else np.uint8)
    return kind.numpy_dtype


def widen(array: Array) -> Array:
    """The array in its computing type; no copy where that is its own."""
    return np.asarray(array).astype(
        wide_numpy_dtype(dtype_of_array(np.asarray(array).dtype)), copy=False
    )


def narrow(array: Array, kind: DType) -> Array:
    """Rounds floats to `kind` (to nearest even), wraps integers into it.

    Floats to integers is `conversion.convert`'s business, not this one's.
    """
    value = np.asarray(array)
    if value.dtype == kind.numpy_dtype:
        return value
    if kind.is_integer and kind.bits < 8:
        return _wrap_sub_byte(value, kind)
    if kind.is_float and kind.bits < 32 and value.dtype == np.float64 and kind.name != "f16":
        # ml_dtypes goes through f32 and would round twice; rounding to odd first is safe.
        value = _round_to_odd(value)
    with np.errstate(all="ignore"):
        return value.astype(kind.numpy_dtype)


def _wrap_sub_byte(value: Array, kind: DType) -> Array:
    low = value.astype(np.int64) & ((1 << kind.bits) - 1)
    if kind.kind == "signed":
        sign = 1 << (kind.bits - 1)
        low = (low ^ sign) - sign
    return low.astype(np.int8 if kind.kind == "signed" else np.uint8).astype(kind.numpy_dtype)


def _round_to_odd(value: Array) -> Array:
    """f64 to f32 so that a later rounding to a narrower type is the only one."""
    with np.errstate(all="ignore"):
        near = np.atleast_1d(value).astype(np.float32)
    exact = np.atleast_1d(value)
    bits = near.view(np.uint32)
    inexact = np.isfinite(exact) & (near.astype(np.float64) != exact)
    beyond = inexact & (np.abs(near.astype(np.float64)) > np.abs(exact))
    bits = np.where(beyond, bits - np.uint32(1), bits)
    bits = np.where(inexact, bits | np.uint32(1), bits)
    return bits.view(np.float32).reshape(value.shape)
