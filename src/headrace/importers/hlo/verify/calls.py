"""Rules of calls, of composites and of custom calls."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from headrace.importers.hlo.registry import integers_of
from headrace.importers.hlo.tree import (
    HloFunction,
    HloOperation,
    HloTensorType,
    HloTupleType,
    HloType,
)
from headrace.importers.hlo.verify.control import agree
from headrace.importers.hlo.verify.rules import Refused, Scope, fit_shape, need, rule

_OPERATION_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_][\w$.]*)+")


def _callee(name: Any, scope: Scope) -> HloFunction:
    found = scope.functions.get(str(name).lstrip("@"))
    if found is None:
        raise Refused(f"there is no function '{name}'")
    return found


def _calls(operation: HloOperation, callee: HloFunction) -> None:
    taken = [kind for _, kind in callee.body.arguments]
    for what, given, wanted in (
        ("operands", operation.types, taken),
        ("results", operation.result_types, callee.result_types),
    ):
        need(
            len(given) == len(wanted),
            f"'{callee.name}' has {len(wanted)} {what}, and {len(given)} are given",
        )
        for n, (a, b) in enumerate(zip(given, wanted, strict=True)):
            need(a == b, f"of the {what}, number {n} is a {a}, not a {b}")


@rule("func.call")
def _call(operation: HloOperation, scope: Scope) -> None:
    if "callee" not in operation.attributes:
        raise Refused("the attribute 'callee' is missing")
    _calls(operation, _callee(operation.attributes["callee"], scope))


@rule("composite")
def _composite(operation: HloOperation, scope: Scope) -> None:
    name = str(operation.attributes["name"])
    need(_OPERATION_NAME.fullmatch(name) is not None, f"'{name}' is no name of an operation")
    _calls(operation, _callee(operation.attributes["decomposition"], scope))


# -- custom calls ------------------------------------------------------------------------------


@rule("custom_call")
def _custom_call(operation: HloOperation, scope: Scope) -> None:
    a = operation.attributes
    _layouts(operation)
    _aliases(operation)
    _shapes(operation, scope)
    version = _VERSIONS.get(a.get("api_version"), a.get("api_version"))
    config = a.get("backend_config")
    if version == 4:
        need(config is None or isinstance(config, dict), "the configuration is no dictionary")
    elif version in (1, 2, 3):
        need(config is None or isinstance(config, str), "the configuration is no string")


_VERSIONS: dict[Any, int] = {}


def _shapes(operation: HloOperation, scope: Scope) -> None:
    """Operands that hold the shapes of results, where an attribute names them."""
    given = operation.attributes.get("indices_of_shape_operands")
    if given is None:
        return
    shape, dtype = getattr(given, "shape", ()), getattr(given, "dtype", None)
    need(
        len(shape) == 1 and dtype == "int64", "'indices_of_shape_operands' is no tensor<?xi64>"
    )
    places = integers_of(given)
    if any(isinstance(k, HloTupleType) for k in operation.result_types):
        return
    need(len(places) == len(operation.result_types), f"{len(places)} shapes are given")
    for place, kind in zip(places, operation.result_types, strict=True):
        need(0 <= place < len(operation.types), f"operand {place} of {len(operation.types)}")
        sizes = scope.integers(operation.operands[place])
        if sizes is not None:
            need(fit_shape(list(sizes), kind), f"the shape {sizes} is not that of {kind}")


def _layouts(operation: HloOperation) -> None:
    given = [operation.attributes.get(f"{n}_layouts") for n in ("operand", "result")]
    if given == [None, None]:
        return
    need(None not in given, "layouts of operands need layouts of results")
    results: Sequence[HloType] = operation.result_types
    if len(results) == 1 and isinstance(results[0], HloTupleType):
        results = results[0].elements
    for what, kinds, layouts in (
        ("operand", operation.types, given[0]),
        ("result", results, given[1]),
    ):
        assert layouts is not None
        need(not any(isinstance(k, HloTupleType) for k in kinds), "tuples have no layouts")
        need(
            len(kinds) == len(layouts), f"{len(layouts)} layouts stand for {len(kinds)} {what}s"
        )
        for n, (kind, layout) in enumerate(zip(kinds, layouts, strict=True)):
            order = integers_of(layout)
            if not isinstance(kind, HloTensorType):
                need(not order, f"{what} {n} is a {kind}, which has no layout")
                continue
            need(
                sorted(order) == list(range(len(kind.shape))), f"{order} is no layout of {kind}"
            )


def _aliases(operation: HloOperation) -> None:
    for alias in operation.attributes.get("output_operand_aliases", []):
        if not isinstance(alias, dict):
            continue
        place = alias.get("operand_index", 0)
        need(0 <= place < len(operation.types), f"operand {place} of {len(operation.types)}")
        source = _part(
            operation.types[place], integers_of(alias.get("operand_tuple_indices", []))
        )
        results = operation.result_types
        whole = results[0] if len(results) == 1 else HloTupleType(tuple(results))
        target = _part(whole, integers_of(alias.get("output_tuple_indices", [])))
        need(agree(source, target), f"a {source} is no alias of a {target}")


def _part(kind: HloType, places: Sequence[int]) -> HloType:
    for place in places:
        inside = kind.elements if isinstance(kind, HloTupleType) else ()
        need(0 <= place < len(inside), f"{kind} has no element {place}")
        kind = inside[place]
    return kind
