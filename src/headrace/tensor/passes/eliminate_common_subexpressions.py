"""Computes equal things once.

Two operations are equal when name, operands, properties and result types are; reductions
when their bodies are the same named reducer too. Two parameters with equal sources are
one, so equal weights become one whatever their names.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from xdsl.ir import Operation

from headrace.ir.locations import fused_location
from headrace.ir.model import Model
from headrace.ir.passes import Pass
from headrace.tensor import dialect as d
from headrace.tensor.reducers import reducer_kind
from headrace.tensor.rewrite import functions, is_pure, replace


@dataclass(frozen=True)
class EliminateCommonSubexpressions(Pass):
    """One walk with a table of what is known."""

    def run(self, model: Model) -> None:
        for _function, block in functions(model):
            known: dict[Hashable, Operation] = {}
            places: dict[Operation, list[Operation]] = {}
            for operation in list(block.ops):
                key = _key(operation, model)
                if key is None:
                    continue
                first = known.setdefault(key, operation)
                if first is operation:
                    continue
                if operation.operands:
                    places.setdefault(first, [first]).append(operation)
                replace(operation, list(first.results))
            # Fused once at the end: pair by pair it is quadratic in equal operations.
            for first, same in places.items():
                first.location = fused_location(same)


def _key(operation: Operation, model: Model) -> Hashable | None:
    if not is_pure(operation) or isinstance(operation, (d.CopyOp, *d.CONTROL)):
        return None
    if isinstance(operation, d.ParameterOp):
        name = operation.parameter.root_reference.data
        source = model.parameters.get(name)
        return ("parameter", source.digest if source else name, operation.result.type)
    body: str | None = None
    if operation.regions:
        body = reducer_kind(operation)
        if body is None:
            return None
    return (
        operation.name,
        body,
        tuple(id(v) for v in operation.operands),
        tuple(sorted(operation.properties.items(), key=lambda item: item[0])),
        tuple(r.type for r in operation.results),
    )
