"""Numpy arrays at addresses that kernels like."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

ALIGNMENT_BYTES = 64
SMALL_BYTES = 1024

_address_of = ctypes.addressof
_from_buffer: Any = ctypes.c_char.from_buffer
_word_at: Any = ctypes.c_uint64.from_address
_DATA_AT = object.__basicsize__
"""Where `PyArrayObject` holds its address: behind the object's head (numpy's C interface)."""


def address_of(array: Any) -> int:
    """Where the data of an array stands. 0.2 us; `__array_interface__` takes 2 us."""
    if not isinstance(array, np.ndarray):
        return array.__array_interface__["data"][0]
    return _word_at(id(array) + _DATA_AT).value


def aligned_array(shape: tuple[int, ...], dtype: Any) -> Any:
    """An uninitialised C-contiguous array aligned 64 bytes. About 1.5 us."""
    size = dtype.itemsize
    for extent in shape:
        size *= extent
    buffer = np.empty(size + ALIGNMENT_BYTES, np.uint8)
    offset = -_address_of(_from_buffer(buffer)) & (ALIGNMENT_BYTES - 1)
    return np.ndarray(shape, dtype, buffer, offset)


def array_maker(shape: tuple[int, ...], dtype: Any) -> Callable[[], Any]:
    """What makes uninitialised arrays for an output: small ones stand where numpy puts them.

    For these a second cache line that a store touches costs less than the 1 us that
    aligning takes.
    """
    small = math.prod(shape) * dtype.itemsize <= SMALL_BYTES
    return partial(np.empty if small else aligned_array, shape, dtype)


def overlapping(arrays: Sequence[Any]) -> frozenset[int]:
    """Numbers of arrays that share bytes with another: a step must not change one under it."""
    places = sorted(
        (address_of(a), address_of(a) + a.nbytes, n) for n, a in enumerate(arrays) if a.nbytes
    )
    found: set[int] = set()
    end, last = 0, -1
    for begin, behind, number in places:
        if begin < end:
            found |= {last, number}
        if behind > end:
            end, last = behind, number
    return frozenset(found)
