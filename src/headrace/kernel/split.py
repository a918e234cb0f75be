"""A kernel that keeps whole rows between its phases, as several kernels and a scratch buffer.

Attention is one dispatch: scores of a row against all keys, folds and maps over the row, the
product of the row with the values. Where a row fits no registers, or each part wants threads
of its own, it runs as a launch for each part. What was a local becomes an operand in
scratch, its outer axes first; the numpy meaning of the pieces, one after another, is the
kernel's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.base.symbols import dim
from headrace.kernel.description import (
    Access,
    Kernel,
    Load,
    LoadLocal,
    Local,
    Operand,
    Phase,
    ScalarOperation,
    Store,
    ordered_layout,
)


@dataclass(frozen=True)
class Split:
    """The pieces in the order they run.

    Attributes:
        pieces: kernels whose operands are those of the whole, then `kept`.
        kept: what goes from piece to piece, in scratch; no bindings of the dispatch.
    """

    pieces: tuple[Kernel, ...]
    kept: tuple[Operand, ...]


def split(kernel: Kernel) -> Split | None:
    """The pieces of a kernel; None where it is one piece, or its phases run in turn.

    A fold with inner parallel axes is a piece, and those axes join its outer domain; phases
    over rows between two of these are one piece.
    """
    serial = bool(kernel.loops) or any(p.serial for p in kernel.phases)
    if serial or not any(x.shape for x in kernel.locals):
        return None
    runs = _runs(kernel.phases)
    if len(runs) < 2:
        return None
    writers = {x.name: _writers(runs, x.name) for x in kernel.locals}
    readers = {x.name: _readers(runs, x.name) for x in kernel.locals}
    crossing = [
        x
        for x in kernel.locals
        if x.shape or len(writers[x.name]) > 1 or not readers[x.name] <= writers[x.name]
    ]
    outer = tuple(a.size for a in kernel.outer)
    kept = tuple(
        Operand(
            f"kept_{x.name}",
            x.dtype,
            (*outer, *x.shape),
            "rw",
            ordered_layout((*outer, *x.shape)),
        )
        for x in crossing
    )
    places = {x.name: len(kernel.operands) + n for n, x in enumerate(crossing)}
    pieces = tuple(
        _piece(kernel, run, number, kept, places, writers, readers)
        for number, run in enumerate(runs)
    )
    return Split(pieces, kept)


def _widens(phase: Phase) -> bool:
    return phase.reduction is not None and bool(phase.parallel)


def _runs(phases: Sequence[Phase]) -> list[list[Phase]]:
    found: list[list[Phase]] = []
    for number, phase in enumerate(phases):
        alone = _widens(phase) or (number > 0 and _widens(phases[number - 1]))
        if not found or alone:
            found.append([])
        found[-1].append(phase)
    return found


def _writers(runs: Sequence[Sequence[Phase]], name: str) -> set[int]:
    """Runs that set a local."""
    return {
        number
        for number, run in enumerate(runs)
        for phase in run
        if any(s.operand == name for s in phase.stores)
        or (phase.reduction is not None and name in phase.reduction.results)
    }


def _readers(runs: Sequence[Sequence[Phase]], name: str) -> set[int]:
    return {
        number
        for number, run in enumerate(runs)
        for phase in run
        if any(isinstance(o, LoadLocal) and o.local == name for o in phase.body)
    }


def _piece(
    kernel: Kernel,
    run: Sequence[Phase],
    number: int,
    kept: Sequence[Operand],
    places: dict[str, int],
    writers: dict[str, set[int]],
    readers: dict[str, set[int]],
) -> Kernel:
    outer = tuple(dim(a.name) for a in kernel.outer)

    def moved(operation: ScalarOperation) -> ScalarOperation:
        if not isinstance(operation, LoadLocal) or operation.local not in places:
            return operation
        index = (*outer, *operation.index)
        return Load(operation.result, places[operation.local], index)

    def stored(store: Store) -> Store:
        if not isinstance(store.operand, str) or store.operand not in places:
            return store
        return replace(store, operand=places[store.operand], index=(*outer, *store.index))

    phases: list[Phase] = []
    domain = kernel.outer
    for phase in run:
        body = tuple(moved(o) for o in phase.body)
        changed = replace(phase, body=body, stores=tuple(stored(s) for s in phase.stores))
        if phase.reduction is None:
            phases.append(changed)
            continue
        inner = tuple(dim(a.name) for a in phase.parallel)
        if phase.parallel:
            domain = (*kernel.outer, *phase.parallel)
        phases.append(replace(changed, parallel=()))
        keeps: list[ScalarOperation] = []
        stores: list[Store] = []
        for name in phase.reduction.results:
            if name in places:
                value = f"%v{len(keeps)}"
                keeps.append(LoadLocal(value, name))
                stores.append(Store(value, places[name], (*outer, *inner)))
        if stores:
            phases.append(Phase((), (), tuple(keeps), None, tuple(stores)))
    names = {
        name
        for phase in phases
        if phase.reduction is not None
        for name in phase.reduction.results
    }
    own = {name for name, runs in writers.items() if number in runs and name not in places}
    locals_ = tuple(Local(x.name, x.dtype) for x in kernel.locals if x.name in names | own)
    written = {s.operand for phase in phases for s in phase.stores}
    operands = (
        *(
            o if n in written else replace(o, access="ro")
            for n, o in enumerate(kernel.operands)
        ),
        *(
            replace(o, access=_access(number, writers[name], readers[name]))
            for o, name in zip(kept, places, strict=True)
        ),
    )
    return Kernel(domain, operands, locals_, tuple(phases), kernel.dims, kernel.precision)


def _access(number: int, writers: set[int], readers: set[int]) -> Access:
    if number not in writers:
        return "ro"
    return "rw" if number in readers else "wo"
