"""Drops operations whose results nobody uses, and parameters that nobody reads."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.ir.model import Model
from headrace.ir.passes import Pass
from headrace.tensor import dialect as d
from headrace.tensor.rewrite import erase_if_dead, functions


@dataclass(frozen=True)
class EliminateDeadCode(Pass):
    """One walk from the end of every function, then the table of parameters."""

    def run(self, model: Model) -> None:
        for _function, block in functions(model):
            for operation in reversed(list(block.ops)):
                erase_if_dead(operation, lambda _: None)
        drop_unread_parameters(model)


def drop_unread_parameters(model: Model) -> None:
    """Removes the table's entries that no `tensor.parameter` names."""
    read = {
        op.parameter.root_reference.data
        for op in model.ir.walk()
        if isinstance(op, d.ParameterOp)
    }
    for name in [n for n in model.parameters if n not in read]:
        del model.parameters[name]
