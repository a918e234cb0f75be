"""Copies of host memory by several threads: one alone does not keep up with a GPU's link."""

from __future__ import annotations

import ctypes
import threading

_COPY_THREADS = 4
"""One thread copies 7 GB/s, four 27, more no more (measured, docs/measured/h200.md)."""

_COPY_BYTES = 1 << 20
"""The least that is worth a thread."""


def copy_in_threads(target: int, source: int, size_bytes: int) -> None:
    """Copies host memory; pages of `source` that are not there yet are read."""
    count = max(1, min(_COPY_THREADS, size_bytes // _COPY_BYTES))
    part = -(-size_bytes // count)

    def copy(begin: int) -> None:
        # ctypes lets other threads run meanwhile.
        ctypes.memmove(target + begin, source + begin, min(part, size_bytes - begin))

    threads = [
        threading.Thread(target=copy, args=(begin,)) for begin in range(part, size_bytes, part)
    ]
    for thread in threads:
        thread.start()
    copy(0)
    for thread in threads:
        thread.join()
