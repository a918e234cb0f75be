"""ONNX nodes as plain data: attributes read once, references to function attributes put in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.base.errors import error

if TYPE_CHECKING:
    from onnx import AttributeProto, NodeProto


@dataclass(frozen=True)
class Node:
    """One node.

    Attributes:
        op_type, domain: the operator; the default domain is `""`.
        place: where it is, for messages: `model.onnx: node 'encoder/MatMul_3'`.
        label: the place without the file, kept as the location of the operations.
        inputs, outputs: names; `""` for an optional one left out.
        attributes: name -> the attribute as stored.
    """

    op_type: str
    domain: str
    place: str
    label: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, AttributeProto] = field(repr=False)

    @property
    def kind(self) -> str:
        """The operator with its domain, as people write it."""
        return f"{self.domain}.{self.op_type}" if self.domain else self.op_type


def require_text(name: object, at: str) -> None:
    """Refuses a name that is no UTF-8: protobuf hands such names out as bytes.

    Raises:
        HeadraceError HR1102: it is bytes.
    """
    if not isinstance(name, str):
        raise error("HR1102", "a name in the file is not UTF-8", at=at)


def read_node(
    proto: NodeProto,
    index: int,
    file_name: str,
    outer: str = "",
    arguments: Mapping[str, AttributeProto] | None = None,
) -> Node:
    """The node, with attribute references looked up in a function call's `arguments`."""
    for text in (proto.name, proto.op_type, proto.domain, *proto.input, *proto.output):
        require_text(text, f"{file_name}: node {index}")
    name = proto.name or (proto.output[0] if proto.output else "")
    named = f"node '{name}'" if proto.name else f"node {index} ({proto.op_type} -> '{name}')"
    label = f"{outer}/{named}" if outer else named
    attributes: dict[str, AttributeProto] = {}
    for attribute in proto.attribute:
        require_text(attribute.name, f"{file_name}: {label}")
        if not attribute.ref_attr_name:
            attributes[attribute.name] = attribute
        elif arguments is not None and attribute.ref_attr_name in arguments:
            attributes[attribute.name] = arguments[attribute.ref_attr_name]
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    return Node(
        proto.op_type,
        domain,
        f"{file_name}: {label}",
        label,
        tuple(proto.input),
        tuple(proto.output),
        attributes,
    )


def attribute_value(attribute: AttributeProto, at: str) -> Any:
    """The value: float, int, str, list of them, `TensorProto` or `GraphProto`.

    Raises:
        HeadraceError HR1107: the attribute's type is unknown, or text is not UTF-8.
    """
    from onnx import helper

    try:
        value = helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            return value.decode()  # a wrong encoding is a ValueError
        if isinstance(value, (list, tuple)) or hasattr(value, "__len__"):
            return [v.decode() if isinstance(v, bytes) else v for v in value]
        return value
    except (ValueError, TypeError) as wrong:
        raise error(
            "HR1107",
            f"attribute '{attribute.name}' cannot be read",
            at=at,
            notes=str(wrong),
        ) from wrong
