"""StableHLO text and portable artifacts into the tensor stage.

Text is read in Python (`hlo/text_reader.py`), and so are portable artifacts (`hlo/bytecode`).
Bytecode of other dialects, and text that holds forms which only their own dialects read, are
turned into generic text by MLIR's parser, in a process apart (`hlo/mlir_service.py`); that
needs the extra `headrace[stablehlo]`. What the specification forbids is refused by
`hlo/verify`, wherever the module came from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from xdsl.dialects.builtin import StringAttr
from xdsl.dialects.func import FuncOp

from headrace.base.errors import HeadraceError, error
from headrace.base.parameters import Source
from headrace.base.symbols import Expr
from headrace.importers.hlo import mlir_service
from headrace.importers.hlo.bytecode.container import MAGIC, read_container
from headrace.importers.hlo.bytecode.operations import read_artifact
from headrace.importers.hlo.convert import convert_module, name_attributes
from headrace.importers.hlo.defaults import drop_defaults
from headrace.importers.hlo.grids import without_grids
from headrace.importers.hlo.text_reader import UnknownForm, read_text
from headrace.importers.hlo.tree import HloFunction, HloModule, HloTensorType
from headrace.importers.hlo.verify.module import verify_module
from headrace.importers.options import ExportedModel, ImportOptions
from headrace.ir.model import ALIAS, Model


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
        if module.startswith(MAGIC):
            file = read_container(module, source)
            portable = file.is_portable
            return read_artifact(file, source) if portable else _by_mlir(module, source)
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
    tree = read_tree(exported.module, exported.source)
    for function in tree.functions:
        if function.name == "main":
            _name_sizes(function, exported.shapes)
    made = convert_module(tree, exported.name, exported.weights)
    names = {n for shape in exported.shapes.values() for s in shape for n in s.names}
    made.dimension_ranges.update({name: (1, None) for name in names})
    made.dimension_names = exported.dimension_names
    for function in made.ir.body.block.ops:
        if isinstance(function, FuncOp):
            _rename(function, exported.inputs, exported.outputs)
    return made


def _rename(function: FuncOp, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Gives inputs and outputs the user's names; aliases follow the inputs."""
    before = [str(a.data["hr.name"]).strip('"') for a in function.arg_attrs or ()]
    places = {name: n for n, name in enumerate(before)}
    aliases: dict[int, str] = {}
    for number, known in enumerate(function.res_attrs or ()):
        alias = known.data.get(ALIAS)
        if isinstance(alias, StringAttr):
            aliases[number] = inputs[places[alias.data]]
    function.properties["arg_attrs"] = name_attributes(inputs)
    function.properties["res_attrs"] = name_attributes(outputs, aliases)


def _name_sizes(function: HloFunction, shapes: Mapping[int, tuple[Expr, ...]]) -> None:
    """Gives sizes of arguments the names that the exporter knows them by."""
    arguments = function.body.arguments
    for position, shape in shapes.items():
        name, kind = arguments[position]
        if isinstance(kind, HloTensorType):
            arguments[position] = (name, replace(kind, shape=shape))
