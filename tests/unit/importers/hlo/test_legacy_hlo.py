"""Text of 2019 and 2020: forms that no later dialect has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import headrace
from headrace.base.errors import HeadraceError
from headrace.importers import legacy_hlo
from headrace.importers.table import is_legacy_text

WHILE = """
func @double(%x: tensor<2xi32>) -> tensor<2xi32> {
  %0 = xla_hlo.add %x, %x : tensor<2xi32>
  return %0 : tensor<2xi32>
}
func @small(%x: tensor<2xi32>) -> tensor<i1> {
  %0 = constant dense<100> : tensor<i32>
  %1 = constant dense<0> : tensor<i32>
  %2 = "xla_hlo.reduce"(%x, %1) ( {
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %4 = xla_hlo.add %a, %b : tensor<i32>
    "xla_hlo.return"(%4) : (tensor<i32>) -> ()
  }) {dimensions = dense<0> : tensor<1xi64>} : (tensor<2xi32>, tensor<i32>) -> tensor<i32>
  %3 = "xla_hlo.compare"(%2, %0) {comparison_direction = "LT"} : (tensor<i32>, tensor<i32>) -> tensor<i1>
  return %3 : tensor<i1>
}
func @main(%x: tensor<2xi32>) -> tensor<2xi32> attributes {iree.module.export} {
  %0 = "xla_hlo.while"(%x) {body = @double, cond = @small} : (tensor<2xi32>) -> tensor<2xi32>
  return %0 : tensor<2xi32>
}
"""
VARIABLE = """
module {
  flow.variable @w dense<[1.0, 2.0]> : tensor<2xf32>
  func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
    %0 = flow.variable.load @w : tensor<2xf32>
    %1 = flow.variable.address @w : !iree.ptr<tensor<2xf32>>
    %2 = flow.variable.load.indirect %1 : !iree.ptr<tensor<2xf32>> -> tensor<2xf32>
    %3 = xla_hlo.add %x, %0 : tensor<2xf32>
    %4 = xla_hlo.mul %3, %2 : tensor<2xf32>
    return %4 : tensor<2xf32>
  }
}
"""


def _run(text: str, folder: Path, **inputs: np.ndarray) -> list[np.ndarray]:
    file = folder / "a.mlir"
    file.write_text(text)
    made = headrace.compile(file, folder / "a.hrx")
    with headrace.load(made) as module:
        return [np.array(v) for v in dict(module(**inputs).items()).values()]


def test_a_while_of_2019_names_functions(tmp_path: Path) -> None:
    (found,) = _run(WHILE, tmp_path, x=np.array([3, -1], np.int32))
    x = np.array([3, -1], np.int32)
    while x.sum() < 100:
        x = x + x
    np.testing.assert_array_equal(found, x)


def test_only_exported_functions_are_entries() -> None:
    tree = legacy_hlo.read_checked(WHILE, "a.mlir")
    assert [f.name for f in tree.functions if f.public] == ["main"]


def test_variables_are_weights(tmp_path: Path) -> None:
    (found,) = _run(VARIABLE, tmp_path, x=np.array([5.0, 7.0], np.float32))
    np.testing.assert_array_equal(found, [6.0, 18.0])


def test_integers_compare_without_their_sign(tmp_path: Path) -> None:
    text = """func @main(%x: tensor<3xi32>, %y: tensor<3xi32>) -> (tensor<3xi1>, tensor<3xi1>) {
      %0 = cmpi "ult", %x, %y : tensor<3xi32>
      %1 = cmpi "slt", %x, %y : tensor<3xi32>
      return %0, %1 : tensor<3xi1>, tensor<3xi1>
    }"""
    x, y = np.array([1, -1, 5], np.int32), np.array([-1, 1, 5], np.int32)
    below, signed = _run(text, tmp_path, x=x, y=y)
    np.testing.assert_array_equal(below, x.view(np.uint32) < y.view(np.uint32))
    np.testing.assert_array_equal(signed, x < y)


def test_equal_text_is_one_size(tmp_path: Path) -> None:
    text = """func @main(%x: tensor<?x2xf32>, %y: tensor<?x2xf32>) -> tensor<?x2xf32> {
      %0 = "xla_hlo.add"(%x, %y) : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
      return %0 : tensor<?x2xf32>
    }"""
    ones = np.ones((3, 2), np.float32)
    (found,) = _run(text, tmp_path, x=ones, y=ones)
    np.testing.assert_array_equal(found, ones + 1)


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        (VARIABLE.replace("@w dense", "@w mutable dense"), "'@w' may change"),
        (VARIABLE.replace("load @w", "load @v"), "no variable '@v'"),
        (WHILE.replace("cond = @small", "cond = @nobody"), "nobody"),
    ],
)
def test_what_is_missing_is_told(text: str, fact: str) -> None:
    with pytest.raises(HeadraceError) as refused:
        legacy_hlo.load_text(text, "a.mlir")
    assert fact in str(refused.value) and "a.mlir" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "legacy"),
    [
        ("func @main() {\n}", True),
        ("  flow.variable @w dense<1> : tensor<i32>", True),
        ("func.func @main() {\n}", False),
        ("func @main() {\n %0 = stablehlo.iota dim = 0 : tensor<2xf32>\n}", False),
    ],
)
def test_the_age_of_a_text(text: str, legacy: bool, tmp_path: Path) -> None:
    file = tmp_path / "a.mlir"
    file.write_text(text)
    assert is_legacy_text(file) is legacy


BLOCKS = """
func @main(%x: tensor<i32>) -> (tensor<i32>, tensor<i32>) {
  %one = constant dense<1> : tensor<i32>
  %two = constant dense<2> : tensor<i32>
  %three = constant dense<3> : tensor<i32>
  %none = constant dense<0> : tensor<i32>
  br ^head(%x, %none : tensor<i32>, tensor<i32>)
^head(%n: tensor<i32>, %steps: tensor<i32>):
  %0 = "xla_hlo.compare"(%n, %one) {comparison_direction = "GT"} : (tensor<i32>, tensor<i32>) -> tensor<i1>
  %1 = extract_element %0[] : tensor<i1>
  cond_br %1, ^body, ^done(%steps : tensor<i32>)
^body:  // reads what another block defines
  %2 = xla_hlo.remainder %n, %two : tensor<i32>
  %3 = xla_hlo.add %steps, %one : tensor<i32>
  %4 = "xla_hlo.compare"(%2, %one) {comparison_direction = "EQ"} : (tensor<i32>, tensor<i32>) -> tensor<i1>
  cond_br %4, ^odd, ^even
^odd:
  %5 = xla_hlo.mul %n, %three : tensor<i32>
  %6 = xla_hlo.add %5, %one : tensor<i32>
  br ^head(%6, %3 : tensor<i32>, tensor<i32>)
^even:
  %7 = xla_hlo.div %n, %two : tensor<i32>
  br ^head(%7, %3 : tensor<i32>, tensor<i32>)
^done(%8: tensor<i32>):
  return %8, %n : tensor<i32>, tensor<i32>
}
"""


def _collatz(n: int) -> int:
    steps = 0
    while n > 1:
        n = 3 * n + 1 if n % 2 else n // 2
        steps += 1
    return steps


@pytest.mark.parametrize("start", [1, 6, 178])
def test_blocks_branch_to_one_another(start: int, tmp_path: Path) -> None:
    steps, last = _run(BLOCKS, tmp_path, x=np.array(start, np.int32))
    assert (int(steps), int(last)) == (_collatz(start), 1)


def test_a_loop_over_constants_is_run(tmp_path: Path) -> None:
    """Folding leaves loops alone, whose trips are no business of a compiler."""
    (found,) = _run(BLOCKS.replace("%x: tensor<i32>", "").replace(
        "%one =", "%x = constant dense<27> : tensor<i32>\n  %one =", 1
    ), tmp_path)[:1]  # fmt: skip
    assert int(found) == _collatz(27)


@pytest.mark.parametrize(
    ("before", "after", "fact"),
    [
        (
            "br ^head(%6, %3 : tensor<i32>, tensor<i32>)",
            "br ^head",
            "'^head' takes 2 values, not 0",
        ),
        ("^odd, ^even", "^odd, ^nowhere", "no block '^nowhere'"),
        ("cond_br %4, ^odd, ^even", "cond_br %4, ^odd", "names 1 blocks"),
        ("  br ^head(%7, %3 : tensor<i32>, tensor<i32>)\n", "", "does not end"),
        ("return %8, %n", "return %8", "returns 1 values"),
    ],
)
def test_blocks_that_do_not_fit_are_refused(before: str, after: str, fact: str) -> None:
    assert before in BLOCKS
    with pytest.raises(HeadraceError, match="HR1001") as refused:
        legacy_hlo.load_text(BLOCKS.replace(before, after), "a.mlir")
    assert fact in str(refused.value) and "a.mlir:" in str(refused.value)
