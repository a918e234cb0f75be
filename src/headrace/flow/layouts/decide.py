"""Decides one layout for every tensor between dispatches, from what its users wish.

A value that only dispatches touch takes the order most of them need (strict wishes before
preferences) and the largest halo of the readers that want the same value in it; a reader
that wants another keeps its guard. Inputs, outputs and values seen through a reshape are
row-major without halo. Where a strict wish disagrees with that, the value gets *one*
second version, copied by a dispatch of its own: strict means that the fast family is
lost otherwise, which costs more than a copy. Preferences never force a copy.

Strides of dimensions of size 1 say nothing, so they are left out when orders are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from headrace.base.dtypes import DType
from headrace.base.symbols import ONE, Expr
from headrace.flow.layouts.halo import element
from headrace.flow.layouts.sites import Site, Value
from headrace.kernel.description import Layout, Load, ordered_layout
from headrace.kernel.target import LayoutWish
from headrace.kernel.text import print_scalar

Order = tuple[int, ...]
Use = tuple[Site, int]


@dataclass(frozen=True)
class Decision:
    """How a value stands.

    Attributes:
        own: the layout in which it is given or written, with its dimensions in `order`.
        other: the layout of its second version, None where it needs none.
        readers: uses that read the second version.
        plain_uses: whether returns and reshapes take the second version.
    """

    own: Layout
    order: Order
    other: Layout | None = None
    readers: tuple[Use, ...] = ()
    plain_uses: bool = False


def decide(values: Mapping[SSAValue, Value], sites: Sequence[Site]) -> dict[SSAValue, Decision]:
    """A decision for every value that is no weight, in order."""
    found: dict[SSAValue, Decision] = {}
    silent: list[Value] = []
    for ssa, value in values.items():
        if value.parameter is not None or not (value.producer or value.readers):
            continue
        if value.plain:
            found[ssa] = _plain(value)
        elif not _wishes(value):
            silent.append(value)
        else:
            found[ssa] = _inner(value)
    _follow_neighbours(silent, sites, found)
    for value in silent:
        if value.ssa not in found:
            shape = _shape(value)
            found[value.ssa] = Decision(ordered_layout(shape), tuple(range(len(shape))))
    return found


# -- orders -------------------------------------------------------------------------


def significant(order: Order, shape: Sequence[Expr]) -> Order:
    """An order without the dimensions of size 1."""
    return tuple(d for d in order if shape[d] != ONE)


def _uses(value: Value) -> list[Use]:
    return [*([value.producer] if value.producer else []), *value.readers]


def _wishes(value: Value) -> list[tuple[Use, LayoutWish]]:
    """Every wish for a value: its producer's first."""
    return [
        ((site, number), site.wishes[number])
        for site, number in _uses(value)
        if number in site.wishes and site.wishes[number].panel is None
    ]


def _shape(value: Value) -> tuple[Expr, ...]:
    site, number = _uses(value)[0]
    return site.kernel.operands[number].shape


def _dtype(value: Value) -> DType:
    site, number = _uses(value)[0]
    return site.kernel.operands[number].dtype


def _most_wished(wishes: Sequence[LayoutWish], shape: Sequence[Expr]) -> Order:
    """The order most wishes agree on, in full; the first of equals."""
    counts: dict[Order, int] = {}
    full: dict[Order, Order] = {}
    for wish in wishes:
        key = significant(wish.order, shape)
        counts[key] = counts.get(key, 0) + 1
        full.setdefault(key, wish.order)
    best = max(counts, key=lambda key: counts[key])
    return full[best]


def _has_halo(wish: LayoutWish) -> bool:
    return any(wish.halo_low) or any(wish.halo_high)


def _layout(
    order: Order, shape: tuple[Expr, ...], dtype: DType, readers: Sequence[LayoutWish]
) -> Layout:
    """`order` with the halo of the readers that agree on it and on what it holds."""
    agreeing = [
        w
        for w in readers
        if _has_halo(w) and significant(w.order, shape) == significant(order, shape)
    ]
    groups: dict[str, list[LayoutWish]] = {}
    for wish in agreeing:
        if wish.halo_value is not None:
            text = print_scalar(element(wish.halo_value, dtype))
            groups.setdefault(text, []).append(wish)
    if not groups:
        return ordered_layout(shape, order)
    chosen = max(groups.values(), key=len)
    value = chosen[0].halo_value
    assert value is not None
    none = (0,) * len(shape)
    low = tuple(map(max, zip(*((w.halo_low or none) for w in chosen), strict=True)))
    high = tuple(map(max, zip(*((w.halo_high or none) for w in chosen), strict=True)))
    return ordered_layout(shape, order, low, high, element(value, dtype))


def _satisfies(layout: Layout, order: Order, wish: LayoutWish, shape: Sequence[Expr]) -> bool:
    """Whether a strict wish is granted by a layout made in `order`."""
    if significant(wish.order, shape) != significant(order, shape):
        return False
    none = (0,) * len(shape)
    return all(
        have >= want
        for have, want in (
            *zip(layout.halo_low, wish.halo_low or none, strict=True),
            *zip(layout.halo_high, wish.halo_high or none, strict=True),
        )
    )


# -- values -------------------------------------------------------------------------


def _reader_wishes(value: Value, strict_only: bool = False) -> list[tuple[Use, LayoutWish]]:
    return [
        (use, wish)
        for use, wish in _wishes(value)
        if use != value.producer and (wish.strict or not strict_only)
    ]


def _inner(value: Value) -> Decision:
    shape, dtype = _shape(value), _dtype(value)
    wishes = [wish for _, wish in _wishes(value)]
    strict = [w for w in wishes if w.strict]
    order = _most_wished(strict or wishes, shape)
    readers = [wish for _, wish in _reader_wishes(value)]
    own = _layout(order, shape, dtype, readers)
    unhappy = [
        (use, wish)
        for use, wish in _reader_wishes(value, strict_only=True)
        if significant(wish.order, shape) != significant(order, shape)
    ]
    if not unhappy:
        return Decision(own, order)
    other = _layout(
        _most_wished([w for _, w in unhappy], shape), shape, dtype, [w for _, w in unhappy]
    )
    return Decision(own, order, other, tuple(use for use, _ in unhappy))


def _plain(value: Value) -> Decision:
    shape, dtype = _shape(value), _dtype(value)
    plain, rows = ordered_layout(shape), tuple(range(len(shape)))
    unhappy = [
        (use, wish)
        for use, wish in _wishes(value)
        if wish.strict and not _satisfies(plain, rows, wish, shape)
    ]
    producer = [wish for use, wish in unhappy if use == value.producer]
    readers = [(use, wish) for use, wish in unhappy if use != value.producer]
    if not unhappy:
        return Decision(plain, rows)
    order = _most_wished([wish for _, wish in unhappy], shape)
    version = _layout(order, shape, dtype, [wish for _, wish in readers])
    takers = tuple(
        use
        for use, wish in readers
        if significant(wish.order, shape) == significant(order, shape)
    )
    written_so = bool(producer) and significant(producer[0].order, shape) == significant(
        order, shape
    )
    if written_so:
        rest = tuple(use for use in value.readers if use not in takers)
        return Decision(version, order, plain, rest, plain_uses=True)
    return Decision(plain, rows, version if takers else None, takers)


def _follow_neighbours(
    silent: Sequence[Value], sites: Sequence[Site], found: dict[SSAValue, Decision]
) -> None:
    """Values nobody has a wish for take the order of what stands beside them.

    An elementwise kernel is best when all it touches stands alike. Forward first, from
    the operands of the producer; then backward, from the results of the readers.
    """
    for value in silent:
        if value.producer is not None:
            _follow(value, value.producer[0], found)
    for value in reversed(silent):
        for site, _ in value.readers:
            _follow(value, site, found)


def _follow(value: Value, site: Site, found: dict[SSAValue, Decision]) -> None:
    if value.ssa in found:
        return
    shape = _shape(value)
    for other in site.values:
        decision = found.get(other)
        if decision is None or other is value.ssa:
            continue
        order = decision.order
        rows = tuple(range(len(shape)))
        if len(order) != len(shape) or significant(order, shape) == significant(rows, shape):
            continue
        if _moves_alike(site, value.ssa, other):
            found[value.ssa] = Decision(ordered_layout(shape, order), order)
            return


def _moves_alike(site: Site, left: SSAValue, right: SSAValue) -> bool:
    """Whether a kernel touches both at the same index, in tensors of one shape."""
    kernel = site.kernel
    numbers = [n for n, v in enumerate(site.values) if v is left or v is right]
    shapes = {kernel.operands[n].shape for n in numbers}
    indices: set[tuple[Expr, ...]] = set()
    for phase in kernel.phases:
        for op in phase.body:
            if isinstance(op, Load) and op.operand in numbers:
                indices.add(op.index)
        for store in phase.stores:
            if isinstance(store.operand, int) and store.operand in numbers:
                indices.add(store.index)
    return len(shapes) == 1 and len(indices) == 1
