"""MLIR text: short and generic forms, places of errors, the parser in its own process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.base.errors import HeadraceError
from headrace.importers import stablehlo
from headrace.importers.hlo import mlir_service
from headrace.importers.hlo.text_reader import read_text
from headrace.importers.hlo.tree import HloOperation, HloTensorType


def operations(
    body: str, arguments: str = "%x: tensor<2x3xf32>", tail: str = ""
) -> list[HloOperation]:
    text = f"func.func @main({arguments}) {{\n  {body}\n  return\n}}{tail}"
    (function,) = read_text(text, "test.mlir").functions
    return function.body.operations[:-1]


PAIRS = {
    "stablehlo.add %x, %x : tensor<2x3xf32>": '"stablehlo.add"(%x, %x) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>',
    "stablehlo.transpose %x, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>": '"stablehlo.transpose"(%x) <{permutation = array<i64: 1, 0>}> : (tensor<2x3xf32>) -> tensor<3x2xf32>',
    "stablehlo.slice %x [0:2, 0:3:2] : (tensor<2x3xf32>) -> tensor<2x2xf32>": '"stablehlo.slice"(%x) {start_indices = array<i64: 0, 0>, limit_indices = array<i64: 2, 3>, strides = array<i64: 1, 2>} : (tensor<2x3xf32>) -> tensor<2x2xf32>',
    "stablehlo.compare LT, %x, %x, FLOAT : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>": '"stablehlo.compare"(%x, %x) <{comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type FLOAT>}> : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>',
    "stablehlo.reduce_precision %x, format = e5m10 : tensor<2x3xf32>": '"stablehlo.reduce_precision"(%x) <{exponent_bits = 5 : i32, mantissa_bits = 10 : i32}> : (tensor<2x3xf32>) -> tensor<2x3xf32>',
    "stablehlo.iota dim = 1 : tensor<2x3xi32>": '"stablehlo.iota"() <{iota_dimension = 1 : i64}> : () -> tensor<2x3xi32>',
    "stablehlo.dot_general %x, %x, contracting_dims = [1] x [1], precision = [DEFAULT, HIGHEST] : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x2xf32>": '"stablehlo.dot_general"(%x, %x) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision HIGHEST>]}> : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x2xf32>',
    "stablehlo.custom_call @f(%x) {has_side_effect = true} : (tensor<2x3xf32>) -> ()": '"stablehlo.custom_call"(%x) <{call_target_name = "f", has_side_effect = true}> : (tensor<2x3xf32>) -> ()',
    "stablehlo.optimization_barrier %x, %x : tensor<2x3xf32>, tensor<2x3xf32>": '"stablehlo.optimization_barrier"(%x, %x) : (tensor<2x3xf32>, tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>)',
    "stablehlo.while(%a = %x) : tensor<2x3xf32> cond { %t = stablehlo.constant dense<true> : tensor<i1> stablehlo.return %t : tensor<i1> } do { stablehlo.return %a : tensor<2x3xf32> }": '"stablehlo.while"(%x) ({ ^bb0(%a: tensor<2x3xf32>): %t = "stablehlo.constant"() <{value = dense<true> : tensor<i1>}> : () -> tensor<i1> "stablehlo.return"(%t) : (tensor<i1>) -> () }, { ^bb0(%b: tensor<2x3xf32>): "stablehlo.return"(%b) : (tensor<2x3xf32>) -> () }) : (tensor<2x3xf32>) -> tensor<2x3xf32>',
}  # fmt: skip


def _same(short: HloOperation, long: HloOperation) -> bool:
    def plain(operation: HloOperation) -> Any:
        attributes = sorted(
            (k, str(np.asarray(v).tolist())) for k, v in operation.attributes.items()
        )
        inner = [[plain(o) for o in r.operations] for r in operation.regions]
        arguments = [r.arguments for r in operation.regions]
        return (
            operation.name, operation.operands, operation.results, attributes,
            operation.types, operation.result_types, arguments, inner,
        )  # fmt: skip

    return plain(short) == plain(long)


@pytest.mark.parametrize("short", PAIRS, ids=lambda text: text.split()[0])
def test_short_and_generic_forms_are_the_same_tree(short: str) -> None:
    (a,), (b,) = operations(short), operations(PAIRS[short])
    assert _same(a, b)


def test_a_reduction_that_applies_an_operation_has_its_body() -> None:
    start = "%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
    types = "(tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>"
    short = (
        f"stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1] : {types}"
    )
    long = (
        '"stablehlo.reduce"(%x, %z) <{dimensions = array<i64: 1>}> ({ ^bb0(%a: tensor<f32>, '
        '%b: tensor<f32>): %s = stablehlo.add %a, %b : tensor<f32> "stablehlo.return"(%s) : '
        f"(tensor<f32>) -> () }}) : {types}"
    )
    assert _same(operations(start + short)[1], operations(start + long)[1])


def test_constants_of_every_spelling() -> None:
    made = operations(
        "%0 = stablehlo.constant dense<[[1, -2], [0x3, 4]]> : tensor<2x2xi8>\n"
        '%1 = stablehlo.constant dense<"0x0000803F00000040"> : tensor<2xf32>\n'
        "%2 = stablehlo.constant dense<0x7FC00000> : tensor<3xf32>\n"
        "%3 = stablehlo.constant dense<[(1.0, 2.0)]> : tensor<1xcomplex<f32>>\n"
        "%4 = stablehlo.constant dense<[true, false]> : tensor<2xi1>\n"
        "%5 = stablehlo.constant dense_resource<w> : tensor<2xf32>\n",
        tail='\n{-# dialect_resources: { builtin: { w: "0x040000000000803F00000040" } } #-}',
    )
    found = [op.attributes["value"] for op in made]
    assert [f.tolist() for f in found[:2]] == [[[1, -2], [3, 4]], [1.0, 2.0]]
    assert np.isnan(found[2]).all() and found[2].shape == (3,)
    assert found[5].tolist() == [1.0, 2.0]
    assert found[3].tolist() == [1 + 2j] and found[4].tolist() == [True, False]


def test_types_say_bounds_and_grids() -> None:
    (made,) = operations(
        "stablehlo.abs %x : tensor<?x3xf32, #stablehlo.bounds<8, ?>>",
        "%x: tensor<?x3xf32, #stablehlo.type_extensions<bounds = [8, ?]>>",
    )
    kind = made.types[0]
    assert isinstance(kind, HloTensorType) and kind.bounds == (8, None)
    (made,) = operations(
        "stablehlo.abs %x : tensor<2x!quant.uniform<i8:f32, 5.0e-1:3>>",
        "%x: tensor<2x!quant.uniform<i8:f32, 0.5:3>>",
    )
    assert str(made.types[0]) == "tensor<2x!quant.uniform<i8:f32,0.5:3>>"


@pytest.mark.parametrize(
    ("body", "place", "fact"),
    [
        ("%0 = stablehlo.abs %y : tensor<2x3xf32>", "2:22", "'%y' is defined nowhere above"),
        ("%0 = stablehlo.abs %x : tensor<2x4xf32>", "2:22", "operand 0 is a tensor<2x3xf32>"),
        ("%0 = stablehlo.abs %x tensor<2x3xf32>", "2:25", "expected ':'"),
        ("%x = stablehlo.abs %x : tensor<2x3xf32>", "3:3", "'%x' is defined twice"),
        ("%0 = stablehlo.constant dense<[1, 2]> : tensor<3xi32>", "2:33", "2 elements do not"),
        ("%0 = stablehlo.constant dense<zero> : tensor<3xi32>", "2:33", "no elements of i32"),
        ("%0 = stablehlo.abs %x : tensor<2x3xg7>", "2:22", "is a tensor<2x3xf32>"),
        ("%0 = stablehlo.abs %x : #name", "2:27", "expected a type"),
        ("%0:2 = stablehlo.abs %x : tensor<2x3xf32>", "2:3", "has 1 results, not 2"),
        ('%0 = "stablehlo.abs"(%x) {a = "b} : () -> ()', "2:33", "expected an attribute"),
        ("}", "4:1", "expected an operation"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_told_with_its_place(body: str, place: str, fact: str) -> None:
    with pytest.raises(HeadraceError, match="HR1001") as refused:
        operations(body)
    assert f"test.mlir:{place}" in str(refused.value)
    assert fact in str(refused.value)


@pytest.mark.parametrize(
    "text", ["module {" * 50_000, "func.func @a(%a: " + "tuple<" * 50_000, "[" * 50_000, "\0", ""]
)  # fmt: skip
def test_strange_text_is_refused_or_empty(text: str) -> None:
    try:
        assert read_text(text, "strange.mlir").functions == []
    except HeadraceError as refused:
        assert "HR1001" in str(refused)


def test_no_text_needs_jaxlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlir_service, "is_installed", lambda: False)
    text = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"
    assert len(stablehlo.read_tree(text, "a.mlir").functions) == 1
    with pytest.raises(HeadraceError, match=r"'shape\.shape_of' cannot be read"):
        stablehlo.read_tree(
            "func.func @main(%x: tensor<2xf32>) {\n shape.shape_of %x }", "a.mlir"
        )


# -- the parser in a process apart -------------------------------------------------------------


def test_what_ends_the_parser_is_an_error_and_the_next_module_is_read() -> None:
    pytest.importorskip("jaxlib")
    with pytest.raises(HeadraceError, match="was ended by SIG") as refused:
        mlir_service.generic_text(b"module {" * 20_000, "deep.mlir")
    assert "HR1001" in str(refused.value) and "deep.mlir" in str(refused.value)
    text, arrays = mlir_service.generic_text(b"func.func @a() { return }", "good.mlir")
    assert '"func.func"' in text and not arrays


def test_the_parser_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jaxlib")
    monkeypatch.setattr(mlir_service, "SECONDS", 0.0)
    with pytest.raises(HeadraceError, match="longer than 0 s"):
        mlir_service.generic_text(b"func.func @a() { return }", "slow.mlir")


def test_large_constants_come_beside_the_text() -> None:
    pytest.importorskip("jaxlib")
    values = np.arange(600, dtype=np.float32)
    text = (
        "func.func @main() -> (tensor<600xf32>, tensor<600xbf16>) {\n"
        f'  %0 = stablehlo.constant dense<"0x{values.tobytes().hex()}"> : tensor<600xf32>\n'
        f'  %1 = stablehlo.constant dense<"0x{values.tobytes()[:1200].hex()}"> : tensor<600xbf16>\n'
        "  return %0, %1 : tensor<600xf32>, tensor<600xbf16>\n}"
    )
    generic, arrays = mlir_service.generic_text(text.encode(), "large.mlir")
    assert "__elided__" in generic
    (function,) = read_text(generic, "large.mlir", arrays).functions
    first, second = (op.attributes["value"] for op in function.body.operations[:2])
    np.testing.assert_array_equal(first, values)
    assert second.tobytes() == values.tobytes()[:1200]


def test_the_parser_may_write_nothing(tmp_path: Path) -> None:
    """Rights are given up before the first module: no file grows, none is made."""
    made = tmp_path / "made"
    program = (
        "from headrace.importers.hlo.mlir_process import give_up_rights\n"
        f"give_up_rights()\nopen({str(made)!r}, 'w').write('x')\n"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert finished.returncode != 0
    assert not made.exists() or made.stat().st_size == 0
