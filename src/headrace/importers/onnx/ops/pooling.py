"""Poolings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.ir import SSAValue

from headrace.base.dtypes import I64, DType
from headrace.base.symbols import Expr, as_expr
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.ops.windows import Windows, read_windows
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import dtype_of, shape_of
from headrace.tensor.build import TensorBuilder

_ZERO = as_expr(0)


def lowest(kind: DType) -> Any:
    """The start of a maximum: minus infinity, or the least integer."""
    import numpy as np

    if kind.is_float:
        return -np.inf
    if kind.kind == "bool":
        return False
    return np.iinfo(kind.numpy_dtype).min


def highest(kind: DType) -> Any:
    """The start of a minimum: infinity, or the greatest integer."""
    import numpy as np

    if kind.is_float:
        return np.inf
    if kind.kind == "bool":
        return True
    return np.iinfo(kind.numpy_dtype).max


def _windows(c: NodeContext, x: SSAValue) -> Windows:
    extents = shape_of(x)[2:]
    sizes = c.ints("kernel_shape")
    if sizes is None or len(sizes) != len(extents):
        raise c.malformed(f"'kernel_shape' must have {len(extents)} entries")
    return read_windows(c, extents, sizes, c.flag("ceil_mode"))


def _fold(
    c: NodeContext,
    operands: SSAValue | Sequence[SSAValue],
    starts: SSAValue | Sequence[SSAValue],
    reducer: Any,
    w: Windows,
    low: Sequence[Expr],
    high: Sequence[Expr],
) -> list[SSAValue]:
    return c.build.reduce_window(
        operands,
        starts,
        reducer,
        window_dimensions=(1, 1, *w.sizes),
        window_strides=(1, 1, *w.strides),
        padding_low=(0, 0, *low),
        padding_high=(0, 0, *high),
        window_dilations=(1, 1, *w.dilations),
    )


@onnx_op("MaxPool")
def max_pool(c: NodeContext) -> list[SSAValue]:
    x = c.data(0)
    if not c.wants(1):
        return [largest_of_windows(c, x)]
    w = _windows(c, x)
    start = c.build.scalar(lowest(dtype_of(x)), dtype_of(x))
    places = _flat_places(c, shape_of(x))
    beyond = c.build.scalar((1 << 63) - 1, I64)
    return _fold(c, [x, places], [start, beyond], first_largest, w, w.low, w.high_with_overhang)


def largest_of_windows(c: NodeContext, x: SSAValue) -> SSAValue:
    """Of x with channels second; the windows are by the node's attributes."""
    w, start = _windows(c, x), c.build.scalar(lowest(dtype_of(x)), dtype_of(x))
    return _fold(c, x, start, "maximum", w, w.low, w.high_with_overhang)[0]


def _flat_places(c: NodeContext, shape: Sequence[Expr]) -> SSAValue:
    """The index of each element in the flattened tensor, as MaxPool counts."""
    build = c.build
    order = list(range(2, len(shape)))
    if c.int("storage_order"):
        order.reverse()
    stride = as_expr(1)
    total: SSAValue | None = None
    for axis in (*reversed(order), 1, 0):
        place = build.iota(I64, shape, axis)
        if stride != as_expr(1):
            factor = build.broadcast_in_dim(c.count([stride], I64), (), shape)
            place = build.binary("multiply", place, factor)
        total = place if total is None else build.binary("add", total, place)
        stride = stride * shape[axis]
    assert total is not None
    return total


def first_largest(
    b: TensorBuilder, left: SSAValue, left_at: SSAValue, right: SSAValue, right_at: SSAValue
) -> list[SSAValue]:
    """The larger of two (value, place) pairs; of equal ones the smaller place."""
    larger = b.compare("GT", right, left)
    equal = b.compare("EQ", right, left)
    earlier = b.binary("and", equal, b.compare("LT", right_at, left_at))
    take = b.binary("or", larger, earlier)
    return [b.select(take, right, left), b.select(take, right_at, left_at)]


@onnx_op("AveragePool")
def average_pool(c: NodeContext) -> SSAValue:
    return average_windows(c, c.data(0))


def average_windows(c: NodeContext, x: SSAValue) -> SSAValue:
    """The mean of what a window holds; padding counts with `count_include_pad`.

    Args:
        x: floats, channels second; the windows are by the node's attributes.
    """
    w = _windows(c, x)
    kind = dtype_of(x)
    zero = c.build.scalar(0, kind)
    total = _fold(c, x, zero, "add", w, w.low, w.high_with_overhang)[0]
    include = c.flag("count_include_pad")
    uniform = all(o == _ZERO for o in w.overhang) if include else not w.has_padding
    if uniform:
        count = 1
        for size in w.sizes:
            count *= size
        return c.with_scalar("divide", total, count)
    shape = (as_expr(1), as_expr(1), *shape_of(x)[2:])
    ones = c.build.splat(1, kind, shape)
    low, high = w.low, w.high_with_overhang
    if include:
        one = c.build.scalar(1, kind)
        ones = c.build.pad(ones, one, (0, 0, *w.low), (0, 0, *w.high))
        low, high = tuple(_ZERO for _ in w.low), w.overhang
    counts = _fold(c, ones, zero, "add", w, low, high)[0]
    return c.build.binary("divide", total, c.build.broadcast_to(counts, shape_of(total)))


@onnx_op("LpPool")
def lp_pool(c: NodeContext) -> SSAValue:
    x, b = c.data(0), c.build
    w = _windows(c, x)
    power = c.int("p", 2)
    size = b.unary("abs", x)
    raised = size if power == 1 else c.with_scalar("power", size, power)
    zero = b.scalar(0, dtype_of(x))
    total = _fold(c, raised, zero, "add", w, w.low, w.high_with_overhang)[0]
    return total if power == 1 else c.with_scalar("power", total, 1 / power)


@onnx_op("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(c: NodeContext) -> SSAValue:
    x = c.data(0)
    space = list(range(2, len(shape_of(x))))
    if c.node.op_type == "GlobalAveragePool":
        return c.mean(x, space, keep=True)
    if c.node.op_type == "GlobalMaxPool":
        return c.reduce(x, lowest(dtype_of(x)), space, "maximum", keep=True)
    power = c.int("p", 2)
    raised = c.with_scalar("power", c.build.unary("abs", x), power)
    return c.with_scalar("power", c.reduce(raised, 0, space, "add", keep=True), 1 / power)
