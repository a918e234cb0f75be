"""The types of the stream stage: bindings and resources."""

from __future__ import annotations

from xdsl.ir import Attribute, Data, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

LIFETIMES = ("external", "constant", "variable", "transient", "staging")
ACCESSES = ("ro", "wo", "rw", "xw")
"""Read, write (what is not written stays), both, write and discard what was there."""


@irdl_attr_definition
class BindingType(ParametrizedAttribute, TypeAttribute):
    """`!stream.binding`: a kernel's argument that stands for a range of a resource."""

    name = "stream.binding"


@irdl_attr_definition
class ResourceType(Data[str], TypeAttribute):
    """`!stream.resource<transient>`: memory with a lifetime; the data is the lifetime."""

    name = "stream.resource"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> str:
        with parser.in_angle_brackets():
            return parser.parse_keyword_in(LIFETIMES)

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<{self.data}>")


def lifetime_of(value: SSAValue | Attribute) -> str:
    """The lifetime of a resource. Raises TypeError for anything else."""
    kind = value.type if isinstance(value, SSAValue) else value
    if not isinstance(kind, ResourceType):
        raise TypeError(f"{kind} is no resource")
    return kind.data
