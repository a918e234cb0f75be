"""Names the family of a kernel: what its fast schedule would be. A pure function."""

from __future__ import annotations

from typing import Literal, TypeAlias

from headrace.kernel.description import (
    Compute,
    IndexValue,
    Kernel,
    Load,
    LoadLocal,
    Phase,
)

Family: TypeAlias = Literal[
    "map", "gather", "reduce", "contract", "convolution", "window", "row", "loop"
]


def classify(kernel: Kernel) -> Family:
    """The family of a kernel.

    - `map`: no reduction; every outer point is computed from loads at index maps.
    - `gather`: a map where an index depends on loaded data.
    - `contract`: one sum of products, then maps over the same outer points (epilogue).
    - `convolution`: a contraction where one index mixes outer and reduction axes.
    - `window`: any other single reduction whose loads mix outer and reduction axes.
    - `reduce`: a single reduction, then maps over the same outer points.
    - `row`: several phases over rows: several reductions, or a map with inner axes.
    - `loop`: phases that go round.
    """
    if kernel.loops:
        return "loop"
    reductions = [p for p in kernel.phases if p.reduction is not None]
    if len(reductions) > 1 or any(p.parallel for p in kernel.phases):
        return "row"
    if not reductions:
        return "gather" if any(gathers(p) for p in kernel.phases) else "map"
    phase = reductions[0]
    windowed = slides(phase, kernel)
    if contraction(phase) is not None:
        return "convolution" if windowed else "contract"
    return "window" if windowed else "reduce"


def contraction(phase: Phase) -> tuple[str, str] | None:
    """The two factors (names in the body) whose products the phase sums, if it does that."""
    reduction = phase.reduction
    if reduction is None or reduction.combiner.kind != "add":
        return None
    product = next((o for o in phase.body if o.result == reduction.values[0]), None)
    if not isinstance(product, Compute) or product.operation != "multiply":
        return None
    left, right = product.operands
    return (left, right) if left != right else None


def slides(phase: Phase, kernel: Kernel) -> bool:
    """Whether a load's index mixes an outer axis and a reduction axis in one dimension."""
    outer = {a.name for a in (*kernel.outer, *phase.parallel)}
    folded = {a.name for a in phase.reduction_axes}
    return any(
        bool(index.names & outer) and bool(index.names & folded)
        for operation in phase.body
        if isinstance(operation, Load)
        for index in operation.index
    )


def gathers(phase: Phase) -> bool:
    """Whether an index depends on data."""
    values = {o.result for o in phase.body}
    for operation in phase.body:
        if isinstance(operation, (Load, LoadLocal)):
            index = operation.index
        elif isinstance(operation, IndexValue):
            index = (operation.value,)
        else:
            continue
        if any(i.names & values for i in index):
            return True
    return any(i.names & values for s in phase.stores for i in s.index)
