"""Memory of this host: what is free, honouring cgroup limits, and anonymous slabs."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import weakref
from functools import cache
from pathlib import Path
from typing import Any

from headrace.base.errors import error
from headrace.runtime.cgroups import memory_rooms

PAGE_BYTES = 4096
_HUGE_BYTES = 2 << 20
_MADV_HUGEPAGE = 14


def page_aligned(size_bytes: int) -> int:
    """Rounded up to whole pages."""
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES


def free_host_bytes() -> int:
    """Bytes this process may still take: available memory, capped by its cgroups."""
    free = _meminfo("MemAvailable")
    for room in memory_rooms():
        free = min(free, room)
    return max(0, free)


def _meminfo(key: str) -> int:
    text = Path("/proc/meminfo").read_text()
    found = re.search(rf"^{key}:\s+(\d+) kB", text, re.MULTILINE)
    return int(found.group(1)) * 1024 if found else 0


@cache
def libc() -> Any:
    """The C library with the few calls we need declared."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    ]
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return library


def map_memory(size_bytes: int, descriptor: int = -1, offset_bytes: int = 0) -> int:
    """Maps anonymous memory, or a file read-only and shared; returns the address.

    Raises:
        OSError: the system refuses.
    """
    anonymous = descriptor < 0
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if anonymous else 0)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS if anonymous else mmap.MAP_SHARED
    address = libc().mmap(None, size_bytes, protection, flags, descriptor, offset_bytes)
    if address is None or address == ctypes.c_void_p(-1).value:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return address


def unmap_memory(address: int, size_bytes: int) -> None:
    """Gives back what `map_memory` mapped."""
    libc().munmap(address, size_bytes)


def advise(address: int, size_bytes: int, advice: int) -> int:
    """`madvise`; returns 0 or the errno."""
    if libc().madvise(address, size_bytes, advice) == 0:
        return 0
    return ctypes.get_errno()


class Slab:
    """Anonymous zeroed memory, aligned 4 KiB, given back on `close`.

    Attributes:
        address: 0 for an empty one.
        size_bytes: as asked for, rounded up to pages.
    """

    def __init__(self, size_bytes: int) -> None:
        """Raises HeadraceError HR3010 where the system has no room."""
        self.size_bytes = page_aligned(size_bytes)
        self.address = 0
        if not self.size_bytes:
            return
        try:
            self.address = map_memory(self.size_bytes)
        except OSError as problem:
            raise error(
                "HR3010",
                f"the system gives no {self.size_bytes} bytes for the slab",
                notes=(str(problem), f"{free_host_bytes()} bytes are free"),
            ) from problem
        if self.size_bytes >= _HUGE_BYTES:
            advise(self.address, self.size_bytes, _MADV_HUGEPAGE)
        self._unmap = weakref.finalize(self, unmap_memory, self.address, self.size_bytes)
        self._unmap.atexit = False

    def close(self) -> None:
        """Gives the memory back; also done when nobody refers to the slab any more."""
        if self.address:
            self._unmap()
            self.address = 0
            self.size_bytes = 0
