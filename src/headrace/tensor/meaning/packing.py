"""`pack`: a logical row-major tensor into a buffer laid out as a kernel wants it.

Attributes (integers, as in `kernel/description.Layout`): `strides`, `tiles`,
`tile_strides` one per dimension, `offset`, `size`. Element `i` of a dimension stands at
`(i // tile) * stride + (i % tile) * tile_stride`, without a tile at `i * stride`. What no
element reaches is 0. The result is flat, `size` elements.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.lib.stride_tricks import as_strided

from headrace.base.exponent_codes import ExponentCodes, encode
from headrace.tensor.meaning.arguments import Arguments, Array, Meaning

_Run = tuple[int, int, int, int]  # first element, elements, tile or 1, offset of the first


def _runs(extent: int, tile: int, stride: int) -> list[_Run]:
    """Whole tiles first, then the tile that is cut short."""
    if tile == 1:
        return [(0, extent, 1, 0)]
    whole = extent // tile * tile
    runs = [
        (0, whole, tile, 0),
        (whole, extent - whole, extent - whole, whole // tile * stride),
    ]
    return [r for r in runs if r[1]]


def _pack(arguments: Arguments) -> Array:
    array = np.asarray(arguments.arrays[0])
    strides, tiles = arguments.integers("strides"), arguments.integers("tiles")
    tile_strides = arguments.integers("tile_strides")
    buffer = np.zeros(arguments.integers("size")[0], array.dtype)
    if array.size == 0:
        return buffer
    width = array.dtype.itemsize
    offset = arguments.integers("offset")[0]
    per_dimension = [_runs(*three) for three in zip(array.shape, tiles, strides, strict=True)]
    # Strided views instead of an index an element: a weight of 400 MB packs in its own size.
    for runs in product(*per_dimension):
        shape: list[int] = []
        steps: list[int] = []
        for n, (_first, count, tile, _at) in enumerate(runs):
            if tiles[n] == 1:
                shape.append(count)
                steps.append(strides[n] * width)
            else:
                shape += [count // tile, tile]
                steps += [strides[n] * width, tile_strides[n] * width]
        begin = offset + sum(run[3] for run in runs)
        end = begin + sum((s - 1) * step // width for s, step in zip(shape, steps, strict=True))
        if begin < 0 or end >= buffer.size:
            raise ValueError(f"the layout reaches element {end} of {buffer.size}")
        target = as_strided(buffer[begin:], shape, steps)
        part = array[tuple(slice(run[0], run[0] + run[1]) for run in runs)]
        target[...] = part.reshape(shape)
    return buffer


_WINOGRAD = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], np.float64)
"""G of F(2x2, 3x3): Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks"."""


def _exponent_codes(arguments: Arguments) -> Array:
    """A laid out weight packed (`base/exponent_codes.py`): bytes."""
    words = (arguments.integers(name)[0] for name in ("block", "base", "escapes"))
    return encode(np.asarray(arguments.arrays[0]), ExponentCodes(*words))


def winograd(array: Array) -> Array:
    """w[O, I, 3, 3] to G w G' of each kernel, [O, I, 4, 4]; in f64, rounded once."""
    result = np.empty((*array.shape[:2], 4, 4), array.dtype)
    for number, kernels in enumerate(array):  # one output at a time: f64 of all is 4 x w
        wide = kernels.astype(np.float64)
        result[number] = _WINOGRAD @ wide @ _WINOGRAD.T
    return result


def winograd_inverse(array: Array) -> Array:
    """The [O, I, 3, 3] whose transform is `array`, but for rounding."""
    inverse = np.array([[1, 0, 0, 0], [0, 1, -1, 0], [0, 0, 0, 1]], np.float64)
    return (inverse @ np.asarray(array, np.float64) @ inverse.T).astype(array.dtype)


MEANINGS: dict[str, Meaning] = {
    "pack": _pack,
    "exponent_codes": _exponent_codes,
    "winograd": lambda arguments: winograd(np.asarray(arguments.arrays[0])),
}
