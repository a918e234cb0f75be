"""HLO as a neutral tree: what a text or an MLIR object graph says, before any meaning."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias, Union

from headrace.base.dtypes import DType
from headrace.base.symbols import Expr


@dataclass(frozen=True)
class HloTensorType:
    """A tensor type; sizes are expressions (a `?` got a name from the importer)."""

    dtype: DType
    shape: tuple[Expr, ...]


@dataclass(frozen=True)
class HloTupleType:
    """A tuple of types."""

    elements: tuple[HloType, ...]


@dataclass(frozen=True)
class HloOpaqueType:
    """A type that can be read and not computed with: tokens, unknown element types."""

    text: str


HloType: TypeAlias = Union[HloTensorType, HloTupleType, HloOpaqueType]


@dataclass
class HloRegion:
    """One block: argument names with types, and its operations."""

    arguments: list[tuple[str, HloType]]
    operations: list[HloOperation]


@dataclass
class HloOperation:
    """One operation.

    Attributes:
        name: with its dialect, as written: `xla_hlo.dot`, `std.addf`, `stablehlo.add`.
        operands, results: value names, unique in the function.
        attributes: Python values: int, float, bool, str, list, numpy arrays (dense),
            dictionaries.
        types: of the operands, where the text says them.
        result_types: of the results.
        place: where it stands, for messages.
    """

    name: str
    operands: list[str]
    results: list[str]
    attributes: dict[str, Any]
    types: list[HloType]
    result_types: list[HloType]
    place: str
    regions: list[HloRegion] = field(default_factory=list[HloRegion])


@dataclass
class HloFunction:
    """A function: its body's arguments are its inputs."""

    name: str
    body: HloRegion
    result_types: list[HloType]
    argument_names: list[str]
    result_names: list[str]
    public: bool = True


@dataclass
class HloModule:
    """A module: its functions, and where it came from (for messages)."""

    source: str
    functions: list[HloFunction]
