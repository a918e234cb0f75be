"""Weights on a CUDA device: what stays in one arena, what streams from pinned host memory.

The arena holds the resident segments side by side in the pool's order, then the ring. So
neighbours in the pool that both stay are neighbours on the device too, and a weight cut
into segments keeps one address for all slices that stay.

What streams, and tables that only rows are read of, is copied once from the file into
pinned host memory: at the pool's own offsets of one reserved range of addresses, so that
places need no table. Kernels read rows of a table over the link where they stand.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from headrace.artifact import schema
from headrace.base.errors import error
from headrace.plan.model import Address, Plan
from headrace.runtime.drivers.cuda_calls import CudaCalls
from headrace.runtime.drivers.cuda_memory import PinnedBuffer
from headrace.runtime.drivers.host_copies import copy_in_threads
from headrace.runtime.memory import Slab, advise, page_aligned
from headrace.runtime.ranges import merged, without
from headrace.runtime.weights.mapping import DONT_NEED, PoolMapping
from headrace.runtime.weights.on_host import host_ranges

_BOUNCE_BYTES = 16 << 20
"""Of each of the two buffers that resident weights are loaded through."""

_IN_PLACE = -2


class HostPool:
    """Parts of the pool in pinned host memory, each at its own offset from `address`.

    Attributes:
        ranges: what is held, each pinned as one.
    """

    def __init__(self, calls: CudaCalls, mapping: PoolMapping) -> None:
        self._calls = calls
        self._mapping = mapping
        # Addresses only: pages come when they are written.
        self._slab = Slab(mapping.size_bytes)
        self.ranges: list[tuple[int, int]] = []
        self._release = weakref.finalize(self, _unpin, calls, self._slab, self.ranges)
        self._release.atexit = False

    @property
    def address(self) -> int:
        return self._slab.address

    @property
    def held_bytes(self) -> int:
        """Bytes pinned."""
        return sum(end - begin for begin, end in self.ranges)

    def hold(self, wanted: Sequence[tuple[int, int]]) -> None:
        """Brings what is missing of these ranges of whole segments.

        Raises:
            HeadraceError HR3012 (cannot be read), HR3014 (cannot be pinned).
        """
        for begin, end in without(wanted, self.ranges):
            self._mapping.populate(begin, end)
            copy_in_threads(self.address + begin, self._mapping.address + begin, end - begin)
            self._mapping.drop(begin, end)
            try:
                self._calls.pin(self.address + begin, end - begin)
            except BaseException:
                advise(self.address + begin, end - begin, DONT_NEED)
                raise
            self.ranges.append((begin, end))

    def release(self) -> None:
        """Unpins everything; nothing may still be copied from it."""
        _unpin(self._calls, self._slab, self.ranges)

    def close(self) -> None:
        """Unpins everything and gives the addresses back."""
        self._release()
        self._slab.close()


def _unpin(calls: CudaCalls, slab: Slab, ranges: list[tuple[int, int]]) -> None:
    if calls.is_open and ranges:
        calls.enter()
    for begin, end in ranges:
        calls.unpin(slab.address + begin)
        advise(slab.address + begin, end - begin, DONT_NEED)
    ranges.clear()


class CudaWeights:
    """The weights of one module. Every method but the properties holds the device's lock.

    Attributes:
        module: whose weights they are.
        generation: grows when addresses change; graphs made before are then stale.
        head: the plan whose first fetches stand in the ring already, or None.
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
        self._arena = 0
        self._arena_bytes = 0
        self._resident: dict[int, int] = {}
        self._ring = 0

    # -- what is where ----------------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        """See `api.Weights.held_bytes`: of the device."""
        return self._arena_bytes

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
        self._plan = self.head = None
        ring_bytes = max((f.ring_offset_bytes + f.size_bytes for f in plan.fetches), default=0)
        layout = plan.resident, ring_bytes
        self.generation += 1
        if layout != self._layout or not self._arena:
            self._device.finish()
            self._lay_out(plan.resident, ring_bytes)
        self._host.hold(host_ranges(self.module, plan))
        self._plan = plan

    def _lay_out(self, resident: tuple[int, ...], ring_bytes: int) -> None:
        """Fills a new arena; first out, then in: both together must not pass the limit."""
        segments = self.module.segments
        self._free_arena()
        size = page_aligned(sum(segments[s].size_bytes for s in resident) + ring_bytes)
        self._arena = self._calls.allocate(size, "weights")
        self._arena_bytes = size
        at = self._arena
        for segment in resident:
            self._resident[segment] = at
            at += segments[segment].size_bytes
        self._ring = at
        try:
            self._load(merged([self._range(s) for s in resident]))
        except BaseException:
            self._free_arena()
            raise
        self._layout = resident, ring_bytes

    def _free_arena(self) -> None:
        address, self._arena, self._arena_bytes = self._arena, 0, 0
        self._layout = ((), 0)
        self._resident.clear()
        self._calls.free(address)

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
        calls.finish(stream)

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
                calls.destroy_event(event)
            for buffer in buffers:
                buffer.close()

    def release(self) -> None:
        """See `api.Weights.release`."""
        with self._device.lock:
            if self._calls.is_open:
                self._calls.enter()
                self._device.finish()
            self._plan = self.head = None
            self.generation += 1
            self._free_arena()
            self._host.release()

    def notes(self) -> tuple[str, ...]:
        """See `api.Weights.notes`."""
        pinned = self._host.held_bytes
        return (f"{pinned} bytes of weights are pinned in host memory",) if pinned else ()

    def close(self) -> None:
        """Gives device and host memory back and unmaps the file."""
        self.release()
        self._host.close()
        self._mapping.close()
