"""Moves reshapes behind elementwise operations, so that these stay with what they follow.

A product of [batch*seq, n] that is reshaped to [batch, seq, n] before its bias would
otherwise store with divisions; behind bias and activation the reshape costs nothing::

    add(reshape(dot), broadcast(bias))   becomes   reshape(add(dot, broadcast(bias)))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint

from headrace.base.symbols import ONE, Expr
from headrace.flow.lowering.indexing import matching_groups
from headrace.flow.lowering.operations import (
    integers,
    is_elementwise,
    is_reduction,
    scalar_constant,
)
from headrace.ir.model import Model
from headrace.ir.passes import Pass
from headrace.ir.types import dtype_of, shape_of, tensor_type
from headrace.tensor import dialect as t
from headrace.tensor.build import TensorBuilder, to_numpy


@dataclass(frozen=True)
class SinkReshapes(Pass):
    """Moves a reshape of something computed behind the elementwise operations that use it,
    where their other operands have the earlier shape for nothing."""

    def run(self, model: Model) -> None:
        for function in model.ir.ops:
            if not isinstance(function, FuncOp):
                continue
            for operation in list(function.body.block.ops):
                if isinstance(operation, t.ReshapeOp):
                    _join(operation)
                elif is_elementwise(operation):
                    _sink(operation)
            _erase_unused(function)


def _join(operation: t.ReshapeOp) -> None:
    """Two reshapes in a row are one, or none."""
    inner = operation.operand.owner
    if not isinstance(inner, t.ReshapeOp):
        return
    if shape_of(inner.operand) == shape_of(operation.result):
        operation.result.replace_all_uses_with(inner.operand)
    else:
        operation.operands[0] = inner.operand


def _sink(operation: Operation) -> None:
    source = _computed_shape(operation)
    if source is None:
        return
    build = TensorBuilder(InsertPoint.before(operation), operation.location)
    before: list[SSAValue] = []
    for value in operation.operands:
        made = _in_shape(build, value, source)
        if made is None:
            return
        before.append(made)
    result = operation.results[0]
    moved = type(operation).create(
        operands=before,
        result_types=[tensor_type(dtype_of(result), source)],
        properties=operation.properties,
    )
    build.insert(moved)
    result.replace_all_uses_with(build.reshape(moved.results[0], shape_of(result)))


def _computed_shape(operation: Operation) -> tuple[Expr, ...] | None:
    """The shape that an operand had when a dispatch computed it."""
    for value in operation.operands:
        reshape = value.owner
        if not isinstance(reshape, t.ReshapeOp):
            continue
        maker = reshape.operand.owner
        if isinstance(maker, Operation) and (is_reduction(maker) or is_elementwise(maker)):
            return shape_of(reshape.operand)
    return None


def _in_shape(
    build: TensorBuilder, value: SSAValue, source: tuple[Expr, ...]
) -> SSAValue | None:
    """The value in the earlier shape, None where that would cost something."""
    owner = value.owner
    constant = scalar_constant(value)
    if constant is not None and isinstance(constant.owner, t.ConstantOp):
        scalar = to_numpy(constant.owner.value).reshape(-1)[:1].reshape(())
        return build.broadcast_in_dim(build.constant(np.array(scalar)), (), source)
    if isinstance(owner, t.ReshapeOp) and shape_of(owner.operand) == source:
        return owner.operand
    if isinstance(owner, t.BroadcastInDimOp):
        dims = _dims_in_shape(owner, source)
        return None if dims is None else build.broadcast_in_dim(owner.operand, dims, source)
    if not isinstance(owner, Operation) or is_reduction(owner):
        return build.reshape(value, source)
    return None


def _dims_in_shape(
    broadcast: t.BroadcastInDimOp, source: Sequence[Expr]
) -> tuple[int, ...] | None:
    """Where the operand's dimensions go in the earlier shape, None where they are cut."""
    groups = matching_groups(shape_of(broadcast.result), source)
    if groups is None:
        return None
    moved: dict[int, int] = {}
    for after, earlier in groups:
        if len(after) == len(earlier) == 1:
            moved[after[0]] = earlier[0]
    operand = shape_of(broadcast.operand)
    dims: list[int] = []
    for size, place in zip(operand, integers(broadcast.broadcast_dimensions), strict=True):
        if place not in moved or size == ONE:
            return None
        dims.append(moved[place])
    return tuple(dims) if dims == sorted(dims) else None


def _erase_unused(function: FuncOp) -> None:
    block = function.body.block
    for operation in reversed(list(block.ops)):
        if operation is not block.last_op and not any(r.uses for r in operation.results):
            operation.detach()
            operation.erase()
