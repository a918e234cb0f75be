"""Streaming by a kernel: a step that brings its own weights, in one command buffer.

A wait between two queues costs a GPU 30 to 40 us (measured on an H200), as much as bringing
2 MB; a plan at its least budget has sixty of them. So a GPU's kernels read weights over the
link themselves: a small kernel copies a slice into the ring while a command runs that does
not need it, with no barrier between the two.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from headrace.artifact import schema
from headrace.plan.model import Plan
from headrace.runtime.drivers.interleave import Slice, interleave
from headrace.runtime.drivers.vulkan_calls import Submission, VulkanCalls
from headrace.runtime.drivers.vulkan_commands import (
    Commands,
    DescriptorPool,
    Hazards,
    Range,
    record_launch,
)
from headrace.runtime.drivers.vulkan_copy_code import CODE, NAME, WORKGROUPS
from headrace.runtime.drivers.vulkan_link import Kernel, VulkanCode
from headrace.runtime.drivers.vulkan_recorder import Item, Run
from headrace.runtime.drivers.vulkan_state import External
from headrace.runtime.drivers.vulkan_weights import VulkanWeights

_FOUR_BYTES = 16


def copy_code(calls: VulkanCalls) -> VulkanCode:
    """The copying kernel as code of its own."""
    cases = (schema.Specialisation((), (schema.Launch(NAME),)),)
    variant = schema.Variant("vulkan:1.3", "spirv", 0, (), (cases,))
    point = schema.EntryPoint(NAME, 0, ("ro", "wo"), 1)
    executable = schema.Executable(NAME, (point,), (variant,))
    return VulkanCode(calls, schema.Program("vulkan", (), (executable,)), lambda _: CODE)


class StreamingRecorder:
    """Records a whole plan with the copies of its weights between its commands."""

    def __init__(
        self,
        step: Any,
        calls: VulkanCalls,
        commands: Commands,
        plan: Plan,
        weights: VulkanWeights,
        code: VulkanCode,
        sides: tuple[Sequence[External], Sequence[External]],
    ) -> None:
        self._step = step
        self._calls = calls
        self._commands = commands
        self._plan = plan
        self._weights = weights
        self._kernel: Kernel = code.kernel(0, NAME)
        self._sides = sides
        self._hazards = Hazards()
        self._schedule = interleave(plan)
        self._pool: DescriptorPool = step.descriptor_pool([2] * self._schedule.count)

    def head(self) -> int:
        """A command buffer that brings what the tail of a step before would have brought."""
        command = self._step.begin()
        for number, fetch in enumerate(self._plan.fetches):
            if fetch.issue_after < 0:
                source, target = self._places(Slice(number, 0, fetch.size_bytes))
                self._calls.copy(
                    command,
                    (target.buffer, target.begin),
                    (source.buffer, source.begin),
                    fetch.size_bytes,
                )
        self._calls.barrier(command)
        self._calls.end(command)
        return command

    def finish(self) -> Run:
        """Records everything: one part."""
        command = self._step.begin()
        commands, schedule = self._commands, self._schedule
        # The tail of the step before has written the ring.
        self._calls.barrier(command)
        commands.record_externals(command, self._sides[0], False, self._hazards)
        for number in range(len(self._plan.commands)):
            for piece in schedule.alone[number]:
                self._together(command, None, (piece,))
            self._together(command, number, schedule.beside[number])
        for piece in schedule.alone[-1]:
            self._together(command, None, (piece,))
        commands.record_externals(command, self._sides[1], True, self._hazards)
        self._calls.barrier_for_host(command)
        self._calls.end(command)
        submission = Submission(command, (), self._calls.computed)
        run = Run(items=[Item(False, command, submission)], parts=1)
        run.batches.append((self._calls.queue, submission.info, 1))
        return run

    def _together(self, command: int, number: int | None, pieces: Sequence[Slice]) -> None:
        """Records slices and a command that may run at the same time."""
        reads: list[Range] = []
        writes: list[Range] = []
        if number is not None:
            found = self._commands.touches(number)
            reads += found[0]
            writes += found[1]
        places = [self._places(piece) for piece in pieces]
        reads += [source for source, _ in places]
        writes += [target for _, target in places]
        if self._hazards.needs_barrier(reads, writes):
            self._calls.barrier(command)
        # The copies first: their few workgroups find room, the command fills the rest.
        for source, target in places:
            self._copy(command, source, target)
        if number is not None:
            self._commands.emit(number, command)

    def _places(self, piece: Slice) -> tuple[Range, Range]:
        """Where a slice is read and written."""
        fetch, weights = self._plan.fetches[piece.fetch], self._weights
        source = weights.host.held(fetch.offset_bytes + piece.begin_bytes, piece.size_bytes)
        begin = fetch.ring_offset_bytes + piece.begin_bytes
        return (
            Range(source.buffer, source.offset_bytes, source.offset_bytes + piece.size_bytes),
            Range(weights.ring.handle, begin, begin + piece.size_bytes),
        )

    def _copy(self, command: int, source: Range, target: Range) -> None:
        kernel = self._kernel
        words = (ctypes.c_uint32 * 4)(0, 0, 0, (source.end - source.begin) // _FOUR_BYTES)
        descriptor_set = self._pool.set(kernel.set_layout, (source, target))
        record_launch(command, kernel, descriptor_set, words, (WORKGROUPS, 1, 1))
