"""Takes zero points out of products of bytes: `(x - z) w` is `x w - z sum(w)`.

Integers wrap, so this is exact whatever the sums are. `x - z` needs 9 bits, so it is stored and
multiplied in 16; `x` stays as it is, and the sums over a weight's columns are known before the
model runs. What a convolution pads with, 0 for `x - z`, is then `z`. Only one zero point for all of
`x`, and weights that are stored and have 8 bits themselves. Where zero points are 0, bytes are
multiplied as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from headrace.base.dtypes import I8, I16, I32, UI8, DType
from headrace.base.symbols import ZERO
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
from headrace.tensor.rewrite import (
    RewriteBuilder,
    owner,
    replace,
    splat_value,
)
from headrace.tensor.rules.arithmetic import holds
from headrace.tensor.rules.movement import integer_list

_BYTES = (I8, UI8)


@dataclass(frozen=True)
class MoveZeroPoints(Pass):
    """One walk over the products and convolutions of each block."""

    def run(self, model: Model) -> None:
        for operation in weighted_products(model):
            _move(operation)


def _bytes_of(value: SSAValue) -> SSAValue | None:
    """What a value widens to i16, of 8 bits; None where it has more than 8 bits itself."""
    operation = owner(value)
    if isinstance(operation, d.SubtractOp) and is_zero(operation.rhs):
        value = operation.lhs
        operation = owner(value)
    if isinstance(operation, d.ConvertOp) and dtype_of(value) == I16:
        value = operation.operand
    return value if dtype_of(value) in _BYTES else None


def _as(b: RewriteBuilder, zero: SSAValue, dtype: DType) -> SSAValue | None:
    """A zero point in the numbers' own type; None where it may not fit."""
    narrower = zero
    while isinstance(wider := owner(narrower), d.ConvertOp):
        narrower = wider.operand
        if not holds(dtype_of(wider.result), dtype):
            break
        if dtype_of(narrower) == dtype:
            return narrower
    value = splat_value(zero)
    low = 0 if dtype.kind == "unsigned" else -(1 << dtype.bits - 1)
    if value is None or not 0 <= int(value) - low < 1 << dtype.bits:
        return None
    return b.scalar(value, dtype)


def _sums(b: RewriteBuilder, weight: SSAValue, dimensions: Sequence[int]) -> SSAValue:
    """Sums over dimensions in i32. As a product with ones: a weight is not folded into one of
    four times its bytes on the way."""
    sizes = [shape_of(weight)[n] for n in dimensions]
    ones = b.splat(1, dtype_of(weight), sizes)
    return b.dot_general(weight, ones, contract=(dimensions, range(len(sizes))), dtype=I32)


def _move(operation: Product) -> None:
    if dtype_of(operation.result) != I32:
        return
    value, offset = operation.lhs, None
    less = owner(value)
    if isinstance(less, d.SubtractOp) and not is_zero(less.rhs):
        value, offset = less.lhs, less.rhs
    number, weight = _bytes_of(value), _bytes_of(operation.rhs)
    if number is None or weight is None:
        return
    b = RewriteBuilder(operation)
    if offset is None:
        if number is not operation.lhs or weight is not operation.rhs:
            replace(operation, [with_factors(b, operation, number, weight, I32)])
        return
    spread = owner(offset)
    if not isinstance(spread, d.BroadcastInDimOp) or shape_of(spread.operand):
        return
    zero = spread.operand
    if isinstance(operation, d.ConvolutionOp) and (
        integer_list(operation.feature_group_count) != [1]
        or any(n != 1 for n in integer_list(operation.lhs_dilation))
    ):
        return
    padded = True
    if isinstance(operation, d.ConvolutionOp):
        low, high = operation.padding_low.exprs, operation.padding_high.exprs
        if any(p != ZERO for p in (*low, *high)):
            around = _as(b, zero, dtype_of(number))
            if around is None:
                return
            number = b.pad(number, around, [ZERO, ZERO, *low], [ZERO, ZERO, *high])
            padded = False
    sums = with_factors(b, operation, number, weight, I32, padded=padded)
    columns = _sums(b, weight, summed(operation))
    wide = b.convert(zero, I32)
    over = b.binary("multiply", columns, b.broadcast_in_dim(wide, (), shape_of(columns)))
    places = [at for _, at in sorted(kept(operation).items())]
    spread_over = b.broadcast_in_dim(over, places, shape_of(sums))
    replace(operation, [b.binary("subtract", sums, spread_over)])
