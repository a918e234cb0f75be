"""Parameter expressions from operations: which values are known before the model runs."""

from __future__ import annotations

from typing import Any

from xdsl.ir import Block, Operation, SSAValue

from headrace.base.parameters import (
    ExpressionSource,
    Source,
    array_source,
    expression,
    size_bytes,
)
from headrace.ir.model import Model
from headrace.ir.types import dtype_of, shape_of
from headrace.tensor import dialect as d
from headrace.tensor.build import to_numpy
from headrace.tensor.interp import attribute_values
from headrace.tensor.reducers import reducer_kind
from headrace.tensor.rewrite import is_pure, owner

GROWTH_BYTES = 64 * 1024
"""How many bytes a folded result may be larger than the sources it comes from."""

_VIRTUAL = (d.BroadcastInDimOp, d.IotaOp)
"""Never stored themselves, but an expression may contain them: they cost no bytes."""


def known_values(block: Block) -> set[SSAValue]:
    """Values that depend on parameters and constants only, of static size."""
    known: set[SSAValue] = set()
    for operation in block.ops:
        if (
            is_pure(operation)
            and not isinstance(operation, (d.CopyOp, d.DimensionOp))
            and all(v in known for v in operation.operands)
        ):
            known.update(
                r for r in operation.results if all(s.is_constant for s in shape_of(r))
            )
    return known


def source_of(value: SSAValue, model: Model) -> Source | None:
    """The source of a parameter, a constant, or a broadcast or iota over those."""
    operation = owner(value)
    if isinstance(operation, d.ParameterOp):
        return model.parameters.get(operation.parameter.root_reference.data)
    if isinstance(operation, d.ConstantOp):
        return array_source(to_numpy(operation.value))
    if isinstance(operation, _VIRTUAL):
        return expression_of(operation, model)
    return None


def expression_of(operation: Operation, model: Model) -> ExpressionSource | None:
    """The expression for an operation whose operands all have sources.

    None where one has none, a size is symbolic, or it has no single result or a reduction
    body that is no named reducer.
    """
    if len(operation.results) != 1 or not is_pure(operation):
        return None
    result = operation.results[0]
    shape = shape_of(result)
    if not all(s.is_constant for s in shape):
        return None
    operands: list[Source] = []
    for value in operation.operands:
        source = source_of(value, model)
        if source is None:
            return None
        operands.append(source)
    try:
        attributes: dict[str, Any] = attribute_values(operation)
    except KeyError:
        return None  # an amount names a dimension
    attributes.pop("operandSegmentSizes", None)
    if operation.regions:
        kind = reducer_kind(operation)
        if kind is None:
            return None
        attributes["reducer"] = kind
    return expression(
        operation.name.removeprefix("tensor."),
        tuple(operands),
        dtype_of(result),
        tuple(s.value for s in shape),
        **attributes,
    )


def leaf_bytes(source: Source) -> int:
    """Bytes of the distinct stored tensors that an expression reads."""
    leaves: dict[str, int] = {}
    seen: set[str] = set()
    pending: list[Source] = [source]
    while pending:
        current = pending.pop()
        if current.digest in seen:
            continue
        seen.add(current.digest)
        if isinstance(current, ExpressionSource):
            pending += current.operands
        else:
            leaves[current.digest] = size_bytes(current)
    return sum(leaves.values())


def grows_too_much(source: Source) -> bool:
    """Whether storing the result would cost more than `GROWTH_BYTES` above its sources."""
    return size_bytes(source) > leaf_bytes(source) + GROWTH_BYTES


def is_weight_shared(value: SSAValue) -> bool:
    """Whether anything on the way from a known value to its parameters has another user;
    vectors and scalars do not count."""
    operation = owner(value)
    if operation is None or isinstance(operation, d.ConstantOp) or len(shape_of(value)) < 2:
        return False
    if value.uses.get_length() > 1:
        return True
    return any(is_weight_shared(v) for v in operation.operands)
