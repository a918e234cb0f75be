"""Operations between processes, where there is one process: it is alone in every group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.base.dtypes import BY_NAME
from headrace.importers.hlo.helpers import result_type
from headrace.importers.hlo.registry import Unsupported, Value, converter, integers_of
from headrace.importers.hlo.tree import HloOperation
from headrace.ir.types import dtype_of, shape_of

if TYPE_CHECKING:
    from headrace.importers.hlo.convert import FunctionConverter


@converter(
    "all_gather", "all_reduce", "all_to_all", "collective_broadcast", "collective_reduce",
    "cross-replica-sum", "reduce_scatter",
)  # fmt: skip
def _together(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    """Of a group of one every result is the operand, in the result's type.

    Raises:
        Unsupported: a group has more members, so there are more processes.
    """
    groups: Any = operation.attributes.get("replica_groups")
    members = integers_of(groups) if getattr(groups, "ndim", 0) == 2 else []
    if any(member > 0 for member in members):
        raise Unsupported(f"processes {members} work together, and one runs here")
    count = len(operation.results)
    values = [at.operand(operation, n) for n in range(count)]
    kinds = [result_type(operation, n) for n in range(count)]
    return [at.builder.convert(v, k.dtype) for v, k in zip(values, kinds, strict=True)]


@converter("collective_permute")
def _permute(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    """From process 0 to itself, or from nobody: then zeros."""
    flat = integers_of(operation.attributes["source_target_pairs"])
    if any(flat):
        raise Unsupported("processes exchange values, and one runs here")
    value = at.operand(operation, 0)
    return [value if flat else at.builder.splat(0, dtype_of(value), shape_of(value))]


@converter("partition_id", "replica_id")
def _number(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    return [at.builder.scalar(0, BY_NAME["ui32"])]


@converter("after_all", "create_token")
def _token(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    """Tokens order effects, and there are none: they hold nothing."""
    return [()]


@converter("send", "recv", "infeed", "outfeed")
def _channel(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    raise Unsupported("nothing stands at the other end: inputs and outputs are the function's")
