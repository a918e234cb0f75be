"""HLO as a neutral tree: what a text says, before any meaning."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, TypeAlias, Union

from headrace.base.dtypes import DType
from headrace.base.symbols import Expr


@dataclass(frozen=True)
class HloTensorType:
    """A tensor type; sizes are expressions (a `?` got a name from the importer).

    Attributes:
        dtype: of the elements; of a quantised type, the floats that it expresses.
        shape: sizes.
        grid: of a quantised type, what `!quant.uniform<...>` holds.
        encoding: what stands behind the element type, `#stablehlo.bounds<?, 3>`.
    """

    dtype: DType
    shape: tuple[Expr, ...]
    grid: str = ""
    encoding: str = ""

    @property
    def bounds(self) -> tuple[int | None, ...]:
        """The greatest size of each dimension, where the encoding gives one."""
        found = _BOUNDS.search(self.encoding)
        if found is None:
            return (None,) * len(self.shape)
        items = [item.strip() for item in found.group(1).split(",") if item.strip()]
        return tuple(None if item == "?" else int(item) for item in items)

    def __str__(self) -> str:
        sizes = "".join(f"{s.value if s.is_constant else '?'}x" for s in self.shape)
        element = f"!quant.uniform<{self.grid}>" if self.grid else self.dtype.name
        encoding = f", {self.encoding}" if self.encoding else ""
        return f"tensor<{sizes}{element}{encoding}>"


_BOUNDS = re.compile(r"#stablehlo\.bounds<([^>]*)>")


@dataclass(frozen=True)
class HloTupleType:
    """A tuple of types."""

    elements: tuple[HloType, ...]

    def __str__(self) -> str:
        return f"tuple<{', '.join(map(str, self.elements))}>"


@dataclass(frozen=True)
class HloOpaqueType:
    """A type that can be read and not computed with: tokens, unknown element types."""

    text: str

    def __str__(self) -> str:
        return self.text


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
    """A function: its body's arguments are its inputs.

    Attributes:
        argument_attributes: one dictionary for each argument, where the text has any.
        declared: it has a body; without one it stands elsewhere.
    """

    name: str
    body: HloRegion
    result_types: list[HloType]
    argument_names: list[str]
    result_names: list[str]
    public: bool = True
    argument_attributes: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    place: str = ""
    has_body: bool = True


@dataclass
class HloModule:
    """A module: its functions, and where it came from (for messages)."""

    source: str
    functions: list[HloFunction]
