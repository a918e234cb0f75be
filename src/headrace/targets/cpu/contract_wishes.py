"""How products and convolutions would like their operands to stand in memory.

The weight in panels of columns, its other dimensions in the order in which the left
operand runs through them; images with channels last and a halo where the window sticks
out; the second operand of a product of two activations with its columns last.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.base.dtypes import I32
from headrace.base.symbols import Expr, Operation, as_expr, dim
from headrace.kernel.description import Kernel, Load, Phase, Scalar
from headrace.kernel.target import LayoutWish
from headrace.targets.cpu.contract_plan import FACTORS, INTEGERS, PANEL_COLUMNS, product_factors
from headrace.targets.cpu.machine import Machine


def layout_wishes(kernel: Kernel, machine: Machine) -> Mapping[int, LayoutWish] | None:
    """Wishes for a kernel whose operands are row-major; None where it is no contraction."""
    loads = _product_loads(kernel)
    if loads is None:
        return None
    for left, right in (loads, loads[::-1]):
        column = _column(kernel, left, right)
        if column is not None:
            return _wishes(kernel, left, right, column, machine)
    return None


def _product_loads(kernel: Kernel) -> tuple[Load, Load] | None:
    """The two loads of a kernel that starts with a sum of their products."""
    if not kernel.phases or kernel.phases[0].reduction is None:
        return None
    phase = kernel.phases[0]
    loads = [i for i in phase.body if isinstance(i, Load)]
    if len(loads) != 2 or phase.parallel:
        return None
    assert phase.reduction is not None
    names = {i.result for i in loads}
    sums = [d for d in FACTORS if product_factors(phase.body, d) == names]
    if not sums:
        return None
    # Wide integers have no family here: what would a panel help?
    if sums[0] == I32 and any(kernel.operands[i.operand].dtype not in INTEGERS for i in loads):
        return None
    if phase.reduction.combiner.kind != "add":
        return None
    return loads[0], loads[1]


def _names(load: Load) -> frozenset[str]:
    found: frozenset[str] = frozenset()
    for index in load.index:
        found |= index.names
    return found


def _column(kernel: Kernel, left: Load, right: Load) -> int | None:
    """The dimension of `right` that is a column axis by itself: the longest such.

    A weight is always the right operand.
    """
    if kernel.operands[left.operand].constant and not kernel.operands[right.operand].constant:
        return None
    best: tuple[int, int] | None = None
    for d, index in enumerate(right.index):
        for axis in kernel.outer:
            if index == dim(axis.name) and axis.name not in _names(left):
                size = axis.size.value if axis.size.is_constant else 64
                if size > 1 and (best is None or size > best[0]):
                    best = (size, d)
    return None if best is None else best[1]


def _wishes(
    kernel: Kernel, left: Load, right: Load, column: int, machine: Machine
) -> dict[int, LayoutWish]:
    phase = kernel.phases[0]
    reduction = {a.name for a in phase.reduction_axes}
    wishes: dict[int, LayoutWish] = {}
    order = tuple(range(len(left.index)))
    image = _image_order(left, reduction)
    if image is not None:
        order = image
        wishes[left.operand] = halo_wish(kernel, phase, left, order)
    ranks = _ranks(left, order, reduction)
    others = [d for d in range(len(right.index)) if d != column]
    others.sort(key=lambda d: min((ranks.get(n, -1) for n in right.index[d].names), default=-1))
    weight = kernel.operands[right.operand]
    tile = PANEL_COLUMNS
    if weight.constant and all(s.is_constant for s in weight.shape):
        wishes[right.operand] = LayoutWish(tuple(others), panel=(column, tile), strict=True)
    elif column != len(right.index) - 1:
        wishes[right.operand] = LayoutWish((*others, column))
    if image is not None:
        axis = next(iter(right.index[column].names))
        _wish_channels_last(kernel, axis, wishes)
    return wishes


def _image_order(left: Load, reduction: set[str]) -> tuple[int, ...] | None:
    """Channels last, where some dimension slides and one is a reduction axis by itself."""
    sliding = [d for d, i in enumerate(left.index) if len(i.names) > 1 and i.names & reduction]
    alone = [d for d, i in enumerate(left.index) if len(i.names) == 1 and i.names <= reduction]
    if (
        len(left.index) < 3
        or len(alone) != 1
        or (not sliding and alone[0] == len(left.index) - 1)
    ):
        return None
    return (*(d for d in range(len(left.index)) if d != alone[0]), alone[0])


def _ranks(left: Load, order: tuple[int, ...], reduction: set[str]) -> dict[str, int]:
    """For each reduction axis, how far inside the left operand it runs."""
    return {
        name: place
        for place, d in enumerate(order)
        for name in left.index[d].names
        if name in reduction
    }


def _wish_channels_last(kernel: Kernel, axis: str, wishes: dict[int, LayoutWish]) -> None:
    """Results, and what is read at the same index (a residual), like the images."""
    for phase in kernel.phases[1:]:
        for store in phase.stores:
            if not isinstance(store.operand, int):
                continue
            order = _channels_last(store.index, axis)
            if order is None:
                continue
            wishes[store.operand] = LayoutWish(order)
            for item in phase.body:
                if isinstance(item, Load) and item.index == store.index:
                    wishes.setdefault(item.operand, LayoutWish(order))


def _channels_last(index: tuple[Expr, ...], axis: str) -> tuple[int, ...] | None:
    places = [d for d, i in enumerate(index) if i == dim(axis)]
    if len(places) != 1 or len(index) < 3:
        return None
    return (*(d for d in range(len(index)) if d != places[0]), places[0])


def halo_wish(kernel: Kernel, phase: Phase, load: Load, order: tuple[int, ...]) -> LayoutWish:
    """`order` with a halo for every bounded dimension; strict, as guards cost the family.

    Where the reach beyond the tensor has no constant bound, no halo is wished for.
    """
    low, high = [0] * len(order), [0] * len(order)
    sizes = {a.name: a.size for a in (*kernel.outer, *phase.reduction_axes)}
    for d in load.bounded:
        first = load.index[d].substitute({n: 0 for n in sizes})
        last = load.index[d].substitute({n: s - 1 for n, s in sizes.items()})
        over = at_most(last - kernel.operands[load.operand].shape[d] + 1)
        if not (first.is_constant and over.is_constant):
            return LayoutWish(order)
        low[d], high[d] = max(0, -first.value), max(0, over.value)
    if not any(low) and not any(high):
        return LayoutWish(order, strict=True)
    value: Scalar = 0 if load.otherwise is None else load.otherwise
    return LayoutWish(order, tuple(low), tuple(high), value, strict=True)


def at_most(expr: Expr) -> Expr:
    """An expression without `floordiv` by constants that is never smaller.

    `s*k*(a floordiv s)` is at most `k*a`; so the last window of a strided convolution
    reaches at most its padding beyond the image, whatever the size.
    """
    total = as_expr(0)
    for monomial, coefficient in expr.terms:
        term = Expr(((monomial, coefficient),))
        if len(monomial) == 1 and monomial[0][1] == 1:
            atom = monomial[0][0]
            if isinstance(atom, Operation) and atom.name == "floordiv":
                numerator, divisor = atom.operands
                if (
                    divisor.is_constant
                    and divisor.value > 0
                    and coefficient % divisor.value == 0
                ):
                    factor = coefficient // divisor.value
                    slack = 0 if factor > 0 else divisor.value - 1
                    term = (numerator - slack) * factor
        total = total + term
    return total
