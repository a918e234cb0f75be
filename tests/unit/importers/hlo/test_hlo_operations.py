"""Operations of StableHLO against numpy: through the meaning and through compiled code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import api
from headrace.importers import stablehlo
from headrace.tensor.interp import evaluate_function


def results_of(text: str, inputs: list[Any], folder: Path, level: int = 2) -> list[Any]:
    """What compiled code computes; the meaning must agree with it."""
    meant = evaluate_function(stablehlo.load_module(text, "test.mlir"), inputs)
    path = api.compile(stablehlo.load_module(text, "test.mlir"), folder / "t.hrx", level=level)
    with api.load(path) as module:
        names = [info.name for info in module.inputs_of(None)]
        outputs = module(**dict(zip(names, inputs, strict=True)))
        found = [np.array(a) for a in dict(outputs.items()).values()]
    for computed, wanted in zip(found, meant, strict=True):
        np.testing.assert_allclose(computed, wanted, rtol=1e-5, atol=1e-6)
    return found


SCATTER = """
func.func @main(%x: tensor<4x3xf32>, %i: tensor<3x1xi32>, %u: tensor<3x3xf32>)
    -> tensor<4x3xf32> {
  %0 = "stablehlo.scatter"(%x, %i, %u) <{
    scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1],
      inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>
  }> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.BODY %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
  }) : (tensor<4x3xf32>, tensor<3x1xi32>, tensor<3x3xf32>) -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}
"""


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("body", ["add", "subtract", "maximum"])
def test_scatter_combines_in_order_and_drops_what_is_outside(
    body: str, level: int, tmp_path: Path
) -> None:
    generator = np.random.default_rng(0)
    x = generator.standard_normal((4, 3)).astype(np.float32)
    u = generator.standard_normal((3, 3)).astype(np.float32)
    i = np.array([[2], [2], [7]], np.int32)
    function = {"add": np.add, "subtract": np.subtract, "maximum": np.maximum}[body]
    wanted = x.copy()
    for row in (0, 1):
        wanted[2] = function(wanted[2], u[row])
    (found,) = results_of(SCATTER.replace("BODY", body), [x, i, u], tmp_path, level)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_negative_indices_are_outside_too(tmp_path: Path) -> None:
    x, u = np.zeros((4, 3), np.float32), np.ones((3, 3), np.float32)
    i = np.array([[-1], [4], [0]], np.int32)
    (found,) = results_of(SCATTER.replace("BODY", "add"), [x, i, u], tmp_path)
    assert found.tolist() == [[1, 1, 1], [0, 0, 0], [0, 0, 0], [0, 0, 0]]


SORT = """
func.func @main(%k: tensor<2x50xi32>, %v: tensor<2x50xf32>)
    -> (tensor<2x50xi32>, tensor<2x50xf32>) {
  %0:2 = "stablehlo.sort"(%k, %v) <{dimension = 1 : i64, is_stable = true}> ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>, %c: tensor<f32>, %d: tensor<f32>):
      %s = stablehlo.compare LT, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %s : tensor<i1>
  }) : (tensor<2x50xi32>, tensor<2x50xf32>) -> (tensor<2x50xi32>, tensor<2x50xf32>)
  return %0#0, %0#1 : tensor<2x50xi32>, tensor<2x50xf32>
}
"""


def test_a_sort_of_several_tensors_keeps_equals_in_order(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    keys = generator.integers(0, 7, (2, 50)).astype(np.int32)
    values = generator.standard_normal((2, 50)).astype(np.float32)
    order = np.argsort(keys, axis=1, kind="stable")
    sorted_keys, sorted_values = results_of(SORT, [keys, values], tmp_path)
    np.testing.assert_array_equal(sorted_keys, np.take_along_axis(keys, order, 1))
    np.testing.assert_array_equal(sorted_values, np.take_along_axis(values, order, 1))


@pytest.mark.parametrize(
    ("name", "function", "low", "high"),
    [
        ("sinh", np.sinh, -40, 40),
        ("cosh", np.cosh, -40, 40),
        ("asinh", np.arcsinh, -1e4, 1e4),
        ("acosh", np.arccosh, 1, 1e4),
        ("atanh", np.arctanh, -0.999, 0.999),
        ("tan", np.tan, -1.5, 1.5),
        ("acos", np.arccos, -1, 1),
        ("asin", np.arcsin, -1, 1),
        ("atan", np.arctan, -50, 50),
    ],
)
def test_functions_of_chlo_are_accurate_in_double_precision(
    name: str, function: Any, low: float, high: float, tmp_path: Path
) -> None:
    x = np.linspace(low, high, 101)
    text = (
        f"func.func @main(%x: tensor<101xf64>) -> tensor<101xf64> {{\n"
        f"  %0 = chlo.{name} %x : tensor<101xf64> -> tensor<101xf64>\n"
        f"  return %0 : tensor<101xf64>\n}}"
    )
    (found,) = results_of(text, [x], tmp_path)
    np.testing.assert_allclose(found, function(x), rtol=2e-15, atol=1e-300)


def test_gamma_functions_near_zeros_and_poles(tmp_path: Path) -> None:
    import math

    x = np.array([0.1, 0.5, 0.999, 1.0, 1.0001, 1.5, 2.0, 2.001, 10.0, 171.5, -0.5, -3.7])
    text = (
        "func.func @main(%x: tensor<12xf64>) -> tensor<12xf64> {\n"
        "  %0 = chlo.lgamma %x : tensor<12xf64> -> tensor<12xf64>\n"
        "  return %0 : tensor<12xf64>\n}"
    )
    (found,) = results_of(text, [x], tmp_path)
    np.testing.assert_allclose(found, [math.lgamma(v) for v in x], rtol=1e-13, atol=1e-15)


def test_the_inverse_error_function_inverts(tmp_path: Path) -> None:
    import math

    x = np.concatenate([np.linspace(-0.9999, 0.9999, 41), [1e-300, 1 - 1e-15, 1.0, -1.0]])
    text = (
        f"func.func @main(%x: tensor<{x.size}xf64>) -> tensor<{x.size}xf64> {{\n"
        f"  %0 = chlo.erf_inv %x : tensor<{x.size}xf64> -> tensor<{x.size}xf64>\n"
        f"  return %0 : tensor<{x.size}xf64>\n}}"
    )
    (found,) = results_of(text, [x], tmp_path)
    assert found[-2:].tolist() == [math.inf, -math.inf]
    back = [math.erf(v) for v in found[:-2]]
    np.testing.assert_allclose(back, x[:-2], rtol=1e-14, atol=1e-300)


@pytest.mark.parametrize(
    ("element", "value", "wanted"),
    [
        ("bf16", "[1.5, -2.0]", [1.5, -2.0]),
        ("f8E4M3FN", "[1.5, -2.0]", [1.5, -2.0]),
        ("f8E4M3FN", "3.5", [3.5, 3.5]),
        ("i4", "[7, -8]", [7, -8]),
        ("ui2", "[3, 1]", [3, 1]),
        ("i1", "[true, false]", [True, False]),
        ("complex<f32>", "[(1.0, 2.0), (0.0, -1.0)]", [1 + 2j, -1j]),
        ("complex<f64>", "(1.0, 2.0)", [1 + 2j, 1 + 2j]),
        ("f16", "[0x7C00, 0.5]", [float("inf"), 0.5]),
    ],
)
def test_constants_of_every_element_type(element: str, value: str, wanted: list[Any]) -> None:
    text = (
        f"func.func @main() -> tensor<2x{element}> {{\n"
        f"  %0 = stablehlo.constant dense<{value}> : tensor<2x{element}>\n"
        f"  return %0 : tensor<2x{element}>\n}}"
    )
    (found,) = evaluate_function(stablehlo.load_module(text, "test.mlir"), [])
    assert found.astype(np.asarray(wanted).dtype).tolist() == wanted


WHILE = """
func.func @main(%x: tensor<f32>LIMIT_ARG) -> tensor<f32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  LIMIT
  %0:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<f32>
    cond {
      %c = stablehlo.compare LT, %i, %limit : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %n = stablehlo.add %i, %one : tensor<i32>
      %b = stablehlo.add %a, %a : tensor<f32>
      stablehlo.return %n, %b : tensor<i32>, tensor<f32>
    }
  return %0#1 : tensor<f32>
}
"""


def test_a_loop_of_known_trips_is_written_out(tmp_path: Path) -> None:
    known = "%limit = stablehlo.constant dense<5> : tensor<i32>"
    text = WHILE.replace("LIMIT_ARG", "").replace("LIMIT", known)
    (found,) = results_of(text, [np.float32(1.5)], tmp_path)
    assert found == 48


def test_a_loop_that_data_stops_is_a_loop(tmp_path: Path) -> None:
    text = WHILE.replace("LIMIT_ARG", ", %limit: tensor<i32>").replace("LIMIT", "")
    for limit, wanted in ((5, 48), (0, 1.5), (9, 768)):
        (found,) = results_of(text, [np.float32(1.5), np.int32(limit)], tmp_path)
        assert found == wanted


def test_a_loop_of_many_trips_stays_a_loop() -> None:
    known = "%limit = stablehlo.constant dense<100> : tensor<i32>"
    text = WHILE.replace("LIMIT_ARG", "").replace("LIMIT", known)
    model = stablehlo.load_module(text, "loop.mlir")
    (loop,) = [op for op in model.ir.walk() if op.name == "tensor.while"]
    assert loop.properties["trip_count"].exprs[0].value == 100


BRANCHES = """
func.func @main(%i: tensor<i32>, %x: tensor<32x32xf32>) -> tensor<32x32xf32> {
  %0 = "stablehlo.case"(%i) ({
    %a = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] : (tensor<32x32xf32>, tensor<32x32xf32>) -> tensor<32x32xf32>
    %b = stablehlo.dot_general %a, %x, contracting_dims = [1] x [0] : (tensor<32x32xf32>, tensor<32x32xf32>) -> tensor<32x32xf32>
    %s = stablehlo.constant dense<0.0> : tensor<f32>
    %c = stablehlo.reduce(%b init: %s) applies stablehlo.add across dimensions = [0] : (tensor<32x32xf32>, tensor<f32>) -> tensor<32xf32>
    %d = stablehlo.broadcast_in_dim %c, dims = [1] : (tensor<32xf32>) -> tensor<32x32xf32>
    stablehlo.return %d : tensor<32x32xf32>
  }, {
    %e = stablehlo.constant dense<1.0> : tensor<32x32xf32>
    %s = stablehlo.constant dense<0.0> : tensor<f32>
    %f = stablehlo.reduce(%x init: %s) applies stablehlo.add across dimensions = [0] : (tensor<32x32xf32>, tensor<f32>) -> tensor<32xf32>
    %g = stablehlo.broadcast_in_dim %f, dims = [1] : (tensor<32xf32>) -> tensor<32x32xf32>
    %h = stablehlo.multiply %g, %e : tensor<32x32xf32>
    stablehlo.return %h : tensor<32x32xf32>
  }, {
    stablehlo.return %x : tensor<32x32xf32>
  }) : (tensor<i32>) -> tensor<32x32xf32>
  return %0 : tensor<32x32xf32>
}"""


def test_only_the_branch_that_is_taken_runs(tmp_path: Path) -> None:
    model = stablehlo.load_module(BRANCHES, "case.mlir")
    assert sum(op.name == "tensor.if" for op in model.ir.walk()) == 2
    x = np.random.default_rng(0).standard_normal((32, 32)).astype(np.float32) / 8
    sums = [(x @ x @ x).sum(0), x.sum(0), None]
    for index, taken in ((0, 0), (1, 1), (2, 2), (-1, 2), (7, 2)):
        (found,) = results_of(BRANCHES, [np.int32(index), x], tmp_path)
        wanted = x if sums[taken] is None else np.broadcast_to(sums[taken], x.shape)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_case_takes_the_last_branch_for_an_unknown_index(tmp_path: Path) -> None:
    text = """
func.func @main(%i: tensor<i32>, %x: tensor<f32>) -> tensor<f32> {
  %0 = "stablehlo.case"(%i) ({
    %a = stablehlo.negate %x : tensor<f32>
    stablehlo.return %a : tensor<f32>
  }, {
    stablehlo.return %x : tensor<f32>
  }) : (tensor<i32>) -> tensor<f32>
  return %0 : tensor<f32>
}"""
    for index, wanted in ((0, -2.0), (1, 2.0), (-1, 2.0), (9, 2.0)):
        (found,) = results_of(text, [np.int32(index), np.float32(2)], tmp_path)
        assert found == wanted


def test_a_fourier_transform_there_and_back(tmp_path: Path) -> None:
    text = """
func.func @main(%x: tensor<3x10xf32>) -> (tensor<3x6xcomplex<f32>>, tensor<3x10xf32>) {
  %0 = stablehlo.fft %x, type = RFFT, length = [10] : (tensor<3x10xf32>) -> tensor<3x6xcomplex<f32>>
  %1 = stablehlo.fft %0, type = IRFFT, length = [10] : (tensor<3x6xcomplex<f32>>) -> tensor<3x10xf32>
  return %0, %1 : tensor<3x6xcomplex<f32>>, tensor<3x10xf32>
}"""
    x = np.random.default_rng(0).standard_normal((3, 10)).astype(np.float32)
    there, back = results_of(text, [x], tmp_path)
    np.testing.assert_allclose(there, np.fft.rfft(x), atol=1e-5)
    np.testing.assert_allclose(back, x, atol=1e-6)
