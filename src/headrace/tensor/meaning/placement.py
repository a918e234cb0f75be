"""`scatter` and `sort`: where elements of one tensor go in another."""

from __future__ import annotations

import numpy as np

from headrace.tensor.meaning.arguments import Arguments, Array, Meaning, Reducer


def _body(arguments: Arguments) -> Reducer:
    if arguments.reducer is None:
        raise TypeError("scatter and sort need a body")
    return arguments.reducer


def _scatter(arguments: Arguments) -> list[Array]:
    """One update after the other, in row-major order."""
    count = (len(arguments.arrays) - 1) // 2
    results = [np.array(a) for a in arguments.arrays[:count]]
    indices = np.asarray(arguments.arrays[count]).astype(np.int64)
    updates = [np.asarray(a) for a in arguments.arrays[count + 1 :]]
    window = arguments.integers("update_window_dims")
    inserted = arguments.integers("inserted_window_dims")
    batching = arguments.integers("input_batching_dims")
    index_batching = arguments.integers("scatter_indices_batching_dims")
    places = arguments.integers("scatter_dims_to_operand_dims")
    vector = arguments.integers("index_vector_dim")[0]
    if vector == indices.ndim:
        indices = indices[..., np.newaxis]
    vectors = np.moveaxis(indices, vector, -1)
    shape = results[0].shape
    kept = [d for d in range(len(shape)) if d not in (*inserted, *batching)]
    combine = _body(arguments).combine
    for at in np.ndindex(updates[0].shape):
        scattered = tuple(i for n, i in enumerate(at) if n not in window)
        index = [0] * len(shape)
        for d, n in zip(kept, window, strict=True):
            index[d] = at[n]
        for component, d in enumerate(places):
            index[d] += int(vectors[(*scattered, component)])
        for d, n in zip(batching, index_batching, strict=True):
            index[d] = scattered[n - (1 if n > vector else 0)]
        if any(not 0 <= i < size for i, size in zip(index, shape, strict=True)):
            continue
        place = tuple(index)
        combined = combine([r[place] for r in results], [u[at] for u in updates])
        for result, value in zip(results, combined, strict=True):
            result[place] = value
    return results


def _sort(arguments: Arguments) -> list[Array]:
    """Each element's place is how many stand before it; equals keep their order."""
    axis = arguments.integers("dimension")[0]
    rows = [np.moveaxis(np.asarray(a), axis, -1) for a in arguments.arrays]
    size = rows[0].shape[-1]
    results = [np.empty(r.shape, r.dtype) for r in rows]
    earlier = np.arange(size)[:, np.newaxis] < np.arange(size)[np.newaxis, :]
    before = _body(arguments).combine
    for at in np.ndindex(rows[0].shape[:-1]):
        left = [r[at][:, np.newaxis] for r in rows]
        right = [r[at][np.newaxis, :] for r in rows]
        (first,) = before(left, right)
        (second,) = before(right, left)
        rank = np.sum(first | (~np.asarray(second) & earlier), axis=0)
        for row, result in zip(rows, results, strict=True):
            result[at][rank] = row[at]
    return [np.moveaxis(r, -1, axis) for r in results]


MEANINGS: dict[str, Meaning] = {"scatter": _scatter, "sort": _sort}
