"""Quantisation: numbers q that stand for (q - zero point) * scale.

Integers are computed as integers, in i32, so that products and their sums are exact.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from headrace.base.dtypes import F32, I16, I32, UI8, DType
from headrace.base.symbols import Expr, as_expr, ceildiv, product
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.ops.cast import convert
from headrace.importers.onnx.ops.contraction import matmul_values
from headrace.importers.onnx.ops.convolution import convolved
from headrace.importers.onnx.registry import onnx_op
from headrace.importers.onnx.values import Value
from headrace.importers.onnx.weights import element_dtype
from headrace.ir.types import dtype_of, shape_of

# -- parts that other operators use -------------------------------------------------


def integer_range(kind: DType) -> tuple[int, int]:
    """The least and the greatest integer of a type."""
    if kind.kind == "unsigned":
        return 0, 2**kind.bits - 1
    return -(2 ** (kind.bits - 1)), 2 ** (kind.bits - 1) - 1


def spread(c: NodeContext, given: SSAValue, shape: Sequence[Expr], axis: int) -> SSAValue:
    """A scale or zero point over a tensor's shape.

    One number is for all; a vector goes along the axis; what has the tensor's rank holds
    one number a block of `block_size` along the axis.
    """
    b, own = c.build, shape_of(given)
    if product(own) == as_expr(1) and len(own) <= 1:
        return b.broadcast_in_dim(b.reshape(given, ()), (), shape)
    axis = c.normal_axis(axis, len(shape))
    block = c.int("block_size", 0)
    if block < 0:
        raise c.malformed("'block_size' must not be negative")
    if block == 0:
        if len(own) != 1:
            raise c.malformed("a scale must be a number, or a vector, or have a 'block_size'")
        return c.along(given, axis, shape)
    if len(own) != len(shape):
        raise c.malformed(f"a scale of blocks must have the input's rank, {len(shape)}")
    wanted = list(shape)
    wanted[axis] = ceildiv(shape[axis], block)
    for size, want in zip(own, wanted, strict=True):
        c.dims.same(size, want)
    places = [n if n <= axis else n + 1 for n in range(len(own))]
    repeated = [*own[: axis + 1], as_expr(block), *own[axis + 1 :]]
    long = list(own)
    long[axis] = own[axis] * block
    blocks = b.reshape(b.broadcast_in_dim(given, places, repeated), long)
    return c.slice_axis(blocks, axis, 0, shape[axis])


def quantised(
    c: NodeContext, x: SSAValue, scale: SSAValue, zero: SSAValue | None, kind: DType
) -> SSAValue:
    """x / scale, to the nearest even integer, plus zero point, cut off to `kind`.

    Args:
        x, scale: of one float type, in which they are divided, and one shape.
        zero: i32 in the same shape; None for zero, and always for floats.
    """
    b = c.build
    ratio = b.binary("divide", x, scale)
    if kind.is_float:
        made = convert(c, Value("", dtype_of(ratio), shape_of(ratio), ssa=ratio), kind)
        assert isinstance(made, SSAValue)
        return made
    return rounded(c, b.convert(ratio, F32), zero, kind)


def rounded(c: NodeContext, x: SSAValue, zero: SSAValue | None, kind: DType) -> SSAValue:
    """f32 to the nearest even integer, plus an i32 zero point, cut off to `kind`."""
    b = c.build
    whole = b.unary("round_nearest_even", x)
    if kind.bits in (8, 16):
        # A sum that `kind` holds is exact in f32, and the conversion cuts off.
        if zero is not None:
            whole = b.binary("add", whole, b.convert(zero, F32))
        return b.convert(whole, kind)
    low, high = integer_range(kind)
    # Twice the width holds every sum with a zero point, and is exact in f32.
    width = 2 << kind.bits
    whole = b.clamp(c.scalar_like(-width, whole), whole, c.scalar_like(width, whole))
    number = b.convert(whole, I32)
    if zero is not None:
        number = b.binary("add", number, zero)
    number = b.clamp(c.scalar_like(low, number), number, c.scalar_like(high, number))
    return b.convert(number, kind)


def less_zero(
    c: NodeContext, x: SSAValue, index: int, shape: Sequence[Expr] | None = None
) -> SSAValue:
    """x minus the zero point that is input `index`, if it is given: a factor of products.

    Of floats f32. Of integers i16, which holds the difference of any two of 8 bits; x as
    it is without a zero point.

    Args:
        shape: that the zero point takes before it broadcasts; as it is by default.
    """
    b = c.build
    work = F32 if dtype_of(x).is_float else I16
    if not c.has(index):
        return b.convert(x, F32) if work == F32 else x
    wide = b.convert(x, work)
    zero = b.convert(c.data(index), work)
    zero = zero if shape is None else b.reshape(zero, shape)
    return c.binary("subtract", wide, rankless(c, zero))


def _sum_dtype(factor: SSAValue) -> DType:
    """The type of sums of products: exact for integers."""
    return F32 if dtype_of(factor).is_float else I32


def rankless(c: NodeContext, x: SSAValue) -> SSAValue:
    """One number as a scalar; anything else stays."""
    return c.build.reshape(x, ()) if product(shape_of(x)) == as_expr(1) else x


# -- to and from integers -------------------------------------------------------------


def _output_type(c: NodeContext, default: DType) -> DType:
    code = c.int("output_dtype", 0)
    return element_dtype(code, c.node.place) if code else default


@onnx_op("QuantizeLinear")
def quantize_linear(c: NodeContext) -> SSAValue:
    """The division is in the type `precision`, by default the scale's."""
    b, x = c.build, c.data(0)
    shape = shape_of(x)
    kind = c.dtype(2) if c.has(2) else _output_type(c, UI8)
    if _output_type(c, kind) != kind:
        raise c.malformed("'output_dtype' is not the zero point's type")
    code = c.int("precision", 0)
    work = element_dtype(code, c.node.place) if code else c.dtype(1)
    if not work.is_float or work.bits < 16:
        work = F32  # whole numbers and powers of two as scales
    axis = c.int("axis", 1)
    scale = spread(c, b.convert(c.data(1), work), shape, axis)
    zero = None
    if c.has(2) and not kind.is_float:
        zero = spread(c, b.convert(c.data(2), I32), shape, axis)
    return quantised(c, b.convert(x, work), scale, zero, kind)


@onnx_op("DequantizeLinear")
def dequantize_linear(c: NodeContext) -> SSAValue:
    b, x = c.build, c.data(0)
    shape, axis = shape_of(x), c.int("axis", 1)
    work = F32 if dtype_of(x).is_float else I32
    wide = b.convert(x, work)
    if c.has(2):
        zero = spread(c, b.convert(c.data(2), work), shape, axis)
        wide = b.binary("subtract", wide, zero)
    scale = spread(c, b.convert(c.data(1), F32), shape, axis)
    made = b.binary("multiply", b.convert(wide, F32), scale)
    default = F32 if c.dtype(1).bits < 16 else c.dtype(1)
    return b.convert(made, _output_type(c, default))


# -- products ---------------------------------------------------------------------------


def row_shape(c: NodeContext, index: int) -> list[Expr] | None:
    """How a number a row of a left matrix broadcasts: a vector gains a last dimension."""
    if not c.has(index) or c.rank(index) != 1:
        return None
    return [*c.shape(index), as_expr(1)]


@onnx_op("MatMulInteger")
def matmul_integer(c: NodeContext) -> SSAValue:
    left = less_zero(c, c.data(0), 2, row_shape(c, 2))
    return matmul_values(c, left, less_zero(c, c.data(1), 3), I32)


@onnx_op("QLinearMatMul")
def qlinear_matmul(c: NodeContext) -> SSAValue:
    left = less_zero(c, c.data(0), 2, row_shape(c, 2))
    made = matmul_values(c, left, less_zero(c, c.data(3), 5), _sum_dtype(left))
    b = c.build
    scale_left, scale_right = b.convert(c.data(1), F32), b.convert(c.data(4), F32)
    rows = row_shape(c, 1)
    if rows is not None and len(shape_of(made)) > 1:
        scale_left = b.reshape(scale_left, rows)
    scale = c.binary("multiply", rankless(c, scale_left), rankless(c, scale_right))
    return _requantised(c, made, scale, 6, 7)


@onnx_op("ConvInteger")
def conv_integer(c: NodeContext) -> SSAValue:
    kernel = less_zero(c, c.data(1), 3, _kernel_shape(c, 3, 1))
    return convolved(c, less_zero(c, c.data(0), 2), kernel, I32)


def _kernel_shape(c: NodeContext, index: int, kernel: int) -> list[Expr] | None:
    """How a number an output channel broadcasts over the kernel, input `kernel`."""
    if not c.has(index) or c.rank(index) != 1:
        return None
    return [*c.shape(index), *[as_expr(1)] * (c.rank(kernel) - 1)]


@onnx_op("QLinearConv")
def qlinear_conv(c: NodeContext) -> SSAValue:
    return quantised_convolution(c, c.data(0))


def quantised_convolution(c: NodeContext, x: SSAValue) -> SSAValue:
    """Of x, which is input 0 with its channels second; the bias is i32 with the scale of the
    products."""
    b = c.build
    kernel = less_zero(c, c.data(3), 5, _kernel_shape(c, 5, 3))
    made = convolved(c, less_zero(c, x, 2), kernel, I32)
    if c.has(8):
        made = b.binary("add", made, c.along(c.data(8), 1, shape_of(made)))
    scale = b.reshape(c.data(1), ())
    of_kernel = rankless(c, c.data(4))
    if shape_of(of_kernel):
        of_kernel = b.reshape(of_kernel, (*shape_of(of_kernel), *[1] * (c.rank(0) - 2)))
    scale = c.binary("multiply", scale, of_kernel)
    return _requantised(c, made, scale, 6, 7)


def _requantised(
    c: NodeContext, sums: SSAValue, scale: SSAValue, to_scale: int, to_zero: int
) -> SSAValue:
    """Sums of products of the given scale, as numbers of the scale that is an input."""
    b, kind = c.build, c.dtype(to_zero)
    target = rankless(c, b.convert(c.data(to_scale), F32))
    factor = c.binary("divide", scale, target)
    wide = b.convert(sums, F32)
    made = b.binary("multiply", wide, b.broadcast_to(factor, shape_of(wide)))
    if kind.is_float:
        return quantised(c, made, c.scalar_like(1, made), None, kind)
    zero = rankless(c, b.convert(c.data(to_zero), I32))
    return rounded(c, made, b.broadcast_to(zero, shape_of(made)), kind)


# -- scales that data decides -----------------------------------------------------------


@onnx_op("DynamicQuantizeLinear")
def dynamic_quantize_linear(c: NodeContext) -> list[SSAValue]:
    number, scale, zero = dynamically_quantised(c, c.data(0), UI8)
    return [number, scale, zero]


def dynamically_quantised(
    c: NodeContext, x: SSAValue, kind: DType
) -> tuple[SSAValue, SSAValue, SSAValue]:
    """f32 over the whole range of `kind`, with an exact zero: numbers, scale, zero point.

    The function body divides zero by zero where all elements are zero; as in onnxruntime
    the scale is 1 there.
    """
    b = c.build
    axes = range(len(shape_of(x)))
    zero = b.scalar(0, F32)
    least = b.binary("minimum", c.reduce(x, float("inf"), axes, "minimum"), zero)
    most = b.binary("maximum", c.reduce(x, float("-inf"), axes, "maximum"), zero)
    low, high = integer_range(kind)
    scale = c.with_scalar("divide", b.binary("subtract", most, least), high - low)
    none = b.compare("EQ", scale, zero)
    scale = b.select(none, b.scalar(1, F32), scale)
    shift = b.binary("subtract", b.scalar(low, F32), b.binary("divide", least, scale))
    point = b.clamp(b.scalar(low, F32), shift, b.scalar(high, F32))
    point = b.convert(b.unary("round_nearest_even", point), kind)
    shape = shape_of(x)
    spread_point = b.broadcast_in_dim(b.convert(point, I32), (), shape)
    spread_scale = b.broadcast_in_dim(scale, (), shape)
    return quantised(c, x, spread_scale, spread_point, kind), scale, point
