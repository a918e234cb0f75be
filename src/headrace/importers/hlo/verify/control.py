"""Rules of control flow and of tuples."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.importers.hlo.tree import HloOperation, HloTensorType, HloTupleType, HloType
from headrace.importers.hlo.verify.rules import (
    Scope,
    is_token,
    natural,
    need,
    returned,
    rule,
    same_element,
    same_shape,
)


def agree(a: HloType, b: HloType) -> bool:
    """Whether two types may be the same when run."""
    if isinstance(a, HloTensorType) and isinstance(b, HloTensorType):
        return same_shape(a, b) and same_element(a, b)
    if isinstance(a, HloTupleType) and isinstance(b, HloTupleType):
        return len(a.elements) == len(b.elements) and all(map(agree, a.elements, b.elements))
    tensors = [str(k).startswith("tensor<") for k in (a, b)]
    return all(tensors) or a == b


def _all_agree(a: Sequence[HloType], b: Sequence[HloType]) -> bool:
    return len(a) == len(b) and all(map(agree, a, b))


@rule("if", "case")
def _branches(operation: HloOperation, _: Scope) -> None:
    condition = operation.types[0]
    need(isinstance(condition, HloTensorType) and not condition.shape, f"the choice is a {condition}")  # fmt: skip
    if operation.name.endswith("case"):
        need(str(condition) == "tensor<i32>", f"the choice is a {condition}, not a tensor<i32>")
    need(bool(operation.regions), "there is no branch")
    first = returned(operation.regions[0])
    for n, region in enumerate(operation.regions):
        need(not region.arguments, f"branch {n} takes {len(region.arguments)} arguments")
        need(_all_agree(returned(region), first), f"branches 0 and {n} return different types")
    need(_all_agree(first, operation.result_types), "results are not what the branches return")


@rule("while")
def _while(operation: HloOperation, _: Scope) -> None:
    condition, body = operation.regions
    for what, region in (("condition", condition), ("body", body)):
        given = [kind for _, kind in region.arguments]
        need(_all_agree(given, operation.types), f"the {what} takes other types than are given")
    made = returned(condition)
    single = len(made) == 1 and str(made[0]) == "tensor<i1>"
    need(single, "the condition returns no single tensor<i1>")
    need(
        _all_agree(returned(body), operation.types),
        "the body returns other types than it takes",
    )
    need(_all_agree(operation.types, operation.result_types), "results are not what is carried")


@rule("tuple")
def _tuple(operation: HloOperation, _: Scope) -> None:
    kind = operation.result_types[0]
    inside = kind.elements if isinstance(kind, HloTupleType) else ()
    need(isinstance(kind, HloTupleType), f"the result is a {kind}")
    need(_all_agree(operation.types, inside), f"the operands make no {kind}")


@rule("get_tuple_element")
def _get_tuple_element(operation: HloOperation, _: Scope) -> None:
    index = natural(operation, "index")
    kind = operation.types[0]
    inside = kind.elements if isinstance(kind, HloTupleType) else ()
    need(isinstance(kind, HloTupleType), f"the operand is a {kind}")
    need(index < len(inside), f"element {index} of {len(inside)}")
    need(
        agree(inside[index], operation.result_types[0]), f"element {index} is a {inside[index]}"
    )


@rule("after_all")
def _after_all(operation: HloOperation, _: Scope) -> None:
    need(all(map(is_token, operation.types)), "an operand is no token")
    need(is_token(operation.result_types[0]), "the result is no token")


@rule("create_token")
def _create_token(operation: HloOperation, _: Scope) -> None:
    need(is_token(operation.result_types[0]), "the result is no token")
