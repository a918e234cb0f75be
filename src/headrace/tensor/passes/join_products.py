"""Joins products of one operand with several weights: queries, keys and values in one.

`x W1 + b1`, `x W2 + b2`, ... become slices of `x [W1 W2 ...] + [b1 b2 ...]`: one product
with more columns, which reads `x` once, in one dispatch. The weights are concatenated
before the model runs (`fold_constants` makes the expression). Only where every result goes
on to be parted into heads: those who read heads read slices as strides, while an
activation behind one of several products is better left to that product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import Block, Operation, SSAValue

from headrace.base.symbols import ZERO, as_expr
from headrace.ir.locations import fused_location
from headrace.ir.model import Model
from headrace.ir.passes import Pass
from headrace.ir.types import dtype_of, shape_of
from headrace.tensor import dialect as d
from headrace.tensor.rewrite import (
    RewriteBuilder,
    functions,
    has_one_use,
    owner,
    replace,
    users,
)
from headrace.tensor.rules.movement import integer_list
from headrace.tensor.sources import is_weight_shared, known_values


@dataclass(frozen=True)
class JoinProducts(Pass):
    """One walk over the products of each block."""

    def run(self, model: Model) -> None:
        for _function, block in functions(model):
            known = known_values(block)
            for members in _groups(block, known):
                _join(members)


@dataclass(frozen=True)
class _Member:
    """A product with the bias behind it, if there is one.

    Attributes:
        dot: `x W`.
        last: the operation whose result is parted into heads: the sum, or `dot`.
        bias: of the columns, rank 1; None for none.
    """

    dot: d.DotGeneralOp
    last: Operation
    bias: SSAValue | None


def _groups(block: Block, known: set[SSAValue]) -> list[list[_Member]]:
    """Products that may be joined, in program order; each group has two or more."""
    found: dict[tuple[object, ...], list[_Member]] = {}
    for operation in block.ops:
        if not isinstance(operation, d.DotGeneralOp):
            continue
        member = _member(operation, known)
        if member is None:
            continue
        key = (
            operation.lhs,
            tuple(integer_list(operation.lhs_contracting_dimensions)),
            tuple(integer_list(operation.rhs_contracting_dimensions)),
            dtype_of(operation.rhs),
            dtype_of(operation.result),
            None if member.bias is None else dtype_of(member.bias),
        )
        found.setdefault(key, []).append(member)
    return [members for members in found.values() if len(members) > 1]


def _member(dot: d.DotGeneralOp, known: set[SSAValue]) -> _Member | None:
    if integer_list(dot.lhs_batching_dimensions) or dot.rhs not in known or dot.lhs in known:
        return None
    contracted = integer_list(dot.rhs_contracting_dimensions)
    if len(contracted) != 1 or len(shape_of(dot.rhs)) != 2 or is_weight_shared(dot.rhs):
        return None
    last: Operation = dot
    bias: SSAValue | None = None
    if has_one_use(dot.result):
        (user,) = users(dot.result)
        if isinstance(user, d.AddOp):
            bias = _bias(user.rhs if user.lhs is dot.result else user.lhs, known)
            last = dot if bias is None else user
    parted = [u for u in users(last.results[0]) if _parts_columns(u)]
    if not parted or len(parted) != last.results[0].uses.get_length():
        return None
    return _Member(dot, last, bias)


def _bias(value: SSAValue, known: set[SSAValue]) -> SSAValue | None:
    """The known vector that is spread along all but the last dimension."""
    spread = owner(value)
    if not isinstance(spread, d.BroadcastInDimOp) or spread.operand not in known:
        return None
    last = len(shape_of(value)) - 1
    along = integer_list(spread.broadcast_dimensions) == [last]
    return (
        spread.operand
        if along and shape_of(spread.operand)[0] == shape_of(value)[last]
        else None
    )


def _parts_columns(operation: Operation) -> bool:
    """A reshape that cuts the last dimension in two or more."""
    if not isinstance(operation, d.ReshapeOp):
        return False
    source, result = shape_of(operation.operand), shape_of(operation.result)
    return len(result) > len(source) and result[: len(source) - 1] == source[:-1]


def _join(members: Sequence[_Member]) -> None:
    first = members[0].dot
    builder = RewriteBuilder(first)
    builder.location = fused_location([op for m in members for op in (m.dot, m.last)])
    (contracted,) = integer_list(first.rhs_contracting_dimensions)
    # Weights and biases may stand behind the first product: they are known, so they move.
    for member in members:
        for value in (member.dot.rhs, member.bias):
            if value is not None:
                _move_before(value, first)
    weight = builder.concatenate([m.dot.rhs for m in members], 1 - contracted)
    value = builder.dot_general(
        first.lhs,
        weight,
        contract=(integer_list(first.lhs_contracting_dimensions), [contracted]),
        dtype=dtype_of(first.result),
    )
    biases = [m.bias for m in members if m.bias is not None]
    if biases:
        shape = shape_of(value)
        joined = builder.concatenate(biases, 0)
        spread = builder.broadcast_in_dim(joined, [len(shape) - 1], shape)
        value = builder.binary("add", value, spread)
    begin = 0
    parts: list[SSAValue] = []
    for member in members:
        shape = shape_of(member.last.results[0])
        end = begin + shape[-1]
        start = [*(ZERO for _ in shape[:-1]), as_expr(begin)]
        parts.append(builder.slice(value, start, [*shape[:-1], end], [1] * len(shape)))
        begin = end
    for member, part in zip(members, parts, strict=True):
        replace(member.last, [part])
        if member.last is not member.dot:
            member.dot.detach()
            member.dot.erase()


def _move_before(value: SSAValue, place: Operation) -> None:
    """Moves what computes a known value, and what that needs, in front of an operation."""
    producer = owner(value)
    if (
        producer is None
        or producer.parent is not place.parent
        or producer.is_before_in_block(place)
    ):
        return
    for operand in producer.operands:
        _move_before(operand, place)
    block = place.parent_block()
    assert block is not None
    producer.detach()
    block.insert_op_before(producer, place)
