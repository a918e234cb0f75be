"""Values of a tensor at points between its elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

from xdsl.ir import SSAValue

from headrace.base.dtypes import F32, I64, DType
from headrace.base.symbols import Expr, as_expr
from headrace.base.symbols import product as product_of
from headrace.importers.onnx.context import NodeContext
from headrace.ir.types import dtype_of, shape_of

CUBIC = -0.75
"""The free coefficient of the cubic kernel, that of GridSample."""


def working_type(kind: DType) -> DType:
    """The type that coordinates and weights are computed in."""
    return kind if kind.is_float and kind.bits >= 32 else F32


@dataclass(frozen=True)
class Tap:
    """One element beside a point along one dimension, for every point.

    Attributes:
        index: i64, inside the dimension.
        weight: what it counts; None for 1.
    """

    index: SSAValue
    weight: SSAValue | None


class Points:
    """Arithmetic on coordinates along dimensions whose sizes may be symbolic."""

    def __init__(self, c: NodeContext) -> None:
        self.c = c
        self.build = c.build

    def size(self, size: Expr, like: SSAValue) -> SSAValue:
        """A size, as the type and in the shape of `like`."""
        return self.build.broadcast_in_dim(
            self.c.count([size], dtype_of(like)), (), shape_of(like)
        )

    def last(self, size: Expr, like: SSAValue) -> SSAValue:
        return self.c.with_scalar("subtract", self.size(size, like), 1)

    def clamped(self, x: SSAValue, size: Expr) -> SSAValue:
        """At least 0 and less than the size."""
        return self.build.clamp(self.c.scalar_like(0, x), x, self.last(size, x))

    def is_inside(self, x: SSAValue, size: Expr) -> SSAValue:
        """Whether 0 <= x < size."""
        b = self.build
        first = b.compare("GE", x, self.c.scalar_like(0, x))
        return b.binary("and", first, b.compare("LT", x, self.size(size, x)))

    def as_factor(self, holds: SSAValue, kind: DType) -> SSAValue:
        return self.build.convert(holds, kind)

    def split(self, x: SSAValue) -> tuple[SSAValue, SSAValue]:
        """The element before each point, and how far behind it the point lies."""
        floor = self.build.unary("floor", x)
        return floor, self.build.binary("subtract", x, floor)

    def zero_outside(self, place: SSAValue, weight: SSAValue | None, size: Expr) -> Tap:
        """The element at `place`, or nothing where there is none."""
        inside = self.as_factor(self.is_inside(place, size), dtype_of(place))
        if weight is not None:
            inside = self.build.binary("multiply", weight, inside)
        return Tap(self.index(self.clamped(place, size)), inside)

    def index(self, place: SSAValue) -> SSAValue:
        return self.build.convert(place, I64)

    def linear_taps(
        self, x: SSAValue, tap: Callable[[SSAValue, SSAValue | None], Tap]
    ) -> list[Tap]:
        """The two elements about each point; `tap` says what one beyond the edge is."""
        floor, behind = self.split(x)
        before = self.build.binary("subtract", self.c.scalar_like(1, behind), behind)
        return [tap(floor, before), tap(self.c.with_scalar("add", floor, 1), behind)]

    def cubic_taps(
        self, x: SSAValue, tap: Callable[[SSAValue, SSAValue | None], Tap]
    ) -> list[Tap]:
        """The four elements about each point."""
        floor, behind = self.split(x)
        near = (CUBIC + 2, -(CUBIC + 3), 0.0, 1.0)
        far = (CUBIC, -5 * CUBIC, 8 * CUBIC, -4 * CUBIC)
        taps: list[Tap] = []
        for offset, kernel in ((-1, far), (0, near), (1, near), (2, far)):
            distance = self.build.unary("abs", self.c.with_scalar("subtract", behind, offset))
            weight = self._polynomial(distance, kernel)
            taps.append(tap(self.c.with_scalar("add", floor, offset), weight))
        return taps

    def _polynomial(self, x: SSAValue, coefficients: Sequence[float]) -> SSAValue:
        total = self.c.scalar_like(coefficients[0], x)
        for coefficient in coefficients[1:]:
            total = self.build.binary("multiply", total, x)
            total = self.c.with_scalar("add", total, coefficient)
        return total


def weighted_sum(
    c: NodeContext,
    x: SSAValue,
    taps: Sequence[Sequence[Tap]],
    batch: SSAValue | None = None,
) -> SSAValue:
    """The sum over every combination of taps of elements times their weights.

    Args:
        x: [N, C, space...].
        taps: one list a spatial dimension; indices and weights of shape [N, P...].
        batch: i64 [R], the entry of x that each of R rows of points looks at; [R, P...]
            are then the shapes of the taps.

    Returns:
        [N or R, C, P...], of x's type; products and sums are of the weights' type.
    """
    total: SSAValue | None = None
    for corner in product(*taps):
        term = one_corner(c, x, corner, batch)
        total = term if total is None else c.build.binary("add", total, term)
    assert total is not None
    return total


def one_corner(
    c: NodeContext, x: SSAValue, corner: Sequence[Tap], batch: SSAValue | None
) -> SSAValue:
    """The elements at one tap of every dimension, times the product of their weights."""
    b = c.build
    values = pick(c, x, [t.index for t in corner], batch)
    weight: SSAValue | None = None
    for tap in corner:
        if tap.weight is not None:
            weight = tap.weight if weight is None else b.binary("multiply", weight, tap.weight)
    if weight is None:
        return values
    shape = shape_of(values)
    kept = [0, *range(2, len(shape))]
    return b.binary(
        "multiply",
        b.convert(values, dtype_of(weight)),
        b.broadcast_in_dim(weight, kept, shape),
    )


def pick(
    c: NodeContext, x: SSAValue, indices: Sequence[SSAValue], batch: SSAValue | None = None
) -> SSAValue:
    """x[n, :, i, j, ...] for every point: [N or R, C, P...] of indices [N or R, P...]."""
    b = c.build
    entries, channels, *space = shape_of(x)
    flat: SSAValue | None = None
    for index, size in zip(indices, space, strict=True):
        if flat is not None:
            scale = b.broadcast_in_dim(c.count([size], I64), (), shape_of(flat))
            index = b.binary("add", b.binary("multiply", flat, scale), index)
        flat = index
    assert flat is not None
    rows, *places = shape_of(flat)
    flat = b.reshape(flat, (rows, product_of(places)))
    table = b.reshape(x, (entries, channels, product_of(space)))
    one = as_expr(1)
    if batch is None:
        picked = b.gather(
            table,
            flat,
            offset_dims=[1],
            collapsed_slice_dims=[2],
            operand_batching_dims=[0],
            start_indices_batching_dims=[0],
            start_index_map=[2],
            index_vector_dim=2,
            slice_sizes=[one, channels, one],
        )
    else:
        wide = (*shape_of(flat), one)
        entry = b.broadcast_in_dim(batch, (0,), shape_of(flat))
        vectors = b.concatenate([b.reshape(entry, wide), b.reshape(flat, wide)], 2)
        picked = b.gather(
            table,
            vectors,
            offset_dims=[1],
            collapsed_slice_dims=[0, 2],
            start_index_map=[0, 2],
            index_vector_dim=2,
            slice_sizes=[one, channels, one],
        )
    return b.reshape(picked, (rows, channels, *places))
