"""Whether a decoded module is consistent: indices, sizes, names and ranges.

`decode` has checked types; this checks everything that plan and run time rely on, so
that they can index without looking. Sizes that hang on named dimensions are checked by
the plan when the dimensions are known.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from headrace.artifact.container import ALIGNMENT_BYTES, PAGE_BYTES
from headrace.artifact.schema import (
    Block,
    Call,
    Copy,
    Dispatch,
    EntryFunction,
    EntryPoint,
    Executable,
    Fill,
    If,
    Launch,
    Loop,
    Module,
    Program,
    Specialisation,
    Variant,
    Weight,
)
from headrace.base.dtypes import I64
from headrace.base.exponent_codes import PACKED_DTYPES, ExponentCodes
from headrace.base.symbols import Expr

MAXIMUM_NESTING = 64
_PATTERN_BYTES = (1, 2, 4, 8)


def check_module(module: Module, pool_size_bytes: int, code_blobs: int) -> list[str]:
    """Everything wrong with `module`, as facts in lower case; empty where it is sound."""
    checker = _Checker(module, code_blobs)
    checker.check(pool_size_bytes)
    return checker.facts


class _Checker:
    def __init__(self, module: Module, code_blobs: int) -> None:
        self.facts: list[str] = []
        self._module = module
        self._code_blobs = code_blobs
        self._names = frozenset(d.name for d in module.dimensions)

    def _fact(self, holds: bool, fact: str) -> None:
        if not holds and fact not in self.facts:
            self.facts.append(fact)

    def _index(self, index: int, count: int, what: str) -> bool:
        inside = 0 <= index < count
        self._fact(inside, f"{what} {index} does not exist; there are {count}")
        return inside

    def _expr(self, expr: Expr, where: str) -> None:
        if expr.is_constant:
            self._fact(expr.value >= 0, f"{where}: a size is negative")
            return
        unknown = sorted(expr.names - self._names)
        self._fact(not unknown, f"{where}: unknown dimensions {', '.join(unknown)}")

    # -- the module -------------------------------------------------------------

    def check(self, pool_size_bytes: int) -> None:
        module = self._module
        self._fact(
            len(self._names) == len(module.dimensions), "two dimensions have the same name"
        )
        for dimension in module.dimensions:
            high = dimension.maximum
            self._fact(
                dimension.minimum >= 0 and (high is None or dimension.minimum <= high),
                f"dimension {dimension.name} has an empty range",
            )
        self._check_segments(pool_size_bytes)
        self._check_weights()
        classes = [p.device_class for p in module.programs]
        self._fact(len(set(classes)) == len(classes), "two programs have the same device class")
        for program in module.programs:
            self._check_program(program)

    def _check_segments(self, pool_size_bytes: int) -> None:
        end = 0
        for index, segment in enumerate(self._module.segments):
            sound = segment.size_bytes > 0 and segment.size_bytes % PAGE_BYTES == 0
            self._fact(sound, f"segment {index} is not whole pages")
            self._fact(segment.offset_bytes == end, f"segment {index} leaves a gap or overlaps")
            end = segment.offset_bytes + segment.size_bytes
        self._fact(end == pool_size_bytes, "the segments do not cover the pool")

    def _check_weights(self) -> None:
        total = sum(s.size_bytes for s in self._module.segments)
        placed: list[tuple[int, int, str]] = []
        for weight in self._module.weights:
            inside = (
                weight.offset_bytes >= 0
                and 0 <= weight.size_bytes <= total - weight.offset_bytes
            )
            self._fact(inside, f"weight {weight.name} lies outside the pool")
            self._fact(
                weight.offset_bytes % ALIGNMENT_BYTES == 0,
                f"weight {weight.name} is not aligned",
            )
            self._fact(
                weight.step_bytes >= 0
                and weight.row_bytes >= 0
                and min(weight.shape, default=0) >= 0,
                f"weight {weight.name} has a negative size",
            )
            if weight.codes is not None:
                self._check_codes(weight, weight.codes)
            if weight.size_bytes:
                end = weight.offset_bytes + weight.size_bytes
                placed.append((weight.offset_bytes, end, weight.digest))
        placed.sort()
        for (start, end, digest), (other, other_end, other_digest) in itertools.pairwise(
            placed
        ):
            same = (start, end, digest) == (other, other_end, other_digest)
            self._fact(same or other >= end, f"weights overlap at {other} in the pool")

    def _check_codes(self, weight: Weight, codes: ExponentCodes) -> None:
        """A packed weight is whole blocks of as many elements as it has."""
        count = math.prod(weight.shape)
        name = weight.name
        if not codes.is_sound or weight.dtype.name not in PACKED_DTYPES or weight.row_bytes:
            self._fact(False, f"weight {name} cannot be packed as it says")
            return
        packed = codes.packed_bytes(count, weight.dtype.size_bytes)
        whole = count % codes.block == 0 and packed == weight.size_bytes
        self._fact(whole, f"weight {name} has {weight.size_bytes} bytes, packed {packed}")
        step = codes.block_bytes(weight.dtype.size_bytes)
        self._fact(weight.step_bytes % step == 0, f"weight {name} is cut inside its blocks")

    # -- programs ---------------------------------------------------------------

    def _check_program(self, program: Program) -> None:
        where = f"program {program.device_class}"
        for executable in program.executables:
            self._check_executable(executable, f"{where}: executable {executable.name}")
        names = [f.name for f in program.functions]
        self._fact(len(set(names)) == len(names), f"{where}: two functions have the same name")
        for function in program.functions:
            self._check_function(program, function, f"{where}: function {function.name}")
        self._check_calls(program, where)
        self._check_chains(program, where)

    def _check_chains(self, program: Program, where: str) -> None:
        """Functions that the user calls go on with what is there by then, and end."""
        functions = program.functions
        named = {f.following.function for f in functions if f.following is not None}
        for index, function in enumerate(functions):
            if function.following is None or index in named:
                continue
            at = f"{where}: function {function.name}"
            there = {s.name for s in (*function.inputs, *function.outputs)}
            current = function
            for _ in functions:
                if current.following is None:
                    break
                scalars = {o.name for o in current.outputs if not o.shape and o.dtype == I64}
                sized = {output for _, output in current.following.sizes} <= scalars
                self._fact(sized, f"{at}: a size is no i64 scalar")
                if not self._index(current.following.function, len(functions), f"{at}: next"):
                    return
                current = functions[current.following.function]
                known = {s.name for s in current.inputs} <= there
                self._fact(known, f"{at}: {current.name} needs what is not there")
                there |= {o.name for o in current.outputs}
            self._fact(current.following is None, f"{at}: it goes on for ever")
            made = set(function.following.results) <= there
            self._fact(made, f"{at}: a result is made by no function")
        ends = [f for n, f in enumerate(functions) if n not in named]
        self._fact(bool(ends) or not functions, f"{where}: all functions go on in a circle")

    def _check_executable(self, executable: Executable, where: str) -> None:
        ordinals = [e.ordinal for e in executable.entry_points]
        self._fact(
            ordinals == list(range(len(ordinals))), f"{where}: ordinals are not in order"
        )
        for entry in executable.entry_points:
            self._fact(
                entry.push_constants >= 0, f"{where}: a negative count of push constants"
            )
        self._fact(bool(executable.variants), f"{where} has no variant")
        for variant in executable.variants:
            self._check_variant(variant, executable.entry_points, f"{where}: {variant.target}")

    def _check_variant(
        self, variant: Variant, entries: Sequence[EntryPoint], where: str
    ) -> None:
        self._index(variant.code, self._code_blobs, f"{where}: code")
        self._fact(
            len(variant.entry_points) == len(entries), f"{where}: entry points are missing"
        )
        for specialisations, entry in zip(variant.entry_points, entries, strict=False):
            last = specialisations[-1:]
            self._fact(
                bool(last) and not last[0].conditions,
                f"{where}: entry point {entry.name} has no case for all other sizes",
            )
            for specialisation in specialisations:
                self._check_specialisation(specialisation, entry, where)

    def _check_specialisation(
        self, specialisation: Specialisation, entry: EntryPoint, where: str
    ) -> None:
        for condition in specialisation.conditions:
            self._expr(condition.expr - condition.expr.constant_term, where)
        for launch in specialisation.launches:
            self._check_launch(launch, entry, f"{where}: {launch.symbol}")

    def _check_launch(self, launch: Launch, entry: EntryPoint, where: str) -> None:
        for expr in (*launch.workgroups, launch.scratch_bytes):
            self._expr(expr, where)
        self._fact(0 <= launch.shared_bytes < 1 << 20, f"{where}: shared memory")
        self._fact(1 <= launch.cluster <= 8, f"{where}: cluster")
        for tensor_map in launch.tensor_maps:
            self._index(tensor_map.binding, len(entry.bindings), f"{where}: tensor map")
            self._expr(tensor_map.rows, where)
            self._expr(tensor_map.columns, where)
        rule = launch.slice
        if rule is None:
            return
        self._index(rule.binding, len(entry.bindings), f"{where}: slice binding")
        self._index(rule.axis, 3, f"{where}: slice axis")
        self._expr(rule.step_bytes, where)

    # -- functions ----------------------------------------------------------------

    def _check_function(self, program: Program, function: EntryFunction, where: str) -> None:
        count = len(function.resources)
        for resource in function.resources:
            self._expr(resource.size_bytes, f"{where}: {resource.name}")
            weight = resource.weight
            constant = resource.lifetime == "constant"
            self._fact(
                constant == (weight is not None),
                f"{where}: {resource.name} is {resource.lifetime} and "
                f"{'has no' if constant else 'has a'} weight",
            )
            if weight is not None and self._index(
                weight, len(self._module.weights), f"{where}: weight"
            ):
                self._check_weight_size(
                    resource.size_bytes, weight, f"{where}: {resource.name}"
                )
        for signature in (*function.inputs, *function.outputs):
            at = f"{where}: {signature.name}"
            if self._index(signature.resource, count, f"{at}: resource"):
                lifetime = function.resources[signature.resource].lifetime
                self._fact(lifetime == "external", f"{at}: its resource is {lifetime}")
            for extent in signature.shape:
                self._expr(extent, at)
        self._check_aliases(function, where)
        for command in _commands(function.body, 0):
            if command is None:
                self._fact(False, f"{where}: the module is nested too deeply")
                return
            self._check_command(program, function, command, where)

    def _check_aliases(self, function: EntryFunction, where: str) -> None:
        """Inputs have buffers of their own, and so have outputs; of both, one of each."""
        for kind, signatures in (("input", function.inputs), ("output", function.outputs)):
            buffers = [s.resource for s in signatures]
            self._fact(
                len(set(buffers)) == len(buffers), f"{where}: two {kind}s are one buffer"
            )
        for after, before in function.aliases:
            output, given = function.outputs[after], function.inputs[before]
            self._fact(
                (output.dtype, output.shape) == (given.dtype, given.shape),
                f"{where}: {output.name} is no {given.name}, whose place it takes",
            )

    def _check_weight_size(self, size: Expr, weight: int, where: str) -> None:
        stored = self._module.weights[weight].size_bytes
        self._fact(
            size.is_constant and size.value == stored,
            f"{where}: has size {size}, its weight {stored}",
        )

    def _check_command(
        self, program: Program, function: EntryFunction, command: object, where: str
    ) -> None:
        count = len(function.resources)
        if isinstance(command, Dispatch):
            self._check_dispatch(program, function, command, where)
        elif isinstance(command, Copy):
            self._index(command.source, count, f"{where}: copy source")
            self._check_target(function, command.target, f"{where}: copy target")
            for expr in (
                command.source_offset_bytes,
                command.target_offset_bytes,
                command.size_bytes,
            ):
                self._expr(expr, f"{where}: copy")
        elif isinstance(command, Fill):
            self._check_target(function, command.target, f"{where}: fill target")
            sound = command.pattern_bytes in _PATTERN_BYTES
            sound = sound and 0 <= command.pattern < 1 << (8 * command.pattern_bytes)
            self._fact(sound, f"{where}: a fill has no such pattern")
            for expr in (command.offset_bytes, command.size_bytes):
                self._expr(expr, f"{where}: fill")
        elif isinstance(command, (If, Loop)):
            self._index(command.condition, count, f"{where}: condition")
            if isinstance(command, Loop) and command.trip_count is not None:
                self._expr(command.trip_count, f"{where}: trip count")
        elif isinstance(command, Call):
            for resource in command.resources:
                self._index(resource, count, f"{where}: resource of a call")

    def _check_target(self, function: EntryFunction, target: int, where: str) -> None:
        if self._index(target, len(function.resources), where):
            constant = function.resources[target].lifetime == "constant"
            self._fact(not constant, f"{where} is a weight")

    def _check_dispatch(
        self, program: Program, function: EntryFunction, dispatch: Dispatch, where: str
    ) -> None:
        at = f"{where}: dispatch at '{dispatch.location}'"
        if not self._index(dispatch.executable, len(program.executables), f"{at}: executable"):
            return
        entries = program.executables[dispatch.executable].entry_points
        if not self._index(dispatch.entry_point, len(entries), f"{at}: entry point"):
            return
        entry = entries[dispatch.entry_point]
        self._fact(
            len(dispatch.bindings) == len(entry.bindings)
            and len(dispatch.constants) == entry.push_constants,
            f"{at}: operands do not fit the interface of {entry.name}",
        )
        for binding in dispatch.bindings:
            if not self._index(binding.resource, len(function.resources), f"{at}: resource"):
                continue
            resource = function.resources[binding.resource]
            self._fact(
                binding.access == "ro" or resource.lifetime != "constant",
                f"{at}: writes the weight {resource.name}",
            )
            self._expr(binding.offset_bytes, at)
            self._expr(binding.size_bytes, at)
            end = binding.offset_bytes + binding.size_bytes
            if end.is_constant and resource.size_bytes.is_constant:
                self._fact(
                    end.value <= resource.size_bytes.value,
                    f"{at}: a binding ends after {resource.name}",
                )
        for constant in dispatch.constants:
            unknown = sorted(constant.names - self._names)
            self._fact(not unknown, f"{at}: unknown dimensions {', '.join(unknown)}")
        self._expr(dispatch.operations, at)

    def _check_calls(self, program: Program, where: str) -> None:
        """Calls name functions that exist, fit, and never come back to the caller."""
        functions = program.functions
        callees: list[list[int]] = []
        for function in functions:
            called: list[int] = []
            for command in _commands(function.body, 0):
                if not isinstance(command, Call):
                    continue
                if not self._index(command.function, len(functions), f"{where}: function"):
                    continue
                called.append(command.function)
                self._fact(
                    len(command.resources) == len(functions[command.function].resources),
                    f"{where}: function {function.name} calls with the wrong resources",
                )
            callees.append(called)
        done: set[int] = set()
        for start in range(len(functions)):
            self._fact(
                not _reaches_itself(start, callees, done),
                f"{where}: functions call in a circle",
            )


def _reaches_itself(start: int, callees: list[list[int]], done: set[int]) -> bool:
    """Depth-first over calls, without recursion; `done` are free of circles."""
    path: list[int] = []
    open_calls: list[Iterator[int]] = []
    node: int | None = start
    while node is not None:
        if node in path:
            return True
        if node not in done:
            path.append(node)
            open_calls.append(iter(callees[node]))
        node = None
        while open_calls and node is None:
            node = next(open_calls[-1], None)
            if node is None:
                open_calls.pop()
                done.add(path.pop())
    return False


def _commands(block: Block, depth: int) -> Iterator[object]:
    """Every command of a block and the blocks inside; None where nested too deeply."""
    if depth > MAXIMUM_NESTING:
        yield None
        return
    for command in block.commands:
        yield command
        inner: tuple[Block, ...] = ()
        if isinstance(command, If):
            inner = (command.then, command.otherwise)
        elif isinstance(command, Loop):
            inner = (command.before, command.body)
        for child in inner:
            yield from _commands(child, depth + 1)
