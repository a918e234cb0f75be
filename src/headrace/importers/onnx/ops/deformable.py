"""DeformConv: a convolution whose kernel looks at places moved by an input."""

from __future__ import annotations

from xdsl.ir import SSAValue

from headrace.base.symbols import Expr, as_expr
from headrace.base.symbols import product as product_of
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.ops.points import Points, Tap, weighted_sum, working_type
from headrace.importers.onnx.ops.windows import Windows, read_windows
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import dtype_of, shape_of


@onnx_op("DeformConv")
def deform_conv(c: NodeContext) -> SSAValue:
    """Values between elements are linear, beyond the edge zero; then a product by groups."""
    b, x, kernel, offset = c.build, c.data(0), c.data(1), c.data(2)
    kind = dtype_of(x)
    batch, channels, *space = shape_of(x)
    filters, per_group, *extents = shape_of(kernel)
    if not all(e.is_constant for e in extents):
        raise c.unsupported("the kernel's sizes must be constant")
    windows = read_windows(c, space, [e.value for e in extents])
    groups, offset_groups = c.int("group", 1), c.int("offset_group", 1)
    c.dims.same(channels, per_group * groups)
    c.dims.same(channels, channels // offset_groups * offset_groups)
    taps_count = product_of(extents)
    positions = shape_of(offset)[2:]
    wide = working_type(kind)
    rows = batch * offset_groups
    # [batch, groups, taps, dimensions, places...]: batch and groups are one dimension here.
    moved = b.reshape(
        b.convert(offset, wide), (rows, taps_count, as_expr(len(space)), *positions)
    )
    points = Points(c)
    taps: list[list[Tap]] = []
    for n, size in enumerate(space):
        shift = c.slice_axis(moved, 2, n, n + 1)
        shift = b.reshape(shift, (rows, taps_count, *positions))
        place = b.binary("add", shift, _grid(c, windows, n, shift))

        def tap(at: SSAValue, weight: SSAValue | None, size: Expr = size) -> Tap:
            return points.zero_outside(at, weight, size)

        taps.append(points.linear_taps(place, tap))
    parted = b.reshape(x, (rows, channels // offset_groups, *space))
    columns = weighted_sum(c, parted, taps)
    if c.has(4):
        mask = b.reshape(b.convert(c.data(4), wide), (rows, taps_count, *positions))
        kept = [0, *range(2, len(shape_of(columns)))]
        spread = b.broadcast_in_dim(mask, kept, shape_of(columns))
        columns = b.binary("multiply", columns, spread)
    inner = (batch, as_expr(groups), per_group, taps_count, *positions)
    columns = b.reshape(columns, inner)
    weights = b.reshape(
        b.convert(kernel, wide), (groups, filters // groups, per_group, taps_count)
    )
    made = b.dot_general(
        columns, weights, batch=((1,), (0,)), contract=((2, 3), (2, 3))
    )  # [groups, batch, places..., filters / groups]
    rank = len(shape_of(made))
    made = b.transpose(made, (1, 0, rank - 1, *range(2, rank - 1)))
    made = b.convert(b.reshape(made, (batch, filters, *positions)), kind)
    if not c.has(3):
        return made
    return b.binary("add", made, c.along(c.data(3), 1, shape_of(made)))


def _grid(c: NodeContext, w: Windows, n: int, like: SSAValue) -> SSAValue:
    """Where each kernel element stands along dimension n, before it is moved.

    `like` is [rows, taps, places...].
    """
    import numpy as np

    b, kind, shape = c.build, dtype_of(like), shape_of(like)
    steps = np.indices(w.sizes)[n].reshape(-1) * w.dilations[n]
    kernel = b.constant(steps.astype(kind.numpy_dtype))
    start = b.iota(kind, shape, 2 + n)
    start = c.with_scalar("multiply", start, w.strides[n])
    low = b.broadcast_in_dim(c.count([w.low[n]], kind), (), shape)
    start = b.binary("subtract", start, low)
    return b.binary("add", start, b.broadcast_in_dim(kernel, (1,), shape))
