"""NonMaxSuppression: boxes that detectors keep, by class, best first.

Each trip of a loop takes the best remaining box of every class at once, and drops the boxes
that overlap it too much; it ends when no class has a box left. What is kept of the trips is
cut to the number of boxes that were taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from headrace.base.dtypes import I64
from headrace.base.symbols import Expr, as_expr, product
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.ops.selection import first_of, true_places
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import shape_of
from headrace.tensor.loops import Stepped, counted_loop


@onnx_op("NonMaxSuppression")
def non_max_suppression(c: NodeContext) -> SSAValue:
    """[count, 3] of batch, class and box, i64; of equal scores the lower box is better.

    A box suppresses those after it in its class whose intersection over union with it is
    above the threshold; boxes without area suppress nothing and stay.
    """
    b = c.build
    batches, classes, boxes = grid = c.shape(1)
    c.dims.same(c.shape(0)[0], batches)
    c.dims.same(c.shape(0)[1], boxes)
    c.dims.same(c.shape(0)[2], as_expr(4))
    scores = c.data(1)
    numbers = b.iota(I64, grid, 2)
    none = b.dimension(boxes)
    corners = _corners(c)
    limit = b.reshape(b.convert(c.data(2), I64), ()) if c.has(2) else b.scalar(0, I64)
    overlap = c.scalar_like(0, scores)
    if c.has(3):
        overlap = b.broadcast_in_dim(b.reshape(c.data(3), ()), (), grid)
    alive = b.compare("EQ", scores, scores)  # NaN is no score
    if c.has(4):
        least = b.broadcast_in_dim(b.reshape(c.data(4), ()), (), grid)
        alive = b.compare("GT", scores, least)

    def step(trip: SSAValue, carried: list[SSAValue]) -> Stepped:
        (alive,) = carried
        lowest = c.scalar_like(-float("inf"), scores)
        masked = b.select(alive, scores, lowest)
        best = c.reduce(masked, -float("inf"), [2], "maximum")
        is_best = b.compare("EQ", masked, b.broadcast_in_dim(best, (0, 1), grid))
        places = b.select(
            b.binary("and", alive, is_best), numbers, b.broadcast_in_dim(none, (), grid)
        )
        taken = b.reduce(places, none, [2], "minimum")[0]
        found = b.compare("LT", taken, b.broadcast_in_dim(none, (), (batches, classes)))
        overlapping = corners.overlap(c, taken, found, overlap, grid)
        itself = b.compare("EQ", numbers, b.broadcast_in_dim(taken, (0, 1), grid))
        dropped = b.binary("or", overlapping, itself)
        left = b.binary("and", alive, b.unary("not", dropped))
        # A row that no trip fills is zeros: boxes are numbered from 1.
        kept = b.select(found, c.with_scalar("add", taken, 1), c.scalar_like(0, taken))
        more = b.compare("LT", b.binary("add", trip, b.scalar(1, I64)), limit)
        return Stepped([left], [kept], b.binary("and", more, _any(c, left)))

    trips = _most_trips(c, boxes)
    wanted = b.compare("GT", limit, b.scalar(0, I64))
    made = counted_loop(
        b, trips, [alive], step, goes_on=b.binary("and", wanted, _any(c, alive))
    )
    total = product((batches, classes, trips))
    taken = b.reshape(b.transpose(made.kept[0], (1, 2, 0)), (total,))
    places, count = true_places(b, b.compare("GT", taken, c.scalar_like(0, taken)))
    size = c.decided_size(count, product((batches, classes, c.dims.minimum(trips, boxes))))
    where = first_of(b, places, size)
    row = c.with_scalar("subtract", b.take(taken, where, 0), 1)
    by_class = _divided(c, where, trips)
    rows = [_divided(c, by_class, classes), _rest(c, by_class, classes), row]
    return b.concatenate([b.reshape(r, (size, 1)) for r in rows], 1)


def _most_trips(c: NodeContext, boxes: Expr) -> Expr:
    """No more than there are boxes, or than a constant allows."""
    known = c.known(2) if c.has(2) else None
    if known is None:
        return boxes
    most = max(1, int(known.reshape(-1)[0]))
    return as_expr(most) if c.dims.at_least(boxes, most) else boxes


def _any(c: NodeContext, mask: SSAValue) -> SSAValue:
    return c.reduce(mask, False, range(len(shape_of(mask))), "or")


def _divided(c: NodeContext, x: SSAValue, size: Expr) -> SSAValue:
    b = c.build
    return b.binary("divide", x, b.broadcast_in_dim(b.dimension(size), (), shape_of(x)))


def _rest(c: NodeContext, x: SSAValue, size: Expr) -> SSAValue:
    b = c.build
    return b.binary("remainder", x, b.broadcast_in_dim(b.dimension(size), (), shape_of(x)))


@dataclass(frozen=True)
class _Boxes:
    """Borders of boxes, each [batches, boxes]: low and high of both dimensions."""

    borders: tuple[SSAValue, SSAValue, SSAValue, SSAValue]
    area: SSAValue

    def overlap(
        self,
        c: NodeContext,
        taken: SSAValue,
        found: SSAValue,
        threshold: SSAValue,
        grid: Sequence[Expr],
    ) -> SSAValue:
        """[batches, classes, boxes] i1: whether a box overlaps the one taken too much."""
        b = c.build
        batches, classes, boxes = grid
        cells = (batches, classes)
        inside = b.select(found, taken, c.scalar_like(0, taken))
        offset = b.binary(
            "multiply",
            b.iota(I64, cells, 0),
            b.broadcast_in_dim(b.dimension(boxes), (), cells),
        )
        index = b.binary("add", offset, inside)

        def one(x: SSAValue) -> SSAValue:
            picked = b.take(b.reshape(x, (product((batches, boxes)),)), index, 0)
            return b.broadcast_in_dim(picked, (0, 1), grid)

        def each(x: SSAValue) -> SSAValue:
            return b.broadcast_in_dim(x, (0, 2), grid)

        sides: list[SSAValue] = []
        for low, high in (self.borders[:2], self.borders[2:]):
            begin = b.binary("maximum", one(low), each(low))
            end = b.binary("minimum", one(high), each(high))
            side = b.binary("subtract", end, begin)
            sides.append(b.binary("maximum", side, c.scalar_like(0, side)))
        common = b.binary("multiply", *sides)
        mine, others = one(self.area), each(self.area)
        union = b.binary("subtract", b.binary("add", mine, others), common)
        zero = c.scalar_like(0, common)
        too_much = b.compare("GT", b.binary("divide", common, union), threshold)
        for positive in (common, mine, others, union):
            too_much = b.binary("and", too_much, b.compare("GT", positive, zero))
        return too_much


def _corners(c: NodeContext) -> _Boxes:
    b, boxes = c.build, c.data(0)
    shape = shape_of(boxes)[:2]
    parts = [b.reshape(c.slice_axis(boxes, 2, n, n + 1), shape) for n in range(4)]
    borders: list[SSAValue] = []
    for n in (0, 1):
        if c.flag("center_point_box"):
            half = c.with_scalar("divide", parts[n + 2], 2)
            borders += [b.binary(o, parts[n], half) for o in ("subtract", "add")]
        else:
            borders += [b.binary(o, parts[n], parts[n + 2]) for o in ("minimum", "maximum")]
    top, bottom, left, right = borders
    height, width = (b.binary("subtract", *p) for p in ((bottom, top), (right, left)))
    return _Boxes((top, bottom, left, right), b.binary("multiply", height, width))
