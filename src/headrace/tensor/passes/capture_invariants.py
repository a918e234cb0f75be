"""What a loop carries and never changes becomes a value from around it.

JAX hands everything that a `scan` or `while` reads through the loop, weights too. Carried,
a weight is copied to a buffer of the loop; from around it, it is the weight itself: in the
layout its readers want, resident or streamed within the budget.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import SSAValue
from xdsl.rewriter import Rewriter

from headrace.ir.model import Model
from headrace.ir.passes import Pass
from headrace.tensor.control import ReturnOp, WhileOp, make_while
from headrace.tensor.rewrite import functions


@dataclass(frozen=True)
class CaptureInvariants(Pass):
    """`tensor-capture-invariants`: inner loops first, so that what only passes through both
    leaves both."""

    def run(self, model: Model) -> None:
        for _function, block in functions(model):
            for loop in [op for op in block.ops if isinstance(op, WhileOp)]:
                _capture(loop)


def _capture(loop: WhileOp) -> None:
    condition, body = loop.condition.block, loop.body.block
    end = body.last_op
    assert isinstance(end, ReturnOp)
    count = len(loop.inputs)
    kept = [n for n in range(count) if end.operands[n] is not body.args[n]]
    if len(kept) == count or not kept:
        return
    for n in range(count):
        if n not in kept:
            for value in (condition.args[n], body.args[n], loop.results[n]):
                value.replace_all_uses_with(loop.inputs[n])
    end.operands = [end.operands[n] for n in kept]
    for block in (condition, body):
        for n in reversed(range(count)):
            if n not in kept:
                block.erase_arg(block.args[n])
    asked, trip = (loop.detach_region(r) for r in list(loop.regions))
    made = make_while([loop.inputs[n] for n in kept], asked, trip)
    made.trip_count = loop.trip_count
    made.location = loop.location
    found: list[SSAValue] = list(loop.inputs)
    for place, n in enumerate(kept):
        made.results[place].name_hint = loop.results[n].name_hint
        found[n] = made.results[place]
    Rewriter.replace_op(loop, made, found)
