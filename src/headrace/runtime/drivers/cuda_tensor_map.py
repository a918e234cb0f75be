"""Matrices as parameters of a kernel: what the copy engine is told of their tiles."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from headrace.artifact import schema
from headrace.base.errors import error

_UINT16 = 1
"""`CUtensorMapDataType`: floats are bits here."""

_PROMOTION = 2
"""`CUtensorMapL2promotion`: 128 bytes at once into the L2 cache."""

_ALIGNMENT_BYTES = 64
_WORDS = 16
"""Of 8 bytes in a `CUtensorMap`."""


@dataclass(frozen=True)
class Matrix:
    """A parameter that describes a matrix, and what Triton passes behind it.

    Attributes:
        tensor_map: the driver's 128 bytes.
        rows, columns, stride: in elements.
    """

    tensor_map: Any
    rows: int
    columns: int
    stride: int


def matrix(given: schema.TensorMap, address: int, dims: Mapping[str, int]) -> Matrix:
    """Describes a matrix of 16-bit elements whose columns lie side by side.

    Args:
        address: of the operand that holds it.
        dims: sizes of the named dimensions.

    Raises:
        HeadraceError HR4022: the driver refuses it.
    """
    place = address + given.offset_bytes
    rows, columns = given.rows.evaluate(dims), given.columns.evaluate(dims)
    # The object that the bindings have for it does not stand at a multiple of 64 bytes.
    room = (ctypes.c_uint64 * (_WORDS + _ALIGNMENT_BYTES // 8))()
    skipped = -ctypes.addressof(room) % _ALIGNMENT_BYTES
    made = (ctypes.c_uint64 * _WORDS).from_buffer(room, skipped)
    status = _library().cuTensorMapEncodeTiled(
        made,
        _UINT16,
        2,
        ctypes.c_uint64(place),
        (ctypes.c_uint64 * 2)(columns, rows),
        (ctypes.c_uint64 * 1)(given.stride_bytes),
        (ctypes.c_uint32 * 2)(given.box[1], given.box[0]),
        (ctypes.c_uint32 * 2)(1, 1),
        0,
        given.swizzle,
        _PROMOTION,
        0,
    )
    if status:
        raise error(
            "HR4022",
            "the CUDA driver refuses cuTensorMapEncodeTiled",
            notes=f"error {status} for {rows} x {columns} at {place:#x}",
        )
    return Matrix(made, rows, columns, given.stride_bytes // 2)


@cache
def _library() -> Any:
    """The driver's library, which the bindings have loaded."""
    return ctypes.CDLL("libcuda.so.1")
