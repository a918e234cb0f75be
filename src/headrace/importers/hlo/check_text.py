"""Test files of StableHLO and IREE as text: their cases."""

from __future__ import annotations

import re

_SPLIT = re.compile(r"^// -----.*$", re.MULTILINE)


def split_cases(text: str) -> list[str]:
    """The parts between lines `// -----`; lines before a part keep their numbers."""
    cases: list[str] = []
    begin = 0
    for mark in (*_SPLIT.finditer(text), None):
        end = mark.start() if mark else len(text)
        part = text[begin:end]
        if _holds_code(part):
            cases.append("\n" * text.count("\n", 0, begin) + part)
        begin = mark.end() if mark else end
    return cases


def _holds_code(part: str) -> bool:
    lines = (line.strip() for line in part.splitlines())
    return any(line and not line.startswith("//") for line in lines)
