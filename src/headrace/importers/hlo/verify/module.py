"""Verifies a module: every operation by its rule, everything wrong at once."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from headrace.base.errors import Diagnostic, Problems
from headrace.importers.hlo.tree import (
    HloFunction,
    HloModule,
    HloOperation,
    HloRegion,
    HloTensorType,
    HloType,
)
from headrace.importers.hlo.verify.grids import check_grid
from headrace.importers.hlo.verify.kinds import check_kinds
from headrace.importers.hlo.verify.rules import RULES, Refused, Scope, need, same_shape
from headrace.importers.hlo.verify.signatures import check_signature

_FAMILIES = (
    "chlo", "collectives", "contraction", "control", "dynamic", "elementwise", "gather",
    "movement", "reduction", "windows", "calls",
)  # fmt: skip


def _load_rules() -> None:
    for name in _FAMILIES:
        importlib.import_module(f"headrace.importers.hlo.verify.{name}")


def verify_module(module: HloModule) -> None:
    """Refuses a module that breaks a rule of StableHLO or CHLO.

    Operations of other dialects have no rules here.

    Raises:
        HeadraceError HR1102: each operation that breaks a rule, with its place.
    """
    _load_rules()
    problems = Problems()
    functions = {f.name: f for f in module.functions}
    for function in module.functions:
        _Verifier(module, Scope(functions), problems).function(function)
    problems.raise_if_any()


class _Verifier:
    def __init__(self, module: HloModule, scope: Scope, problems: Problems) -> None:
        self.module = module
        self.scope = scope
        self.problems = problems

    def function(self, function: HloFunction) -> None:
        try:
            for _, kind in function.body.arguments:
                _check_type(kind)
            if function.has_body:
                _check_return(function)
        except Refused as wrong:
            self.refuse(f"'@{function.name}'", function.place, str(wrong))
        self.region(function.body)

    def region(self, region: HloRegion) -> None:
        for operation in region.operations:
            self.operation(operation)

    def operation(self, operation: HloOperation) -> None:
        if operation.name.endswith(".constant") and operation.results:
            self.scope.constants[operation.results[0]] = operation.attributes.get("value")
        for region in operation.regions:
            self.region(region)
        try:
            for kind in operation.result_types:
                _check_type(kind)
            check_signature(operation)
            check_kinds(operation)
            rule = RULES.get(operation.name)
            if rule is not None:
                rule(operation, self.scope)
        except Refused as wrong:
            self.refuse(f"'{operation.name}'", operation.place, str(wrong))

    def refuse(self, what: str, place: str, reason: str) -> None:
        fact = f"{what} is not well formed: {reason}"
        self.problems.add(Diagnostic("HR1102", fact, (f"{self.module.source}: {place}",)))


def _check_return(function: HloFunction) -> None:
    operations = function.body.operations
    need(bool(operations), "the body is empty")
    last = operations[-1]
    need(last.name.endswith("return"), "the body does not end with a return")
    need(
        _fit(last.types, function.result_types),
        "what the body returns is not what the signature says",
    )
    inner = [op for op in operations[:-1] if op.name == "func.return"]
    need(not inner, "operations stand behind a return")


def _fit(given: Sequence[HloType], wanted: Sequence[HloType]) -> bool:
    return len(given) == len(wanted) and all(a == b for a, b in zip(given, wanted, strict=True))


def _check_type(kind: HloType) -> None:
    if not isinstance(kind, HloTensorType):
        return
    if kind.grid:
        check_grid(kind)
    if kind.encoding.startswith("#stablehlo.bounds"):
        need(len(kind.bounds) == len(kind.shape), f"{kind} has another number of bounds")
        for size, bound in zip(kind.shape, kind.bounds, strict=True):
            need(
                bound is None or not size.is_constant,
                f"{kind} bounds a size that is known",
            )
    need(same_shape(kind, kind), f"{kind} is no type")
