"""Reads an ONNX file into the tensor stage.

Specification: https://github.com/onnx/onnx/blob/main/docs/IR.md. `load` reads a file,
`import_model` a parsed model. Everything wrong with a file is a located HR1xxx error.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue

from headrace.base.dtypes import DType
from headrace.base.errors import error
from headrace.base.parameters import Source, array_source
from headrace.base.symbols import Expr, as_expr
from headrace.importers.onnx.dimensions import Dimensions
from headrace.importers.onnx.file_layout import Place, light_model
from headrace.importers.onnx.functions import FunctionTable
from headrace.importers.onnx.graph import GraphImporter, Scope
from headrace.importers.onnx.learnings import Learned
from headrace.importers.onnx.nodes import require_text
from headrace.importers.onnx.structures import Leaf, leaves_of, spread_results, value_of
from headrace.importers.onnx.support import check_operators
from headrace.importers.onnx.weights import (
    StoredWeights,
    element_dtype,
    stored_source,
    tensor_source,
)
from headrace.importers.options import DimensionChoice, ImportOptions, check_choices
from headrace.ir.model import Model
from headrace.ir.types import shape_of, tensor_type
from headrace.tensor.build import TensorBuilder

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, ValueInfoProto

NEWEST_OPSET = 28
_ATTEMPTS = 256


def load(path: Path, options: ImportOptions | None = None) -> Model:
    """Reads an `.onnx` file.

    Raises:
        HeadraceError HR1xxx: the file cannot be imported; HR02xx: `options` do not fit it.
    """
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    model = ModelProto()
    places: Mapping[int, Place] = {}
    try:
        with path.open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                cure = "copy or export the file again"
                raise error("HR1102", "the file is empty", at=str(path), helps=cure)
            with (
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
                memoryview(mapped) as data,
            ):
                light = light_model(data)
                places = light.places
                model.ParseFromString(bytes(light.data))
    except OSError as wrong:
        raise error(
            "HR1101", f"the file cannot be read: {wrong.strerror}", at=str(path)
        ) from wrong
    except DecodeError as wrong:
        raise error(
            "HR1102",
            "the file is no ONNX model, or is damaged",
            at=str(path),
            notes=str(wrong),
            helps="copy or export the file again",
        ) from wrong
    chosen = options or ImportOptions()
    return import_model(
        model,
        folder=path.parent,
        name=path.name,
        dimensions=chosen.dimensions,
        partial=chosen.partial,
        stored=StoredWeights(path, places),
    )


def import_model(
    model: ModelProto,
    *,
    folder: Path | None = None,
    name: str = "model.onnx",
    dimensions: Mapping[str, DimensionChoice] | None = None,
    partial: bool = False,
    constants: Mapping[str, Any] | None = None,
    examples: Mapping[str, Any] | None = None,
    stored: StoredWeights | None = None,
) -> Model:
    """Imports a parsed model.

    Args:
        model: the protobuf.
        folder: where external data lies; None refuses external data.
        name: of the file, for messages.
        dimensions, partial: see `ImportOptions`.
        constants: inputs that always hold these arrays; they leave the signature, and
            may decide shapes.
        examples: of inputs that are sequences or optionals, see `structures`.
        stored: weights of the graph whose bytes were not parsed.

    Raises:
        HeadraceError HR1xxx: it cannot be imported; HR0203: no such dimension.
    """
    opsets = _opsets(model, name)
    if not model.HasField("graph"):
        raise error("HR1102", "the file holds no graph", at=name)
    _check_names(model.graph, name)
    functions = FunctionTable({(_domain(f.domain), f.name): f for f in model.functions})
    check_operators(model, functions, opsets, name)
    sources = _sources(model.graph, folder, name, stored)
    sources.update({n: array_source(a) for n, a in (constants or {}).items()})
    dims = Dimensions(dict(dimensions or {}))
    for _ in range(_ATTEMPTS):
        dims.start()
        try:
            importer = GraphImporter(TensorBuilder(Block()), dims, functions, name, folder)
            return _build(model.graph, opsets, importer, sources, partial, examples or {})
        except Learned:
            continue
    raise error("HR9111", f"sizes were still being learned after {_ATTEMPTS} starts", at=name)


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _opsets(model: ModelProto, name: str) -> dict[str, int]:
    for entry in (*model.opset_import, *model.functions):
        require_text(entry.domain, name)
    opsets = {_domain(entry.domain): entry.version for entry in model.opset_import}
    version = opsets.get("")
    if version is None:
        if model.opset_import:
            return opsets
        raise error(
            "HR1103",
            "the model names no operator set",
            at=name,
            helps="export it again: `opset_import` must name the versions of its operators",
        )
    if version > NEWEST_OPSET:
        raise error(
            "HR1103",
            f"opset {version} is newer than {NEWEST_OPSET}, the newest that headrace knows",
            at=name,
            helps="export the model with an older opset",
        )
    return opsets


def _check_names(graph: GraphProto, name: str) -> None:
    """Refuses names that two things have (the single-assignment rule of the IR)."""
    for thing in (*graph.initializer, *graph.input, *graph.output):
        require_text(thing.name, name)
    weights = {t.name for t in graph.initializer}
    made: dict[str, str] = {}
    for value in graph.input:
        if value.name in made:
            raise error("HR1104", f"two inputs are named '{value.name}'", at=name)
        made[value.name] = f"input '{value.name}'"
    made.update({w: f"weight '{w}'" for w in weights})
    for index, node in enumerate(graph.node):
        place = f"node '{node.name}'" if node.name else f"node {index} ({node.op_type})"
        for output in node.output:
            if output and output in made:
                raise error(
                    "HR1104",
                    f"'{output}' is made twice",
                    at=f"{name}: {place}",
                    notes=f"first by {made[output]}",
                )
            if output:
                made[output] = place


def _sources(
    graph: GraphProto, folder: Path | None, name: str, stored: StoredWeights | None
) -> dict[str, Source]:
    sources: dict[str, Source] = {}
    places = {} if stored is None else stored.places
    for number, tensor in enumerate(graph.initializer):
        at = f"{name}: weight '{tensor.name}'"
        if stored is not None and number in places:
            sources[tensor.name] = stored_source(tensor, stored.path, places[number], at)
        else:
            sources[tensor.name] = tensor_source(tensor, folder, at)
    if graph.sparse_initializer:
        first = graph.sparse_initializer[0].values.name
        raise error("HR1110", "sparse weights are not supported", at=f"{name}: '{first}'")
    return sources


def _build(
    graph: GraphProto,
    opsets: Mapping[str, int],
    importer: GraphImporter,
    sources: Mapping[str, Source],
    partial: bool,
    examples: Mapping[str, Any],
) -> Model:
    dims, name = importer.dims, importer.file_name
    inputs = [v for v in graph.input if v.name not in sources]
    leaves = _leaves(inputs, examples, dims, name)
    if not partial:
        check_choices(dims.choices, dims.spellings, name)
    block = Block(arg_types=[tensor_type(leaf.dtype, leaf.shape) for leaf in leaves])
    importer.build = TensorBuilder(block)
    scope = Scope({}, opsets)
    given = iter(list(zip(leaves, block.args, strict=True)))
    for value in inputs:
        example = examples.get(value.name)
        scope.values[value.name] = value_of(value.name, value.type, example, given)
    for weight, source in sources.items():
        scope.values[weight] = importer.add_source(weight, source)
    importer.run(graph.node, scope)
    results = _results(graph, scope, importer)
    block.add_op(ReturnOp(*(ssa for _, ssa in results)))
    function = FuncOp(
        "main",
        ([a.type for a in block.args], [ssa.type for _, ssa in results]),
        Region(block),
        arg_attrs=_names([leaf.name for leaf in leaves]),
        res_attrs=_names([result for result, _ in results]),
    )
    module = ModuleOp([function])
    spelled = {n: t for n, t in dims.user_names.items() if n != t}
    if spelled:
        # Pairs (name, the user's spelling): names need not be identifiers of MLIR.
        module.attributes["hr.dimension_names"] = ArrayAttr(
            [ArrayAttr([StringAttr(n), StringAttr(t)]) for n, t in spelled.items()]
        )
    dims.raise_least_sizes({s for o in block.ops for r in o.results for s in shape_of(r)})
    used = _used_names([s for leaf in leaves for s in leaf.shape]) | set(dims.defined)
    ranges = {n: r for n, r in dims.ranges.items() if n in used}
    return Model(module, importer.parameters, Path(name).stem, ranges, dims.spellings)


def _used_names(shape: Sequence[Expr]) -> set[str]:
    return {n for size in shape for n in size.names}


def _names(names: Sequence[str]) -> ArrayAttr[DictionaryAttr]:
    return ArrayAttr([DictionaryAttr({"hr.name": StringAttr(n)}) for n in names])


def _results(
    graph: GraphProto, scope: Scope, importer: GraphImporter
) -> list[tuple[str, SSAValue]]:
    results: list[tuple[str, SSAValue]] = []
    for output in graph.output:
        value = scope.values.get(output.name)
        if value is None:
            fact = f"output '{output.name}' is made by no node"
            raise error("HR1104", fact, at=importer.file_name)
        results += spread_results(output.name, value, importer.materialise)
    return results


def _leaves(
    inputs: Sequence[ValueInfoProto],
    examples: Mapping[str, Any],
    dims: Dimensions,
    name: str,
) -> list[Leaf]:
    """The tensors of the inputs.

    Names come first, so that an expression such as `past_length + 1` finds them.
    """
    for value in inputs:
        for size in value.type.tensor_type.shape.dim:
            require_text(size.dim_param, f"{name}: input '{value.name}'")
            if size.HasField("dim_param") and size.dim_param.isidentifier():
                dims.named(size.dim_param)
    leaves: list[Leaf] = []
    for value in inputs:
        at = f"{name}: input '{value.name}'"
        if not value.type.HasField("tensor_type"):
            leaves += leaves_of(value, examples, at)
            continue
        if not value.type.tensor_type.HasField("shape"):
            raise error(
                "HR1109",
                "the input has no rank",
                at=at,
                helps="give it a shape, whose sizes may be names",
            )
        leaves.append(Leaf(value.name, *_input_kind(value, dims, at)))
    return leaves


def _input_kind(
    value: ValueInfoProto, dims: Dimensions, at: str
) -> tuple[DType, tuple[Expr, ...]]:
    tensor = value.type.tensor_type
    shape: list[Expr] = []
    for axis, size in enumerate(tensor.shape.dim):
        if size.HasField("dim_value") and size.dim_value >= 0:
            shape.append(as_expr(size.dim_value))
        elif size.HasField("dim_param") and size.dim_param.strip("? "):
            shape.append(dims.named(size.dim_param))
        else:
            spelling = "-1" if size.HasField("dim_value") else size.dim_param
            shape.append(dims.fresh(value.name, axis, spelling))
    return element_dtype(tensor.elem_type, at), tuple(shape)
