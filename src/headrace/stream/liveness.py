"""When resources of a program function are touched: positions in its straight line.

A command inside a branch or loop counts at the place of the outermost one, so what is
said of a position holds for all that runs there.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Block, Operation, SSAValue

from headrace.stream.commands import CallOp, CopyOp, DispatchOp, FillOp, IfOp, LoopOp, touched


@dataclass(frozen=True)
class Touch:
    """One command that touches a resource, with the access, at a position."""

    position: int
    operation: Operation
    access: str

    @property
    def reads(self) -> bool:
        return self.access in ("ro", "rw")

    @property
    def writes(self) -> bool:
        return self.access != "ro"

    @property
    def nested(self) -> bool:
        """Whether it stands inside a branch or a loop, where order is not this line's."""
        return isinstance(self.operation.parent_op(), (IfOp, LoopOp))


def touches(block: Block) -> dict[SSAValue, list[Touch]]:
    """Every touch of every resource in a function's block, in order."""
    found: dict[SSAValue, list[Touch]] = {}
    for position, outer in enumerate(block.ops):
        for op in outer.walk():
            if isinstance(op, (DispatchOp, CopyOp, FillOp, IfOp, LoopOp, CallOp)):
                for resource, access in touched(op):
                    found.setdefault(resource, []).append(Touch(position, op, access))
    return found
