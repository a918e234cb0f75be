"""Convolutions."""

from __future__ import annotations

from xdsl.ir import SSAValue

from headrace.base.dtypes import DType
from headrace.base.symbols import Expr, as_expr
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.ops.windows import read_windows, spatial
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import shape_of


def _kernel_sizes(c: NodeContext, kernel: SSAValue) -> list[int]:
    found = shape_of(kernel)[2:]
    if not all(s.is_constant for s in found):
        raise c.unsupported("the kernel's sizes must be constant")
    return [s.value for s in found]


def with_bias(c: NodeContext, made: SSAValue) -> SSAValue:
    """Adds input 2, where it is given, to the channels."""
    if not c.has(2):
        return made
    return c.build.binary("add", made, c.along(c.data(2), 1, shape_of(made)))


@onnx_op("Conv")
def conv(c: NodeContext) -> SSAValue:
    return with_bias(c, convolved(c, c.data(0), c.data(1)))


def convolved(
    c: NodeContext, x: SSAValue, kernel: SSAValue, dtype: DType | None = None
) -> SSAValue:
    """A convolution as the node's attributes describe it, without bias.

    `dtype` is the result's where it is not that of x.
    """
    if len(shape_of(x)) < 3:
        raise c.malformed("the input must have rank 3 or more")
    extents = shape_of(x)[2:]
    group = c.int("group", 1)
    c.dims.same(shape_of(x)[1], shape_of(kernel)[1] * group)
    w = read_windows(c, extents, _kernel_sizes(c, kernel))
    return c.build.convolution(
        x,
        kernel,
        window_strides=w.strides,
        padding_low=w.low,
        padding_high=w.high,
        rhs_dilation=w.dilations,
        feature_group_count=group,
        dtype=dtype,
    )


@onnx_op("ConvTranspose")
def conv_transpose(c: NodeContext) -> SSAValue:
    """A convolution of the input spread by its strides with the mirrored kernel."""
    x, kernel = c.data(0), c.data(1)
    extents = shape_of(x)[2:]
    count = len(extents)
    sizes = _kernel_sizes(c, kernel)
    strides = spatial(c, "strides", count)
    dilations = spatial(c, "dilations", count)
    extra = spatial(c, "output_padding", count, 0)
    group = c.int("group", 1)
    c.dims.same(shape_of(x)[1], shape_of(kernel)[0])
    reach = [(k - 1) * d + 1 for k, d in zip(sizes, dilations, strict=True)]
    low: list[Expr] = []
    high: list[Expr] = []
    begin, end = _transposed_padding(c, extents, reach, strides, extra)
    for n in range(count):
        low.append(as_expr(reach[n] - 1) - begin[n])
        high.append(as_expr(reach[n] - 1) - end[n] + extra[n])
    return with_bias(
        c,
        c.build.convolution(
            x,
            _mirrored(c, kernel, group),
            window_strides=[1] * count,
            padding_low=low,
            padding_high=high,
            lhs_dilation=strides,
            rhs_dilation=dilations,
            feature_group_count=group,
        ),
    )


def _mirrored(c: NodeContext, kernel: SSAValue, group: int) -> SSAValue:
    """[input, output / groups, ...] as [output, input / groups, ...], space reversed."""
    features, outputs, *space = shape_of(kernel)
    build = c.build
    turned = build.reverse(kernel, range(2, 2 + len(space)))
    if group == 1:
        return build.transpose(turned, (1, 0, *range(2, 2 + len(space))))
    parts = build.reshape(turned, (group, features // group, outputs, *space))
    moved = build.transpose(parts, (0, 2, 1, *range(3, 3 + len(space))))
    return build.reshape(moved, (outputs * group, features // group, *space))


def _transposed_padding(
    c: NodeContext,
    extents: tuple[Expr, ...],
    reach: list[int],
    strides: tuple[int, ...],
    extra: tuple[int, ...],
) -> tuple[list[Expr], list[Expr]]:
    """What is cut off the full result before and behind."""
    count = len(extents)
    rule = c.string("auto_pad", "NOTSET")
    wanted: list[Expr] | None = None
    if c.has_attribute("output_shape"):
        wanted = [as_expr(s) for s in (c.ints("output_shape") or [])[-count:]]
    elif rule in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [e * s for e, s in zip(extents, strides, strict=True)]
    if wanted is None:
        pads = [0] * 2 * count if rule == "VALID" else c.ints("pads", [0] * 2 * count) or []
        if len(pads) != 2 * count:
            raise c.malformed(f"'pads' must have {2 * count} entries, has {len(pads)}")
        return [as_expr(p) for p in pads[:count]], [as_expr(p) for p in pads[count:]]
    begin: list[Expr] = []
    end: list[Expr] = []
    for n in range(count):
        total = (extents[n] - 1) * strides[n] + reach[n] + extra[n] - wanted[n]
        if rule == "SAME_UPPER":
            begin.append(total // 2)
        else:
            begin.append(total - total // 2)
        end.append(total - begin[-1])
    return begin, end
