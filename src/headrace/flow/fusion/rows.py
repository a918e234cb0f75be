"""Attention as one dispatch: a product, what folds its rows, and the product of those rows.

Scores, their scale and mask, the softmax and the product with the values become phases
over one domain, a point for each row of scores. Nothing is recognised by name: whatever
elementwise operations and folds stand between the two products come along as they are, as
long as every element has its place in the row (`Frame`) and nothing else uses them.
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from headrace.flow.fusion.consumers import Attempt, trim_reshapes
from headrace.flow.fusion.groups import Group, Program
from headrace.flow.lowering.folds import folding_dtype
from headrace.flow.lowering.frame import Frame
from headrace.flow.lowering.operations import (
    integers,
    is_elementwise,
    is_movement,
    is_reduction,
)
from headrace.ir.types import dtype_of, shape_of
from headrace.tensor import dialect as t

_MOVEMENTS = (t.ReshapeOp, t.TransposeOp, t.CopyOp)


def grow_rows(program: Program, root: Operation, narrow: bool = False) -> Group | None:
    """The dispatch of a product whose rows are folded and multiplied again, or None.

    Args:
        narrow: also where scores are 16-bit floats.
    """
    if not isinstance(root, t.DotGeneralOp) or root in program.group_of:
        return None
    if not _is_scores(root, narrow):
        return None
    attempt = _Rows(program, root)
    while attempt.step():
        pass
    if attempt.last is None or attempt.last not in attempt.best[0]:
        return None
    operations, frame = attempt.best
    trim_reshapes(operations, root)
    group = Group(root, operations, frame)
    for operation in operations:
        if is_reduction(operation):
            for value in operation.operands:
                owner = value.owner
                if isinstance(owner, Operation) and owner in operations:
                    group.prologue[owner] = None
    group.prologue.pop(root, None)
    return group


def _is_scores(root: t.DotGeneralOp, narrow: bool) -> bool:
    """One sum in the type of the result, one free dimension on each side, and no weight:
    those are laid out when compiling and may stream."""
    if is_weight(root.lhs) or is_weight(root.rhs):
        return False
    dtype = dtype_of(root.result)
    ranks = [len(shape_of(v)) for v in (root.lhs, root.rhs)]
    batch = len(integers(root.lhs_batching_dimensions))
    contracted = len(integers(root.lhs_contracting_dimensions))
    return (
        dtype.is_float
        and (narrow or folding_dtype(dtype) == dtype)
        and contracted == 1
        and all(rank == batch + 2 for rank in ranks)
    )


def is_weight(value: SSAValue) -> bool:
    """Whether it is a parameter or constant, moved or not."""
    owner = value.owner
    while isinstance(owner, Operation) and is_movement(owner) and len(owner.operands) == 1:
        owner = owner.operands[0].owner
    return isinstance(owner, (t.ParameterOp, t.ConstantOp))


class _Rows(Attempt):
    """Grows until behind the second product; `last` is that product."""

    def __init__(self, program: Program, root: t.DotGeneralOp) -> None:
        super().__init__(program, root)
        self.frame = Frame.of_rows(root)
        self.best = (dict(self.operations), self.frame.copy())
        self.last: Operation | None = None

    def blocked(self, candidate: Operation) -> bool:
        """Whether an operand from outside waits for the dispatch itself."""
        pending = [o for o in candidate.operands if o not in self.frame.coordinates]
        seen: set[SSAValue] = set()
        while pending:
            value = pending.pop()
            owner = value.owner
            if value in seen or not isinstance(owner, Operation):
                continue
            seen.add(value)
            if owner in self.operations:
                return True
            if self.program.order.get(owner, -1) > self.place:
                pending += owner.operands
        return False

    def allowed(self, candidate: Operation) -> bool:
        if self.last is not None:
            return isinstance(candidate, _MOVEMENTS)
        if isinstance(candidate, t.DotGeneralOp):
            folds = any(isinstance(o, t.ReduceOp) for o in self.operations)
            same = dtype_of(candidate.result) == dtype_of(self.root.results[0])
            if not folds or not same or is_weight(candidate.rhs):
                return False
            self.last = candidate
            return True
        if isinstance(candidate, (t.ReduceOp, t.BroadcastInDimOp, *_MOVEMENTS)):
            return True
        return is_elementwise(candidate)
