"""The sections of an MLIR bytecode file: its names and tables, and where its operations
begin (MLIR Bytecode Format, versions 0 to 6).

Tables are cut into entries here and read by `entries.py` when something asks for one.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.importers.hlo.bytecode.byte_cursor import ByteCursor

MAGIC = b"ML\xefR"
NEWEST = 6
"""The newest version of the format that is read."""

_STRINGS, _DIALECTS, _ENTRIES, _OFFSETS, _OPERATIONS = 0, 1, 2, 3, 4
_VERSIONS, _PROPERTIES = 7, 8


@dataclass(frozen=True)
class Entry:
    """An attribute or a type that is not read yet.

    Attributes:
        dialect: whose it is.
        encoded: by the dialect; otherwise it is text.
        data: where it stands.
    """

    dialect: str
    encoded: bool
    data: ByteCursor


@dataclass(frozen=True)
class Container:
    """A file cut into its parts.

    Attributes:
        version: of the format.
        producer: who wrote it: `StableHLO_v1.2.0`.
        strings: all of them.
        operation_names: with their dialects.
        attributes, types: by number.
        properties: what operations hold beside attributes, by number.
        operations: where the outermost block begins.
    """

    version: int
    producer: str
    strings: list[bytes]
    operation_names: list[str]
    attributes: list[Entry]
    types: list[Entry]
    properties: list[ByteCursor]
    operations: ByteCursor

    @property
    def is_portable(self) -> bool:
        """Whether it is an artifact of StableHLO: its operations are those of VHLO."""
        dialects = {name.partition(".")[0] for name in self.operation_names}
        return "vhlo" in dialects or dialects == {"builtin"}


def read_container(data: bytes, source: str) -> Container:
    """The parts of a file.

    Raises:
        HeadraceError HR1001: it is no such file, with the byte.
    """
    cursor = ByteCursor(memoryview(data), source)
    if bytes(cursor.take(min(4, cursor.left))) != MAGIC:
        raise cursor.fail("this is no MLIR bytecode", 0)
    version = cursor.varint()
    if version > NEWEST:
        raise cursor.fail(f"bytecode of version {version}, of which {NEWEST} is read", 4)
    producer = cursor.until_zero().decode(errors="replace")
    sections: dict[int, ByteCursor] = {}
    while cursor.left:
        begin = cursor.at
        number, inner = cursor.section()
        if number in sections:
            raise cursor.fail(f"there are two sections {number}", begin)
        sections[number] = inner
    for number in (_STRINGS, _DIALECTS, _ENTRIES, _OFFSETS, _OPERATIONS):
        if number not in sections:
            raise cursor.fail(f"section {number} is missing")
    strings = _strings(sections[_STRINGS])
    dialects, names = _dialects(sections[_DIALECTS], strings, version)
    attributes, types = _entries(sections[_OFFSETS], sections[_ENTRIES], dialects)
    found = sections.get(_PROPERTIES)
    properties = [] if found is None else _properties(found)
    return Container(
        version, producer, strings, names, attributes, types, properties, sections[_OPERATIONS]
    )


def _strings(cursor: ByteCursor) -> list[bytes]:
    lengths = [cursor.varint() for _ in range(cursor.count())]
    found = [bytes(cursor.take(length)) for length in reversed(lengths)]
    return [text[:-1] if text.endswith(b"\0") else text for text in found]


def text_of(cursor: ByteCursor, strings: list[bytes], number: int) -> str:
    """A string by its number; bytes that are no UTF-8 as the characters of their codes."""
    if number >= len(strings):
        raise cursor.fail(f"there is no string {number} among {len(strings)}")
    try:
        return strings[number].decode()
    except UnicodeDecodeError:
        return strings[number].decode("latin-1")


def _dialects(
    cursor: ByteCursor, strings: list[bytes], version: int
) -> tuple[list[str], list[str]]:
    dialects: list[str] = []
    for _ in range(cursor.count()):
        name = cursor.varint()
        if version >= 1:
            versioned, name = name & 1, name >> 1
            if versioned and cursor.section()[0] != _VERSIONS:
                raise cursor.fail("expected the version of a dialect")
        dialects.append(text_of(cursor, strings, name))
    if version >= 4:
        cursor.count()
    names: list[str] = []
    while cursor.left:
        dialect = _of_dialect(cursor, dialects)
        for _ in range(cursor.count()):
            name = cursor.varint()
            name = name >> 1 if version >= 5 else name
            names.append(f"{dialect}.{text_of(cursor, strings, name)}")
    return dialects, names


def _of_dialect(cursor: ByteCursor, dialects: list[str]) -> str:
    number = cursor.varint()
    if number >= len(dialects):
        raise cursor.fail(f"there is no dialect {number} among {len(dialects)}")
    return dialects[number]


def _entries(
    offsets: ByteCursor, data: ByteCursor, dialects: list[str]
) -> tuple[list[Entry], list[Entry]]:
    counts = offsets.varint(), offsets.varint()
    found: tuple[list[Entry], list[Entry]] = ([], [])
    for table, count in zip(found, counts, strict=True):
        while len(table) < count:
            dialect = _of_dialect(offsets, dialects)
            size = offsets.count()
            if not 0 < size <= count - len(table):
                raise offsets.fail(f"a group of {size} in a table of {count}")
            for _ in range(size):
                length = offsets.varint()
                table.append(Entry(dialect, bool(length & 1), data.inner(length >> 1)))
    return found


def _properties(cursor: ByteCursor) -> list[ByteCursor]:
    return [cursor.inner(cursor.varint()) for _ in range(cursor.count())]
