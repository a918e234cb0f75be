"""ONNX's own tests, unchanged, on `headrace.backend`: compiled for the CPU and run."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from scoreboard import Result, load_tests, run_tests, sampled, summary

import headrace.backend
from headrace.base.errors import HeadraceError

_RANDOM = "random numbers are not those of numpy's generator; ONNX leaves the generator open"
_ROUNDED = "one rounding in f16: softmax computes in f32, the suite in f16"
KNOWN_WRONG: dict[str, str] = {
    **{
        f"test_bernoulli{kind}{end}": _RANDOM
        for kind in ("", "_double", "_seed")
        for end in ("", "_expanded")
    },
    **{
        f"test_training_dropout{kind}{end}": _RANDOM
        for kind in ("", "_default")
        for end in ("", "_mask")
    },
    "test_attention_4d_causal_fp16": _ROUNDED,
    "test_attention_4d_causal_fp16_expanded": _ROUNDED,
    "test_dft_inverse": "zeros differ by less than an f32 rounding of the sums",
    "test_dft_inverse_opset19": "zeros differ by less than an f32 rounding of the sums",
    "test_loop16_seq_none": "the suite cannot compare scalars in a sequence: TypeError",
}
"""Name of a test whose answer differs, and why it may."""


def _bad(results: list[Result]) -> str:
    return "\n".join(
        f"{r.name}: {r.kind}: {r.reason[:300]}"
        for r in results
        if r.kind in ("wrong", "crash", "defect", "error") and r.name not in KNOWN_WRONG
    )


def test_sampled_tests_pass_or_are_refused_clearly(capsys: pytest.CaptureFixture[str]) -> None:
    results = run_tests(sampled(sorted(load_tests()), 100))
    with capsys.disabled():
        print(f"\nonnx.backend.test, sampled, cpu: {summary(results)}")
    assert _bad(results) == ""
    assert sum(r.passed for r in results) >= 80, summary(results)


@pytest.mark.slow
def test_whole_suite(capsys: pytest.CaptureFixture[str]) -> None:
    results = run_tests(sorted(load_tests()), jobs=2)
    with capsys.disabled():
        print(f"\nonnx.backend.test, cpu: {summary(results)}")
    assert len(results) == 2033
    assert _bad(results) == ""


def _crashing(_: Any, **__: Any) -> None:
    os._exit(3)


def test_a_worker_that_dies_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(load_tests(), "test_add", _crashing)
    crashed, fine = run_tests(["test_add", "test_sub"])
    assert (crashed.kind, fine.kind) == ("crash", "pass")


def _model(*nodes: Any, inputs: dict[str, Any], output: str) -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info(n, *kind) for n, kind in inputs.items()]
    wanted = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
    graph = helper.make_graph(list(nodes), "graph", infos, [wanted])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def test_contents_that_decide_shapes_are_compiled_in_once_for_each() -> None:
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)
    inputs = {"x": (TensorProto.FLOAT, [2, 3]), "axes": (TensorProto.INT64, [1])}
    made = headrace.backend.prepare(_model(node, inputs=inputs, output="y"))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for axis in (0, 1, 0):
        (y,) = made.run([x, np.array([axis], np.int64)])
        np.testing.assert_array_equal(y, x.sum(axis))
    assert made.specialised
    made.close()


def test_run_node_takes_types_from_its_arrays() -> None:
    node = helper.make_node("Add", ["a", "a"], ["b"])
    (b,) = headrace.backend.run_node(node, [np.ones((2, 2), np.int32)])
    np.testing.assert_array_equal(b, np.full((2, 2), 2, np.int32))


def test_what_no_contents_cure_is_said_at_prepare() -> None:
    node = helper.make_node("NoSuchOperator", ["x"], ["y"])
    with pytest.raises(HeadraceError, match="HR1203"):
        headrace.backend.prepare(
            _model(node, inputs={"x": (TensorProto.FLOAT, [1])}, output="y")
        )


def test_devices_are_those_that_are_there() -> None:
    assert headrace.backend.supports_device("CPU")
    assert not headrace.backend.supports_device("TPU")
