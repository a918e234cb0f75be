"""Regions of `tensor.if` and `tensor.while` become private functions, run by `flow.if` and
`flow.while`.

What a region uses from around it becomes an argument; weights, constants and what only
spreads a scalar are made anew inside, so that kernels know them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.func import FuncOp
from xdsl.dialects.func import ReturnOp as FuncReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter

from headrace.flow.control import IfOp, WhileOp
from headrace.flow.fusion.groups import is_free
from headrace.ir.model import Model
from headrace.ir.passes import Pass
from headrace.tensor import dialect as t
from headrace.tensor.control import captured_values, nested_blocks


@dataclass(frozen=True)
class OutlineControl(Pass):
    """`@<function>_<then|else|condition|body>_<n>`, before the function they came from."""

    def run(self, model: Model) -> None:
        for function in list(model.ir.ops):
            if isinstance(function, FuncOp):
                _Outliner(function).run()


class _Outliner:
    def __init__(self, function: FuncOp) -> None:
        self.function = function
        self.count = 0

    def run(self) -> None:
        for block in list(nested_blocks(self.function.body.block)):
            for operation in list(block.ops):
                if isinstance(operation, t.CONTROL):
                    self._outline(operation)
                    self.count += 1

    def _outline(self, operation: t.IfOp | t.WhileOp) -> None:
        for region in operation.regions:
            _make_free_values_inside(operation, region)
        captured = captured_values(operation)
        if isinstance(operation, t.IfOp):
            then, otherwise = (
                self._function(word, region, captured)
                for word, region in zip(("then", "else"), operation.regions, strict=True)
            )
            types = [r.type for r in operation.results]
            made: Operation = IfOp.make(operation.condition, then, otherwise, captured, types)
        else:
            condition, body = (
                self._function(word, region, captured)
                for word, region in zip(("condition", "body"), operation.regions, strict=True)
            )
            made = WhileOp.make(
                list(operation.inputs), captured, condition, body, operation.trip_count
            )
        made.location = operation.location
        hints = [r.name_hint for r in operation.results]
        Rewriter.replace_op(operation, made)
        for result, hint in zip(made.results, hints, strict=True):
            result.name_hint = hint

    def _function(self, word: str, region: Region, captured: Sequence[SSAValue]) -> str:
        name = f"{self.function.sym_name.data}_{word}_{self.count}"
        source = region.block
        block = Block(arg_types=[*(a.type for a in source.args), *(v.type for v in captured)])
        count = len(source.args)
        inner: dict[SSAValue, SSAValue] = dict(zip(captured, block.args[count:], strict=True))
        for before, after in zip(source.args, block.args[:count], strict=True):
            before.replace_all_uses_with(after)
        for operation in list(source.ops):
            operation.detach()
            for nested in operation.walk():
                for n, value in enumerate(nested.operands):
                    if value in inner:
                        nested.operands[n] = inner[value]
            if isinstance(operation, t.ReturnOp):
                block.add_op(FuncReturnOp(*operation.arguments))
                operation.erase()
            else:
                block.add_op(operation)
        end = block.last_op
        assert end is not None
        types = ([a.type for a in block.args], [v.type for v in end.operands])
        made = FuncOp(name, types, Region(block), visibility="private")
        parent = self.function.parent_block()
        assert parent is not None
        parent.insert_op_before(made, self.function)
        return name


def _make_free_values_inside(operation: Operation, region: Region) -> None:
    """Clones weights, constants and what spreads them to where a region begins."""
    block = region.block
    known: dict[SSAValue, SSAValue] = {}

    def inside(value: SSAValue) -> SSAValue:
        if value not in known:
            owner = value.owner
            assert isinstance(owner, Operation)
            for operand in owner.operands:
                inside(operand)
            copy = owner.clone(known)
            copy.location = owner.location
            first = block.first_op
            # Operands were put first, so each goes behind what is there already.
            anchor = made[-1] if made else None
            if anchor is not None:
                block.insert_op_after(copy, anchor)
            elif first is not None:
                block.insert_op_before(copy, first)
            else:
                block.add_op(copy)
            made.append(copy)
            known.update(zip(owner.results, copy.results, strict=True))
        return known[value]

    made: list[Operation] = []
    captured = set(captured_values(operation))
    for inner in list(region.walk()):
        for n, value in enumerate(inner.operands):
            if value in captured and _is_free(value):
                inner.operands[n] = inside(value)


def _is_free(value: SSAValue) -> bool:
    owner = value.owner
    return isinstance(owner, Operation) and (isinstance(owner, t.ParameterOp) or is_free(owner))
