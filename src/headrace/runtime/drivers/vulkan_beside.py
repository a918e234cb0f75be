"""Records a plan whose weights a kernel brings beside it (`vulkan_streamer.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.plan.model import Plan
from headrace.runtime.drivers.gates import Gate
from headrace.runtime.drivers.vulkan_calls import Submission, VulkanCalls
from headrace.runtime.drivers.vulkan_commands import Commands, Hazards
from headrace.runtime.drivers.vulkan_heap import Buffer
from headrace.runtime.drivers.vulkan_launch import Range
from headrace.runtime.drivers.vulkan_recorder import Item, Run
from headrace.runtime.drivers.vulkan_state import External
from headrace.runtime.drivers.vulkan_streamer import Streamer


class StreamingRecorder:
    """Records a whole plan with gates between its commands."""

    def __init__(
        self,
        step: Any,
        calls: VulkanCalls,
        commands: Commands,
        plan: Plan,
        ring: Buffer,
        streamer: Streamer,
        sides: tuple[Sequence[External], Sequence[External]],
    ) -> None:
        self._step = step
        self._calls = calls
        self._commands = commands
        self._plan = plan
        self._ring = ring
        self._streamer = streamer
        self._sides = sides
        self._hazards = Hazards()
        self._waited: set[int] = set()

    def finish(self) -> Run:
        """Records everything: one part."""
        calls, gated = self._calls, self._streamer.gated
        command = self._step.begin()
        calls.barrier(command)
        self._commands.record_externals(command, self._sides[0], False, self._hazards)
        for number, (alone, beside) in enumerate(zip(gated.alone, gated.beside, strict=True)):
            if alone is not None:
                self._barrier(command)
                self._streamer.record_gate(command, alone)
                self._barrier(command, self._commands.copies(number))
            self._together(command, number, beside)
        self._barrier(command, copies=True)
        self._streamer.record_gate(command, Gate(len(self._plan.commands)), ends=True)
        self._commands.record_externals(command, self._sides[1], True, self._hazards)
        calls.barrier_for_host(command)
        calls.end(command)
        submission = Submission(command, (), calls.computed)
        run = Run(items=[Item(False, command, submission)], parts=1)
        run.batches.append((calls.queue, submission.info, 1))
        return run

    def _barrier(self, command: int, copies: bool = False) -> None:
        self._hazards.clear(copies)
        self._calls.barrier(command, self._hazards.among_kernels)

    def _together(self, command: int, number: int, gate: Gate | None) -> None:
        """Records a command and the gate that runs beside it."""
        commands, hazards, joined = self._commands, self._hazards, self._streamer.gated.joined
        reads, writes = list[Range](), list[Range]()
        if gate is not None and number + 1 < len(self._plan.commands) and gate.row >= 0:
            writes += self._arriving(number + 1)
        if joined[number]:
            hazards.note(reads, writes)
        else:
            # Slices that run together wait together.
            for member in range(number, len(joined)):
                if member > number and not joined[member]:
                    break
                touched = commands.touches(member)
                reads += touched[0]
                writes += touched[1]
            copies = commands.copies(number)
            if hazards.needs_barrier(reads, writes, copies):
                self._calls.barrier(command, hazards.among_kernels)
            elif gate is not None and gate.done:
                # What it says is done must be done.
                hazards.clear(copies)
                self._calls.barrier(command, hazards.among_kernels)
                hazards.needs_barrier(reads, writes, copies)
        if gate is not None:
            self._streamer.record_gate(command, gate)
        commands.emit(number, command)

    def _arriving(self, number: int) -> list[Range]:
        """Places of the ring that a command, and slices with it, read for the first time."""
        joined, found = self._streamer.gated.joined, list[Range]()
        waits = list(getattr(self._plan.commands[number], "waits", ()))
        for member in range(number + 1, len(joined)):
            if not joined[member]:
                break
            waits += getattr(self._plan.commands[member], "waits", ())
        for fetch in waits:
            at = self._plan.fetches[fetch]
            begin = at.ring_offset_bytes
            found.append(Range(self._ring.handle, begin, begin + at.size_bytes))
        return found
