"""When attention is one dispatch, and when it is not; either way it means the same."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from headrace.flow.executables import dispatches, entry_functions, kernel_of
from headrace.flow.interp import evaluate_function
from headrace.importers.onnx.reader import load
from headrace.importers.options import ImportOptions
from headrace.ir.passes import make_pass
from headrace.kernel.classify import classify
from headrace.kernel.softmax_rows import as_softmax_rows
from headrace.pipeline import Options, compile_to
from headrace.targets.table import target
from headrace.tensor.interp import evaluate_function as evaluate_tensor_function

sys.path.insert(0, str(Path(__file__).parents[2] / "models"))
from builders import GraphWriter

SHAPE = (2, 5, 3, 4)


def attention(kind: str) -> onnx.ModelProto:
    """Queries, keys and values [2, 5, 3, 4] (batch, token, head, depth) to a context."""
    g = GraphWriter(3)
    heads = (0, 2, 1, 3)
    query = g.node("Transpose", ["q"], perm=heads)
    key = g.node("Transpose", ["k"], perm=(0, 2, 3, 1))
    value = g.node("Transpose", ["v"], perm=heads)
    if kind == "halves":
        query, key, value = (
            g.node("Cast", [x], to=TensorProto.FLOAT16) for x in (query, key, value)
        )
    scores = g.node("MatMul", [query, key])
    if kind == "halves":
        scores = g.node("Cast", [scores], to=TensorProto.FLOAT)
    outputs = []
    if kind == "values are a weight":
        value = g.normal("values", (5, 4), 5)
    if kind == "values from scores":
        value = g.node("MatMul", [scores, value])
    scores = g.node("Mul", [scores, g.weight("scale", np.float32(0.37))])
    if kind != "no mask":
        keep = np.tril(np.ones((5, 5), bool))
        lowest = g.weight("lowest", np.float32(np.finfo(np.float32).min))
        scores = g.node("Where", [g.weight("keep", keep), scores, lowest])
    axis = -2 if kind == "softmax over queries" else -1
    weights = g.node("Softmax", [scores], axis=axis)
    if kind == "guarded":
        zero = g.weight("zero", np.float32(0))
        weights = g.node("Where", [g.node("IsNaN", [weights]), zero, weights])
    if kind == "weights are used":
        outputs.append((weights, "weights", TensorProto.FLOAT, (2, 3, 5, 5)))
    if kind == "halves":
        weights = g.node("Cast", [weights], to=TensorProto.FLOAT16)
    mixed = g.node("MatMul", [weights, value])
    if kind == "halves":
        mixed = g.node("Cast", [mixed], to=TensorProto.FLOAT)
    if kind == "one after the other":
        turned = g.node("Transpose", [mixed], perm=(0, 1, 3, 2))
        again = g.node("Softmax", [g.node("MatMul", [mixed, turned])], axis=-1)
        mixed = g.node("MatMul", [again, value])
    mixed = g.node("Transpose", [mixed], perm=heads)
    mixed = g.node("Reshape", [mixed, g.weight("joined", np.array([2, 5, 12], np.int64))])
    outputs.append((mixed, "y", TensorProto.FLOAT, (2, 5, 12)))
    inputs = [(name, TensorProto.FLOAT, SHAPE) for name in "qkv"]
    return g.model("attention", inputs, outputs, 17)


@pytest.mark.parametrize(
    ("kind", "rows", "count"),
    [
        ("masked", 1, 1),
        ("no mask", 1, 1),
        ("guarded", 1, 1),
        ("weights are used", 1, 3),
        ("values from scores", 1, 4),
        ("values are a weight", 1, 3),
        ("one after the other", 2, 2),
        ("softmax over queries", 1, 3),
    ],
)
def test_attention(kind: str, rows: int, count: int, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(attention(kind), path)
    model = load(path, ImportOptions())
    random = np.random.default_rng(1)
    inputs = [random.standard_normal(SHAPE).astype(np.float32) for _ in "qkv"]
    expected = evaluate_tensor_function(model, inputs)
    compile_to(model, "flow", Options(()))
    for step in ("", "flow-convert-to-kernels"):
        if step:
            make_pass(step).run(model)
        for wanted, got in zip(expected, evaluate_function(model, inputs), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    entries = entry_functions(model.ir)
    kernels = [kernel_of(entries[d.entry_point]) for d in dispatches(model.ir)]
    families = [classify(k) for k in kernels if k is not None]
    assert (families.count("row"), len(families)) == (rows, count)


@pytest.mark.parametrize(
    ("targets", "rows"), [(("cuda",), 1), (("cuda", "cpu"), 0), (("cpu",), 0)]
)
def test_halves_are_one_dispatch_where_all_targets_take_that_well(
    targets: tuple[str, ...], rows: int, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(attention("halves"), path)
    model = load(path, ImportOptions())
    random = np.random.default_rng(1)
    inputs = [random.standard_normal(SHAPE).astype(np.float32) for _ in "qkv"]
    expected = evaluate_tensor_function(model, inputs)
    compile_to(model, "flow", Options(tuple(target(t) for t in targets)))
    make_pass("flow-convert-to-kernels").run(model)
    for wanted, got in zip(expected, evaluate_function(model, inputs), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=2e-3, atol=2e-3)
    entries = entry_functions(model.ir)
    kernels = [kernel_of(entries[d.entry_point]) for d in dispatches(model.ir)]
    found = [as_softmax_rows(k) for k in kernels if k is not None]
    assert sum(f is not None for f in found) == rows


def causal(layers: int) -> onnx.ModelProto:
    """Attention of a token to those before it, again and again; their number is open."""
    g = GraphWriter(3)
    heads = (0, 2, 1, 3)
    count = g.node("Shape", ["x"], start=1, end=2)
    zero, one = (g.weight(f"n{n}", np.array(n, np.int64)) for n in (0, 1))
    axis = g.weight("axis", np.array([0], np.int64))
    places = g.node("Range", [zero, g.node("Squeeze", [count, axis]), one])
    rows = g.node("Unsqueeze", [places, g.weight("last", np.array([1], np.int64))])
    keep = g.node("LessOrEqual", [places, rows])
    lowest = g.weight("lowest", np.float32(-np.inf))
    x = "x"
    for _ in range(layers):
        query = g.node("Transpose", [x], perm=heads)
        scores = g.node("MatMul", [query, g.node("Transpose", [x], perm=(0, 2, 3, 1))])
        weights = g.node("Softmax", [g.node("Where", [keep, scores, lowest])], axis=-1)
        x = g.node("Transpose", [g.node("MatMul", [weights, query])], perm=heads)
    shape = (2, "tokens", 3, 4)
    inputs = [("x", TensorProto.FLOAT, shape)]
    return g.model("causal", inputs, [(x, "y", TensorProto.FLOAT, shape)], 17)


def test_a_mask_of_places_is_computed_where_it_is_used(tmp_path: Path) -> None:
    """It would be stored for all layers, and read once for every head of each."""
    path = tmp_path / "model.onnx"
    onnx.save(causal(2), path)
    model = load(path, ImportOptions())
    inputs = [np.random.default_rng(1).standard_normal((2, 7, 3, 4)).astype(np.float32)]
    expected = evaluate_tensor_function(model, inputs)
    compile_to(model, "flow", Options((target("cuda"),)))
    make_pass("flow-convert-to-kernels").run(model)
    for wanted, got in zip(expected, evaluate_function(model, inputs), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    entries = entry_functions(model.ir)
    kernels = [kernel_of(entries[d.entry_point]) for d in dispatches(model.ir)]
    assert [as_softmax_rows(k) is not None for k in kernels if k is not None] == [True, True]
