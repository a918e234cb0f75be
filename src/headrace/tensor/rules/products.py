"""What is around products moves out of them, or into them.

Of two activations what scales an operand scales the result: `(x * s) . (y * t)` is `(x . y) * (s * t)`. Exporters of scaled attention multiply queries
and keys; behind the product the factor is one, and it costs no pass over either. Not
exact: products are rounded in another order.

Narrow integers are widened by the product itself.
"""

from __future__ import annotations

from typing import cast

from xdsl.ir import Operation, SSAValue

from headrace.base.dtypes import DType
from headrace.ir.types import dtype_of, shape_of
from headrace.tensor import dialect as d
from headrace.tensor.products import Product, with_factors
from headrace.tensor.rewrite import (
    RewriteBuilder,
    Rule,
    has_one_use,
    is_constant_like,
    owner,
    splat_value,
)
from headrace.tensor.rules.arithmetic import holds
from headrace.tensor.rules.movement import integer_list


def _unscaled(value: SSAValue, builder: RewriteBuilder) -> tuple[SSAValue, float] | None:
    """The value without the factor that it was multiplied by, and the factor."""
    moves: list[d.ReshapeOp | d.TransposeOp] = []
    inner = owner(value)
    while isinstance(inner, (d.ReshapeOp, d.TransposeOp)) and has_one_use(value):
        moves.append(inner)
        value = inner.operand
        inner = owner(value)
    if not isinstance(inner, d.MultiplyOp) or not has_one_use(value):
        return None
    factor = splat_value(inner.rhs)
    if factor is None:
        return None
    builder.standing_for(inner, *moves)
    made = inner.lhs
    for move in reversed(moves):
        if isinstance(move, d.ReshapeOp):
            made = builder.reshape(made, shape_of(move.result))
        else:
            made = builder.transpose(made, integer_list(move.permutation))
    return made, float(factor)


def _scaled_operands(operation: Operation, builder: RewriteBuilder) -> SSAValue | None:
    op = cast(d.DotGeneralOp, operation)
    batch = integer_list(op.lhs_batching_dimensions)
    dtype = dtype_of(op.result)
    if not batch or not dtype.is_float or dtype.bits < 32:
        return None
    if dtype_of(op.lhs) != dtype or dtype_of(op.rhs) != dtype:
        return None
    if is_constant_like(op.lhs) or is_constant_like(op.rhs):
        return None
    factor, operands = 1.0, [op.lhs, op.rhs]
    found = False
    for n, value in enumerate(operands):
        unscaled = _unscaled(value, builder)
        if unscaled is not None:
            operands[n], found = unscaled[0], True
            factor *= unscaled[1]
    if not found:
        return None
    builder.standing_for(op)
    made = builder.dot_general(
        operands[0],
        operands[1],
        batch=(batch, integer_list(op.rhs_batching_dimensions)),
        contract=(
            integer_list(op.lhs_contracting_dimensions),
            integer_list(op.rhs_contracting_dimensions),
        ),
        dtype=dtype,
    )
    return builder.binary("multiply", made, builder.splat(factor, dtype, shape_of(made)))


def _unwidened(value: SSAValue, result: DType) -> SSAValue | None:
    """The narrower integers that a value was widened from, where `result` holds them."""
    inner = owner(value)
    if not isinstance(inner, d.ConvertOp) or not result.is_integer:
        return None
    narrow = dtype_of(inner.operand)
    if not narrow.is_integer or narrow.bits < 8:
        return None
    exact = holds(dtype_of(value), narrow) and holds(result, narrow)
    return inner.operand if exact else None


def _widened_integers(operation: Operation, builder: RewriteBuilder) -> SSAValue | None:
    """A product widens its operands itself: narrow integers stay narrow in memory."""
    op = cast("Product", operation)
    dtype = dtype_of(op.result)
    narrow = [_unwidened(v, dtype) for v in (op.lhs, op.rhs)]
    if narrow == [None, None]:
        return None
    lhs, rhs = (n or v for n, v in zip(narrow, (op.lhs, op.rhs), strict=True))
    builder.standing_for(op)
    return with_factors(builder, op, lhs, rhs, dtype)


RULES: dict[type[Operation], tuple[Rule, ...]] = {
    d.DotGeneralOp: (_scaled_operands, _widened_integers),
    d.ConvolutionOp: (_widened_integers,),
}
