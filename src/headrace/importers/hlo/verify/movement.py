"""Rules of operations that move elements."""

from __future__ import annotations

from math import prod

from headrace.importers.hlo.tree import HloOperation
from headrace.importers.hlo.verify.rules import (
    Scope,
    Sizes,
    fits,
    in_range,
    integers,
    known,
    natural,
    need,
    operand,
    result,
    rule,
    same_element,
    same_shape,
    shown,
    sizes_of,
    unique,
    yields,
)


@rule("broadcast")
def _broadcast(operation: HloOperation, _: Scope) -> None:
    sizes = integers(operation, "broadcast_sizes")
    need(all(s >= 0 for s in sizes), f"the sizes {sizes} hold one below 0")
    if known(operation):
        kind = operand(operation, 0)
        yields(operation, [*sizes, *sizes_of(kind)], kind)


def broadcast_dimensions(operation: HloOperation, index: int = 0) -> None:
    """Refuses dimensions that do not take an operand into the result's shape."""
    dims = integers(operation, "broadcast_dimensions")
    source, made = operand(operation, index), result(operation)
    a, b = sizes_of(source), sizes_of(made)
    need(len(dims) == len(a), f"{len(dims)} dimensions are named for {len(a)}")
    in_range(dims, len(b), "'broadcast_dimensions'")
    unique(dims, "'broadcast_dimensions'")
    for n, place in enumerate(dims):
        need(
            a[n] == 1 or fits(a[n], b[place]),
            f"dimension {n} of {a[n]} elements does not spread to {b[place]}",
        )
    need(same_element(source, made), f"elements of {source} do not make {made}")


@rule("broadcast_in_dim")
def _broadcast_in_dim(operation: HloOperation, _: Scope) -> None:
    if not known(operation):
        return
    broadcast_dimensions(operation)
    made = result(operation)
    open_ = [n for n, s in enumerate(sizes_of(made)) if s is None]
    bounded = all(made.bounds[n] is not None for n in open_)
    need(not open_ or (len(open_) == 1 and bounded), "a size of the result is not known")


@rule("concatenate")
def _concatenate(operation: HloOperation, _: Scope) -> None:
    need(bool(operation.types), "there is nothing to join")
    dimension = natural(operation, "dimension")
    if not known(operation):
        return
    kinds = [operand(operation, n) for n in range(len(operation.types))]
    shapes = [sizes_of(k) for k in kinds]
    rank = len(shapes[0])
    need(rank > 0, "single elements are not joined")
    need(dimension < rank, f"dimension {dimension} is not there")
    joined: Sizes = list(shapes[0])
    total: int | None = 0
    for n, shape in enumerate(shapes):
        need(len(shape) == rank, f"operand {n} has another rank")
        for place, size in enumerate(shape):
            if place == dimension:
                total = None if total is None or size is None else total + size
                continue
            need(fits(joined[place], size), f"shapes differ beside dimension {dimension}: {shown(joined)} and {shown(shape)}")  # fmt: skip
            joined[place] = joined[place] if joined[place] is not None else size
        need(kinds[n].dtype == kinds[0].dtype, f"operand {n} has other elements")
    joined[dimension] = total
    yields(operation, joined, kinds[0])


@rule("reshape")
def _reshape(operation: HloOperation, _: Scope) -> None:
    if not known(operation):
        return
    source, made = operand(operation, 0), result(operation)
    a, b = sizes_of(source), sizes_of(made)
    need(same_element(source, made), f"elements of {source} do not make {made}")
    if None not in a and None not in b:
        x, y = prod(s or 0 for s in a), prod(s or 0 for s in b)
        need(x == y, f"{x} elements do not make {y}")


@rule("reverse")
def _reverse(operation: HloOperation, _: Scope) -> None:
    dims = integers(operation, "dimensions")
    unique(dims, "'dimensions'")
    need(all(d >= 0 for d in dims), "a dimension is below 0")
    if known(operation):
        kind = operand(operation, 0)
        in_range(dims, len(kind.shape), "'dimensions'")
        yields(operation, sizes_of(kind), kind)


@rule("transpose")
def _transpose(operation: HloOperation, _: Scope) -> None:
    order = integers(operation, "permutation")
    if not known(operation):
        return
    kind = operand(operation, 0)
    sizes = sizes_of(kind)
    need(sorted(order) == list(range(len(sizes))), f"{order} is no order of {len(sizes)}")
    yields(operation, [sizes[n] for n in order], kind)


@rule("slice")
def _slice(operation: HloOperation, _: Scope) -> None:
    starts, limits, strides = (
        integers(operation, n) for n in ("start_indices", "limit_indices", "strides")
    )
    if not known(operation):
        return
    kind = operand(operation, 0)
    sizes = sizes_of(kind)
    need(
        len(starts) == len(limits) == len(strides) == len(sizes),
        f"bounds of {len(starts)} dimensions stand for {len(sizes)}",
    )
    found: Sizes = []
    for n, (a, b, step, size) in enumerate(zip(starts, limits, strides, sizes, strict=True)):
        most = size if size is not None else kind.bounds[n]
        need(a >= 0, f"the slice of dimension {n} starts at {a}")
        need(most is None or b <= most, f"the slice of dimension {n} ends at {b}, of {most}")
        need(a <= b, f"the slice of dimension {n} ends at {b} and starts at {a}")
        need(step > 0, f"the step of dimension {n} is {step}")
        found.append(-((a - b) // step))
    yields(operation, found, kind)


@rule("pad")
def _pad(operation: HloOperation, _: Scope) -> None:
    low, high, inside = (
        integers(operation, n)
        for n in ("edge_padding_low", "edge_padding_high", "interior_padding")
    )
    if not known(operation):
        return
    kind, value = operand(operation, 0), operand(operation, 1)
    sizes = sizes_of(kind)
    need(not value.shape, f"the padding is a {value}, not one element")
    need(kind.dtype == value.dtype, f"the padding is a {value}, of a {kind}")
    need(
        len(low) == len(high) == len(inside) == len(sizes),
        f"paddings of {len(low)} dimensions stand for {len(sizes)}",
    )
    found: Sizes = []
    for n, (a, b, c, size) in enumerate(zip(low, high, inside, sizes, strict=True)):
        need(c >= 0, f"the inner padding of dimension {n} is {c}")
        bound = kind.bounds[n]
        for length in (size, bound):
            if length is not None:
                padded = length + a + b + max(length - 1, 0) * c
                need(padded >= 0, f"dimension {n} would have {padded} elements")
        found.append(None if size is None else size + a + b + max(size - 1, 0) * c)
    yields(operation, found, kind)


def _indices(operation: HloOperation, first: int, rank: int) -> None:
    kinds = [operand(operation, n) for n in range(first, len(operation.types))]
    need(len(kinds) == rank, f"{len(kinds)} indices stand for {rank} dimensions")
    for kind in kinds:
        need(not kind.shape, f"an index is a {kind}")
        need(kind.dtype == kinds[0].dtype, "indices have different elements")


@rule("dynamic_slice")
def _dynamic_slice(operation: HloOperation, _: Scope) -> None:
    lengths = integers(operation, "slice_sizes")
    if not known(operation):
        return
    kind = operand(operation, 0)
    sizes = sizes_of(kind)
    need(len(lengths) == len(operation.types) - 1, f"{len(lengths)} sizes are given")
    _indices(operation, 1, len(sizes))
    for n, (length, size) in enumerate(zip(lengths, sizes, strict=True)):
        need(length >= 0, f"the size of dimension {n} is {length}")
        need(size is None or length <= size, f"{length} of {size} elements in dimension {n}")
    yields(operation, list(lengths), kind)


@rule("dynamic_update_slice")
def _dynamic_update_slice(operation: HloOperation, _: Scope) -> None:
    if not known(operation):
        return
    kind, update = operand(operation, 0), operand(operation, 1)
    a, b = sizes_of(kind), sizes_of(update)
    need(len(a) == len(b), f"an update of rank {len(b)} for a rank of {len(a)}")
    need(kind.dtype == update.dtype, f"a {update} does not update a {kind}")
    _indices(operation, 2, len(a))
    for n, (size, length) in enumerate(zip(a, b, strict=True)):
        need(size is None or length is None or length <= size, f"{length} of {size} elements in dimension {n}")  # fmt: skip
    yields(operation, a, kind)


@rule("get_dimension_size")
def _get_dimension_size(operation: HloOperation, _: Scope) -> None:
    dimension = natural(operation, "dimension")
    if known(operation):
        rank = len(operand(operation, 0).shape)
        need(dimension < rank, f"dimension {dimension} is not there")
        need(result(operation).dtype.name == "i32" and not result(operation).shape, "the result is no tensor<i32>")  # fmt: skip


@rule("set_dimension_size")
def _set_dimension_size(operation: HloOperation, _: Scope) -> None:
    dimension = natural(operation, "dimension")
    if not known(operation):
        return
    kind, size = operand(operation, 0), operand(operation, 1)
    need(not size.shape, f"the size is a {size}")
    need(dimension < len(kind.shape), f"dimension {dimension} is not there")
    found = sizes_of(kind)
    found[dimension] = None
    yields(operation, found, kind)


@rule("sort")
def _sort(operation: HloOperation, _: Scope) -> None:
    if not known(operation):
        return
    kinds = [operand(operation, n) for n in range(len(operation.types))]
    need(bool(kinds), "there is nothing to sort")
    rank = len(kinds[0].shape)
    dimension = (integers(operation, "dimension", [-1]) or [-1])[0]
    need(-rank <= dimension < max(rank, 1), f"dimension {dimension} is not there")
    body = operation.regions[0]
    need(
        len(body.arguments) == 2 * len(kinds),
        f"the comparator takes {len(body.arguments)} arguments",
    )
    for n, kind in enumerate(kinds):
        need(same_shape(kind, kinds[0]), f"operand {n} has another shape")
        for place in (2 * n, 2 * n + 1):
            argument = body.arguments[place][1]
            wanted = getattr(argument, "dtype", None) == kind.dtype and not getattr(argument, "shape", (1,))  # fmt: skip
            need(wanted, f"argument {place} of the comparator is a {argument}")
    from headrace.importers.hlo.verify.rules import returned

    made = returned(body)
    need(len(made) == 1 and str(made[0]) == "tensor<i1>", "the comparator returns no single tensor<i1>")  # fmt: skip
    need(len(operation.result_types) == len(kinds), "results and operands differ in number")
    for kind, after in zip(kinds, operation.result_types, strict=True):
        need(same_shape(kind, after), f"a {kind} is sorted to a {after}")
