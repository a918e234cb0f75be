"""A place in bytes that nobody vouches for: integers, names, counts, each checked."""

from __future__ import annotations

from headrace.base.errors import HeadraceError, error


class ByteCursor:
    """Reads from `data`; `at` is the position.

    Args:
        data: what may be read.
        source: names the file in messages.
        base: where in the file `data` begins.
    """

    def __init__(self, data: memoryview, source: str, base: int = 0) -> None:
        self.data = data
        self.source = source
        self.base = base
        self.at = 0

    def fail(self, fact: str, at: int | None = None) -> HeadraceError:
        """HR1001 at a position, the current one where none is given."""
        place = self.base + (self.at if at is None else at)
        return error("HR1001", fact, at=f"{self.source}: byte {place}")

    @property
    def left(self) -> int:
        """How many bytes are behind the position."""
        return len(self.data) - self.at

    def byte(self) -> int:
        if self.at >= len(self.data):
            raise self.fail("the file ends too early")
        self.at += 1
        return self.data[self.at - 1]

    def take(self, count: int) -> memoryview:
        """The next bytes, not copied."""
        if count > self.left:
            raise self.fail(f"{count} bytes are wanted where {self.left} are left")
        self.at += count
        return self.data[self.at - count : self.at]

    def inner(self, count: int) -> ByteCursor:
        """A cursor over the next bytes, which are taken."""
        base = self.base + self.at
        return ByteCursor(self.take(count), self.source, base)

    def varint(self) -> int:
        """One to nine bytes; zeros at the low end of the first count those that follow."""
        first = self.byte()
        if first & 1:
            return first >> 1
        if first == 0:
            return int.from_bytes(self.take(8), "little")
        more = (first & -first).bit_length() - 1
        rest = int.from_bytes(self.take(more), "little")
        return (first >> (more + 1)) | rest << (7 - more)

    def signed(self) -> int:
        """As `varint`, the sign in the lowest bit."""
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def count(self) -> int:
        """A number of things that follow: never more than bytes are left."""
        begin = self.at
        found = self.varint()
        if found > self.left:
            raise self.fail(f"{found} elements do not fit into {self.left} bytes", begin)
        return found

    def until_zero(self) -> bytes:
        """The bytes before the next zero, which is taken too."""
        rest = bytes(self.data[self.at :])
        end = rest.find(b"\0")
        if end < 0:
            raise self.fail("a string is not closed")
        self.at += end + 1
        return rest[:end]

    def section(self) -> tuple[int, ByteCursor]:
        """The number of a section, and a cursor over what it holds."""
        head = self.byte()
        length = self.varint()
        if head & 0x80:
            begin = self.at
            alignment = self.varint()
            if alignment == 0 or alignment & (alignment - 1) or alignment > 1 << 20:
                raise self.fail(f"{alignment} is no alignment", begin)
            self.take(-(self.base + self.at) % alignment)
        return head & 0x7F, self.inner(length)
