"""Constants, iotas, tuples and calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.base.parameters import array_source, expression
from headrace.importers.hlo.helpers import (
    result_type,
)
from headrace.importers.hlo.registry import Value, converter, integers_of
from headrace.importers.hlo.tree import HloOperation

if TYPE_CHECKING:
    from headrace.importers.hlo.convert import FunctionConverter


MAX_CONSTANT_ELEMENTS = 1024
"""Constants of more elements become parameters (design: weights never live in the IR)."""


@converter("constant")
def _constant(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    import numpy as np

    kind = result_type(operation)
    shape = tuple(s.value for s in kind.shape)
    array = np.asarray(operation.attributes["value"]).astype(kind.dtype.numpy_dtype, copy=False)
    count = int(np.prod(shape, dtype=np.int64))
    if array.size == 1 and count > MAX_CONSTANT_ELEMENTS:
        # A placeholder weight: bound like any other, but never spread out in memory here.
        scalar = array_source(array.reshape(()))
        source = expression(
            "broadcast_in_dim", (scalar,), kind.dtype, shape, broadcast_dimensions=()
        )
        return [at.weight(source)]
    if array.size == 1 and count != 1:
        array = np.full(shape, array.reshape(-1)[0], dtype=array.dtype)
    array = array.reshape(shape)
    if count > MAX_CONSTANT_ELEMENTS:
        return [at.weight(array_source(array))]
    return [at.builder.constant(array)]


@converter("iota")
def _iota(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    kind = result_type(operation)
    return [
        at.builder.iota(
            kind.dtype, kind.shape, integers_of(operation.attributes["iota_dimension"])[0]
        )
    ]


@converter("tuple")
def _tuple(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    return [tuple(at.values[o] for o in operation.operands)]


@converter("get_tuple_element")
def _get_tuple_element(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    value = at.values[operation.operands[0]]
    if not isinstance(value, tuple):
        raise ValueError("the operand is no tuple")
    return [value[integers_of(operation.attributes["index"])[0]]]


@converter("identity", "custom_call_identity")
def _identity(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    return [at.values[o] for o in operation.operands]


@converter("call")
def _call(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    """Inlines the callee: HLO calls are pure and not recursive."""
    callee = str(operation.attributes["callee"]).lstrip("@")
    for function in at.module.functions:
        if function.name == callee:
            outer = at.values
            at.values = {
                name: outer[operand]
                for (name, _), operand in zip(
                    function.body.arguments, operation.operands, strict=True
                )
            }
            results = at.region_values(function.body)
            at.values = outer
            return results
    raise ValueError(f"there is no function '{callee}'")
