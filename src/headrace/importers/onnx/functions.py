"""Operators that are functions: model-local ones, and standard ones with a body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.importers.onnx.context import NodeContext

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, NodeProto


@dataclass(frozen=True)
class Body:
    """The body of a function operator.

    Attributes:
        inputs, outputs: names inside the body.
        nodes: in order.
        opsets: domain -> version inside the body; the caller's where it names none.
        defaults: of the attributes.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: Sequence[NodeProto]
    opsets: Mapping[str, int]
    defaults: Mapping[str, AttributeProto]


@dataclass(frozen=True)
class FunctionTable:
    """Finds bodies.

    Attributes:
        local: (domain, name) -> a function of the model itself.
    """

    local: Mapping[tuple[str, str], FunctionProto] = field(
        default_factory=dict[tuple[str, str], "FunctionProto"]
    )

    def body(self, context: NodeContext) -> Body | None:
        """The body for a call; None where the operator is no function."""
        key = (context.node.domain, context.node.op_type)
        if key in self.local:
            return _body(self.local[key])
        found = _standard(context.node.domain, context.node.op_type, context.opset)
        if found is not None:
            return found
        return _from_context(context)

    def static_nodes(self, domain: str, op_type: str, opset: int) -> Body | bool:
        """What a check before import can know.

        The body; True where there is one that depends on the types of a call; False
        where the operator is no function.
        """
        if (domain, op_type) in self.local:
            return _body(self.local[domain, op_type])
        found = _standard(domain, op_type, opset)
        if found is not None:
            return found
        return _has_context_body(domain, op_type, opset)


def _body(function: FunctionProto) -> Body:
    opsets = {_domain(o.domain): o.version for o in function.opset_import}
    defaults = {a.name: a for a in function.attribute_proto}
    return Body(
        tuple(function.input), tuple(function.output), list(function.node), opsets, defaults
    )


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _standard(domain: str, op_type: str, opset: int) -> Body | None:
    from onnx import FunctionProto

    schema = _schema(domain, op_type, opset)
    if schema is None or not schema.has_function:
        return None
    versions = [v for v in schema.function_opset_versions if v <= opset]
    version = max(versions, default=min(schema.function_opset_versions))
    data = schema.get_function_with_opset_version(version)
    function = FunctionProto()
    function.ParseFromString(data)
    body = _body(function)
    defaults = dict(body.defaults)
    for name, attribute in schema.attributes.items():
        if attribute.default_value.name and name not in defaults:
            defaults[name] = attribute.default_value
    return Body(body.inputs, body.outputs, body.nodes, body.opsets, defaults)


def _has_context_body(domain: str, op_type: str, opset: int) -> bool:
    schema = _schema(domain, op_type, opset)
    return schema is not None and schema.has_context_dependent_function


def _schema(domain: str, op_type: str, opset: int) -> Any:
    """onnx's own definition of an operator; its stubs lack what functions need."""
    from onnx import defs

    try:
        return defs.get_schema(op_type, opset, domain)
    except (defs.SchemaError, TypeError):  # TypeError: a version beyond 32 bits
        return None


def _from_context(context: NodeContext) -> Body | None:
    """A body that depends on the element types and ranks of a call."""
    from onnx import AttributeProto, FunctionProto, NodeProto, TypeProto, helper

    node = context.node
    if not _has_context_body(node.domain, node.op_type, context.opset):
        return None
    schema = _schema(node.domain, node.op_type, context.opset)
    versions = [v for v in schema.context_dependent_function_opset_versions]
    version = max([v for v in versions if v <= context.opset], default=min(versions))
    proto = NodeProto(op_type=node.op_type, domain=node.domain)
    proto.input.extend(node.inputs)
    proto.output.extend(node.outputs)
    for name, attribute in node.attributes.items():
        copy = AttributeProto()
        copy.CopyFrom(attribute)
        copy.name = name
        proto.attribute.append(copy)
    types: list[bytes] = []
    for value in context.inputs:
        if value is None:
            types.append(TypeProto().SerializeToString())
            continue
        code = helper.np_dtype_to_tensor_dtype(value.dtype.numpy_dtype)
        shape = [s.value if s.is_constant else str(s) for s in value.shape]
        types.append(helper.make_tensor_type_proto(code, shape).SerializeToString())
    data = schema.get_context_dependent_function_with_opset_version(
        version, proto.SerializeToString(), types
    )
    function = FunctionProto()
    function.ParseFromString(data)
    body = _body(function)
    defaults = dict(body.defaults)
    for name, attribute in schema.attributes.items():
        if attribute.default_value.name and name not in defaults:
            defaults[name] = attribute.default_value
    return Body(body.inputs, body.outputs, body.nodes, body.opsets, defaults)
