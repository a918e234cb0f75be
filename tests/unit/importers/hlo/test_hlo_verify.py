"""Rules of StableHLO: one broken rule for each family, and everything wrong at once."""

from __future__ import annotations

import pytest

from headrace.base.errors import HeadraceError
from headrace.importers import stablehlo

T = "tensor<2x3xf32>"
BROKEN = {
    "add of another shape": (f'"stablehlo.add"(%x, %x) : ({T}, {T}) -> tensor<3x2xf32>', "shapes differ"),
    "abs of another element": (f'"stablehlo.abs"(%x) : ({T}) -> tensor<2x3xf64>', "elements differ"),
    "and of floats": (f'"stablehlo.and"(%x, %x) : ({T}, {T}) -> {T}', "must hold booleans"),
    "operands": (f'"stablehlo.add"(%x) : ({T}) -> {T}', "1 operands stand where 2 are needed"),
    "attribute": (f'"stablehlo.transpose"(%x) : ({T}) -> tensor<3x2xf32>', "'permutation' is missing"),
    "kind of integers": (f'"stablehlo.transpose"(%x) <{{permutation = "ab"}}> : ({T}) -> tensor<3x2xf32>', "permutation holds other things than integers"),
    "kind of booleans": (f'"stablehlo.cholesky"(%x) <{{lower = 3}}> : ({T}) -> {T}', "lower holds other things than booleans"),
    "kind of dimensions": (f'"stablehlo.dot_general"(%x, %x) <{{dot_dimension_numbers = [1]}}> : ({T}, {T}) -> {T}', "dot_dimension_numbers names no dimensions"),
    "permutation": (f"stablehlo.transpose %x, dims = [0, 0] : ({T}) -> {T}", "no order of 2"),
    "slice": (f"stablehlo.slice %x [0:3, 0:3] : ({T}) -> tensor<3x3xf32>", "ends at 3, of 2"),
    "reshape": (f"stablehlo.reshape %x : ({T}) -> tensor<5xf32>", "6 elements do not make 5"),
    "broadcast": (f"stablehlo.broadcast_in_dim %x, dims = [0, 1] : ({T}) -> tensor<2x4xf32>", "does not spread"),
    "concatenate": (f"stablehlo.concatenate %x, %x, dim = 0 : ({T}, {T}) -> tensor<5x3xf32>", "has the shape [4, 3]"),
    "dot_general": (f"stablehlo.dot_general %x, %x, contracting_dims = [0] x [1] : ({T}, {T}) -> tensor<3x2xf32>", "2 and 3 elements"),
    "iota": ("stablehlo.iota dim = 2 : tensor<2x3xf32>", "dimension 2 is not there"),
    "fft": (f"stablehlo.fft %x, type = FFT, length = [3] : ({T}) -> {T}", "a FFT takes no"),
    "gather": (f'"stablehlo.gather"(%x, %i) <{{dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [0], start_index_map = [7], index_vector_dim = 1>, slice_sizes = array<i64: 1, 3>}}> : ({T}, tensor<1xi32>) -> tensor<3xf32>', "outside of [0, 2)"),
    "tuple": (f"stablehlo.get_tuple_element %t[3] : (tuple<{T}>) -> {T}", "element 3 of 1"),
    "while": (f"stablehlo.while(%a = %x) : {T} cond {{ stablehlo.return %x : {T} }} do {{ stablehlo.return %a : {T} }}", "no single tensor<i1>"),
    "call": (f"func.call @nobody(%x) : ({T}) -> {T}", "there is no function 'nobody'"),
    "composite": (f'stablehlo.composite "x" %x {{decomposition = @main}} : ({T}) -> {T}', "no name of an operation"),
    "all_reduce": (f'"stablehlo.all_reduce"(%x) <{{replica_groups = dense<[[0, 0]]> : tensor<1x2xi64>}}> ({{ ^bb0(%a: tensor<f32>, %b: tensor<f32>): stablehlo.return %a : tensor<f32> }}) : ({T}) -> {T}', "holds a number twice"),
    "chlo": ('"chlo.broadcast_add"(%x, %i) : (tensor<2x3xf32>, tensor<1xi32>) -> tensor<2x3xf32>', "different elements"),
    "dynamic_reshape": (f"stablehlo.dynamic_reshape %x, %s : ({T}, tensor<2xi32>) -> tensor<?x?xf32>", "do not make [4, 4]"),
}  # fmt: skip


def _module(body: str) -> str:
    return (
        f"func.func @main(%x: {T}, %i: tensor<1xi32>, %t: tuple<{T}>) {{\n"
        "  %s = stablehlo.constant dense<4> : tensor<2xi32>\n"
        f"  %r = {body}\n  return\n}}"
    )


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_told_with_its_line(name: str) -> None:
    body, fact = BROKEN[name]
    with pytest.raises(HeadraceError, match="HR1102") as refused:
        stablehlo.read_tree(_module(body), "test.mlir")
    assert fact in str(refused.value)
    assert "test.mlir: line 3" in str(refused.value)


def test_everything_wrong_is_told_at_once() -> None:
    bodies = [BROKEN[name][0] for name in ("iota", "reshape", "slice")]
    text = _module("\n  %q = ".join(bodies).replace("%q", "%q1", 1))
    with pytest.raises(HeadraceError) as refused:
        stablehlo.read_tree(text, "test.mlir")
    assert len(refused.value.diagnostics) == 3


def test_grids_are_types_too() -> None:
    for grid, fact in (
        ("i8:f32, 0.0:3", "not above 0"),
        ("i8:f32, 0.5:300", "no number of the storage"),
        ("i8:f32:1, {0.5, 0.25}", "2 scales stand for 3"),
        ("i8:i32, 0.5", "stands for floats"),
    ):
        text = f"func.func @main(%x: tensor<2x3x!quant.uniform<{grid}>>) {{ return }}"
        with pytest.raises(HeadraceError, match=fact):
            stablehlo.read_tree(text, "test.mlir")
