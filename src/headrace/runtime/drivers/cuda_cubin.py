"""What a cubin says of its kernels that no call of the driver tells: threads of a block.

A cubin is an ELF file; section `.nv.info.<kernel>` holds attributes, each a format byte, a
kind byte and 16 bits, which are the size of what follows where the format says so.
"""

from __future__ import annotations

import struct

_SIZED = 4
_REQUIRED_THREADS = 0x10
_PREFIX = ".nv.info."
_HEADER_BYTES = 64
_SECTION_BYTES = 64


def required_threads(cubin: bytes) -> dict[str, int]:
    """Threads of a block by kernel, for kernels that demand a number (PTX `.reqntid`).

    Empty where this is no 64-bit little-endian ELF file.
    """
    found: dict[str, int] = {}
    if len(cubin) < _HEADER_BYTES or cubin[:6] != b"\x7fELF\x02\x01":
        return found
    (table,) = struct.unpack_from("<Q", cubin, 40)
    _, count, names = struct.unpack_from("<3H", cubin, 58)
    sections = [
        struct.unpack_from("<IIQQQQ", cubin, at)
        for at in range(table, table + count * _SECTION_BYTES, _SECTION_BYTES)
        if at + _SECTION_BYTES <= len(cubin)
    ]
    if names >= len(sections):
        return found
    text = sections[names][4]
    for name, _, _, _, offset, size in sections:
        begin = text + name
        title = cubin[begin : cubin.find(b"\0", begin)].decode("utf-8", "replace")
        if title.startswith(_PREFIX):
            threads = _threads(cubin[offset : offset + size])
            if threads:
                found[title.removeprefix(_PREFIX)] = threads
    return found


def _threads(attributes: bytes) -> int:
    at = 0
    while at + 4 <= len(attributes):
        form, kind, value = struct.unpack_from("<BBH", attributes, at)
        at += 4
        if form != _SIZED:
            continue
        if kind == _REQUIRED_THREADS and value == 12 and at + 12 <= len(attributes):
            x, y, z = struct.unpack_from("<3I", attributes, at)
            return x * y * z
        at += value
    return 0
