"""Turns tensors into resources, and dispatches of tensors into commands on them.

- A `flow.executable` becomes a `stream.executable`: one `!stream.binding` argument for
  each operand of the kernel, in its order, and an index for each named dimension.
- An input is an `external` resource, a parameter a `constant` one, the result of a
  dispatch a `transient` one of its own, sized by the layout of the kernel's operand and
  rounded up to 64 bytes.
- A reshape is the same resource under another name.
- Branches and loops call the functions they run (`inline_calls` puts these in place);
  their results and carried values are transients.
- A function still returns its outputs; `materialize_copies` makes them arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr, SymbolRefAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, OpResult, Region, SSAValue
from xdsl.rewriter import Rewriter

from headrace.base.dtypes import I1
from headrace.base.errors import error
from headrace.base.parameters import size_bytes
from headrace.flow.control import IfOp as FlowIfOp
from headrace.flow.control import WhileOp as FlowWhileOp
from headrace.flow.dialect import DispatchOp, TensorReshapeOp
from headrace.flow.dialect import ExecutableOp as FlowExecutableOp
from headrace.flow.layouts.sites import Entry, read_entry
from headrace.ir.locations import places
from headrace.ir.model import Model
from headrace.ir.passes import Pass
from headrace.ir.types import exprs_attr, tensor_type
from headrace.kernel.description import Kernel
from headrace.stream.commands import CallOp, CopyOp, IfOp, LoopOp
from headrace.stream.commands import DispatchOp as CommandDispatchOp
from headrace.stream.dialect import ResourceAllocOp, ResourceConstantOp, SizeOp
from headrace.stream.executables import make_executable, value_name
from headrace.stream.resources import IO, NAME, SIZE, TYPE, aligned, operand_bytes, tensor_bytes
from headrace.stream.types import ResourceType
from headrace.tensor.dialect import ParameterOp


@dataclass(frozen=True)
class ConvertFromFlow(Pass):
    """`stream-convert-from-flow`.

    Raises:
        HeadraceDefect HR9507: an operation that flow's end forbids is still there.
    """

    def run(self, model: Model) -> None:
        entries: dict[tuple[str, str], Entry] = {}
        for op in list(model.ir.ops):
            if isinstance(op, FlowExecutableOp):
                _convert_executable(op, entries)
        for op in list(model.ir.ops):
            if isinstance(op, FuncOp):
                _Program(op, model, entries).convert()


# -- executables --------------------------------------------------------------------


def _convert_executable(
    source: FlowExecutableOp, entries: dict[tuple[str, str], Entry]
) -> None:
    name = source.sym_name.data
    found: list[tuple[str, Kernel]] = []
    for function in source.module.ops:
        if isinstance(function, FuncOp):
            entry = read_entry(function)
            entries[name, function.sym_name.data] = entry
            found.append((function.sym_name.data, entry.kernel))
    visibility = source.sym_visibility
    made = make_executable(
        name, found, source.location, visibility.data if visibility else "private"
    )
    sources = [op for op in source.module.ops if isinstance(op, FuncOp)]
    functions = [op for op in made.walk() if isinstance(op, FuncOp)]
    for before, after in zip(sources, functions, strict=True):
        after.attributes.update(before.attributes)
        for op in after.walk():
            op.location = before.location
    Rewriter.replace_op(source, made, [])


# -- programs -----------------------------------------------------------------------


@dataclass
class _Program:
    """One function on its way from tensors to resources.

    Attributes:
        resources: the resource that holds each tensor.
        sizes: the scalar of each named dimension.
        returned: types of the tensors it returns.
    """

    function: FuncOp
    model: Model
    entries: Mapping[tuple[str, str], Entry]
    block: Block = field(default_factory=Block)
    resources: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    sizes: dict[str, SSAValue] = field(default_factory=dict[str, SSAValue])
    returned: list[Attribute] = field(default_factory=list[Attribute])

    def convert(self) -> None:
        old = self.function.body.block
        self._arguments(old)
        for op in old.ops:
            self._operation(op)
        for op in reversed(list(old.ops)):
            Rewriter.erase_op(op, safe_erase=False)
        self.function.body.detach_block(old)
        self.function.body.add_block(self.block)
        self.function.update_function_type()
        self._result_types()

    def _arguments(self, old: Block) -> None:
        given = self.function.arg_attrs.data if self.function.arg_attrs is not None else ()
        attributes: list[DictionaryAttr] = []
        for argument in old.args:
            known: dict[str, Attribute] = {}
            if argument.index < len(given):
                known.update(given[argument.index].data)
            known[IO] = StringAttr("input")
            known[TYPE] = argument.type
            known[SIZE] = exprs_attr([tensor_bytes(argument.type)])
            made = self.block.insert_arg(ResourceType("external"), argument.index)
            name = known.get(NAME)
            made.name_hint = argument.name_hint or (
                value_name(name.data) if isinstance(name, StringAttr) else None
            )
            self.resources[argument] = made
            attributes.append(DictionaryAttr(known))
        self.function.arg_attrs = ArrayAttr(attributes)

    def _result_types(self) -> None:
        given = self.function.res_attrs.data if self.function.res_attrs is not None else ()
        terminator = self.block.last_op
        assert isinstance(terminator, ReturnOp)
        attributes: list[DictionaryAttr] = []
        for number, kind in enumerate(self.returned):
            known = dict(given[number].data) if number < len(given) else {}
            known[TYPE] = kind
            attributes.append(DictionaryAttr(known))
        self.function.res_attrs = ArrayAttr(attributes)

    def _add(self, made: Operation, source: Operation) -> None:
        made.location = source.location
        self.block.add_op(made)

    def _operation(self, op: Operation) -> None:
        if isinstance(op, ParameterOp):
            name = op.parameter.root_reference.data
            made = ResourceConstantOp(name, size_bytes(self.model.parameters[name]))
            made.result.name_hint = op.result.name_hint or value_name(name)
            self._add(made, op)
            self.resources[op.result] = made.result
        elif isinstance(op, TensorReshapeOp):
            self.resources[op.result] = self.resources[op.operand]
        elif isinstance(op, DispatchOp):
            self._dispatch(op)
        elif isinstance(op, FlowIfOp):
            self._if(op)
        elif isinstance(op, FlowWhileOp):
            self._while(op)
        elif isinstance(op, ReturnOp):
            self.returned = [v.type for v in op.arguments]
            self._add(ReturnOp(*(self.resources[v] for v in op.arguments)), op)
        else:
            raise error("HR9507", f"{op.name} is still there when flow ends", at=places(op))

    def _allocate(self, kind: Attribute, op: Operation) -> SSAValue:
        """A transient for one row-major tensor of a branch or loop."""
        label = (places(op) or (op.name,))[-1]
        made = ResourceAllocOp(aligned(tensor_bytes(kind)), label=label)
        self._add(made, op)
        return made.result

    def _call(self, name: str, given: Sequence[SSAValue], op: Operation) -> CallOp:
        made = CallOp(SymbolRefAttr(name), list(given))
        made.location = op.location
        return made

    def _if(self, op: FlowIfOp) -> None:
        given = [self.resources[v] for v in op.arguments]
        for result in op.results:
            self.resources[result] = self._allocate(result.type, op)
        given += [self.resources[r] for r in op.results]
        regions = [
            Region(Block([self._call(callee.root_reference.data, given, op)]))
            for callee in (op.then, op.otherwise)
        ]
        self._add(IfOp(self.resources[op.condition], *regions), op)

    def _while(self, op: FlowWhileOp) -> None:
        """Carried values have one place; the next ones are copied there when all are made."""
        condition, body = op.callees()
        captured = [self.resources[v] for v in op.captured]
        carried = [self._allocate(v.type, op) for v in op.inputs]
        following = [self._allocate(v.type, op) for v in op.inputs]
        flag = self._allocate(tensor_type(I1, ()), op)
        sizes = [tensor_bytes(v.type) for v in op.inputs]

        def copies(sources: Sequence[SSAValue]) -> list[Operation]:
            made: list[Operation] = [
                CopyOp(source, target, size)
                for source, target, size in zip(sources, carried, sizes, strict=True)
            ]
            for copy in made:
                copy.location = op.location
            return made

        check = [*carried, *captured, flag]
        before = [*copies([self.resources[v] for v in op.inputs])]
        before.append(self._call(condition, check, op))
        step: list[Operation] = [self._call(body, [*carried, *captured, *following], op)]
        step += copies(following)
        step.append(self._call(condition, check, op))
        count = op.trip_count.exprs[0] if op.trip_count is not None else None
        loop = LoopOp(Region(Block(before)), flag, Region(Block(step)), count)
        self._add(loop, op)
        self.resources.update(zip(op.results, carried, strict=True))

    def _dispatch(self, op: DispatchOp) -> None:
        nested = op.entry_point.nested_references.data
        entry = self.entries[op.entry_point.root_reference.data, nested[-1].data]
        kernel = entry.kernel
        for operand, (is_result, number) in zip(kernel.operands, entry.places, strict=True):
            if is_result:
                label = (places(op) or (op.entry_point.root_reference.data,))[-1]
                made = ResourceAllocOp(aligned(operand_bytes(operand)), label=label)
                result: OpResult = op.results[number]
                made.result.name_hint = result.name_hint
                self._add(made, op)
                self.resources[result] = made.result
        tensors = [
            op.results[number] if is_result else op.arguments[number]
            for is_result, number in entry.places
        ]
        self._add(
            CommandDispatchOp(
                op.entry_point,
                op.workload.exprs,
                [self._size(dim) for dim in kernel.dims],
                [self.resources[t] for t in tensors],
                [operand.access for operand in kernel.operands],
                [0] * len(tensors),
                [operand_bytes(operand) for operand in kernel.operands],
            ),
            op,
        )

    def _size(self, dim: str) -> SSAValue:
        if dim not in self.sizes:
            made = SizeOp(dim)
            made.result.name_hint = value_name(dim)
            if self.block.first_op is None:
                self.block.add_op(made)
            else:
                self.block.insert_op_before(made, self.block.first_op)
            self.sizes[dim] = made.result
        return self.sizes[dim]
