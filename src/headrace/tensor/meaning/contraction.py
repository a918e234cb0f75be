"""`dot_general` and `convolution`.

f32 accumulates in f64 and narrower floats in f32, rounded once; integers wrap in the
result's type (through exact f64 products where 8- or 16-bit operands allow it).
"""

from __future__ import annotations

from math import prod
from typing import Any

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
from headrace.tensor.meaning.conversion import convert
from headrace.tensor.meaning.movement import pad

_EXACT_INTEGER = 1 << 53


def _accumulator(lhs: Array, rhs: Array, result: DType, terms: int) -> Any:
    """The numpy type that products are summed in."""
    left, right = dtype_of_array(lhs.dtype), dtype_of_array(rhs.dtype)
    if result.kind == "complex":
        return np.dtype(np.complex128)
    if result.is_float:
        widest = max(left.bits, right.bits, result.bits)
        return np.dtype(np.float64 if widest >= 32 else np.float32)
    if terms << (left.bits + right.bits) < _EXACT_INTEGER:
        return np.dtype(np.float64)
    return np.dtype(np.uint64 if result.kind == "unsigned" else np.int64)


def _finish(summed: Array, result: DType) -> Array:
    if result.kind == "bool":
        return np.not_equal(summed, 0)
    if result.is_integer and summed.dtype.kind == "f":
        summed = summed.astype(np.int64)
    return narrow(summed, result) if not result.is_integer else convert(summed, result)


def _dot_general(arguments: Arguments) -> Array:
    lhs, rhs = (np.asarray(a) for a in arguments.arrays)
    lhs_batch = arguments.integers("lhs_batching_dimensions")
    rhs_batch = arguments.integers("rhs_batching_dimensions")
    lhs_contract = arguments.integers("lhs_contracting_dimensions")
    rhs_contract = arguments.integers("rhs_contracting_dimensions")
    lhs_free = [n for n in range(lhs.ndim) if n not in (*lhs_batch, *lhs_contract)]
    rhs_free = [n for n in range(rhs.ndim) if n not in (*rhs_batch, *rhs_contract)]
    batch = [lhs.shape[n] for n in lhs_batch]
    m = [lhs.shape[n] for n in lhs_free]
    n = [rhs.shape[i] for i in rhs_free]
    k = prod(lhs.shape[i] for i in lhs_contract)
    kind = _accumulator(lhs, rhs, arguments.dtype, k)
    left = widen(lhs).astype(kind).transpose([*lhs_batch, *lhs_free, *lhs_contract])
    right = widen(rhs).astype(kind).transpose([*rhs_batch, *rhs_contract, *rhs_free])
    with np.errstate(all="ignore"):
        summed = np.matmul(
            left.reshape((*batch, prod(m), k)), right.reshape((*batch, k, prod(n)))
        )
        return _finish(summed.reshape((*batch, *m, *n)), arguments.dtype)


def _convolution(arguments: Arguments) -> Array:
    lhs, rhs = (np.asarray(a) for a in arguments.arrays)
    strides = arguments.integers("window_strides")
    dilations = arguments.integers("rhs_dilation")
    groups = arguments.integers("feature_group_count")[0]
    spatial = lhs.ndim - 2
    kernel = rhs.shape[2:]
    kind = _accumulator(lhs, rhs, arguments.dtype, rhs.shape[1] * prod(kernel))
    padded = pad(
        widen(lhs).astype(kind),
        kind.type(0),
        (0, 0, *arguments.integers("padding_low")),
        (0, 0, *arguments.integers("padding_high")),
        (0, 0, *(d - 1 for d in arguments.integers("lhs_dilation"))),
    )
    outer = [
        max(0, (padded.shape[2 + n] - ((kernel[n] - 1) * dilations[n] + 1)) // strides[n] + 1)
        for n in range(spatial)
    ]
    batch, features = lhs.shape[0], rhs.shape[0]
    depth = rhs.shape[1]
    weights = widen(rhs).astype(kind).reshape((groups, features // groups, depth, *kernel))
    total = np.zeros((batch, groups, features // groups, prod(outer)), kind)
    with np.errstate(all="ignore"):
        # One product of matrices for every tap of the window: no im2col, any rank.
        for tap in np.ndindex(*kernel):
            begin = [t * d for t, d in zip(tap, dilations, strict=True)]
            window = padded[
                (
                    slice(None),
                    slice(None),
                    *(
                        slice(b, b + (o - 1) * s + 1 if o else b, s)
                        for b, o, s in zip(begin, outer, strides, strict=True)
                    ),
                )
            ].reshape((batch, groups, depth, prod(outer)))
            tap_weights = weights[(slice(None), slice(None), slice(None), *tap)]
            if depth == 1:
                total += tap_weights * window  # depthwise: an outer product
            else:
                total += np.matmul(tap_weights, window)
    return _finish(total.reshape((batch, features, *outer)), arguments.dtype)


MEANINGS: dict[str, Meaning] = {"dot_general": _dot_general, "convolution": _convolution}
