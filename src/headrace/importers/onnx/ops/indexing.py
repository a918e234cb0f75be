"""Slices and gathers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from headrace.base.dtypes import I64
from headrace.base.symbols import Expr, as_expr
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import dtype_of, shape_of

_ONE = as_expr(1)
_HUGE = 1 << 31  # exporters write INT_MAX for "to the end"


@dataclass(frozen=True)
class AxisSlice:
    """A slice along one axis: `start` to before `limit` by `step`, which may be negative.

    With a negative step, `start` and `limit` are those of the reversed axis.
    """

    axis: int
    start: Expr
    limit: Expr
    step: int


def _from_front(c: NodeContext, index: Expr, size: Expr) -> Expr:
    """An index, counted from the front where it is surely negative."""
    if index.is_constant:
        return size + index if index.value < 0 else index
    return size + index if c.dims.at_most(index, -1) else index


def _clamped(c: NodeContext, index: Expr, size: Expr, low: int = 0) -> Expr:
    return c.dims.maximum(c.dims.minimum(index, size), low)


def axis_slice(
    c: NodeContext, axis: int, size: Expr, start: Expr, end: Expr, step: int
) -> AxisSlice:
    """numpy's rules for one axis; but backward from before the front begins at element 0."""
    if step == 0:
        raise c.malformed("a slice has the step 0")
    if step > 0:
        first = _clamped(c, _from_front(c, start, size), size)
        beyond = end.is_constant and end.value >= _HUGE
        last = size if beyond else _clamped(c, _from_front(c, end, size), size)
        return AxisSlice(axis, first, c.dims.maximum(last, first), step)
    # Reversed, the element i stands at size - 1 - i.
    at_end = start.is_constant and start.value >= _HUGE
    top = size - 1
    first = top
    if not at_end:
        first = c.dims.minimum(_from_front(c, start, size), top)
        first = c.dims.maximum(first, c.dims.minimum(top, 0))
    before_front = end.is_constant and end.value <= -_HUGE
    last = as_expr(-1)
    if not before_front:
        last = c.dims.maximum(c.dims.minimum(_from_front(c, end, size), top), -1)
    begin, limit = top - first, top - last
    return AxisSlice(axis, begin, c.dims.maximum(limit, begin), step)


def slice_plan(c: NodeContext, shape: Sequence[Expr]) -> list[AxisSlice]:
    """What a Slice node does, by axis; attributes before opset 10, then inputs."""
    rank = len(shape)
    if c.opset < 10:
        starts = [as_expr(s) for s in c.ints("starts") or []]
        ends = [as_expr(s) for s in c.ints("ends") or []]
        axes = c.ints("axes", range(len(starts))) or []
        steps = [1] * len(starts)
    else:
        starts, ends = c.sizes(1), c.sizes(2)
        axes = c.integers_at(3) if c.has(3) else list(range(len(starts)))
        steps = c.integers_at(4) if c.has(4) else [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise c.malformed("starts, ends, axes and steps differ in length")
    normal = c.normal_axes(axes, rank)
    return [
        axis_slice(c, axis, shape[axis], s, e, step)
        for axis, s, e, step in zip(normal, starts, ends, steps, strict=True)
    ]


@onnx_op("Slice")
def slice_(c: NodeContext) -> SSAValue:
    x = c.data(0)
    shape = shape_of(x)
    plan = slice_plan(c, shape)
    backward = [p.axis for p in plan if p.step < 0]
    if backward:
        x = c.build.reverse(x, backward)
    starts: list[Expr] = [as_expr(0)] * len(shape)
    limits = list(shape)
    steps = [1] * len(shape)
    for p in plan:
        starts[p.axis], limits[p.axis], steps[p.axis] = p.start, p.limit, abs(p.step)
    whole = all(s == as_expr(0) for s in starts) and limits == list(shape)
    if whole and all(s == 1 for s in steps):
        return x
    return c.build.slice(x, starts, limits, steps)


def non_negative(c: NodeContext, indices: SSAValue, size: Expr) -> SSAValue:
    """Indices counted from the front."""
    build = c.build
    kind = dtype_of(indices)
    if kind.kind == "unsigned":
        return indices
    shape = shape_of(indices)
    count = build.broadcast_in_dim(_size_scalar(c, size, indices), (), shape)
    negative = build.compare("LT", indices, c.scalar_like(0, indices))
    return build.select(negative, build.binary("add", indices, count), indices)


def _size_scalar(c: NodeContext, size: Expr, like: SSAValue) -> SSAValue:
    kind = dtype_of(like)
    if size.is_constant:
        return c.build.scalar(size.value, kind)
    return c.build.dimension(size, kind)


def _surely_from_front(c: NodeContext, index: int) -> bool:
    known = c.known(index)
    return known is not None and (known.size == 0 or int(known.min()) >= 0)


@onnx_op("Gather")
def gather(c: NodeContext) -> SSAValue:
    x = c.data(0)
    shape = shape_of(x)
    axis = c.axis("axis", len(shape), 0)
    known = c.value(1).sizes
    if known is not None and known.size == 1:
        index = _from_front(c, known.reshape(-1)[0], shape[axis])
        kept = c.slice_axis(x, axis, index, index + 1)
        target = (*shape[:axis], *c.shape(1), *shape[axis + 1 :])
        return c.build.reshape(kept, target)
    indices = c.data(1)
    if not _surely_from_front(c, 1):
        indices = non_negative(c, indices, shape[axis])
    return c.build.take(x, indices, axis)


@onnx_op("GatherElements")
def gather_elements(c: NodeContext) -> SSAValue:
    """numpy's `take_along_axis`: each index picks along one axis at its own place."""
    x, indices = c.data(0), c.data(1)
    shape = shape_of(x)
    axis = c.axis("axis", len(shape), 0)
    indices = non_negative(c, indices, shape[axis])
    return take_along(c, x, indices, axis)


def take_along(c: NodeContext, x: SSAValue, indices: SSAValue, axis: int) -> SSAValue:
    """result[..., i, ...] = x[..., indices[..., i, ...], ...]; other sizes may be cut."""
    build = c.build
    places = shape_of(indices)
    kind = dtype_of(indices)
    rank = len(places)
    coordinates = [
        build.reshape(indices if n == axis else build.iota(kind, places, n), (*places, _ONE))
        for n in range(rank)
    ]
    vectors = build.concatenate(coordinates, rank)
    return build.gather(
        x,
        vectors,
        offset_dims=[],
        collapsed_slice_dims=list(range(rank)),
        start_index_map=list(range(rank)),
        index_vector_dim=rank,
        slice_sizes=[_ONE] * rank,
    )


@onnx_op("GatherND", domain="com.microsoft")
@onnx_op("GatherND")
def gather_nd(c: NodeContext) -> SSAValue:
    """The last dimension of `indices` holds positions in the dimensions after the batch."""
    build = c.build
    x, indices = c.data(0), build.convert(c.data(1), I64)
    shape, places = shape_of(x), shape_of(indices)
    batch = c.int("batch_dims", 0)
    width = places[-1].value
    for n in range(batch):
        c.dims.same(shape[n], places[n])
    sizes = shape[batch : batch + width]
    limit = (
        build.concatenate(
            [build.reshape(_size_scalar(c, size, indices), (_ONE,)) for size in sizes],
            0,
        )
        if width
        else None
    )
    if limit is not None:
        negative = build.compare("LT", indices, c.scalar_like(0, indices))
        moved = c.binary("add", indices, limit)
        indices = build.select(negative, moved, indices)
    rank = len(places) - 1
    picked = range(batch, batch + width)
    rest = shape[batch + width :]
    return build.gather(
        x,
        indices,
        offset_dims=[rank + n for n in range(len(rest))],
        collapsed_slice_dims=list(picked),
        operand_batching_dims=list(range(batch)),
        start_indices_batching_dims=list(range(batch)),
        start_index_map=list(picked),
        index_vector_dim=rank,
        slice_sizes=[*[_ONE] * (batch + width), *rest],
    )
