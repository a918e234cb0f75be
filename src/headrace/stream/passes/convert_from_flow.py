"""Turns tensors into resources, and dispatches of tensors into commands on them.

- A `flow.executable` becomes a `stream.executable`: one `!stream.binding` argument for
  each operand of the kernel, in its order, and an index for each named dimension.
- An input is an `external` resource, a parameter a `constant` one, the result of a
  dispatch a `transient` one of its own, sized by the layout of the kernel's operand and
  rounded up to 64 bytes.
- A reshape is the same resource under another name.
- A function still returns its outputs; `materialize_copies` makes them arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue
from xdsl.rewriter import Rewriter

from headrace.base.errors import error
from headrace.base.parameters import size_bytes
from headrace.flow.dialect import DispatchOp, TensorReshapeOp
from headrace.flow.dialect import ExecutableOp as FlowExecutableOp
from headrace.flow.layouts.sites import Entry, read_entry
from headrace.ir.locations import places
from headrace.ir.model import Model
from headrace.ir.passes import Pass
from headrace.ir.types import exprs_attr
from headrace.kernel.description import Kernel
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
        elif isinstance(op, ReturnOp):
            self.returned = [v.type for v in op.arguments]
            self._add(ReturnOp(*(self.resources[v] for v in op.arguments)), op)
        else:
            raise error("HR9507", f"{op.name} is still there when flow ends", at=places(op))

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
