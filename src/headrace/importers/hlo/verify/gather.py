"""Rules of `gather` and `scatter`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.importers.hlo.registry import integers_of
from headrace.importers.hlo.tree import HloOperation, HloTensorType
from headrace.importers.hlo.verify.rules import (
    Refused,
    Scope,
    Sizes,
    apart,
    ascending,
    fits,
    in_range,
    integers,
    known,
    need,
    operand,
    reducer,
    result,
    rule,
    same_shape,
    sizes_of,
    unique,
    yields,
)


def _numbers(operation: HloOperation, name: str) -> Mapping[str, Any]:
    found = operation.attributes[name]
    if not isinstance(found, dict):
        raise Refused(f"the attribute '{name}' holds no dimension numbers")
    return found


def _list(numbers: Mapping[str, Any], name: str) -> list[int]:
    return integers_of(numbers.get(name, []))


def _index_depth(numbers: Mapping[str, Any], indices: Sizes) -> tuple[int, int | None]:
    """Where index vectors lie in the indices, and how long they are."""
    place = integers_of(numbers.get("index_vector_dim", 0))[0]
    need(0 <= place <= len(indices), f"'index_vector_dim' is {place}, of rank {len(indices)}")
    return place, (1 if place == len(indices) else indices[place])


def _batching(
    operand_dims: Sequence[int], index_dims: Sequence[int], operand_sizes: Sizes,
    index_sizes: Sizes, place: int,
) -> None:  # fmt: skip
    unique(operand_dims, "batching dimensions of the operand")
    unique(index_dims, "batching dimensions of the indices")
    ascending(operand_dims, "batching dimensions of the operand")
    in_range(operand_dims, len(operand_sizes), "batching dimensions of the operand")
    in_range(index_dims, len(index_sizes), "batching dimensions of the indices")
    need(place not in index_dims, "a batching dimension of the indices holds index vectors")
    need(
        len(operand_dims) == len(index_dims),
        "operand and indices have different numbers of batching dimensions",
    )
    for a, b in zip(operand_dims, index_dims, strict=True):
        need(
            fits(operand_sizes[a], index_sizes[b]),
            f"batching dimensions have {operand_sizes[a]} and {index_sizes[b]} elements",
        )


def _gathered(operation: HloOperation, lengths: Sequence[int | None]) -> None:
    numbers = _numbers(operation, "dimension_numbers")
    kind, places = operand(operation, 0), operand(operation, 1)
    sizes, indices = sizes_of(kind), sizes_of(places)
    offset, collapsed = _list(numbers, "offset_dims"), _list(numbers, "collapsed_slice_dims")
    batching = _list(numbers, "operand_batching_dims")
    index_batching = _list(numbers, "start_indices_batching_dims")
    mapped = _list(numbers, "start_index_map")
    place, depth = _index_depth(numbers, indices)
    need(fits(len(mapped), depth), f"{len(mapped)} dimensions are mapped by vectors of {depth}")
    rank = len(sizes)
    for values, what in ((offset, "'offset_dims'"), (collapsed, "'collapsed_slice_dims'")):
        unique(values, what)
        ascending(values, what)
    unique(mapped, "'start_index_map'")
    in_range(mapped, rank, "'start_index_map'")
    in_range(collapsed, rank, "'collapsed_slice_dims'")
    _batching(batching, index_batching, sizes, indices, place)
    apart(collapsed, batching, "'collapsed_slice_dims' and batching dimensions")
    apart(mapped, batching, "'start_index_map' and batching dimensions")
    need(len(lengths) == rank, f"{len(lengths)} slice sizes stand for {rank} dimensions")
    need(
        len(offset) + len(collapsed) + len(batching) == rank,
        f"{len(offset) + len(collapsed) + len(batching)} dimensions are named of {rank}",
    )
    for n, (length, size) in enumerate(zip(lengths, sizes, strict=True)):
        if length is None:
            continue
        need(length >= 0 and (size is None or length <= size), f"a slice of {length} of {size} in dimension {n}")  # fmt: skip
        once = n in collapsed or n in batching
        need(not once or length <= 1, f"a slice of {length} in dimension {n}, which goes away")
    batch = [s for n, s in enumerate(indices) if n != place]
    total = len(batch) + len(offset)
    in_range(offset, total, "'offset_dims'")
    kept = [s for n, s in enumerate(lengths) if n not in collapsed and n not in batching]
    slices, batches = iter(kept), iter(batch)
    yields(operation, [next(slices) if n in offset else next(batches) for n in range(total)], kind)  # fmt: skip


@rule("gather")
def _gather(operation: HloOperation, _: Scope) -> None:
    lengths = integers(operation, "slice_sizes")
    if known(operation):
        _gathered(operation, lengths)


@rule("dynamic_gather")
def _dynamic_gather(operation: HloOperation, scope: Scope) -> None:
    if not known(operation):
        return
    kind = operand(operation, 2)
    need(len(kind.shape) == 1, f"the slice sizes are a {kind}")
    given = scope.integers(operation.operands[2])
    count = (
        kind.shape[0].value if kind.shape[0].is_constant else len(operand(operation, 0).shape)
    )
    _gathered(operation, given if given is not None else [None] * count)


@rule("scatter")
def _scatter(operation: HloOperation, _: Scope) -> None:
    count = (len(operation.types) - 1) // 2
    need(
        len(operation.types) == 2 * count + 1 and count > 0,
        "inputs and updates differ in number",
    )
    if not known(operation):
        return
    inputs = [operand(operation, n) for n in range(count)]
    places = operand(operation, count)
    updates = [operand(operation, count + 1 + n) for n in range(count)]
    need(places.dtype.is_integer, f"indices are a {places}")
    for kind in inputs:
        need(same_shape(kind, inputs[0]), "inputs have different shapes")
    for kind in updates:
        need(same_shape(kind, updates[0]), "updates have different shapes")
    _scattered(operation, inputs[0], places, updates[0])
    starts = [HloTensorType(k.dtype, (), k.grid) for k in inputs]
    made = reducer(operation.regions[0], updates, starts)
    need(len(operation.result_types) == count, "results and inputs differ in number")
    for n, (kind, element) in enumerate(zip(inputs, made, strict=True)):
        after = result(operation, n)
        need(same_shape(kind, after), f"a {kind} becomes a {after}")
        need(
            after.dtype == element.dtype, f"result {n} is a {after}, and {element} is combined"
        )


def _scattered(
    operation: HloOperation, kind: HloTensorType, places: HloTensorType, update: HloTensorType
) -> None:
    numbers = _numbers(operation, "scatter_dimension_numbers")
    sizes, indices, lengths = sizes_of(kind), sizes_of(places), sizes_of(update)
    window, inserted = (
        _list(numbers, "update_window_dims"),
        _list(numbers, "inserted_window_dims"),
    )
    batching = _list(numbers, "input_batching_dims")
    index_batching = _list(numbers, "scatter_indices_batching_dims")
    mapped = _list(numbers, "scattered_dims_to_operand_dims")
    place, depth = _index_depth(numbers, indices)
    rank = len(sizes)
    for values, end, what in (
        (window, len(lengths), "'update_window_dims'"),
        (inserted, rank, "'inserted_window_dims'"),
    ):
        unique(values, what)
        ascending(values, what)
        in_range(values, end, what)
    unique(mapped, "'scatter_dims_to_operand_dims'")
    in_range(mapped, rank, "'scatter_dims_to_operand_dims'")
    need(fits(len(mapped), depth), f"{len(mapped)} dimensions are mapped by vectors of {depth}")
    _batching(batching, index_batching, sizes, indices, place)
    apart(inserted, batching, "'inserted_window_dims' and batching dimensions")
    apart(mapped, batching, "'scatter_dims_to_operand_dims' and batching dimensions")
    need(
        len(window) + len(inserted) + len(batching) == rank,
        f"{len(window) + len(inserted) + len(batching)} dimensions are named of {rank}",
    )
    batch = [s for n, s in enumerate(indices) if n != place]
    need(
        len(lengths) == len(batch) + len(window),
        f"updates of rank {len(lengths)} stand where {len(batch) + len(window)} is needed",
    )
    kept = [s for n, s in enumerate(sizes) if n not in inserted and n not in batching]
    for n, most in zip(window, kept, strict=True):
        length = lengths[n]
        need(length is None or most is None or length <= most, f"updates of {length} elements in a dimension of {most}")  # fmt: skip
    others = [s for n, s in enumerate(lengths) if n not in window]
    for n, (a, b) in enumerate(zip(others, batch, strict=True)):
        need(fits(a, b), f"dimension {n} of the updates has {a} elements, and {b} indices")
