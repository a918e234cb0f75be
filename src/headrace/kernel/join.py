"""Several kernels, one after another and in loops, as one kernel.

Each kernel's outer domain becomes inner axes of its phases, and its locals arrays over
them. So a phase is over for all points before the next begins, where within a dispatch each
point goes on by itself; no point of a dispatch sees what another writes, so nothing changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, Union

from headrace.base.symbols import ONE, Expr, dim
from headrace.kernel.description import (
    Kernel,
    Load,
    LoadLocal,
    Local,
    Operand,
    Phase,
    Precision,
    ScalarOperation,
    Store,
)
from headrace.kernel.known_sizes import with_sizes
from headrace.kernel.loops import Loop


@dataclass(frozen=True)
class Piece:
    """A kernel that becomes part of another.

    Attributes:
        operands: for each of its operands the number of the whole's.
        offsets: for each operand None where the whole's is the very same tensor, else where
            in the whole's, which then has one dimension, its buffer begins.
    """

    kernel: Kernel
    operands: tuple[int, ...]
    offsets: tuple[Expr | None, ...]


@dataclass(frozen=True)
class Round:
    """Steps that go round, see `Loop`."""

    steps: tuple[Step, ...]
    condition: int
    most: int | None
    likely: int


Step: TypeAlias = Union[Piece, Round]


def join(operands: Sequence[Operand], steps: Sequence[Step]) -> Kernel:
    """The kernel that runs all steps in order; pieces have products of one precision."""
    made = _Joined(operands)
    for step in steps:
        made.add(step)
    (precision,) = made.precisions
    return Kernel(
        (),
        tuple(operands),
        tuple(made.locals),
        tuple(made.phases),
        tuple(made.dims),
        precision,
        tuple(made.loops),
    )


class _Joined:
    def __init__(self, operands: Sequence[Operand]) -> None:
        self.operands = operands
        self.locals: list[Local] = []
        self.phases: list[Phase] = []
        self.loops: list[Loop] = []
        self.dims: dict[str, None] = {}
        self.precisions: set[Precision] = set()

    def add(self, step: Step) -> None:
        if isinstance(step, Piece):
            self._piece(step)
            return
        place, first = len(self.loops), len(self.phases)
        for inner in step.steps:
            self.add(inner)
        made = Loop(first, len(self.phases), step.condition, step.most, step.likely)
        self.loops.insert(place, made)

    def _piece(self, piece: Piece) -> None:
        single = {a.name: 0 for a in piece.kernel.outer if a.size == ONE}
        kernel = with_sizes(piece.kernel, single)
        outer = tuple(a for a in kernel.outer if a.name not in single)
        at = tuple(dim(a.name) for a in outer)
        names = {x.name: f"local{len(self.locals) + n}" for n, x in enumerate(kernel.locals)}
        sizes = tuple(a.size for a in outer)
        self.locals += [
            Local(names[x.name], x.dtype, (*sizes, *x.shape)) for x in kernel.locals
        ]
        self.dims |= dict.fromkeys(kernel.dims)
        self.precisions.add(kernel.precision)

        def place(number: int, index: tuple[Expr, ...]) -> tuple[int, tuple[Expr, ...]]:
            offset = piece.offsets[number]
            if offset is not None:
                index = (offset + kernel.operands[number].layout.element_offset(index),)
            return piece.operands[number], index

        def operation(old: ScalarOperation) -> ScalarOperation:
            if isinstance(old, Load):
                number, index = place(old.operand, old.index)
                return replace(old, operand=number, index=index)
            if isinstance(old, LoadLocal):
                return replace(old, local=names[old.local], index=(*at, *old.index))
            return old

        def store(old: Store) -> Store:
            if isinstance(old.operand, str):
                return replace(old, operand=names[old.operand], index=(*at, *old.index))
            number, index = place(old.operand, old.index)
            return replace(old, operand=number, index=index)

        for phase in kernel.phases:
            reduction = phase.reduction
            if reduction is not None:
                results = tuple(names[r] for r in reduction.results)
                reduction = replace(reduction, results=results)
            self.phases.append(
                replace(
                    phase,
                    parallel=(*outer, *phase.parallel),
                    body=tuple(operation(o) for o in phase.body),
                    reduction=reduction,
                    stores=tuple(store(s) for s in phase.stores),
                )
            )
