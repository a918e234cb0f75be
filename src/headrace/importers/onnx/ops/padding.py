"""Pad in all its modes, and CenterCropPad."""

from __future__ import annotations

from xdsl.ir import SSAValue

from headrace.base.dtypes import I64
from headrace.base.symbols import Expr, as_expr
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import dtype_of, shape_of

_ZERO = as_expr(0)


def _by_attribute(c: NodeContext) -> bool:
    """Whether attributes tell amounts and value, not inputs: ONNX's before opset 11."""
    return not c.node.domain and c.opset < 11


def _amounts(c: NodeContext, rank: int, by_attribute: bool) -> tuple[list[Expr], list[Expr]]:
    """Padding before and behind by axis."""
    stated = [as_expr(p) for p in c.ints("pads") or []] if by_attribute else c.sizes(1)
    axes = list(range(rank))
    if c.has(3):
        axes = c.normal_axes(c.integers_at(3), rank)
    if len(stated) != 2 * len(axes):
        raise c.malformed(f"'pads' must have {2 * len(axes)} entries, has {len(stated)}")
    low, high = [_ZERO] * rank, [_ZERO] * rank
    for n, axis in enumerate(axes):
        low[axis], high[axis] = stated[n], stated[n + len(axes)]
    return low, high


@onnx_op("Pad", domain="com.microsoft")
@onnx_op("Pad")
def pad(c: NodeContext) -> SSAValue:
    x, b = c.data(0), c.build
    mode = c.string("mode", "constant")
    by_attribute = _by_attribute(c)
    low, high = _amounts(c, len(shape_of(x)), by_attribute)
    if all(p == _ZERO for p in (*low, *high)):
        return x
    if mode != "constant":
        for axis, (before, behind) in enumerate(zip(low, high, strict=True)):
            if before != _ZERO or behind != _ZERO:
                x = _indexed(c, x, axis, before, behind, mode)
        return x
    kind = dtype_of(x)
    if by_attribute:
        value = b.scalar(c.float("value"), kind)
    elif c.has(2):
        value = b.reshape(c.data(2), ())
    else:
        value = b.scalar(0, kind)
    return b.pad(x, value, low, high)


@onnx_op("CenterCropPad")
def center_crop_pad(c: NodeContext) -> SSAValue:
    """Cuts from both ends what is too long, and pads with zeros what is too short."""
    x, b = c.data(0), c.build
    shape = list(shape_of(x))
    rank = len(shape)
    axes = c.normal_axes(c.ints("axes", list(range(rank))) or [], rank)
    wanted = c.sizes(1)
    if len(wanted) != len(axes):
        raise c.malformed(f"its shape must have {len(axes)} entries, has {len(wanted)}")
    low, high = [_ZERO] * rank, [_ZERO] * rank
    for axis, size in zip(axes, wanted, strict=True):
        kept = c.dims.minimum(shape[axis], size)
        start = c.dims.maximum(shape[axis] - size, 0) // 2
        x = c.slice_axis(x, axis, start, start + kept)
        low[axis] = c.dims.maximum(size - shape[axis], 0) // 2
        high[axis] = size - kept - low[axis]
    if all(p == _ZERO for p in (*low, *high)):
        return x
    return b.pad(x, b.scalar(0, dtype_of(x)), low, high)


def _indexed(
    c: NodeContext, x: SSAValue, axis: int, before: Expr, behind: Expr, mode: str
) -> SSAValue:
    """Along one axis, the place that each result element is taken from."""
    b = c.build
    size = shape_of(x)[axis]
    length = (size + before + behind,)

    def everywhere(value: Expr) -> SSAValue:
        return b.broadcast_in_dim(c.count([value], I64), (), length)

    place = b.binary("subtract", b.iota(I64, length, 0), everywhere(before))
    last = everywhere(size - 1)
    if mode == "edge":
        place = b.clamp(everywhere(_ZERO), place, last)
    elif mode == "wrap":
        place = _wrapped(c, place, everywhere(size))
    elif mode == "reflect":
        period = everywhere(c.dims.maximum((size - 1) * 2, 1))
        place = _wrapped(c, place, period)
        place = b.binary("minimum", place, b.binary("subtract", period, place))
        place = b.binary("minimum", place, last)
    else:
        raise c.malformed(f"mode '{mode}' is unknown")
    return b.take(x, place, axis)


def _wrapped(c: NodeContext, place: SSAValue, period: SSAValue) -> SSAValue:
    """The place modulo the period, never negative."""
    b = c.build
    rest = b.binary("remainder", place, period)
    negative = b.compare("LT", rest, c.scalar_like(0, rest))
    return b.select(negative, b.binary("add", rest, period), rest)
