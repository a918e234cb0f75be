"""From materialised modules and compiled kernels to what a `.hrx` says.

`assemble` reads each device class's module at the end of the hal stage and gives plain
data: programs, and the weights in order of first use with the steps at which they may be
cut. Weights are not evaluated here: `artifact/writer` does that, one at a time.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, BlockArgument, SSAValue

from headrace.artifact import schema
from headrace.artifact.writer import ModuleParts, WeightSpec
from headrace.base.errors import error
from headrace.base.exponent_codes import ExponentCodes
from headrace.base.parameters import ExpressionSource, Source, size_bytes
from headrace.base.symbols import ZERO, Expr, product
from headrace.hal import dialect as hal
from headrace.hal.interp import kernels_of
from headrace.ir.locations import places
from headrace.ir.model import Model
from headrace.ir.types import dtype_of, shape_of
from headrace.kernel import target as kernel_target
from headrace.kernel.description import Compute, Kernel, Load
from headrace.kernel.target import Code, Target
from headrace.kernel.text import print_kernel
from headrace.stream.commands import CallOp, CopyOp, DispatchOp, FillOp, IfOp, LoopOp
from headrace.stream.dialect import ResourceAllocOp, ResourceConstantOp
from headrace.stream.resources import (
    aliased_input,
    argument_io,
    argument_name,
    argument_type,
    size_of,
)
from headrace.stream.scalars import scalar_expr
from headrace.tensor.sizes import Next, read_next

PACKED_SUFFIX = re.compile(r"\$layout\d+$")
"""What `flow-assign-layouts` puts behind a parameter's name for a packed copy."""

Compiled = tuple[str, Target, Code]
"""(name of the `hal.executable`, target, what it made of the next of its kernels)."""


def assemble(
    classes: Mapping[str, Model],
    codes: Sequence[Compiled],
    name: str,
    dimension_ranges: Mapping[str, tuple[int, int | None]],
    provenance: schema.Provenance,
) -> tuple[ModuleParts, list[WeightSpec]]:
    """What to write for modules whose kernels are compiled.

    Args:
        classes: a model at the end of the hal stage by device class.
        codes: one for each kernel of each variant, in the order of the modules.
        name: of the module.
        dimension_ranges: bounds of named dimensions; others have none.
        provenance: where it came from.

    Raises:
        HeadraceDefect HR9701: a variant's code is missing.
    """
    weights = _Weights()
    blobs = _Blobs()
    programs: list[schema.Program] = []
    for device_class, model in classes.items():
        mine = [c for c in codes if c[1].device_class == device_class]
        programs.append(_Program(device_class, model, mine, weights, blobs).build())
    parts = ModuleParts(
        name,
        _dimensions(dimension_ranges, programs),
        tuple(programs),
        provenance,
        tuple(blobs.data),
    )
    return parts, weights.specs()


def _dimensions(
    ranges: Mapping[str, tuple[int, int | None]], programs: Sequence[schema.Program]
) -> tuple[schema.DimensionRange, ...]:
    """The dimensions of the inputs, those with bounds first."""
    used = {
        name
        for program in programs
        for function in program.functions
        for signature in (*function.inputs, *function.outputs)
        for extent in signature.shape
        for name in extent.names
    }
    order = [*ranges, *sorted(used - ranges.keys())]
    return tuple(schema.DimensionRange(n, *ranges.get(n, (1, None))) for n in order)


# -- pools --------------------------------------------------------------------------


@dataclass
class _Blobs:
    """Code, each distinct blob once."""

    data: list[bytes] = field(default_factory=list[bytes])
    known: dict[bytes, int] = field(default_factory=dict[bytes, int])

    def index(self, code: bytes) -> int:
        if code not in self.known:
            self.known[code] = len(self.data)
            self.data.append(code)
        return self.known[code]


@dataclass
class _WeightUse:
    """What is known of one weight: the steps of all its users, and its rows.

    Attributes:
        steps: bytes at which each user may cut it; 0 for one that may not.
        rows: bytes of the rows each user gathers; 0 for one that reads otherwise.
    """

    name: str
    source: Source
    steps: list[int] = field(default_factory=list[int])
    rows: list[int] = field(default_factory=list[int])


class _Weights:
    """The weights of all classes, in order of first use."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], int] = {}
        self._uses: list[_WeightUse] = []

    def index(self, name: str, source: Source) -> int:
        plain = PACKED_SUFFIX.sub("", name)
        key = (plain, source.digest)
        if key not in self._known:
            self._known[key] = len(self._uses)
            self._uses.append(_WeightUse(plain, source))
        return self._known[key]

    def use(self, index: int, step: int, row: int) -> None:
        self._uses[index].steps.append(step)
        self._uses[index].rows.append(row)

    def _join_equal(self) -> None:
        """A source under several names is stored once, so it is cut for all of its users."""
        first: dict[str, _WeightUse] = {}
        for use in self._uses:
            known = first.setdefault(use.source.digest, use)
            if known is not use:
                known.steps += use.steps
                known.rows += use.rows
                use.steps, use.rows = known.steps, known.rows

    def specs(self) -> list[WeightSpec]:
        self._join_equal()
        found: list[WeightSpec] = []
        for use in self._uses:
            logical, codes = use.source, None
            if isinstance(logical, ExpressionSource) and logical.operation == "exponent_codes":
                codes = ExponentCodes(**dict(logical.attributes))
                logical = logical.operands[0]
            if isinstance(logical, ExpressionSource) and logical.operation == "pack":
                logical = logical.operands[0]
            if isinstance(logical, ExpressionSource) and logical.operation == "winograd":
                logical = logical.operands[0]
            size = size_bytes(use.source)
            row = use.rows[0] if use.rows and len(set(use.rows)) == 1 else 0
            step = math.lcm(*use.steps) if use.steps and all(use.steps) and not row else 0
            found.append(
                WeightSpec(
                    use.name,
                    use.source,
                    size,
                    step if step < size else 0,
                    logical.dtype,
                    logical.shape,
                    row,
                    len(use.steps),
                    codes,
                )
            )
        return found


# -- programs -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Entry:
    """Where an entry point of the IR went: its executable in the program, and its kernel."""

    executable: int
    kernel: Kernel | None


class _Program:
    """One device class's program while it is built."""

    def __init__(
        self,
        device_class: str,
        model: Model,
        codes: Sequence[Compiled],
        weights: _Weights,
        blobs: _Blobs,
    ) -> None:
        self.device_class = device_class
        self.model = model
        self.weights = weights
        self.blobs = blobs
        self.codes: dict[tuple[str, str], list[Code]] = {}
        for executable, target, code in codes:
            self.codes.setdefault((executable, target.name), []).append(code)
        self.executables: list[schema.Executable] = []
        self.entries: dict[tuple[str, str], _Entry] = {}
        self.functions: list[schema.EntryFunction] = []
        self.function_numbers: dict[str, int] = {}

    def build(self) -> schema.Program:
        kernels = kernels_of(self.model.ir)
        for op in self.model.ir.ops:
            if isinstance(op, hal.ExecutableOp):
                self._executable(op, kernels)
        for op in self.model.ir.ops:
            if isinstance(op, FuncOp):
                self.function(op.sym_name.data)
        for op in self.model.ir.ops:
            following = read_next(op) if isinstance(op, FuncOp) else None
            if following is not None:
                self._connect(cast(FuncOp, op).sym_name.data, following)
        return schema.Program(self.device_class, tuple(self.functions), tuple(self.executables))

    def _connect(self, name: str, following: Next) -> None:
        number = self.function_numbers[name]
        goes_on = schema.Continuation(
            self.function_numbers[following.function], following.sizes, following.results
        )
        self.functions[number] = replace(self.functions[number], following=goes_on)

    def function(self, name: str) -> int:
        """The number of a program function; built (callees first) when first asked for."""
        if name not in self.function_numbers:
            op = next(
                o
                for o in self.model.ir.ops
                if isinstance(o, FuncOp) and o.sym_name.data == name
            )
            built = _Function(self, op).build()
            self.function_numbers[name] = len(self.functions)
            self.functions.append(built)
        return self.function_numbers[name]

    def _executable(
        self, op: hal.ExecutableOp, kernels: Mapping[tuple[str, str], Kernel]
    ) -> None:
        """An executable for each entry point: each kernel is a blob of code of its own."""
        variants = [v for v in op.body.ops if isinstance(v, hal.ExecutableVariantOp)]
        points = [p for p in variants[0].body.ops if isinstance(p, hal.ExecutableEntryPointOp)]
        name = op.sym_name.data
        interfaces = {i.sym_name.data: i for i in op.body.ops if isinstance(i, hal.InterfaceOp)}
        for number, point in enumerate(points):
            entry = point.sym_name.data
            kernel = kernels.get((name, entry))
            interface = interfaces[point.interface.root_reference.data]
            targets = [v.target.data for v in variants]
            self.entries[name, entry] = _Entry(len(self.executables), kernel)
            self.executables.append(
                schema.Executable(
                    name if len(points) == 1 else f"{name}::{entry}",
                    (_entry_point(entry, interface, kernel),),
                    tuple(v for t in targets for v in self._variants(name, t, number)),
                    _digest(kernel, targets),
                )
            )

    def _variants(
        self, executable: str, target: str, number: int
    ) -> tuple[schema.Variant, ...]:
        """What a target made of a kernel: one variant, or several by a device's features."""
        codes = self.codes.get((executable, target), [])
        if number >= len(codes):
            raise error("HR9701", f"no code for kernel {number} of @{executable} on {target}")
        return tuple(
            schema.Variant(
                target,
                code.format,
                self.blobs.index(code.data),
                tuple(code.features),
                (tuple(_specialisation(s) for s in code.specialisations),),
            )
            for code in (codes[number], *codes[number].others)
        )


def _entry_point(
    name: str, interface: hal.InterfaceOp, kernel: Kernel | None
) -> schema.EntryPoint:
    accesses: list[str] = []
    for number, binding in enumerate(interface.bindings):
        access = binding.sym_name.data.partition("_")[2]
        if not access:  # never dispatched: what the kernel does
            access = kernel.operands[number].access if kernel is not None else "rw"
        accesses.append(access)
    return schema.EntryPoint(
        name,
        0,
        tuple(accesses),  # pyright: ignore[reportArgumentType]
        interface.push_constants.value.data,
    )


def _digest(kernel: Kernel | None, targets: Sequence[str]) -> str:
    text = print_kernel(kernel) if kernel is not None else ""
    return hashlib.sha256("\n".join((*targets, text)).encode()).hexdigest()


def _specialisation(given: kernel_target.Specialisation) -> schema.Specialisation:
    return schema.Specialisation(
        tuple(schema.Condition(c.expr, c.minimum, c.maximum) for c in given.conditions),
        tuple(
            schema.Launch(
                launch.symbol,
                launch.workgroups,
                launch.scratch_bytes,
                None
                if launch.slice is None
                else schema.SliceRule(
                    launch.slice.binding, launch.slice.axis, launch.slice.step_bytes
                ),
                launch.family,
                launch.shared_bytes,
            )
            for launch in given.launches
        ),
    )


# -- functions ----------------------------------------------------------------------


class _Function:
    """One entry function while it is built."""

    def __init__(self, program: _Program, op: FuncOp) -> None:
        self.program = program
        self.op = op
        self.resources: list[schema.Resource] = []
        self.numbers: dict[SSAValue, int] = {}

    def build(self) -> schema.EntryFunction:
        block = self.op.body.block
        inputs: list[schema.TensorSignature] = []
        outputs: list[schema.TensorSignature] = []
        for argument in block.args:
            name = argument_name(argument) or f"argument{argument.index}"
            number = self._external(argument, name)
            kind = argument_type(argument)
            if kind is not None:
                signature = schema.TensorSignature(name, dtype_of(kind), shape_of(kind), number)
                (outputs if argument_io(argument) == "output" else inputs).append(signature)
        body = self._block(block)
        return schema.EntryFunction(
            self.op.sym_name.data, tuple(inputs), tuple(outputs), tuple(self.resources), body
        )

    def _external(self, argument: BlockArgument, name: str) -> int:
        """The resource of an argument: an input's for the output that takes its place."""
        place = aliased_input(argument)
        if place is not None:
            self.numbers[argument] = self.numbers[place]
            return self.numbers[place]
        size = size_of(argument)
        return self._add(argument, schema.Resource(name, "external", size or ZERO))

    def _add(self, value: SSAValue, resource: schema.Resource) -> int:
        self.numbers[value] = len(self.resources)
        self.resources.append(resource)
        return self.numbers[value]

    def _resource(self, value: SSAValue) -> int:
        """The number of a resource; allocations and weights are listed by first use."""
        if value in self.numbers:
            return self.numbers[value]
        op = value.owner
        if isinstance(op, ResourceAllocOp):
            label = op.label.data if op.label is not None else ""
            lifetime = cast(schema.Lifetime, op.result.type.data)  # pyright: ignore
            return self._add(value, schema.Resource(label, lifetime, op.size.exprs[0]))
        assert isinstance(op, ResourceConstantOp)
        name = op.parameter.root_reference.data
        source = self.program.model.parameters[name]
        weight = self.program.weights.index(name, source)
        return self._add(
            value,
            schema.Resource(PACKED_SUFFIX.sub("", name), "constant", op.size.exprs[0], weight),
        )

    def _block(self, block: Block) -> schema.Block:
        commands: list[schema.Command] = []
        for op in block.ops:
            if isinstance(op, DispatchOp):
                commands.append(self._dispatch(op))
            elif isinstance(op, CopyOp):
                commands.append(
                    schema.Copy(
                        self._resource(op.source),
                        op.source_offset.exprs[0],
                        self._resource(op.target),
                        op.target_offset.exprs[0],
                        op.length.exprs[0],
                    )
                )
            elif isinstance(op, FillOp):
                width = op.pattern_bytes
                commands.append(
                    schema.Fill(
                        self._resource(op.target),
                        op.offset.exprs[0],
                        op.length.exprs[0],
                        op.pattern.value.data % (1 << 8 * width),
                        width,
                    )
                )
            elif isinstance(op, IfOp):
                condition = self._resource(op.condition)
                commands.append(
                    schema.If(
                        condition, self._block(op.then.block), self._block(op.otherwise.block)
                    )
                )
            elif isinstance(op, LoopOp):
                before = self._block(op.before.block)
                count = op.trip_count.exprs[0] if op.trip_count is not None else None
                commands.append(
                    schema.Loop(
                        before,
                        self._resource(op.condition),
                        self._block(op.body.block),
                        count,
                    )
                )
            elif isinstance(op, CallOp):
                commands.append(self._call(op))
        return schema.Block(tuple(commands))

    def _call(self, op: CallOp) -> schema.Call:
        number = self.program.function(op.callee.root_reference.data)
        callee = self.program.functions[number]
        given = [self._resource(a) for a in op.arguments]
        # What the callee allocates and the weights it reads are resources of the caller.
        for resource in callee.resources[len(given) :]:
            given.append(len(self.resources))
            self.resources.append(resource)
        return schema.Call(number, tuple(given))

    def _dispatch(self, op: DispatchOp) -> schema.Dispatch:
        entry = self.program.entries[op.executable_name, op.export_name]
        bindings: list[schema.Binding] = []
        for resource, access, offset, length in zip(
            op.resources, op.accesses.data, op.offsets.exprs, op.lengths.exprs, strict=True
        ):
            short = "wo" if access.data == "xw" else access.data
            bindings.append(
                schema.Binding(
                    self._resource(resource),
                    offset,
                    length,
                    short,  # pyright: ignore[reportArgumentType]
                )
            )
        self._note_weights(entry, bindings)
        return schema.Dispatch(
            entry.executable,
            0,
            tuple(bindings),
            tuple(scalar_expr(v) for v in op.constants),
            ", ".join(places(op)),
            operation_count(entry.kernel) if entry.kernel is not None else ZERO,
        )

    def _note_weights(self, entry: _Entry, bindings: Sequence[schema.Binding]) -> None:
        executable = self.program.executables[entry.executable]
        for number, binding in enumerate(bindings):
            weight = self.resources[binding.resource].weight
            if weight is None:
                continue
            alone = sum(b.resource == binding.resource for b in bindings) == 1
            whole = binding.offset_bytes == ZERO
            step = _slice_step(executable, number) if alone and whole else 0
            row = gathered_row_bytes(entry.kernel, number) if entry.kernel else 0
            self.program.weights.use(weight, step, row if alone and whole else 0)


def _slice_step(executable: schema.Executable, binding: int) -> int:
    """Bytes at which every launch of every variant may cut a weight; 0 where one may not."""
    steps: list[int] = []
    for variant in executable.variants:
        for specialisation in variant.entry_points[0]:
            for launch in specialisation.launches:
                rule = launch.slice
                if rule is None or rule.binding != binding or not rule.step_bytes.is_constant:
                    return 0
                steps.append(rule.step_bytes.value)
    return math.lcm(*steps) if steps and all(steps) else 0


def gathered_row_bytes(kernel: Kernel, number: int) -> int:
    """Bytes of the rows a kernel gathers from an operand by data; 0 where it reads otherwise.

    Rows are contiguous runs along all dimensions but the first, of a table that is
    row-major: only then a row can be fetched where it stands.
    """
    operand = kernel.operands[number]
    if operand.access != "ro" or len(operand.shape) < 2:
        return 0
    row = product(operand.shape[1:])
    stride = operand.layout.dimensions[0]
    if stride.tile != 1 or stride.stride != row or not row.is_constant:
        return 0
    found = False
    for phase in kernel.phases:
        values = {op.result for op in phase.body}
        for op in phase.body:
            if isinstance(op, Load) and op.operand == number:
                found = True
                if not op.index[0].names & values:
                    return 0
    return row.value * operand.dtype.size_bytes if found else 0


def operation_count(kernel: Kernel) -> Expr:
    """Scalar operations of one dispatch; a multiplication that is summed counts as one."""
    total = ZERO
    for phase in kernel.phases:
        points = kernel.outer_size
        for axis in (*phase.parallel, *phase.reduction_axes):
            points = points * axis.size
        computed = sum(isinstance(op, Compute) for op in phase.body)
        total = total + points * max(1, computed)
    return total
