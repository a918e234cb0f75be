"""`com.microsoft`: products of quantised matrices."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from headrace.base.dtypes import F32, I16, I32, UI8
from headrace.base.symbols import Expr, ExprLike, as_expr, ceildiv
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.ops.contraction import matmul_values
from headrace.importers.onnx.ops.microsoft_fused import DOMAIN
from headrace.importers.onnx.ops.quantization import (
    dequantize_linear,
    dynamically_quantised,
    less_zero,
    quantize_linear,
    rankless,
    row_shape,
)
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import dtype_of, shape_of

onnx_op("QuantizeLinear", domain=DOMAIN)(quantize_linear)
onnx_op("DequantizeLinear", domain=DOMAIN)(dequantize_linear)


def _as_floats(
    c: NodeContext, sums: SSAValue, left: SSAValue, right: SSAValue, bias: int
) -> SSAValue:
    """Integer sums times both scales, plus an input."""
    scale = c.binary("multiply", rankless(c, left), rankless(c, right))
    made = c.binary("multiply", c.build.convert(sums, F32), scale)
    return c.binary("add", made, c.data(bias)) if c.has(bias) else made


@onnx_op("DynamicQuantizeMatMul", domain=DOMAIN)
def dynamic_quantize_matmul(c: NodeContext) -> SSAValue:
    """A as 8-bit numbers over its whole range, times B, which is quantised."""
    b = c.build
    number, scale, zero = dynamically_quantised(c, c.data(0), UI8)
    shape = shape_of(number)
    left = b.binary(
        "subtract",
        b.convert(number, I16),
        b.broadcast_in_dim(b.convert(zero, I16), (), shape),
    )
    made = matmul_values(c, left, less_zero(c, c.data(1), 3), I32)
    return _as_floats(c, made, scale, c.data(2), 4)


@onnx_op("MatMulIntegerToFloat", domain=DOMAIN)
def matmul_integer_to_float(c: NodeContext) -> SSAValue:
    left = less_zero(c, c.data(0), 4, row_shape(c, 4))
    made = matmul_values(c, left, less_zero(c, c.data(1), 5), I32)
    rows = row_shape(c, 2)
    scale = c.data(2) if rows is None else c.build.reshape(c.data(2), rows)
    return _as_floats(c, made, scale, c.data(3), 6)


# -- MatMulNBits ------------------------------------------------------------------------------


@onnx_op("MatMulNBits", domain=DOMAIN)
def matmul_n_bits(c: NodeContext) -> SSAValue:
    """A times the transpose of [N, K] numbers of 2, 4 or 8 bits, scaled by blocks along K.

    A is not quantised, whatever `accuracy_level` allows.
    """
    b, x = c.build, c.data(0)
    bits, block = c.int("bits", 4), c.int("block_size", 0)
    rows, columns = c.int("N"), c.int("K")
    if bits not in (2, 4, 8) or block < 16 or block & (block - 1) or rows < 1 or columns < 1:
        raise c.malformed("'bits' must be 2, 4 or 8, 'block_size' a power of two from 16 on")
    blocks = -(-columns // block)
    numbers = _unpacked(c, c.data(1), bits, (rows, blocks, block))
    shape = shape_of(numbers)
    scale = b.convert(b.reshape(c.data(2), (rows, blocks)), F32)
    zero = b.splat(2 ** (bits - 1), F32, (rows, blocks))
    if c.has(3) and c.dtype(3).is_float:
        zero = b.convert(b.reshape(c.data(3), (rows, blocks)), F32)
    elif c.has(3):
        width = -(-blocks * bits // 8) * 8 // bits
        zeros = _unpacked(c, c.data(3), bits, (rows, width))
        zero = b.convert(c.slice_axis(zeros, 1, 0, blocks), F32)
    wide = b.convert(numbers, F32)
    if c.has(4):
        # Each column says itself which block it belongs to.
        group = c.data(4)
        wide = c.slice_axis(b.reshape(wide, (rows, blocks * block)), 1, 0, columns)
        group = c.slice_axis(group, 0, 0, columns)
        zero, scale = b.take(zero, group, 1), b.take(scale, group, 1)
        wide = b.binary("multiply", b.binary("subtract", wide, zero), scale)
    else:
        wide = b.binary("subtract", wide, b.broadcast_in_dim(zero, (0, 1), shape))
        wide = b.binary("multiply", wide, b.broadcast_in_dim(scale, (0, 1), shape))
        wide = c.slice_axis(b.reshape(wide, (rows, blocks * block)), 1, 0, columns)
    kind = dtype_of(x)
    c.dims.same(shape_of(x)[-1], as_expr(columns))
    left = b.convert(x, F32)
    made = b.dot_general(left, wide, contract=((len(shape_of(x)) - 1,), (1,)))
    if c.has(5):
        made = c.binary("add", made, b.convert(c.data(5), F32))
    return b.convert(made, kind)


def _unpacked(
    c: NodeContext, packed: SSAValue, bits: int, shape: Sequence[ExprLike]
) -> SSAValue:
    """Unsigned numbers out of bytes, the low bits first."""
    b, each = c.build, 8 // bits
    target: list[Expr] = [as_expr(s) for s in shape]
    if each == 1:
        return b.reshape(packed, target)
    parted = (*target[:-1], target[-1] // each, as_expr(each))
    bytes_ = b.reshape(packed, parted[:-1])
    wide = b.broadcast_in_dim(bytes_, range(len(parted) - 1), parted)
    shift = c.with_scalar("multiply", b.iota(UI8, parted, len(parted) - 1), bits)
    number = b.binary("shift_right_logical", wide, shift)
    return b.reshape(c.with_scalar("and", number, 2**bits - 1), target)


@onnx_op("GatherBlockQuantized", domain=DOMAIN)
def gather_block_quantized(c: NodeContext) -> SSAValue:
    """Rows of a table of few bits, scaled by blocks along `quantize_axis`, which is the last.

    Bytes hold two numbers of 4 bits, or one of 8. Only the rows taken become floats.
    """
    b, data, rank = c.build, c.data(0), c.rank(0)
    axis, along = c.axis("gather_axis", rank, 0), c.axis("quantize_axis", rank, 1)
    block, kind = c.int("block_size", 128), dtype_of(data)
    bits = c.int("bits", 4) if kind == UI8 else kind.bits
    if along != rank - 1 or axis == along:
        raise c.unsupported("a 'quantize_axis' that is not the last, or the 'gather_axis'")
    if bits not in (4, 8) or block < 16 or block & (block - 1):
        raise c.malformed("'bits' must be 4 or 8, 'block_size' a power of two from 16 on")
    packed = kind == UI8 and bits == 4

    def numbers(x: SSAValue, size: Expr) -> SSAValue:
        rows = b.take(x, c.data(1), axis)
        if packed:
            wide = [*shape_of(rows)[:-1], shape_of(rows)[-1] * 2]
            rows = _unpacked(c, rows, 4, wide)
            rows = c.slice_axis(rows, len(wide) - 1, 0, size)
        return b.convert(rows, F32)

    size = c.shape(0)[-1] * (2 if packed else 1)
    made = numbers(data, size)
    blocks, last = c.shape(2)[-1], len(shape_of(made)) - 1
    c.dims.same(blocks, ceildiv(size, block))

    def spread(x: SSAValue) -> SSAValue:
        """One number a block as one an element."""
        shape = (*shape_of(x), as_expr(block))
        wide = b.broadcast_in_dim(x, range(len(shape) - 1), shape)
        flat = b.reshape(wide, (*shape_of(x)[:-1], shape_of(x)[-1] * block))
        return c.slice_axis(flat, last, 0, size)

    if c.has(3):
        made = b.binary("subtract", made, spread(numbers(c.data(3), blocks)))
    elif kind == UI8:
        made = c.with_scalar("subtract", made, 2 ** (bits - 1))
    scale = b.convert(b.take(c.data(2), c.data(1), axis), F32)
    return b.convert(b.binary("multiply", made, spread(scale)), c.dtype(2))


_FP4 = (0.0, 1 / 192, 2 / 3, 1.0, 1 / 3, 1 / 2, 1 / 6, 1 / 4)
_NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
    -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
    0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip


@onnx_op("MatMulBnb4", domain=DOMAIN)
def matmul_bnb4(c: NodeContext) -> SSAValue:
    """A times the transpose of [N, K] numbers of 4 bits that are places in a table.

    Two a byte, the first in the high bits, and as many as `block_size` share a largest
    absolute value, across rows. The tables are bitsandbytes' FP4 and NF4.
    """
    import numpy as np

    b, x, kind = c.build, c.data(0), c.int("quant_type")
    rows, columns, block = c.int("N"), c.int("K"), c.int("block_size")
    if kind not in (0, 1) or block < 16 or block & (block - 1) or rows < 1 or columns < 1:
        raise c.malformed("'quant_type' must be 0 or 1, 'block_size' a power of two from 16 on")
    if not c.flag("transB", True):
        raise c.unsupported("'transB' 0")
    count, table = rows * columns, _NF4 if kind else (*_FP4, *(-v for v in _FP4))
    size = shape_of(c.data(1))[0]
    c.dims.same(size, as_expr(-(-count // 2)))
    pairs = b.broadcast_in_dim(c.data(1), (0,), (size, 2))
    shift = c.with_scalar("multiply", b.iota(UI8, (size, 2), 1), 4)
    shift = b.binary("subtract", c.scalar_like(4, shift), shift)
    place = c.with_scalar("and", b.binary("shift_right_logical", pairs, shift), 15)
    place = c.slice_axis(b.reshape(place, (size * 2,)), 0, 0, count)
    values = b.take(
        c.as_data(c.from_array(np.asarray(table, np.float32))), b.convert(place, I32), 0
    )
    most = b.convert(c.data(2), F32)
    spread = b.broadcast_in_dim(most, (0,), (*shape_of(most), as_expr(block)))
    spread = b.reshape(spread, (shape_of(most)[0] * block,))
    wide = b.binary("multiply", values, c.slice_axis(spread, 0, 0, count))
    wide = b.reshape(wide, (rows, columns))
    c.dims.same(shape_of(x)[-1], as_expr(columns))
    inner = len(shape_of(x)) - 1
    made = b.dot_general(b.convert(x, F32), wide, contract=((inner,), (1,)))
    return b.convert(made, dtype_of(x))
