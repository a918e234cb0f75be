"""Writes that the page cache keeps in pages of 2 MiB, which a mapping takes whole.

Linux makes a page as large as the write that first fills it, if it lies at a multiple of its
size. Weights written one after another, wherever they begin, left three quarters of a
decoder's 660 MB in smaller pages: brought at 31 GB/s instead of hundreds.
"""

from __future__ import annotations

from typing import IO

from headrace.artifact.pool import HUGE_PAGE_BYTES

_ZEROS = bytes(1 << 16)


class WholePages:
    """Gathers bytes until they end at a multiple of 2 MiB of the file."""

    def __init__(self, file: IO[bytes], offset_bytes: int) -> None:
        """`offset_bytes` is where in the file the first byte stands."""
        self._file = file
        self._at = offset_bytes
        self._kept = bytearray()
        file.seek(offset_bytes)

    def skip_to(self, offset_bytes: int) -> None:
        """Zeros up to a place in the file."""
        while self._at < offset_bytes:
            self.write(memoryview(_ZEROS)[: offset_bytes - self._at])

    def write(self, data: memoryview) -> None:
        """The next bytes."""
        while data:
            room = HUGE_PAGE_BYTES - self._at % HUGE_PAGE_BYTES
            if room == HUGE_PAGE_BYTES and len(data) >= HUGE_PAGE_BYTES:
                count = len(data) // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
                self._file.write(data[:count])
            else:
                count = min(room, len(data))
                self._kept += data[:count]
            self._at += count
            data = data[count:]
            if self._at % HUGE_PAGE_BYTES == 0:
                self.flush()

    def flush(self) -> None:
        """Writes what is left."""
        if self._kept:
            self._file.write(self._kept)
            self._kept.clear()
