"""`reduce` and `reduce_window`: any body, in the order the specification asks for.

The named reducers go through numpy's own reductions (sums of f32 in f64, of narrower
floats in f32, rounded once); any other body folds neighbours pairwise, as a balanced
tree whose in-order walk is the index order. The initial value is folded in at the left.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from headrace.tensor.meaning.arguments import (
    Arguments,
    Array,
    Meaning,
    Reducer,
    dtype_of_array,
    narrow,
    widen,
)
from headrace.tensor.meaning.movement import pad

_UFUNCS: dict[str, Any] = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
_BOOLEAN_UFUNCS: dict[str, Any] = {
    "add": np.logical_or,
    "multiply": np.logical_and,
    "maximum": np.logical_or,
    "minimum": np.logical_and,
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
}


def _fold_named(kind: str, array: Array, init: Array, axes: tuple[int, ...]) -> Array:
    target = dtype_of_array(array.dtype)
    wide, start = widen(array), widen(init)
    with np.errstate(all="ignore"):
        if wide.dtype.kind == "b":
            ufunc = _BOOLEAN_UFUNCS[kind]
            folded = wide
            for axis in sorted(axes, reverse=True):
                folded = ufunc.reduce(folded, axis=axis)
            return np.asarray(ufunc(start, folded))
        ufunc = _UFUNCS[kind]
        if kind in ("add", "multiply"):
            exact = np.float64 if wide.dtype == np.float32 and target.bits == 32 else wide.dtype
            folded = ufunc.reduce(wide, axis=axes, dtype=exact)
            return narrow(ufunc(start.astype(exact), folded), target)
        count = prod(wide.shape[a] for a in axes)
        if count == 0:
            kept = [s for n, s in enumerate(wide.shape) if n not in axes]
            return narrow(np.broadcast_to(start, kept), target)
        return narrow(ufunc(start, ufunc.reduce(wide, axis=axes)), target)


def _fold_pairs(values: list[Array], reducer: Reducer) -> list[Array]:
    """Folds along the leading axis, at least one element long."""
    while len(values[0]) > 1:
        even = len(values[0]) & ~1
        folded = reducer.combine([v[0:even:2] for v in values], [v[1:even:2] for v in values])
        if even != len(values[0]):
            folded = [
                np.concatenate([f, v[even:]]) for f, v in zip(folded, values, strict=True)
            ]
        values = folded
    return [v[0] for v in values]


def reduce(
    arrays: Sequence[Array], inits: Sequence[Array], axes: Sequence[int], reducer: Reducer
) -> list[Array]:
    """Folds over `axes`, which leave the shape; one result an input."""
    dimensions = tuple(sorted(axes))
    if reducer.kind is not None:
        return [_fold_named(reducer.kind, arrays[0], inits[0], dimensions)]
    shape = arrays[0].shape
    kept = tuple(n for n in range(len(shape)) if n not in dimensions)
    kept_shape = tuple(shape[n] for n in kept)
    count = prod(shape[n] for n in dimensions)
    starts = [np.broadcast_to(i, kept_shape) for i in inits]
    if count == 0:
        return starts
    leading = [a.transpose(dimensions + kept).reshape((count, *kept_shape)) for a in arrays]
    folded = reducer.combine(starts, _fold_pairs(leading, reducer))
    return [np.broadcast_to(f, kept_shape) for f in folded]


def windows(
    array: Array, sizes: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> Array:
    """A view [outer..., window...] of a padded array; outer counts the windows that fit."""
    outer = [
        max(0, (extent - ((size - 1) * dilation + 1)) // stride + 1)
        for extent, size, stride, dilation in zip(
            array.shape, sizes, strides, dilations, strict=True
        )
    ]
    if 0 in outer:
        return np.zeros((*outer, *sizes), array.dtype)
    byte_strides = [
        *(b * s for b, s in zip(array.strides, strides, strict=True)),
        *(b * d for b, d in zip(array.strides, dilations, strict=True)),
    ]
    return as_strided(array, (*outer, *sizes), byte_strides, writeable=False)


def reduce_window(
    arrays: Sequence[Array], inits: Sequence[Array], arguments: Arguments
) -> list[Array]:
    """Folds windows; padding, also what base dilation puts between, holds the initials."""
    if arguments.reducer is None:
        raise TypeError("reduce_window needs a reducer")
    views: list[Array] = []
    for array, init in zip(arrays, inits, strict=True):
        padded = pad(
            array,
            np.asarray(init)[()],
            arguments.integers("padding_low"),
            arguments.integers("padding_high"),
            [d - 1 for d in arguments.integers("base_dilations")],
        )
        views.append(
            windows(
                padded,
                arguments.integers("window_dimensions"),
                arguments.integers("window_strides"),
                arguments.integers("window_dilations"),
            )
        )
    rank = arrays[0].ndim
    return reduce(views, inits, range(rank, 2 * rank), arguments.reducer)


def _split(arguments: Arguments) -> tuple[list[Array], list[Array]]:
    half = len(arguments.arrays) // 2
    arrays = [np.asarray(a) for a in arguments.arrays]
    return arrays[:half], arrays[half:]


def _reduce(arguments: Arguments) -> list[Array]:
    if arguments.reducer is None:
        raise TypeError("reduce needs a reducer")
    arrays, inits = _split(arguments)
    return reduce(arrays, inits, arguments.integers("dimensions"), arguments.reducer)


def _reduce_window(arguments: Arguments) -> list[Array]:
    return reduce_window(*_split(arguments), arguments)


MEANINGS: dict[str, Meaning] = {"reduce": _reduce, "reduce_window": _reduce_window}
