"""`headrace check`: cases, comparisons, and what a broken case does to the others."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from headrace import checking
from headrace.checking import check
from headrace.cli import cli
from headrace.comparing import difference, ulp_distance
from headrace.importers.hlo.check_text import generic_checks, split_cases

pytest.importorskip("jaxlib")

GOOD = """
func.func @good() {
  %x = stablehlo.constant dense<[1.0, -2.0]> : tensor<2xf32>
  %0 = stablehlo.abs %x : tensor<2xf32>
  check.expect_eq_const %0, dense<[1.0, 2.0]> : tensor<2xf32>
  func.return
}
"""
WRONG = GOOD.replace("@good", "@wrong").replace("[1.0, 2.0]", "[1.0, 3.0]")
STRANGE = GOOD.replace(
    "stablehlo.abs %x : tensor<2xf32>",
    '"stablehlo.cross-replica-sum"(%x) {replica_groups = dense<0> : tensor<1x1xi64>} : '
    "(tensor<2xf32>) -> tensor<2xf32>",
)
BROKEN = "func.func @broken( {"
LATER = """
func.func @main() -> tensor<2xf32> {
  %0 = call @inputs() : () -> tensor<2xf32>
  %1 = call @expected() : () -> tensor<2xf32>
  %2 = stablehlo.negate %0 : tensor<2xf32>
  stablehlo.custom_call @check.expect_close(%2, %1) {has_side_effect = true}
    : (tensor<2xf32>, tensor<2xf32>) -> ()
  return %2 : tensor<2xf32>
}
func.func private @inputs() -> tensor<2xf32> {
  %c = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
  return %c : tensor<2xf32>
}
func.func private @expected() -> tensor<2xf32> {
  %c = stablehlo.constant dense<[-1.0, -2.0]> : tensor<2xf32>
  return %c : tensor<2xf32>
}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cases.mlir"
    path.write_text("\n// -----\n".join((GOOD, WRONG, BROKEN, STRANGE, LATER)))
    return path


def test_each_case_has_its_own_outcome(file: Path) -> None:
    results = list(check([file]))
    assert [r.case for r in results] == [0, 1, 2, 3, 4]
    assert [r.status for r in results] == ["pass", "fail", "error", "unsupported", "pass"]
    assert "1 of 2 elements differ; [1]: 2.0, not 3.0" in results[1].message
    assert "HR1001" in results[2].message
    assert all(r.seconds > 0 and r.interpreted == 0 for r in results)


def test_a_line_of_json_a_case(file: Path) -> None:
    outcome = CliRunner().invoke(cli, ["check", str(file), "--json"])
    lines = [json.loads(line) for line in outcome.stdout.splitlines()]
    assert outcome.exit_code == 1
    assert [line["status"] for line in lines][:2] == ["pass", "fail"]
    keys = {"file", "case", "status", "message", "seconds", "interpreted"}
    assert all(set(line) == keys for line in lines)


def test_a_crash_of_one_case_does_not_end_the_others(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = checking._Worker("cpu", 2, None)  # pyright: ignore[reportPrivateUsage]
    try:
        assert worker.run(file, 0).status == "pass"
        process: Any = worker._process  # pyright: ignore[reportPrivateUsage]
        os.kill(process.pid, signal.SIGSEGV)
        process.wait()
        crashed = worker.run(file, 1)
        assert (crashed.status, crashed.message) == (
            "error",
            "the process was ended by SIGSEGV",
        )
        assert worker.run(file, 0).status == "pass"
    finally:
        worker.close()


def test_cases_keep_their_line_numbers() -> None:
    cases = split_cases("// RUN: x\n// -----\nfirst\n// -----\nsecond\n")
    assert [c.strip() for c in cases] == ["first", "second"]
    assert cases[1].split("\n")[4] == "second"


@pytest.mark.parametrize(
    ("short", "long"),
    [
        (
            "check.expect_eq_const %0, dense<[1, 2]> : tensor<2xi32>",
            "%check_0 = stablehlo.constant dense<[1, 2]> : tensor<2xi32> "
            "stablehlo.custom_call @check.expect_eq(%0, %check_0) : "
            "(tensor<2xi32>, tensor<2xi32>) -> ()",
        ),
        (
            "check.expect_close %a, %b, max_ulp_difference = 3 : tensor<f16>, tensor<f16>",
            "stablehlo.custom_call @check.expect_close(%a, %b) {max_ulp_difference = 3 : i64} "
            ": (tensor<f16>, tensor<f16>) -> ()",
        ),
        ("stablehlo.custom_call @check.eq(%a, %b)", "stablehlo.custom_call @check.eq(%a, %b)"),
    ],
)
def test_short_checks_become_custom_calls(short: str, long: str) -> None:
    assert generic_checks(short) == long


def test_units_in_the_last_place() -> None:
    one = np.float32([1.0, -1.0, 0.0, np.nan, 1.0])
    other = np.float32([np.nextafter(np.float32(1), 2), -1.0, -0.0, np.nan, np.nan])
    steps = ulp_distance(one, other)
    assert steps[:3].tolist() == [1, 0, 0]
    assert difference("expect_close", one[:4], other[:4], {}) is None
    assert difference("expect_close", one, other, {}) is not None
    assert difference("expect_close", one[:1], other[:1], {"max_ulp_difference": 0}) is not None


def test_comparisons_are_as_exact_as_they_say() -> None:
    a, b = np.float64([1.0]), np.float64([1.0005])
    assert difference("expect_almost_eq", a, b, {}) is None
    assert difference("eq", a, b, {}) is not None
    assert difference("expect_eq", a, b, {}) is not None
    assert difference("expect_almost_eq", a, b, {"tolerance": 1e-5}) is not None
    assert difference("expect_eq", a, a.astype(np.float32), {}) is not None
