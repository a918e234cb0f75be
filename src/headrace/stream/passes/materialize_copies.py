"""Outputs become buffers of the caller; copies stand wherever correctness needs them.

Before, a program function returns resources; after, it takes one `external` argument
more an output and returns nothing. A returned resource *is* the output where nothing
else knows it: one command writes it, no other reads it, it is returned once and has the
output's size. Everything else (an input, a weight, a value that is also read, returned
twice, or seen through a reshape) is copied at the end, and `elide_copies` proves which
of those copies nothing sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import BlockArgument, SSAValue
from xdsl.rewriter import Rewriter

from headrace.base.symbols import Expr
from headrace.ir.model import Model
from headrace.ir.passes import Pass
from headrace.ir.types import exprs_attr
from headrace.stream.commands import CopyOp, DispatchOp
from headrace.stream.dialect import ResourceAllocOp
from headrace.stream.executables import value_name
from headrace.stream.resources import (
    IO,
    NAME,
    SIZE,
    TYPE,
    aliased_input,
    aligned,
    size_of,
    tensor_bytes,
)
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
    over: list[tuple[SSAValue, BlockArgument]] = []
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
        place = aliased_input(output)
        if place is not None:
            over.append((value, place))
        elif _is_output_alone(value, size):
            alloc = value.owner
            assert isinstance(alloc, ResourceAllocOp)
            value.replace_all_uses_with(output)
            Rewriter.erase_op(alloc)
        else:
            _insert(CopyOp(value, output, size), terminator)
    _copy_over(over, terminator)
    block.insert_op_before(ReturnOp(), terminator)
    Rewriter.erase_op(terminator)
    function.properties.pop("res_attrs", None)
    function.update_function_type()


def _insert(copy: CopyOp, terminator: ReturnOp) -> None:
    copy.location = terminator.location
    block = terminator.parent_block()
    assert block is not None
    block.insert_op_before(copy, terminator)


def _copy_over(pairs: Sequence[tuple[SSAValue, BlockArgument]], terminator: ReturnOp) -> None:
    """Copies values over inputs; what another copy overwrites is put aside first."""
    overwritten = {place for value, place in pairs if value is not place}
    sources: list[SSAValue] = []
    for value, place in pairs:
        if value is not place and value in overwritten:
            size = size_of(value)
            assert size is not None
            aside = ResourceAllocOp(aligned(size), label="")
            block = terminator.parent_block()
            assert block is not None
            block.insert_op_before(aside, terminator)
            _insert(CopyOp(value, aside.result, size), terminator)
            value = aside.result
        sources.append(value)
    for value, (_, place) in zip(sources, pairs, strict=True):
        size = size_of(place)
        assert size is not None
        if value is not place:
            _insert(CopyOp(value, place, size), terminator)


def _is_output_alone(value: SSAValue, size: Expr) -> bool:
    if not isinstance(value.owner, ResourceAllocOp):
        return False
    if size_of(value) != aligned(size):
        return False
    users = [use.operation for use in value.uses]
    writers = [u for u in users if isinstance(u, DispatchOp)]
    return len(users) == 2 and len(writers) == 1 and writers[0].parent_op() is not None
