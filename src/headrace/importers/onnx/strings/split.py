"""A model cut at its strings: what runs on the host first, what is compiled, what runs last.

A node belongs to the host where it takes or gives strings. Its result may be compiled on
(a label's number), and it may take what is compiled (a label's name for the best score).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.base.errors import Diagnostic, Problems, error
from headrace.importers.onnx.nodes import Node, attribute_value, read_node
from headrace.importers.onnx.strings.meaning import HOST_OPS, ML, strings

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

_STRING = 8
"""`TensorProto.STRING`."""

_FIRST_ONLY = frozenset(("StringSplit",))
"""Operators whose first output alone is strings."""

_NUMBERS_OUT = frozenset(
    ("Equal", "RegexFullMatch", "Shape", "Size", "OneHotEncoder", "TfIdfVectorizer")
)
"""Operators on strings that give none."""

_ALWAYS = frozenset(("ZipMap", "ImageDecoder"))
"""Operators of the host whose inputs and outputs need not be strings."""

_CLASSIFIERS = {
    "TreeEnsembleClassifier": "classlabels_int64s",
    "LinearClassifier": "classlabels_ints",
    "SVMClassifier": "classlabels_ints",
}


@dataclass(frozen=True)
class HostNode:
    """One node that runs on the host.

    Attributes:
        node: with its names.
        attributes: read: numbers, text, lists of them, arrays.
    """

    node: Node
    attributes: Mapping[str, Any]

    def run(self, values: dict[str, Any]) -> None:
        """Computes the outputs into `values`, from the inputs there.

        Raises:
            HeadraceError HR1207: the inputs do not fit the operator.
        """
        inputs = [values[name] if name else None for name in self.node.inputs]
        try:
            made = HOST_OPS[self.node.domain, self.node.op_type](self.attributes, inputs)
        except (ValueError, TypeError, KeyError, IndexError, OSError) as wrong:
            fact = f"{self.node.kind}: its inputs or attributes are not as the operator defines them"
            raise error("HR1207", fact, at=self.node.place, notes=str(wrong)) from wrong
        several = made if isinstance(made, tuple) else (made,)
        values.update(zip(self.node.outputs, several, strict=False))


@dataclass(frozen=True)
class SplitModel:
    """A model in three parts.

    Attributes:
        model: the whole.
        constants: strings of the model, and what else host nodes read of it.
        before, after: nodes on the host.
        compiled: nodes in between.
        given: names that the compiled part takes: inputs, and results of `before`.
        made: names that it gives: outputs, and what `after` takes.
    """

    model: ModelProto
    constants: Mapping[str, Any]
    before: tuple[HostNode, ...]
    compiled: tuple[NodeProto, ...]
    after: tuple[HostNode, ...]
    given: tuple[str, ...]
    made: tuple[str, ...]

    def compiled_model(self, values: Mapping[str, Any]) -> ModelProto:
        """The part in between, for results of `before` of these types and shapes."""
        from onnx import ModelProto, ValueInfoProto, helper

        graph = self.model.graph
        known = {v.name: v for v in graph.input}
        outputs = {v.name: v for v in graph.output}
        inputs = [
            known.get(name)
            or helper.make_tensor_value_info(
                name,
                helper.np_dtype_to_tensor_dtype(values[name].dtype),
                values[name].shape,
            )
            for name in self.given
        ]
        made = ModelProto()
        made.CopyFrom(self.model)
        kept = [t for t in graph.initializer if t.data_type != _STRING]
        for field in ("node", "input", "output", "initializer", "value_info"):
            made.graph.ClearField(field)  # pyright: ignore
        made.graph.node.extend(self.compiled)
        made.graph.input.extend(inputs)
        made.graph.output.extend(outputs.get(n) or ValueInfoProto(name=n) for n in self.made)
        made.graph.initializer.extend(kept)
        return made


def split_at_strings(model: ModelProto, name: str = "model.onnx") -> SplitModel | None:
    """The parts of a model; None where no node takes or gives strings.

    Raises:
        HeadraceError HR1203: operators that have no meaning on strings, all at once.
        HeadraceError HR1204: numbers are computed from strings that come from numbers that
            are computed.
    """
    nodes = list(_with_numbered_labels(model.graph.node))
    host = _host_nodes(model.graph, nodes)
    if not any(host):
        return None
    read = {n: read_node(nodes[n], n, name) for n, is_host in enumerate(host) if is_host}
    _check(read.values())
    weights = {t.name: t for t in model.graph.initializer}
    early = {*weights, *(v.name for v in model.graph.input), ""}
    constants = _constants(nodes, model.graph, [i for r in read.values() for i in r.inputs])
    early |= {*constants}
    late: set[str] = set()
    before: list[HostNode] = []
    after: list[HostNode] = []
    compiled: list[NodeProto] = []
    for number, node in enumerate(nodes):
        if not host[number]:
            blamed = [i for i in node.input if i in late]
            if blamed:
                fact = f"{node.op_type}: '{blamed[0]}' is computed from strings of computed numbers"
                raise error("HR1204", fact, at=f"{name}: node {number}")
            compiled.append(node)
            continue
        if all(o in constants for o in node.output):
            continue
        mine = HostNode(read[number], _attributes(read[number]))
        if all(i in early for i in node.input):
            before.append(mine)
            early |= set(node.output)
        else:
            after.append(mine)
            late |= set(node.output)
    inputs = [v.name for v in model.graph.input]
    results = [o for part in before for o in part.node.outputs]
    used = {i for node in compiled for i in node.input}
    there = {o for node in compiled for o in node.output}
    wanted = [v.name for v in model.graph.output]
    wanted += [i for part in after for i in part.node.inputs if i not in constants]
    return SplitModel(
        model,
        constants,
        tuple(before),
        tuple(compiled),
        tuple(after),
        tuple(n for n in (*inputs, *results) if n in used and n not in weights),
        tuple(dict.fromkeys(n for n in wanted if n in there)),
    )


def _with_numbered_labels(nodes: Iterable[NodeProto]) -> Iterable[NodeProto]:
    """Classifiers with names for classes number them; a LabelEncoder says the names."""
    from onnx import NodeProto, helper

    for node in nodes:
        names = next((a.strings for a in node.attribute if a.name == "classlabels_strings"), ())
        field = _CLASSIFIERS.get(node.op_type)
        if field is None or node.domain != ML or not names:
            yield node
            continue
        numbered = NodeProto()
        numbered.CopyFrom(node)
        kept = [a for a in node.attribute if a.name not in ("classlabels_strings", field)]
        numbers = list(range(len(names)))
        numbered.ClearField("attribute")
        numbered.attribute.extend([*kept, helper.make_attribute(field, numbers)])
        label, place = node.output[0], f"{node.output[0]}/number"
        numbered.output[0] = place
        yield numbered
        yield helper.make_node(
            "LabelEncoder",
            [place],
            [label],
            f"{node.name}/labels",
            domain=ML,
            keys_int64s=numbers,
            values_strings=list(names),
        )


def _host_nodes(graph: GraphProto, nodes: Sequence[NodeProto]) -> list[bool]:
    """For each node, whether it takes or gives strings, or what else no compiled code has."""
    texts = {v.name for v in graph.input if v.type.tensor_type.elem_type == _STRING}
    texts |= {t.name for t in graph.initializer if t.data_type == _STRING}
    found: list[bool] = []
    for node in nodes:
        takes = any(i in texts for i in node.input)
        gives = _gives_strings(node, takes)
        texts |= set(node.output[:gives])
        found.append(takes or bool(gives) or node.op_type in _ALWAYS)
    return found


def _gives_strings(node: NodeProto, takes: bool) -> int:
    """How many of a node's outputs, the first ones, are strings."""
    named = {a.name: a for a in node.attribute}
    if node.op_type == "Constant":
        value = named.get("value")
        tensor = value is not None and value.t.data_type == _STRING
        return int(tensor or "value_string" in named or "value_strings" in named)
    if node.op_type == "Cast":
        return int("to" in named and named["to"].i == _STRING)
    if node.op_type == "CategoryMapper":
        return int(not takes)
    if node.op_type == "LabelEncoder":
        tensor = named.get("values_tensor")
        if "classes_strings" in named:
            return int(not takes)
        texts = "values_strings" in named and len(named["values_strings"].strings) > 0
        return int(texts or (tensor is not None and tensor.t.data_type == _STRING))
    if not takes or node.op_type in _NUMBERS_OUT:
        return 0
    return 1 if node.op_type in _FIRST_ONLY else len(node.output)


def _check(nodes: Iterable[Node]) -> None:
    problems = Problems()
    for node in nodes:
        if node.op_type != "Constant" and (node.domain, node.op_type) not in HOST_OPS:
            fact = f"ONNX operator '{node.kind}' is not supported on strings"
            problems.add(Diagnostic("HR1203", fact, (node.place,)))
    problems.raise_if_any()


def _constants(
    nodes: Sequence[NodeProto], graph: GraphProto, names: Iterable[str]
) -> dict[str, Any]:
    """Weights and constants of the model among `names`, as arrays."""
    from onnx import numpy_helper

    wanted = set(names) | {v.name for v in graph.output}
    found = {
        t.name: _array(numpy_helper.to_array(t)) for t in graph.initializer if t.name in wanted
    }
    for number, node in enumerate(nodes):
        if node.op_type == "Constant" and node.output[0] in wanted:
            given = _attributes(read_node(node, number, ""))
            (value,) = given.values()
            text = isinstance(value, str) or (
                isinstance(value, list) and any(isinstance(v, str) for v in value)
            )
            found[node.output[0]] = strings(value) if text else _array(np.asarray(value))
    return found


def _array(array: Any) -> Any:
    return strings(array) if array.dtype.kind in "OSU" else array


def _attributes(node: Node) -> dict[str, Any]:
    from onnx import TensorProto, numpy_helper

    found: dict[str, Any] = {}
    for name, attribute in node.attributes.items():
        value = attribute_value(attribute, node.place)
        found[name] = numpy_helper.to_array(value) if isinstance(value, TensorProto) else value
    return found
