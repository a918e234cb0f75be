"""Walks jaxlib's MLIR objects of a StableHLO module into the tensor stage.

Takes text or a portable artifact (bytes). jaxlib parses and verifies; nothing here goes
through text twice. Needs the extra `headrace[stablehlo]`; loads on first use.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.base.dtypes import BY_NAME, DType
from headrace.base.errors import HeadraceError, error
from headrace.base.parameters import Source
from headrace.base.symbols import as_expr, dim
from headrace.importers.hlo.check_text import generic_checks
from headrace.importers.hlo.convert import convert_module, name_attributes
from headrace.importers.hlo.dense import parse_elements
from headrace.importers.hlo.quantized_text import without_grids
from headrace.importers.hlo.tree import (
    HloFunction,
    HloModule,
    HloOpaqueType,
    HloOperation,
    HloRegion,
    HloTensorType,
    HloTupleType,
    HloType,
)
from headrace.importers.options import ExportedModel, ImportOptions
from headrace.ir.model import Model


def load(path: Path, options: ImportOptions | None = None) -> Model:
    """The model in a `.mlir` text or portable artifact file.

    Raises:
        HeadraceError HR1003: jaxlib is missing; HR1001: the module is refused;
            HR1101, HR1102: see `hlo/convert.py`.
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
    """Text or artifact bytes as a neutral tree. Raises HR1001, HR1003, HR1004 as `load`."""
    context, parsed = _parse(module, source)
    with context:
        walker = _Walker(source)
        tree = walker.module(parsed)
        if not walker.quantised:
            return tree
        # An artifact keeps grids in its types: by way of text they become operations.
        text = parsed.operation.get_asm(large_elements_limit=None)
    return read_tree(text, source)


def read_checked(case: bytes | str, source: str) -> HloModule:
    """A test with `check.*` operations as a neutral tree. Raises as `read_tree`."""
    if isinstance(case, bytes):
        return read_tree(case, source)
    try:
        text = generic_checks(case)
    except (ValueError, IndexError) as wrong:
        raise error("HR1001", f"a check cannot be read: {wrong}", at=source) from wrong
    return read_tree(text, source)


def load_exported(exported: ExportedModel) -> Model:
    """The model that another importer exported. Raises as `load`."""
    made = load_module(exported.module, exported.source, exported.weights)
    made.name = exported.name
    made.dimension_names = exported.dimension_names
    for function in made.ir.body.block.ops:
        function.properties["arg_attrs"] = name_attributes(exported.inputs)
        function.properties["res_attrs"] = name_attributes(exported.outputs)
    return made


def _parse(module: bytes | str, source: str) -> tuple[Any, Any]:
    try:
        from jaxlib.mlir import ir
        from jaxlib.mlir._mlir_libs import _jax_mlir_ext
        from jaxlib.mlir.dialects import chlo, stablehlo
    except ImportError as missing:
        raise error(
            "HR1003",
            "reading StableHLO needs jaxlib, which is not installed",
            at=source,
            helps="pip install 'headrace[stablehlo]'",
        ) from missing
    context = ir.Context()
    stablehlo.register_dialect(context)
    chlo.register_dialect(context)
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    try:
        with context:
            if isinstance(module, bytes) and module.startswith(b"ML\xefR"):
                return context, stablehlo.deserialize_portable_artifact(context, module)
            text = module.decode() if isinstance(module, bytes) else module
            return context, ir.Module.parse(without_grids(text))
    except Exception as refused:
        raise _refusal(refused, source) from refused


_POSITION = re.compile(r'error: "-":(\d+):(\d+): (.*)')


def _refusal(refused: Exception, source: str) -> HeadraceError:
    """What MLIR says of a module, at the line and column that it names."""
    lines = [line.strip() for line in str(refused).splitlines() if line.strip()]
    found = next((m for m in map(_POSITION.search, lines) if m), None)
    at = f"{source}:{found.group(1)}:{found.group(2)}" if found else source
    notes = [found.group(3)] if found else lines[:6]
    if any("unregistered dialect" in line for line in lines):
        return error("HR1101", "the module holds what no known dialect has", at=at, notes=notes)
    return error("HR1001", "this is no valid StableHLO module", at=at, notes=notes)


class _Walker:
    """Turns jaxlib's objects into the neutral tree."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.names: dict[Any, str] = {}
        self.sizes = 0
        self.types: dict[Any, HloType] = {}
        self.quantised = False

    def module(self, module: Any) -> HloModule:
        functions = [
            self.function(op.operation)
            for op in module.body.operations
            if op.operation.name == "func.func"
        ]
        return HloModule(self.source, functions)

    def function(self, op: Any) -> HloFunction:
        from jaxlib.mlir import ir

        name = ir.StringAttr(op.attributes["sym_name"]).value
        visibility = (
            ir.StringAttr(op.attributes["sym_visibility"]).value
            if "sym_visibility" in op.attributes
            else "public"
        )
        body = self.region(op.regions[0])
        signature = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
        results = [self.type(t) for t in signature.results]
        arguments = [f"arg{n}" for n in range(len(body.arguments))]
        return HloFunction(name, body, results, arguments, [], visibility != "private")

    def region(self, region: Any) -> HloRegion:
        if not len(region.blocks):
            return HloRegion([], [])
        block = region.blocks[0]
        arguments = [(self.name(a), self.type(a.type)) for a in block.arguments]
        return HloRegion(arguments, [self.operation(op.operation) for op in block.operations])

    def name(self, value: Any) -> str:
        return self.names.setdefault(value, f"%{len(self.names)}")

    def operation(self, op: Any) -> HloOperation:
        operands = [self.name(o) for o in op.operands]
        attributes = self.attributes(op)
        regions = [self.region(r) for r in op.regions]
        place = _place(op)
        return HloOperation(
            op.name,
            operands,
            [self.name(r) for r in op.results],
            attributes,
            [self.type(o.type) for o in op.operands],
            [self.type(r.type) for r in op.results],
            place,
            regions,
        )

    def attributes(self, op: Any) -> dict[str, Any]:
        try:
            return {
                n.name: self.attribute(n.attr)
                for n in _named(op.attributes)
                if n.name not in _WITHOUT_MEANING
            }
        except TypeError:
            # The bindings have no Python type for dense complex numbers: a constant's text.
            found = _DENSE.search(op.get_asm(large_elements_limit=None))
            if found is None:
                raise
            kind = self.type(op.results[0].type)
            return {"value": self.elements(found.group(1), kind)}

    def type(self, kind: Any) -> HloType:
        known = self.types.get(kind)
        if known is None:
            known = self.types[kind] = self._type(kind)
        return known

    def _type(self, kind: Any) -> HloType:
        from jaxlib.mlir import ir

        if isinstance(kind, ir.TupleType):
            parts = tuple(self.type(kind.get_type(n)) for n in range(kind.num_types))
            return HloTupleType(parts)
        ranked = isinstance(kind, ir.RankedTensorType)
        element = element_type(str(kind.element_type if ranked else kind))
        if element is None:
            self.quantised |= "!quant.uniform<" in str(kind)
            return HloOpaqueType(str(kind))
        if not ranked:
            return HloTensorType(element, ())
        shape: list[Any] = []
        for n in range(kind.rank):
            if kind.is_dynamic_dim(n):
                shape.append(dim(f"size{self.sizes}"))
                self.sizes += 1
            else:
                shape.append(as_expr(kind.get_dim_size(n)))
        return HloTensorType(element, tuple(shape))

    def attribute(self, value: Any) -> Any:
        """A Python value for an attribute; numbers of dialect attributes as dictionaries."""
        from jaxlib.mlir import ir

        if isinstance(value, ir.DenseElementsAttr):
            return self.dense(value)
        if isinstance(value, (ir.BoolAttr, ir.IntegerAttr, ir.FloatAttr, ir.StringAttr)):
            return value.value
        if isinstance(value, ir.ArrayAttr):
            return [self.attribute(a) for a in value]
        if isinstance(value, ir.FlatSymbolRefAttr):
            return value.value
        text = str(value)
        if text.startswith("array<"):
            items = text[6:-1].partition(":")[2]
            return [int(v) if v.strip() not in ("true", "false") else v.strip() == "true" for v in items.split(",") if v.strip()]  # fmt: skip
        numbers = _dialect_numbers(value, text)
        if numbers is not None:
            return numbers
        if text.startswith(("#stablehlo<", "#chlo<")):
            return text.partition("<")[2].rstrip(">").split()[-1]
        return text

    def dense(self, value: Any) -> Any:
        import numpy as np

        kind = self.type(value.type)
        if not isinstance(kind, HloTensorType):
            return str(value)
        if kind.dtype.numpy_dtype.kind == "V" or kind.dtype.name in _READ_AS_TEXT:
            found = _DENSE.search(str(value))
            assert found is not None
            return self.elements(found.group(1), kind)
        if value.is_splat:
            return np.asarray(value.get_splat_value().value).astype(kind.dtype.numpy_dtype)
        return np.array(value, copy=True).astype(kind.dtype.numpy_dtype, copy=False)

    def elements(self, body: str, kind: HloType) -> Any:
        """A constant's text as an array: of its shape, or one element for all."""
        if not isinstance(kind, HloTensorType):
            return body
        array = parse_elements(body, kind.dtype)
        return array if array.size == 1 else array.reshape([s.value for s in kind.shape])


def element_type(text: str) -> DType | None:
    """The element type that MLIR spells so; None for one that nothing computes with."""
    return BY_NAME.get({"index": "i64"}.get(text, text))


_WITHOUT_MEANING = frozenset(("api_version", "result_accuracy"))
"""Attributes that artifacts leave out where text spells their default."""
_DENSE = re.compile(r"dense<(.*?)> : ", re.DOTALL)
_READ_AS_TEXT = frozenset(n for n, k in BY_NAME.items() if k.bits < 8 or (k.is_float and (k.bits < 16 or n == "bf16")))  # fmt: skip
"""Element types that the bindings cannot hand out as arrays."""
_LOCATION = re.compile(r'"?([^"]*)"?:(\d+):(\d+)')


def _place(op: Any) -> str:
    """The line where an operation stands, with its name."""
    found = _LOCATION.search(str(op.location))
    return f"line {found.group(2)} '{op.name}'" if found else f"'{op.name}'"


def _named(attributes: Any) -> list[Any]:
    return [a if hasattr(a, "attr") else _Named(a, attributes[a]) for a in attributes]


class _Named:
    def __init__(self, name: str, attr: Any) -> None:
        self.name, self.attr = name, attr


_NUMBERS = {
    "#stablehlo.conv<": (
        "ConvDimensionNumbers",
        "input_batch_dimension", "input_feature_dimension", "input_spatial_dimensions",
        "kernel_input_feature_dimension", "kernel_output_feature_dimension",
        "kernel_spatial_dimensions", "output_batch_dimension", "output_feature_dimension",
        "output_spatial_dimensions",
    ),
    "#stablehlo.dot<": (
        "DotDimensionNumbers",
        "lhs_batching_dimensions", "rhs_batching_dimensions", "lhs_contracting_dimensions",
        "rhs_contracting_dimensions",
    ),
    "#stablehlo.gather<": (
        "GatherDimensionNumbers",
        "offset_dims", "collapsed_slice_dims", "operand_batching_dims",
        "start_indices_batching_dims", "start_index_map", "index_vector_dim",
    ),
    "#stablehlo.scatter<": (
        "ScatterDimensionNumbers",
        "update_window_dims", "inserted_window_dims", "input_batching_dims",
        "scatter_indices_batching_dims", "scattered_dims_to_operand_dims", "index_vector_dim",
    ),
}  # fmt: skip


def _dialect_numbers(value: Any, text: str) -> dict[str, Any] | None:
    """The fields of StableHLO's dimension-number attributes."""
    from jaxlib.mlir.dialects import stablehlo

    for prefix, (kind, *fields) in _NUMBERS.items():
        if text.startswith(prefix):
            numbers = getattr(stablehlo, kind)(value)
            return {f: getattr(numbers, f) for f in fields}
    return None
