"""Products and convolutions alike: what is summed, what stays, and the same with other factors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from xdsl.ir import SSAValue

from headrace.base.dtypes import DType
from headrace.base.symbols import ZERO
from headrace.ir.model import Model
from headrace.ir.types import shape_of
from headrace.tensor import dialect as d
from headrace.tensor.rewrite import RewriteBuilder, functions, is_splat_of, owner
from headrace.tensor.rules.movement import integer_list
from headrace.tensor.sources import known_values

Product: TypeAlias = "d.DotGeneralOp | d.ConvolutionOp"


def weighted_products(model: Model) -> Iterator[Product]:
    """Products and convolutions whose right operand alone is known when compiling."""
    for _function, block in functions(model):
        known = known_values(block)
        for operation in list(block.ops):
            if not isinstance(operation, (d.DotGeneralOp, d.ConvolutionOp)):
                continue
            if operation.rhs in known and operation.lhs not in known:
                yield operation


def summed(operation: Product) -> list[int]:
    """Dimensions of the right operand that are summed over."""
    if isinstance(operation, d.DotGeneralOp):
        return integer_list(operation.rhs_contracting_dimensions)
    return list(range(1, len(shape_of(operation.rhs))))


def kept(operation: Product) -> dict[int, int]:
    """Where the other dimensions of the right operand stand in the result."""
    if isinstance(operation, d.ConvolutionOp):
        return {0: 1}
    batch = integer_list(operation.rhs_batching_dimensions)
    gone = {*batch, *integer_list(operation.rhs_contracting_dimensions)}
    free = [n for n in range(len(shape_of(operation.rhs))) if n not in gone]
    first = len(shape_of(operation.result)) - len(free)
    return {n: at for at, n in enumerate(batch)} | {n: first + i for i, n in enumerate(free)}


def is_zero(value: SSAValue) -> bool:
    """Whether every element is 0, conversions seen through: zero is zero in every type."""
    operation = owner(value)
    while isinstance(operation, (d.BroadcastInDimOp, d.ConvertOp, d.ReshapeOp)):
        value = operation.operand
        operation = owner(value)
    return is_splat_of(value, 0)


def with_factors(
    b: RewriteBuilder,
    operation: Product,
    lhs: SSAValue,
    rhs: SSAValue,
    dtype: DType,
    *,
    padded: bool = True,
) -> SSAValue:
    """The operation on other factors, of other types, with sums in `dtype`.

    Args:
        padded: False leaves the padding out; `lhs` has it already.
    """
    if isinstance(operation, d.DotGeneralOp):
        return b.dot_general(
            lhs,
            rhs,
            batch=(
                integer_list(operation.lhs_batching_dimensions),
                integer_list(operation.rhs_batching_dimensions),
            ),
            contract=(
                integer_list(operation.lhs_contracting_dimensions),
                integer_list(operation.rhs_contracting_dimensions),
            ),
            dtype=dtype,
        )
    low, high = operation.padding_low.exprs, operation.padding_high.exprs
    return b.convolution(
        lhs,
        rhs,
        window_strides=integer_list(operation.window_strides),
        padding_low=low if padded else [ZERO] * len(low),
        padding_high=high if padded else [ZERO] * len(high),
        lhs_dilation=integer_list(operation.lhs_dilation),
        rhs_dilation=integer_list(operation.rhs_dilation),
        feature_group_count=integer_list(operation.feature_group_count)[0],
        dtype=dtype,
    )
