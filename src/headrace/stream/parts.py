"""Parts of a buffer: what a kernel copies into a box of its result, and kernels that read
and write such a box where it stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.base.symbols import ONE, ZERO, Expr, product
from headrace.flow.layouts.halo import same_scalar
from headrace.kernel.description import Kernel, Layout, Load, Operand, Phase


@dataclass(frozen=True)
class Part:
    """A box of a kernel's result that is an operand, element by element.

    Attributes:
        phase: the number of the phase that copies it, and does nothing else.
        operand, result: numbers of the kernel's operands.
        begin: where the box begins, for each dimension.
    """

    phase: int
    operand: int
    result: int
    begin: tuple[Expr, ...]


def copied_parts(kernel: Kernel, result: int) -> list[Part]:
    """The operands that a kernel does nothing with but copy each whole into a box of a
    result, in order of the operands; none where an element is written twice."""
    found: list[Part] = []
    if not _writes_once(kernel, result):
        return found
    for number, operand in enumerate(kernel.operands):
        if operand.access != "ro" or operand.constant:
            continue
        phases = [n for n, p in enumerate(kernel.phases) if _loads(p, number)]
        if len(phases) == 1:
            begin = _begin(kernel, phases[0], number, result)
            if begin is not None:
                found.append(Part(phases[0], number, result, begin))
    return found


def _writes_once(kernel: Kernel, result: int) -> bool:
    """Whether each element of a result that is written whole is written once."""
    if kernel.operands[result].access != "wo":
        return False
    writers = [p for p in kernel.phases for s in p.stores if s.operand == result]
    points = [product(a.size for a in (*kernel.outer, *p.parallel)) for p in writers]
    return sum(points, ZERO) == product(kernel.operands[result].shape)


def _loads(phase: Phase, number: int) -> list[Load]:
    return [op for op in phase.body if isinstance(op, Load) and op.operand == number]


def _begin(kernel: Kernel, at: int, number: int, result: int) -> tuple[Expr, ...] | None:
    """Where the box begins that a phase copies an operand into; None where it does not."""
    phase, operand = kernel.phases[at], kernel.operands[number]
    if phase.reduction is not None or phase.serial or len(phase.stores) != 1:
        return None
    loads, store = _loads(phase, number), phase.stores[0]
    if len(loads) != 1 or tuple(loads) != phase.body or loads[0].bounded or store.bounded:
        return None
    (load,) = loads
    if store.operand != result or store.value != load.result:
        return None
    sizes = {a.name: a.size for a in (*kernel.outer, *phase.parallel)}
    axes = [str(i) for i in load.index]
    if len(axes) != len(store.index):  # a tensor of another rank is no box
        return None
    if len(set(axes)) != len(axes) or [sizes.get(a) for a in axes] != list(operand.shape):
        return None
    if {a for a, size in sizes.items() if size != ONE} - set(axes):
        return None
    begin = tuple(to - i for to, i in zip(store.index, load.index, strict=True))
    return None if any(b.names & set(sizes) for b in begin) else begin


def part_layout(whole: Operand, part: Operand, begin: Sequence[Expr]) -> Layout | None:
    """The layout of a box of `whole`, in its buffer.

    None where it cannot be one, or where readers of `part` as it stood would miss its order
    or its halo.
    """
    outer, inner = whole.layout, part.layout
    if outer.transform or outer.codes or any(d.tile != 1 for d in outer.dimensions):
        return None
    cut = [a != b for a, b in zip(whole.shape, part.shape, strict=True)]
    offset, low, high = outer.offset, list(outer.halo_low), list(outer.halo_high)
    for d, is_cut in enumerate(cut):
        # Beside a part along a cut stands another part.
        if is_cut and (low[d] or high[d]):
            return None
        offset = offset + begin[d] * outer.dimensions[d].stride
    covers = all(
        a >= b for a, b in zip((*low, *high), (*inner.halo_low, *inner.halo_high), strict=True)
    )
    if inner.has_halo and not (
        covers and same_scalar(inner.halo_value, outer.halo_value, part.dtype)
    ):
        return None
    if _order(outer, part.shape) != _order(inner, part.shape):
        return None
    return replace(outer, offset=offset)


_PROBE = 97
"""What named sizes are taken for, to see in which order dimensions stand."""


def _order(layout: Layout, shape: Sequence[Expr]) -> list[int]:
    """Dimensions longer than 1, outermost first."""
    strides = [
        d.stride.evaluate(dict.fromkeys(d.stride.names, _PROBE)) for d in layout.dimensions
    ]
    longer = [d for d, size in enumerate(shape) if size != ONE]
    return sorted(longer, key=lambda d: -strides[d])


def is_run(layout: Layout, shape: Sequence[Expr]) -> bool:
    """Whether a box without halo is one run of its buffer."""
    if layout.has_halo:
        return False
    extent = ONE
    for d in reversed(_order(layout, shape)):
        if layout.dimensions[d].stride != extent:
            return False
        extent = extent * shape[d]
    return True


def with_layout(kernel: Kernel, numbers: Sequence[int], layout: Layout) -> Kernel:
    """The kernel with some operands in another layout."""
    operands = tuple(
        replace(operand, layout=layout) if n in numbers else operand
        for n, operand in enumerate(kernel.operands)
    )
    return replace(kernel, operands=operands)


def without_parts(kernel: Kernel, result: int, parts: Sequence[Part]) -> Kernel | None:
    """The kernel when parts of a result stand in it already; None where nothing is left.

    What is left writes into a buffer that holds something: its access is `rw`.
    """
    gone = {part.operand for part in parts}
    copies = {part.phase for part in parts}

    def moved(number: int) -> int:
        return number - sum(n < number for n in gone)

    phases = tuple(
        replace(
            phase,
            body=tuple(
                replace(op, operand=moved(op.operand)) if isinstance(op, Load) else op
                for op in phase.body
            ),
            stores=tuple(
                replace(s, operand=moved(s.operand)) if isinstance(s.operand, int) else s
                for s in phase.stores
            ),
        )
        for n, phase in enumerate(kernel.phases)
        if n not in copies
    )
    if not phases:
        return None
    operands = list(kernel.operands)
    operands[result] = replace(operands[result], access="rw")
    kept = tuple(operand for n, operand in enumerate(operands) if n not in gone)
    return replace(kernel, operands=kept, phases=phases)
