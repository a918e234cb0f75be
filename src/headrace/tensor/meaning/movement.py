"""Operations that place elements and compute nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace.tensor.meaning.arguments import Arguments, Array, Meaning
from headrace.tensor.meaning.conversion import convert


def _broadcast_in_dim(arguments: Arguments) -> Array:
    operand = np.asarray(arguments.arrays[0])
    dimensions = arguments.integers("broadcast_dimensions")
    # The specification lets the dimensions come in any order.
    order = sorted(range(len(dimensions)), key=lambda n: dimensions[n])
    spread = [1] * len(arguments.shape)
    for n in order:
        spread[dimensions[n]] = operand.shape[n]
    return np.broadcast_to(operand.transpose(order).reshape(spread), arguments.shape)


def _reshape(arguments: Arguments) -> Array:
    return np.reshape(arguments.arrays[0], arguments.shape)


def _transpose(arguments: Arguments) -> Array:
    return np.transpose(arguments.arrays[0], arguments.integers("permutation"))


def _slice(arguments: Arguments) -> Array:
    bounds = zip(
        arguments.integers("start_indices"),
        arguments.integers("limit_indices"),
        arguments.integers("strides"),
        strict=True,
    )
    return np.asarray(arguments.arrays[0])[
        tuple(slice(start, max(start, limit), step) for start, limit, step in bounds)
    ]


def _clamped(starts: Sequence[Array], shape: Sequence[int], sizes: Sequence[int]) -> list[int]:
    return [
        min(max(int(start), 0), extent - size)
        for start, extent, size in zip(starts, shape, sizes, strict=True)
    ]


def _dynamic_slice(arguments: Arguments) -> Array:
    operand, *starts = arguments.arrays
    sizes = arguments.shape
    first = _clamped(starts, operand.shape, sizes)
    return operand[tuple(slice(f, f + s) for f, s in zip(first, sizes, strict=True))]


def _dynamic_update_slice(arguments: Arguments) -> Array:
    operand, update, *starts = arguments.arrays
    first = _clamped(starts, operand.shape, update.shape)
    result = np.array(operand)
    result[tuple(slice(f, f + s) for f, s in zip(first, update.shape, strict=True))] = update
    return result


def pad(
    operand: Array,
    value: Any,
    low: Sequence[int],
    high: Sequence[int],
    interior: Sequence[int],
) -> Array:
    """Adds `value` before, behind and between; negative edges cut, also what is between."""
    shape: list[int] = []
    source: list[slice] = []
    target: list[slice] = []
    for size, before, behind, between in zip(operand.shape, low, high, interior, strict=True):
        step = between + 1
        extent = max(0, (size - 1) * step + 1 if size else 0) + before + behind
        shape.append(max(0, extent))
        # Element n goes to before + n * step; keep those inside the result.
        first = max(0, -(before // step)) if before < 0 else 0
        count = max(0, min(size, -((before - extent) // step)) - first)
        source.append(slice(first, first + count))
        begin = before + first * step
        target.append(slice(begin, begin + (count - 1) * step + 1 if count else begin, step))
    result = np.full(shape, value, dtype=operand.dtype)
    result[tuple(target)] = operand[tuple(source)]
    return result


def _pad(arguments: Arguments) -> Array:
    operand, value = arguments.arrays
    return pad(
        operand,
        np.asarray(value)[()],
        arguments.integers("edge_padding_low"),
        arguments.integers("edge_padding_high"),
        arguments.integers("interior_padding"),
    )


def _concatenate(arguments: Arguments) -> Array:
    return np.concatenate(arguments.arrays, axis=arguments.integers("dimension")[0])


def _reverse(arguments: Arguments) -> Array:
    return np.flip(arguments.arrays[0], arguments.integers("dimensions"))


def _gather(arguments: Arguments) -> Array:
    operand, start_indices = (np.asarray(a) for a in arguments.arrays)
    vector_dimension = arguments.integers("index_vector_dim")[0]
    sizes = arguments.integers("slice_sizes")
    start_map = arguments.integers("start_index_map")
    operand_batching = arguments.integers("operand_batching_dims")
    index_batching = arguments.integers("start_indices_batching_dims")
    hidden = {*arguments.integers("collapsed_slice_dims"), *operand_batching}
    offset_dims = arguments.integers("offset_dims")

    if vector_dimension == start_indices.ndim:
        vectors = start_indices[..., np.newaxis]
    else:
        vectors = np.moveaxis(start_indices, vector_dimension, -1)
    vectors = vectors.astype(np.int64)
    batch_shape = vectors.shape[:-1]
    offset_axes = [n for n in range(operand.ndim) if n not in hidden]
    offset_rank = len(offset_axes)

    indices: list[Array] = []
    for n in range(operand.ndim):
        index = np.zeros((1,) * len(batch_shape), np.int64)
        if n in start_map:
            index = np.clip(vectors[..., start_map.index(n)], 0, operand.shape[n] - sizes[n])
        elif n in operand_batching:
            # The batch axis is counted without the index vector's own dimension.
            axis = index_batching[operand_batching.index(n)]
            axis -= 1 if axis > vector_dimension else 0
            spread = [1] * len(batch_shape)
            spread[axis] = batch_shape[axis]
            index = np.arange(batch_shape[axis]).reshape(spread)
        index = index.reshape(index.shape + (1,) * offset_rank)
        if n not in hidden:
            spread = [1] * (len(batch_shape) + offset_rank)
            spread[len(batch_shape) + offset_axes.index(n)] = sizes[n]
            index = index + np.arange(sizes[n]).reshape(spread)
        indices.append(index)
    found = operand[tuple(indices)] if indices else operand
    full = (*batch_shape, *(sizes[n] for n in offset_axes))
    found = np.broadcast_to(found, full)
    batch_dims = [n for n in range(len(full)) if n not in offset_dims]
    order = [0] * len(full)
    for position, n in enumerate([*batch_dims, *offset_dims]):
        order[n] = position
    return found.transpose(order)


def _iota(arguments: Arguments) -> Array:
    axis = arguments.integers("dimension")[0]
    spread = [1] * len(arguments.shape)
    spread[axis] = arguments.shape[axis]
    values = convert(np.arange(arguments.shape[axis], dtype=np.int64), arguments.dtype)
    return np.broadcast_to(values.reshape(spread), arguments.shape)


def _dimension(arguments: Arguments) -> Array:
    values = np.array(arguments.integers("value"), np.int64).reshape(arguments.shape)
    return convert(values, arguments.dtype)


MEANINGS: dict[str, Meaning] = {
    "broadcast_in_dim": _broadcast_in_dim,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "pad": _pad,
    "concatenate": _concatenate,
    "reverse": _reverse,
    "gather": _gather,
    "iota": _iota,
    "dimension": _dimension,
}
