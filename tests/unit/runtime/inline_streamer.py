"""Stands for the second queue where a device has one: transfers among the commands.

At each gate it records the transfers that the gate waits for, as late as a second queue may
ever make them, and at the end of the step the rest. So the gates' places, the barriers
around them and the weights' places are shown on one queue, under validation too.
"""

from __future__ import annotations

from typing import Any

from headrace.plan.model import Plan
from headrace.runtime.drivers import vulkan_weights
from headrace.runtime.drivers.gates import Gate, gates_of


class InlineStreamer:
    """What `vulkan_streamer.Streamer` is to a step; `starts` counts its steps."""

    def __init__(
        self, calls: Any, code: Any, plan: Plan, ring: Any, host: Any, rate: float
    ) -> None:
        self._calls, self._plan, self._ring, self._host = calls, plan, ring, host
        self.gated = gates_of(plan, rate)
        self._done = self._next = 0
        self.starts = 0

    def reset(self, copies: Any) -> None:
        command = self._calls.begin()
        for target, source, size in copies:
            self._calls.copy(command, target, source, size)
        self._calls.barrier(command)
        self._calls.end(command)
        self._calls.run(command)
        self._calls.free_command(command)

    def start(self) -> None:
        self.starts += 1

    def record_gate(self, command: int, gate: Gate, ends: bool = False) -> None:
        rows = self.gated.rows
        inside = len(rows) - self.gated.heads
        self._done = max(self._done, gate.done)
        until = gate.row + 1 if 0 <= gate.row < inside else self._next
        for row in rows[self._next : len(rows) if ends else until]:
            assert row.release <= self._done, "a gate waits for what it has not released"
            fetch = self._plan.fetches[row.fetch]
            source = self._host.held(fetch.offset_bytes, fetch.size_bytes)
            target = self._ring.handle, fetch.ring_offset_bytes
            self._calls.copy(
                command, target, (source.buffer, source.offset_bytes), fetch.size_bytes
            )
        self._next = max(until, self._next)
        if ends:
            self._done = self._next = 0

    def check(self) -> None:
        """Nothing gives up."""

    def close(self) -> None:
        """It holds nothing."""


def stream_inline(device: Any) -> None:
    """Makes an opened device stream by this."""
    vulkan_weights.streamer_of = InlineStreamer  # pyright: ignore
    device.stream_code = _NoCode()
    # Here copies stand where gates do: barriers among kernels must hold those too.
    calls, barrier = device.calls, device.calls.barrier
    calls.barrier = lambda command, among_kernels=False: barrier(command)


class _NoCode:
    def close(self) -> None:
        """There is none."""
