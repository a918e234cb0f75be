"""Reductions over nothing, and reductions that start at a computed value."""

from __future__ import annotations

from typing import cast

import numpy as np
from xdsl.ir import Operation, SSAValue

from headrace.base.dtypes import DType
from headrace.base.symbols import ONE
from headrace.ir.types import dtype_of, shape_of
from headrace.tensor import dialect as d
from headrace.tensor.reducers import reducer_kind
from headrace.tensor.rewrite import RewriteBuilder, Rule, splat_value


def neutral(kind: str, dtype: DType) -> object | None:
    """What a named reducer leaves alone, as a numpy scalar; None where there is none."""
    numpy_dtype = dtype.numpy_dtype
    if kind == "add":
        return numpy_dtype.type(0)
    if kind == "multiply":
        return numpy_dtype.type(1)
    if kind in ("maximum", "minimum"):
        if dtype.is_float and dtype.bits >= 16:
            return numpy_dtype.type(-np.inf if kind == "maximum" else np.inf)
        if dtype.is_integer and dtype.bits >= 8:
            limits = np.iinfo(numpy_dtype)
            return numpy_dtype.type(limits.min if kind == "maximum" else limits.max)
        return None
    return numpy_dtype.type(0) if kind in ("or", "xor") else None


def _reduce(operation: Operation, builder: RewriteBuilder) -> SSAValue | None:
    """Over dimensions of size 1, from the neutral value: a reshape."""
    op = cast(d.ReduceOp, operation)
    kind = reducer_kind(op)
    if kind is None:
        return None
    source = shape_of(op.inputs[0])
    if any(source[int(n)] != ONE for n in op.dimensions.get_values()):
        return None
    start, wanted = splat_value(op.init_values[0]), neutral(kind, dtype_of(op.inputs[0]))
    if start is None or wanted is None or bool(start != wanted):
        return None
    return builder.reshape(op.inputs[0], shape_of(op.results[0]))


def _constant_start(operation: Operation, builder: RewriteBuilder) -> SSAValue | None:
    """A computed start is combined afterwards: kernels fold from constants.

    The order of folding is free, so this is as exact as the reduction itself.
    """
    op = cast(d.ReduceOp, operation)
    kind = reducer_kind(op)
    if kind is None or splat_value(op.init_values[0]) is not None:
        return None
    start, dtype = op.init_values[0], dtype_of(op.inputs[0])
    wanted = neutral(kind, dtype)
    if wanted is None:
        return None
    dims = [int(n) for n in op.dimensions.get_values()]
    (folded,) = builder.reduce(op.inputs[0], builder.scalar(wanted, dtype), dims, kind)
    spread = builder.broadcast_in_dim(start, (), shape_of(folded))
    return builder.binary(kind, folded, spread)


RULES: dict[type[Operation], tuple[Rule, ...]] = {d.ReduceOp: (_reduce, _constant_start)}
