"""The commands of the stream stage: `stream.cmd.*`, run in order.

stream.cmd.dispatch @ex::@fn[784, 1, 1](%n : i32) {
  ro %in[0 for 3136] : !stream.resource<external>,
  wo %t[0 for 512] : !stream.resource<transient>
}
stream.cmd.copy %t[0], %out[0], 512 : !stream.resource<...> -> !stream.resource<...>
stream.cmd.fill %t[0 for 512] 0 : i32, !stream.resource<transient>
stream.cmd.if %flag : !stream.resource<transient> {...} else {...}
stream.cmd.loop {...} while %flag : !stream.resource<transient> trip_count "n" {...}
stream.cmd.call @decode(%a, %b) : !stream.resource<...>, !stream.resource<...>
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    IntegerAttr,
    IntegerType,
    StringAttr,
    SymbolRefAttr,
)
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    prop_def,
    var_operand_def,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from headrace.base.symbols import Expr, ExprLike
from headrace.ir.types import ExprsAttr, exprs_attr
from headrace.stream.control import CallOp, IfOp, LoopOp
from headrace.stream.syntax import (
    parse_attributes,
    parse_if,
    parse_size,
    parse_sizes,
    parse_typed_operands,
    print_attributes,
    print_size,
    print_sizes,
    print_typed_operands,
)
from headrace.stream.types import ACCESSES, ResourceType


@irdl_op_definition
class DispatchOp(IRDLOperation):
    """Runs an entry point on ranges of resources.

    Attributes:
        entry_point: `@executable::@export`.
        workload: what the workgroup count is computed from; x, y, z extents.
        constants: scalar operands, in the order of the function's scalar arguments.
        resources: one an argument of type `!stream.binding`, in order; `accesses`,
            `offsets` and `lengths` (bytes) run along them.
    """

    name = "stream.cmd.dispatch"
    entry_point = prop_def(SymbolRefAttr)
    workload = prop_def(ExprsAttr)
    constants = var_operand_def()
    resources = var_operand_def(ResourceType)
    accesses = prop_def(ArrayAttr[StringAttr])
    offsets = prop_def(ExprsAttr)
    lengths = prop_def(ExprsAttr)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    def __init__(
        self,
        entry_point: SymbolRefAttr,
        workload: Sequence[ExprLike],
        constants: Sequence[SSAValue],
        resources: Sequence[SSAValue],
        accesses: Sequence[str],
        offsets: Sequence[ExprLike],
        lengths: Sequence[ExprLike],
    ) -> None:
        super().__init__(
            operands=[list(constants), list(resources)],
            properties={
                "entry_point": entry_point,
                "workload": exprs_attr(workload),
                "accesses": ArrayAttr([StringAttr(a) for a in accesses]),
                "offsets": exprs_attr(offsets),
                "lengths": exprs_attr(lengths),
            },
        )

    @property
    def executable_name(self) -> str:
        return self.entry_point.root_reference.data

    @property
    def export_name(self) -> str:
        """The export's name; empty where the reference has no second part."""
        nested = self.entry_point.nested_references.data
        return nested[-1].data if nested else ""

    def verify_(self) -> None:
        count = len(self.resources)
        for name, values in (
            ("accesses", self.accesses.data),
            ("offsets", self.offsets.data),
            ("lengths", self.lengths.data),
        ):
            if len(values) != count:
                raise VerifyException(f"{len(values)} {name} for {count} resources")
        for access in self.accesses.data:
            if access.data not in ACCESSES:
                raise VerifyException(
                    f"access '{access.data}' is none of {', '.join(ACCESSES)}"
                )
        if len(self.entry_point.nested_references.data) != 1:
            raise VerifyException("the entry point is named @executable::@export")

    @classmethod
    def parse(cls, parser: Parser) -> DispatchOp:
        entry_point = parser.parse_attribute()
        if not isinstance(entry_point, SymbolRefAttr):
            parser.raise_error("expected @executable::@export")
        workload = parse_sizes(parser)
        constants = parse_typed_operands(parser)
        bindings: list[tuple[str, SSAValue, Expr, Expr]] = []
        parser.parse_punctuation("{")
        if parser.parse_optional_punctuation("}") is None:
            bindings = parser.parse_comma_separated_list(
                parser.Delimiter.NONE, lambda: _parse_range(parser)
            )
            parser.parse_punctuation("}")
        attributes = parse_if(parser, "attributes", lambda: parse_attributes(parser)) or {}
        made = cls(
            entry_point,
            workload,
            constants,
            [b[1] for b in bindings],
            [b[0] for b in bindings],
            [b[2] for b in bindings],
            [b[3] for b in bindings],
        )
        made.attributes.update(attributes)
        return made

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_attribute(self.entry_point)
        print_sizes(printer, self.workload.exprs)
        print_typed_operands(printer, self.constants)
        printer.print_string(" {")
        with printer.indented():
            rows = zip(
                self.accesses.data,
                self.resources,
                self.offsets.exprs,
                self.lengths.exprs,
                strict=True,
            )
            for n, (access, resource, offset, length) in enumerate(rows):
                printer.print_string(",\n" if n else "\n")
                printer.print_string(f"{access.data} ")
                _print_range(printer, resource, offset, length)
                printer.print_string(" : ")
                printer.print_attribute(resource.type)
        printer.print_string("\n}")
        if self.attributes:
            printer.print_op_attributes(self.attributes, print_keyword=True)


def _parse_range(parser: Parser) -> tuple[str, SSAValue, Expr, Expr]:
    """Reads `ro %r[0 for 64] : !stream.resource<transient>`."""
    access = parser.parse_keyword_in(ACCESSES)
    name = parser.parse_unresolved_operand()
    offset, length = _parse_offset_and_length(parser)
    parser.parse_punctuation(":")
    return access, parser.resolve_operand(name, parser.parse_type()), offset, length


def _parse_offset_and_length(parser: Parser) -> tuple[Expr, Expr]:
    parser.parse_punctuation("[")
    offset = parse_size(parser)
    parser.parse_keyword("for")
    length = parse_size(parser)
    parser.parse_punctuation("]")
    return offset, length


def _print_range(printer: Printer, resource: SSAValue, offset: Expr, length: Expr) -> None:
    printer.print_operand(resource)
    with printer.in_square_brackets():
        print_size(printer, offset)
        printer.print_string(" for ")
        print_size(printer, length)


@irdl_op_definition
class CopyOp(IRDLOperation):
    """Copies `length` bytes between resources, which may not overlap."""

    name = "stream.cmd.copy"
    source = operand_def(ResourceType)
    target = operand_def(ResourceType)
    source_offset = prop_def(ExprsAttr)
    target_offset = prop_def(ExprsAttr)
    length = prop_def(ExprsAttr)

    def __init__(
        self,
        source: SSAValue,
        target: SSAValue,
        length: ExprLike,
        source_offset: ExprLike = 0,
        target_offset: ExprLike = 0,
    ) -> None:
        super().__init__(
            operands=[source, target],
            properties={
                "source_offset": exprs_attr([source_offset]),
                "target_offset": exprs_attr([target_offset]),
                "length": exprs_attr([length]),
            },
        )

    @classmethod
    def parse(cls, parser: Parser) -> CopyOp:
        source, source_offset = _parse_place(parser)
        parser.parse_punctuation(",")
        target, target_offset = _parse_place(parser)
        parser.parse_punctuation(",")
        length = parse_size(parser)
        attributes = parse_attributes(parser)
        parser.parse_punctuation(":")
        source_type = parser.parse_type()
        parser.parse_punctuation("->")
        made = cls(
            parser.resolve_operand(source, source_type),
            parser.resolve_operand(target, parser.parse_type()),
            length,
            source_offset,
            target_offset,
        )
        made.attributes.update(attributes)
        return made

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        _print_place(printer, self.source, self.source_offset)
        printer.print_string(", ")
        _print_place(printer, self.target, self.target_offset)
        printer.print_string(", ")
        print_size(printer, self.length.exprs[0])
        print_attributes(printer, self)
        printer.print_string(" : ")
        printer.print_attribute(self.source.type)
        printer.print_string(" -> ")
        printer.print_attribute(self.target.type)


def _parse_place(parser: Parser) -> tuple[UnresolvedOperand, Expr]:
    name = parser.parse_unresolved_operand()
    parser.parse_punctuation("[")
    offset = parse_size(parser)
    parser.parse_punctuation("]")
    return name, offset


def _print_place(printer: Printer, resource: SSAValue, offset: ExprsAttr) -> None:
    printer.print_operand(resource)
    with printer.in_square_brackets():
        print_size(printer, offset.exprs[0])


@irdl_op_definition
class FillOp(IRDLOperation):
    """Fills a range with a repeated little-endian pattern of 8, 16, 32 or 64 bits."""

    name = "stream.cmd.fill"
    target = operand_def(ResourceType)
    offset = prop_def(ExprsAttr)
    length = prop_def(ExprsAttr)
    pattern = prop_def(IntegerAttr)

    def __init__(
        self, target: SSAValue, offset: ExprLike, length: ExprLike, pattern: IntegerAttr[Any]
    ) -> None:
        super().__init__(
            operands=[target],
            properties={
                "offset": exprs_attr([offset]),
                "length": exprs_attr([length]),
                "pattern": pattern,
            },
        )

    @property
    def pattern_bytes(self) -> int:
        return cast(IntegerType, self.pattern.type).bitwidth // 8

    def verify_(self) -> None:
        kind = self.pattern.type
        if not isinstance(kind, IntegerType) or kind.bitwidth not in (8, 16, 32, 64):
            raise VerifyException("a fill pattern has 8, 16, 32 or 64 bits")

    @classmethod
    def parse(cls, parser: Parser) -> FillOp:
        name = parser.parse_unresolved_operand()
        offset, length = _parse_offset_and_length(parser)
        pattern = parser.parse_attribute()
        if not isinstance(pattern, IntegerAttr):
            parser.raise_error("expected an integer pattern")
        attributes = parse_attributes(parser)
        parser.parse_punctuation(",")
        target = parser.resolve_operand(name, parser.parse_type())
        made = cls(target, offset, length, pattern)
        made.attributes.update(attributes)
        return made

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        _print_range(printer, self.target, self.offset.exprs[0], self.length.exprs[0])
        printer.print_string(" ")
        printer.print_attribute(self.pattern)
        print_attributes(printer, self)
        printer.print_string(", ")
        printer.print_attribute(self.target.type)


Command = DispatchOp | CopyOp | FillOp | IfOp | LoopOp | CallOp
COMMANDS: tuple[type[IRDLOperation], ...] = (DispatchOp, CopyOp, FillOp, IfOp, LoopOp, CallOp)


def touched(command: Attribute | IRDLOperation) -> tuple[tuple[SSAValue, str], ...]:
    """(resource, access) of a command itself, regions not entered."""
    if isinstance(command, DispatchOp):
        return tuple(
            (r, a.data) for r, a in zip(command.resources, command.accesses.data, strict=True)
        )
    if isinstance(command, CopyOp):
        return ((command.source, "ro"), (command.target, "wo"))
    if isinstance(command, FillOp):
        return ((command.target, "wo"),)
    if isinstance(command, (IfOp, LoopOp)):
        return ((command.condition, "ro"),)
    if isinstance(command, CallOp):
        return tuple((a, "rw") for a in command.arguments)
    return ()
