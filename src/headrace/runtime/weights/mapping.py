"""The weight pool of a `.hrx`, mapped read-only; pages come and go as the plan says.

Measured (Linux 6.18, ext4): populating cached pages runs at 700 GB/s and more, because
the page cache keeps 2 MiB folios; dropping them is as quick. But one touched page may
map its whole folio. So the mapping is cut at the borders of what comes and goes, by
giving neighbours different (harmless) read-ahead advice: the kernel never maps across
such a border, and what is resident is exactly what the plan allows.

What the page cache has lost, or never held, is read in folios of 2 MiB: the mapping asks for
them. By read-ahead alone half of a decoder's file came back in smaller ones, which take a
hundred times as long to map.
"""

from __future__ import annotations

import errno
import itertools
import mmap
import os
import weakref
from collections.abc import Sequence
from typing import Any

from headrace.base.errors import HeadraceError, error
from headrace.runtime.memory import PAGE_BYTES, advise, map_memory, unmap_memory

POPULATE_READ = 22
DONT_NEED = mmap.MADV_DONTNEED
_HUGE_PAGES = 14
_NORMAL = mmap.MADV_NORMAL
_SEQUENTIAL = mmap.MADV_SEQUENTIAL


class PoolMapping:
    """The pool of one file at one address, with the file's identity watched.

    Attributes:
        address: of the pool's first byte; 0 for an empty pool.
        offset_bytes: where the pool begins in the file.
        populates: whether `madvise` can populate (Linux 5.14); else pages are touched.
        descriptor: of the opened file.
        identity: its inode, bytes and nanoseconds of modification when it was opened.
    """

    def __init__(self, artifact: Any) -> None:
        """Raises HeadraceError HR3011 (cannot be mapped), HR3105 (it has changed)."""
        self.path: str = artifact.path
        self.size_bytes: int = artifact.pool_size_bytes
        self.offset_bytes: int = artifact.pool_offset_bytes
        known = artifact.file_identity
        self.identity: tuple[int, int, int] = (known.inode, known.size_bytes, known.modified_ns)
        self.address = 0
        self.populates = True
        try:
            self.descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as problem:
            raise self._unreadable(problem) from problem
        try:
            self.check_unchanged()
            if self.size_bytes:
                self.address = map_memory(
                    self.size_bytes, self.descriptor, artifact.pool_offset_bytes
                )
                advise(self.address, self.size_bytes, _HUGE_PAGES)
                status = advise(self.address, min(PAGE_BYTES, self.size_bytes), POPULATE_READ)
                self.populates = status != errno.EINVAL
                advise(self.address, self.size_bytes, DONT_NEED)
        except OSError as problem:
            os.close(self.descriptor)
            raise self._unreadable(problem) from problem
        except HeadraceError:
            os.close(self.descriptor)
            raise
        self._release = weakref.finalize(
            self, _release, self.address, self.size_bytes, self.descriptor
        )
        self._release.atexit = False

    def _unreadable(self, problem: OSError) -> HeadraceError:
        return error(
            "HR3011",
            "the weights cannot be mapped",
            at=self.path,
            notes=problem.strerror or str(problem),
        )

    def check_unchanged(self) -> None:
        """Raises HeadraceError HR3105 where the file was written to or cut since it opened.

        Reading a page behind the end of a file that was cut would kill the process, so
        every step asks first; the CPU's command machine does it itself.
        """
        status = os.fstat(self.descriptor)
        if (status.st_ino, status.st_size, status.st_mtime_ns) == self.identity:
            return
        raise error(
            "HR3105",
            "the file has changed since it was opened",
            at=self.path,
            notes=f"it had {self.identity[1]} bytes and has {status.st_size} now",
            helps="load the module again; write a new file beside it and rename it instead",
        )

    def cut_at(self, borders: Sequence[int]) -> None:
        """Makes the kernel map nothing across these offsets (4 KiB aligned)."""
        if not self.address:
            return
        inner = sorted({b for b in borders if 0 < b < self.size_bytes})
        places = [0, *inner, self.size_bytes]
        for number, (begin, end) in enumerate(itertools.pairwise(places)):
            advise(self.address + begin, end - begin, _SEQUENTIAL if number % 2 else _NORMAL)

    def populate(self, begin: int, end: int) -> None:
        """Brings a range in. Raises HeadraceError HR3012 where it cannot be read."""
        if begin >= end:
            return
        self.check_unchanged()
        if not self.populates:
            self._touch(begin, end)
            return
        number = errno.EAGAIN
        while number in (errno.EAGAIN, errno.EINTR):
            number = advise(self.address + begin, end - begin, POPULATE_READ)
        if number:
            raise self.read_failure(number, begin)

    def _touch(self, begin: int, end: int) -> None:
        import ctypes

        for place in range(begin, end, PAGE_BYTES):
            _ = ctypes.c_ubyte.from_address(self.address + place).value

    def read_failure(self, number: int, offset_bytes: int) -> HeadraceError:
        """The error for a range that could not be brought in."""
        try:
            self.check_unchanged()
        except HeadraceError as changed:
            return changed
        return error(
            "HR3012",
            "weights could not be read",
            at=f"{self.path}: pool offset {offset_bytes}",
            notes=os.strerror(number),
        )

    def drop(self, begin: int, end: int) -> None:
        """Gives the memory of a range back."""
        if begin < end:
            advise(self.address + begin, end - begin, DONT_NEED)

    def close(self) -> None:
        """Unmaps the pool and closes the file; also done when nobody refers to it."""
        self._release()
        self.address = 0


def _release(address: int, size_bytes: int, descriptor: int) -> None:
    if address:
        unmap_memory(address, size_bytes)
    os.close(descriptor)
