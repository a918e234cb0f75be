"""Casts between element types."""

from __future__ import annotations

from xdsl.ir import SSAValue

from headrace.base.dtypes import F32, I32, UI8, UI32, DType
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.registry import Result, onnx_op
from headrace.importers.onnx.values import Value
from headrace.importers.onnx.weights import element_dtype
from headrace.ir.types import dtype_of


@onnx_op("Cast")
def cast(c: NodeContext) -> Result:
    return convert(c, c.value(0), element_dtype(c.int("to", 1), c.node.place))


@onnx_op("CastLike")
def cast_like(c: NodeContext) -> Result:
    return convert(c, c.value(0), c.dtype(1))


def convert(c: NodeContext, value: Value, kind: DType) -> Result:
    """Casts data; sizes stay sizes in every type that holds them exactly."""
    if value.sizes is not None and kind.bits >= 32 and (kind.is_integer or kind.is_float):
        return Value("", kind, value.shape, sizes=value.sizes)
    operand = c.as_data(value)
    source = dtype_of(operand)
    if kind.kind == "bool" and source.kind != "bool":
        return c.build.compare("NE", operand, c.scalar_like(0, operand))
    if kind.is_float and kind.bits == 8 and source != kind:
        return _to_narrow_float(c, operand, kind)
    if kind.is_integer and kind.bits < 8 and source.is_float:
        operand = c.build.convert(operand, I32)  # narrow integers then keep the low bits
    return c.build.convert(operand, kind)


def _to_narrow_float(c: NodeContext, operand: SSAValue, kind: DType) -> SSAValue:
    """To an 8-bit float: what is too large, infinity too, becomes the largest."""
    import ml_dtypes

    source = dtype_of(operand)
    if not source.is_float or source.bits <= 8:  # it may not hold the largest
        operand = c.build.convert(operand, F32)
    if kind.name == "f8E8M0FNU":
        return _exponents(c, c.build.convert(operand, F32), kind)
    if c.flag("saturate", True):
        largest = float(ml_dtypes.finfo(kind.numpy_dtype).max)
        operand = c.build.clamp(
            c.scalar_like(-largest, operand), operand, c.scalar_like(largest, operand)
        )
    return c.build.convert(operand, kind)


def _exponents(c: NodeContext, x: SSAValue, kind: DType) -> SSAValue:
    """f32 to powers of two: the exponent's bits, rounded as `round_mode` says.

    The sign is dropped; infinity and NaN are NaN. Without `saturate` what is rounded up
    beyond the largest power is NaN too.
    """
    b = c.build
    bits = b.bitcast_convert(x, UI32)
    exponent = c.with_scalar("and", c.with_scalar("shift_right_logical", bits, 23), 0xFF)
    fraction = c.with_scalar("and", bits, 0x7FFFFF)
    half = c.scalar_like(0x400000, bits)
    zero = c.scalar_like(0, bits)
    mode = c.string("round_mode", "up")
    if mode == "up":
        rises = b.compare("NE", fraction, zero)
    elif mode == "nearest":  # a tie goes up but from below the smallest power
        tie = b.binary("and", b.compare("EQ", fraction, half), b.compare("NE", exponent, zero))
        rises = b.binary("or", b.compare("GT", fraction, half), tie)
    elif mode == "down":
        rises = b.compare("LT", fraction, zero)
    else:
        raise c.malformed(f"round_mode '{mode}' is unknown")
    top = 0xFE if c.flag("saturate", True) else 0xFF
    below = b.compare("LT", exponent, c.scalar_like(top, exponent))
    risen = b.binary("add", exponent, b.convert(b.binary("and", rises, below), UI32))
    return b.bitcast_convert(b.convert(risen, UI8), kind)


@onnx_op("BitCast")
def bit_cast(c: NodeContext) -> SSAValue:
    return c.build.bitcast_convert(c.data(0), element_dtype(c.int("to"), c.node.place))
