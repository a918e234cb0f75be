"""Operations that move elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.base.symbols import Expr, as_expr
from headrace.importers.hlo.helpers import (
    result_type,
    spread,
)
from headrace.importers.hlo.registry import Value, converter, integers_of
from headrace.importers.hlo.tree import HloOperation
from headrace.ir.types import shape_of

if TYPE_CHECKING:
    from headrace.importers.hlo.convert import FunctionConverter


@converter("broadcast_in_dim")
def _broadcast_in_dim(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    operand = at.operand(operation, 0)
    given = operation.attributes.get("broadcast_dimensions")
    kind = result_type(operation)
    rank = len(shape_of(operand))
    if given is None:
        # 2019 text leaves the attribute out for scalars and for equal leading shapes.
        dims = list(range(len(kind.shape) - rank, len(kind.shape)))
    else:
        dims = integers_of(given)
    return [at.builder.broadcast_in_dim(operand, dims, kind.shape)]


@converter("broadcast")
def _broadcast(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    operand = at.operand(operation, 0)
    sizes = integers_of(operation.attributes["broadcast_sizes"])
    shape = [*sizes, *shape_of(operand)]
    return [at.builder.broadcast_to(operand, shape)]


@converter("reshape")
def _reshape(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    return [at.builder.reshape(at.operand(operation, 0), result_type(operation).shape)]


@converter("transpose")
def _transpose(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    permutation = integers_of(operation.attributes["permutation"])
    return [at.builder.transpose(at.operand(operation, 0), permutation)]


@converter("slice")
def _slice(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    a = operation.attributes
    operand = at.operand(operation, 0)
    rank = len(shape_of(operand))
    return [
        at.builder.slice(
            operand,
            spread(a["start_indices"], rank),
            spread(a["limit_indices"], rank),
            spread(a.get("strides"), rank),
        )
    ]


@converter("dynamic_slice")
def _dynamic_slice(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    operand, *start = at.operands(operation)
    return [
        at.builder.dynamic_slice(
            operand, start, integers_of(operation.attributes["slice_sizes"])
        )
    ]


@converter("dynamic_update_slice")
def _dynamic_update_slice(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    operand, update, *start = at.operands(operation)
    return [at.builder.dynamic_update_slice(operand, update, start)]


@converter("pad")
def _pad(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    a = operation.attributes
    operand, value = at.operands(operation)
    rank = len(shape_of(operand))
    return [
        at.builder.pad(
            operand,
            value,
            spread(a["edge_padding_low"], rank, 0),
            spread(a["edge_padding_high"], rank, 0),
            spread(a.get("interior_padding"), rank, 0),
        )
    ]


@converter("concatenate")
def _concatenate(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    dimension = integers_of(operation.attributes["dimension"])[0]
    return [at.builder.concatenate(at.operands(operation), dimension)]


@converter("reverse")
def _reverse(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    return [
        at.builder.reverse(
            at.operand(operation, 0), integers_of(operation.attributes["dimensions"])
        )
    ]


def _slice_sizes(value: Any) -> list[Expr]:
    """Of an attribute, or sizes that data gave."""
    if isinstance(value, list) and any(isinstance(size, Expr) for size in value):
        return [as_expr(size) for size in value]
    return [as_expr(size) for size in integers_of(value)]


@converter("gather")
def _gather(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    numbers = {**operation.attributes, **operation.attributes.get("dimension_numbers", {})}
    operand, indices = at.operands(operation)
    return [
        at.builder.gather(
            operand,
            indices,
            offset_dims=integers_of(numbers.get("offset_dims", [])),
            collapsed_slice_dims=integers_of(numbers.get("collapsed_slice_dims", [])),
            start_index_map=integers_of(numbers["start_index_map"]),
            index_vector_dim=integers_of(numbers["index_vector_dim"])[0],
            slice_sizes=_slice_sizes(numbers["slice_sizes"]),
            operand_batching_dims=integers_of(numbers.get("operand_batching_dims", [])),
            start_indices_batching_dims=integers_of(
                numbers.get("start_indices_batching_dims", [])
            ),
        )
    ]
