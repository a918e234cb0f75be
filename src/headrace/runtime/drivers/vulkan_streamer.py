"""Streaming by a kernel that runs beside a step, on a second queue.

A wait between two queues costs a GPU 30 to 40 us (measured on an H200), as much as bringing
2 MB; a plan at its least budget has sixty of them. So nothing waits between the queues. One
small kernel on the second queue brings all transfers of a step, one after another: each of
its subgroups waits until a transfer's place is free, copies its part over the link, and
counts its lanes. The commands are one command buffer with gates between them (`gates.py`):
kernels of one lane, which tell the other side how far they are and wait for what it counts.

The two meet in one buffer of words that only grow: steps and rounds are counted, and all
values are told from them, so nothing is written by the host or reset between steps. The
last transfers of a step bring what the next one reads first, while the host has its outputs
already.

That needs a device which runs both queues at the same time; whether it does is tried when it
is opened. A side that waits too long gives up and says so, and the step is an error.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from time import perf_counter_ns
from typing import Any

import numpy as np

from headrace.artifact import schema
from headrace.base.errors import error
from headrace.plan.model import Plan
from headrace.runtime.drivers.gates import Gate, Gated, Row, gates_of
from headrace.runtime.drivers.vulkan_calls import Submission, VulkanCalls
from headrace.runtime.drivers.vulkan_heap import Buffer
from headrace.runtime.drivers.vulkan_launch import DescriptorPool, Range, record_launch
from headrace.runtime.drivers.vulkan_link import VulkanCode
from headrace.runtime.drivers.vulkan_stream_code import (
    ARRIVED,
    GATE,
    GROUPS,
    LANES,
    ROW_WORDS,
    STREAM,
)

_FOUR_BYTES = 16
_POLLS = 1 << 22
"""Looks before a side gives up: each takes about a microsecond of the device's own time."""

_POLLS_TRYING = 1 << 16


def stream_code(calls: VulkanCalls) -> VulkanCode:
    """Both kernels as code of their own."""
    executables: list[schema.Executable] = []
    for number, (name, bindings, words) in enumerate((("stream", 3, 3), ("gate", 2, 5))):
        cases = (schema.Specialisation((), (schema.Launch(name),)),)
        variant = schema.Variant("vulkan:1.3", "spirv", number, (), (cases,))
        point = schema.EntryPoint(name, 0, ("rw",) * bindings, words)
        executables.append(schema.Executable(name, (point,), (variant,)))
    program = schema.Program("vulkan", (), tuple(executables))
    return VulkanCode(calls, program, lambda number: (STREAM, GATE)[number])


class Streamer:
    """The transfers of one plan, ready to run beside any step of it.

    Attributes:
        gated: the plan's rows and gates.
        submission: of one step's transfers.
    """

    def __init__(
        self,
        calls: VulkanCalls,
        code: VulkanCode,
        gated: Gated,
        places: Sequence[tuple[int, int, int]],
        commands: int,
        polls: int = _POLLS,
    ) -> None:
        """
        Args:
            places: source and target address of each row, and its bytes.
            commands: of the step.

        Raises:
            HeadraceError HR3013, HR3014: no room.
        """
        self._calls = calls
        self.gated = gated
        self._stream, self._gate = code.kernel(0, "stream"), code.kernel(1, "gate")
        self._words = commands + 1, polls
        self._buffers: list[Buffer] = []
        self._commands: list[int] = []
        self._pool: DescriptorPool | None = None
        try:
            self._make(places)
        except BaseException:
            self.close()
            raise

    def _make(self, places: Sequence[tuple[int, int, int]]) -> None:
        calls, heap, count = self._calls, self._calls.heap, len(places)
        table = np.zeros((max(1, count), ROW_WORDS), np.uint32)
        for row, (source, target, size) in enumerate(places):
            halves = (source & 0xFFFFFFFF, source >> 32, target & 0xFFFFFFFF, target >> 32)
            table[row] = *halves, size // _FOUR_BYTES, self.gated.rows[row].release
        sizes = table.nbytes, 4 * (ARRIVED + count), 4
        kinds = "near", "device", "readback"
        for size, kind in zip(sizes, kinds, strict=True):
            self._buffers.append(heap.buffer(size, kind, "the table of transfers"))  # pyright: ignore
        ranges = [
            Range(b.handle, 0, size) for b, size in zip(self._buffers, sizes, strict=True)
        ]
        ctypes.memmove(self._buffers[0].address, table.ctypes.data, table.nbytes)
        self._failed = ctypes.c_uint32.from_address(self._buffers[2].address)
        self._failed.value = 0
        self._pool = DescriptorPool(calls, [3, 2])
        self._sets = (
            self._pool.set(self._stream.set_layout, ranges),
            self._pool.set(self._gate.set_layout, ranges[1:]),
        )
        command = calls.begin(copies=True)
        self._commands.append(command)
        # Behind the transfers of the step before, which has perhaps not ended.
        calls.barrier(command)
        words = (ctypes.c_uint32 * 6)(0, 0, 0, count, *self._words)
        record_launch(command, self._stream, self._sets[0], words, (GROUPS, 1, 1))
        calls.end(command)
        self.submission = Submission(command, (), calls.copied)

    def reset(self, copies: Sequence[tuple[tuple[int, int], tuple[int, int], int]]) -> None:
        """Begins anew; `copies` (target, source, bytes) bring what a step before would have.

        Nothing may be under way on either queue.
        """
        calls, shared = self._calls, self._buffers[1].handle
        command = calls.begin()
        calls.fill(command, shared)
        for target, source, size in copies:
            calls.copy(command, target, source, size)
        calls.barrier(command)
        first = len(self.gated.rows) - self.gated.heads
        if self.gated.heads:
            begin, size = 4 * (ARRIVED + first), 4 * self.gated.heads
            calls.fill(command, shared, begin, size, GROUPS * LANES)
        calls.barrier(command)
        calls.end(command)
        calls.run(command)
        calls.free_command(command)

    def start(self) -> None:
        """Puts one step's transfers on their queue."""
        calls = self._calls
        calls.copied.value += 1
        self.submission.signal.value = calls.copied.value
        calls.submit(calls.copy_queue, self.submission.info, 1)

    def record_gate(self, command: int, gate: Gate, ends: bool = False) -> None:
        """Records a gate; `ends`: the step is done."""
        row = gate.row & 0xFFFFFFFF
        words = (ctypes.c_uint32 * 8)(0, 0, 0, *self._words, gate.done, row, ends)
        record_launch(command, self._gate, self._sets[1], words, (1, 1, 1))

    @property
    def has_failed(self) -> bool:
        """Whether a side has given up waiting."""
        return bool(self._failed.value)

    def check(self) -> None:
        """Raises HeadraceError HR4036 where a side has given up waiting."""
        if self.has_failed:
            self._failed.value = 0
            raise error(
                "HR4036",
                f"'{self._calls.physical.name}' has stopped running its two queues side by side",
                helps="load the module again",
            )

    def close(self) -> None:
        """Gives everything back; nothing may still run."""
        calls = self._calls
        if calls.is_open:
            for command in self._commands:
                calls.free_command(command, copies=True)
            if self._pool is not None:
                self._pool.close()
            for buffer in self._buffers:
                calls.heap.free(buffer)
        self._commands.clear()
        self._buffers.clear()
        self._pool = None


def streaming_code(calls: VulkanCalls) -> VulkanCode | None:
    """Both kernels, where the device runs one beside the other."""
    lanes = calls.physical.limits.maxComputeWorkGroupInvocations
    if not calls.copies_by_kernels or lanes < LANES:
        return None
    code = stream_code(calls)
    if _run_side_by_side(calls, code):
        return code
    code.close()
    return None


def _run_side_by_side(calls: VulkanCalls, code: VulkanCode) -> bool:
    """Tries whether a kernel that waits on the second queue sees what one on the first says."""
    heap = calls.heap
    source = heap.buffer(_FOUR_BYTES, "upload", "a trial")
    target = heap.buffer(_FOUR_BYTES, "device", "a trial")
    place = calls.address(source), calls.address(target), _FOUR_BYTES
    streamer = Streamer(
        calls, code, Gated((Row(0, 1),), 0, (), (), ()), [place], 1, _POLLS_TRYING
    )
    command = calls.begin()
    try:
        streamer.record_gate(command, Gate(1, 0), ends=True)
        calls.end(command)
        streamer.reset(())
        for _ in range(2):
            streamer.start()
            calls.run(command)
            calls.wait(calls.copied, calls.copied.value)
        return not streamer.has_failed
    finally:
        calls.finish()
        streamer.close()
        calls.free_command(command)
        heap.free(source)
        heap.free(target)


def stream_ns(
    calls: VulkanCalls,
    code: VulkanCode,
    addresses: tuple[int, int],
    rows: int,
    size_bytes: int,
    samples: int,
) -> int:
    """Least time of bringing `rows` transfers of so many bytes, submitted and waited for.

    The first ones find the link and the clocks asleep: half of the samples may.
    """
    gated = Gated(tuple(Row(number, 0) for number in range(rows)), 0, (), (), ())
    source, target = addresses
    places = [
        (source + n * size_bytes, target + n * size_bytes, size_bytes) for n in range(rows)
    ]
    streamer = Streamer(calls, code, gated, places, 1)
    try:
        streamer.reset(())
        found: list[int] = []
        for _ in range(samples):
            start = perf_counter_ns()
            streamer.start()
            calls.wait(calls.copied, calls.copied.value)
            found.append(perf_counter_ns() - start)
    finally:
        calls.finish()
        streamer.close()
    return min(found)


def streamer_of(
    calls: VulkanCalls,
    code: VulkanCode,
    plan: Plan,
    ring: Buffer,
    host: Any,
    link_bytes_per_s: float,
) -> Streamer:
    """The transfers of a plan whose weights stand in `host`.

    Raises:
        HeadraceError HR3013, HR3014: no room.
    """
    gated = gates_of(plan, link_bytes_per_s)
    places: list[tuple[int, int, int]] = []
    base = calls.address(ring)
    for row in gated.rows:
        fetch = plan.fetches[row.fetch]
        source = host.address(fetch.offset_bytes, fetch.size_bytes)
        places.append((source, base + fetch.ring_offset_bytes, fetch.size_bytes))
    return Streamer(calls, code, gated, places, len(plan.commands))
