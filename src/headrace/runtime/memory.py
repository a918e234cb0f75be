"""Memory of this host: what is free, honouring cgroup limits, and anonymous slabs."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

from headrace.base.errors import error

PAGE_BYTES = 4096
_HUGE_BYTES = 2 << 20
_MADV_HUGEPAGE = 14
_CGROUP_ROOT = Path("/sys/fs/cgroup")


def page_aligned(size_bytes: int) -> int:
    """Rounded up to whole pages."""
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES


def free_host_bytes() -> int:
    """Bytes this process may still take: available memory, capped by its cgroups."""
    free = _meminfo("MemAvailable")
    for room in _cgroup_rooms():
        free = min(free, room)
    return max(0, free)


def _meminfo(key: str) -> int:
    text = Path("/proc/meminfo").read_text()
    found = re.search(rf"^{key}:\s+(\d+) kB", text, re.MULTILINE)
    return int(found.group(1)) * 1024 if found else 0


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _cgroup_rooms() -> list[int]:
    """Limit less use, for each cgroup from this process' up to the root, v1 and v2."""
    rooms: list[int] = []
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return rooms
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            roots = (_CGROUP_ROOT, _CGROUP_ROOT / "unified")
            names = ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            roots = (_CGROUP_ROOT / "memory",)
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        for root in roots:
            folder = root / path.strip("/")
            while folder == root or root in folder.parents:
                room = _room(folder, *names)
                if room is not None:
                    rooms.append(room)
                folder = folder.parent
    return rooms


def _room(folder: Path, limit_name: str, used_name: str, cache_key: str) -> int | None:
    limit, used = _number(folder / limit_name), _number(folder / used_name)
    if limit is None or used is None or limit >= 1 << 60:
        return None
    # Clean page cache is given back under pressure, so it counts as free.
    reclaimable = 0
    try:
        for line in (folder / "memory.stat").read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == cache_key:
                reclaimable = int(value)
    except OSError:
        pass
    return max(0, limit - used + reclaimable)


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

    def close(self) -> None:
        if self.address:
            libc().munmap(self.address, self.size_bytes)
            self.address = 0
            self.size_bytes = 0
