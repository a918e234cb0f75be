"""Outputs become buffers of the caller; copies stand wherever correctness needs them.

Before, a program function returns resources; after, it takes one `external` argument
more an output and returns nothing. A returned resource *is* the output where nothing
else knows it: one command writes it, no other reads it, it is returned once and has the
output's size. Everything else (an input, a weight, a value that is also read, returned
twice, or seen through a reshape) is copied at the end, and `elide_copies` proves which
of those copies nothing sees.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import SSAValue
from xdsl.rewriter import Rewriter

from headrace.base.symbols import Expr
from headrace.ir.model import Model
from headrace.ir.passes import Pass
from headrace.ir.types import exprs_attr
from headrace.stream.commands import CopyOp, DispatchOp
from headrace.stream.dialect import ResourceAllocOp
from headrace.stream.executables import value_name
from headrace.stream.resources import IO, NAME, SIZE, TYPE, aligned, size_of, tensor_bytes
from headrace.stream.types import ResourceType


@dataclass(frozen=True)
class MaterializeCopies(Pass):
    """`stream-materialize-copies`."""

    def run(self, model: Model) -> None:
        for function in model.ir.ops:
            if isinstance(function, FuncOp) and function.function_type.outputs.data:
                _convert(function)


def _convert(function: FuncOp) -> None:
    block = function.body.block
    terminator = block.last_op
    assert isinstance(terminator, ReturnOp)
    given = function.res_attrs.data if function.res_attrs is not None else ()
    inputs = function.arg_attrs.data if function.arg_attrs is not None else ()
    attributes = list(inputs) + [DictionaryAttr({})] * (len(block.args) - len(inputs))
    for number, value in enumerate(tuple(terminator.arguments)):
        known = dict(given[number].data) if number < len(given) else {}
        size = tensor_bytes(known[TYPE])
        output = block.insert_arg(ResourceType("external"), len(block.args))
        name = known.get(NAME)
        output.name_hint = value_name(name.data) if isinstance(name, StringAttr) else None
        known[IO] = StringAttr("output")
        known[SIZE] = exprs_attr([size])
        attributes.append(DictionaryAttr(known))
        function.arg_attrs = ArrayAttr(attributes)
        if _is_output_alone(value, size):
            alloc = value.owner
            assert isinstance(alloc, ResourceAllocOp)
            value.replace_all_uses_with(output)
            Rewriter.erase_op(alloc)
        else:
            copy = CopyOp(value, output, size)
            copy.location = terminator.location
            block.insert_op_before(copy, terminator)
    block.insert_op_before(ReturnOp(), terminator)
    Rewriter.erase_op(terminator)
    function.properties.pop("res_attrs", None)
    function.update_function_type()


def _is_output_alone(value: SSAValue, size: Expr) -> bool:
    if not isinstance(value.owner, ResourceAllocOp):
        return False
    if size_of(value) != aligned(size):
        return False
    users = [use.operation for use in value.uses]
    writers = [u for u in users if isinstance(u, DispatchOp)]
    return len(users) == 2 and len(writers) == 1 and writers[0].parent_op() is not None
