"""What the user may say about a model when it is imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, Union

from headrace.base.parameters import Source

DimensionChoice: TypeAlias = Union[int, tuple[int, "int | None"]]
"""A size (`128`), or bounds with both ends included (`(1, 64)`; None: no upper end)."""


@dataclass(frozen=True)
class ImportOptions:
    """Options of every importer.

    Attributes:
        dimensions: by the user's name of a dimension, what it is fixed to or bounded by.
    """

    dimensions: Mapping[str, DimensionChoice] = field(
        default_factory=dict[str, DimensionChoice]
    )


@dataclass(frozen=True)
class ExportedModel:
    """A model that an importer turned into StableHLO and hands back to the table.

    Attributes:
        name: of the model.
        source: names it in messages.
        module: StableHLO portable artifact.
        weights: arguments of `main` that are weights: position -> (name, source).
        inputs, outputs: the user's names, for the arguments that are left and the results.
    """

    name: str
    source: str
    module: bytes
    weights: Mapping[int, tuple[str, Source]]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
