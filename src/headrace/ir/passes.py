"""Passes, and the table of them read from the folders.

A pass is a frozen dataclass in `<stage>/passes/<name>.py`; the path decides all names:
`flow/passes/form_dispatches.py` holds class `FormDispatches`, named
`flow-form-dispatches` on the command line, tested by
`tests/filecheck/flow/form_dispatches.mlir`. Fields are its options.
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from dataclasses import fields
from functools import cache
from typing import Any

from headrace.base.errors import error
from headrace.ir.model import Model

STAGES = ("tensor", "flow", "stream", "hal")


class Pass(ABC):
    """Changes a model in place. Assumes the module verifies; leaves one that does."""

    @classmethod
    def pass_name(cls) -> str:
        """`<stage>-<file name with dashes>`."""
        _, stage, _, stem = cls.__module__.split(".")
        return f"{stage}-{stem.replace('_', '-')}"

    @abstractmethod
    def run(self, model: Model) -> None:
        """Runs over the whole module.

        Raises:
            HeadraceError: the user's model cannot go this way; everything wrong at once.
        """


def pass_table() -> dict[str, type[Pass]]:
    """Every pass by its command-line name, read from the folders of the stages."""
    return {name: kind for stage in STAGES for name, kind in stage_passes(stage).items()}


@cache
def stage_passes(stage: str) -> dict[str, type[Pass]]:
    """The passes of one stage by command-line name; imports no other stage."""
    table: dict[str, type[Pass]] = {}
    package = importlib.import_module(f"headrace.{stage}.passes")
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"headrace.{stage}.passes.{info.name}")
        class_name = "".join(part.capitalize() for part in info.name.split("_"))
        found = getattr(module, class_name, None)
        if found is None:
            raise error("HR9001", f"{module.__name__} has no pass named {class_name}")
        table[found.pass_name()] = found
    return table


def make_pass(text: str) -> Pass:
    """The pass for `name` or `name{option=value option=value,value}`.

    Raises:
        HeadraceError HR0xxx: no such pass or option; the known ones are listed.
    """
    name, _, rest = text.partition("{")
    stage = name.strip().partition("-")[0]
    kind = stage_passes(stage).get(name.strip()) if stage in STAGES else None
    if kind is None:
        known = ", ".join(sorted(pass_table()))
        raise error(
            "HR0101", f"there is no pass named '{name.strip()}'", helps=f"one of: {known}"
        )
    return kind(**_parse_options(kind, rest.rstrip("} ")))


def _parse_options(kind: type[Pass], text: str) -> dict[str, Any]:
    known = {f.name: f for f in fields(kind)}  # pyright: ignore[reportArgumentType]
    options: dict[str, Any] = {}
    for item in text.split():
        key, _, value = item.partition("=")
        key = key.replace("-", "_")
        if key not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise error(
                "HR0102",
                f"pass '{kind.pass_name()}' has no option '{key}'",
                helps=f"its options: {listed}",
            )
        try:
            options[key] = _convert(str(known[key].type), value)
        except ValueError:
            raise error(
                "HR0102",
                f"'{value}' is no value for option '{key}' of pass '{kind.pass_name()}'",
                helps=f"it takes {known[key].type}",
            ) from None
    return options


def _convert(annotation: str, value: str) -> Any:
    if annotation.startswith("tuple"):
        return tuple(v for v in value.split(",") if v)
    if annotation == "int":
        return int(value)
    if annotation == "bool":
        return value.lower() in ("1", "true", "yes")
    return value
