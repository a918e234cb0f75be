"""Interfaces of kernels, and what a kernel does to reach them."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import (
    ArrayAttr,
    IndexType,
    IntegerAttr,
    StringAttr,
    SymbolNameConstraint,
    SymbolRefAttr,
)
from xdsl.ir import Attribute, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, NoTerminator, Pure, SymbolOpInterface, SymbolTable
from xdsl.utils.exceptions import VerifyException

from headrace.stream.dialect import (
    WorkgroupInfoOp,
    parse_dynamic_dims,
    print_dynamic_dims,
)
from headrace.stream.syntax import (
    parse_attributes,
    parse_body,
    parse_if,
    parse_symbol,
    print_attributes,
    print_body,
    print_symbol,
)

ACCESS_BITS = ("Read", "Write", "Discard")
"""What a binding's access is made of, joined by `|`; `None` for a binding never used."""


def index_attr(value: int) -> IntegerAttr[IndexType]:
    """An integer of type index."""
    return IntegerAttr(value, IndexType())


def parse_number(parser: Parser, keyword: str) -> int:
    """Reads `keyword(3)`."""
    parser.parse_keyword(keyword)
    parser.parse_punctuation("(")
    value = parser.parse_integer(allow_boolean=False, allow_negative=False)
    parser.parse_punctuation(")")
    return value


def visibility_attr(value: str | StringAttr | None) -> StringAttr | None:
    """The attribute for `public`, `private` or nothing said."""
    return None if value is None else StringAttr.get(value)


# -- interfaces ---------------------------------------------------------------------


@irdl_op_definition
class InterfaceOp(IRDLOperation):
    """What a kernel is given: `push_constants` 32-bit words, and bindings."""

    name = "hal.interface"
    sym_name = prop_def(SymbolNameConstraint())
    sym_visibility = opt_prop_def(StringAttr)
    push_constants = prop_def(IntegerAttr)
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), NoTerminator(), SymbolOpInterface(), SymbolTable())

    def __init__(
        self,
        name: str | StringAttr,
        push_constants: int,
        body: Region,
        visibility: str | StringAttr | None = None,
    ) -> None:
        super().__init__(
            properties={
                "sym_name": StringAttr.get(name),
                "sym_visibility": visibility_attr(visibility),
                "push_constants": index_attr(push_constants),
            },
            regions=[body],
        )

    @property
    def bindings(self) -> tuple[InterfaceBindingOp, ...]:
        """The bindings in order of set and number."""
        return tuple(op for op in self.body.ops if isinstance(op, InterfaceBindingOp))

    @classmethod
    def parse(cls, parser: Parser) -> InterfaceOp:
        visibility, name = parse_symbol(parser)
        count = parse_number(parser, "push_constants")
        attributes, region = parse_body(parser)
        made = cls(name, count, region, visibility)
        made.attributes.update(attributes)
        return made

    def print(self, printer: Printer) -> None:
        print_symbol(printer, self.sym_visibility, self.sym_name)
        printer.print_string(f" push_constants({self.push_constants.value.data})")
        print_body(printer, self, self.body)


@irdl_op_definition
class InterfaceBindingOp(IRDLOperation):
    """One buffer of the interface, at `set` and `binding`, of type `StorageBuffer`."""

    name = "hal.interface.binding"
    sym_name = prop_def(SymbolNameConstraint())
    set = prop_def(IntegerAttr)
    binding = prop_def(IntegerAttr)
    type = prop_def(StringAttr)
    access = prop_def(StringAttr)
    traits = traits_def(SymbolOpInterface())

    def __init__(
        self,
        name: str | StringAttr,
        set: int,
        binding: int,
        access: str | StringAttr,
        type: str | StringAttr = "StorageBuffer",
    ) -> None:
        super().__init__(
            properties={
                "sym_name": StringAttr.get(name),
                "set": index_attr(set),
                "binding": index_attr(binding),
                "type": StringAttr.get(type),
                "access": StringAttr.get(access),
            }
        )

    def verify_(self) -> None:
        bits = self.access.data.split("|")
        if bits != ["None"] and any(b not in ACCESS_BITS for b in bits):
            raise VerifyException(f"'{self.access.data}' is no access of a binding")

    @classmethod
    def parse(cls, parser: Parser) -> InterfaceBindingOp:
        name = parser.parse_symbol_name()
        number = parse_number(parser, "set"), parse_number(parser, "binding")
        kind = _parse_text(parser, "type")
        made = cls(name, *number, _parse_text(parser, "access"), kind)
        made.attributes.update(parse_attributes(parser))
        return made

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        printer.print_string(f" set({self.set.value.data}) binding({self.binding.value.data})")
        printer.print_string(f' type("{self.type.data}") access("{self.access.data}")')
        print_attributes(printer, self)


def _parse_text(parser: Parser, keyword: str) -> str:
    parser.parse_keyword(keyword)
    parser.parse_punctuation("(")
    value = parser.parse_str_literal()
    parser.parse_punctuation(")")
    return value


# -- inside kernels -----------------------------------------------------------------


@irdl_op_definition
class InterfaceLoadConstantOp(IRDLOperation):
    """A push constant: `%n = hal.interface.load.constant offset(0) : i32`.

    `alignment` divides every value it will have; `values` are all of them, where known.
    """

    name = "hal.interface.load.constant"
    offset = prop_def(IntegerAttr)
    alignment = opt_prop_def(IntegerAttr)
    values = opt_prop_def(ArrayAttr)
    result = result_def()
    traits = traits_def(Pure())

    def __init__(
        self,
        offset: int,
        result_type: Attribute,
        alignment: Attribute | None = None,
        values: Attribute | None = None,
    ) -> None:
        super().__init__(
            properties={"offset": index_attr(offset), "alignment": alignment, "values": values},
            result_types=[result_type],
        )

    @classmethod
    def parse(cls, parser: Parser) -> InterfaceLoadConstantOp:
        offset = parse_number(parser, "offset")
        alignment = parse_if(parser, "alignment", lambda: _parse_enclosed(parser))
        values = parse_if(parser, "values", lambda: _parse_enclosed(parser))
        attributes = parse_attributes(parser)
        parser.parse_punctuation(":")
        made = cls(offset, parser.parse_type(), alignment, values)
        made.attributes.update(attributes)
        return made

    def print(self, printer: Printer) -> None:
        printer.print_string(f" offset({self.offset.value.data})")
        _print_enclosed(printer, "alignment", self.alignment)
        _print_enclosed(printer, "values", self.values)
        print_attributes(printer, self)
        printer.print_string(" : ")
        printer.print_attribute(self.result.type)


def _parse_enclosed(parser: Parser) -> Attribute:
    parser.parse_punctuation("(")
    value = parser.parse_attribute()
    parser.parse_punctuation(")")
    return value


def _print_enclosed(printer: Printer, keyword: str, value: Attribute | None) -> None:
    if value is not None:
        printer.print_string(f" {keyword}(")
        printer.print_attribute(value)
        printer.print_string(")")


@irdl_op_definition
class InterfaceBindingSubspanOp(IRDLOperation):
    """A view of a binding: `hal.interface.binding.subspan @io::@s0b0_ro[%o] : memref<4xf32>`."""

    name = "hal.interface.binding.subspan"
    binding = prop_def(SymbolRefAttr)
    alignment = opt_prop_def(IntegerAttr)
    byte_offset = operand_def(IndexType)
    dynamic_dims = var_operand_def(IndexType)
    result = result_def()
    traits = traits_def(Pure())

    def __init__(
        self,
        binding: SymbolRefAttr,
        byte_offset: SSAValue,
        result_type: Attribute,
        dynamic_dims: Sequence[SSAValue] = (),
        alignment: Attribute | None = None,
    ) -> None:
        super().__init__(
            operands=[byte_offset, list(dynamic_dims)],
            properties={"binding": binding, "alignment": alignment},
            result_types=[result_type],
        )

    @property
    def binding_name(self) -> str:
        """The name of the `hal.interface.binding`."""
        return self.binding.nested_references.data[-1].data

    @classmethod
    def parse(cls, parser: Parser) -> InterfaceBindingSubspanOp:
        binding = parser.parse_attribute()
        if not isinstance(binding, SymbolRefAttr):
            parser.raise_error("expected @interface::@binding")
        parser.parse_punctuation("[")
        offset = parser.parse_unresolved_operand()
        parser.parse_punctuation("]")
        alignment = parse_if(parser, "alignment", lambda: _parse_enclosed(parser))
        attributes = parse_attributes(parser)
        parser.parse_punctuation(":")
        kind = parser.parse_type()
        dims = parse_dynamic_dims(parser)
        made = cls(
            binding,
            parser.resolve_operand(offset, IndexType()),
            kind,
            [parser.resolve_operand(d, IndexType()) for d in dims],
            alignment,
        )
        made.attributes.update(attributes)
        return made

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_attribute(self.binding)
        with printer.in_square_brackets():
            printer.print_operand(self.byte_offset)
        _print_enclosed(printer, "alignment", self.alignment)
        print_attributes(printer, self)
        printer.print_string(" : ")
        printer.print_attribute(self.result.type)
        print_dynamic_dims(printer, self.dynamic_dims)


@irdl_op_definition
class InterfaceWorkgroupIdOp(WorkgroupInfoOp):
    """Which workgroup this is."""

    name = "hal.interface.workgroup.id"


@irdl_op_definition
class InterfaceWorkgroupCountOp(WorkgroupInfoOp):
    """How many workgroups run."""

    name = "hal.interface.workgroup.count"


@irdl_op_definition
class InterfaceWorkgroupSizeOp(WorkgroupInfoOp):
    """How many invocations a workgroup has."""

    name = "hal.interface.workgroup.size"
