"""Commands with blocks inside, and calls: what makes a program a tree.

Branches and loops are decided by a boolean byte in a resource, read back when the plan's
block before it has run.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import SymbolRefAttr
from xdsl.ir import Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import NoTerminator

from headrace.base.symbols import ExprLike
from headrace.ir.types import ExprsAttr, exprs_attr
from headrace.stream.syntax import (
    parse_attributes,
    parse_block,
    parse_if,
    parse_size,
    parse_typed_operands,
    print_attributes,
    print_block,
    print_size,
    print_typed_operands,
)
from headrace.stream.types import ResourceType


@irdl_op_definition
class IfOp(IRDLOperation):
    """Runs one of two blocks by the boolean byte at the start of `condition`."""

    name = "stream.cmd.if"
    condition = operand_def(ResourceType)
    then = region_def("single_block")
    otherwise = region_def("single_block")
    traits = traits_def(NoTerminator())

    def __init__(self, condition: SSAValue, then: Region, otherwise: Region) -> None:
        super().__init__(operands=[condition], regions=[then, otherwise])

    @classmethod
    def parse(cls, parser: Parser) -> IfOp:
        condition = _parse_typed_resource(parser)
        then = parse_block(parser)
        parser.parse_keyword("else")
        made = cls(condition, then, parse_block(parser))
        made.attributes.update(
            parse_if(parser, "attributes", lambda: parse_attributes(parser)) or {}
        )
        return made

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        _print_typed_resource(printer, self.condition)
        print_block(printer, self.then)
        printer.print_string(" else")
        print_block(printer, self.otherwise)
        if self.attributes:
            printer.print_op_attributes(self.attributes, print_keyword=True)


@irdl_op_definition
class LoopOp(IRDLOperation):
    """Runs `before`, then `body` while the boolean byte at the start of `condition` holds.

    `before` and `body` set the condition. `trip_count` is given where it is known
    beforehand.
    """

    name = "stream.cmd.loop"
    condition = operand_def(ResourceType)
    trip_count = opt_prop_def(ExprsAttr)
    before = region_def("single_block")
    body = region_def("single_block")
    traits = traits_def(NoTerminator())

    def __init__(
        self,
        before: Region,
        condition: SSAValue,
        body: Region,
        trip_count: ExprLike | None = None,
    ) -> None:
        super().__init__(
            operands=[condition],
            properties={"trip_count": None if trip_count is None else exprs_attr([trip_count])},
            regions=[before, body],
        )

    @classmethod
    def parse(cls, parser: Parser) -> LoopOp:
        before = parse_block(parser)
        parser.parse_keyword("while")
        condition = _parse_typed_resource(parser)
        count = parse_if(parser, "trip_count", lambda: parse_size(parser))
        made = cls(before, condition, parse_block(parser), count)
        made.attributes.update(
            parse_if(parser, "attributes", lambda: parse_attributes(parser)) or {}
        )
        return made

    def print(self, printer: Printer) -> None:
        print_block(printer, self.before)
        printer.print_string(" while ")
        _print_typed_resource(printer, self.condition)
        if self.trip_count is not None:
            printer.print_string(" trip_count ")
            print_size(printer, self.trip_count.exprs[0])
        print_block(printer, self.body)
        if self.attributes:
            printer.print_op_attributes(self.attributes, print_keyword=True)


def _parse_typed_resource(parser: Parser) -> SSAValue:
    name = parser.parse_unresolved_operand()
    parser.parse_punctuation(":")
    return parser.resolve_operand(name, parser.parse_type())


def _print_typed_resource(printer: Printer, value: SSAValue) -> None:
    printer.print_operand(value)
    printer.print_string(" : ")
    printer.print_attribute(value.type)


@irdl_op_definition
class CallOp(IRDLOperation):
    """Runs another program function on resources, argument for argument."""

    name = "stream.cmd.call"
    callee = prop_def(SymbolRefAttr)
    arguments = var_operand_def(ResourceType)

    def __init__(self, callee: SymbolRefAttr, arguments: Sequence[SSAValue]) -> None:
        super().__init__(operands=[list(arguments)], properties={"callee": callee})

    @classmethod
    def parse(cls, parser: Parser) -> CallOp:
        name = parser.parse_symbol_name()
        made = cls(SymbolRefAttr(name), parse_typed_operands(parser))
        made.attributes.update(parse_attributes(parser))
        return made

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_attribute(self.callee)
        if self.arguments:
            print_typed_operands(printer, self.arguments)
        else:
            printer.print_string("()")
        print_attributes(printer, self)
