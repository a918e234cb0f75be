"""Reads an attribute's parameter with a grammar of its own, out of xDSL's parser.

xDSL 0.74 offers no public way to take over from its lexer in the middle of a text; this
is the one place that does it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from xdsl.parser import AttrParser

Result = TypeVar("Result")


def read_raw(parser: AttrParser, read: Callable[[str, int], tuple[Result, int]]) -> Result:
    """Calls `read(text, start)` at the parser's place; goes on at the offset it gives."""
    content: str = parser.lexer.input.content
    result, end = read(content, parser.pos)
    parser._resume_from(end)  # pyright: ignore[reportPrivateUsage, reportArgumentType]
    return result
