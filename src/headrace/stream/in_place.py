"""Whether a kernel may write a result over an operand, and the kernel that does so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headrace.base.symbols import ONE, Expr
from headrace.kernel.bodies import live_operations
from headrace.kernel.description import Kernel, Load, Operand, Phase, Store

Index = tuple[Expr, ...]


def in_place_operand(kernel: Kernel, result: int) -> Iterator[int]:
    """The operands that the result with number `result` may be written over, in order.

    A phase that stores the result may load the operand only at the very index it stores.
    Phases before it may load whatever belongs to their own outer point: those elements
    are told apart by every outer axis, so no other point reads what this one overwrites.
    Phases behind it may not load it at all.

    Where several phases store the result, the first must be nothing but a copy of the
    operand and all there is of it: updates of a slice and scatters, whose copy then goes.
    """
    target = kernel.operands[result]
    if target.access != "wo":
        return
    stores = _stores(kernel, result)
    for number, operand in enumerate(kernel.operands):
        if not _alike(operand, target) or not stores:
            continue
        at, store = stores[0]
        if (len(stores) == 1 and _loads_allow(kernel, number, at, store)) or (
            len(stores) > 1 and _is_copied_whole(kernel, number, at, store)
        ):
            yield number


def _alike(operand: Operand, target: Operand) -> bool:
    return (
        operand.access == "ro"
        and not operand.constant
        and operand.dtype == target.dtype
        and operand.shape == target.shape
        and operand.layout == target.layout
    )


def _stores(kernel: Kernel, result: int) -> list[tuple[int, Store]]:
    """Every store of a result, with the number of its phase."""
    return [
        (n, store)
        for n, phase in enumerate(kernel.phases)
        for store in phase.stores
        if store.operand == result
    ]


def _loads(kernel: Kernel, number: int) -> list[tuple[int, Load]]:
    """Every load of an operand, with the number of its phase."""
    return [
        (n, load)
        for n, phase in enumerate(kernel.phases)
        for load in phase.body
        if isinstance(load, Load) and load.operand == number
    ]


def _is_copied_whole(kernel: Kernel, number: int, at: int, store: Store) -> bool:
    """Whether the operand's only load is of each element, stored where it stood."""
    loads = _loads(kernel, number)
    if len(loads) != 1 or loads[0][0] != at or store.bounded:
        return False
    load = loads[0][1]
    sizes = {a.name: a.size for a in (*kernel.outer, *kernel.phases[at].parallel)}
    axes = [str(i) for i in store.index]
    return (
        store.value == load.result
        and load.index == store.index
        and not load.bounded
        and len(set(axes)) == len(axes)
        and [sizes.get(a) for a in axes] == list(kernel.operands[number].shape)
    )


def _loads_allow(kernel: Kernel, number: int, at: int, store: Store) -> bool:
    loads = _loads(kernel, number)
    for n, load in loads:
        if n > at or load.bounded or _depends_on_data(kernel.phases[n], load.index):
            return False
        if n == at and load.index != store.index:
            return False
        if n < at and not _owned(kernel, load.index, store.index):
            return False
    return bool(loads)


def _depends_on_data(phase: Phase, index: Index) -> bool:
    values = {op.result for op in phase.body}
    return any(i.names & values for i in index)


def _owned(kernel: Kernel, load: Index, store: Index) -> bool:
    """Whether load and store name the outer point in the same dimensions."""
    outer = {a.name for a in kernel.outer if a.size != ONE}
    same = {
        name
        for a, b in zip(load, store, strict=True)
        if a == b and len(a.names) == 1
        for name in a.names & outer
        if str(a) == name
    }
    return same == outer


def written_in_place(kernel: Kernel, result: int, operand: int) -> Kernel:
    """The kernel whose result and operand are one `rw` operand, at the operand's number."""

    def moved(number: int) -> int:
        if number == result:
            number = operand
        return number - 1 if number > result else number

    operands = list(kernel.operands)
    operands[operand] = replace(
        operands[operand], name=operands[result].name, access="rw", constant=False
    )
    del operands[result]
    phases = tuple(
        replace(
            phase,
            body=tuple(
                replace(op, operand=moved(op.operand)) if isinstance(op, Load) else op
                for op in phase.body
            ),
            stores=tuple(
                store
                if isinstance(store.operand, str)
                else replace(store, operand=moved(store.operand))
                for store in phase.stores
            ),
        )
        for phase in kernel.phases
    )
    kept = tuple(p for p in map(_without_needless_stores, phases) if p is not None)
    # A kernel that copies and does nothing else stays what it is.
    return replace(kernel, operands=tuple(operands), phases=kept or phases)


def _without_needless_stores(phase: Phase) -> Phase | None:
    """The phase without stores of what stands there already; None where none is left."""
    loads = {op.result: op for op in phase.body if isinstance(op, Load)}

    def changes(store: Store) -> bool:
        load = loads.get(store.value)
        return load is None or (load.operand, load.index) != (store.operand, store.index)

    stores = tuple(s for s in phase.stores if changes(s))
    if phase.serial or stores == phase.stores:
        return phase
    if not stores:
        return None
    return replace(
        phase, body=live_operations(phase.body, [s.value for s in stores]), stores=stores
    )
