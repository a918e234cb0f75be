"""Loops inside a kernel: runs of its phases that go round while a condition holds.

A small loop of a model is one dispatch whose kernel goes round by itself
(`stream/passes/compile_loops.py`). Phases stay one list; a `Loop` says which of them go
round, so that all that looks at single phases needs to know nothing of loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.base.dtypes import I1
from headrace.base.symbols import ONE, product

if TYPE_CHECKING:
    from headrace.kernel.description import Kernel


@dataclass(frozen=True)
class Loop:
    """Phases `first` to `last - 1` run again and again.

    Before each trip the only element of operand `condition` (i1) is read: where it is false
    the loop ends, and after `most` trips it ends in any case.

    Attributes:
        most: trips of one run; None for no limit. Whoever dispatches the kernel goes on
            from there: no dispatch takes long, and a step can be cancelled between two.
        likely: trips to reckon with in estimates.
    """

    first: int
    last: int
    condition: int
    most: int | None
    likely: int


def walk(
    kernel: Kernel,
    phase: Callable[[int], None],
    loop: Callable[[Loop, Callable[[], None]], None],
) -> None:
    """Goes through the phases of a kernel as they run.

    Args:
        phase: is called with the number of a phase.
        loop: is called with a loop and what goes through one trip of it.
    """

    def run(first: int, last: int, loops: Sequence[Loop]) -> None:
        number = first
        while number < last:
            found = next((n for n, x in enumerate(loops) if x.first == number), None)
            if found is None:
                phase(number)
                number += 1
                continue
            inner, rest = loops[found], loops[found + 1 :]
            within = [x for x in rest if x.first < inner.last]
            loop(inner, lambda inner=inner, w=within: run(inner.first, inner.last, w))
            loops = [x for x in rest if x.first >= inner.last]
            number = inner.last

    run(0, len(kernel.phases), kernel.loops)


def likely_runs(kernel: Kernel, phase: int) -> int:
    """How often a phase is likely to run in one dispatch."""
    times = 1
    for loop in kernel.loops:
        if loop.first <= phase < loop.last:
            times *= loop.likely
    return times


def loop_problems(kernel: Kernel) -> list[str]:
    """Every rule of loops that a kernel breaks, as one fact each."""
    if not kernel.loops:
        return []
    found = ["a kernel with loops has an outer domain"] if kernel.outer else []
    if any(kernel.operands[n].layout.has_halo for n in kernel.outputs):
        found.append("a kernel with loops writes a halo")
    ends: list[int] = []
    at = 0
    for number, loop in enumerate(kernel.loops):
        where = f"loop {number}"
        while ends and ends[-1] <= loop.first:
            ends.pop()
        bound = ends[-1] if ends else len(kernel.phases)
        if not at <= loop.first < loop.last <= bound:
            found.append(f"{where} has phases {loop.first} to {loop.last}, in no nest of loops")
            return found
        ends.append(loop.last)
        at = loop.first
        if loop.likely < 1 or (loop.most is not None and loop.most < 1):
            found.append(f"{where} has no trips")
        found += [f"{where} {fact}" for fact in _condition_problems(kernel, loop)]
    return found + _local_problems(kernel)


def _condition_problems(kernel: Kernel, loop: Loop) -> list[str]:
    if not 0 <= loop.condition < len(kernel.operands):
        return [f"ends by operand {loop.condition}, which there is not"]
    operand = kernel.operands[loop.condition]
    if operand.dtype != I1 or product(operand.shape) != ONE:
        return [f"ends by '{operand.name}', which is no i1 scalar"]

    def written(first: int, last: int) -> bool:
        stores = [s for p in kernel.phases[first:last] for s in p.stores]
        return any(s.operand == loop.condition for s in stores)

    found: list[str] = []
    if not written(loop.first, loop.last):
        found.append(f"never writes '{operand.name}', by which it ends")
    if operand.access != "rw" and not written(0, loop.first):
        found.append(f"reads '{operand.name}' before a phase has written it")
    return found


def _local_problems(kernel: Kernel) -> list[str]:
    """A local belongs to one loop: what a trip reads of it, the same trip has set."""
    homes: dict[str, set[int]] = {}
    for number, phase in enumerate(kernel.phases):
        loops = [n for n, x in enumerate(kernel.loops) if x.first <= number < x.last]
        names = {s.operand for s in phase.stores if isinstance(s.operand, str)}
        names |= set(phase.reduction.results) if phase.reduction is not None else set()
        names |= {str(getattr(o, "local", "")) for o in phase.body} - {""}
        for name in names:
            homes.setdefault(name, set()).add(max(loops, default=-1))
    return [
        f"local '{name}' belongs to several loops"
        for name, found in sorted(homes.items())
        if len(found) > 1
    ]
