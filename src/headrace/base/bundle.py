"""Several pieces of code as one: a variant of an executable whose functions stand apart.

A single piece is stored as it is. Several: the magic, their number, the size of each (64
bits, little-endian), then the pieces, each at a multiple of 16 bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

_MAGIC = b"HRBUNDLE"
_ALIGNMENT = 16


def join_code(pieces: Sequence[bytes]) -> bytes:
    """One run of bytes of all pieces."""
    if len(pieces) == 1:
        return pieces[0]
    made = bytearray(_MAGIC + struct.pack("<Q", len(pieces)))
    made += b"".join(struct.pack("<Q", len(piece)) for piece in pieces)
    for piece in pieces:
        made += bytes(-len(made) % _ALIGNMENT) + piece
    return bytes(made)


def split_code(data: bytes) -> list[bytes]:
    """The pieces of `join_code`.

    Raises:
        ValueError: a size points beyond the end.
    """
    if data[: len(_MAGIC)] != _MAGIC:
        return [data]
    at = len(_MAGIC)
    try:
        (count,) = struct.unpack_from("<Q", data, at)
        if count > len(data):
            raise ValueError("a bundle of code has more pieces than bytes")
        sizes = struct.unpack_from(f"<{count}Q", data, at + 8)
    except struct.error as cut:
        raise ValueError("a bundle of code ends within its sizes") from cut
    at += 8 + 8 * count
    pieces: list[bytes] = []
    for size in sizes:
        at += -at % _ALIGNMENT
        if size > len(data) - at:
            raise ValueError("a piece of a bundle of code ends behind the bundle")
        pieces.append(data[at : at + size])
        at += size
    return pieces
