"""How many workgroups of a kernel a device runs at once, from what its SPIR-V says."""

from __future__ import annotations

import struct

_HEADER_WORDS = 5
_ENTRY_POINT, _EXECUTION_MODE, _FUNCTION = 15, 16, 54
_LOCAL_SIZE = 17

_LANES_AT_ONCE = 1024
_SHARED_BYTES_AT_ONCE = 96 << 10
_WORKGROUPS_AT_ONCE = 32
"""Of a multiprocessor, for want of a call that says it: half of its lanes, as kernels with
64 registers a lane leave it, and what GPUs of ten years have of shared memory."""


def lanes_of(code: bytes) -> dict[str, int]:
    """Lanes of a workgroup by entry point; empty where this is no SPIR-V."""
    count = len(code) // 4
    words = struct.unpack_from(f"<{count}I", code)
    names: dict[int, str] = {}
    found: dict[str, int] = {}
    at = _HEADER_WORDS
    while at < count and (length := words[at] >> 16):
        kind = words[at] & 0xFFFF
        if kind == _FUNCTION:
            break
        if kind == _ENTRY_POINT:
            text = code[4 * (at + 3) : 4 * (at + length)]
            names[words[at + 2]] = text.split(b"\0", 1)[0].decode("utf-8", "replace")
        elif kind == _EXECUTION_MODE and words[at + 2] == _LOCAL_SIZE:
            x, y, z = words[at + 3 : at + 6]
            found[names.get(words[at + 1], "")] = x * y * z
        at += length
    return found


def workgroups_at_once(multiprocessors: int, lanes: int, shared_bytes: int) -> int:
    """An estimate for a whole device; 0 where the number of multiprocessors is not known."""
    most = min(_WORKGROUPS_AT_ONCE, _LANES_AT_ONCE // max(1, lanes))
    if shared_bytes:
        most = min(most, _SHARED_BYTES_AT_ONCE // shared_bytes)
    return multiprocessors * max(1, most)
