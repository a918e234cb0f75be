"""Walks the nodes of a graph (or function body) and builds tensor operations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import LocationAttr, StringAttr
from xdsl.ir import Operation, SSAValue

from headrace.base.dtypes import I1, I64
from headrace.base.errors import HeadraceError, error
from headrace.base.parameters import Source, array_source
from headrace.base.symbols import as_expr, product
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.control import control_rule
from headrace.importers.onnx.dimensions import Dimensions
from headrace.importers.onnx.functions import FunctionTable
from headrace.importers.onnx.learnings import Learned
from headrace.importers.onnx.nodes import Node, read_node
from headrace.importers.onnx.registry import find_handler, find_size_rule
from headrace.importers.onnx.values import (
    SMALL_ELEMENTS,
    OptionalValue,
    SequenceValue,
    Value,
    read_source,
    sizes_array,
)
from headrace.importers.onnx.weights import tensor_source
from headrace.ir.locations import location
from headrace.ir.model import NAME
from headrace.ir.types import dtype_of, shape_of
from headrace.tensor.build import TensorBuilder

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, NodeProto


_NOT_AS_DEFINED = (
    AttributeError,
    IndexError,
    KeyError,
    OverflowError,
    TypeError,
    ZeroDivisionError,
)
_MOST_CHARACTERS = 1000  # of the product of a shape; every clamped bound doubles them
_FEW_ELEMENTS = 16  # a float tensor that may take part in arithmetic on sizes


@dataclass
class Scope:
    """Names that nodes see: those of one graph or of one function body.

    Attributes:
        values: by name.
        opsets: domain -> version.
        outer: the place of the call, for labels inside a function body.
        arguments: attributes of the call.
    """

    values: dict[str, Value]
    opsets: Mapping[str, int]
    outer: str = ""
    arguments: Mapping[str, AttributeProto] | None = None


@dataclass
class GraphImporter:
    """Builds one function of the module.

    Attributes:
        build: appends to the function's block.
        dims: names of sizes.
        functions: bodies of model-local and standard function operators.
        file_name: for messages.
        folder: of the model, for external data.
        parameters: filled with the weights that are used.
    """

    build: TensorBuilder
    dims: Dimensions
    functions: FunctionTable
    file_name: str
    folder: Path | None
    parameters: dict[str, Source] = field(default_factory=dict[str, Source])

    def run(self, nodes: Sequence[NodeProto], scope: Scope) -> None:
        """Imports nodes in order into the scope.

        Raises:
            HeadraceError HR12xx: a node cannot be imported.
            Learned: start again with what `dims` learned.
        """
        for index, proto in enumerate(nodes):
            node = read_node(proto, index, self.file_name, scope.outer, scope.arguments)
            self._import_node(node, scope)

    def _import_node(self, node: Node, scope: Scope) -> None:
        inputs = [self._lookup(name, node, scope) for name in node.inputs]
        opset = scope.opsets.get(node.domain, 1)
        before, self.build.location = self.build.location, location(node.label)
        context = NodeContext(
            node,
            opset,
            inputs,
            self.build,
            self.dims,
            self.materialise,
            self.add_source,
            self.folder,
        )
        try:
            results = self._results(context, scope)
        except (HeadraceError, Learned):
            raise
        except ValueError as wrong:
            raise error("HR1206", f"{node.kind}: {wrong}", at=node.place) from wrong
        except _NOT_AS_DEFINED as wrong:
            raise error(
                "HR1207",
                f"{node.kind}: its inputs or attributes are not as the operator defines them",
                at=node.place,
                notes=f"{type(wrong).__name__}: {wrong}",
            ) from wrong
        finally:
            self.build.location = before
        for name, value in zip(node.outputs, results, strict=False):
            if name and value is not None:
                value.name = value.name or name
                scope.values[name] = value

    def _lookup(self, name: str, node: Node, scope: Scope) -> Value | None:
        if not name:
            return None
        found = scope.values.get(name)
        if found is None:
            raise error(
                "HR1104",
                f"'{name}' is used before anything makes it",
                at=node.place,
                helps="onnx.checker.check_model tells more",
            )
        return found

    def _results(self, context: NodeContext, scope: Scope) -> list[Value | None]:
        node = context.node
        tracked = self._by_sizes(context)
        if tracked is not None:
            return [tracked]
        control = None if node.domain else control_rule(node.op_type)
        if control is not None:
            return control(self, context, scope)
        handler = find_handler(node.domain, node.op_type, context.opset)
        if handler is None:
            return self._call(context, scope)
        made = handler(context)
        several = made if isinstance(made, Sequence) else [made]
        if len(several) < context.output_count:
            raise context.unsupported(f"output {len(several)} is not computed")
        return [v if isinstance(v, Value) else self._simplified(v) for v in several]

    def _simplified(self, ssa: SSAValue) -> Value:
        """A result whose sizes are written as simply as bounds of the names allow.

        A size that is surely 1, say, is written 1: a slice that keeps everything.
        """
        shape = shape_of(ssa)
        simple = tuple(self.dims.simplify(s) for s in shape)
        if self.dims.defined and len(str(product(simple))) > _MOST_CHARACTERS:
            raise ValueError("sizes that data decides make formulas beyond measure")
        if simple != shape:
            ssa = self.build.slice(ssa, [0] * len(shape), simple, [1] * len(shape))
        return Value("", dtype_of(ssa), simple, ssa=ssa)

    def _by_sizes(self, context: NodeContext) -> Value | None:
        """The result as sizes, where all inputs are sizes and the operator has a rule."""
        rule = find_size_rule(context.node.domain, context.node.op_type)
        if rule is None or not context.inputs or context.output_count > 1:
            return None
        arrays: list[Any] = []
        for value in context.inputs:
            if value is not None and value.sizes is None:
                return None
            arrays.append(None if value is None else value.sizes)
        try:
            result = rule(context, arrays)
        except (ValueError, *_NOT_AS_DEFINED):
            return None  # the ordinary operation, or its error, says more
        if result is None:
            return None
        if isinstance(result, Value):
            return result
        first = context.inputs[0]
        kind = first.dtype if first is not None else I1
        return Value("", kind, tuple(as_expr(s) for s in result.shape), sizes=result)

    def subgraph(
        self, graph: GraphProto, given: Sequence[Value], context: NodeContext, scope: Scope
    ) -> list[Value]:
        """The outputs of a node's graph, imported where the builder stands.

        Args:
            given: its inputs.
            context, scope: of the node; the graph sees the names of the scope.
        """
        values = {
            **scope.values,
            **{i.name: v for i, v in zip(graph.input, given, strict=False)},
        }
        inner = replace(scope, values=values, outer=context.node.label)
        if len(given) != len(graph.input):
            fact = f"its graph takes {len(graph.input)} inputs, not {len(given)}"
            raise context.malformed(fact)
        for tensor in graph.initializer:
            at = f"{context.node.place}: weight '{tensor.name}'"
            source = tensor_source(tensor, self.folder, at)
            inner.values[tensor.name] = self.add_source(tensor.name, source)
        self.run(graph.node, inner)
        missing = [o.name for o in graph.output if o.name not in inner.values]
        if missing:
            raise context.malformed(f"'{missing[0]}' is made by no node of its graph")
        return [inner.values[output.name] for output in graph.output]

    # -- functions ------------------------------------------------------------------

    def _call(self, context: NodeContext, scope: Scope) -> list[Value | None]:
        """Imports the body of a function operator in place of the node."""
        node = context.node
        body = self.functions.body(context)
        if body is None:
            raise error(
                "HR1203",
                f"ONNX operator '{node.kind}' is not supported at opset {context.opset}",
                at=node.place,
            )
        values: dict[str, Value] = {}
        for n, name in enumerate(body.inputs):
            if context.has(n):
                values[name] = context.value(n)
        arguments = {**body.defaults, **node.attributes}
        inner = Scope(values, {**scope.opsets, **body.opsets}, node.label, arguments)
        self.run(_without_missing(body.nodes, values), inner)
        return [inner.values.get(name) for name in body.outputs]

    # -- values -----------------------------------------------------------------------

    def add_source(self, name: str, source: Source) -> Value:
        """A weight or constant that nobody used yet."""
        shape = tuple(as_expr(s) for s in source.shape)
        value = Value(name, source.dtype, shape, source=source)
        count = product(shape).value
        if source.dtype.is_integer or source.dtype == I1:
            if count <= SMALL_ELEMENTS:
                value.sizes = sizes_array(read_source(source), source.shape)
        elif source.dtype.is_float and count <= _FEW_ELEMENTS:
            value.sizes = _whole_numbers(read_source(source), source.shape)
        return value

    def materialise(self, value: Value) -> SSAValue:
        """The value as an operation's result, made on first use.

        What was made in a region that is closed is made again.

        Raises:
            HeadraceError HR1210: it is a sequence or an optional.
        """
        if isinstance(value, (SequenceValue, OptionalValue)):
            kind = "a sequence" if isinstance(value, SequenceValue) else "an optional"
            raise error("HR1210", f"'{value.name}' is {kind} where a tensor is needed")
        if value.ssa is None or not self.build.sees(value.ssa):
            value.ssa = self._make(value)
        return value.ssa

    def _make(self, value: Value) -> SSAValue:
        if value.source is None:
            return self._make_sizes(value)
        before = self.build.location
        self.build.location = _weight_location(value.name, before)
        try:
            return self._make_source(value.name, value.source)
        finally:
            self.build.location = before

    def _make_sizes(self, value: Value) -> SSAValue:
        known = value.known()
        if known is not None:
            return self._make_source(value.name, array_source(known))
        flat = list(value.sizes.reshape(-1))
        made = self.build.dimension(flat if value.shape else flat[0], I64)
        return self.build.convert(self.build.reshape(made, value.shape), value.dtype)

    def _make_source(self, name: str, source: Source) -> SSAValue:
        import numpy as np

        count = product(source.shape).value
        if count <= SMALL_ELEMENTS:
            made = self.build.constant(read_source(source))
            assert isinstance(made.owner, Operation)
            made.owner.attributes[NAME] = StringAttr(name)
            return made
        array = getattr(source, "array", None)
        if array is not None:
            flat = array.reshape(-1)
            first = flat[:1].tobytes()
            if flat[-1:].tobytes() == first and bool(np.all(flat == flat[0])):
                return self.build.splat(flat[0], source.dtype, source.shape)
        symbol = self._symbol(name)
        self.parameters[symbol] = source
        return self.build.parameter(symbol, source.dtype, source.shape)

    def _symbol(self, name: str) -> str:
        base = re.sub(r"[^\w.$-]", "_", name) or "weight"
        symbol, n = base, 2
        while symbol in self.parameters:
            symbol, n = f"{base}_{n}", n + 1
        return symbol


def _whole_numbers(array: Any, shape: tuple[int, ...]) -> Any:
    """Floats as sizes, for factors such as 2.0; None where one has a fraction."""
    import numpy as np

    wide = np.asarray(array).astype(np.float64)
    whole = np.isfinite(wide) & (wide == np.round(wide)) & (np.abs(wide) < 2**24)
    if not bool(np.all(whole & ~(np.signbit(wide) & (wide == 0)))):
        return None
    return sizes_array(wide.astype(np.int64), shape)


def _weight_location(name: str, node: LocationAttr) -> LocationAttr:
    return location(f"weight '{name}'") if name else node


def _without_missing(
    nodes: Sequence[NodeProto], values: Mapping[str, Value]
) -> Sequence[NodeProto]:
    """A body's nodes with inputs that the call leaves out left out too."""
    from onnx import NodeProto

    made = {*values}
    result: list[NodeProto] = []
    for node in nodes:
        made.update(node.output)
    for node in nodes:
        if all(not name or name in made for name in node.input):
            result.append(node)
            continue
        copy = NodeProto()
        copy.CopyFrom(node)
        for n, name in enumerate(node.input):
            if name not in made:
                copy.input[n] = ""
        result.append(copy)
    return result
