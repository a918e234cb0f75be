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
from headrace.runtime.drivers.cuda_tensor_map import Matrix, matrix
from headrace.runtime.drivers.cuda_weights import CudaWeights
from headrace.runtime.drivers.plan_parts import locations


class Parameters:
    """A kernel's parameters as the driver takes them: an array of pointers to values.

    Attributes:
        address: of the array.
    """

    def __init__(
        self, pointers: Sequence[int], words: Sequence[int], matrices: Sequence[Matrix] = ()
    ) -> None:
        # Each value has 8 bytes of its own; of a word the kernel takes the lower four.
        values = [*pointers, *words]
        for given in matrices:
            values += [0, given.rows, given.columns, given.stride, 1]
        # Behind the parameters Triton has two scratches, which no kernel of ours needs.
        values += [0, 0]
        array = ctypes.c_uint64 * len(values)
        self._values = array(*values)
        base = ctypes.addressof(self._values)
        self._places = array(*range(base, base + 8 * len(values), 8))
        self._matrices = matrices
        for number, given in enumerate(matrices):
            at = len(pointers) + len(words) + 5 * number
            self._places[at] = ctypes.addressof(given.tensor_map)
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
        matrices = [matrix(m, pointers[m.binding], self._dims) for m in kernel.tensor_maps]
        if kernel.takes_scratch:
            pointers.append(self._spaces.slab + command.scratch_offset_bytes)
        words = (*command.first_workgroup, *command.constants)
        return _Launch(kernel, command.workgroups, Parameters(pointers, words, matrices))

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
                    kernel.cluster,
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
