"""What an ELF object of ours holds: its functions and their sizes.

llvmlite offers no disassembler, so instructions are not listed; `objdump -d` shows them.
Layout of the tables: System V ABI, chapter 4 (ELF64, little-endian).
"""

from __future__ import annotations

import struct

from headrace.base.errors import HeadraceError, error

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMBOL_TABLE = 2
_FUNCTION = 2


def list_object(data: bytes) -> str:
    """One line for each function of a relocatable object: its name and bytes.

    Raises:
        HeadraceDefect HR9413: the bytes are no ELF64 object, or its tables do not fit it.
    """
    try:
        functions = _functions(data)
    except (struct.error, IndexError, ValueError, OverflowError) as wrong:
        raise _no_object(str(wrong)) from wrong
    lines = [f"; ELF object, {len(data)} bytes; instructions are not listed (objdump -d does)"]
    lines += [f"{name}: {size} bytes" for name, size in functions]
    return "\n".join(lines) + "\n"


def _functions(data: bytes) -> list[tuple[str, int]]:
    """Names and sizes of the functions that the object defines, in order of address."""
    header = _HEADER.unpack_from(data)
    if header[0][:6] != b"\x7fELF\x02\x01":
        raise ValueError("the first bytes are not those of ELF64")
    table, width, count = header[6], header[11], header[12]
    sections = [_SECTION.unpack_from(data, table + n * width) for n in range(count)]
    found: list[tuple[int, int, str, int]] = []
    for section in sections:
        if section[1] != _SYMBOL_TABLE:
            continue
        offset, size = section[4], section[5]
        names = sections[section[6]]
        text = data[names[4] : names[4] + names[5]]
        for at in range(offset, offset + size, _SYMBOL.size):
            name, info, _, home, value, length = _SYMBOL.unpack_from(data, at)
            if info & 15 == _FUNCTION and home:
                end = text.index(b"\0", name)
                found.append((home, value, text[name:end].decode("ascii", "replace"), length))
    return [(name, length) for _, _, name, length in sorted(found)]


def _no_object(reason: str) -> HeadraceError:
    return error("HR9413", "these bytes are no ELF object", notes=reason)
