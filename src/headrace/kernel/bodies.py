"""What the scalar operations of a phase use."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.base.symbols import Expr
from headrace.kernel.description import (
    Compute,
    IndexValue,
    Load,
    LoadLocal,
    ScalarOperation,
)


def mentioned(operation: ScalarOperation) -> tuple[Expr, ...]:
    """The index expressions of a scalar operation."""
    match operation:
        case Load(_, _, index) | LoadLocal(_, _, index):
            return index
        case IndexValue(_, _, value):
            return (value,)
        case _:
            return ()


def live_operations(
    operations: Sequence[ScalarOperation], wanted: Sequence[str]
) -> tuple[ScalarOperation, ...]:
    """The operations that the wanted values need, in order."""
    needed = set(wanted)
    kept: list[ScalarOperation] = []
    for operation in reversed(operations):
        if operation.result not in needed:
            continue
        kept.append(operation)
        if isinstance(operation, Compute):
            needed.update(operation.operands)
        for expr in mentioned(operation):
            needed |= expr.names
    return tuple(reversed(kept))
