"""Groups of operations: what will be one dispatch each."""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue

from headrace.base.errors import error
from headrace.flow.control import CONTROL
from headrace.flow.lowering.frame import Frame
from headrace.flow.lowering.operations import (
    is_reduction,
    is_source,
    scalar_constant,
)
from headrace.tensor import dialect as t


@dataclass(eq=False)
class Group:
    """Operations of one dispatch.

    Attributes:
        root: its (first) reduction, or the operation it ends in.
        operations: in no order that matters; the program's order decides.
        frame: of a reduction's dispatch.
        prologue: operations that feed the root rather than follow it.
    """

    root: Operation
    operations: dict[Operation, None] = field(default_factory=dict[Operation, None])
    frame: Frame | None = None
    prologue: dict[Operation, None] = field(default_factory=dict[Operation, None])

    def __post_init__(self) -> None:
        self.operations.setdefault(self.root)

    @property
    def is_contraction(self) -> bool:
        return isinstance(self.root, (t.DotGeneralOp, t.ConvolutionOp))

    @property
    def is_window(self) -> bool:
        return isinstance(self.root, t.ReduceWindowOp)

    @property
    def is_row(self) -> bool:
        return isinstance(self.root, t.ReduceOp)

    @property
    def reads_once(self) -> bool:
        """Whether elements of its inputs are used in one phase only."""
        if not self.is_row or self.frame is None:
            return True
        if sum(is_reduction(o) for o in self.operations) > 1:
            return False
        inner = {name for name, _ in self.frame.inner}
        return not any(
            i.names & inner
            for operation in self.operations
            for value in operation.results
            for i in self.frame.coordinates.get(value, ())
        )

    def users_of(self, operation: Operation) -> list[Operation]:
        """The group's operations that use a result of `operation`."""
        found: dict[Operation, None] = {}
        for value in operation.results:
            for use in value.uses:
                if use.operation in self.operations:
                    found[use.operation] = None
        return list(found)


class Program:
    """A function on the way to dispatches.

    Attributes:
        operations: of the function's block, in order, without its terminator.
        order: place of each operation.
        group_of: what has been decided.
        clones: operations computed anew in several groups: the groups.
        aliases: reshapes that move nothing.
        latest: for each value the place of the last reduction, branch or loop it depends on,
            -1 for none.
    """

    def __init__(self, function: FuncOp) -> None:
        self.function = function
        self.block: Block = function.body.block
        self.terminator = self.block.last_op
        if self.terminator is None:
            raise error("HR9205", f"function @{function.sym_name.data} is empty")
        self.operations = [op for op in self.block.ops if op is not self.terminator]
        self.order = {op: n for n, op in enumerate(self.operations)}
        self.group_of: dict[Operation, Group] = {}
        self.clones: dict[Operation, list[Group]] = {}
        self.aliases: dict[Operation, None] = {}
        self.groups: list[Group] = []
        self.latest: dict[SSAValue, int] = {}
        for operation in self.operations:
            latest = max((self.latest.get(o, -1) for o in operation.operands), default=-1)
            if is_reduction(operation) or isinstance(operation, CONTROL):
                latest = self.order[operation]
            for result in operation.results:
                self.latest[result] = latest

    def add(self, group: Group) -> None:
        self.groups.append(group)
        for operation in group.operations:
            self.group_of[operation] = group

    def join(self, operation: Operation, group: Group) -> None:
        """Puts an operation that feeds a group into it."""
        group.operations[operation] = None
        self.group_of[operation] = group
        self._mark(operation, group)

    def clone(self, operation: Operation, groups: list[Group]) -> None:
        """Computes an operation anew in each of several groups."""
        self.clones[operation] = groups
        for group in groups:
            group.operations[operation] = None
            self._mark(operation, group)

    def _mark(self, operation: Operation, group: Group) -> None:
        users = group.users_of(operation)
        if any(u is group.root or u in group.prologue or is_reduction(u) for u in users):
            group.prologue[operation] = None

    def groups_using(self, operation: Operation) -> tuple[list[Group], bool]:
        """The groups that use an operation's results, and whether anything else does."""
        found: dict[Group, None] = {}
        outside = False
        for result in operation.results:
            for use in sorted(result.uses, key=lambda u: self.order.get(u.operation, -1)):
                user = use.operation
                if user in self.clones:
                    found.update(dict.fromkeys(self.clones[user]))
                elif user in self.group_of:
                    found[self.group_of[user]] = None
                else:
                    outside = True
        return list(found), outside


def is_free(operation: Operation) -> bool:
    """Computed wherever it is used: constants, iotas and what only spreads a scalar."""
    if is_source(operation):
        return True
    if isinstance(operation, (t.BroadcastInDimOp, t.ReshapeOp)):
        return scalar_constant(operation.results[0]) is not None
    return False
