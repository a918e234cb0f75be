"""Transposes taken in by the operations that can: reductions and products."""

from __future__ import annotations

from typing import cast

from xdsl.ir import Operation, SSAValue

from headrace.ir.types import dtype_of, shape_of, tensor_type
from headrace.tensor import dialect as d
from headrace.tensor.build import integers
from headrace.tensor.permutations import Permutation, moves_nothing
from headrace.tensor.rewrite import RewriteBuilder, Rule, has_one_use, owner
from headrace.tensor.rules.movement import integer_list


def reduced_permutation(
    permutation: Permutation, dimensions: list[int]
) -> tuple[list[int], Permutation]:
    """For a reduction of `transpose(x, permutation)` over `dimensions`: the dimensions of
    `x`, and the permutation left to do on the result."""
    inner = sorted(permutation[n] for n in dimensions)
    kept = [p for n, p in enumerate(permutation) if n not in dimensions]
    order = sorted(kept)
    return inner, tuple(order.index(p) for p in kept)


def _reduce(operation: Operation, builder: RewriteBuilder) -> SSAValue | None:
    op = cast(d.ReduceOp, operation)
    if len(op.inputs) != 1:
        return None
    turned = owner(op.inputs[0])
    if not isinstance(turned, d.TransposeOp):
        return None
    permutation = tuple(integer_list(turned.permutation))
    inner, rest = reduced_permutation(permutation, integer_list(op.dimensions))
    if rest != tuple(sorted(rest)) and not has_one_use(turned.result):
        return None  # the transpose would stay, and another come
    source = shape_of(turned.operand)
    kept = [s for n, s in enumerate(source) if n not in inner]
    made = d.ReduceOp.create(
        operands=[turned.operand, *op.init_values],
        result_types=[tensor_type(dtype_of(turned.operand), kept)],
        properties={**op.properties, "dimensions": integers(inner)},
        regions=[op.body.clone()],
    )
    builder.standing_for(turned, op).insert(made)
    made.location = builder.location
    return builder.transpose(made.results[0], rest)


def absorbed(
    permutation: Permutation, batch: list[int], contract: list[int]
) -> tuple[list[int], list[int]] | None:
    """Batch and contracting dimensions of `x` for a product of `transpose(x, ...)`.

    None where the free dimensions would come in another order.
    """
    used = {*batch, *contract}
    free = [p for n, p in enumerate(permutation) if n not in used]
    if free != sorted(free):
        return None
    return [permutation[n] for n in batch], [permutation[n] for n in contract]


def _dot_general(operation: Operation, builder: RewriteBuilder) -> SSAValue | None:
    op = cast(d.DotGeneralOp, operation)
    operands = [op.lhs, op.rhs]
    batch = [
        integer_list(op.lhs_batching_dimensions),
        integer_list(op.rhs_batching_dimensions),
    ]
    contract = [
        integer_list(op.lhs_contracting_dimensions),
        integer_list(op.rhs_contracting_dimensions),
    ]
    fused: list[Operation] = []
    for side, value in enumerate(operands):
        turned = owner(value)
        if not isinstance(turned, d.TransposeOp):
            continue
        permutation = tuple(integer_list(turned.permutation))
        found = absorbed(permutation, batch[side], contract[side])
        if found is not None:
            batch[side], contract[side] = found
            operands[side] = turned.operand
            fused.append(turned)
    if not fused:
        return None
    return builder.standing_for(*fused, op).dot_general(
        operands[0],
        operands[1],
        batch=(batch[0], batch[1]),
        contract=(contract[0], contract[1]),
        dtype=dtype_of(op.result),
    )


def _as_reshape(operation: Operation, builder: RewriteBuilder) -> SSAValue | None:
    """A transpose that moves dimensions of size 1 only is a reshape."""
    op = cast(d.TransposeOp, operation)
    if not moves_nothing(tuple(integer_list(op.permutation)), shape_of(op.operand)):
        return None
    return builder.reshape(op.operand, shape_of(op.result))


RULES: dict[type[Operation], tuple[Rule, ...]] = {
    d.ReduceOp: (_reduce,),
    d.DotGeneralOp: (_dot_general,),
}

CLEANUP: dict[type[Operation], tuple[Rule, ...]] = {d.TransposeOp: (_as_reshape,)}
"""For when no transpose moves any more: a reshape no longer meets its inverse."""
