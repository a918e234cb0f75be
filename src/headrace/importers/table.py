"""Which importer reads which file, by suffix. Importers load on first use."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.base.errors import error
from headrace.importers.options import ExportedModel, ImportOptions, check_choices
from headrace.ir.model import Model

if TYPE_CHECKING:
    from headrace.importers.hlo.tree import HloModule


@dataclass(frozen=True)
class Importer:
    """One row of the table.

    Attributes:
        suffix: of the files, with the dot.
        kind: what the files are, for messages.
        module: holds `load(path: Path, options: ImportOptions) -> Model`.
    """

    suffix: str
    kind: str
    module: str


IMPORTERS = (
    Importer(".onnx", "an ONNX model", "headrace.importers.onnx.reader"),
    Importer(
        ".mlir", "StableHLO, or XLA HLO text of 2019-2020", "headrace.importers.stablehlo"
    ),
    Importer(".mlirbc", "a StableHLO portable artifact", "headrace.importers.stablehlo"),
    Importer(".bc", "a StableHLO portable artifact", "headrace.importers.stablehlo"),
    Importer(".keras", "a Keras 3 model", "headrace.importers.keras"),
)


def importer_for(path: Path) -> Importer:
    """The importer for a file.

    Raises:
        HeadraceError HR0201: no importer reads files with that suffix.
    """
    for row in IMPORTERS:
        if path.suffix.lower() == row.suffix:
            return row
    known = ", ".join(f"{row.suffix} ({row.kind})" for row in IMPORTERS)
    raise error(
        "HR0201",
        f"no importer reads '{path.suffix or 'a file without a suffix'}'",
        at=str(path),
        helps=f"headrace reads {known}",
    )


def load(path: Path, options: ImportOptions | None = None) -> Model:
    """Reads a model file into the tensor stage.

    Raises:
        HeadraceError HR0xxx, HR1xxx: no such file, or the file cannot be imported; HR0203:
            it has no dimension of a name that `options` choose a size for.
    """
    if not path.is_file():
        raise error("HR0202", "there is no such model file", at=str(path))
    name = importer_for(path).module
    if name == "headrace.importers.stablehlo" and is_legacy_text(path):
        name = "headrace.importers.legacy_hlo"
    chosen = options or ImportOptions()
    made = importlib.import_module(name).load(path, chosen)
    model = import_exported(made) if isinstance(made, ExportedModel) else made
    if not chosen.partial:
        check_choices(chosen.dimensions, model.dimension_names, path.name)
    return model


def is_legacy_text(path: Path) -> bool:
    """Whether an MLIR file speaks `xla_hlo`, the dialect before StableHLO."""
    with path.open("rb") as file:
        return _is_legacy(file.read(1 << 16))


_LEGACY_MARKS = (b"xla_hlo.", b"xla_chlo.", b"iree.unfoldable_constant", b"flow.variable ")
_OLD_FUNCTION = re.compile(rb"^\s*func @", re.MULTILINE)
"""Functions have been `func.func` since 2022, the first year of StableHLO."""


def _is_legacy(head: bytes) -> bool:
    if head.startswith(b"ML\xefR") or b"stablehlo." in head:
        return False
    return any(mark in head for mark in _LEGACY_MARKS) or _OLD_FUNCTION.search(head) is not None


def read_checked(case: bytes | str, source: str) -> HloModule:
    """A test with `check.*` operations as a neutral tree (see `hlo/checks.py`).

    Args:
        case: text of one case, or a portable artifact.
        source: names it in messages.

    Raises:
        HeadraceError HR1001: it cannot be read; HR1003: jaxlib is missing; HR1004: an
            element type is not supported.
    """
    head = case if isinstance(case, bytes) else case.encode()
    name = "legacy_hlo" if _is_legacy(head) else "stablehlo"
    return importlib.import_module(f"headrace.importers.{name}").read_checked(case, source)


def import_exported(exported: ExportedModel) -> Model:
    """The tensor stage for a model that another importer turned into StableHLO.

    Raises: as `importers/stablehlo.load_module`.
    """
    stablehlo = importlib.import_module("headrace.importers.stablehlo")
    return stablehlo.load_exported(exported)
