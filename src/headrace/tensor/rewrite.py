"""What tensor passes share: walking, replacing, erasing, and looking at constants."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint

from headrace.base.errors import error
from headrace.ir.locations import fused_location, places
from headrace.ir.model import Model
from headrace.ir.types import dtype_of, shape_of
from headrace.tensor import dialect as d
from headrace.tensor.build import TensorBuilder, to_numpy
from headrace.tensor.control import nested_blocks


class RewriteBuilder(TensorBuilder):
    """A builder before one operation that remembers what it made.

    Attributes:
        made: the operations inserted, in order.
    """

    def __init__(self, before: Operation) -> None:
        super().__init__(InsertPoint.before(before), before.location)
        self.made: list[Operation] = []

    def insert(self, operation: Operation) -> Operation:
        self.made.append(operation)
        return super().insert(operation)

    def standing_for(self, *operations: Operation | Block | None) -> RewriteBuilder:
        """Gives what is built next the places of all these operations."""
        known = [op for op in operations if isinstance(op, Operation)]
        self.location = fused_location(known)
        return self


Rule: TypeAlias = Callable[[Operation, RewriteBuilder], SSAValue | None]


def functions(model: Model) -> Iterator[tuple[FuncOp, Block]]:
    """Every function with a body, and each of its blocks: regions of control flow first."""
    for operation in model.ir.ops:
        if isinstance(operation, FuncOp) and operation.body.blocks:
            for block in nested_blocks(operation.body.blocks[0]):
                yield operation, block


def is_pure(operation: Operation) -> bool:
    """Whether an unused one may go. All tensor operations but the terminator are pure."""
    return operation.name.startswith("tensor.") and not isinstance(
        operation, (d.ReturnOp, d.DefineDimensionOp)
    )


def is_used(operation: Operation) -> bool:
    return any(result.first_use is not None for result in operation.results)


def users(value: SSAValue) -> list[Operation]:
    """The operations that use a value, in no particular order, each once a use."""
    return [use.operation for use in value.uses]


def has_one_use(value: SSAValue) -> bool:
    return value.uses.get_length() == 1


def owner(value: SSAValue) -> Operation | None:
    """The operation that computes a value; None for a block argument."""
    return value.owner if isinstance(value.owner, Operation) else None


def replace(operation: Operation, values: Sequence[SSAValue]) -> None:
    """Puts values in place of an operation's results and erases it.

    Raises:
        HeadraceDefect HR9126: a value has another type than the result it replaces.
    """
    for result, value in zip(operation.results, values, strict=True):
        if shape_of(result) != shape_of(value) or dtype_of(result) != dtype_of(value):
            raise error(
                "HR9126",
                f"a rewrite of '{operation.name}' changes {result.type} to {value.type}",
                at=places(operation),
            )
        if value.name_hint is None:
            value.name_hint = result.name_hint
        result.replace_all_uses_with(value)
    operation.detach()
    operation.erase()


def erase_if_dead(operation: Operation, then: Callable[[Operation], None]) -> bool:
    """Erases an unused pure operation; `then` gets every operation whose result it used."""
    if operation.parent is None or not is_pure(operation) or is_used(operation):
        return False
    feeding = [value.owner for value in operation.operands]
    operation.detach()
    operation.erase()
    for producer in feeding:
        if isinstance(producer, Operation):
            then(producer)
    return True


def apply_rules(block: Block, rules: Mapping[type[Operation], Sequence[Rule]]) -> bool:
    """Rewrites until no rule fits, dropping dead operations; True where anything changed.

    The order is that of the block, so producers are canonical before their users look at
    them; what a rewrite made, and who uses it, is looked at again.
    """
    queue = deque(block.ops)
    waiting = set(queue)
    changed = False

    def push(operation: Operation) -> None:
        if operation not in waiting and operation.parent is block:
            waiting.add(operation)
            queue.append(operation)

    while queue:
        operation = queue.popleft()
        waiting.discard(operation)
        if operation.parent is not block:
            continue
        if erase_if_dead(operation, push):
            changed = True
            continue
        for rule in rules.get(type(operation), ()):
            builder = RewriteBuilder(operation)
            value = rule(operation, builder)
            if value is None:
                for made in reversed(builder.made):
                    erase_if_dead(made, lambda _: None)
                continue
            changed = True
            feeding = [v.owner for v in operation.operands]
            replace(operation, [value])
            for made in builder.made:
                push(made)
            for user in users(value):
                push(user)
            for producer in feeding:
                if isinstance(producer, Operation):
                    push(producer)
            break
    return changed


# -- constants -------------------------------------------------------------------------


def constant_array(value: SSAValue) -> Any | None:
    """The numpy array of a `tensor.constant`; None for anything else."""
    operation = owner(value)
    return to_numpy(operation.value) if isinstance(operation, d.ConstantOp) else None


def splat_value(value: SSAValue) -> Any | None:
    """The numpy scalar that every element of a value is; None where that is not known."""
    operation = owner(value)
    while isinstance(operation, (d.BroadcastInDimOp, d.ReshapeOp)):
        operation = owner(operation.operand)
    if not isinstance(operation, d.ConstantOp):
        return None
    raw = operation.value.data.data
    array = to_numpy(operation.value)
    if array.size == 0:
        return None
    first = array.reshape(-1)[0]
    width = array.dtype.itemsize
    # By bits: -0 is not 0 and a NaN is itself.
    alike = len(raw) <= width or raw == raw[:width] * (len(raw) // width)
    return first if alike else None


def is_splat_of(value: SSAValue, number: float) -> bool:
    """Whether every element is `number` (0 matches -0 too)."""
    found = splat_value(value)
    return found is not None and bool(found == number)


def is_constant_like(value: SSAValue) -> bool:
    """A constant, a parameter, or a broadcast or reshape of one: belongs on the right."""
    operation = owner(value)
    while isinstance(operation, (d.BroadcastInDimOp, d.ReshapeOp)):
        operation = owner(operation.operand)
    return isinstance(operation, (d.ConstantOp, d.ParameterOp))
