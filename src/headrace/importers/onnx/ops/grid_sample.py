"""GridSample: a tensor at the points of a grid, in 1, 2 or 3 and more dimensions."""

from __future__ import annotations

from xdsl.ir import SSAValue

from headrace.base.symbols import Expr, as_expr
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.ops.points import Points, Tap, weighted_sum, working_type
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import dtype_of, shape_of

_MODES = {"bilinear": "linear", "bicubic": "cubic"}  # spelled so before opset 20


@onnx_op("GridSample", domain="com.microsoft")
@onnx_op("GridSample")
def grid_sample(c: NodeContext) -> SSAValue:
    """Coordinates run from -1 to 1 over the corners' centres (`align_corners`) or edges.

    The last dimension of the grid names the last spatial dimension first.
    """
    x, grid, b = c.data(0), c.data(1), c.build
    mode = c.string("mode", "linear")
    mode = _MODES.get(mode, mode)
    if mode not in ("linear", "nearest", "cubic"):
        raise c.malformed(f"mode '{mode}' is unknown")
    sampler = _Sampler(c)
    space, rank = shape_of(x)[2:], len(shape_of(grid)) - 1
    c.dims.same(shape_of(x)[0], shape_of(grid)[0])
    c.dims.same(shape_of(grid)[-1], as_expr(len(space)))
    grid = b.convert(grid, working_type(dtype_of(grid)))
    taps: list[list[Tap]] = []
    for n, size in enumerate(space):
        column = len(space) - 1 - n
        place = c.slice_axis(grid, rank, column, column + 1)
        place = b.reshape(place, shape_of(grid)[:-1])
        taps.append(sampler.taps(sampler.place(place, size), size, mode))
    return b.convert(weighted_sum(c, x, taps), dtype_of(x))


class _Sampler(Points):
    """What lies beyond the edge: nothing, the edge, or the mirrored tensor."""

    def __init__(self, c: NodeContext) -> None:
        super().__init__(c)
        self.by_centres = c.flag("align_corners")
        self.padding = c.string("padding_mode", "zeros")
        if self.padding not in ("zeros", "border", "reflection"):
            raise c.malformed(f"padding_mode '{self.padding}' is unknown")

    def place(self, normal: SSAValue, size: Expr) -> SSAValue:
        """-1..1 as a place among the elements, 0 the first."""
        c, b = self.c, self.build
        shifted = c.with_scalar("add", normal, 1)
        if self.by_centres:
            halves = c.with_scalar("divide", shifted, 2)
            return b.binary("multiply", halves, self.last(size, normal))
        wide = b.binary("multiply", shifted, self.size(size, normal))
        return c.with_scalar("divide", c.with_scalar("subtract", wide, 1), 2)

    def taps(self, place: SSAValue, size: Expr, mode: str) -> list[Tap]:
        def tap(at: SSAValue, weight: SSAValue | None) -> Tap:
            return self.tap(at, weight, size)

        if mode == "cubic":  # each of its elements is moved inside, not the point
            return self.cubic_taps(place, tap)
        if mode == "linear":
            return self.linear_taps(self.bounded(place, size), tap)
        nearest = self.build.unary("round_nearest_even", place)
        return [tap(self.bounded(nearest, size), None)]

    def bounded(self, place: SSAValue, size: Expr) -> SSAValue:
        """A point beyond the borders moved inside, as the padding says."""
        if self.padding == "border":
            return self.clamped(place, size)
        return self.reflected(place, size) if self.padding == "reflection" else place

    def tap(self, at: SSAValue, weight: SSAValue | None, size: Expr) -> Tap:
        if self.padding == "zeros":
            return self.zero_outside(at, weight, size)
        if self.padding == "reflection":
            at = self.reflected(at, size)
        return Tap(self.index(self.clamped(at, size)), weight)

    def reflected(self, x: SSAValue, size: Expr) -> SSAValue:
        """Mirrored at the borders until it lies between them: a triangular wave."""
        c, b = self.c, self.build
        low = 0.0 if self.by_centres else -0.5
        reach = self.last(size, x) if self.by_centres else self.size(size, x)
        reach = b.binary("maximum", reach, c.scalar_like(1, x))  # one element: any wave
        far = b.unary("abs", c.with_scalar("subtract", x, low))
        turn = b.binary("remainder", far, c.with_scalar("multiply", reach, 2))
        over = b.unary("abs", b.binary("subtract", turn, reach))
        return c.with_scalar("add", b.binary("subtract", reach, over), low)
