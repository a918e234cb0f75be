"""What the user may say about a model when it is imported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, Union

from headrace.base.errors import Diagnostic, Problems
from headrace.base.parameters import Source
from headrace.base.symbols import Expr

DimensionChoice: TypeAlias = Union[int, tuple[int, "int | None"]]
"""A size (`128`), or bounds with both ends included (`(1, 64)`; None: no upper end)."""


@dataclass(frozen=True)
class ImportOptions:
    """Options of every importer.

    Attributes:
        dimensions: by the user's name of a dimension, what it is fixed to or bounded by.
        partial: one of several models: another may have the dimensions that this one lacks.
    """

    dimensions: Mapping[str, DimensionChoice] = field(
        default_factory=dict[str, DimensionChoice]
    )
    partial: bool = False


def check_choices(
    choices: Mapping[str, DimensionChoice], known: Iterable[str], at: str
) -> None:
    """Complains about dimensions that the user named and a model lacks.

    Args:
        known: every name the model has for a dimension.
        at: names the model.

    Raises:
        HeadraceError HR0203: no dimension has that name; those there are are listed.
    """
    names = set(known)
    listed = ", ".join(sorted(names)) or "none"
    problems = Problems()
    for name in choices:
        if name not in names:
            fact = f"the model has no dimension named '{name}'"
            problems.add(
                Diagnostic("HR0203", fact, (at,), helps=(f"its dimensions: {listed}",))
            )
    problems.raise_if_any()


@dataclass(frozen=True)
class ExportedModel:
    """A model that an importer turned into StableHLO and hands back to the table.

    Attributes:
        name: of the model.
        source: names it in messages.
        module: StableHLO portable artifact.
        weights: arguments of `main` that are weights: position -> (name, source).
        inputs, outputs: the user's names, for the arguments that are left and the results.
        dimension_names: what users may call the dimensions that it was exported at.
        shapes: of arguments of `main`, by position, where their sizes have names.
    """

    name: str
    source: str
    module: bytes
    weights: Mapping[int, tuple[str, Source]]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dimension_names: tuple[str, ...] = ()
    shapes: Mapping[int, tuple[Expr, ...]] = field(
        default_factory=dict[int, "tuple[Expr, ...]"]
    )
