"""Where in a step its transfers run, when kernels bring weights beside the commands.

A transfer may run beside the commands after its place in the ring is free and before the
first that reads it. There it is cut into slices by the commands' predicted times, so that
each command hides its share. A transfer without such a command runs alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.plan.model import Fetch, Plan, PlannedDispatch

_LEAST_SLICE_BYTES = 128 << 10
"""A smaller one costs more to launch than it hides."""

_ROUNDED_BYTES = 16 << 10
_OTHER_NS = 1_000
"""What a copy or a fill is taken for."""


@dataclass(frozen=True)
class Slice:
    """A part of a fetch: `size_bytes` from `begin_bytes` of it on."""

    fetch: int
    begin_bytes: int
    size_bytes: int


@dataclass(frozen=True)
class Interleaved:
    """What is brought when.

    Attributes:
        alone: for each command, before it; one more for behind the last.
        beside: for each command, at the same time.
    """

    alone: tuple[tuple[Slice, ...], ...]
    beside: tuple[tuple[Slice, ...], ...]

    @property
    def count(self) -> int:
        """Slices in all."""
        return sum(len(s) for s in (*self.alone, *self.beside))


def interleave(plan: Plan) -> Interleaved:
    """The slices of a plan without branches; the last bring the first weights of the next step."""
    count = len(plan.commands)
    alone: list[list[Slice]] = [[] for _ in range(count + 1)]
    beside: list[list[Slice]] = [[] for _ in range(count)]
    weights = [
        max(1, c.predicted_ns) if isinstance(c, PlannedDispatch) else _OTHER_NS
        for c in plan.commands
    ]
    for number, fetch in enumerate(plan.fetches):
        begin, end = _window(fetch, count)
        if begin >= end:
            alone[end].append(Slice(number, 0, fetch.size_bytes))
            continue
        for at, piece in _cut(number, fetch.size_bytes, weights[begin:end]):
            beside[begin + at].append(piece)
    return Interleaved(tuple(map(tuple, alone)), tuple(map(tuple, beside)))


def _window(fetch: Fetch, count: int) -> tuple[int, int]:
    """The commands `[begin, end)` that a fetch may run beside."""
    if fetch.issue_after < 0:
        return fetch.previous_issue_after + 1, count
    return fetch.issue_after + 1, fetch.needed_by


def _cut(number: int, size_bytes: int, weights: Sequence[int]) -> list[tuple[int, Slice]]:
    """Slices of a fetch by the commands' weights: `(command of the window, slice)`."""
    found: list[tuple[int, Slice]] = []
    total = sum(weights)
    done = spent = 0
    for at, weight in enumerate(weights):
        spent += weight
        due = size_bytes * spent // total // _ROUNDED_BYTES * _ROUNDED_BYTES
        last = at == len(weights) - 1
        if last:
            due = size_bytes
        elif due - done < _LEAST_SLICE_BYTES or size_bytes - due < _LEAST_SLICE_BYTES:
            continue
        if due > done:
            found.append((at, Slice(number, done, due - done)))
            done = due
    return found
