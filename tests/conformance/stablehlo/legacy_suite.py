"""Tests of IREE's `xla_hlo` age: functions whose printed results stand beside them as
FileCheck lines, and whose inputs stand in the line that runs them.

A case is a function with results to compare; a run of the whole file is what `iree-run-mlir`
did: every function in order, its results one a line, `2x3xf32=[1 2 3][4 5 6]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import headrace
from headrace.base.dtypes import BY_NAME
from headrace.base.errors import HeadraceError
from headrace.importers.hlo.check_text import split_cases

RELATIVE = 1e-4
"""Results were printed with six digits and computed on other machines."""

_INPUTS = re.compile(r"input[-_]values?=(?:\"([^\"]*)\"|'([^']*)'|(\S+))")
_CHECK = re.compile(r"//\s*CHECK(-LABEL|-NEXT|-SAME|)\s*:?\s+(.*)")
_LABEL = re.compile(r"(?:EXEC )?@([\w$.-]+)")
_RESULT = re.compile(r"((?:\d+x)*)([fi]\d+)=(.*)", re.DOTALL)
_LITERAL = re.compile(r"\{\{\\([\[\]])\}\}")
_FUNCTION = re.compile(r"^\s*func @([\w$.-]+)\(", re.MULTILINE)


@dataclass
class LegacyCase:
    """A function and what it printed.

    Attributes:
        file: where it stands.
        text: of the part of the file that holds it.
        name: of the function.
        inputs: as the command line gave them.
        lines: one for each result.
    """

    file: Path
    text: str
    name: str
    inputs: list[str]
    lines: list[str] = field(default_factory=list[str])


def cases_of(file: Path) -> list[LegacyCase]:
    """The cases of a file, in order; none where it prints nothing."""
    text = file.read_text()
    given = next((line for line in text.splitlines() if _INPUTS.search(line)), "")
    inputs: list[str] = []
    for found in _INPUTS.finditer(given.partition("|")[0] if "[[ $" not in given else given):
        inputs += next(g for g in found.groups() if g is not None).split(r"\n")
    found_cases: list[LegacyCase] = []
    for part in split_cases(text):
        found_cases += _cases_of_part(file, part, inputs)
    return found_cases


def _cases_of_part(file: Path, part: str, inputs: list[str]) -> Iterator[LegacyCase]:
    names = _FUNCTION.findall(part)
    case: LegacyCase | None = None
    for found in _CHECK.finditer(part):
        kind, rest = found.group(1), found.group(2).strip()
        label = _LABEL.fullmatch(rest)
        if label is not None:
            if case is not None and case.lines:
                yield case
            case = LegacyCase(file, part, label.group(1), inputs)
            continue
        if case is None:
            before = _FUNCTION.findall(part, 0, found.start())
            case = LegacyCase(file, part, (before or names)[-1], inputs)
        if kind == "-SAME" and case.lines:
            case.lines[-1] += f" {rest}"
        elif _RESULT.match(rest) or rest.startswith("["):
            case.lines.append(rest)
    if case is not None and case.lines:
        yield case


def run_case(case: LegacyCase) -> str:
    """Why a case fails; empty where it passes."""
    try:
        with TemporaryDirectory() as folder:
            source = Path(folder) / case.file.name
            source.write_text(case.text)
            made = headrace.compile(source, Path(folder) / "case.hrx")
            with headrace.load(made) as module:
                infos = module.inputs_of(case.name)
                arrays = [_array(t, i) for t, i in zip(case.inputs, infos, strict=False)]
                if len(arrays) < len(infos):
                    return f"{len(infos)} inputs, of which {len(arrays)} are given"
                names = [info.name for info in infos]
                results = list(
                    dict(
                        module.entry(case.name)(**dict(zip(names, arrays, strict=True))).items()
                    ).values()
                )
    except HeadraceError as refused:
        return "; ".join(f"{d.code} {d.fact} {d.places[:1]}" for d in refused.diagnostics[:3])
    if len(results) < len(case.lines):
        return f"{len(results)} results, of which {len(case.lines)} are wanted"
    for line, result in zip(case.lines, results, strict=False):
        reason = _difference(line, np.asarray(result))
        if reason:
            return reason
    return ""


def _array(text: str, info: Any) -> Any:
    """`2x3xf32=1 2 3 4 5 6` in any punctuation; without elements it is of zeros."""
    kind, _, elements = text.strip().partition("=")
    shape = [int(size) for size in kind.split("x")[:-1]]
    words = re.split(r"[\s,\[\]]+", elements.strip())
    numbers = [float(word) for word in words if word]
    dtype = BY_NAME[str(info.dtype)].numpy_dtype
    array = np.array(numbers or [0.0]).astype(dtype)
    if not numbers or array.size == 1:
        array = np.full(int(np.prod(shape)), array[0], dtype)
    return array.reshape(shape)


def _difference(line: str, result: Any) -> str:
    """How a result differs from its line: shape, and each element that the line names."""
    found = _RESULT.match(line)
    if found is not None:
        shape = tuple(int(size) for size in found.group(1).split("x") if size)
        if shape != result.shape:
            return f"the shape is {result.shape}, not {shape}"
    elements = _LITERAL.sub(r"\1", found.group(3) if found else line)
    words = [w for w in re.split(r"(?:[\s\[\]]|(?<=\d)(?=\[))+", _protected(elements)) if w]
    flat = result.reshape(-1)
    if len(words) > flat.size:
        return f"{flat.size} elements, of which {len(words)} are wanted"
    for n, word in enumerate(words):
        if not _same(word.replace("\0", "[").replace("\1", "]"), flat[n]):
            return f"element {n} is {flat[n]}, not {word}"
    return ""


def _protected(text: str) -> str:
    """Text whose regular expressions hold no brackets."""
    return re.sub(
        r"\{\{.*?\}\}", lambda m: m.group().replace("[", "\0").replace("]", "\1"), text
    )


def _same(word: str, value: Any) -> bool:
    number = float(value)
    if "{{" not in word:
        wanted = float(word)
        return wanted == number or abs(wanted - number) <= RELATIVE * max(abs(wanted), 1e-3)
    parts = re.split(r"\{\{(.*?)\}\}", word)
    pattern = "".join(p if n % 2 else re.escape(p) for n, p in enumerate(parts))
    return re.fullmatch(pattern, f"{number:.6g}") is not None
