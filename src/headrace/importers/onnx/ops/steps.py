"""A function run over the first dimension of tensors, carrying state: recurrence and Scan."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import SSAValue

from headrace.importers.onnx.context import NodeContext
from headrace.ir.types import shape_of

Step = Callable[
    [Sequence[SSAValue], Sequence[SSAValue]], tuple[Sequence[SSAValue], Sequence[SSAValue]]
]
MOST_STEPS = 1024


def over_steps(
    c: NodeContext,
    sequences: Sequence[SSAValue],
    states: Sequence[SSAValue],
    step: Step,
    reverse: bool = False,
) -> tuple[list[SSAValue], list[SSAValue]]:
    """Runs `step` once for each element of the first dimension of `sequences`.

    Args:
        sequences: tensors whose first sizes are equal.
        states: what the first step starts with.
        step: of (slices, states), gives (new states, what is kept of the step).
        reverse: from the last element to the first.

    Returns:
        the states after the last step, and what was kept, stacked in the order of the
        elements.
    """
    b = c.build
    length = shape_of(sequences[0])[0]
    if not length.is_constant or length.value > MOST_STEPS:
        raise c.unsupported(f"a sequence of {length} steps")
    kept: list[list[SSAValue]] = []
    current = list(states)
    places = range(length.value)
    for n in reversed(places) if reverse else places:
        slices = [b.reshape(c.slice_axis(s, 0, n, n + 1), shape_of(s)[1:]) for s in sequences]
        after, made = step(slices, current)
        current = list(after)
        kept.append([b.reshape(m, (1, *shape_of(m))) for m in made])
    if reverse:
        kept.reverse()
    return current, [b.concatenate(list(parts), 0) for parts in zip(*kept, strict=True)]
