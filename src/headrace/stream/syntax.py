"""Text shared by the operations of the stream and hal stages: sizes, symbols, bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xdsl.dialects.builtin import DenseArrayBase, StringAttr, i64
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.irdl import IRDLOperation
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer

from headrace.base.symbols import Expr, as_expr


def parse_size(parser: AttrParser) -> Expr:
    """Reads `64` or `"4*batch"`."""
    text = parser.parse_optional_str_literal()
    if text is None:
        return as_expr(parser.parse_integer(allow_boolean=False))
    try:
        return as_expr(text)
    except ValueError as wrong:
        parser.raise_error(str(wrong))


def print_size(printer: Printer, size: Expr) -> None:
    """Prints what `parse_size` reads."""
    printer.print_string(str(size) if size.is_constant else f'"{size}"')


def parse_sizes(parser: AttrParser) -> tuple[Expr, ...]:
    """Reads `[64, "4*batch"]`."""
    return tuple(
        parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: parse_size(parser))
    )


def print_sizes(printer: Printer, sizes: tuple[Expr, ...]) -> None:
    """Prints what `parse_sizes` reads."""
    with printer.in_square_brackets():
        printer.print_list(sizes, lambda s: print_size(printer, s))


def parse_integers(parser: AttrParser) -> DenseArrayBase[Any]:
    """Reads `[32, 1, 1]`."""
    values = parser.parse_comma_separated_list(
        parser.Delimiter.SQUARE, lambda: parser.parse_integer(allow_boolean=False)
    )
    return DenseArrayBase.from_list(i64, values)


def print_integers(printer: Printer, values: DenseArrayBase[Any]) -> None:
    """Prints what `parse_integers` reads."""
    with printer.in_square_brackets():
        printer.print_list(values.get_values(), lambda v: printer.print_string(str(v)))


def parse_symbol(parser: Parser) -> tuple[StringAttr | None, StringAttr]:
    """Reads `private @name`: visibility (None where not said) and name."""
    return parser.parse_optional_visibility_keyword(), parser.parse_symbol_name()


def print_symbol(printer: Printer, visibility: StringAttr | None, name: StringAttr) -> None:
    """Prints what `parse_symbol` reads."""
    printer.print_string(" ")
    if visibility is not None:
        printer.print_string(f"{visibility.data} ")
    printer.print_symbol_name(name.data)


def parse_body(parser: Parser) -> tuple[dict[str, Attribute], Region]:
    """Reads `attributes {...} { operations }`."""
    attributes = parser.parse_optional_attr_dict_with_keyword()
    region = parser.parse_region()
    if not region.blocks:
        region.add_block(Block())
    return dict(attributes.data) if attributes is not None else {}, region


def print_body(printer: Printer, operation: IRDLOperation, region: Region) -> None:
    """Prints what `parse_body` reads."""
    if operation.attributes:
        printer.print_op_attributes(operation.attributes, print_keyword=True)
    print_block(printer, region)


def print_block(printer: Printer, region: Region) -> None:
    """Prints ` { operations }`; an empty block prints as `{}`'s two lines."""
    if region.block.is_empty:
        printer.print_string(" {\n}")
        return
    printer.print_string(" ")
    printer.print_region(region)


def parse_block(parser: Parser) -> Region:
    """Reads `{ operations }`."""
    region = parser.parse_region()
    if not region.blocks:
        region.add_block(Block())
    return region


def parse_attributes(parser: Parser) -> dict[str, Attribute]:
    """Reads `{...}` or nothing."""
    return dict(parser.parse_optional_attr_dict())


def print_attributes(printer: Printer, operation: IRDLOperation) -> None:
    """Prints the operation's own attributes where it has any."""
    if operation.attributes:
        printer.print_op_attributes(operation.attributes)


def parse_if(parser: Parser, keyword: str, read: Callable[[], Any]) -> Any:
    """What `read` reads behind `keyword`, or None where the keyword is not there."""
    return read() if parser.parse_optional_keyword(keyword) is not None else None


def parse_typed_operands(parser: Parser) -> list[SSAValue]:
    """Reads `(%a, %b : i32, index)`, `()` or nothing."""
    if parser.parse_optional_punctuation("(") is None:
        return []
    if parser.parse_optional_punctuation(")") is not None:
        return []
    names = parser.parse_comma_separated_list(
        parser.Delimiter.NONE, parser.parse_unresolved_operand
    )
    at = parser.pos
    parser.parse_punctuation(":")
    kinds = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
    parser.parse_punctuation(")")
    return list(parser.resolve_operands(names, kinds, at))


def print_typed_operands(printer: Printer, values: Sequence[SSAValue]) -> None:
    """Prints what `parse_typed_operands` reads."""
    if not values:
        return
    with printer.in_parens():
        printer.print_list(values, printer.print_operand)
        printer.print_string(" : ")
        printer.print_list(values, lambda v: printer.print_attribute(v.type))
