"""Multiplies numbers that stand for others as the narrow integers they are.

Where both factors of an f32 product or convolution are `(q - zero point) * scale`, of 8 bits
(ONNX's DequantizeLinear before MatMul, Gemm or Conv), the sums are formed in i32, exactly, and
scaled once: `(x - z) * s` times `w * t` is `(x - z) w * (s t)`. Only where the weight's zero point
is 0, its scale one number or one an output column, the activation's scale one number, and no sum
can pass 31 bits. Each factor is then no longer rounded after its scale, so the last bits are
others, nearer to the formula's.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import SSAValue

from headrace.base.dtypes import F32, I8, I16, I32, UI8
from headrace.base.symbols import ONE, product
from headrace.ir.model import Model
from headrace.ir.passes import Pass
from headrace.ir.types import dtype_of, shape_of
from headrace.tensor import dialect as d
from headrace.tensor.products import (
    Product,
    is_zero,
    kept,
    summed,
    weighted_products,
    with_factors,
)
from headrace.tensor.rewrite import RewriteBuilder, owner, replace
from headrace.tensor.rules.movement import integer_list

_BYTES = (I8, UI8)
_MOST_TERMS = 1 << 15
"""So many products of two differences of bytes, 255 at most, sum up to 31 bits."""


@dataclass(frozen=True)
class MultiplyQuantised(Pass):
    """One walk over the products and convolutions of each block."""

    def run(self, model: Model) -> None:
        for operation in weighted_products(model):
            _multiply(operation)


@dataclass(frozen=True)
class _Factor:
    """`(number - zero) * scale`.

    Attributes:
        number: of 8 bits.
        zero: to subtract, in the value's shape; None for none.
        scale: f32: rank 0, or along `axis`.
    """

    number: SSAValue
    zero: SSAValue | None
    scale: SSAValue
    axis: int | None


def _factor(value: SSAValue) -> _Factor | None:
    """How a value is dequantised; None where it is not."""
    scaled = owner(value)
    if not isinstance(scaled, d.MultiplyOp):
        return None
    spread, wide = owner(scaled.rhs), owner(scaled.lhs)
    if not isinstance(spread, d.BroadcastInDimOp) or not isinstance(wide, d.ConvertOp):
        return None
    axes = integer_list(spread.broadcast_dimensions)
    if len(axes) > 1:
        return None
    number, zero = wide.operand, None
    less = owner(number)
    if isinstance(less, d.SubtractOp):
        number, zero = less.lhs, less.rhs
    while isinstance(step := owner(number), d.ConvertOp) and dtype_of(number) in (I16, I32):
        number = step.operand
    if dtype_of(number) not in _BYTES:
        return None
    return _Factor(number, zero, spread.operand, axes[0] if axes else None)


def _is_fast(operation: d.ConvolutionOp) -> bool:
    """Whether integers are no slower than f32: sums over groups of several channels have
    register tiles of f32 alone, those of one channel have none."""
    groups = integer_list(operation.feature_group_count)[0]
    return groups == 1 or shape_of(operation.rhs)[1] == ONE


def _multiply(operation: Product) -> None:
    if dtype_of(operation.result) != F32 or dtype_of(operation.lhs) != F32:
        return
    if isinstance(operation, d.ConvolutionOp) and not _is_fast(operation):
        return
    left, right = _factor(operation.lhs), _factor(operation.rhs)
    if left is None or right is None or left.axis is not None:
        return
    if right.zero is not None and not is_zero(right.zero):
        return
    column = _column(operation, right)
    terms = product(shape_of(operation.rhs)[n] for n in summed(operation))
    if column is None or not terms.is_constant or terms.value > _MOST_TERMS:
        return
    b = RewriteBuilder(operation)
    number = left.number
    if left.zero is not None:
        zero = owner(left.zero)
        if not isinstance(zero, d.BroadcastInDimOp) or shape_of(zero.operand):
            return
        wide = b.convert(number, I16)
        narrow = b.convert(zero.operand, I16)
        number = b.binary("subtract", wide, b.broadcast_in_dim(narrow, (), shape_of(wide)))
    sums = with_factors(b, operation, number, right.number, I32)
    shape = shape_of(sums)
    scale = b.binary(
        "multiply",
        b.broadcast_in_dim(left.scale, (), shape_of(right.scale)),
        right.scale,
    )
    spread = b.broadcast_in_dim(scale, column, shape)
    replace(operation, [b.binary("multiply", b.convert(sums, F32), spread)])


def _column(operation: Product, right: _Factor) -> list[int] | None:
    """Where the right operand's scale stands in the result; None where it has no such place."""
    if right.axis is None:
        return []
    found = kept(operation).get(right.axis)
    return None if found is None else [found]
