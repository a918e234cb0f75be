"""Operations between processes: alone in a group, several written out as one, and refused."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.base.errors import HeadraceError
from headrace.importers import stablehlo
from headrace.importers.hlo.checks import checked_functions
from headrace.importers.hlo.parallel import without_processes
from headrace.importers.hlo.registry import Unsupported
from headrace.importers.table import read_checked
from headrace.tensor.interp import evaluate_function

REDUCE = """
  %0 = "stablehlo.all_reduce"(%x) ({{ ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }}) {{replica_groups = dense<{groups}> : tensor<1x{count}xi64>}} : (tensor<2xf32>) -> tensor<2xf32>
"""


def _main(body: str) -> str:
    return (
        f"func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {{\n{body}\n"
        "  return %0 : tensor<2xf32>\n}"
    )


def test_one_process_is_alone_in_its_group() -> None:
    model = stablehlo.load_module(_main(REDUCE.format(groups="[[0]]", count=1)), "one.mlir")
    (found,) = evaluate_function(model, [np.float32([1, 2])])
    assert found.tolist() == [1, 2]


def test_more_processes_are_refused_with_their_place() -> None:
    with pytest.raises(HeadraceError, match="HR1101") as refused:
        stablehlo.load_module(_main(REDUCE.format(groups="[[0, 1]]", count=2)), "two.mlir")
    assert "work together, and one runs here" in str(refused.value)
    assert "line 3" in str(refused.value)


@pytest.mark.parametrize(("pairs", "wanted"), [("[[0, 0]]", [1, 2]), ("[]", [0, 0])])
def test_a_permutation_of_one(pairs: str, wanted: list[int]) -> None:
    count = pairs.count("[") - 1
    permute = (
        f'  %0 = "stablehlo.collective_permute"(%x) {{source_target_pairs = dense<{pairs}> : '
        f"tensor<{count}x2xi64>}} : (tensor<2xf32>) -> tensor<2xf32>"
    )
    model = stablehlo.load_module(_main(permute), "one.mlir")
    assert evaluate_function(model, [np.float32([1, 2])])[0].tolist() == wanted


PARALLEL = """
func.func @part(%x: tensor<2xi64>) -> tensor<2xi64> {
  %id = stablehlo.replica_id : tensor<ui32>
  %n = stablehlo.convert %id : (tensor<ui32>) -> tensor<i64>
  %w = stablehlo.broadcast_in_dim %n, dims = [] : (tensor<i64>) -> tensor<2xi64>
  %y = stablehlo.add %x, %w : tensor<2xi64>
  %0 = "stablehlo.collective_permute"(%y) {source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>}
    : (tensor<2xi64>) -> tensor<2xi64>
  return %0 : tensor<2xi64>
}
func.func @main() {
  %a = stablehlo.constant dense<[1, 2]> : tensor<2xi64>
  %b = stablehlo.constant dense<[10, 20]> : tensor<2xi64>
  %r:2 = "interpreter.run_parallel"(%a, %b) {programs = [[@part], [@part]]}
    : (tensor<2xi64>, tensor<2xi64>) -> (tensor<2xi64>, tensor<2xi64>)
  check.expect_eq_const %r#0, dense<[11, 21]> : tensor<2xi64>
  check.expect_eq_const %r#1, dense<[1, 2]> : tensor<2xi64>
  return
}
"""


def test_processes_are_written_out_as_one_program() -> None:
    (function,) = checked_functions(read_checked(PARALLEL, "parallel.mlir"))
    from headrace.importers.hlo.convert import convert_module

    model = convert_module(function.module, "parallel")
    found = evaluate_function(model, function.inputs)
    assert [f.tolist() for f in found] == [[11, 21], [1, 2]]


def test_processes_that_wait_for_ever_are_told() -> None:
    waits = PARALLEL.replace(
        '"stablehlo.collective_permute"(%y) {source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>}\n'
        "    : (tensor<2xi64>) -> tensor<2xi64>",
        "stablehlo.abs %y : tensor<2xi64>\n  %t = stablehlo.create_token : !stablehlo.token\n"
        '  %q:2 = "stablehlo.recv"(%t) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>}\n'
        "    : (!stablehlo.token) -> (tensor<2xi64>, !stablehlo.token)",
    )
    with pytest.raises(Unsupported, match="wait for each other"):
        without_processes(read_checked(waits, "wait.mlir"))
