"""Says which operators pass which public tests on which target, from results of runs.

    python tests/conformance/onnx/scoreboard.py --json run.json
    python tools/generate_support.py run.json --target cpu --machine "AMD EPYC, 2 cores"
    headrace check --json stablehlo_testdata > run.json
    python tools/generate_support.py run.json --target cpu --machine "AMD EPYC, 2 cores"

Each run becomes counts in `tests/conformance/results`, which are committed; tools/generate_docs.py
makes docs/ref/support.md of them.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from markdown_text import table

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "tests" / "conformance" / "results"
TARGETS = ("cpu", "vulkan", "cuda")
EXPANDED = "(expanded)"
"""The row of operators that stand as the functions which ONNX defines them by."""


@dataclass(frozen=True)
class Outcome:
    """What became of one test, for one of the operators that it is about.

    Attributes:
        test: its name.
        operator: with its domain, where that is not the default one.
        opset: of the operator's domain; empty for StableHLO.
        types: element types, joined by blanks.
        reason: why it does not pass; empty where it does.
    """

    test: str
    operator: str
    opset: str
    types: str
    reason: str


Cells = dict[str, dict[str, dict[str, list[int]]]]
"""Operator, opset, types -> how many tests pass, and of how many."""


@dataclass(frozen=True)
class Run:
    """One suite on one target.

    Attributes:
        suite: `onnx` or `stablehlo`, with `version` and what part of it ran.
        passed: tests, of `total`.
        failures: why -> the tests that do not pass for it.
    """

    suite: str
    part: str
    target: str
    machine: str
    date: str
    commit: str
    passed: int
    total: int
    cells: Cells
    failures: dict[str, list[str]]


# -- reading results ----------------------------------------------------------------------


def outcomes_of(path: Path) -> tuple[str, list[Outcome]]:
    """The suite's name, and what a file of results says.

    Raises:
        ValueError: the file is neither the scoreboard's nor `headrace check --json`'s.
    """
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    if lines and lines[0].get("suite") == "onnx":
        return "onnx", [_onnx_outcome(line) for line in lines[1:]]
    if lines and "case" in lines[0]:
        return "stablehlo", [o for line in lines for o in _stablehlo_outcomes(line)]
    raise ValueError(f"{path} holds no results that are known here")


def _onnx_outcome(line: Mapping[str, Any]) -> Outcome:
    kind = line["kind"]
    reason = "" if kind == "pass" else f"{kind}: {line['reason']}"
    operator = EXPANDED if line["expanded"] else line["operator"]
    opset = "" if line["expanded"] else str(line["opset"])
    return Outcome(line["name"], operator, opset, " ".join(line["types"]), reason)


def _stablehlo_outcomes(line: Mapping[str, Any]) -> Iterator[Outcome]:
    """One for each operation that the case holds."""
    path, case = Path(line["file"]), line["case"]
    status = line["status"]
    reason = "" if status == "pass" else f"{status}: {line['message']}"
    name = f"{path.name} case {case}" if case else path.name
    for operation, types in sorted(_operations(path, case).items()):
        yield Outcome(name, operation, "", " ".join(sorted(types)), reason)


_CONSTANT = "stablehlo.constant"
_CHECK = "stablehlo.custom_call"


def _operations(path: Path, case: int) -> dict[str, set[str]]:
    """The operations outside of regions -> element types of their operands and results."""
    from headrace.importers.hlo.check_text import split_cases
    from headrace.importers.hlo.tree import HloTensorType
    from headrace.importers.table import read_checked

    tree = read_checked(list(split_cases(path.read_text(errors="replace")))[case], path.name)
    found: dict[str, set[str]] = defaultdict(set)
    for function in tree.functions:
        for operation in function.body.operations:
            dialect = operation.name.partition(".")[0]
            if dialect not in ("stablehlo", "chlo") or operation.name == _CHECK:
                continue
            for kind in [*operation.types, *operation.result_types]:
                if isinstance(kind, HloTensorType):
                    quantised = "quantised" if kind.grid else kind.dtype.name
                    found[operation.name].add(quantised)
    # Every case holds constants: they count where it holds nothing else.
    return {n: t for n, t in found.items() if n != _CONSTANT or len(found) == 1}


def condensed(outcomes: Iterable[Outcome]) -> tuple[Cells, dict[str, list[str]]]:
    """Counts, and the tests that do not pass by their reasons."""
    cells: Cells = {}
    failures: dict[str, list[str]] = {}
    for one in outcomes:
        opsets = cells.setdefault(one.operator, {})
        count = opsets.setdefault(one.opset, {}).setdefault(one.types, [0, 0])
        count[0] += not one.reason
        count[1] += 1
        if one.reason and one.test not in failures.setdefault(one.reason, []):
            failures[one.reason].append(one.test)
    return cells, failures


# -- keeping them -------------------------------------------------------------------------


def saved_runs(folder: Path = RESULTS) -> list[Run]:
    """The committed runs, by suite, then in the order of the targets."""
    runs = [Run(**json.loads(path.read_text())) for path in folder.glob("*.json")]
    return sorted(runs, key=lambda r: (r.suite, TARGETS.index(r.target)))


def save(run: Run, folder: Path = RESULTS) -> Path:
    """Writes a run; an operator a line, so that changes can be read."""
    made = asdict(run)
    cells = made.pop("cells")
    rows = [f"  {json.dumps(o)}: {json.dumps(cells[o], sort_keys=True)}" for o in sorted(cells)]
    head = json.dumps(made, indent=1, sort_keys=True).removesuffix("\n}")
    path = folder / f"{run.suite}_{run.target}.json"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(head + ',\n "cells": {\n' + ",\n".join(rows) + "\n }\n}\n")
    return path


# -- the page -----------------------------------------------------------------------------


def support_page(runs: Sequence[Run] | None = None) -> str:
    """docs/ref/support.md."""
    found = saved_runs() if runs is None else runs
    onnx = [r for r in found if r.suite == "onnx"]
    hlo = [r for r in found if r.suite == "stablehlo"]
    return "\n".join(
        [
            "# What passes where\n",
            "Public tests on each target, as counted by"
            " [tools/generate_support.py](../../tools/generate_support.py) from the runs below; the"
            " [results](../../tests/conformance/results) hold the counts by operator, opset and"
            " types. `3/4` is three of four tests passed; a test that is refused counts as not"
            " passed. An empty cell: none of the tests that ran there is about the operator.\n",
            table(
                ("Suite", "Target", "Passed", "Date", "Commit", "Machine"),
                [
                    (r.part, r.target, _of(r.passed, r.total), r.date, r.commit, r.machine)
                    for r in found
                ],
            ),
            "Vulkan and CUDA ran fixed parts of the suites"
            " (`tests/conformance/vulkan`, `tests/conformance/cuda`).\n",
            "## ONNX\n",
            "A node test counts for the operator of its last node. ONNX writes its tests for the"
            " newest version of each operator; *opset* is what the tests' models name. Types are"
            " those of the model's inputs and outputs, and where not every test with a type passes"
            " on the CPU, how many do. Operators without a node test are told by"
            " [ONNX operators](onnx.md) and by the models in `tests/models`; `(expanded)` are"
            " tests of ONNX's own function bodies. Tests of strings and of `ImageDecoder` pass on"
            " the host, by numpy and pillow: none of their operations is compiled. Tests of whole models are not node tests and not counted"
            " here.\n",
            _operators("Operator", [*_known_operators(), *_names(onnx)], onnx, opsets=True),
            "### What does not pass\n",
            "`Bernoulli` and `Dropout` in training draw random numbers that ONNX leaves open: no"
            " numbers but those of its reference pass their tests.\n",
            _failures(onnx),
            "## StableHLO\n",
            "A case of the suite counts for every operation in it outside of regions, but for"
            " constants, which count where it holds nothing else, and the checks themselves. Types are of operands and results.\n",
            _operators("Operation", _names(hlo), hlo, opsets=False),
            "### What does not pass\n",
            _failures(hlo),
        ]
    )


def _known_operators() -> list[str]:
    from headrace.importers.onnx.registry import supported_operators

    return [f"{domain}.{name}" if domain else name for domain, name in supported_operators()]


def _names(runs: Iterable[Run]) -> list[str]:
    return [name for run in runs for name in run.cells]


def _operators(head: str, names: Iterable[str], runs: Sequence[Run], opsets: bool) -> str:
    rows: list[list[str]] = []
    for name in sorted(set(names), key=lambda n: (n == EXPANDED, "." in n, n.lower())):
        tested = sorted({int(o) for r in runs for o in r.cells.get(name, {}) if o})
        row = [name]
        row += [", ".join(map(str, tested)) or "no node test"] if opsets else []
        row += [_types(name, runs)]
        row += [_of(*_count(r.cells.get(name, {}))) for r in runs]
        rows.append(row)
    titles = [head, *(["Opset"] if opsets else []), "Types", *(r.target for r in runs)]
    return table(titles, rows)


def _types(name: str, runs: Sequence[Run]) -> str:
    """Every type tested anywhere; with counts where the CPU does not pass all."""
    counts: dict[str, list[int]] = {t: [0, 0] for r in runs for t in _type_names(r, name)}
    for opset in next((r.cells.get(name, {}) for r in runs if r.target == "cpu"), {}).values():
        for types, (passed, total) in opset.items():
            for kind in types.split():
                counts[kind][0] += passed
                counts[kind][1] += total
    return ", ".join(
        kind if passed == total else f"{kind} ({passed}/{total})"
        for kind, (passed, total) in sorted(counts.items())
    )


def _type_names(run: Run, name: str) -> set[str]:
    return {t for o in run.cells.get(name, {}).values() for types in o for t in types.split()}


def _count(opsets: Mapping[str, Mapping[str, Sequence[int]]]) -> tuple[int, int]:
    counts = [count for types in opsets.values() for count in types.values()]
    return sum(c[0] for c in counts), sum(c[1] for c in counts)


def _of(passed: int, total: int) -> str:
    return f"{passed}/{total}" if total else ""


_MOST_NAMED = 4


def _failures(runs: Sequence[Run]) -> str:
    rows: list[tuple[str, ...]] = []
    for run in runs:
        for reason, tests in sorted(run.failures.items()):
            more = len(tests) - _MOST_NAMED
            named = ", ".join(tests[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
            rows.append((run.target, str(len(tests)), f"`{reason[:150]}`", named))
    return table(("Target", "Tests", "Why", "Which"), rows) if rows else "Nothing.\n"


# -- the command line ---------------------------------------------------------------------


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--target", choices=TARGETS, required=True)
    parser.add_argument("--machine", required=True, help="what it ran on")
    parser.add_argument("--part", required=True, help="the suite, and what part of it ran")
    parser.add_argument("--suite", help="a suite that is counted as a whole, not by operator")
    parser.add_argument(
        "--date", default=datetime.datetime.now(datetime.UTC).date().isoformat()
    )
    parser.add_argument("--commit", help="what ran; the one of this folder by default")
    given = parser.parse_args()
    commit = given.commit or _commit()
    suite, outcomes = outcomes_of(given.results)
    tests = {o.test: not o.reason for o in outcomes}
    cells, failures = condensed(outcomes)
    if given.suite:
        suite, cells = given.suite, {}
    run = Run(
        suite=suite,
        part=given.part,
        target=given.target,
        machine=given.machine,
        date=given.date,
        commit=commit,
        passed=sum(tests.values()),
        total=len(tests),
        cells=cells,
        failures=failures,
    )
    print(f"{save(run)}: {run.passed} of {run.total}")


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
