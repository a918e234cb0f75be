"""Numpy arrays at addresses that kernels like."""

from __future__ import annotations

from typing import Any

import numpy as np

ALIGNMENT_BYTES = 64


def aligned_array(shape: tuple[int, ...], dtype: Any) -> Any:
    """An uninitialised C-contiguous array aligned 64 bytes. About 1.5 us."""
    size = dtype.itemsize
    for extent in shape:
        size *= extent
    buffer = np.empty(size + ALIGNMENT_BYTES, np.uint8)
    offset = -buffer.__array_interface__["data"][0] & (ALIGNMENT_BYTES - 1)
    return np.ndarray(shape, dtype, buffer, offset)
