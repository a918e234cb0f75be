"""Rules of operations whose shapes are data."""

from __future__ import annotations

from math import prod

from headrace.importers.hlo.tree import HloOperation
from headrace.importers.hlo.verify.movement import broadcast_dimensions
from headrace.importers.hlo.verify.rules import (
    Scope,
    Sizes,
    fit_shape,
    in_range,
    integers,
    known,
    natural,
    need,
    operand,
    result,
    rule,
    same_element,
    sizes_of,
    unique,
    yields,
)


def _shape(operation: HloOperation, index: int, scope: Scope, rank: int) -> list[int] | None:
    """The shape that an operand holds, where it is a constant; it must have `rank` sizes."""
    kind = operand(operation, index)
    need(len(kind.shape) == 1, f"the shape is a {kind}")
    need(kind.shape[0].is_constant, f"the shape is a {kind}, of a rank that is not known")
    need(kind.shape[0].value == rank, f"the shape is a {kind}, of a rank of {rank}")
    return scope.integers(operation.operands[index])


@rule("dynamic_broadcast_in_dim")
def _dynamic_broadcast_in_dim(operation: HloOperation, scope: Scope) -> None:
    if not known(operation):
        return
    made = result(operation)
    given = _shape(operation, 1, scope, len(made.shape))
    broadcast_dimensions(operation)
    source = operand(operation, 0)
    rank = len(source.shape)
    hints = [
        integers(operation, n, [])
        for n in ("known_expanding_dimensions", "known_nonexpanding_dimensions")
    ]
    both = [*hints[0], *hints[1]]
    unique(both, "hints of expanding dimensions")
    in_range(both, rank, "hints of expanding dimensions")
    if given is None:
        return
    need(all(s >= 0 for s in given), f"the shape {given} holds a size below 0")
    need(fit_shape(list(given), made), f"the shape {given} is not that of {made}")
    dims = integers(operation, "broadcast_dimensions")
    for n, (size, place) in enumerate(zip(sizes_of(source), dims, strict=True)):
        need(size in (None, 1, given[place]), f"dimension {n} of {size} does not spread to {given[place]}")  # fmt: skip


@rule("dynamic_reshape")
def _dynamic_reshape(operation: HloOperation, scope: Scope) -> None:
    if not known(operation):
        return
    source, made = operand(operation, 0), result(operation)
    need(same_element(source, made), f"elements of {source} do not make {made}")
    given = _shape(operation, 1, scope, len(made.shape))
    a, b = sizes_of(source), sizes_of(made)
    if None not in a and None not in b:
        x, y = prod(s or 0 for s in a), prod(s or 0 for s in b)
        need(x == y, f"{x} elements do not make {y}")
    if given is None:
        return
    need(all(s >= 0 for s in given), f"the shape {given} holds a size below 0")
    need(fit_shape(list(given), made), f"the shape {given} is not that of {made}")
    if None not in a:
        x = prod(s or 0 for s in a)
        need(x == prod(given), f"{x} elements do not make {given}")


@rule("dynamic_iota")
def _dynamic_iota(operation: HloOperation, scope: Scope) -> None:
    dimension = natural(operation, "iota_dimension")
    if not known(operation):
        return
    made = result(operation)
    need(dimension < len(made.shape), f"dimension {dimension} is not there")
    given = _shape(operation, 0, scope, len(made.shape))
    if given is not None:
        need(all(s >= 0 for s in given), f"the shape {given} holds a size below 0")
        yields(operation, list(given), None)


@rule("dynamic_pad")
def _dynamic_pad(operation: HloOperation, scope: Scope) -> None:
    if not known(operation):
        return
    kind, value, made = operand(operation, 0), operand(operation, 1), result(operation)
    rank = len(kind.shape)
    need(not value.shape and value.dtype == kind.dtype, f"the padding is a {value}")
    low, high, inside = (_shape(operation, n, scope, rank) for n in (2, 3, 4))
    need(len(made.shape) == rank, f"a {kind} is padded to a {made}")
    need(inside is None or all(v >= 0 for v in inside), f"the inner padding is {inside}")
    if low is None or high is None or inside is None:
        return
    found: Sizes = [
        None if s is None else s + a + b + max(s - 1, 0) * c
        for s, a, b, c in zip(sizes_of(kind), low, high, inside, strict=True)
    ]
    yields(operation, found, kind)


@rule("real_dynamic_slice")
def _real_dynamic_slice(operation: HloOperation, scope: Scope) -> None:
    if not known(operation):
        return
    kind = operand(operation, 0)
    rank = len(kind.shape)
    for n in (1, 2, 3):
        bounds = operand(operation, n)
        need(len(bounds.shape) == 1, f"bounds are a {bounds}")
        count = bounds.shape[0]
        need(not count.is_constant or count.value == rank, f"bounds are a {bounds}, of a rank of {rank}")  # fmt: skip
    steps = scope.integers(operation.operands[3])
    need(steps is None or all(s > 0 for s in steps), f"the steps are {steps}")
    yields(operation, [None] * rank, kind)
