"""Finds every operator of a model that cannot be imported, before anything is built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.base.errors import Diagnostic, Problems
from headrace.importers.onnx.control import control_rule
from headrace.importers.onnx.functions import FunctionTable
from headrace.importers.onnx.nodes import Node, read_node
from headrace.importers.onnx.registry import find_handler

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

_BLOCKED = "com.microsoft.nchwc."
_BLOCKED_HELP = (
    "onnxruntime wrote the model for one machine: save it with the level ORT_ENABLE_EXTENDED"
)


def check_operators(
    model: ModelProto, functions: FunctionTable, opsets: Mapping[str, int], file_name: str
) -> None:
    """Lists all unsupported operators at once, with counts and places.

    Raises:
        HeadraceError HR1203: at least one operator is not supported.
    """
    kinds: set[str] = set()
    missing: dict[str, list[str]] = {}
    for node, node_opsets in _walk(model.graph.node, functions, opsets, file_name):
        kinds.add(node.kind)
        opset = node_opsets.get(node.domain, 1)
        if not _supported(node, opset, functions):
            missing.setdefault(f"{node.kind} (opset {opset})", []).append(node.place)
    problems = Problems()
    for kind, places in missing.items():
        times = "once" if len(places) == 1 else f"{len(places)} times"
        name, _, version = kind.partition(" ")
        problems.add(
            Diagnostic(
                "HR1203",
                f"ONNX operator '{name}' {version} is not supported, used {times}",
                tuple(places),
                (f"{len(missing)} of {len(kinds)} operator kinds in this model are missing",),
                (
                    _BLOCKED_HELP
                    if name.startswith(_BLOCKED)
                    else "docs/howto/add-onnx-op.md adds one",
                ),
            )
        )
    problems.raise_if_any()


def _walk(
    nodes: Sequence[NodeProto],
    functions: FunctionTable,
    opsets: Mapping[str, int],
    file_name: str,
    outer: str = "",
    depth: int = 0,
) -> Iterator[tuple[Node, Mapping[str, int]]]:
    """Every node that will be imported, those in function bodies included."""
    for index, proto in enumerate(nodes):
        node = read_node(proto, index, file_name, outer, {})
        opset = opsets.get(node.domain, 1)
        body = False
        if find_handler(node.domain, node.op_type, opset) is None and depth < 16:
            body = functions.static_nodes(node.domain, node.op_type, opset)
        for graph in _graphs(node):
            yield from _walk(graph.node, functions, opsets, file_name, node.label, depth + 1)
        if isinstance(body, bool):
            yield node, opsets
        else:
            inner = {**opsets, **body.opsets}
            yield from _walk(body.nodes, functions, inner, file_name, node.label, depth + 1)


def _graphs(node: Node) -> Iterator[GraphProto]:
    """The graphs of a node's attributes: bodies and branches."""
    for attribute in node.attributes.values():
        if attribute.HasField("g"):
            yield attribute.g


def _supported(node: Node, opset: int, functions: FunctionTable) -> bool:
    if find_handler(node.domain, node.op_type, opset) is not None:
        return True
    if not node.domain and control_rule(node.op_type) is not None:
        return True
    return functions.static_nodes(node.domain, node.op_type, opset) is True
