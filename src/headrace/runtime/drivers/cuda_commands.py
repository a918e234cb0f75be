"""A plan's commands with their addresses, ready to be put on a stream, or into a graph."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.artifact import schema
from headrace.base.errors import HeadraceError, error
from headrace.plan.model import Address, Plan, PlannedCopy, PlannedDispatch, PlannedFill
from headrace.runtime.drivers.cuda_calls import CudaCalls
from headrace.runtime.drivers.cuda_link import CudaCode, Kernel
from headrace.runtime.drivers.cuda_weights import CudaWeights
from headrace.runtime.drivers.plan_parts import locations

_DESCRIPTOR_BYTES = 128
"""Of a tensor descriptor, and the alignment of Triton's own scratch, where they are made."""

_PROGRAM_BYTES = 2 * _DESCRIPTOR_BYTES
"""Of that scratch for each workgroup (`targets/triton/descriptors.py`)."""


class Parameters:
    """A kernel's parameters as the driver takes them: an array of pointers to values.

    Attributes:
        address: of the array.
    """

    def __init__(self, pointers: Sequence[int], words: Sequence[int], scratch: int) -> None:
        # Behind the parameters: Triton's scratch, and another for profiles that none has.
        wide = (*pointers, -(-scratch // _DESCRIPTOR_BYTES) * _DESCRIPTOR_BYTES, 0)
        self._wide = (ctypes.c_uint64 * len(wide))(*[p & 0xFFFFFFFFFFFFFFFF for p in wide])
        self._words = (ctypes.c_uint32 * max(1, len(words)))(*words)
        wide_at, words_at = ctypes.addressof(self._wide), ctypes.addressof(self._words)
        places = [wide_at + 8 * i for i in range(len(pointers))]
        places += [words_at + 4 * i for i in range(len(words))]
        places += [wide_at + 8 * i for i in range(len(pointers), len(wide))]
        self._places = (ctypes.c_uint64 * len(places))(*places)
        self.address = ctypes.addressof(self._places)


@dataclass(frozen=True)
class _Launch:
    kernel: Kernel
    grid: tuple[int, int, int]
    parameters: Parameters


@dataclass(frozen=True)
class _Copy:
    target: int
    source: int
    size_bytes: int


@dataclass(frozen=True)
class _Fill:
    target: int
    size_bytes: int
    pattern: int
    pattern_bytes: int


@dataclass(frozen=True)
class Spaces:
    """Device addresses that a plan's places count from.

    Attributes:
        slab: of the session.
        external: of each input, then each output.
        variables: in the order of the function's resources.
    """

    slab: int
    external: tuple[int, ...]
    variables: tuple[int, ...]


class Commands:
    """The commands of one plan at the addresses that stand now."""

    def __init__(
        self,
        calls: CudaCalls,
        function: schema.EntryFunction,
        plan: Plan,
        code: CudaCode,
        weights: CudaWeights,
        spaces: Spaces,
    ) -> None:
        """Raises HeadraceDefect HR9305: the plan reads weights that it does not bring."""
        self._calls = calls
        self._function = function
        self._plan = plan
        self._code = code
        self._weights = weights
        self._spaces = spaces
        self._dims = dict(plan.dims)
        self._made = [self._make(command) for command in plan.commands]

    def resolve(self, place: Address, size_bytes: int, skipped_bytes: int = 0) -> int:
        """The device address of a place; see `CudaWeights.address` for the pool."""
        spaces = self._spaces
        if place.space == "pool":
            return self._weights.address(place, skipped_bytes, size_bytes)
        if place.space == "slab":
            return spaces.slab + place.offset_bytes
        table = spaces.external if place.space == "external" else spaces.variables
        return table[place.index] + place.offset_bytes

    def _make(self, command: Any) -> _Launch | _Copy | _Fill | None:
        if isinstance(command, PlannedDispatch):
            return self._launch(command)
        if isinstance(command, PlannedCopy) and command.size_bytes:
            return _Copy(
                self.resolve(command.target, command.size_bytes),
                self.resolve(command.source, command.size_bytes),
                command.size_bytes,
            )
        if isinstance(command, PlannedFill) and command.size_bytes:
            target = self.resolve(command.target, command.size_bytes)
            return _Fill(target, command.size_bytes, command.pattern, command.pattern_bytes)
        return None

    def _launch(self, command: PlannedDispatch) -> _Launch | None:
        x, y, z = command.workgroups
        if not x * y * z:
            return None
        kernel = self._code.kernel(command.executable, command.symbol)
        skipped = [0] * len(command.addresses)
        if kernel.slice is not None:
            step = kernel.slice.step_bytes.evaluate(self._dims)
            skipped[kernel.slice.binding] = command.first_workgroup[kernel.slice.axis] * step
        pairs = zip(command.addresses, command.sizes_bytes, skipped, strict=True)
        pointers = [self.resolve(place, size, skip) for place, size, skip in pairs]
        scratch = 0
        if kernel.takes_scratch:
            scratch = self._spaces.slab + command.scratch_offset_bytes
            pointers.append(scratch)
            # Slices of a launch may run at once: each has what is its workgroups'.
            first_x, first_y, first_z = command.first_workgroup
            scratch += ((first_z * y + first_y) * x + first_x) * _PROGRAM_BYTES
        words = (*command.first_workgroup, *command.constants)
        return _Launch(kernel, command.workgroups, Parameters(pointers, words, scratch))

    def launches(self, number: int) -> bool:
        """Whether a command is a launch, and nothing else."""
        return isinstance(self._made[number], _Launch)

    def issue(self, number: int, stream: Any, follows: bool = False) -> None:
        """Puts one command on a stream.

        Args:
            follows: the last thing on the stream is a launch, and this command needs nothing
                but the stream: it may begin while that ends.

        Raises:
            HeadraceError HR4022: the driver refuses it; names the user's nodes.
        """
        made = self._made[number]
        try:
            if isinstance(made, _Launch):
                kernel = made.kernel
                self._calls.launch(
                    kernel.function,
                    made.grid,
                    kernel.threads,
                    kernel.shared_bytes,
                    stream,
                    made.parameters.address,
                    follows and kernel.overlaps,
                )
            elif isinstance(made, _Copy):
                self._calls.copy(made.target, made.source, made.size_bytes, stream)
            elif isinstance(made, _Fill):
                self._calls.fill(
                    made.target, made.size_bytes, made.pattern, made.pattern_bytes, stream
                )
        except HeadraceError as problem:
            raise self.located(number, problem) from None

    def located(self, number: int, problem: HeadraceError) -> HeadraceError:
        """The error with the place in the user's model of the command it belongs to."""
        first = problem.diagnostics[0]
        command = self._plan.commands[number]
        if not isinstance(command, PlannedDispatch):
            return problem
        notes = (f"while running '{command.symbol}'", *first.notes)
        places = locations(self._function, command)
        return error(first.code, first.fact, at=places, notes=notes, helps=first.helps)
