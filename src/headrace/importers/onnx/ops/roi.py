"""Regions of interest: RoiAlign and MaxRoiPool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
from headrace.tensor.loops import Stepped, counted_loop


@onnx_op("RoiAlign")
def roi_align(c: NodeContext) -> SSAValue:
    """Each bin of a region is the mean (or maximum) of a grid of points between elements.

    `max` takes the largest of the weighted elements about the points, as ONNX defines it.
    """
    b, x = c.build, c.data(0)
    samples = max(0, c.int("sampling_ratio"))
    bins = (c.int("output_height", 1), c.int("output_width", 1))
    rois = b.convert(c.data(1), working_type(c.dtype(1)))
    batch = b.convert(c.data(2), I64)
    c.dims.same(shape_of(rois)[1], as_expr(4))
    c.dims.same(shape_of(rois)[0], shape_of(batch)[0])
    regions = _Regions(c, bins)
    sides: list[_Side] = []
    for n in (0, 1):
        start, end = (c.slice_axis(rois, 1, at, at + 1) for at in (1 - n, 3 - n))
        sides.append(regions.side(start, end, n))
    if samples:
        made = _with_samples(c, x, batch, regions, sides, samples)
    else:
        made = _as_many_as_elements(c, x, batch, regions, sides)
    return b.convert(made, dtype_of(x))


def _with_samples(
    c: NodeContext,
    x: SSAValue,
    batch: SSAValue,
    regions: _Regions,
    sides: Sequence[_Side],
    samples: int,
) -> SSAValue:
    """[regions, channels, h, w] of the same number of points in every bin."""
    b = c.build
    count = shape_of(batch)[0]
    # [regions, bins, samples] of each dimension, then both: [regions, h, sh, w, sw].
    full = (count, *(as_expr(s) for side in sides for s in (side.bins, samples)))
    taps: list[list[Tap]] = []
    for n, side in enumerate(sides):
        shape = (count, as_expr(side.bins), as_expr(samples))
        number = b.iota(dtype_of(side.first), shape, 2)
        place = side.places(c, number, c.scalar_like(samples, number))
        spread = b.broadcast_in_dim(place, (0, 1 + 2 * n, 2 + 2 * n), full)
        taps.append(regions.edge_taps(spread, shape_of(x)[2 + n]))
    if c.string("mode", "avg") == "avg":
        return c.mean(weighted_sum(c, x, taps, batch), [3, 5], keep=False)
    made = _largest_corner(c, x, taps, batch)
    return c.reduce(made, lowest(dtype_of(made)), [3, 5], "maximum")


def _as_many_as_elements(
    c: NodeContext,
    x: SSAValue,
    batch: SSAValue,
    regions: _Regions,
    sides: Sequence[_Side],
) -> SSAValue:
    """[regions, channels, h, w] of a point for each element that a bin spans, rounded up.

    A loop takes one point of every bin each trip, as many as the largest region has; the
    bins of smaller ones leave out what they have not.
    """
    b, mean = c.build, c.string("mode", "avg") == "avg"
    count, kind = shape_of(batch)[0], dtype_of(sides[0].first)
    grid = (count, *(as_expr(side.bins) for side in sides))
    shape = (count, shape_of(x)[1], *grid[1:])
    zero = b.splat(0, kind, (count,))
    points = [b.binary("maximum", b.unary("ceil", side.size), zero) for side in sides]
    most = [b.convert(c.reduce(p, 0, [0], "maximum"), I64) for p in points]

    def step(trip: SSAValue, carried: list[SSAValue]) -> Stepped:
        (total,) = carried
        numbers = [b.binary(o, trip, most[1]) for o in ("divide", "remainder")]
        taps: list[list[Tap]] = []
        inside: SSAValue | None = None
        for n, (side, number) in enumerate(zip(sides, numbers, strict=True)):
            at = b.broadcast_in_dim(b.convert(number, kind), (), (count, as_expr(side.bins)))
            limit = b.broadcast_in_dim(points[n], (0,), shape_of(at))
            spread = b.broadcast_in_dim(side.places(c, at, limit), (0, 1 + n), grid)
            taps.append(regions.edge_taps(spread, shape_of(x)[2 + n]))
            below = b.broadcast_in_dim(b.compare("LT", at, limit), (0, 1 + n), grid)
            inside = below if inside is None else b.binary("and", inside, below)
        assert inside is not None
        found = weighted_sum(c, x, taps, batch) if mean else _largest_corner(c, x, taps, batch)
        joined = b.binary("add" if mean else "maximum", total, b.convert(found, kind))
        return Stepped([b.select(b.broadcast_in_dim(inside, (0, 2, 3), shape), joined, total)])

    start = b.splat(0 if mean else lowest(kind), kind, shape)
    trips = b.binary("multiply", *most)
    (total,) = counted_loop(b, trips, [start], step).carried
    number = b.broadcast_in_dim(b.binary("multiply", *points), (0,), shape)
    if mean:
        return b.binary("divide", total, b.binary("maximum", number, c.scalar_like(1, number)))
    empty = b.compare("EQ", number, c.scalar_like(0, number))
    return b.select(empty, c.scalar_like(0, total), total)


def _largest_corner(
    c: NodeContext, x: SSAValue, taps: Sequence[Sequence[Tap]], batch: SSAValue
) -> SSAValue:
    corners = [one_corner(c, x, (i, j), batch) for i in taps[0] for j in taps[1]]
    made = corners[0]
    for corner in corners[1:]:
        made = c.build.binary("maximum", made, corner)
    return made


@dataclass(frozen=True)
class _Side:
    """One dimension of every region: where it begins and how large a bin is, [regions]."""

    first: SSAValue
    size: SSAValue
    bins: int

    def places(self, c: NodeContext, number: SSAValue, count: SSAValue) -> SSAValue:
        """Where points stand, of `count` in a bin those of `number`: [regions, bins, ...]."""
        b, shape = c.build, shape_of(number)
        first, size = (b.broadcast_in_dim(v, (0,), shape) for v in (self.first, self.size))
        bin_start = b.binary("multiply", b.iota(dtype_of(number), shape, 1), size)
        sample = b.binary("multiply", c.with_scalar("add", number, 0.5), size)
        inside = b.binary("divide", sample, count)
        return b.binary("add", b.binary("add", first, bin_start), inside)


class _Regions(Points):
    """Points of the bins of regions."""

    def __init__(self, c: NodeContext, bins: tuple[int, int]) -> None:
        super().__init__(c)
        default = "half_pixel" if c.opset >= 16 else "output_half_pixel"
        self.half_pixel = c.string("coordinate_transformation_mode", default) == "half_pixel"
        self.scale = c.float("spatial_scale", 1.0)
        self.bins = bins

    def side(self, start: SSAValue, end: SSAValue, n: int) -> _Side:
        """Dimension n of regions that start and end there, [regions, 1]."""
        c, b = self.c, self.build
        count = shape_of(start)[:1]
        first, last = (
            c.with_scalar("subtract", c.with_scalar("multiply", v, self.scale), 0.5)
            if self.half_pixel
            else c.with_scalar("multiply", v, self.scale)
            for v in (b.reshape(start, count), b.reshape(end, count))
        )
        length = b.binary("subtract", last, first)
        if not self.half_pixel:  # a region is at least one element
            length = b.binary("maximum", length, c.scalar_like(1, length))
        return _Side(first, c.with_scalar("divide", length, self.bins[n]), self.bins[n])

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
