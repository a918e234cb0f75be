"""Transposes as permutations, and layout-agnostic operations rebuilt under one.

`transpose(x, p)` has `x`'s dimension `p[i]` as its dimension `i`. An *agnostic* operation
computes the same whatever the order of its dimensions, if its attributes follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from xdsl.ir import Attribute, Operation, SSAValue

from headrace.base.symbols import ONE, Expr
from headrace.ir.types import ExprsAttr, dtype_of, exprs_attr, shape_of, tensor_type
from headrace.tensor import dialect as d
from headrace.tensor.build import integers
from headrace.tensor.rules.movement import integer_list

Permutation = tuple[int, ...]
Item = TypeVar("Item")


def inverse(permutation: Permutation) -> Permutation:
    """The permutation that undoes it."""
    result = [0] * len(permutation)
    for i, p in enumerate(permutation):
        result[p] = i
    return tuple(result)


def compose(first: Permutation, then: Permutation) -> Permutation:
    """`transpose(transpose(x, first), then)` as one permutation of `x`."""
    return tuple(first[n] for n in then)


def identity(rank: int) -> Permutation:
    return tuple(range(rank))


def moves_nothing(permutation: Permutation, shape: Sequence[Expr]) -> bool:
    """Whether a transpose of a tensor of `shape` is a reshape: only size-1 dimensions move."""
    kept = [p for p in permutation if shape[p] != ONE]
    return kept == sorted(kept)


def permuted(items: Sequence[Item], permutation: Permutation) -> list[Item]:
    return [items[p] for p in permutation]


def tensor_operands(operation: Operation) -> list[SSAValue] | None:
    """The operands of an agnostic operation that share its dimensions; None for others."""
    if isinstance(operation, d.ElementwiseOp):
        return list(operation.operands)
    if isinstance(operation, (d.PadOp, d.SliceOp, d.ReverseOp)):
        return [operation.operands[0]]
    if isinstance(operation, d.ConcatenateOp):
        return list(operation.operands)
    if isinstance(operation, d.ReduceWindowOp):
        return list(operation.inputs)
    return None


_PER_DIMENSION: dict[type[Operation], tuple[str, ...]] = {
    d.PadOp: ("edge_padding_low", "edge_padding_high", "interior_padding"),
    d.SliceOp: ("start_indices", "limit_indices", "strides"),
    d.ReduceWindowOp: (
        "window_dimensions", "window_strides", "base_dilations", "window_dilations",
        "padding_low", "padding_high",
    ),
}  # fmt: skip
_DIMENSION_LISTS: dict[type[Operation], str] = {
    d.ReverseOp: "dimensions",
    d.ConcatenateOp: "dimension",
}


def rebuilt(
    operation: Operation, mapping: Mapping[SSAValue, SSAValue], permutation: Permutation
) -> Operation:
    """An agnostic operation on operands `v'` where `v = transpose(v', permutation)`.

    Takes over the operation's regions: the old one must be erased.
    """
    back = inverse(permutation)
    properties: dict[str, Attribute] = dict(operation.properties)
    for name in _PER_DIMENSION.get(type(operation), ()):
        attribute = properties[name]
        if isinstance(attribute, ExprsAttr):
            properties[name] = exprs_attr(permuted(attribute.exprs, back))
        else:
            values = integer_list(attribute)  # pyright: ignore[reportArgumentType]
            properties[name] = integers(permuted(values, back))
    listed = _DIMENSION_LISTS.get(type(operation))
    if listed is not None:
        values = integer_list(properties[listed])  # pyright: ignore[reportArgumentType]
        properties[listed] = integers([permutation[n] for n in values])
    shared = tensor_operands(operation) or []
    made = type(operation).create(
        operands=[mapping[v] if v in shared else v for v in operation.operands],
        result_types=[
            tensor_type(dtype_of(r), permuted(shape_of(r), back)) for r in operation.results
        ],
        properties=properties,
        regions=[operation.detach_region(r) for r in list(operation.regions)],
    )
    made.location = operation.location
    return made


def weight(shape: Sequence[Expr]) -> int:
    """About how many elements; a named dimension counts as 16. For comparing costs."""
    count = 1
    for size in shape:
        count *= size.evaluate(dict.fromkeys(size.names, 16))
    return max(count, 1)
