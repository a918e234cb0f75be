"""Sizes that a module leaves open, and sizes given as data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace
from headrace.base.errors import HeadraceError
from headrace.base.symbols import parse_expr
from headrace.importers.hlo.open_sizes import Learned, OpenSizes


def _run(text: str, folder: Path, *inputs: Any) -> list[Any]:
    path = folder / "module.mlir"
    path.write_text(text)
    with headrace.load(headrace.compile(path, folder / "module.hrx")) as module:
        return [np.array(v) for v in dict(module(*inputs).items()).values()]


ADDED = """
func.func public @main(%n: tensor<i64>, %x: tensor<?x4xf32>, %y: tensor<2x?x4xf32>) -> tensor<2x?x4xf32> {
  %two = stablehlo.constant dense<2> : tensor<1xi64>
  %four = stablehlo.constant dense<4> : tensor<1xi64>
  %m = stablehlo.reshape %n : (tensor<i64>) -> tensor<1xi64>
  %shape = stablehlo.concatenate %two, %m, %four, dim = 0 : (tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<3xi64>
  %b = stablehlo.dynamic_broadcast_in_dim %x, %shape, dims = [1, 2] : (tensor<?x4xf32>, tensor<3xi64>) -> tensor<2x?x4xf32>
  %r = stablehlo.add %b, %y : tensor<2x?x4xf32>
  return %r : tensor<2x?x4xf32>
}
"""


@pytest.mark.parametrize("rows", [3, 1, 5])
def test_a_size_given_as_data_is_that_of_the_operand(rows: int, tmp_path: Path) -> None:
    x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
    y = np.ones((2, rows, 4), np.float32)
    (found,) = _run(ADDED, tmp_path, np.array(rows), x, y)
    np.testing.assert_array_equal(found, x + y)


COUNTED = """
func.func public @main(%n: tensor<i64>, %x: tensor<f32>) -> tensor<?xf32> {
  %two = stablehlo.constant dense<2> : tensor<i64>
  %m = stablehlo.multiply %n, %two : tensor<i64>
  %shape = stablehlo.reshape %m : (tensor<i64>) -> tensor<1xi64>
  %i = stablehlo.dynamic_iota %shape, dim = 0 : (tensor<1xi64>) -> tensor<?xf32>
  %b = stablehlo.dynamic_broadcast_in_dim %x, %shape, dims = [] : (tensor<f32>, tensor<1xi64>) -> tensor<?xf32>
  %r = stablehlo.add %i, %b : tensor<?xf32>
  return %r : tensor<?xf32>
}
"""


def test_a_size_that_nothing_implies_is_read_back(tmp_path: Path) -> None:
    (found,) = _run(COUNTED, tmp_path, np.array(4), np.float32(0.5))
    np.testing.assert_array_equal(found, np.arange(8, dtype=np.float32) + 0.5)


CUT = """
func.func public @main(%x: tensor<?xf32>, %start: tensor<1xi64>, %limit: tensor<1xi64>) -> tensor<?xf32> {
  %one = stablehlo.constant dense<1> : tensor<1xi64>
  %r = stablehlo.real_dynamic_slice %x, %start, %limit, %one : (tensor<?xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<?xf32>
  return %r : tensor<?xf32>
}
"""


def test_a_slice_whose_place_data_decides_stays_inside(tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float32)
    for start, limit in ((1, 4), (2, 9), (8, 9)):
        (found,) = _run(CUT, tmp_path, x, np.array([start]), np.array([limit]))
        np.testing.assert_array_equal(found, x[start:limit])


REDUCED = """
func.func public @main(%x: tensor<?x3xf32>, %i: tensor<?x3xi32>) -> (tensor<?xf32>, tensor<?xi32>) {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.reduce(%x init: %low), (%i init: %zero) across dimensions = [1] : (tensor<?x3xf32>, tensor<?x3xi32>, tensor<f32>, tensor<i32>) -> (tensor<?xf32>, tensor<?xi32>)
    reducer(%a: tensor<f32>, %b: tensor<f32>) (%c: tensor<i32>, %d: tensor<i32>) {
      %more = stablehlo.compare GE, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %v = stablehlo.select %more, %a, %b : tensor<i1>, tensor<f32>
      %w = stablehlo.select %more, %c, %d : tensor<i1>, tensor<i32>
      stablehlo.return %v, %w : tensor<f32>, tensor<i32>
    }
  return %r#0, %r#1 : tensor<?xf32>, tensor<?xi32>
}
"""


def test_inputs_of_one_reduction_are_equally_large(tmp_path: Path) -> None:
    x = np.array([[1, 5, 2], [7, 0, 3]], np.float32)
    places = np.broadcast_to(np.arange(3, dtype=np.int32), (2, 3)).copy()
    value, place = _run(REDUCED, tmp_path, x, places)
    np.testing.assert_array_equal(value, [5, 7])
    np.testing.assert_array_equal(place, [1, 0])


def test_what_data_decides_is_replaced_first() -> None:
    sizes = OpenSizes()
    with pytest.raises(Learned):
        sizes.same(parse_expr("3*decided_0*size1"), parse_expr("3*size0*size1"))
    assert sizes.substitutions == {"decided_0": parse_expr("size0")}
    assert sizes.resolve(parse_expr("2*decided_0 + 1")) == parse_expr("2*size0 + 1")


def test_sizes_that_cannot_be_equal_are_refused(tmp_path: Path) -> None:
    text = ADDED.replace("dense<2> : tensor<1xi64>", "dense<3> : tensor<1xi64>")
    with pytest.raises(HeadraceError, match=r"HR1102|HR1001"):
        _run(text, tmp_path, np.array(1), np.zeros((1, 4), np.float32))
