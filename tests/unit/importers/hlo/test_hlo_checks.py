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
from headrace.base.errors import HeadraceError
from headrace.checking import check
from headrace.cli import cli
from headrace.comparing import difference, ulp_distance
from headrace.importers import stablehlo
from headrace.importers.hlo.check_text import split_cases
from headrace.importers.hlo.checks import checked_functions
from headrace.importers.table import read_checked
from headrace.tensor.interp import evaluate_function

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
    '"stablehlo.unheard_of"(%x) : (tensor<2xf32>) -> tensor<2xf32>',
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


def test_data_of_a_test_is_input_so_that_code_has_something_to_compute() -> None:
    for text, count in ((GOOD, 1), (LATER, 1)):
        (function,) = checked_functions(read_checked(text, "test.mlir"))
        assert len(function.inputs) == count
        names = [op.name for op in function.module.functions[0].body.operations]
        assert names[0] in ("stablehlo.abs", "stablehlo.negate")
        assert [c.kind for c in function.checks] in (["expect_eq"], ["expect_close"])


def test_starts_of_folds_and_shapes_stay_constants() -> None:
    text = """
func.func @main() {
  %x = stablehlo.constant dense<[1.0, -2.0]> : tensor<2xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %shape = stablehlo.constant dense<[1]> : tensor<1xi32>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<2xf32>, tensor<f32>) -> tensor<f32>
  %1 = stablehlo.dynamic_reshape %0, %shape : (tensor<f32>, tensor<1xi32>) -> tensor<1xf32>
  check.expect_eq_const %1, dense<[-1.0]> : tensor<1xf32>
  func.return
}
"""
    (function,) = checked_functions(read_checked(text, "test.mlir"))
    assert [a.tolist() for a in function.inputs] == [[1.0, -2.0]]


def test_grids_become_operations() -> None:
    text = """
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.uniform_quantize %x : (tensor<2xf32>) -> tensor<2x!quant.uniform<i8:f32, 0.5:3>>
  %1 = stablehlo.add %0, %0 : tensor<2x!quant.uniform<i8:f32, 0.5:3>>
  %2 = stablehlo.uniform_dequantize %1 : (tensor<2x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<2xf32>
  return %2 : tensor<2xf32>
}
"""
    model = stablehlo.load_module(text, "test.mlir")
    (found,) = evaluate_function(model, [np.float32([1.2, 100.0])])
    assert found.tolist() == [2.0, 62.0]


def test_a_refused_module_is_told_by_line_and_column() -> None:
    text = "func.func @main(%x: tensor<2xf32>) {\n  %0 = stablehlo.abs %y : tensor<2xf32>\n  return\n}"
    with pytest.raises(HeadraceError, match="HR1001") as refused:
        stablehlo.load_module(text, "bad.mlir")
    assert "bad.mlir:2:22" in str(refused.value)
