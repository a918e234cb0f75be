"""AffineGrid: the places that GridSample reads for an affine map."""

from __future__ import annotations

from xdsl.ir import SSAValue

from headrace.base.dtypes import I64
from headrace.base.symbols import ONE, Expr
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.ops.points import working_type
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import dtype_of, shape_of


@onnx_op("AffineGrid")
def affine_grid(c: NodeContext) -> SSAValue:
    """[batch, (depth,) height, width, 2 or 3]: theta times every place of the grid.

    ONNX's own function for it loses a batch of one, hence this.
    """
    b, kind = c.build, c.dtype(0)
    theta = b.convert(c.data(0), working_type(kind))
    batch, _, *space = c.sizes(1)
    rows = len(space)
    if rows not in (2, 3):
        raise c.malformed(f"'size' must have 4 or 5 entries, has {rows + 2}")
    c.dims.same(shape_of(theta)[0], batch)
    for axis, size in ((1, rows), (2, rows + 1)):
        c.dims.same(shape_of(theta)[axis], ONE * size)
    shape = (batch, *space)
    # Coordinates run x, y, z: the last dimension is the first.
    places = [_places(c, theta, space, n) for n in reversed(range(rows))]
    results: list[SSAValue] = []
    for row in range(rows):
        total = _entry(c, theta, row, rows, shape)
        for column, place in enumerate(places):
            spread = b.broadcast_in_dim(place, (rows - column,), shape)
            part = b.binary("multiply", _entry(c, theta, row, column, shape), spread)
            total = b.binary("add", total, part)
        results.append(b.reshape(total, (*shape, 1)))
    return b.convert(b.concatenate(results, rows + 1), kind)


def _entry(
    c: NodeContext, theta: SSAValue, row: int, column: int, shape: tuple[Expr, ...]
) -> SSAValue:
    """One number of each batch's matrix, everywhere."""
    found = c.slice_axis(c.slice_axis(theta, 1, row, row + 1), 2, column, column + 1)
    flat = c.build.reshape(found, shape[:1])
    return c.build.broadcast_in_dim(flat, (0,), shape)


def _places(c: NodeContext, like: SSAValue, space: list[Expr], n: int) -> SSAValue:
    """From -1 to 1 along dimension n: element centres, or the corners' with align_corners."""
    b, kind, size = c.build, dtype_of(like), space[n]
    place = b.iota(kind, (size,), 0)
    if c.flag("align_corners"):
        steps = c.dims.maximum(size - 1, 1)
        twice = c.with_scalar("multiply", place, 2)
    else:
        steps = size
        twice = c.with_scalar("add", c.with_scalar("multiply", place, 2), 1)
    count = b.broadcast_in_dim(b.convert(b.dimension(steps, I64), kind), (), (size,))
    return c.with_scalar("subtract", b.binary("divide", twice, count), 1)
