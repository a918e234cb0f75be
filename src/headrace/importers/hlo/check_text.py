"""Test files of StableHLO and IREE as text: their cases, and `check.*` in a form that parses.

The dialect `check` is registered nowhere but in its own tools, so its short forms become
`stablehlo.custom_call @check.<name>` of constants, which any StableHLO parser reads.
"""

from __future__ import annotations

import re

_SPLIT = re.compile(r"^// -----.*$", re.MULTILINE)
_CHECK = re.compile(r'(?<![@\w."])"?check\.(expect_\w+)"?(?=[\s(])')
_CLOSING = {"<": ">", "{": "}", "(": ")", "[": "]"}


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


def generic_checks(text: str) -> str:
    """The text with every `check.*` operation as a custom call; line numbers stay.

    Raises:
        ValueError: a check is cut short.
    """
    pieces: list[str] = []
    begin = 0
    for number, found in enumerate(_CHECK.finditer(text)):
        if found.start() < begin or _in_comment(text, found.start()):
            continue
        operation, end = _check(text, found.end(), found.group(1), number)
        pieces += [text[begin : found.start()], operation]
        begin = end
    return "".join((*pieces, text[begin:]))


def _in_comment(text: str, at: int) -> bool:
    return "//" in text[text.rfind("\n", 0, at) + 1 : at]


def _closing(text: str, at: int) -> int:
    """The place behind the bracket that closes the one at `at`; strings are skipped."""
    stack = [_CLOSING[text[at]]]
    at += 1
    while stack:
        mark = text[at : at + 1]
        if not mark:
            raise ValueError("a bracket is not closed")
        if mark == '"':
            at = text.index('"', at + 1)
        elif mark in _CLOSING:
            stack.append(_CLOSING[mark])
        elif mark == stack[-1] and not (mark == ">" and text[at - 1] == "-"):
            stack.pop()
        at += 1
    return at


_DENSE = re.compile(r"dense(?:_resource)?\s*(?=<)")
_TYPE = re.compile(r"\s*:\s*tensor\s*(?=<)")
_TYPES = re.compile(r"\s*:\s*(?=tensor|\(|!)")
_VALUE = re.compile(r"%[\w$.#-]+")
_ATTRIBUTE = re.compile(r"\b(\w+)\s*=\s*([-+\w.\"]+)")


def _check(text: str, at: int, name: str, number: int) -> tuple[str, int]:
    """The custom call for a check whose name ends at `at`, and the place behind it."""
    end, dense, kind = at, "", ""
    constant = _DENSE.search(text, at, _statement_end(text, at))
    head_end = constant.start() if constant else _type_start(text, at)
    head = text[at:head_end]
    if constant:
        close = _closing(text, constant.end())
        typed = _TYPE.match(text, close)
        if typed is None:
            raise ValueError("a constant to compare with has no type")
        end = _closing(text, typed.end())
        dense, kind = text[constant.start() : close], text[typed.end() - 6 : end]
        kind = kind[kind.index("tensor") :]
        tail = _statement_end(text, end)
        rest = text[end:tail]
        end = tail
    else:
        end = _statement_end(text, head_end)
        rest = text[head_end:end]
    operands = _VALUE.findall(head)
    attributes = dict(_ATTRIBUTE.findall(head + (rest if constant else "")))
    attributes.pop("value", None)
    shown = ", ".join(f"{k} = {_typed(v)}" for k, v in attributes.items())
    braces = f" {{{shown}}}" if shown else ""
    lines = "\n" * text.count("\n", at, end)
    if constant:
        base = name.removesuffix("_const")
        made = f"%check_{number} = stablehlo.constant {dense} : {kind}"
        call = (
            f"stablehlo.custom_call @check.{base}({operands[0]}, %check_{number}){braces} : "
            f"({kind}, {kind}) -> ()"
        )
        return f"{made} {call}{lines}", end
    types = re.findall(r"tensor<", rest)
    listed = _types(rest) if types else []
    if len(listed) < len(operands):
        listed = listed * len(operands)
    call = (
        f"stablehlo.custom_call @check.{name}({', '.join(operands)}){braces} : "
        f"({', '.join(listed[: len(operands)])}) -> ()"
    )
    return call + lines, end


def _typed(value: str) -> str:
    if re.fullmatch(r"[-+]?\d+", value):
        return f"{value} : i64"
    if re.fullmatch(r"[-+]?[\d.]+(?:[eE][-+]?\d+)?", value):
        return f"{value} : f64"
    return value


def _types(text: str) -> list[str]:
    found: list[str] = []
    at = 0
    while (start := text.find("tensor<", at)) >= 0:
        at = _closing(text, start + 6)
        found.append(text[start:at])
    return found


def _type_start(text: str, at: int) -> int:
    found = _TYPES.search(text, at)
    if found is None:
        raise ValueError("a check has no types")
    return found.start()


def _statement_end(text: str, at: int) -> int:
    """The end of the operation: the first line end outside of brackets, but for commas."""
    begin = at
    while at < len(text):
        if text[at] == "\n" and not text[begin:at].rstrip().endswith((",", "(")):
            return at
        if text[at] == '"':
            at = text.index('"', at + 1) + 1
        elif text[at] in "<{([" and not (text[at] == ">" and text[at - 1] == "-"):
            at = _closing(text, at)
        else:
            at += 1
    return at
