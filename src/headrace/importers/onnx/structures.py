"""Sequences and optionals in a model's signature: their tensors are inputs and outputs.

The tensors of a sequence `xs` are `xs.0`, `xs.1`, ...; what an optional holds has its name. How
many there are, and their shapes, is what the caller's example says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xdsl.ir import SSAValue

from headrace.base.dtypes import F32, DType
from headrace.base.errors import error
from headrace.base.symbols import Expr, as_expr
from headrace.importers.onnx.values import OptionalValue, SequenceValue, Value
from headrace.importers.onnx.weights import element_dtype

if TYPE_CHECKING:
    from onnx import TypeProto, ValueInfoProto


@dataclass(frozen=True)
class Leaf:
    """One tensor of the signature."""

    name: str
    dtype: DType
    shape: tuple[Expr, ...]


def leaves_of(value: ValueInfoProto, examples: Mapping[str, Any], at: str) -> list[Leaf]:
    """The tensors of an input that is a sequence or an optional.

    Args:
        examples: by input: a list of arrays, an array, or None for an empty optional.

    Raises:
        HeadraceError HR1108: there is no example, or it is of another kind.
    """
    kind = value.type.WhichOneof("value") or "no type"
    if kind not in ("sequence_type", "optional_type"):
        raise error("HR1108", f"inputs of {kind} are not supported", at=at)
    if value.name not in examples:
        raise error(
            "HR1108",
            f"the number of tensors in an input of {kind} is not known",
            at=at,
            helps="headrace.from_onnx(model, examples={name: [array, ...]}) says it",
        )
    return list(_leaves(value.name, value.type, examples[value.name], at))


def _leaves(name: str, kind: TypeProto, example: Any, at: str) -> Iterator[Leaf]:
    if kind.HasField("optional_type"):
        if example is not None:
            yield from _leaves(name, kind.optional_type.elem_type, example, at)
    elif kind.HasField("sequence_type"):
        if not isinstance(example, (list, tuple)):
            raise error("HR1108", "the example of a sequence is a list of arrays", at=at)
        for n, element in enumerate(example):
            yield from _leaves(f"{name}.{n}", kind.sequence_type.elem_type, element, at)
    elif kind.HasField("tensor_type"):
        import numpy as np

        dtype = element_dtype(kind.tensor_type.elem_type, at)
        yield Leaf(name, dtype, tuple(as_expr(s) for s in np.shape(example)))
    else:
        raise error(
            "HR1108", f"elements of {kind.WhichOneof('value')} are not supported", at=at
        )


def value_of(
    name: str, kind: TypeProto, example: Any, leaves: Iterator[tuple[Leaf, SSAValue]]
) -> Value:
    """The input as nodes see it, made of its next tensors."""
    if kind.HasField("optional_type"):
        inner = kind.optional_type.elem_type
        item = None if example is None else value_of(name, inner, example, leaves)
        return OptionalValue(name, F32 if item is None else item.dtype, (), item=item)
    if kind.HasField("sequence_type"):
        inner = kind.sequence_type.elem_type
        items = tuple(
            value_of(f"{name}.{n}", inner, element, leaves) for n, element in enumerate(example)
        )
        return SequenceValue(name, items[0].dtype if items else F32, (), items=items)
    leaf, ssa = next(leaves)
    return Value(name, leaf.dtype, leaf.shape, ssa=ssa)


def spread_results(
    name: str, value: Value, materialise: Callable[[Value], SSAValue]
) -> list[tuple[str, SSAValue]]:
    """The tensors of an output, with their names."""
    if isinstance(value, OptionalValue):
        return [] if value.item is None else spread_results(name, value.item, materialise)
    if isinstance(value, SequenceValue):
        return [
            pair
            for n, item in enumerate(value.items)
            for pair in spread_results(f"{name}.{n}", item, materialise)
        ]
    return [(name, materialise(value))]


def gathered(kind: TypeProto, name: str, results: Mapping[str, Any]) -> Any:
    """An output as the graph declares it, from the tensors of the signature."""
    if kind.HasField("optional_type"):
        inner = kind.optional_type.elem_type
        if inner.HasField("tensor_type"):
            return results.get(name)
        return gathered(inner, name, results) or None
    if not kind.HasField("sequence_type"):
        return results[name]
    found: list[Any] = []
    while _is_there(f"{name}.{len(found)}", results):
        found.append(gathered(kind.sequence_type.elem_type, f"{name}.{len(found)}", results))
    return found


def _is_there(name: str, results: Mapping[str, Any]) -> bool:
    return any(key == name or key.startswith(f"{name}.") for key in results)


def is_structured(values: Sequence[ValueInfoProto]) -> bool:
    """Whether any of a graph's inputs is a sequence or an optional."""
    return any(v.type.WhichOneof("value") in ("sequence_type", "optional_type") for v in values)
