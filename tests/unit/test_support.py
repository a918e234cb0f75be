"""The table of what passes where: made of the committed results, and whole."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import generate_support as support
import pytest

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "ref"
RUNS = {(r.suite, r.target): r for r in support.saved_runs()}


def rows(page: Path) -> Iterator[list[str]]:
    """The cells of each line of a page's tables."""
    for line in page.read_text().splitlines():
        if line.startswith("| "):
            yield [c.strip() for c in line.strip("|").split(" | ")]


def test_both_suites_ran_on_the_targets() -> None:
    assert set(RUNS) == {
        ("onnx", "cpu"),
        ("onnx", "vulkan"),
        ("onnx", "cuda"),
        ("stablehlo", "cpu"),
        ("stablehlo", "vulkan"),
        ("stablehlo_interpret", "cpu"),
    }


@pytest.mark.parametrize("run", RUNS.values(), ids=lambda r: f"{r.suite}-{r.target}")
def test_a_run_says_where_it_comes_from_and_adds_up(run: support.Run) -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", run.date) and re.fullmatch(r"\w{7,}", run.commit)
    assert run.machine and run.part
    failed = {test for tests in run.failures.values() for test in tests}
    assert run.total - run.passed == len(failed)
    if run.suite == "onnx":
        counts = [c for o in run.cells.values() for types in o.values() for c in types.values()]
        assert [run.passed, run.total] == [sum(c) for c in zip(*counts, strict=True)]


def test_every_supported_operator_has_a_row() -> None:
    told = {row[0] for row in rows(REFERENCE / "support.md")}
    listed = [row[:2] for row in rows(REFERENCE / "onnx.md")][1:]
    assert len(listed) > 100
    names = [name if domain == "ai.onnx" else f"{domain}.{name}" for name, domain in listed]
    assert not set(names) - told


def test_a_page_says_what_fails_and_with_which_types(tmp_path: Path) -> None:
    shared = {"expanded": False, "operator": "Neg", "opset": 13}
    lines = [
        {"suite": "onnx"},
        {**shared, "name": "a", "types": ["float"], "kind": "pass", "reason": ""},
        {**shared, "name": "b", "types": ["int8"], "kind": "pass", "reason": ""},
        {**shared, "name": "c", "types": ["int8"], "kind": "wrong", "reason": "no | bars"},
    ]
    results = tmp_path / "run.json"
    results.write_text("\n".join(map(json.dumps, lines)))
    suite, outcomes = support.outcomes_of(results)
    cells, failures = support.condensed(outcomes)
    assert failures == {"wrong: no | bars": ["c"]}
    run = support.Run(
        suite, "all", "cpu", "here", "2026-01-01", "abcdef0", 2, 3, cells, failures
    )
    support.save(run, tmp_path / "kept")
    assert support.saved_runs(tmp_path / "kept") == [run]
    page = support.support_page([run])
    assert "| Neg | 13 | float, int8 (1/2) | 2/3 |" in page
    assert "| cpu | 1 | `wrong: no \\| bars` | c |" in page


def test_a_case_counts_for_the_operations_in_it(tmp_path: Path) -> None:
    text = """func.func @main() {
      %0 = stablehlo.constant dense<1.0> : tensor<2xf32>
      %1 = stablehlo.negate %0 : tensor<2xf32>
      %2 = stablehlo.convert %1 : (tensor<2xf32>) -> tensor<2xi32>
      stablehlo.custom_call @check.expect_eq(%2, %2) : (tensor<2xi32>, tensor<2xi32>) -> ()
      return
    }"""
    case = tmp_path / "case.mlir"
    case.write_text(text)
    results = tmp_path / "run.json"
    line = {"file": str(case), "case": 0, "status": "fail", "message": "1 is not 2"}
    results.write_text(json.dumps(line))
    suite, outcomes = support.outcomes_of(results)
    assert suite == "stablehlo"
    assert [(o.operator, o.types, o.reason) for o in outcomes] == [
        ("stablehlo.convert", "f32 i32", "fail: 1 is not 2"),
        ("stablehlo.negate", "f32", "fail: 1 is not 2"),
    ]


def test_other_files_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"a": 1}')
    with pytest.raises(ValueError, match="no results"):
        support.outcomes_of(other)
