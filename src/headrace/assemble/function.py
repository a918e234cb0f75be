"""One entry function: its resources, and its commands in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, BlockArgument, SSAValue

from headrace.artifact import schema
from headrace.assemble.facts import gathered_row_bytes, operation_count, slice_step
from headrace.assemble.pools import PACKED_SUFFIX
from headrace.base.symbols import ZERO
from headrace.ir.locations import places
from headrace.ir.types import dtype_of, shape_of
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

if TYPE_CHECKING:
    from headrace.assemble.program import Entry, Program


class Function:
    """One entry function while it is built."""

    def __init__(self, program: Program, op: FuncOp) -> None:
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

    def _note_weights(self, entry: Entry, bindings: Sequence[schema.Binding]) -> None:
        executable = self.program.executables[entry.executable]
        for number, binding in enumerate(bindings):
            weight = self.resources[binding.resource].weight
            if weight is None:
                continue
            alone = sum(b.resource == binding.resource for b in bindings) == 1
            whole = binding.offset_bytes == ZERO
            step = slice_step(executable, number) if alone and whole else 0
            row = gathered_row_bytes(entry.kernel, number) if entry.kernel else 0
            self.program.weights.use(weight, step, row if alone and whole else 0)
