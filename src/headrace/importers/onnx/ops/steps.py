"""A function run over the first dimension of tensors, carrying state: recurrence and Scan."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import SSAValue

from headrace.base.dtypes import I64
from headrace.base.symbols import Expr
from headrace.importers.onnx.context import NodeContext
from headrace.ir.types import shape_of
from headrace.tensor.loops import WRITTEN_TRIPS, Stepped, counted_loop, get_row

Step = Callable[
    [Sequence[SSAValue], Sequence[SSAValue]], tuple[Sequence[SSAValue], Sequence[SSAValue]]
]


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
    length = shape_of(sequences[0])[0]
    if not length.is_constant or length.value > WRITTEN_TRIPS:
        return _looped(c, length, sequences, states, step, reverse)
    b = c.build
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


def _looped(
    c: NodeContext,
    length: Expr,
    sequences: Sequence[SSAValue],
    states: Sequence[SSAValue],
    step: Step,
    reverse: bool,
) -> tuple[list[SSAValue], list[SSAValue]]:
    b = c.build
    last = b.dimension(length - 1, I64)

    def one(number: SSAValue, carried: list[SSAValue]) -> Stepped:
        place = b.binary("subtract", last, number) if reverse else number
        after, made = step([get_row(b, s, 0, place) for s in sequences], carried)
        return Stepped(list(after), list(made))

    found = counted_loop(b, length, states, one, reverse=reverse)
    return found.carried, found.kept
