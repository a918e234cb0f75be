"""Which well-known operation the body of a reduction is."""

from __future__ import annotations

from xdsl.ir import Block, Operation

from headrace.tensor import dialect as d
from headrace.tensor.build import REDUCERS


def reducer_kind(operation: Operation) -> str | None:
    """A name of `REDUCERS` where the body is that one operation of its two scalars.

    `operation` is a `ReduceOp` or `ReduceWindowOp`; all named reducers commute, so the
    order of the scalars does not matter. None for any other body.
    """
    block: Block = operation.regions[0].blocks[0]
    operations = list(block.ops)
    if len(block.args) != 2 or len(operations) != 2:
        return None
    body, end = operations
    name = body.name.removeprefix("tensor.")
    if name not in REDUCERS or not isinstance(end, d.ReturnOp):
        return None
    left, right = block.args
    takes_both = tuple(body.operands) in ((left, right), (right, left))
    return name if takes_both and tuple(end.operands) == (body.results[0],) else None
