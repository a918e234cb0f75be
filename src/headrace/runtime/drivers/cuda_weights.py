"""Weights on a CUDA device: what stays in one arena, what streams from pinned host memory.

The arena (`cuda_arena.py`) holds the resident segments side by side in the pool's order, then
the ring; a new budget moves them in it. So
neighbours in the pool that both stay are neighbours on the device too, and a weight cut
into segments keeps one address for all slices that stay.

What streams, and tables that only rows are read of, stands in pinned host memory: the mapped
file itself, or a copy at the pool's own offsets of one reserved range of addresses, so that
places need no table. Kernels read rows of a table over the link where they stand.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace.artifact import schema
from headrace.base.errors import HeadraceError, error
from headrace.plan.model import Address, Plan
from headrace.runtime.drivers.cuda_arena import Arena, Move, moved_down, moved_up
from headrace.runtime.drivers.cuda_calls import CudaCalls
from headrace.runtime.drivers.cuda_disk import DiskRing, HostShare, share_host
from headrace.runtime.drivers.cuda_memory import PinnedBuffer
from headrace.runtime.drivers.host_copies import copy_in_threads
from headrace.runtime.memory import Slab, advise, free_host_bytes, page_aligned
from headrace.runtime.ranges import merged, without
from headrace.runtime.weights.mapping import DONT_NEED, PoolMapping

_BOUNCE_BYTES = 16 << 20
"""Of each of the two buffers that resident weights are loaded through."""

_IN_PLACE = -2


class HostPool:
    """Parts of the pool in pinned host memory, each at its own offset from `address`.

    Where the device takes it the mapped file itself is pinned: nothing is copied, and it costs
    36 ms a GiB (measured, docs/measured/h200.md). Else pages of memory of our own are.

    Attributes:
        in_file: whether the file's pages are pinned.
        ranges: what is held, each pinned as one.
    """

    def __init__(self, calls: CudaCalls, mapping: PoolMapping) -> None:
        self._calls = calls
        self._mapping = mapping
        self.in_file = bool(mapping.size_bytes) and calls.pins_files(mapping.address)
        # Addresses only: pages come when they are written.
        self._slab = Slab(0 if self.in_file else mapping.size_bytes)
        self.address = mapping.address if self.in_file else self._slab.address
        self.ranges: list[tuple[int, int]] = []
        self._release = weakref.finalize(
            self, _unpin, calls, self.address, not self.in_file, self.ranges
        )
        self._release.atexit = False

    @property
    def held_bytes(self) -> int:
        """Bytes pinned."""
        return sum(end - begin for begin, end in self.ranges)

    def hold_file(self) -> None:
        """Pins the whole file where it can be and memory is plenty: later changes of what
        streams then pin nothing. Where the system refuses, what streams is pinned as needed.

        Raises:
            HeadraceError HR3012: the file cannot be read.
        """
        size = self._mapping.size_bytes
        if not self.in_file or self.ranges or 2 * size > free_host_bytes():
            return
        try:
            self.hold([(0, size)])
        except HeadraceError as problem:
            if problem.diagnostics[0].code != "HR3014":
                raise

    def hold(self, wanted: Sequence[tuple[int, int]]) -> None:
        """Brings what is missing of these ranges of whole segments.

        Raises:
            HeadraceError HR3012 (cannot be read), HR3014 (cannot be pinned).
        """
        for begin, end in without(wanted, self.ranges):
            self._mapping.populate(begin, end)
            place, size = self.address + begin, end - begin
            if self.in_file:
                self._calls.pin(place, size, only_read=True)
                self.ranges.append((begin, end))
                continue
            copy_in_threads(place, self._mapping.address + begin, size)
            self._mapping.drop(begin, end)
            try:
                self._calls.pin(place, size)
            except BaseException:
                advise(place, size, DONT_NEED)
                raise
            self.ranges.append((begin, end))

    def release(self) -> None:
        """Unpins everything; nothing may still be copied from it."""
        _unpin(self._calls, self.address, not self.in_file, self.ranges)

    def close(self) -> None:
        """Unpins everything and gives the addresses back."""
        self._release()
        self._slab.close()


def _unpin(calls: CudaCalls, address: int, drops: bool, ranges: list[tuple[int, int]]) -> None:
    if calls.is_open and ranges:
        calls.enter()
    for begin, end in ranges:
        calls.unpin(address + begin)
        if drops:
            advise(address + begin, end - begin, DONT_NEED)
    ranges.clear()


class CudaWeights:
    """The weights of one module. Every method but the properties holds the device's lock.

    Attributes:
        module: whose weights they are.
        generation: grows when addresses change; graphs made before are then stale.
        head: the plan whose first fetches stand in the ring already, or None.
        disk: the ring through which the disk brings what host memory has no room for.
    """

    def __init__(self, device: Any, mapping: PoolMapping, module: schema.Module) -> None:
        self._device = device
        self._calls: CudaCalls = device.calls
        self._mapping = mapping
        self._host = HostPool(self._calls, mapping)
        self.module = module
        self.generation = 0
        self.head: Plan | None = None
        self._starts = [s.offset_bytes for s in module.segments]
        self._plan: Plan | None = None
        self._layout: tuple[tuple[int, ...], int] = ((), 0)
        self._arena: Arena | None = None
        self._resident: dict[int, int] = {}
        self._ring = 0
        self.disk: DiskRing | None = None

    # -- what is where ----------------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        """See `api.Weights.held_bytes`: of the device."""
        return self._arena.size_bytes if self._arena is not None else 0

    @property
    def host_address(self) -> int:
        """Where the pool's first byte would stand in pinned host memory."""
        return self._host.address

    @property
    def ring(self) -> int:
        """Device address of the ring."""
        return self._ring

    def address(self, place: Address, skipped_bytes: int, size_bytes: int) -> int:
        """The device's address of a binding in the pool.

        Args:
            skipped_bytes: what a slice skips of the binding: its first byte decides which
                segment holds it.
            size_bytes: of the binding; an empty one stands nowhere.

        Raises:
            HeadraceDefect HR9305: the plan does not bring it.
        """
        if not size_bytes:
            return 0
        if place.index == _IN_PLACE:
            return self._host.address + place.offset_bytes
        if place.index >= 0:
            plan = self._plan
            assert plan is not None
            fetch = plan.fetches[place.index]
            return (
                self._ring + fetch.ring_offset_bytes - fetch.offset_bytes + place.offset_bytes
            )
        segment = bisect_right(self._starts, place.offset_bytes + skipped_bytes) - 1
        base = self._resident.get(segment)
        if base is None:
            raise error("HR9305", f"a plan reads segment {segment}, which does not stay")
        return base - self._starts[segment] + place.offset_bytes

    # -- coming and going -------------------------------------------------------------

    def activate(self, plan: Plan) -> None:
        """See `api.Weights.activate`."""
        with self._device.lock:
            self._calls.enter()
            self.begin_step(plan)

    def begin_step(self, plan: Plan) -> None:
        """Before a step of `plan`. Raises HeadraceError where weights cannot be read."""
        self._mapping.check_unchanged()
        if self._plan is plan:
            return
        # What a limit of host memory does not allow is refused before anything changes.
        share = share_host(self.module, plan, self._device.host_limit_bytes)
        self._plan = self.head = None
        self._close_disk()
        ring_bytes = max((f.ring_offset_bytes + f.size_bytes for f in plan.fetches), default=0)
        layout = plan.resident, ring_bytes
        self.generation += 1
        if layout != self._layout or self._arena is None:
            self._device.finish()
            if self._device.host_limit_bytes is None:
                self._host.hold_file()
            self._lay_out(plan.resident, ring_bytes)
        self._hold(plan, share)
        self._plan = plan

    def _hold(self, plan: Plan, share: HostShare) -> None:
        """Pins what is read from host memory, and opens the ring for what the disk brings."""
        limited = self._device.host_limit_bytes is not None
        if limited and without(self._host.ranges, share.held):
            # First out, then in: both together must not pass the limit.
            self._device.finish()
            self._host.release()
        self._host.hold(share.held)
        if share.cold:
            self.disk = DiskRing(self._calls, self._mapping, plan, share)

    def restart_disk(self) -> None:
        """The ring from the disk begins again at a step's first transfer."""
        if self.disk is not None:
            self._poll()
            self.disk.restart()

    def _poll(self) -> None:
        """Waits for both streams while the reader goes on: transfers may wait for it."""
        self._calls.poll(self._device.stream)
        self._calls.poll(self._device.copy_stream)

    def _close_disk(self) -> None:
        disk, self.disk = self.disk, None
        if disk is not None:
            if self._calls.is_open:
                self._poll()
            disk.close()

    def _lay_out(self, resident: tuple[int, ...], ring_bytes: int) -> None:
        """Makes the arena that of a plan: what stayed before moves, the rest is brought.

        First out, then in: both together must not pass the limit. What comes from pinned memory
        may still be on its way afterwards: whatever is put on the streams waits for it.
        """
        segments = self.module.segments
        places, at = dict[int, int](), 0
        for segment in resident:
            places[segment] = at
            at += segments[segment].size_bytes
        size = page_aligned(at + ring_bytes)
        before, self._resident = self._resident, {}
        self._layout = ((), 0)
        try:
            kept = self._resize(size, [s for s in resident if s in before], before)
            base = self._arena.address if self._arena is not None else 0
            self._resident = {segment: base + place for segment, place in places.items()}
            self._ring = base + at
            self._move(moved_up([(places[s], low, segments[s].size_bytes) for s, low in kept]))
            there = {segment for segment, _ in kept}
            self._load(merged([self._range(s) for s in resident if s not in there]))
            calls, event = self._calls, self._calls.event()
            calls.record(event, self._device.copy_stream)
            calls.wait(self._device.stream, event)
            calls.release_event(event)
        except BaseException:
            self._free_arena()
            raise
        self._layout = resident, ring_bytes

    def _resize(
        self, size: int, kept: Sequence[int], before: Mapping[int, int]
    ) -> list[tuple[int, int]]:
        """Gives the arena a size; the segments that kept their bytes, at its beginning."""
        segments, arena = self.module.segments, self._arena
        total = sum(segments[s].size_bytes for s in kept)
        if arena is not None and not (arena.fits(size) and arena.can_resize(size, total)):
            self._free_arena()
            arena, kept = None, ()
        if arena is None:
            most = sum(s.size_bytes for s in segments)
            arena = self._arena = Arena(self._calls, max(size, most + most // 4))
        found: list[tuple[int, int]] = []
        moves: list[Move] = []
        low = 0
        for segment in kept:
            bytes_ = segments[segment].size_bytes
            moves.append((low, before[segment] - arena.address, bytes_))
            found.append((segment, low))
            low += bytes_
        self._move(moved_down(moves))
        self._calls.finish(self._device.copy_stream)
        arena.resize(size)
        return found

    def _move(self, moves: Iterable[Move]) -> None:
        arena = self._arena
        for target, source, size in moves:
            assert arena is not None
            base = arena.address
            self._calls.copy(base + target, base + source, size, self._device.copy_stream)

    def _free_arena(self) -> None:
        arena, self._arena = self._arena, None
        self._layout = ((), 0)
        self._resident.clear()
        if arena is None:
            return
        try:
            if self._calls.is_open:
                self._calls.finish(self._device.copy_stream)
        finally:
            arena.close()

    def _range(self, segment: int) -> tuple[int, int]:
        found = self.module.segments[segment]
        return found.offset_bytes, found.offset_bytes + found.size_bytes

    def _load(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Copies ranges of the pool that stay: from pinned memory where they are held."""
        calls, stream = self._calls, self._device.copy_stream
        missing = without(ranges, self._host.ranges)
        for begin, end in without(ranges, missing):
            # A copy may not reach from one pinned range into the next.
            for low, high in self._host.ranges:
                first, last = max(begin, low), min(end, high)
                if first < last:
                    place = self._place(first)
                    calls.copy(place, self._host.address + first, last - first, stream)
        self._load_from_file(missing)

    def _place(self, offset_bytes: int) -> int:
        """Where a byte of a segment that stays stands on the device."""
        segment = bisect_right(self._starts, offset_bytes) - 1
        return self._resident[segment] + offset_bytes - self._starts[segment]

    def _load_from_file(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Copies ranges through two pinned buffers in turn."""
        if not ranges:
            return
        calls, stream = self._calls, self._device.copy_stream
        buffers = [PinnedBuffer(calls, _BOUNCE_BYTES) for _ in range(2)]
        free = [calls.event() for _ in buffers]
        turn = 0
        try:
            for begin, end in ranges:
                base = self._place(begin) - begin
                for place in range(begin, end, _BOUNCE_BYTES):
                    size = min(_BOUNCE_BYTES, end - place)
                    self._mapping.populate(place, place + size)
                    calls.finish_event(free[turn])
                    source = buffers[turn].address
                    copy_in_threads(source, self._mapping.address + place, size)
                    calls.copy(base + place, source, size, stream)
                    calls.record(free[turn], stream)
                    turn ^= 1
                self._mapping.drop(begin, end)
        finally:
            calls.finish(stream)
            for event in free:
                calls.release_event(event)
            for buffer in buffers:
                buffer.close()

    def release(self) -> None:
        """See `api.Weights.release`."""
        with self._device.lock:
            if self._calls.is_open:
                self._calls.enter()
            self._close_disk()
            if self._calls.is_open:
                self._device.finish()
            self._plan = self.head = None
            self.generation += 1
            self._free_arena()
            self._host.release()

    def notes(self) -> tuple[str, ...]:
        """See `api.Weights.notes`."""
        pinned, disk = self._host.held_bytes, self.disk
        found = [f"{pinned} bytes of weights are pinned in host memory"] if pinned else []
        if disk is not None:
            found.append(
                f"{disk.read_bytes} bytes are read from the disk for each step, through a ring "
                f"of {disk.held_bytes} pinned bytes"
            )
        return tuple(found)

    def close(self) -> None:
        """Gives device and host memory back and unmaps the file."""
        self.release()
        self._host.close()
        self._mapping.close()
