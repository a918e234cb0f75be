"""Puts the commands of private functions where they are called, and removes the functions.

Branches and loops come from flow as calls; from here a function is one tree of blocks, whose
resources a plan places together: branches overlay, a loop's carried values keep their place.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from headrace.base.errors import error
from headrace.ir.model import Model
from headrace.ir.passes import Pass
from headrace.stream.commands import CallOp
from headrace.stream.places import place_of


@dataclass(frozen=True)
class InlineCalls(Pass):
    """`stream-inline-calls`.

    Raises:
        HeadraceDefect HR9510: a private function calls itself.
    """

    def run(self, model: Model) -> None:
        private = _private_functions(model.ir)
        for function in model.ir.ops:
            if isinstance(function, FuncOp) and function.sym_name.data not in private:
                _inline(function, private, ())
        for function in private.values():
            Rewriter.erase_op(function)


def _private_functions(module: ModuleOp) -> dict[str, FuncOp]:
    return {
        op.sym_name.data: op
        for op in module.ops
        if isinstance(op, FuncOp)
        and op.sym_visibility is not None
        and op.sym_visibility.data == "private"
    }


def _inline(root: Operation, private: dict[str, FuncOp], within: tuple[str, ...]) -> None:
    for call in [op for op in root.walk() if isinstance(op, CallOp)]:
        name = call.callee.root_reference.data
        callee = private.get(name)
        if callee is None:
            continue
        if name in within:
            raise error("HR9510", f"@{name} calls itself", at=place_of(call))
        copy = callee.clone()
        _keep_locations(callee, copy)
        _inline(copy, private, (*within, name))
        block = call.parent_block()
        assert block is not None
        given: dict[SSAValue, SSAValue] = dict(
            zip(copy.body.block.args, call.arguments, strict=True)
        )
        for parameter, argument in given.items():
            parameter.replace_all_uses_with(argument)
        for op in list(copy.body.block.ops):
            op.detach()
            if isinstance(op, ReturnOp):
                op.erase()
            else:
                block.insert_op_before(op, call)
        Rewriter.erase_op(call)


def _keep_locations(before: Operation, after: Operation) -> None:
    for old, new in zip(before.walk(), after.walk(), strict=True):
        new.location = old.location
