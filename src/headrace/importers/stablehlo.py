"""StableHLO text and portable artifacts into the tensor stage.

Text is read in Python (`hlo/text_reader.py`). Portable artifacts, and text that holds forms
which only their own dialects read, are turned into generic text by MLIR's parser, in a
process apart (`hlo/mlir_service.py`); that needs the extra `headrace[stablehlo]`. What the
specification forbids is refused by `hlo/verify`, wherever the module came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headrace.base.errors import HeadraceError, error
from headrace.base.parameters import Source
from headrace.importers.hlo import mlir_service
from headrace.importers.hlo.convert import convert_module, name_attributes
from headrace.importers.hlo.defaults import drop_defaults
from headrace.importers.hlo.grids import without_grids
from headrace.importers.hlo.text_reader import UnknownForm, read_text
from headrace.importers.hlo.tree import HloModule
from headrace.importers.hlo.verify.module import verify_module
from headrace.importers.options import ExportedModel, ImportOptions
from headrace.ir.model import Model


def load(path: Path, options: ImportOptions | None = None) -> Model:
    """The model in a `.mlir` text or portable artifact file.

    Raises:
        HeadraceError HR1001: the module is refused; HR1003: jaxlib is missing, and
            reading this module needs it; HR1101, HR1102: see `hlo/convert.py`.
    """
    del options
    return load_module(path.read_bytes(), path.name)


def load_module(
    module: bytes | str, source: str, weights: Mapping[int, tuple[str, Source]] | None = None
) -> Model:
    """The model in text or artifact bytes.

    Args:
        module: StableHLO text, or a portable artifact.
        source: names it in messages.
        weights: arguments of `main` that are weights: position -> (name, source).

    Raises: as `load`.
    """
    return convert_module(read_tree(module, source), Path(source).stem, weights or {})


def read_tree(module: bytes | str, source: str) -> HloModule:
    """Text or artifact bytes as a neutral tree, verified. Raises HR1001, HR1003, HR1101 and
    HR1102 as `load`."""
    read = read_module(module, source)
    verify_module(read)
    drop_defaults(read)
    return without_grids(read)


def read_module(module: bytes | str, source: str) -> HloModule:
    """As `read_tree`, with quantised types as they are written, and not verified."""
    if isinstance(module, bytes):
        if module.startswith(b"ML\xefR"):
            return _by_mlir(module, source)
        try:
            module = module.decode()
        except UnicodeDecodeError as wrong:
            at = f"{source}: byte {wrong.start}"
            raise error("HR1001", "the file is no UTF-8 text", at=at) from wrong
    try:
        return read_text(module, source)
    except UnknownForm as unknown:
        if not mlir_service.is_installed():
            raise unknown.refused from None
        return _by_mlir(module.encode(), source)
    except HeadraceError as refused:
        if not mlir_service.is_installed():
            raise
        try:
            return _by_mlir(module.encode(), source)
        except HeadraceError:
            raise refused from None


def _by_mlir(module: bytes, source: str) -> HloModule:
    text, arrays = mlir_service.generic_text(module, source)
    try:
        return read_text(text, source, arrays)
    except UnknownForm as unknown:
        raise unknown.refused from None


def read_checked(case: bytes | str, source: str) -> HloModule:
    """A test with `check.*` operations as a neutral tree. Raises as `read_tree`."""
    return read_tree(case, source)


def load_exported(exported: ExportedModel) -> Model:
    """The model that another importer exported. Raises as `load`."""
    made = load_module(exported.module, exported.source, exported.weights)
    made.name = exported.name
    made.dimension_names = exported.dimension_names
    for function in made.ir.body.block.ops:
        function.properties["arg_attrs"] = name_attributes(exported.inputs)
        function.properties["res_attrs"] = name_attributes(exported.outputs)
    return made
