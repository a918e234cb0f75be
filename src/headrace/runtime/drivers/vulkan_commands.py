"""A plan's commands recorded: descriptor sets, push constants, barriers where hazards are.

A barrier stands before a command that reads what was written since the last one, or writes
what was read or written. Ranges are those that the plan gives each binding, so commands
that touch other bytes of the slab run side by side.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.artifact import schema
from headrace.base.errors import error
from headrace.plan.model import Address, Plan, PlannedCopy, PlannedDispatch, PlannedFill
from headrace.runtime.drivers import vulkan_api
from headrace.runtime.drivers.plan_parts import locations
from headrace.runtime.drivers.vulkan_calls import VulkanCalls
from headrace.runtime.drivers.vulkan_heap import Buffer
from headrace.runtime.drivers.vulkan_instance import loader
from headrace.runtime.drivers.vulkan_launch import DescriptorPool, Range, record_launch
from headrace.runtime.drivers.vulkan_link import Kernel, VulkanCode
from headrace.runtime.drivers.vulkan_state import External, Place
from headrace.runtime.drivers.vulkan_weights import VulkanWeights

vk: Any = vulkan_api

_LEAST_RANGE_BYTES = 4


class Hazards:
    """What was read and written since the last barrier.

    Attributes:
        among_kernels: whether nothing but kernels stood on either side of the barrier that
            was asked for last.
    """

    def __init__(self) -> None:
        self._reads: list[Range] = []
        self._writes: list[Range] = []
        self._copies = False
        self.among_kernels = False

    def needs_barrier(
        self, reads: Sequence[Range], writes: Sequence[Range], copies: bool = False
    ) -> bool:
        """Whether these must wait for what came before; notes them either way.

        Args:
            copies: they are a copy's or a fill's.
        """
        found = _meet((*reads, *writes), self._writes) or _meet(writes, self._reads)
        if found:
            self.clear(copies)
        self._copies = self._copies or copies
        self._reads += reads
        self._writes += writes
        return found

    def note(self, reads: Sequence[Range], writes: Sequence[Range]) -> None:
        """These need not wait for what came since the last barrier."""
        self._reads += reads
        self._writes += writes

    def clear(self, copies: bool = False) -> None:
        """A barrier stands here; `copies`: before a copy or a fill."""
        self.among_kernels = not (self._copies or copies)
        self._copies = False
        self._reads.clear()
        self._writes.clear()


def _meet(some: Iterable[Range], others: Sequence[Range]) -> bool:
    return any(a.meets(b) for a in some for b in others)


@dataclass(frozen=True)
class Spaces:
    """Where a plan's places count from.

    Attributes:
        slab: of the session.
        external: of each input, then each output.
        variables: in the order of the function's resources.
        spare: a buffer that stands for empty operands.
    """

    slab: Buffer
    external: tuple[External, ...]
    variables: tuple[Place, ...]
    spare: Buffer


@dataclass(frozen=True)
class _Launch:
    kernel: Kernel
    descriptor_set: int
    words: Any
    grid: tuple[int, int, int]


@dataclass(frozen=True)
class _Copy:
    target: Place
    source: Place
    size_bytes: int


@dataclass(frozen=True)
class _Fill:
    target: Place
    size_bytes: int
    word: int


@dataclass(frozen=True)
class _Recorded:
    what: _Launch | _Copy | _Fill
    reads: tuple[Range, ...]
    writes: tuple[Range, ...]


class Commands:
    """The commands of one plan at the places that stand now."""

    def __init__(
        self,
        calls: VulkanCalls,
        function: schema.EntryFunction,
        plan: Plan,
        code: VulkanCode,
        weights: VulkanWeights,
        spaces: Spaces,
    ) -> None:
        """Raises HeadraceDefect HR9305 (weights not brought); HR4034 (limits)."""
        self._calls = calls
        self._function = function
        self._plan = plan
        self._code = code
        self._weights = weights
        self._spaces = spaces
        self._dims = dict(plan.dims)
        self._patterns: list[Buffer] = []
        launches = [c for c in plan.commands if isinstance(c, PlannedDispatch)]
        self._pool = DescriptorPool(calls, [self._kernel(c).bindings for c in launches])
        try:
            self._made = [self._make(command) for command in plan.commands]
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Gives descriptor sets and patterns back; nothing may still run that uses them."""
        self._pool.close()
        if self._calls.is_open:
            for buffer in self._patterns:
                self._calls.heap.free(buffer)
        self._patterns.clear()

    def _kernel(self, command: PlannedDispatch) -> Kernel:
        return self._code.kernel(command.executable, command.symbol)

    def resolve(self, place: Address, size_bytes: int, skipped_bytes: int = 0) -> Place:
        """Where a planned place stands, from `skipped_bytes` on."""
        spaces = self._spaces
        if place.space == "pool":
            return self._weights.place(place, skipped_bytes, size_bytes)
        offset = place.offset_bytes + skipped_bytes
        if place.space == "slab":
            return Place(spaces.slab.handle, offset)
        if place.space == "external":
            base = spaces.external[place.index].device
        else:
            base = spaces.variables[place.index]
        return Place(base.buffer, base.offset_bytes + offset)

    # -- making -----------------------------------------------------------------------

    def _make(self, command: Any) -> _Recorded | None:
        if isinstance(command, PlannedDispatch):
            return self._launch(command)
        if isinstance(command, PlannedCopy) and command.size_bytes:
            source = self.resolve(command.source, command.size_bytes)
            target = self.resolve(command.target, command.size_bytes)
            return self._copied(target, source, command.size_bytes)
        if isinstance(command, PlannedFill) and command.size_bytes:
            return self._fill(command)
        return None

    def _copied(self, target: Place, source: Place, size: int) -> _Recorded:
        return _Recorded(
            _Copy(target, source, size), (_range(source, size),), (_range(target, size),)
        )

    def _fill(self, command: PlannedFill) -> _Recorded:
        """Words are filled; other patterns are copied from where the host wrote them out."""
        size = command.size_bytes
        target = self.resolve(command.target, size)
        pattern = command.pattern.to_bytes(command.pattern_bytes, "little")
        word = (pattern * 4)[:4]
        if (
            size % 4 == 0
            and target.offset_bytes % 4 == 0
            and (word * 2)[: len(pattern)] == pattern
        ):
            what = _Fill(target, size, int.from_bytes(word, "little"))
            return _Recorded(what, (), (_range(target, size),))
        buffer = self._calls.heap.buffer(size, "upload", "a pattern")
        self._patterns.append(buffer)
        data = (pattern * (-(-size // len(pattern))))[:size]
        ctypes.memmove(buffer.address, data, size)
        return self._copied(target, Place(buffer.handle, 0), size)

    def _launch(self, command: PlannedDispatch) -> _Recorded | None:
        x, y, z = command.workgroups
        if not x * y * z:
            return None
        kernel = self._kernel(command)
        ranges = [
            self._binding(command, number, kernel) for number in range(len(command.addresses))
        ]
        accesses = self._accesses(command)
        pairs = list(zip(ranges, accesses, strict=True))
        reads = [r for r, access in pairs if access not in ("wo", "xw")]
        writes = [r for r, access in pairs if access != "ro"]
        if kernel.takes_scratch:
            begin = command.scratch_offset_bytes
            size = max(_LEAST_RANGE_BYTES, command.scratch_bytes)
            ranges.append(Range(self._spaces.slab.handle, begin, begin + size))
            writes.append(ranges[-1])
        words = (*command.first_workgroup, *command.constants)
        self._check_limits(command, ranges)
        what = _Launch(
            kernel,
            self._pool.set(kernel.set_layout, ranges),
            (ctypes.c_uint32 * len(words))(*words),
            command.workgroups,
        )
        return _Recorded(what, tuple(reads), tuple(writes))

    def _accesses(self, command: PlannedDispatch) -> Sequence[str]:
        executable = self._code.program.executables[command.executable]
        return executable.entry_points[command.entry_point].bindings

    def _binding(self, command: PlannedDispatch, number: int, kernel: Kernel) -> Range:
        """What is bound: of a weight that a slice cuts, from the slice's first byte on."""
        size, rule = command.sizes_bytes[number], kernel.slice
        if not size:
            return Range(self._spaces.spare.handle, 0, _LEAST_RANGE_BYTES)
        skipped, used = 0, size
        if rule is not None and rule.binding == number:
            step = rule.step_bytes.evaluate(self._dims)
            skipped = command.first_workgroup[rule.axis] * step
            used = min(size - skipped, command.workgroups[rule.axis] * step)
        place = self.resolve(command.addresses[number], used, skipped)
        return Range(place.buffer, place.offset_bytes, place.offset_bytes + used)

    def _check_limits(self, command: PlannedDispatch, ranges: Sequence[Range]) -> None:
        limits = self._calls.physical.limits
        facts: list[str] = []
        for r in ranges:
            if r.end - r.begin > limits.maxStorageBufferRange:
                facts.append(
                    f"an operand of {r.end - r.begin} bytes passes what the device binds, "
                    f"{limits.maxStorageBufferRange}"
                )
            if r.begin % limits.minStorageBufferOffsetAlignment:
                facts.append(
                    f"an operand begins at byte {r.begin}, the device wants multiples of "
                    f"{limits.minStorageBufferOffsetAlignment}"
                )
        for count, most in zip(
            command.workgroups, limits.maxComputeWorkGroupCount, strict=True
        ):
            if count > most:
                facts.append(f"{count} workgroups pass the device's {most}")
        if facts:
            raise error(
                "HR4034",
                f"'{command.symbol}' passes a limit of {self._calls.physical.name}",
                at=locations(self._function, command),
                notes=facts,
                helps="use another device",
            )

    # -- recording --------------------------------------------------------------------

    def record(self, number: int, command: int, hazards: Hazards) -> None:
        """Records one of the plan's commands, behind a barrier where it needs one."""
        if hazards.needs_barrier(*self.touches(number), copies=self.copies(number)):
            self._calls.barrier(command, hazards.among_kernels)
        self.emit(number, command)

    def touches(self, number: int) -> tuple[Sequence[Range], Sequence[Range]]:
        """What one of the plan's commands reads, and what it writes."""
        recorded = self._made[number]
        return ((), ()) if recorded is None else (recorded.reads, recorded.writes)

    def copies(self, number: int) -> bool:
        """Whether one of the plan's commands is a copy or a fill."""
        recorded = self._made[number]
        return recorded is not None and not isinstance(recorded.what, _Launch)

    def emit(self, number: int, command: int) -> None:
        """Records one of the plan's commands, whatever came before."""
        recorded = self._made[number]
        if recorded is None:
            return
        what = recorded.what
        if isinstance(what, _Copy):
            self._calls.copy(
                command,
                (what.target.buffer, what.target.offset_bytes),
                (what.source.buffer, what.source.offset_bytes),
                what.size_bytes,
            )
        elif isinstance(what, _Fill):
            place = what.target
            loader().vkCmdFillBuffer(
                command, place.buffer, place.offset_bytes, what.size_bytes, what.word
            )
        else:
            record_launch(command, what.kernel, what.descriptor_set, what.words, what.grid)

    def record_externals(
        self, command: int, externals: Sequence[External], to_host: bool, hazards: Hazards
    ) -> None:
        """Records the copies of inputs to the device, or of outputs from it."""
        for external in externals:
            size = external.size_bytes
            if external.host == external.device or not size:
                continue
            host, device = _range(external.host, size), _range(external.device, size)
            source, target = (device, host) if to_host else (host, device)
            if hazards.needs_barrier((source,), (target,), copies=True):
                self._calls.barrier(command)
            self._calls.copy(
                command, (target.buffer, target.begin), (source.buffer, source.begin), size
            )


def _range(place: Place, size_bytes: int) -> Range:
    return Range(place.buffer, place.offset_bytes, place.offset_bytes + size_bytes)
