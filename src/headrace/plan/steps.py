"""A function at given dimensions: its tree of blocks as a flat list with every size a number.

`If` and `Loop` become branches and jumps, calls are entered in place. Launches keep what
the later parts of the plan need: which resources, which weights, how they may be cut.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from headrace.artifact.schema import (
    Block,
    Call,
    Command,
    Copy,
    Dispatch,
    EntryFunction,
    Executable,
    Fill,
    If,
    Loop,
    Module,
    Program,
    Specialisation,
)
from headrace.base.errors import Diagnostic, HeadraceError, Problems, error
from headrace.base.symbols import Expr
from headrace.plan.profile import kernel_key

MAXIMUM_STEPS = 200_000
MAXIMUM_CALLS = 32
MAXIMUM_BYTES = 1 << 48
_MOST_GROUPS = 1 << 32


@dataclass(slots=True)
class Operand:
    """A range of a resource that a step reads or writes."""

    resource: int
    offset_bytes: int
    size_bytes: int
    reads: bool
    writes: bool


@dataclass(slots=True)
class Step:
    """One launch, copy, fill, branch or jump.

    Attributes:
        operands: of a copy (source, target), a fill (target), a branch (condition).
        slice: binding, axis and bytes per workgroup where the launch may be cut.
        workgroups: of the whole launch.
        scratch_bytes: per worker.
        digest: of the executable, for the profile.
        command: index of the dispatch among the commands of its block.
        target: of a branch or jump: a step.
    """

    kind: Literal["dispatch", "copy", "fill", "branch", "jump"]
    operands: tuple[Operand, ...]
    executable: int = -1
    entry_point: int = -1
    symbol: str = ""
    constants: tuple[int, ...] = ()
    workgroups: tuple[int, int, int] = (1, 1, 1)
    scratch_bytes: int = 0
    slice: tuple[int, int, int] | None = None
    operations: int = 0
    digest: str = ""
    command: int = -1
    pattern: int = 0
    pattern_bytes: int = 1
    target: int = -1


@dataclass(slots=True)
class LoopSpan:
    """Steps `first` to `last` run again and again; `trips` is the count or a guess."""

    first: int
    last: int
    trips: int


@dataclass(slots=True)
class FlatFunction:
    """The flat form of a function.

    Attributes:
        sizes_bytes: of every resource of the function.
        steps: in order.
        loops: spans that repeat, outer before inner.
    """

    function: EntryFunction
    sizes_bytes: list[int]
    steps: list[Step] = field(default_factory=list[Step])
    loops: list[LoopSpan] = field(default_factory=list[LoopSpan])

    def runs(self) -> list[tuple[int, int]]:
        """Straight runs `(first, end)`: cut after branches and jumps and before targets."""
        cuts = {0, len(self.steps)}
        for index, step in enumerate(self.steps):
            if step.kind in ("branch", "jump"):
                cuts |= {index + 1, step.target}
        borders = sorted(cuts)
        return [(a, b) for a, b in itertools.pairwise(borders)]


GUESSED_TRIPS = 10
"""How often a loop of unknown count is taken to run when weights are chosen."""


class Sizes:
    """Evaluates expressions at fixed dimensions, each expression object once."""

    def __init__(self, dims: Mapping[str, int]) -> None:
        self._dims = dims
        self._known: dict[int, int] = {}
        # Expressions stay alive as long as their ids are keys.
        self._kept: list[Expr] = []

    def __call__(self, expr: Expr) -> int:
        value = self._known.get(id(expr))
        if value is not None:
            return value
        try:
            value = expr.evaluate(self._dims)
        except ZeroDivisionError as problem:
            raise error(
                "HR3205", f"size '{expr}' divides by zero at these dimensions"
            ) from problem
        self._known[id(expr)] = value
        self._kept.append(expr)
        return value


def check_dims(module: Module, dims: Mapping[str, int]) -> dict[str, int]:
    """The dimensions in sorted order.

    Raises:
        HeadraceError HR4101: one is missing, unknown or out of range; all are listed.
    """
    problems = Problems()
    known = {d.name for d in module.dimensions}
    for name in sorted(dims.keys() - known):
        problems.add(
            Diagnostic(
                "HR4101",
                f"the model has no dimension '{name}'",
                notes=(f"it has {', '.join(sorted(known)) or 'none'}",),
            )
        )
    for dimension in module.dimensions:
        size = dims.get(dimension.name)
        high = dimension.maximum
        if size is None:
            problems.add(Diagnostic("HR4101", f"dimension '{dimension.name}' has no size"))
        elif not isinstance(size, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            problems.add(
                Diagnostic("HR4101", f"dimension '{dimension.name}' is {size!r}, no integer")
            )
        elif size < dimension.minimum or (high is not None and size > high):
            limit = f"to {high}" if high is not None else "up"
            problems.add(
                Diagnostic(
                    "HR4101",
                    f"dimension '{dimension.name}' is {size}, out of range",
                    notes=(f"it may be {dimension.minimum} {limit}",),
                )
            )
    problems.raise_if_any()
    return {name: dims[name] for name in sorted(known)}


def flatten(
    module: Module,
    program: Program,
    function_index: int,
    dims: Mapping[str, int],
    variants: Sequence[int] = (),
) -> FlatFunction:
    """The flat form of a function at `dims`.

    Args:
        variants: the variant of each executable; the first of each where empty.

    Raises:
        HeadraceError HR4101: dimensions do not fit.
        HeadraceError HR3205: a size is negative, too large, or outside its resource.
    """
    function = program.functions[function_index]
    sizes = Sizes(check_dims(module, dims))
    _check_length(program, function)
    flattener = _Flattener(program, sizes, variants, function)
    flattener.block(function.body, list(range(len(function.resources))))
    return flattener.flat


def _check_length(program: Program, function: EntryFunction) -> None:
    """Refuses functions whose calls would unfold to too many commands or too deep."""
    known: dict[int, int] = {}

    def block_length(block: Block, depth: int) -> int:
        return sum(command_length(command, depth) for command in block.commands)

    def command_length(command: Command, depth: int) -> int:
        if isinstance(command, If):
            return (
                2 + block_length(command.then, depth) + block_length(command.otherwise, depth)
            )
        if isinstance(command, Loop):
            return 2 + block_length(command.before, depth) + block_length(command.body, depth)
        if not isinstance(command, Call):
            return 1
        if depth >= MAXIMUM_CALLS:
            raise _outside(f"calls are nested more than {MAXIMUM_CALLS} deep")
        if command.function not in known:
            body = program.functions[command.function].body
            known[command.function] = block_length(body, depth + 1)
        return known[command.function]

    if block_length(function.body, 0) > MAXIMUM_STEPS:
        raise _outside(f"the function has more than {MAXIMUM_STEPS} commands")


class _Flattener:
    def __init__(
        self,
        program: Program,
        sizes: Sizes,
        variants: Sequence[int],
        function: EntryFunction,
    ) -> None:
        self._program = program
        self._sizes = sizes
        self._variants = variants
        self._chosen: dict[tuple[int, int], Specialisation] = {}
        resource_sizes = [sizes(r.size_bytes) for r in function.resources]
        for resource, size in zip(function.resources, resource_sizes, strict=True):
            if size > MAXIMUM_BYTES:
                raise _outside(f"resource '{resource.name}' would have {size} bytes")
        # A branch that does not fit these dimensions may have negative sizes; whatever else
        # has one is refused where it is used.
        self.flat = FlatFunction(function, [max(0, size) for size in resource_sizes])

    def block(self, block: Block, resources: list[int]) -> None:
        for index, command in enumerate(block.commands):
            if isinstance(command, Dispatch):
                self._dispatch(command, resources, index)
            elif isinstance(command, Copy):
                self._copy(command, resources, index)
            elif isinstance(command, Fill):
                self._fill(command, resources, index)
            elif isinstance(command, If):
                self._if(command, resources)
            elif isinstance(command, Loop):
                self._loop(command, resources)
            else:
                callee = self._program.functions[command.function]
                inner = [resources[r] for r in command.resources]
                self.block(callee.body, inner)

    # -- operands ---------------------------------------------------------------

    def _operand(
        self, resource: int, offset: int, size: int, reads: bool, writes: bool
    ) -> Operand:
        if offset < 0 or size < 0 or offset + size > self.flat.sizes_bytes[resource]:
            raise self._beyond(resource, offset, size)
        return Operand(resource, offset, size, reads, writes)

    def _beyond(self, resource: int, offset: int, size: int) -> HeadraceError:
        name = self.flat.function.resources[resource].name
        whole = self.flat.sizes_bytes[resource]
        return _outside(
            f"a command uses bytes {offset} to {offset + size} of '{name}', which has {whole}"
        )

    def _condition(self, resource: int, resources: list[int]) -> Operand:
        return self._operand(resources[resource], 0, 1, True, False)

    # -- commands -----------------------------------------------------------------

    def _specialisation(self, executable: Executable, dispatch: Dispatch) -> Specialisation:
        key = (dispatch.executable, dispatch.entry_point)
        found = self._chosen.get(key)
        if found is None:
            which = self._variants[dispatch.executable] if self._variants else 0
            cases = executable.variants[which].entry_points[dispatch.entry_point]
            found = next(c for c in cases if self._holds(c))
            self._chosen[key] = found
        return found

    def _holds(self, specialisation: Specialisation) -> bool:
        for condition in specialisation.conditions:
            value = self._sizes(condition.expr)
            if condition.minimum is not None and value < condition.minimum:
                return False
            if condition.maximum is not None and value > condition.maximum:
                return False
        return True

    def _dispatch(self, dispatch: Dispatch, resources: list[int], index: int) -> None:
        sizes = self._sizes
        executable = self._program.executables[dispatch.executable]
        whole_bytes = self.flat.sizes_bytes
        found: list[Operand] = []
        for binding in dispatch.bindings:
            resource = resources[binding.resource]
            offset, size = sizes(binding.offset_bytes), sizes(binding.size_bytes)
            if offset < 0 or size < 0 or offset + size > whole_bytes[resource]:
                raise self._beyond(resource, offset, size)
            access = binding.access
            found.append(Operand(resource, offset, size, access != "wo", access != "ro"))
        operands = tuple(found)
        constants = tuple([sizes(c) & 0xFFFFFFFF for c in dispatch.constants])
        launches = self._specialisation(executable, dispatch).launches
        operations = sizes(dispatch.operations) // max(1, len(launches))
        for launch in launches:
            x, y, z = map(sizes, launch.workgroups)
            if not (
                0 <= x <= _MOST_GROUPS and 0 <= y <= _MOST_GROUPS and 0 <= z <= _MOST_GROUPS
            ):
                raise _outside(f"'{launch.symbol}' would run {x} x {y} x {z} workgroups")
            scratch = sizes(launch.scratch_bytes)
            if not 0 <= scratch <= MAXIMUM_BYTES:
                raise _outside(f"'{launch.symbol}' would take {scratch} bytes of scratch")
            rule = launch.slice
            self.flat.steps.append(
                Step(
                    "dispatch",
                    operands,
                    dispatch.executable,
                    dispatch.entry_point,
                    launch.symbol,
                    constants,
                    (x, y, z),
                    scratch,
                    (rule.binding, rule.axis, sizes(rule.step_bytes)) if rule else None,
                    operations,
                    executable.digest,
                    index,
                )
            )

    def _copy(self, copy: Copy, resources: list[int], index: int) -> None:
        sizes = self._sizes
        size = sizes(copy.size_bytes)
        source = self._operand(
            resources[copy.source], sizes(copy.source_offset_bytes), size, True, False
        )
        target = self._operand(
            resources[copy.target], sizes(copy.target_offset_bytes), size, False, True
        )
        self.flat.steps.append(Step("copy", (source, target), command=index))

    def _fill(self, fill: Fill, resources: list[int], index: int) -> None:
        sizes = self._sizes
        target = self._operand(
            resources[fill.target],
            sizes(fill.offset_bytes),
            sizes(fill.size_bytes),
            False,
            True,
        )
        self.flat.steps.append(
            Step(
                "fill",
                (target,),
                command=index,
                pattern=fill.pattern,
                pattern_bytes=fill.pattern_bytes,
            )
        )

    def _if(self, command: If, resources: list[int]) -> None:
        steps = self.flat.steps
        branch = Step("branch", (self._condition(command.condition, resources),))
        steps.append(branch)
        self._side(command.then, command.otherwise, resources)
        if not command.otherwise.commands:
            branch.target = len(steps)
            return
        jump = Step("jump", ())
        steps.append(jump)
        branch.target = len(steps)
        self._side(command.otherwise, command.then, resources)
        jump.target = len(steps)

    def _side(self, side: Block, other: Block, resources: list[int]) -> None:
        """A branch; where its sizes are impossible at these dimensions, NaN for its results.

        Data decides whether it runs, and nothing can be refused then (the importers say the
        same of sizes that a branch bounds). Results are what both branches write.
        """
        flat = self.flat
        steps, loops = len(flat.steps), len(flat.loops)
        try:
            self.block(side, resources)
        except HeadraceError as impossible:
            if impossible.diagnostics[0].code != "HR3205" or not other.commands:
                raise
            del flat.steps[steps:], flat.loops[loops:]
            for resource in sorted(self._written(side) & self._written(other)):
                whole = self._operand(
                    resources[resource], 0, flat.sizes_bytes[resources[resource]], False, True
                )
                flat.steps.append(Step("fill", (whole,), pattern=0xFF, pattern_bytes=1))

    def _written(self, block: Block) -> set[int]:
        """Resources that a block writes, as its function numbers them."""
        found: set[int] = set()
        for command in block.commands:
            if isinstance(command, Dispatch):
                found |= {b.resource for b in command.bindings if b.access != "ro"}
            elif isinstance(command, (Copy, Fill)):
                found.add(command.target)
            elif isinstance(command, If):
                found |= self._written(command.then) | self._written(command.otherwise)
            elif isinstance(command, Loop):
                found |= self._written(command.before) | self._written(command.body)
            else:
                inner = self._written(self._program.functions[command.function].body)
                found |= {command.resources[r] for r in inner}
        return found

    def _loop(self, command: Loop, resources: list[int]) -> None:
        steps = self.flat.steps
        self.block(command.before, resources)
        first = len(steps)
        span = LoopSpan(first, first, GUESSED_TRIPS)
        if command.trip_count is not None:
            span.trips = max(1, self._sizes(command.trip_count))
        self.flat.loops.append(span)
        branch = Step("branch", (self._condition(command.condition, resources),))
        steps.append(branch)
        self.block(command.body, resources)
        span.last = len(steps)
        steps.append(Step("jump", (), target=first))
        branch.target = len(steps)


def _outside(fact: str) -> HeadraceError:
    return error("HR3205", fact, helps="compile the model again")


def step_key(step: Step, dims: tuple[tuple[str, int], ...]) -> str:
    """The profile's key of a launch."""
    return kernel_key(step.digest, step.symbol, dims, step.workgroups)
