"""Regions of interest: RoiAlign and MaxRoiPool."""

from __future__ import annotations

from xdsl.ir import SSAValue

from headrace.base.dtypes import I64
from headrace.base.symbols import Expr, as_expr
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.ops.points import (
    Points,
    Tap,
    one_corner,
    weighted_sum,
    working_type,
)
from headrace.importers.onnx.ops.pooling import lowest
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import dtype_of, shape_of


@onnx_op("RoiAlign")
def roi_align(c: NodeContext) -> SSAValue:
    """Each bin of a region is the mean (or maximum) of a grid of points between elements.

    `max` takes the largest of the weighted elements about the points, as ONNX defines it.
    """
    b, x = c.build, c.data(0)
    samples = c.int("sampling_ratio")
    if samples <= 0:
        raise c.unsupported(
            "a sampling_ratio of 0 takes as many points as a region is large",
            "export with a sampling_ratio",
        )
    bins = (c.int("output_height", 1), c.int("output_width", 1))
    rois = b.convert(c.data(1), working_type(c.dtype(1)))
    batch = b.convert(c.data(2), I64)
    c.dims.same(shape_of(rois)[1], as_expr(4))
    c.dims.same(shape_of(rois)[0], shape_of(batch)[0])
    regions = shape_of(rois)[0]
    space = shape_of(x)[2:]
    points = _Regions(c, bins, samples)
    # [regions, bins, samples] of each dimension, then both: [regions, h, sh, w, sw].
    full = (regions, *(as_expr(s) for n in bins for s in (n, samples)))
    taps: list[list[Tap]] = []
    for n, size in enumerate(space):
        start, end = (c.slice_axis(rois, 1, at, at + 1) for at in (1 - n, 3 - n))
        place = points.places(start, end, n)
        spread = b.broadcast_in_dim(place, (0, 1 + 2 * n, 2 + 2 * n), full)
        taps.append(points.edge_taps(spread, size))
    if c.string("mode", "avg") == "avg":
        made = weighted_sum(c, x, taps, batch)
        made = c.mean(made, [3, 5], keep=False)
    else:
        corners = [one_corner(c, x, (i, j), batch) for i in taps[0] for j in taps[1]]
        made = corners[0]
        for corner in corners[1:]:
            made = b.binary("maximum", made, corner)
        made = c.reduce(made, lowest(dtype_of(made)), [3, 5], "maximum")
    return b.convert(made, dtype_of(x))


class _Regions(Points):
    """Points of the bins of regions."""

    def __init__(self, c: NodeContext, bins: tuple[int, int], samples: int) -> None:
        super().__init__(c)
        default = "half_pixel" if c.opset >= 16 else "output_half_pixel"
        self.half_pixel = c.string("coordinate_transformation_mode", default) == "half_pixel"
        self.scale = c.float("spatial_scale", 1.0)
        self.bins = bins
        self.samples = samples

    def places(self, start: SSAValue, end: SSAValue, n: int) -> SSAValue:
        """[regions, bins, samples] of the dimension n for starts and ends [regions, 1]."""
        c, b = self.c, self.build
        kind, regions = dtype_of(start), shape_of(start)[0]
        first, last = (
            c.with_scalar("subtract", c.with_scalar("multiply", v, self.scale), 0.5)
            if self.half_pixel
            else c.with_scalar("multiply", v, self.scale)
            for v in (start, end)
        )
        length = b.binary("subtract", last, first)
        if not self.half_pixel:  # a region is at least one element
            length = b.binary("maximum", length, c.scalar_like(1, length))
        size = c.with_scalar("divide", length, self.bins[n])
        shape = (regions, as_expr(self.bins[n]), as_expr(self.samples))
        first, size = (
            b.broadcast_in_dim(b.reshape(v, (regions,)), (0,), shape) for v in (first, size)
        )
        bin_start = b.binary("multiply", b.iota(kind, shape, 1), size)
        sample = c.with_scalar("add", b.iota(kind, shape, 2), 0.5)
        inside = c.with_scalar("divide", b.binary("multiply", sample, size), self.samples)
        return b.binary("add", b.binary("add", first, bin_start), inside)

    def edge_taps(self, place: SSAValue, size: Expr) -> list[Tap]:
        """Up to one element beyond the edge a point has the edge's value, then none."""
        c, b = self.c, self.build
        near = b.binary(
            "and",
            b.compare("GE", place, c.scalar_like(-1, place)),
            b.compare("LE", place, self.size(size, place)),
        )
        seen = self.as_factor(near, dtype_of(place))

        def tap(at: SSAValue, weight: SSAValue | None) -> Tap:
            assert weight is not None
            return Tap(self.index(self.clamped(at, size)), b.binary("multiply", weight, seen))

        return self.linear_taps(self.clamped(place, size), tap)


@onnx_op("MaxRoiPool")
def max_roi_pool(c: NodeContext) -> SSAValue:
    """The largest element of each bin; bins have whole borders and may be empty (0)."""
    b, x, rois = c.build, c.data(0), c.data(1)
    kind = dtype_of(x)
    bins = c.ints("pooled_shape") or []
    if len(bins) != 2 or min(bins) < 1:
        raise c.malformed("'pooled_shape' must have two positive entries")
    regions = shape_of(rois)[0]
    c.dims.same(shape_of(rois)[1], as_expr(5))
    column = [c.slice_axis(rois, 1, n, n + 1) for n in range(5)]
    batch = b.convert(b.reshape(column[0], (regions,)), I64)
    made = b.take(x, batch, 0)  # [regions, channels, height, width]
    for n in (0, 1):
        axis = 2 + n
        size = shape_of(made)[axis]
        first, end = _bin_borders(c, column[2 - n], column[4 - n], bins[n], size)
        shape = list(shape_of(made))
        wide = [*shape[:axis], as_expr(bins[n]), *shape[axis:]]
        kept = [m if m < axis else m + 1 for m in range(len(shape))]
        spread = b.broadcast_in_dim(made, kept, wide)
        at = b.iota(kind, wide, axis + 1)
        low, high = (b.broadcast_in_dim(v, (0, axis), wide) for v in (first, end))
        inside = b.binary("and", b.compare("GE", at, low), b.compare("LT", at, high))
        start = lowest(kind)
        made = c.reduce(
            b.select(inside, spread, c.scalar_like(start, spread)),
            start,
            [axis + 1],
            "maximum",
        )
    empty = b.compare("EQ", made, c.scalar_like(lowest(kind), made))
    return b.select(empty, c.scalar_like(0, made), made)


def _bin_borders(
    c: NodeContext, start: SSAValue, end: SSAValue, bins: int, size: Expr
) -> tuple[SSAValue, SSAValue]:
    """[regions, bins]: the first element of each bin and the one behind its last."""
    b, kind = c.build, dtype_of(start)
    scale = c.float("spatial_scale", 1.0)
    first, last = (
        b.unary("round_nearest_afz", c.with_scalar("multiply", v, scale)) for v in (start, end)
    )
    length = c.with_scalar("add", b.binary("subtract", last, first), 1)
    length = b.binary("maximum", length, c.scalar_like(1, length))
    shape = (shape_of(start)[0], as_expr(bins))
    step = b.broadcast_to(c.with_scalar("divide", length, bins), shape)
    index, first = b.iota(kind, shape, 1), b.broadcast_to(first, shape)
    behind = c.with_scalar("add", index, 1)
    begin = b.unary("floor", b.binary("multiply", index, step))
    finish = b.unary("ceil", b.binary("multiply", behind, step))
    most = b.broadcast_in_dim(c.count([size], kind), (), shape)
    zero = c.scalar_like(0, begin)
    low = b.clamp(zero, b.binary("add", begin, first), most)
    return low, b.clamp(zero, b.binary("add", finish, first), most)
