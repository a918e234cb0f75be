"""The third level: weights that host memory has no room for come from the disk, ahead of use.

A few slots of pinned memory are filled by a thread of readers in the order in which a step's
transfers run, again and again. One word of pinned memory for each such transfer says whether
its bytes are there: the reader sets it, the device's copy stream waits for it, copies, and
clears it, which gives the slot to a later transfer. So a step's graph is the same every step,
and the disk works on through the end of one step into the next.

Reads bypass the page cache where the file's system lets them: bytes move once, and what the
cache would hold is memory, too.
"""

from __future__ import annotations

import ctypes
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from headrace.artifact import schema
from headrace.base.errors import HeadraceError, error
from headrace.plan.budget import format_bytes
from headrace.plan.model import Plan, PlannedBranch, PlannedJump
from headrace.runtime.drivers.cuda_memory import PinnedBuffer
from headrace.runtime.memory import PAGE_BYTES, page_aligned
from headrace.runtime.ranges import merged
from headrace.runtime.weights.mapping import PoolMapping
from headrace.runtime.weights.on_host import host_ranges

SLOTS = 6
"""Slots where the limit has room; two are the least: one is read while another is copied."""

_LEAST_SLOTS = 2
_PIECE_BYTES = 4 << 20
_READERS = 4
"""Pieces read at a time: a disk answers several as fast as one."""

_POLL_S = 50e-6
FULL, EMPTY = 1, 0


@dataclass(frozen=True)
class HostShare:
    """What of a plan's weights stands in host memory, and what comes from the disk.

    Attributes:
        held: ranges of the pool in pinned memory.
        cold: fetches whose bytes are read from the disk each step, in order.
        slots, slot_bytes: of the ring between disk and device.
    """

    held: tuple[tuple[int, int], ...]
    cold: tuple[int, ...] = ()
    slots: int = 0
    slot_bytes: int = 0


def share_host(module: schema.Module, plan: Plan, limit_bytes: int | None) -> HostShare:
    """Splits what streams between pinned memory and the disk.

    Tables stay in pinned memory: rows of them are read where they stand. Of what streams the
    first is held, as much as there is room for: the disk decides the time of a step, whatever
    it brings.

    Raises:
        HeadraceError HR3017: the limit is less than the tables and the least ring; HR3018:
            the function has branches and the limit is less than what streams.
    """
    wanted = tuple(host_ranges(module, plan))
    total = sum(end - begin for begin, end in wanted)
    if limit_bytes is None or total <= limit_bytes:
        return HostShare(wanted)
    if any(isinstance(c, PlannedBranch | PlannedJump) for c in plan.commands):
        raise error(
            "HR3018",
            f"a host limit of {format_bytes(limit_bytes)} leaves no room for what streams",
            notes=(
                f"{format_bytes(total)} stream from host memory at this budget",
                "in a function with branches what comes next is not known ahead of time, so "
                "nothing is read from the disk",
            ),
            helps="raise the host limit, or the weight budget",
        )
    segments = module.segments
    streamed = sorted({f.segment for f in plan.fetches})
    ranges = [(segments[s].offset_bytes, segments[s].size_bytes) for s in streamed]
    tables = total - sum(size for _, size in ranges)
    slot = page_aligned(max((size for _, size in ranges), default=0))
    # A page holds the words of a thousand transfers.
    words = page_aligned(4 * max(1, len(plan.fetches)))
    least = tables + _LEAST_SLOTS * slot + words
    if least > limit_bytes:
        raise error(
            "HR3017",
            f"a host limit of {format_bytes(limit_bytes)} is too little",
            notes=(
                f"the minimum at this budget is {format_bytes(least)}",
                f"of this {format_bytes(tables)} are tables, whose rows are read in place",
            ),
            helps="raise the host limit, or the weight budget",
        )
    slots = min(SLOTS, (limit_bytes - tables - words) // slot)
    room = limit_bytes - tables - words - slots * slot
    held: list[tuple[int, int]] = []
    cold: set[int] = set()
    for segment, (begin, size) in zip(streamed, ranges, strict=True):
        if size <= room:
            room -= size
            held.append((begin, begin + size))
        else:
            cold.add(segment)
    brought = {(b, b + size) for b, size in ranges}
    pieces = [
        (s.offset_bytes, s.offset_bytes + s.size_bytes)
        for s in segments
        if any(b <= s.offset_bytes < e for b, e in wanted)
        and (s.offset_bytes, s.offset_bytes + s.size_bytes) not in brought
    ]
    fetches = tuple(n for n, f in enumerate(plan.fetches) if f.segment in cold)
    return HostShare(tuple(merged([*pieces, *held])), fetches, int(slots), slot)


class DiskRing:
    """Slots of pinned memory that a thread fills for one plan, step after step."""

    def __init__(self, calls: Any, mapping: PoolMapping, plan: Plan, share: HostShare) -> None:
        """Raises HeadraceError HR3010, HR3014: no memory, or it may not be pinned."""
        self._mapping = mapping
        self._offset = mapping.offset_bytes
        self._plan = plan
        self._slot_bytes = share.slot_bytes
        self._places = {fetch: number % share.slots for number, fetch in enumerate(share.cold)}
        self._cold = share.cold
        self._slots = share.slots
        self._buffer = PinnedBuffer(calls, share.slots * share.slot_bytes)
        try:
            self._words = PinnedBuffer(calls, 4 * len(share.cold))
        except BaseException:
            self._buffer.close()
            raise
        self._flags: Any = (ctypes.c_uint32 * len(share.cold)).from_address(self._words.address)
        self._numbers = {fetch: number for number, fetch in enumerate(share.cold)}
        self._problem: HeadraceError | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._descriptor, self._direct = self._open()

    def _open(self) -> tuple[int, bool]:
        """The file for reading past the page cache, where its system lets us."""
        try:
            descriptor = os.open(self._mapping.path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
        except OSError:
            return os.open(self._mapping.path, os.O_RDONLY | os.O_CLOEXEC), False
        return descriptor, True

    @property
    def held_bytes(self) -> int:
        """Bytes pinned."""
        return self._buffer.size_bytes + self._words.size_bytes

    @property
    def read_bytes(self) -> int:
        """Bytes read from the disk for each step."""
        return sum(self._plan.fetches[f].size_bytes for f in self._cold)

    def holds(self, fetch: int) -> bool:
        """Whether a fetch comes through this ring."""
        return fetch in self._places

    def source(self, fetch: int) -> int:
        """Address of the slot that a fetch is copied from."""
        return self._buffer.address + self._places[fetch] * self._slot_bytes

    def word(self, fetch: int) -> int:
        """Address of the word that says whether a fetch's bytes are there."""
        return self._words.address + 4 * self._numbers[fetch]

    # -- reading ----------------------------------------------------------------------

    def restart(self) -> None:
        """Begins again at the first transfer; nothing may still be copied from the slots."""
        self._end_thread()
        ctypes.memset(self._words.address, 0, self._words.size_bytes)
        self._problem = None
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._read_on, args=(self._stop,), name="headrace disk", daemon=True
        )
        self._thread.start()

    def check(self) -> None:
        """Raises what the reader met since it was last asked."""
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem

    def _read_on(self, stop: threading.Event) -> None:
        with ThreadPoolExecutor(_READERS) as pool:
            last = [-1] * self._slots
            while not stop.is_set():
                for number, fetch in enumerate(self._cold):
                    slot = self._places[fetch]
                    if last[slot] >= 0 and not self._wait_empty(last[slot], stop):
                        return
                    last[slot] = number
                    try:
                        self._read(fetch, pool)
                    except (HeadraceError, OSError) as problem:
                        self._fail(problem, stop)
                        return
                    self._flags[number] = FULL

    def _wait_empty(self, number: int, stop: threading.Event) -> bool:
        """Until a transfer has been copied; False where the reader is to end."""
        while self._flags[number] != EMPTY:
            if stop.wait(_POLL_S):
                return False
        return not stop.is_set()

    def _read(self, fetch: int, pool: ThreadPoolExecutor) -> None:
        planned = self._plan.fetches[fetch]
        self._mapping.check_unchanged()
        target, begin = self.source(fetch), self._offset + planned.offset_bytes
        places = range(0, planned.size_bytes, _PIECE_BYTES)

        def read(at: int) -> None:
            size = min(_PIECE_BYTES, planned.size_bytes - at)
            self._read_piece(target + at, begin + at, size)

        list(pool.map(read, places))

    def _read_piece(self, target: int, begin: int, size: int) -> None:
        done = 0
        while done < size:
            view = (ctypes.c_ubyte * (size - done)).from_address(target + done)
            count = os.preadv(self._descriptor, [view], begin + done)
            if not count:
                raise self._mapping.read_failure(5, begin - self._offset)
            # A direct read that stops inside a page is taken up at its beginning.
            done += count if count == size - done else count // PAGE_BYTES * PAGE_BYTES
        if not self._direct:
            os.posix_fadvise(self._descriptor, begin, size, os.POSIX_FADV_DONTNEED)

    def _fail(self, problem: Exception, stop: threading.Event) -> None:
        """Keeps the error, and lets the device go on: the step is then given up."""
        if isinstance(problem, OSError):
            problem = self._mapping.read_failure(problem.errno or 5, 0)
        assert isinstance(problem, HeadraceError)
        self._problem = problem
        while not stop.wait(_POLL_S):
            for number in range(len(self._cold)):
                self._flags[number] = FULL

    # -- end --------------------------------------------------------------------------

    def _end_thread(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def close(self) -> None:
        """Ends the reader and gives everything back; the device must be idle."""
        self._end_thread()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._buffer.close()
        self._words.close()
