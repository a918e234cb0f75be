"""Movement that does nothing, and movement of movement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.ir import Operation, SSAValue

from headrace.base.symbols import ONE, ZERO, Expr, as_expr, product
from headrace.ir.types import shape_of
from headrace.tensor import dialect as d
from headrace.tensor.rewrite import (
    RewriteBuilder,
    Rule,
    constant_array,
    has_one_use,
    owner,
)


def integer_list(attribute: d.Integers) -> list[int]:
    """A list-of-integers property."""
    return [int(v) for v in attribute.get_values()]


def _reshape(operation: Operation, builder: RewriteBuilder) -> SSAValue | None:
    op = cast(d.ReshapeOp, operation)
    shape = shape_of(op.result)
    if shape_of(op.operand) == shape:
        return op.operand
    inner = owner(op.operand)
    if isinstance(inner, d.ReshapeOp):
        return builder.standing_for(inner, op).reshape(inner.operand, shape)
    if isinstance(inner, d.BroadcastInDimOp) and not shape_of(inner.operand):
        return builder.standing_for(inner, op).broadcast_in_dim(inner.operand, (), shape)
    if isinstance(inner, d.SliceOp):
        return _reshape_of_slice(op, inner, builder)
    if isinstance(inner, d.TransposeOp):
        return _parted_again(op, inner, builder)
    return None


def _parted_again(
    op: d.ReshapeOp, inner: d.TransposeOp, builder: RewriteBuilder
) -> SSAValue | None:
    """Dimensions joined, transposed and parted as they were: one transpose.

    Exporters join batch and heads around the transpose of keys.
    """
    first = owner(inner.operand)
    if not isinstance(first, d.ReshapeOp):
        return None
    source = shape_of(first.operand)
    rest, groups = list(range(len(source))), list[list[int]]()
    for size in shape_of(first.result):
        group: list[int] = []
        while rest and product(source[n] for n in group) != size:
            group.append(rest.pop(0))
        if product(source[n] for n in group) != size:
            return None
        groups.append(group)
    if not groups or any(source[n] != ONE for n in rest):
        return None
    groups[-1] += rest
    order = [n for place in integer_list(inner.permutation) for n in groups[place]]
    if tuple(source[n] for n in order) != tuple(shape_of(op.result)):
        return None
    return builder.standing_for(first, inner, op).transpose(first.operand, order)


def _reshape_of_slice(
    op: d.ReshapeOp, inner: d.SliceOp, builder: RewriteBuilder
) -> SSAValue | None:
    """A slice whose dimensions are cut is cut first: queries, keys or values of the heads.

    Where borders of the slice are borders of the cut; then the reshape moves nothing and
    the slice is strides for whoever reads it.
    """
    if set(integer_list(inner.strides)) != {1}:
        return None
    rest = list(shape_of(op.result))
    shape: list[Expr] = []
    start: list[Expr] = []
    limit: list[Expr] = []
    for whole, low, high in zip(
        shape_of(inner.operand),
        inner.start_indices.exprs,
        inner.limit_indices.exprs,
        strict=True,
    ):
        size = high - low
        if rest and rest[0] == size:
            del rest[0]
            shape, start, limit = [*shape, whole], [*start, low], [*limit, high]
            continue
        if whole == ONE:
            continue
        parts: list[Expr] = []
        while rest and product(parts) != size:
            parts.append(rest.pop(0))
        step = product(parts[1:])
        if not parts or product(parts) != size or not step.is_constant or step == ZERO:
            return None
        if any(not e.is_constant or e.value % step.value for e in (whole, low, high)):
            return None
        shape += [as_expr(whole.value // step.value), *parts[1:]]
        start += [as_expr(low.value // step.value), *(ZERO for _ in parts[1:])]
        limit += [as_expr(high.value // step.value), *parts[1:]]
    if rest or len(shape) == len(shape_of(inner.operand)):
        return None
    cut = builder.standing_for(inner, op).reshape(inner.operand, shape)
    return builder.slice(cut, start, limit, [1] * len(shape))


def _transpose(operation: Operation, builder: RewriteBuilder) -> SSAValue | None:
    op = cast(d.TransposeOp, operation)
    permutation = integer_list(op.permutation)
    if permutation == list(range(len(permutation))):
        return op.operand
    inner = owner(op.operand)
    if isinstance(inner, d.TransposeOp):
        first = integer_list(inner.permutation)
        composed = [first[p] for p in permutation]
        return builder.standing_for(inner, op).transpose(inner.operand, composed)
    if isinstance(inner, d.BroadcastInDimOp):
        # Result dimension i of the transpose is dimension permutation[i] of the broadcast.
        place = {p: i for i, p in enumerate(permutation)}
        dims = [place[n] for n in integer_list(inner.broadcast_dimensions)]
        return builder.standing_for(inner, op).broadcast_in_dim(
            inner.operand, dims, shape_of(op.result)
        )
    return None


def _broadcast(operation: Operation, builder: RewriteBuilder) -> SSAValue | None:
    op = cast(d.BroadcastInDimOp, operation)
    dims = integer_list(op.broadcast_dimensions)
    source, target = shape_of(op.operand), shape_of(op.result)
    if source == target and dims == list(range(len(dims))):
        return op.operand
    inner = owner(op.operand)
    if isinstance(inner, d.BroadcastInDimOp):
        composed = [dims[n] for n in integer_list(inner.broadcast_dimensions)]
        return builder.standing_for(inner, op).broadcast_in_dim(inner.operand, composed, target)
    if dims != sorted(dims):
        order = sorted(range(len(dims)), key=lambda n: dims[n])
        turned = builder.transpose(op.operand, order)
        return builder.broadcast_in_dim(turned, [dims[n] for n in order], target)
    kept = [n for n, size in enumerate(source) if size != ONE]
    if all(size == ONE for n, size in enumerate(target) if n not in [dims[k] for k in kept]):
        return builder.reshape(op.operand, target)  # nothing is stretched
    if len(kept) == len(source):
        return None
    narrowed = builder.reshape(op.operand, [source[n] for n in kept])
    return builder.broadcast_in_dim(narrowed, [dims[n] for n in kept], target)


def _slice(operation: Operation, builder: RewriteBuilder) -> SSAValue | None:
    op = cast(d.SliceOp, operation)
    start, limit = op.start_indices.exprs, op.limit_indices.exprs
    strides = integer_list(op.strides)
    source = shape_of(op.operand)
    if all(s == ZERO for s in start) and limit == source and set(strides) <= {1}:
        return op.operand
    inner = owner(op.operand)
    if isinstance(inner, d.SliceOp):
        steps = integer_list(inner.strides)
        first = [
            a + s * t for a, s, t in zip(inner.start_indices.exprs, start, steps, strict=True)
        ]
        # The last element taken is start + (count - 1) * stride; its limit is one more.
        shape = shape_of(op.result)
        total = [s * t for s, t in zip(strides, steps, strict=True)]
        last = [
            f + (n - 1) * t + 1 if n != ZERO else f
            for f, n, t in zip(first, shape, total, strict=True)
        ]
        return builder.standing_for(inner, op).slice(inner.operand, first, last, total)
    if isinstance(inner, d.BroadcastInDimOp) and not shape_of(inner.operand):
        return builder.standing_for(inner, op).broadcast_in_dim(
            inner.operand, (), shape_of(op.result)
        )
    if isinstance(inner, d.ConcatenateOp):
        return _slice_of_concatenate(op, inner, builder)
    return None


def _slice_of_concatenate(
    op: d.SliceOp, inner: d.ConcatenateOp, builder: RewriteBuilder
) -> SSAValue | None:
    """A slice that lies within one part of a concatenation is a slice of that part."""
    axis = integer_list(inner.dimension)[0]
    start, limit = list(op.start_indices.exprs), list(op.limit_indices.exprs)
    begin = ZERO
    for part in inner.inputs:
        end = begin + shape_of(part)[axis]
        low, high = start[axis] - begin, end - limit[axis]
        if _not_negative(low) and _not_negative(high):
            start[axis], limit[axis] = low, limit[axis] - begin
            strides = integer_list(op.strides)
            return builder.standing_for(inner, op).slice(part, start, limit, strides)
        begin = end
    return None


def _not_negative(value: Expr) -> bool:
    return value.is_constant and value.value >= 0


def _pad(operation: Operation, builder: RewriteBuilder) -> SSAValue | None:
    op = cast(d.PadOp, operation)
    amounts = [*op.edge_padding_low.exprs, *op.edge_padding_high.exprs]
    if all(a == ZERO for a in amounts) and not any(integer_list(op.interior_padding)):
        return op.operand
    return None


def _reverse(operation: Operation, builder: RewriteBuilder) -> SSAValue | None:
    op = cast(d.ReverseOp, operation)
    shape = shape_of(op.operand)
    dims = [n for n in integer_list(op.dimensions) if shape[n] != ONE]
    if not dims:
        return op.operand
    inner = owner(op.operand)
    if isinstance(inner, d.ReverseOp) and set(integer_list(inner.dimensions)) == set(dims):
        return inner.operand
    return None


def _concatenate(operation: Operation, builder: RewriteBuilder) -> SSAValue | None:
    op = cast(d.ConcatenateOp, operation)
    axis = integer_list(op.dimension)[0]
    parts: list[SSAValue] = []
    nested: list[Operation] = []
    for part in op.inputs:
        inner = owner(part)
        if (
            isinstance(inner, d.ConcatenateOp)
            and integer_list(inner.dimension)[0] == axis
            and has_one_use(part)
        ):
            parts += list(inner.inputs)
            nested.append(inner)
        elif shape_of(part)[axis] != ZERO:
            parts.append(part)
    if len(parts) == len(op.inputs) and not nested and len(parts) > 1:
        return None
    if not parts:
        return op.inputs[0]
    return builder.standing_for(*nested, op).concatenate(parts, axis)


def _constant_starts(values: Sequence[SSAValue]) -> list[int] | None:
    starts = [constant_array(v) for v in values]
    return None if any(s is None for s in starts) else [int(s) for s in starts if s is not None]


def _dynamic_slice(operation: Operation, builder: RewriteBuilder) -> SSAValue | None:
    """At known starts it is a slice."""
    op = cast(d.DynamicSliceOp, operation)
    starts = _constant_starts(op.start_indices)
    source, sizes = shape_of(op.operand), shape_of(op.result)
    if starts is None:
        if source == sizes:
            return op.operand  # clamped to 0
        return None
    room = [extent - size for extent, size in zip(source, sizes, strict=True)]
    if not all(r.is_constant for r in room):
        return None
    first = [as_expr(min(max(s, 0), r.value)) for s, r in zip(starts, room, strict=True)]
    limit = [f + size for f, size in zip(first, sizes, strict=True)]
    return builder.slice(op.operand, first, limit, [1] * len(first))


def _dynamic_update_slice(operation: Operation, builder: RewriteBuilder) -> SSAValue | None:
    op = cast(d.DynamicUpdateSliceOp, operation)
    return op.update if shape_of(op.update) == shape_of(op.operand) else None


RULES: dict[type[Operation], tuple[Rule, ...]] = {
    d.ReshapeOp: (_reshape,),
    d.TransposeOp: (_transpose,),
    d.BroadcastInDimOp: (_broadcast,),
    d.SliceOp: (_slice,),
    d.PadOp: (_pad,),
    d.ReverseOp: (_reverse,),
    d.ConcatenateOp: (_concatenate,),
    d.DynamicSliceOp: (_dynamic_slice,),
    d.DynamicUpdateSliceOp: (_dynamic_update_slice,),
}
