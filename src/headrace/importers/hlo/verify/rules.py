"""What rules share: the table of rules, types seen from a rule, facts that are refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from headrace.base.dtypes import DType
from headrace.importers.hlo.registry import integers_of
from headrace.importers.hlo.tree import (
    HloFunction,
    HloOpaqueType,
    HloOperation,
    HloRegion,
    HloTensorType,
    HloType,
)

Sizes: TypeAlias = list["int | None"]
"""Sizes of dimensions; None where only a run knows."""


class Refused(ValueError):
    """An operation breaks a rule; the text says which, in lower case."""


@dataclass
class Scope:
    """What a rule may see beside its operation.

    Attributes:
        functions: of the module, by name.
        constants: values that constants yield, by name.
    """

    functions: Mapping[str, HloFunction]
    constants: dict[str, Any] = field(default_factory=dict[str, Any])

    def integers(self, name: str) -> list[int] | None:
        """The integers that a value certainly holds."""
        value = self.constants.get(name)
        if (
            value is None
            or getattr(value, "dtype", None) is None
            or value.dtype.kind not in "iu"
        ):
            return None
        return integers_of(value)


Rule: TypeAlias = Callable[[HloOperation, Scope], None]

RULES: dict[str, Rule] = {}
"""The rule of each operation, under its whole name."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule; names without a dialect are StableHLO's."""

    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name if "." in name else f"stablehlo.{name}"] = function
        return function

    return register


def need(holds: bool, fact: str) -> None:
    """Refuses where a condition does not hold."""
    if not holds:
        raise Refused(fact)


# -- types -----------------------------------------------------------------------------------


def sizes_of(kind: HloType) -> Sizes:
    if not isinstance(kind, HloTensorType):
        raise Refused(f"a {kind} is no tensor")
    return [s.value if s.is_constant else None for s in kind.shape]


def tensor(kinds: Sequence[HloType], index: int, what: str) -> HloTensorType:
    kind = kinds[index]
    if not isinstance(kind, HloTensorType):
        raise Refused(f"{what} {index} is a {kind}, not a tensor")
    return kind


def operand(operation: HloOperation, index: int) -> HloTensorType:
    return tensor(operation.types, index, "operand")


def result(operation: HloOperation, index: int = 0) -> HloTensorType:
    return tensor(operation.result_types, index, "result")


def known(operation: HloOperation) -> bool:
    """Whether every operand and result is a tensor of known rank."""
    kinds = (*operation.types, *operation.result_types)
    return all(isinstance(k, HloTensorType) for k in kinds)


def is_unranked(kind: HloType) -> bool:
    return isinstance(kind, HloOpaqueType) and kind.text.startswith("tensor<*")


def is_token(kind: HloType) -> bool:
    return isinstance(kind, HloOpaqueType) and kind.text.startswith("!stablehlo.token")


def fits(a: int | None, b: int | None) -> bool:
    return a is None or b is None or a == b


def same_shape(a: HloType, b: HloType) -> bool:
    """Whether two types may have the same shape when run."""
    if is_unranked(a) or is_unranked(b):
        return True
    x, y = sizes_of(a), sizes_of(b)
    if len(x) != len(y) or not all(map(fits, x, y)):
        return False
    assert isinstance(a, HloTensorType) and isinstance(b, HloTensorType)
    bounds = list(zip(a.bounds, b.bounds, strict=False)) if a.encoding or b.encoding else []
    return not any(
        (p is not None and v is not None and v > p)
        or (q is not None and u is not None and u > q)
        for (p, q), u, v in zip(bounds, x, y, strict=False)
    )


def fit_shape(found: Sizes, kind: HloType) -> bool:
    """Whether a computed shape is one that a type allows."""
    if is_unranked(kind):
        return True
    wanted = sizes_of(kind)
    return len(found) == len(wanted) and all(map(fits, found, wanted))


def shown(sizes: Sizes) -> str:
    return "[" + ", ".join("?" if s is None else str(s) for s in sizes) + "]"


def same_element(a: HloTensorType, b: HloTensorType) -> bool:
    """Whether elements are the same, but for the grid of quantised ones."""
    if a.grid or b.grid:
        return bool(a.grid) == bool(b.grid) and a.dtype == b.dtype and storage(a) == storage(b)
    return a.dtype == b.dtype


def storage(kind: HloTensorType) -> str:
    return kind.grid.partition(":")[0].partition("<")[0]


def width(dtype: DType) -> int:
    """Bits that an element holds."""
    return 1 if dtype.kind == "bool" else dtype.bits


def promotable(source: HloTensorType, target: HloTensorType) -> bool:
    """Whether elements may be carried in a wider type of their kind."""
    if source.grid or target.grid:
        if not (source.grid and target.grid) or source.dtype != target.dtype:
            return False
        a, b = (re.sub(r"\D", "", storage(k)) for k in (source, target))
        return storage(source)[0] == storage(target)[0] and int(a) <= int(b)
    if source.dtype.kind != target.dtype.kind:
        return False
    return width(source.dtype) <= width(target.dtype)


def yields(operation: HloOperation, shape: Sizes, element: HloTensorType | None) -> None:
    """Refuses a first result of another shape, or of other elements than a type's."""
    kind = operation.result_types[0]
    need(fit_shape(shape, kind), f"the result has the shape {shown(shape)}, not that of {kind}")
    if element is not None and isinstance(kind, HloTensorType):
        need(
            same_element(element, kind),
            f"the result has elements as {element}, and is a {kind}",
        )


# -- attributes -------------------------------------------------------------------------------


def integers(
    operation: HloOperation, name: str, default: Sequence[int] | None = None
) -> list[int]:
    """An attribute of integers. Refuses where it is missing and has no default."""
    value = operation.attributes.get(name)
    if value is None:
        if default is None:
            raise Refused(f"the attribute '{name}' is missing")
        return list(default)
    try:
        return integers_of(value)
    except (TypeError, ValueError):
        raise Refused(f"the attribute '{name}' holds no integers") from None


def integer(operation: HloOperation, name: str, default: int | None = None) -> int:
    found = integers(operation, name, None if default is None else [default])
    need(len(found) == 1, f"the attribute '{name}' is no integer")
    return found[0]


def natural(operation: HloOperation, name: str, default: int | None = None) -> int:
    value = integer(operation, name, default)
    need(value >= 0, f"the attribute '{name}' is {value}, below 0")
    return value


def positive(operation: HloOperation, name: str, default: int | None = None) -> int:
    value = integer(operation, name, default)
    need(value > 0, f"the attribute '{name}' is {value}, not above 0")
    return value


def flag(operation: HloOperation, name: str) -> bool:
    return bool(operation.attributes.get(name, False))


def in_range(values: Sequence[int], end: int, what: str) -> None:
    for value in values:
        need(0 <= value < end, f"{what} holds {value}, outside of [0, {end})")


def unique(values: Sequence[int], what: str) -> None:
    need(len(set(values)) == len(values), f"{what} holds a number twice: {list(values)}")


def ascending(values: Sequence[int], what: str) -> None:
    need(list(values) == sorted(values), f"{what} is not sorted: {list(values)}")


def apart(a: Sequence[int], b: Sequence[int], what: str) -> None:
    both = sorted(set(a) & set(b))
    need(not both, f"{what} share the dimension {both[0] if both else 0}")


# -- regions -----------------------------------------------------------------------------------


def returned(region: HloRegion) -> list[HloType]:
    """Types that a region's last operation hands on."""
    for operation in region.operations:
        if operation.name.endswith("return"):
            return list(operation.types)
    raise Refused("a region does not return")


def region(operation: HloOperation, index: int) -> HloRegion:
    if index >= len(operation.regions):
        raise Refused(f"region {index} is missing")
    return operation.regions[index]


def scalar(element: HloTensorType) -> HloTensorType:
    return HloTensorType(element.dtype, (), element.grid)


def reducer(
    body: HloRegion, inputs: Sequence[HloTensorType], starts: Sequence[HloTensorType]
) -> list[HloTensorType]:
    """Checks a body that combines pairs; the element types that it accumulates in.

    Args:
        inputs: tensors whose elements are combined.
        starts: what the fold begins with.
    """
    count = len(inputs)
    have = len(body.arguments)
    need(have == 2 * count, f"the body takes {have} arguments, not {2 * count}")
    made = returned(body)
    need(bool(made), "the body returns nothing")
    need(len(made) == count, f"the body returns {len(made)} values, not {count}")
    found: list[HloTensorType] = []
    for n, (kind, given, start) in enumerate(zip(made, inputs, starts, strict=True)):
        if not isinstance(kind, HloTensorType):
            raise Refused(f"the body returns a {kind}, not a tensor")
        for place in (n, count + n):
            argument = body.arguments[place][1]
            agree = isinstance(argument, HloTensorType) and argument.dtype == kind.dtype
            need(
                agree and same_shape(argument, kind) and bool(kind.grid) == bool(getattr(argument, "grid", "")),
                f"argument {place} of the body is a {argument}, and {kind} is returned",
            )  # fmt: skip
        need(same_shape(kind, start), f"the body computes with {kind}, and begins with {start}")
        need(promotable(start, kind), f"{kind} does not hold what {start} begins with")
        need(promotable(given, kind), f"{kind} does not hold the elements of {given}")
        found.append(kind)
    return found
