"""Quantised tensors as tensors of floats on a grid.

StableHLO defines an operation of quantised tensors as the operation of the floats they stand
for, rounded to the grid of its result; so types lose their grid here, and a custom call
`@headrace.quantize` behind each operation rounds to it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from headrace.base.dtypes import BY_NAME
from headrace.importers.hlo.tree import (
    HloFunction,
    HloModule,
    HloOperation,
    HloRegion,
    HloTensorType,
    HloTupleType,
    HloType,
)

_MOVING = ("return", "call", "while", "case", "if", "tuple", "get_tuple_element", "composite",
           "optimization_barrier")  # fmt: skip
"""Operations that hand tensors on: what is on its grid stays there."""


def without_grids(module: HloModule) -> HloModule:
    """The module with floats in place of quantised types."""
    return replace(module, functions=[_Grids().function(f) for f in module.functions])


class _Grids:
    """Rewrites one function; names that it makes have a suffix that text cannot have."""

    def function(self, function: HloFunction) -> HloFunction:
        body = self.region(function.body)
        return replace(
            function, body=body, result_types=[_plain(k) for k in function.result_types]
        )

    def region(self, region: HloRegion) -> HloRegion:
        arguments = [(name, _plain(kind)) for name, kind in region.arguments]
        operations: list[HloOperation] = []
        for operation in region.operations:
            operations += self.operation(operation)
        return HloRegion(arguments, operations)

    def operation(self, operation: HloOperation) -> list[HloOperation]:
        made = replace(
            operation,
            types=[_plain(k) for k in operation.types],
            result_types=[_plain(k) for k in operation.result_types],
            regions=[self.region(r) for r in operation.regions],
        )
        grids = [_grid(k) for k in operation.result_types]
        sources = [_grid(k) for k in operation.types]
        if not any(grids) and not any(sources):
            return [made]
        key = operation.name.rpartition(".")[2]
        match key:
            case "uniform_quantize":
                return [_call("quantize", made, grids[0])]
            case "uniform_dequantize":
                return [_call("dequantize", made, "")]
            case "bitcast_convert" if sources[0] and not grids[0]:
                return [_call("store", made, sources[0])]
            case "bitcast_convert" if grids[0] and not sources[0]:
                return [_call("restore", made, grids[0])]
            case "constant":
                return _constant(made, grids[0])
            case _ if key in _MOVING or operation.name.startswith("check."):
                return [made]
            case _:
                return _rounded(made, grids)


def _plain(kind: HloType) -> HloType:
    if isinstance(kind, HloTupleType):
        return HloTupleType(tuple(_plain(e) for e in kind.elements))
    return replace(kind, grid="") if isinstance(kind, HloTensorType) and kind.grid else kind


def _grid(kind: HloType) -> str:
    return kind.grid if isinstance(kind, HloTensorType) else ""


def _call(what: str, operation: HloOperation, grid: str) -> HloOperation:
    attributes: dict[str, Any] = {"call_target_name": f"headrace.{what}", "grid": grid}
    return replace(operation, name="stablehlo.custom_call", attributes=attributes)


def _constant(operation: HloOperation, grid: str) -> list[HloOperation]:
    """The integers as they are stored, and what they stand for."""
    kind = operation.result_types[0]
    assert isinstance(kind, HloTensorType)
    storage = grid.split(":")[0].split("<")[0]
    stored = HloTensorType(
        BY_NAME[re.sub(r"^u(?=\d)", "ui", storage)],
        kind.shape,
    )
    exact = f"{operation.results[0]}'"
    integers = replace(operation, results=[exact], result_types=[stored])
    call = _call("restore", operation, grid)
    return [integers, replace(call, operands=[exact], types=[stored])]


def _rounded(operation: HloOperation, grids: list[str]) -> list[HloOperation]:
    """The operation on floats, then each result on its grid."""
    exact = [f"{n}'" if grid else n for n, grid in zip(operation.results, grids, strict=True)]
    found = [replace(operation, results=exact)]
    for name, source, kind, grid in zip(
        operation.results, exact, operation.result_types, grids, strict=True
    ):
        if grid:
            made = HloOperation("", [source], [name], {}, [kind], [kind], operation.place)
            found.append(_call("quantize", made, grid))
    return found
