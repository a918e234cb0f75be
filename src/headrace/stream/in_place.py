"""Whether a kernel may write a result over an operand, and the kernel that does so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headrace.base.symbols import ONE, Expr
from headrace.kernel.description import Kernel, Load, Operand, Phase, Store

Index = tuple[Expr, ...]


def in_place_operand(kernel: Kernel, result: int) -> Iterator[int]:
    """The operands that the result with number `result` may be written over, in order.

    A phase that stores the result may load the operand only at the very index it stores.
    Phases before it may load whatever belongs to their own outer point: those elements
    are told apart by every outer axis, so no other point reads what this one overwrites.
    Phases behind it may not load it at all.
    """
    target = kernel.operands[result]
    found = _only_store(kernel, result)
    if target.access != "wo" or found is None:
        return
    at, store = found
    for number, operand in enumerate(kernel.operands):
        if _alike(operand, target) and _loads_allow(kernel, number, at, store):
            yield number


def _alike(operand: Operand, target: Operand) -> bool:
    return (
        operand.access == "ro"
        and not operand.constant
        and operand.dtype == target.dtype
        and operand.shape == target.shape
        and operand.layout == target.layout
    )


def _only_store(kernel: Kernel, result: int) -> tuple[int, Store] | None:
    stores = [
        (n, store)
        for n, phase in enumerate(kernel.phases)
        for store in phase.stores
        if store.operand == result
    ]
    return stores[0] if len(stores) == 1 else None


def _loads_allow(kernel: Kernel, number: int, at: int, store: Store) -> bool:
    loads = [
        (n, load)
        for n, phase in enumerate(kernel.phases)
        for load in phase.body
        if isinstance(load, Load) and load.operand == number
    ]
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
    return replace(kernel, operands=tuple(operands), phases=phases)
