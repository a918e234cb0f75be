"""The stage's table of legal operations: everything wrong is listed, with its place."""

from __future__ import annotations

import numpy as np
import pytest
from tensor_graphs import model

from headrace.base.dtypes import F32
from headrace.base.errors import HeadraceError
from headrace.base.parameters import array_source
from headrace.ir.context import make_context
from headrace.ir.text import parse_module
from headrace.tensor.build import REDUCERS
from headrace.tensor.dialect import HR, TENSOR, TENSOR_OPERATIONS, ElementwiseOp, ReturnOp
from headrace.tensor.interp import MEANINGS
from headrace.tensor.typing_rules import inferred_types
from headrace.tensor.verify import verify


def _module(body: str) -> object:
    text = f"func.func @main(%x: tensor<4x3xf32>, %i: tensor<i64>) {{\n{body}\nfunc.return\n}}"
    return parse_module(
        text, "a.mlir", make_context([("tensor", lambda: TENSOR), ("hr", lambda: HR)])
    )


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("%0 = tensor.abs %x : (tensor<4x3xf32>) -> tensor<4x2xf32>", "its rule gives"),
        ("%0 = tensor.not %x : (tensor<4x3xf32>) -> tensor<4x3xf32>", "does not compute with f32"),
        ("%0 = tensor.add %x, %i : (tensor<4x3xf32>, tensor<i64>) -> tensor<4x3xf32>", "one element type"),
        ("%0 = tensor.reshape %x : (tensor<4x3xf32>) -> tensor<13xf32>", "12 elements"),
        ("%0 = tensor.transpose %x, dims = [0, 0] : (tensor<4x3xf32>) -> tensor<4x4xf32>", "no permutation"),
        ("%0 = tensor.broadcast_in_dim %x, dims = [0, 5] : (tensor<4x3xf32>) -> tensor<4x3xf32>", "not distinct dimensions"),
        ('%0 = tensor.slice %x, <["0", "0"]> to <["5", "3"]> step [1, 1] : (tensor<4x3xf32>) -> tensor<5x3xf32>', "beyond the size 4"),
        ("%0 = tensor.concatenate %x, %x dim = [2] : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<8x3xf32>", "not distinct dimensions"),
        ("%0 = tensor.dynamic_slice %x at %i : (tensor<4x3xf32>, tensor<i64>) -> tensor<1x3xf32>", "1 start indices for rank 2"),
        ('%0 = tensor.compare "XX", %x, %x : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x3xi1>', "no direction"),
        ("%0 = tensor.dot_general %x, %x batch [] x [] contract [1] x [0] : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x3xf32>", "sizes 3 and 4 differ"),
        ("%0 = tensor.iota dim = [3] : tensor<4xf32>", "not distinct dimensions"),
    ],
)  # fmt: skip
def test_a_broken_rule_is_located(body: str, reason: str) -> None:
    module = _module(f"{body} loc(\"node 'a'\")")
    with pytest.raises(HeadraceError) as caught:
        verify(module)  # pyright: ignore[reportArgumentType]
    (found,) = caught.value.diagnostics
    assert found.code == "HR2102"
    assert reason in found.fact
    assert found.places == ("node 'a'",)


def test_everything_is_listed_at_once() -> None:
    module = _module(
        """%0 = tensor.abs %x : (tensor<4x3xf32>) -> tensor<4x2xf32> loc("node 'a'")
        %1 = tensor.abs %x : (tensor<4x3xf32>) -> tensor<4x2xf32> loc("node 'b'")
        %2 = tensor.iota dim = [3] : tensor<4xf32> loc("node 'c'")
        func.call @main(%x, %i) : (tensor<4x3xf32>, tensor<i64>) -> () loc("node 'd'")"""
    )
    with pytest.raises(HeadraceError) as caught:
        verify(module)  # pyright: ignore[reportArgumentType]
    found = [(d.code, d.places) for d in caught.value.diagnostics]
    assert found == [
        ("HR2102", ("node 'a'", "node 'b'")),
        ("HR2102", ("node 'c'",)),
        ("HR2101", ("node 'd'",)),
    ]


def test_parameters_agree_with_their_table() -> None:
    table = {"p": array_source(np.zeros((2, 2), np.float32))}
    good = model([], lambda b: b.parameter("p", F32, (2, 2)), table)
    verify(good)
    for name, shape in (("p", (4,)), ("q", (2, 2))):
        wrong = model([], lambda b, n=name, s=shape: b.parameter(n, F32, s), table)
        with pytest.raises(HeadraceError, match="HR2103"):
            verify(wrong)


def test_the_body_of_a_reduction_is_checked() -> None:
    module = _module(
        """%c = tensor.constant dense<0> : tensor<i64> : tensor<i64>
        %0 = "tensor.reduce"(%x, %c) <{dimensions = array<i64: 1>, operandSegmentSizes = array<i32: 1, 1>}> ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          tensor.return %a : tensor<f32>
        }) : (tensor<4x3xf32>, tensor<i64>) -> tensor<4xf32>"""
    )
    with pytest.raises(HeadraceError, match="scalar of its input's element type"):
        verify(module)  # pyright: ignore[reportArgumentType]


def test_every_operation_has_a_meaning_and_a_rule() -> None:
    special = {"constant", "parameter", "return", "if", "while", "define_dimension"}
    names = {op.name.removeprefix("tensor.") for op in TENSOR_OPERATIONS}
    assert names - special == set(MEANINGS) - {"pack", "winograd", "exponent_codes"}
    assert set(REDUCERS) <= names
    from headrace.tensor import typing_rules

    for kind in TENSOR_OPERATIONS:
        covered = kind in typing_rules._RULES or issubclass(kind, ElementwiseOp)  # pyright: ignore
        assert covered or kind is ReturnOp, kind.name
    assert callable(inferred_types)
