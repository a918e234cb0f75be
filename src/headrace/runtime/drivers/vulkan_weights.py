"""Weights on a Vulkan device: what stays in its memory, what streams from the host's.

Resident segments stand side by side in the pool's order in a few buffers, the ring in one of
its own. What streams, and tables that only rows are read of, is copied once from the file
into memory of the host that the device's copy engine reads; kernels read rows of a table
over the link where they stand.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from headrace.artifact import schema
from headrace.base.errors import error
from headrace.plan.model import Address, Plan
from headrace.runtime.drivers.host_copies import copy_in_threads
from headrace.runtime.drivers.vulkan_calls import VulkanCalls
from headrace.runtime.drivers.vulkan_heap import Buffer
from headrace.runtime.drivers.vulkan_state import Place
from headrace.runtime.drivers.vulkan_streamer import Streamer, streamer_of
from headrace.runtime.ranges import merged, without
from headrace.runtime.weights.mapping import PoolMapping
from headrace.runtime.weights.on_host import host_ranges

_BOUNCE_BYTES = 16 << 20
"""Of each of the two buffers that resident weights are loaded through."""

_BLOCK_BYTES = 1 << 30
"""Drivers allow allocations of so much at least."""

_IN_PLACE = -2


class HostPool:
    """Parts of the pool in host memory that the device reads.

    Attributes:
        ranges: what is held, each in a buffer of its own.
    """

    def __init__(self, calls: VulkanCalls, mapping: PoolMapping) -> None:
        self._calls = calls
        self._mapping = mapping
        self.ranges: list[tuple[int, int]] = []
        self._buffers: list[Buffer] = []

    @property
    def held_bytes(self) -> int:
        return sum(end - begin for begin, end in self.ranges)

    def hold(self, wanted: Sequence[tuple[int, int]]) -> None:
        """Brings what is missing of these ranges of whole segments.

        Raises:
            HeadraceError HR3012 (cannot be read), HR3014 (no memory).
        """
        if not without(wanted, self.ranges):
            return
        # Whole ranges in one buffer each: a table's rows are read through one binding.
        kept = [pair for pair in zip(self.ranges, self._buffers, strict=True)]
        self.ranges, self._buffers = [], []
        for begin, end in wanted:
            same = next((b for r, b in kept if r[0] <= begin and end <= r[1]), None)
            if same is not None:
                continue
            buffer = self._calls.heap.buffer(end - begin, "upload", "weights that stream")
            self._mapping.populate(begin, end)
            copy_in_threads(buffer.address, self._mapping.address + begin, end - begin)
            self._mapping.drop(begin, end)
            self.ranges.append((begin, end))
            self._buffers.append(buffer)
        for held, buffer in kept:
            if any(r[0] <= held[0] and held[1] <= r[1] for r in self.ranges):
                self._calls.heap.free(buffer)
            else:
                self.ranges.append(held)
                self._buffers.append(buffer)

    def place(self, offset_bytes: int, size_bytes: int) -> Place | None:
        """Where a part of the pool stands whole; None where it does not."""
        found = self._find(offset_bytes, size_bytes)
        return None if found is None else Place(found[0].handle, found[1])

    def address(self, offset_bytes: int, size_bytes: int) -> int:
        """Where a part of the pool that is held stands for the device's kernels."""
        found = self._find(offset_bytes, size_bytes)
        assert found is not None
        return self._calls.address(found[0]) + found[1]

    def _find(self, offset_bytes: int, size_bytes: int) -> tuple[Buffer, int] | None:
        for (begin, end), buffer in zip(self.ranges, self._buffers, strict=True):
            if begin <= offset_bytes and offset_bytes + size_bytes <= end:
                return buffer, offset_bytes - begin
        return None

    def held(self, offset_bytes: int, size_bytes: int) -> Place:
        """Where a part of the pool stands.

        Raises:
            HeadraceDefect HR9305: it is not held.
        """
        found = self.place(offset_bytes, size_bytes)
        if found is None:
            raise error("HR9305", f"a plan reads the pool at {offset_bytes}, which is not held")
        return found

    def release(self) -> None:
        """Gives everything back; nothing may still be copied from it."""
        if self._calls.is_open:
            for buffer in self._buffers:
                self._calls.heap.free(buffer)
        self.ranges.clear()
        self._buffers.clear()


class VulkanWeights:
    """The weights of one module. Every method but the properties holds the device's lock.

    Attributes:
        module: whose weights they are.
        generation: grows when places change; what was recorded before is then stale.
        head: the plan whose first fetches are on their way into the ring, or None.
        arrivals: value of the copies' timeline at which each of these fetches is there.
    """

    def __init__(self, device: Any, mapping: PoolMapping, module: schema.Module) -> None:
        self._device = device
        self._calls: VulkanCalls = device.calls
        self._mapping = mapping
        self.host = HostPool(self._calls, mapping)
        self.module = module
        self.generation = 0
        self.head: Plan | None = None
        self.arrivals: dict[int, int] = {}
        self._starts = [s.offset_bytes for s in module.segments]
        self._plan: Plan | None = None
        self._layout: tuple[tuple[int, ...], int] = ((), 0)
        self._held: list[Buffer] = []
        self._resident: dict[int, Place] = {}
        self.ring = Buffer(0, 0, 0)
        self._streamer: Streamer | None = None
        self._release = weakref.finalize(self, _free, self._calls, self._held)
        self._release.atexit = False

    # -- what is where ----------------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        """See `api.Weights.held_bytes`: of the device."""
        return sum(b.size_bytes for b in self._held)

    def place(self, address: Address, skipped_bytes: int, size_bytes: int) -> Place:
        """Where a binding in the pool stands, from `skipped_bytes` on.

        Args:
            skipped_bytes: what a slice skips of the binding: kernels count from there.
            size_bytes: of the rest of the binding that is used.

        Raises:
            HeadraceDefect HR9305: the plan does not bring it.
        """
        first = address.offset_bytes + skipped_bytes
        if address.index == _IN_PLACE:
            return self.host.held(first, size_bytes)
        if address.index >= 0:
            plan = self._plan
            assert plan is not None
            fetch = plan.fetches[address.index]
            at = fetch.ring_offset_bytes - fetch.offset_bytes + first
            return Place(self.ring.handle, at)
        segment = bisect_right(self._starts, first) - 1
        base = self._resident.get(segment)
        if base is None:
            raise error("HR9305", f"a plan reads segment {segment}, which does not stay")
        return Place(base.buffer, base.offset_bytes + first - self._starts[segment])

    # -- coming and going -------------------------------------------------------------

    def activate(self, plan: Plan) -> None:
        """See `api.Weights.activate`."""
        with self._device.lock:
            self.begin_step(plan)

    def begin_step(self, plan: Plan) -> None:
        """Before a step of `plan`. Raises HeadraceError where weights cannot be read."""
        if self._plan is plan:
            return  # nothing is read from the file any more
        self._mapping.check_unchanged()
        self._plan = self.head = None
        ring_bytes = max((f.ring_offset_bytes + f.size_bytes for f in plan.fetches), default=0)
        layout = plan.resident, ring_bytes
        self.generation += 1
        self._device.finish()
        self._drop_streamer()
        if layout != self._layout:
            self._lay_out(plan.resident, ring_bytes)
        self.host.hold(host_ranges(self.module, plan))
        self._plan = plan

    @property
    def streamer(self) -> Streamer:
        """The transfers of the plan that stands, by a kernel beside its steps.

        Raises:
            HeadraceError HR3013, HR3014: no room for their table.
        """
        found, plan = self._streamer, self._plan
        if found is None:
            assert plan is not None
            found = self._streamer = streamer_of(
                self._calls,
                self._device.stream_code,
                plan,
                self.ring,
                self.host,
                self._device.stream_bytes_per_s,
            )
        return found

    def _drop_streamer(self) -> None:
        streamer, self._streamer = self._streamer, None
        if streamer is not None:
            streamer.close()

    def _lay_out(self, resident: tuple[int, ...], ring_bytes: int) -> None:
        """Fills new buffers; first out, then in: both together must not pass the limit."""
        self._free_held()
        heap, segments = self._calls.heap, self.module.segments
        try:
            for block in self._blocks(resident):
                size = sum(segments[s].size_bytes for s in block)
                buffer = heap.buffer(size, "device", "weights")
                self._held.append(buffer)
                at = 0
                for segment in block:
                    self._resident[segment] = Place(buffer.handle, at)
                    at += segments[segment].size_bytes
            self.ring = heap.buffer(ring_bytes, "device", "the ring of weights")
            if ring_bytes:
                self._held.append(self.ring)
            self._load(merged([self._range(s) for s in resident]))
        except BaseException:
            self._free_held()
            raise
        self._layout = resident, ring_bytes

    def _blocks(self, resident: tuple[int, ...]) -> list[list[int]]:
        """Segments by buffer: a new one where a block is full and no weight crosses."""
        inside = {
            segment
            for weight in self.module.weights
            if weight.size_bytes
            for segment in range(
                bisect_right(self._starts, weight.offset_bytes),
                bisect_right(self._starts, weight.offset_bytes + weight.size_bytes - 1),
            )
        }
        blocks: list[list[int]] = []
        size = 0
        for segment in resident:
            new = self.module.segments[segment].size_bytes
            if not blocks or (size + new > _BLOCK_BYTES and segment not in inside):
                blocks.append([])
                size = 0
            blocks[-1].append(segment)
            size += new
        return blocks

    def _free_held(self) -> None:
        self._layout = ((), 0)
        self._resident.clear()
        self.ring = Buffer(0, 0, 0)
        _free(self._calls, self._held)

    def _range(self, segment: int) -> tuple[int, int]:
        found = self.module.segments[segment]
        return found.offset_bytes, found.offset_bytes + found.size_bytes

    def _load(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Copies ranges of the pool that stay, through two buffers of the host in turn."""
        pieces = [
            (place, min(_BOUNCE_BYTES, end - place, self._room(place)))
            for begin, end in ranges
            for place in self._cuts(begin, end)
        ]
        if not pieces:
            return
        calls = self._calls
        if self._hosts_resident():
            self._load_mapped(pieces)
            return
        most = max(size for _, size in pieces)
        buffers = [calls.heap.buffer(most, "upload", "loading weights") for _ in range(2)]
        commands = [0, 0]
        values = [0, 0]
        try:
            for number, (place, size) in enumerate(pieces):
                turn = number % 2
                if commands[turn]:
                    calls.wait(calls.copied, values[turn])
                    calls.free_command(commands[turn], copies=True)
                self._mapping.populate(place, place + size)
                copy_in_threads(buffers[turn].address, self._mapping.address + place, size)
                target = self._at(place)
                command = calls.begin(copies=True)
                calls.copy(
                    command,
                    (target.buffer, target.offset_bytes),
                    (buffers[turn].handle, 0),
                    size,
                )
                calls.end(command)
                values[turn] = calls.start(command, copies=True)
                commands[turn] = command
                self._mapping.drop(place, place + size)
        finally:
            calls.finish()
            for command in commands:
                if command:
                    calls.free_command(command, copies=True)
            for buffer in buffers:
                calls.heap.free(buffer)

    def _cuts(self, begin: int, end: int) -> list[int]:
        """Where the pieces of a range begin: each at most a bounce buffer, in one block."""
        found: list[int] = []
        at = begin
        while at < end:
            found.append(at)
            at += min(_BOUNCE_BYTES, end - at, self._room(at))
        return found

    def _room(self, offset_bytes: int) -> int:
        """Bytes from here to the end of the segment: neighbours may stand elsewhere."""
        segment = bisect_right(self._starts, offset_bytes) - 1
        return self._range(segment)[1] - offset_bytes

    def _at(self, offset_bytes: int) -> Place:
        segment = bisect_right(self._starts, offset_bytes) - 1
        base = self._resident[segment]
        return Place(base.buffer, base.offset_bytes + offset_bytes - self._starts[segment])

    def _hosts_resident(self) -> bool:
        return self._calls.physical.is_unified and all(b.address for b in self._held)

    def _load_mapped(self, pieces: Sequence[tuple[int, int]]) -> None:
        """Where the host reaches the device's memory, it writes weights where they stay."""
        addresses = {b.handle: b.address for b in self._held}
        for place, size in pieces:
            target = self._at(place)
            self._mapping.populate(place, place + size)
            address = addresses[target.buffer] + target.offset_bytes
            copy_in_threads(address, self._mapping.address + place, size)
            self._mapping.drop(place, place + size)

    def release(self) -> None:
        """See `api.Weights.release`."""
        with self._device.lock:
            if self._calls.is_open:
                self._device.finish()
            self._drop_streamer()
            self._plan = self.head = None
            self.generation += 1
            self._free_held()
            self.host.release()

    def notes(self) -> tuple[str, ...]:
        """See `api.Weights.notes`."""
        held = self.host.held_bytes
        return (
            (f"{held} bytes of weights are held in host memory for the device",) if held else ()
        )

    def close(self) -> None:
        """Gives device and host memory back and unmaps the file."""
        self.release()
        self._mapping.close()


def _free(calls: VulkanCalls, held: list[Buffer]) -> None:
    if calls.is_open:
        for buffer in held:
            calls.heap.free(buffer)
    held.clear()
