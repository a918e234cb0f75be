"""What converters share: attributes of any spelling, types, bodies of reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from xdsl.ir import SSAValue

from headrace.importers.hlo.registry import Value, integers_of
from headrace.importers.hlo.tree import HloOperation, HloRegion, HloTensorType
from headrace.tensor.build import TensorBuilder

if TYPE_CHECKING:
    from headrace.importers.hlo.convert import FunctionConverter


def result_type(operation: HloOperation, index: int = 0) -> HloTensorType:
    kind = operation.result_types[index]
    if not isinstance(kind, HloTensorType):
        raise ValueError("the result is no tensor")
    return kind


def pairs_of(value: Any, rank: int) -> tuple[list[int], list[int]]:
    """A `[rank, 2]` padding attribute as (low, high); zeros where absent."""
    if value is None:
        return [0] * rank, [0] * rank
    flat = integers_of(value)
    if len(flat) == 1:
        flat = flat * (2 * rank)
    return flat[0::2], flat[1::2]


def spread(value: Any, rank: int, default: int = 1) -> list[int]:
    if value is None:
        return [default] * rank
    flat = integers_of(value)
    return flat * rank if len(flat) == 1 and rank > 1 else flat


def booleans_of(value: Any) -> list[bool]:
    """A boolean attribute of any spelling as a list."""
    import numpy as np

    return [bool(v) for v in np.asarray(value if value is not None else []).reshape(-1)]


def flatten(value: Value) -> list[SSAValue]:
    if isinstance(value, tuple):
        return [leaf for element in value for leaf in flatten(element)]
    return [value]


def inline_body(at: FunctionConverter, region: HloRegion) -> Callable[..., Sequence[SSAValue]]:
    """A reduction body as the function `TensorBuilder.reduce` takes."""

    def build(inner: TensorBuilder, *scalars: SSAValue) -> Sequence[SSAValue]:
        outer_builder, outer_values = at.builder, at.values
        at.builder = inner
        at.values = {
            **outer_values,
            **{name: s for (name, _), s in zip(region.arguments, scalars, strict=True)},
        }
        try:
            return [leaf for value in at.region_values(region) for leaf in flatten(value)]
        finally:
            at.builder, at.values = outer_builder, outer_values

    return build
