"""Attributes and types of a bytecode file, read when something asks for them.

What comes out is what the text readers make of the same attributes: see
`hlo/text_attributes.py`. An entry may name others, and a file may lie: how deep entries go,
and how large they unfold, is bounded.
"""

from __future__ import annotations

from typing import Any

from headrace.base.errors import HeadraceError
from headrace.base.symbols import dim
from headrace.importers.hlo.bytecode import builtin_entries, vhlo_entries
from headrace.importers.hlo.bytecode.byte_cursor import ByteCursor
from headrace.importers.hlo.bytecode.container import Container, Entry, text_of
from headrace.importers.hlo.text_attributes import AttributeReader

DEEPEST = 64
"""Entries within entries."""
LARGEST = 1 << 22
"""Parts of one entry, each counted as often as it is named; 64 characters are one."""

_READERS = {
    "builtin": (builtin_entries.read_attribute, builtin_entries.read_type),
    "vhlo": (vhlo_entries.read_attribute, vhlo_entries.read_type),
}


class Entries:
    """The tables of a file.

    Args:
        file: their container.
        source: names it in messages.
    """

    def __init__(self, file: Container, source: str) -> None:
        self.file = file
        self.source = source
        self._sizes = 0
        self._known: dict[tuple[bool, int], tuple[Any, int]] = {}
        self._open: list[int] = []

    def attribute(self, cursor: ByteCursor, number: int) -> Any:
        """The attribute of a number that stands behind `cursor`."""
        return self._entry(cursor, self.file.attributes, number, is_type=False)

    def type(self, cursor: ByteCursor, number: int) -> Any:
        """The type of a number that stands behind `cursor`."""
        return self._entry(cursor, self.file.types, number, is_type=True)

    def place(self, cursor: ByteCursor, number: int) -> str | None:
        """Where something stands in the user's text, where the file says so."""
        depth = len(self._open)
        try:
            found = self.attribute(cursor, number)
        except HeadraceError:
            # Of a dialect unknown here: a place is nothing to refuse a model for.
            del self._open[depth:]
            return None
        return found if isinstance(found, str) else None

    def add(self, parts: int) -> None:
        """Counts parts of the entry that is being read."""
        self._open[-1] += parts

    def new_size(self) -> Any:
        """A name for a size that nothing says."""
        self._sizes += 1
        return dim(f"size{self._sizes - 1}")

    def _entry(
        self, cursor: ByteCursor, table: list[Entry], number: int, *, is_type: bool
    ) -> Any:
        if number >= len(table):
            what = "type" if is_type else "attribute"
            raise cursor.fail(f"there is no {what} {number} among {len(table)}")
        found = self._known.get((is_type, number))
        if found is None:
            if len(self._open) >= DEEPEST:
                raise cursor.fail(f"entries stand {DEEPEST} deep in one another")
            self._open.append(1)
            value = self._read(table[number], is_type=is_type)
            found = self._known[is_type, number] = value, self._open.pop()
        if self._open:
            self._open[-1] += found[1]
        if found[1] > LARGEST:
            raise cursor.fail(f"an entry unfolds to more than {LARGEST} parts")
        return found[0]

    def _read(self, entry: Entry, *, is_type: bool) -> Any:
        # Read anew each time: whoever was refused before must not leave a position behind.
        cursor = EntryCursor(entry.data, self)
        if not entry.encoded:
            return self._of_text(cursor, is_type=is_type)
        readers = _READERS.get(entry.dialect)
        if readers is None:
            raise cursor.fail(f"the dialect '{entry.dialect}' is not known", 0)
        value = readers[is_type](cursor)
        if cursor.left:
            raise cursor.fail(f"{cursor.left} bytes are left behind an entry")
        return value

    def _of_text(self, cursor: EntryCursor, *, is_type: bool) -> Any:
        text = cursor.until_zero().decode(errors="replace")
        reader = AttributeReader(text, self.source, [])
        try:
            value = reader.type() if is_type else reader.attribute()
        except (HeadraceError, RecursionError) as wrong:
            raise cursor.fail(f"'{text[:80]}' cannot be read", 0) from wrong
        if reader.at < reader.end:
            raise cursor.fail(f"'{text[:80]}' cannot be read", 0)
        return value


class EntryCursor(ByteCursor):
    """Reads one entry, and those that it names."""

    def __init__(self, data: ByteCursor, entries: Entries) -> None:
        super().__init__(data.data, data.source, data.base)
        self.entries = entries

    def attribute(self) -> Any:
        return self.entries.attribute(self, self.varint())

    def attributes(self) -> list[Any]:
        return [self.attribute() for _ in range(self.count())]

    def type(self) -> Any:
        return self.entries.type(self, self.varint())

    def types(self) -> list[Any]:
        return [self.type() for _ in range(self.count())]

    def string(self) -> str:
        found = text_of(self, self.entries.file.strings, self.varint())
        self.entries.add(len(found) // 64)
        return found

    def signed_list(self) -> list[int]:
        return [self.signed() for _ in range(self.count())]

    def integer(self, bits: int) -> int:
        """Of a known width, its sign kept."""
        if bits <= 8:
            value = self.byte()
        elif bits <= 64:
            value = self.signed()
        else:
            raise self.fail(f"an integer of {bits} bits")
        value &= (1 << bits) - 1
        return value - (1 << bits) if value >> (bits - 1) else value
