"""Stage 3, `hal`: executables with a variant a target, and the interface of each kernel.

Operation names and meanings are those of IREE's HAL dialect of 2021 (seed 2): an
executable has an interface (`hal.interface`: bindings and push constants) for each entry
point and a variant for each target; kernels have no arguments, they load constants and
bindings through `hal.interface.*`. The program around them keeps its `stream.cmd.*`
commands; each dispatch says which interface bindings its resources are
(`hal.interface.bindings`).

    hal.executable private @ex {
      hal.interface @io push_constants(1) {
        hal.interface.binding @s0b0_ro set(0) binding(0) access("Read")
        hal.interface.binding @s0b1_wo set(0) binding(1) access("Write")
      }
      hal.executable.variant @cpu_native target "cpu:native" {
        hal.executable.entry_point public @fn ordinal(0) interface(@io)
        builtin.module {
          func.func @fn() {...}
          hal.interface private @io ...
        }
      }
    }
"""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.dialects.builtin import (
    DenseArrayBase,
    IntegerAttr,
    IntegerType,
    StringAttr,
    SymbolNameConstraint,
    SymbolRefAttr,
)
from xdsl.ir import Dialect, Region
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, NoTerminator, SymbolOpInterface, SymbolTable
from xdsl.utils.exceptions import VerifyException

from headrace.hal.interfaces import (
    InterfaceBindingOp,
    InterfaceBindingSubspanOp,
    InterfaceLoadConstantOp,
    InterfaceOp,
    InterfaceWorkgroupCountOp,
    InterfaceWorkgroupIdOp,
    InterfaceWorkgroupSizeOp,
    index_attr,
    parse_number,
    visibility_attr,
)
from headrace.ir.types import ExprsAttr, exprs_attr
from headrace.stream.dialect import (
    INTEGERS,
)
from headrace.stream.syntax import (
    parse_attributes,
    parse_body,
    parse_if,
    parse_integers,
    parse_sizes,
    parse_symbol,
    print_attributes,
    print_body,
    print_integers,
    print_sizes,
    print_symbol,
)

# -- executables --------------------------------------------------------------------


@irdl_op_definition
class ExecutableOp(IRDLOperation):
    """Kernels with their interfaces and a variant for each target."""

    name = "hal.executable"
    sym_name = prop_def(SymbolNameConstraint())
    sym_visibility = opt_prop_def(StringAttr)
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), NoTerminator(), SymbolOpInterface(), SymbolTable())

    def __init__(
        self, name: str | StringAttr, body: Region, visibility: str | StringAttr | None = None
    ) -> None:
        super().__init__(
            properties={
                "sym_name": StringAttr.get(name),
                "sym_visibility": visibility_attr(visibility),
            },
            regions=[body],
        )

    @classmethod
    def parse(cls, parser: Parser) -> ExecutableOp:
        visibility, name = parse_symbol(parser)
        attributes, region = parse_body(parser)
        made = cls(name, region, visibility)
        made.attributes.update(attributes)
        return made

    def print(self, printer: Printer) -> None:
        print_symbol(printer, self.sym_visibility, self.sym_name)
        print_body(printer, self, self.body)


@irdl_op_definition
class ExecutableVariantOp(IRDLOperation):
    """The executable for one target: entry points and one inner `builtin.module`."""

    name = "hal.executable.variant"
    sym_name = prop_def(SymbolNameConstraint())
    sym_visibility = opt_prop_def(StringAttr)
    target = prop_def(StringAttr)
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), NoTerminator(), SymbolOpInterface(), SymbolTable())

    def __init__(
        self,
        name: str | StringAttr,
        target: str | StringAttr,
        body: Region,
        visibility: str | StringAttr | None = None,
    ) -> None:
        super().__init__(
            properties={
                "sym_name": StringAttr.get(name),
                "sym_visibility": visibility_attr(visibility),
                "target": StringAttr.get(target),
            },
            regions=[body],
        )

    @classmethod
    def parse(cls, parser: Parser) -> ExecutableVariantOp:
        visibility, name = parse_symbol(parser)
        parser.parse_keyword("target")
        target = parser.parse_str_literal()
        attributes, region = parse_body(parser)
        made = cls(name, target, region, visibility)
        made.attributes.update(attributes)
        return made

    def print(self, printer: Printer) -> None:
        print_symbol(printer, self.sym_visibility, self.sym_name)
        printer.print_string(" target ")
        printer.print_string_literal(self.target.data)
        print_body(printer, self, self.body)


@irdl_op_definition
class ExecutableEntryPointOp(IRDLOperation):
    """A function of a variant that dispatches may run, by its ordinal."""

    name = "hal.executable.entry_point"
    sym_name = prop_def(SymbolNameConstraint())
    sym_visibility = opt_prop_def(StringAttr)
    ordinal = prop_def(IntegerAttr)
    interface = prop_def(SymbolRefAttr)
    workgroup_size = opt_prop_def(INTEGERS)
    workgroup_count = opt_prop_def(ExprsAttr)
    traits = traits_def(SymbolOpInterface())

    def __init__(
        self,
        name: str | StringAttr,
        ordinal: int,
        interface: str | StringAttr,
        workgroup_size: DenseArrayBase[IntegerType] | None = None,
        workgroup_count: ExprsAttr | None = None,
        visibility: str | StringAttr | None = None,
    ) -> None:
        super().__init__(
            properties={
                "sym_name": StringAttr.get(name),
                "sym_visibility": visibility_attr(visibility),
                "ordinal": index_attr(ordinal),
                "interface": SymbolRefAttr(StringAttr.get(interface)),
                "workgroup_size": workgroup_size,
                "workgroup_count": workgroup_count,
            }
        )

    @property
    def number(self) -> int:
        """The ordinal as an integer."""
        return self.ordinal.value.data

    def verify_(self) -> None:
        if self.workgroup_size is not None and len(self.workgroup_size) != 3:
            raise VerifyException("workgroup_size needs x, y and z")
        if self.workgroup_count is not None and len(self.workgroup_count.data) != 3:
            raise VerifyException("workgroup_count needs x, y and z")

    @classmethod
    def parse(cls, parser: Parser) -> ExecutableEntryPointOp:
        visibility, name = parse_symbol(parser)
        ordinal = parse_number(parser, "ordinal")
        parser.parse_keyword("interface")
        parser.parse_punctuation("(")
        interface = parser.parse_symbol_name()
        parser.parse_punctuation(")")
        size = parse_if(parser, "workgroup_size", lambda: parse_integers(parser))
        count = parse_if(parser, "workgroup_count", lambda: exprs_attr(parse_sizes(parser)))
        made = cls(name, ordinal, interface, size, count, visibility)
        made.attributes.update(parse_attributes(parser))
        return made

    def print(self, printer: Printer) -> None:
        print_symbol(printer, self.sym_visibility, self.sym_name)
        printer.print_string(f" ordinal({self.number}) interface(")
        printer.print_symbol_name(self.interface.root_reference.data)
        printer.print_string(")")
        if self.workgroup_size is not None:
            printer.print_string(" workgroup_size ")
            print_integers(printer, self.workgroup_size)
        if self.workgroup_count is not None:
            printer.print_string(" workgroup_count ")
            print_sizes(printer, self.workgroup_count.exprs)
        print_attributes(printer, self)


def hal_operations() -> Iterable[type[IRDLOperation]]:
    """Every operation of the stage."""
    return (
        ExecutableOp, ExecutableVariantOp, ExecutableEntryPointOp, InterfaceOp,
        InterfaceBindingOp, InterfaceLoadConstantOp, InterfaceBindingSubspanOp,
        InterfaceWorkgroupIdOp, InterfaceWorkgroupCountOp, InterfaceWorkgroupSizeOp,
    )  # fmt: skip


HAL = Dialect("hal", [*hal_operations()], [])
