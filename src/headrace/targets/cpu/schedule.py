"""How a nest becomes loops, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.base.symbols import Expr
from headrace.kernel.description import Axis


@dataclass(frozen=True)
class Schedule:
    """How a nest becomes loops.

    Attributes:
        family: for reports.
        order: the outer axes, outermost first.
        lanes: points of the last outer axis at once; 1 for none.
        inner: per phase, the inner axis that is vectorised and its lanes, or None.
        chunk: points of the last outer axis in a tile; 0 for the whole axis.
        rows: points of all other outer axes together in a tile.
        turned: whether a tile runs through all its rows for each vector of the last axis,
            not through the last axis for each row.
    """

    family: str
    order: tuple[Axis, ...]
    lanes: int
    inner: tuple[tuple[str, int] | None, ...]
    chunk: int
    rows: int
    turned: bool = False


def widths_for(size: Expr, lanes: int) -> tuple[int, ...]:
    """Vector widths that cover an axis, widest first, as few as do."""
    if lanes == 1:
        return (1,)
    if not size.is_constant:
        return (lanes, 1)
    widths: list[int] = [lanes] if size.value >= lanes else []
    rest = size.value % lanes
    width = lanes // 2
    while rest and width:
        if rest & width:
            widths.append(width)
        width //= 2
    return tuple(widths) or (1,)
