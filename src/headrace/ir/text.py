"""Modules as text: parsed with located errors, printed with or without locations."""

from __future__ import annotations

import re
from io import StringIO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import DiagnosticException, ParseError

from headrace.base.errors import HeadraceError, error
from headrace.ir.locations import places


def parse_module(text: str, filename: str, context: Context) -> ModuleOp:
    """Reads and verifies a module.

    Args:
        text: MLIR text; top-level operations without `builtin.module` get one around them.
        filename: named in errors.
        context: knows the dialects, see `ir/context.make_context`.

    Raises:
        HeadraceError HR1001: the text does not parse (with file, line, column and the
            line); HR1002: what it says does not verify.
    """
    parser = Parser(context, text, filename)
    try:
        module = parser.parse_module()
    except ParseError as wrong:
        raise _parse_error(wrong, text, filename) from None
    except HeadraceError:
        raise
    except (DiagnosticException, ValueError, KeyError) as wrong:
        # xDSL lets some of its checks escape the parser without a span; the parser stands
        # behind the offending token.
        behind = len(text[: parser.pos].rstrip())
        line, column = _line_and_column(text, max(0, behind - 1))
        raise _located(str(wrong), text, filename, line, column) from None
    verify_module(module, filename)
    return module


def verify_module(module: ModuleOp, filename: str = "") -> None:
    """Checks what every operation's own definition asks for (operands, types, symbols).

    Raises:
        HeadraceError HR1002: with the first line of what xDSL found.
    """
    try:
        module.verify()
    except (DiagnosticException, ValueError) as wrong:
        fact, notes = _first_line(str(wrong))
        raise error("HR1002", fact, at=filename or places(module), notes=notes) from None


def print_module(module: ModuleOp, locations: bool = False) -> str:
    """The text of a module, ending in a newline; `locations` adds `loc("...")`."""
    stream = StringIO()
    printer = Printer(stream, print_debuginfo=locations)
    printer.print_op(module)
    return stream.getvalue() + "\n"


def _parse_error(wrong: ParseError, text: str, filename: str) -> HeadraceError:
    position = wrong.span.start
    undefined = re.fullmatch(r"values used but not defined: \[(%[\w.$-]+).*\]", wrong.msg)
    if undefined:
        # xDSL only notices at the end of the region; the user wants the use.
        use = re.search(re.escape(undefined[1]) + r"(?![\w.$-])", text)
        position = use.start() if use else position
    line, column = _line_and_column(text, position)
    return _located(wrong.msg, text, filename, line, column)


def _located(message: str, text: str, filename: str, line: int, column: int) -> HeadraceError:
    fact, notes = _first_line(message)
    source = text.split("\n")[line - 1] if line else ""
    shown = [source.rstrip(), " " * (column - 1) + "^"]
    return error("HR1001", fact, at=f"{filename}:{line}:{column}", notes=[*shown, *notes])


def _line_and_column(text: str, position: int) -> tuple[int, int]:
    before = text[:position]
    return before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1


def _first_line(message: str) -> tuple[str, list[str]]:
    """xDSL's messages carry whole operations; the sentence is the line without a margin."""
    lines = [line.strip() for line in message.splitlines()]
    sentences = [line.lstrip("^- ") for line in lines if line and not line.startswith("%")]
    if not sentences:
        return "the text is not a valid module", []
    fact = next((s for s in reversed(sentences) if "operation" in s.lower()), sentences[-1])
    return fact.rstrip("."), []
