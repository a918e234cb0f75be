"""Elementwise operations that do nothing, or are another, cheaper one.

Exact in the values, with two licences that XLA takes as well: adding +0 may keep a -0, and
powers become products and roots (1/2: at -0 and -infinity the root differs; 3: two
roundings instead of a library's one).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
from xdsl.ir import Operation, SSAValue

from headrace.base.dtypes import DType
from headrace.ir.types import dtype_of, shape_of
from headrace.tensor import dialect as d
from headrace.tensor.rewrite import (
    RewriteBuilder,
    Rule,
    is_constant_like,
    is_splat_of,
    owner,
    splat_value,
)

_COMMUTATIVE = (
    d.AddOp, d.AndOp, d.MaximumOp, d.MinimumOp, d.MultiplyOp, d.OrOp, d.XorOp,
)  # fmt: skip


def holds(wide: DType, narrow: DType) -> bool:
    """Whether `wide` represents every value of `narrow` exactly."""
    if wide == narrow or narrow.kind == "bool":
        return True
    if wide.kind == "complex" or narrow.kind == "complex" or wide.kind == "bool":
        return False
    if wide.is_integer:
        if not narrow.is_integer:
            return False
        if wide.kind == narrow.kind:
            return wide.bits >= narrow.bits
        return wide.kind == "signed" and wide.bits > narrow.bits
    if narrow.is_integer:
        significand = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}.get(wide.name, 0)
        # f16 reaches 65504: 11-bit integers are the widest it holds whole anyway.
        return significand >= narrow.bits
    if narrow.name == "f8E8M0FNU" and wide.name == "f16":
        return False  # powers of two up to 2**127
    standard = {"f64": 3, "f32": 2, "f16": 1, "bf16": 1}
    return standard.get(wide.name, 0) > standard.get(narrow.name, 0 if narrow.bits <= 8 else 9)


def _convert(operation: Operation, builder: RewriteBuilder) -> SSAValue | None:
    op = cast(d.ConvertOp, operation)
    target = dtype_of(op.result)
    if dtype_of(op.operand) == target:
        return op.operand
    inner = owner(op.operand)
    if isinstance(inner, d.ConvertOp):
        source, middle = dtype_of(inner.operand), dtype_of(op.operand)
        # i32 -> f64 -> i8 saturates, i32 -> i8 wraps: only where neither can happen.
        through_float = middle.is_float and source.is_integer and target.is_integer
        if holds(middle, source) and (not through_float or holds(target, source)):
            return builder.standing_for(inner, op).convert(inner.operand, target)
    return None


def _double(kind: type[Operation]) -> Rule:
    """An operation that undoes itself."""

    def rule(operation: Operation, builder: RewriteBuilder) -> SSAValue | None:
        inner = owner(operation.operands[0])
        return inner.operands[0] if isinstance(inner, kind) else None

    return rule


def _idempotent(operation: Operation, builder: RewriteBuilder) -> SSAValue | None:
    """`f(f(x))` and `f(x, x)` where f is a maximum, a rounding, an absolute value."""
    if len(operation.operands) == 2:
        x, y = operation.operands
        return x if x is y else None
    inner = owner(operation.operands[0])
    return operation.operands[0] if type(inner) is type(operation) else None


def _order(operation: Operation, builder: RewriteBuilder) -> SSAValue | None:
    """Constants go to the right of what commutes."""
    x, y = operation.operands
    if is_constant_like(x) and not is_constant_like(y):
        return builder.binary(operation.name.removeprefix("tensor."), y, x)
    return None


def _add(operation: Operation, builder: RewriteBuilder) -> SSAValue | None:
    x, y = operation.operands
    if dtype_of(x).kind == "bool":
        return None
    if is_splat_of(y, 0):
        return x
    inner = owner(y)
    if isinstance(inner, d.NegateOp):
        return builder.standing_for(inner, operation).binary("subtract", x, inner.operand)
    return None


def _subtract(operation: Operation, builder: RewriteBuilder) -> SSAValue | None:
    x, y = operation.operands
    if is_splat_of(y, 0):
        return x
    inner = owner(y)
    if isinstance(inner, d.NegateOp):
        return builder.standing_for(inner, operation).binary("add", x, inner.operand)
    return None


def _multiply(operation: Operation, builder: RewriteBuilder) -> SSAValue | None:
    x, y = operation.operands
    kind = dtype_of(x)
    if kind.kind == "bool":
        return None
    if is_splat_of(y, 1):
        return x
    if is_splat_of(y, -1):
        return builder.unary("negate", x)
    if kind.is_integer and is_splat_of(y, 0):
        return y
    return None


def _divide(operation: Operation, builder: RewriteBuilder) -> SSAValue | None:
    x, y = operation.operands
    if is_splat_of(y, 1):
        return x
    kind = dtype_of(x)
    divisor = splat_value(y)
    if not kind.is_float or divisor is None:
        return None
    # Only a power of two has an exact reciprocal; it must also be a normal number.
    number = float(divisor)
    fraction, exponent = np.frexp(number)
    if abs(float(fraction)) != 0.5 or not np.isfinite(number) or abs(int(exponent)) > 13:
        return None
    reciprocal = builder.splat(1.0 / number, kind, shape_of(x))
    return builder.binary("multiply", x, reciprocal)


def _power(operation: Operation, builder: RewriteBuilder) -> SSAValue | None:
    x, y = operation.operands
    exponent = splat_value(y)
    if exponent is None:
        return None
    kind = dtype_of(x)
    if exponent == 1:
        return x
    if exponent == 2:
        return builder.binary("multiply", x, x)
    if exponent == 3:
        return builder.binary("multiply", builder.binary("multiply", x, x), x)
    if exponent == 0:
        return builder.splat(1, kind, shape_of(x))
    if kind.is_float and exponent == 0.5:
        return builder.unary("sqrt", x)
    if kind.is_float and exponent == -1:
        return builder.binary("divide", builder.splat(1, kind, shape_of(x)), x)
    return None


def _logical(operation: Operation, builder: RewriteBuilder) -> SSAValue | None:
    """`and` with all ones, `or` and `xor` with zero."""
    x, y = operation.operands
    if isinstance(operation, d.AndOp):
        ones = True if dtype_of(x).kind == "bool" else -1
        if dtype_of(x).kind != "unsigned" and is_splat_of(y, ones):
            return x
        return y if is_splat_of(y, 0) else None
    return x if is_splat_of(y, 0) else None


def _select(operation: Operation, builder: RewriteBuilder) -> SSAValue | None:
    op = cast(d.SelectOp, operation)
    if op.on_true is op.on_false:
        return op.on_true
    known = splat_value(op.predicate)
    if known is not None:
        return op.on_true if bool(known) else op.on_false
    inner = owner(op.predicate)
    if isinstance(inner, d.NotOp):
        return builder.standing_for(inner, op).select(inner.operand, op.on_false, op.on_true)
    return None


# -- operations of broadcasts ------------------------------------------------------------


def _broadcast_source(value: SSAValue) -> d.BroadcastInDimOp | None:
    operation = owner(value)
    return operation if isinstance(operation, d.BroadcastInDimOp) else None


def _behind_broadcast(operation: Operation, builder: RewriteBuilder) -> SSAValue | None:
    """An elementwise operation of broadcasts is the broadcast of one on less data."""
    found = [_broadcast_source(v) for v in operation.operands]
    broadcasts = [b for b in found if b is not None]
    if len(broadcasts) != len(found) or not broadcasts:
        return None
    pattern = max(broadcasts, key=lambda b: len(shape_of(b.operand)))
    dims = [int(v) for v in pattern.broadcast_dimensions.get_values()]
    shape = shape_of(pattern.operand)
    narrow: list[SSAValue] = []
    for broadcast in broadcasts:
        own = [int(v) for v in broadcast.broadcast_dimensions.get_values()]
        if own == dims and shape_of(broadcast.operand) == shape:
            narrow.append(broadcast.operand)
        elif not shape_of(broadcast.operand):
            narrow.append(builder.broadcast_in_dim(broadcast.operand, (), shape))
        else:
            return None
    computed = rebuild_elementwise(operation, narrow, builder)
    return builder.broadcast_in_dim(computed, dims, shape_of(operation.results[0]))


def _behind_reshape(operation: Operation, builder: RewriteBuilder) -> SSAValue | None:
    """An elementwise operation of reshapes (and splats) is the reshape of one.

    It then stands beside what computes its operand, and a `[b, s] -> [b, s, 1] -> [b, s]`
    around the mean of a layer norm cancels.
    """
    found = [owner(v) for v in operation.operands]
    shapes = {shape_of(o.operand) for o in found if isinstance(o, d.ReshapeOp)}
    if len(shapes) != 1:
        return None
    (shape,) = shapes
    moved: list[SSAValue] = []
    for producer in found:
        if isinstance(producer, d.ReshapeOp):
            moved.append(producer.operand)
        elif isinstance(producer, d.BroadcastInDimOp) and not shape_of(producer.operand):
            moved.append(builder.broadcast_in_dim(producer.operand, (), shape))
        else:
            return None
    computed = rebuild_elementwise(operation, moved, builder)
    return builder.reshape(computed, shape_of(operation.results[0]))


def rebuild_elementwise(
    operation: Operation, operands: list[SSAValue], builder: RewriteBuilder
) -> SSAValue:
    """The same elementwise operation on operands of another shape."""
    name = operation.name.removeprefix("tensor.")
    if isinstance(operation, d.ConvertOp):
        return builder.convert(operands[0], dtype_of(operation.result))
    if isinstance(operation, d.BitcastConvertOp):
        return builder.bitcast_convert(operands[0], dtype_of(operation.result))
    if isinstance(operation, d.CompareOp):
        return builder.compare(operation.direction.data, *operands)
    if isinstance(operation, d.SelectOp):
        return builder.select(*operands)
    if isinstance(operation, d.ClampOp):
        return builder.clamp(*operands)
    make: Callable[..., SSAValue] = (
        builder.unary if isinstance(operation, d.UnaryOp) else builder.binary
    )
    return make(name, *operands)


_OWN: dict[type[Operation], tuple[Rule, ...]] = {
    d.ConvertOp: (_convert,),
    d.NegateOp: (_double(d.NegateOp),),
    d.NotOp: (_double(d.NotOp),),
    d.AbsOp: (_idempotent,),
    d.CeilOp: (_idempotent,),
    d.FloorOp: (_idempotent,),
    d.RoundNearestAfzOp: (_idempotent,),
    d.RoundNearestEvenOp: (_idempotent,),
    d.AddOp: (_add,),
    d.SubtractOp: (_subtract,),
    d.MultiplyOp: (_multiply,),
    d.DivideOp: (_divide,),
    d.PowerOp: (_power,),
    d.MaximumOp: (_idempotent,),
    d.MinimumOp: (_idempotent,),
    d.AndOp: (_idempotent, _logical),
    d.OrOp: (_idempotent, _logical),
    d.XorOp: (_logical,),
    d.SelectOp: (_select,),
}

RULES: dict[type[Operation], tuple[Rule, ...]] = {
    kind: (
        *((_order,) if kind in _COMMUTATIVE else ()),
        *_OWN.get(kind, ()),
        *(() if kind is d.CopyOp else (_behind_broadcast, _behind_reshape)),
    )
    for kind in d.TENSOR_OPERATIONS
    if issubclass(kind, d.ElementwiseOp)
}
