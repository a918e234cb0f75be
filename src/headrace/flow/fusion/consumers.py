"""Grows the dispatch of a reduction by what follows it: bias, activation, residual,
further reductions over the same rows, transposes of the result."""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from headrace.flow.fusion.groups import Group, Program
from headrace.flow.lowering.frame import CannotFuse, Frame
from headrace.flow.lowering.operations import (
    PLACEMENTS,
    expands,
    is_elementwise,
    is_reduction,
)
from headrace.ir.types import dtype_of, shape_of
from headrace.tensor import dialect as t

_MOST_OPERATIONS = 64


def grow(program: Program, root: Operation) -> Group:
    """The dispatch of a reduction, as large as it stays with one result.

    Operations are added in program order for as long as they fit the frame. What counts
    is the last state that has one result; an operation whose other operands come from
    reductions at or behind the root waits for a later root (a residual sum joins the
    later one of its two branches).
    """
    if isinstance(root, PLACEMENTS):
        return Group(root)
    attempt = Attempt(program, root)
    while len(attempt.operations) < _MOST_OPERATIONS and attempt.step():
        pass
    operations, frame = attempt.best
    trim_reshapes(operations, root)
    group = Group(root, operations, frame)
    for operation in operations:
        for value in operation.operands:
            owner = value.owner
            if isinstance(owner, Operation) and owner in operations and is_reduction(operation):
                group.prologue[owner] = None
    group.prologue.pop(root, None)
    return group


class Attempt:
    """A dispatch that grows, operation by operation, in program order.

    Attributes:
        program, root, place: the reduction it starts from, and where that stands.
        operations, frame: what it has now.
        best: the last state with one result.
    """

    def __init__(self, program: Program, root: Operation) -> None:
        self.program = program
        self.root = root
        self.place = program.order[root]
        self.operations: dict[Operation, None] = {root: None}
        self.frame = Frame.of_root(root)
        self.best = (dict(self.operations), self.frame.copy())

    def step(self) -> bool:
        """Adds the next operation; False where the dispatch is as large as it gets."""
        candidate = self._next()
        if candidate is None or candidate in self.program.group_of:
            return False
        if self.blocked(candidate):
            sibling = self.sibling(candidate)
            return sibling is not None and self._add(sibling)
        if not self.allowed(candidate) or not self._add(candidate):
            return False
        if len(self._live()) == 1 and not expands(candidate) and not widens(candidate):
            self.best = (dict(self.operations), self.frame.copy())
        return True

    def _live(self) -> list[SSAValue]:
        """Values used outside of the dispatch."""
        return [
            value
            for operation in self.operations
            for value in operation.results
            if any(use.operation not in self.operations for use in value.uses)
        ]

    def _next(self) -> Operation | None:
        """The first operation in program order that uses a value of the dispatch."""
        order = self.program.order
        users = {u.operation for v in self._live() for u in v.uses} - self.operations.keys()
        if not users or any(u not in order for u in users):
            return None
        return min(users, key=lambda u: order[u])

    def _waits(self, value: SSAValue) -> bool:
        outside = value not in self.frame.coordinates
        return outside and self.program.latest.get(value, -1) >= self.place

    def blocked(self, candidate: Operation) -> bool:
        """Whether it has operands from outside that are not there before the root."""
        return any(self._waits(o) for o in candidate.operands)

    def allowed(self, candidate: Operation) -> bool:
        """Whether operations of its kind may join."""
        if is_reduction(candidate):
            return isinstance(self.root, t.ReduceOp) and isinstance(candidate, t.ReduceOp)
        if isinstance(candidate, (t.ReshapeOp, t.TransposeOp, t.CopyOp, t.BroadcastInDimOp)):
            return True
        return is_elementwise(candidate)

    def _add(self, operation: Operation) -> bool:
        frame = self.frame.copy()
        try:
            frame.extend(operation)
        except CannotFuse:
            return False
        self.frame = frame
        self.operations[operation] = None
        return True

    def sibling(self, candidate: Operation) -> Operation | None:
        """A reduction over the same rows on the way to it, which may join too."""
        if not isinstance(self.root, t.ReduceOp):
            return None
        value = next(o for o in candidate.operands if self._waits(o))
        pending, seen = [value], set[SSAValue]()
        while pending:
            current = pending.pop()
            owner = current.owner
            if current in seen or not isinstance(owner, Operation):
                continue
            seen.add(current)
            if owner in self.operations or self.program.latest.get(current, -1) < self.place:
                continue
            if is_reduction(owner):
                fits = (
                    isinstance(owner, t.ReduceOp)
                    and owner not in self.program.group_of
                    and owner.dimensions == self.root.dimensions
                    and all(shape_of(i) == self.frame.full_shape for i in owner.inputs)
                    and all(self.program.latest.get(i, -1) < self.place for i in owner.inputs)
                )
                return owner if fits else None
            pending += owner.operands
        return None


def widens(operation: Operation) -> bool:
    """A conversion to more bytes that those who read it make as well: elementwise operations
    and reductions. Written out, it would only be more to write and read."""
    if not isinstance(operation, t.ConvertOp):
        return False
    before, after = dtype_of(operation.operand), dtype_of(operation.result)
    users = [use.operation for use in operation.result.uses]
    return after.size_bytes > before.size_bytes and all(
        isinstance(user, t.ReduceOp) or is_elementwise(user) for user in users
    )


def trim_reshapes(operations: dict[Operation, None], root: Operation) -> None:
    """Drops reshapes at the end: they move nothing and cost no dispatch."""
    while True:
        last = next(reversed(operations))
        if last is root or not isinstance(last, t.ReshapeOp):
            return
        del operations[last]
