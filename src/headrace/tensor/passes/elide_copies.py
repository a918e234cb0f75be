"""Drops `tensor.copy`: values do not change, so a copy is its operand.

Not run at -O0, where a copy is a dispatch of its own (seed 1).
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.ir.model import Model
from headrace.ir.passes import Pass
from headrace.tensor import dialect as d
from headrace.tensor.rewrite import functions, replace


@dataclass(frozen=True)
class ElideCopies(Pass):
    """One walk."""

    def run(self, model: Model) -> None:
        for _function, block in functions(model):
            for operation in list(block.ops):
                if isinstance(operation, d.CopyOp):
                    replace(operation, [operation.operand])
