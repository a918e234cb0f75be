"""`com.microsoft`: operators that optimisers make of image generators, channels last.

Definitions: onnxruntime's docs/ContribOperators.md .
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from headrace.base.dtypes import F32
from headrace.base.symbols import as_expr
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.ops.activation import gelu_of
from headrace.importers.onnx.ops.microsoft_fused import DOMAIN
from headrace.importers.onnx.ops.microsoft_qlinear import channels_second
from headrace.importers.onnx.ops.normalization import normalised
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import dtype_of, shape_of


def _group_normalised(c: NodeContext, x: SSAValue) -> SSAValue:
    """In f32, scaled and shifted by channel, then x * sigmoid(x) with `activation` 1."""
    b, kind, groups = c.build, dtype_of(x), c.int("groups")
    rule = c.int("activation")
    if groups < 1 or rule not in (0, 1):
        raise c.malformed("'groups' must be positive, 'activation' 0 or 1")

    def of(image: SSAValue) -> SSAValue:
        shape = shape_of(image)
        each = shape[1] // groups
        c.dims.same(shape[1], each * groups)
        parted = b.reshape(b.convert(image, F32), (shape[0], as_expr(groups), each, *shape[2:]))
        axes = range(2, len(shape) + 1)
        made = normalised(c, parted, list(axes), c.float("epsilon", 1e-5))[0]
        made = b.reshape(made, shape)
        for n, name in ((1, "multiply"), (2, "add")):
            made = b.binary(name, made, c.along(b.convert(c.data(n), F32), 1, shape))
        return b.binary("multiply", made, b.unary("logistic", made)) if rule else made

    return b.convert(channels_second(c, x, c.flag("channels_last", True), of), kind)


@onnx_op("GroupNorm", domain=DOMAIN)
def group_norm(c: NodeContext) -> SSAValue:
    return _group_normalised(c, c.data(0))


@onnx_op("SkipGroupNorm", domain=DOMAIN)
def skip_group_norm(c: NodeContext) -> list[SSAValue]:
    """Of the sum of input, skip and bias, which is the second output.

    Skip has the input's shape, or holds one row of channels an image.
    """
    b, x, skip = c.build, c.data(0), c.data(3)
    if len(shape_of(skip)) == 2:
        size, channels = shape_of(skip)
        skip = b.reshape(skip, (size, *[1] * (len(shape_of(x)) - 2), channels))
    total = c.binary("add", x, skip)
    if c.has(4):
        total = c.binary("add", total, c.data(4))
    return [_group_normalised(c, total), total]


@onnx_op("BiasAdd", domain=DOMAIN)
def bias_add(c: NodeContext) -> SSAValue:
    return c.binary("add", c.binary("add", c.data(0), c.data(1)), c.data(2))


@onnx_op("BiasSplitGelu", domain=DOMAIN)
def bias_split_gelu(c: NodeContext) -> SSAValue:
    """The first half of x + bias along the last dimension times the GELU of the second."""
    x = c.binary("add", c.data(0), c.data(1))
    last = len(shape_of(x)) - 1
    half = shape_of(x)[last] // 2
    c.dims.same(shape_of(x)[last], half * 2)
    value, gate = (c.slice_axis(x, last, half * n, half * (n + 1)) for n in (0, 1))
    b, kind = c.build, dtype_of(x)
    wide = gelu_of(c, b.convert(gate, F32) if kind.bits < 32 else gate, False)
    return b.binary("multiply", value, b.convert(wide, kind))
