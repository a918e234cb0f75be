"""A place in MLIR text: tokens, errors with line and column."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from headrace.base.errors import HeadraceError, error

SPACE = re.compile(r"(?:\s+|//[^\n]*)*")
VALUE = re.compile(r"%[\w$.-]+(?:#\d+)?")
WORD = re.compile(r"[A-Za-z_][\w$.]*")
SYMBOL = re.compile(r'@(?:"[^"]*"|[\w$.-]+)(?:::@(?:"[^"]*"|[\w$.-]+))*')
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
NUMBER = re.compile(r"-?(?:0x[0-9A-Fa-f]+|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)")
BLOCK = re.compile(r"\^[\w$.-]+")
_WORD_CHARACTER = re.compile(r"\w")
_CLOSING = {"<": ">", "{": "}", "(": ")", "[": "]"}
_BRACKET = re.compile(r'["<{(\[\]>})]')


class Cursor:
    """Reads tokens from `text`; `at` is the position, behind any space.

    Args:
        text: the whole.
        source: names it in messages.
    """

    def __init__(self, text: str, source: str) -> None:
        self.text = text
        self.source = source
        self.at = 0
        self._starts = [0, *(m.end() for m in re.finditer("\n", text))]
        self.space()

    def space(self) -> None:
        """Goes on to the next token; comments are space."""
        found = SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def fail(self, fact: str, at: int | None = None) -> HeadraceError:
        """HR1001 at a position, the current one where none is given."""
        at = self.at if at is None else at
        line = self.line(at)
        start = self._starts[line - 1]
        end = self.text.find("\n", at)
        shown = self.text[start : end if end >= 0 else len(self.text)].strip()
        return error(
            "HR1001",
            fact,
            at=f"{self.source}:{line}:{at - start + 1}",
            notes=f"the line reads: {shown[:120]}" if shown else (),
        )

    def line(self, at: int) -> int:
        """The number of the line of a position, from 1."""
        return bisect_right(self._starts, at)

    def sees(self, mark: str) -> bool:
        return self.text.startswith(mark, self.at)

    def try_(self, mark: str) -> bool:
        """Takes the mark where it stands here; a word only whole."""
        if not self.text.startswith(mark, self.at):
            return False
        end = self.at + len(mark)
        if mark[-1].isalnum() and _WORD_CHARACTER.match(self.text, end):
            return False
        self.at = end
        self.space()
        return True

    def expect(self, mark: str) -> None:
        if not self.try_(mark):
            raise self.fail(f"expected '{mark}'")

    def match(self, pattern: re.Pattern[str]) -> str | None:
        found = pattern.match(self.text, self.at)
        if found is None:
            return None
        self.at = found.end()
        self.space()
        return found.group(0)

    def need(self, pattern: re.Pattern[str], what: str) -> str:
        found = self.match(pattern)
        if found is None:
            raise self.fail(f"expected {what}")
        return found

    def list_of(self, item: Callable[[], Any], end: str) -> list[Any]:
        """Items separated by commas up to the closing mark, which is taken."""
        found: list[Any] = []
        if self.try_(end):
            return found
        while True:
            found.append(item())
            if self.try_(end):
                return found
            self.expect(",")

    def balanced(self) -> str:
        """What stands between the bracket here and the one that closes it; both are taken."""
        begin, text = self.at, self.text
        if text[begin : begin + 1] not in _CLOSING:
            raise self.fail("expected a bracket")
        stack: list[str] = []
        at = begin
        while True:
            found = _BRACKET.search(text, at)
            if found is None:
                raise self.fail("a bracket is not closed", begin)
            mark, at = found.group(), found.end()
            if mark == '"':
                string = STRING.match(text, found.start())
                if string is None:
                    raise self.fail("a string is not closed", found.start())
                at = string.end()
            elif mark in _CLOSING:
                stack.append(_CLOSING[mark])
            elif mark == ">" and text[found.start() - 1] == "-":
                continue
            elif mark != stack.pop():
                raise self.fail("brackets do not match", found.start())
            if not stack:
                break
        self.at = at
        self.space()
        return text[begin + 1 : at - 1]
