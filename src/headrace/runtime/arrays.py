"""Numpy arrays at addresses that kernels like."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from functools import partial
from sys import getrefcount
from typing import Any

import numpy as np

ALIGNMENT_BYTES = 64
SMALL_BYTES = 1024
LARGE_BYTES = 1 << 17
"""From here on malloc asks the system for fresh pages, each of which is zeroed when it is first
written: 0.3 ms of 0.04 for an output of 0.8 MB."""

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
    return _aligned_in(_buffer(size), shape, dtype)


def _buffer(size_bytes: int) -> Any:
    return np.empty(size_bytes + ALIGNMENT_BYTES, np.uint8)


def _aligned_in(buffer: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    offset = -_address_of(_from_buffer(buffer)) & (ALIGNMENT_BYTES - 1)
    return np.ndarray(shape, dtype, buffer, offset)


class RecycledArrays:
    """Makes aligned arrays of one shape, in memory of earlier ones that nobody has any more.

    Every array, and every view of it, refers to its buffer: one to which nothing but this
    object refers is free. Two are kept, so that state which a caller hands from step to step
    goes to and fro between them.
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self._shape = shape
        self._dtype = dtype
        self._size_bytes = math.prod(shape) * dtype.itemsize
        self._buffers: list[Any] = []

    def __call__(self) -> Any:
        """An uninitialised array."""
        for buffer in self._buffers:
            if getrefcount(buffer) == _UNSHARED:
                return _aligned_in(buffer, self._shape, self._dtype)
        buffer = _buffer(self._size_bytes)
        self._buffers = [*self._buffers[-1:], buffer]
        return _aligned_in(buffer, self._shape, self._dtype)


_UNSHARED = 3
"""What refers to a buffer that is free: the list, the loop's name and `getrefcount` itself."""


def array_maker(shape: tuple[int, ...], dtype: Any, recycles: bool) -> Callable[[], Any]:
    """What makes uninitialised arrays for an output: small ones stand where numpy puts them.

    For these a second cache line that a store touches costs less than the 1 us that
    aligning takes.

    Args:
        recycles: memory of large ones may be kept to be used again.
    """
    size_bytes = math.prod(shape) * dtype.itemsize
    if size_bytes <= SMALL_BYTES:
        return partial(np.empty, shape, dtype)
    if recycles and size_bytes >= LARGE_BYTES:
        return RecycledArrays(shape, dtype)
    return partial(aligned_array, shape, dtype)


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
