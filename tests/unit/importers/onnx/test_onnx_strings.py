"""Models with strings on the backend: strings on the host, the rest compiled."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

import headrace
from headrace import HeadraceError, backend

ML = "ai.onnx.ml"
TEXT, FLOAT, INT = TensorProto.STRING, TensorProto.FLOAT, TensorProto.INT64
_DRAW = np.random.default_rng(17)


def floats(*shape: int) -> Any:
    return _DRAW.standard_normal(shape).astype(np.float32)


def texts(*values: Any) -> Any:
    return np.array(values, dtype=object)


def model_of(
    nodes: list[Any],
    inputs: dict[str, tuple[int, list[Any]]],
    outputs: dict[str, int],
    weights: dict[str, Any] | None = None,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, k, s) for n, (k, s) in inputs.items()],
        [
            helper.make_tensor_value_info(n, k, None) if k else onnx.ValueInfoProto(name=n)
            for n, k in outputs.items()
        ],
        [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(ML, 4)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def both(model: onnx.ModelProto, inputs: dict[str, Any], interpreted: int) -> list[Any]:
    """What we compute, checked against onnxruntime; maps are compared as they are."""
    prepared = backend.prepare(model)
    try:
        found = prepared.run(inputs)
        report = prepared.report()
    finally:
        prepared.close()
    assert report is not None and report.interpreted == interpreted
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    for a, b in zip(found, session.run(None, inputs), strict=True):
        if isinstance(b, list):
            for mine, peer in zip(a, b, strict=True):
                assert mine.keys() == peer.keys()
                np.testing.assert_allclose([mine[k] for k in peer], [*peer.values()], rtol=1e-5)
        elif b.dtype == object:
            assert a.shape == b.shape and (a == b).all()
        else:
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    return list(found)


def test_words_become_numbers_and_numbers_words() -> None:
    """Strings in, a compiled model in between, strings out."""
    nodes = [
        helper.make_node(
            "LabelEncoder", ["words"], ["ids"], domain=ML, keys_strings=["wheel", "water", "race"],
            values_int64s=[1, 2, 3], default_int64=0,
        ),
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("MatMul", ["rows", "w"], ["scores"]),
        helper.make_node("ArgMax", ["scores"], ["best"], axis=-1, keepdims=0),
        helper.make_node(
            "LabelEncoder", ["best"], ["names"], domain=ML, keys_int64s=[0, 1, 2],
            values_strings=["low", "middle", "hîgh"],
        ),
    ]  # fmt: skip
    model = model_of(
        nodes,
        {"words": (TEXT, ["batch", "length"])},
        {"names": TEXT, "scores": FLOAT},
        {"table": floats(4, 5), "w": floats(5, 3)},
    )
    both(model, {"words": texts(["race", "dam", "water"], ["wheel", "wheel", "?"])}, 2)
    names, _ = both(model, {"words": texts(["race", "water"])}, 2)
    assert set(names.reshape(-1)) <= {"low", "middle", "hîgh"}


@pytest.mark.parametrize("count", [2, 4])
def test_a_classifier_whose_classes_have_names(count: int) -> None:
    names = ["ash", "oak", "elm", "fir"][:count]
    nodes = [
        helper.make_node(
            "LinearClassifier", ["x"], ["label", "scores"], domain=ML,
            coefficients=[float(v) for v in floats(count * 3)],
            intercepts=[float(v) for v in floats(count)],
            classlabels_strings=names, post_transform="SOFTMAX",
        ),
        helper.make_node("ZipMap", ["scores"], ["maps"], domain=ML, classlabels_strings=names),
    ]  # fmt: skip
    model = model_of(nodes, {"x": (FLOAT, ["batch", 3])}, {"label": TEXT, "maps": 0})
    labels, maps = both(model, {"x": floats(9, 3)}, 2)
    assert [max(row, key=row.get) for row in maps] == list(labels)


def test_strings_that_are_compared_and_move() -> None:
    nodes = [
        helper.make_node("Equal", ["a", "b"], ["same"]),
        helper.make_node("Where", ["same", "a", "other"], ["picked"]),
        helper.make_node("Unsqueeze", ["picked", "axes"], ["wide"]),
        helper.make_node("Concat", ["wide", "wide"], ["joined"], axis=0),
        helper.make_node("Cast", ["same"], ["ones"], to=FLOAT),
        helper.make_node("ReduceSum", ["ones"], ["total"], keepdims=0),
    ]
    model = model_of(
        nodes,
        {"a": (TEXT, ["n"]), "b": (TEXT, ["n"])},
        {"joined": TEXT, "total": FLOAT},
        {"other": texts("none"), "axes": np.array([0])},
    )
    _, total = both(model, {"a": texts("x", "y", "z"), "b": texts("x", "Y", "z")}, 4)
    assert total == 2


def test_numbers_are_read_from_strings() -> None:
    nodes = [
        helper.make_node("Cast", ["a"], ["x"], to=FLOAT),
        helper.make_node("Mul", ["x", "x"], ["y"]),
    ]
    model = model_of(nodes, {"a": (TEXT, ["n"])}, {"y": FLOAT})
    (y,) = both(model, {"a": texts("1.5", "-2", "3e1")}, 1)
    assert list(y) == [2.25, 4.0, 900.0]


@pytest.mark.parametrize("layout", ["RGB", "BGR", "Grayscale"])
def test_a_picture_in_a_file_is_what_is_computed_on(layout: str) -> None:
    pixels = _DRAW.integers(0, 256, (5, 7, 3)).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    nodes = [
        helper.make_node("ImageDecoder", ["file"], ["pixels"], pixel_format=layout),
        helper.make_node("Cast", ["pixels"], ["x"], to=FLOAT),
        helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0),
    ]
    weights = {"axes": np.array([0, 1])}
    model = model_of(nodes, {"file": (TensorProto.UINT8, ["n"])}, {"y": FLOAT}, weights)
    prepared = backend.prepare(model)
    (y,) = prepared.run([np.frombuffer(file.getvalue(), np.uint8)])
    if layout == "Grayscale":
        weighted = pixels @ np.array([0.299, 0.587, 0.114])
        np.testing.assert_allclose(y, [weighted.sum()], rtol=5e-3)
    else:
        sums = pixels.sum((0, 1)).astype(np.float32)
        np.testing.assert_array_equal(y, sums if layout == "RGB" else sums[::-1])
    assert prepared.report().interpreted == 1
    with pytest.raises(HeadraceError, match="HR1207"):
        prepared.run([np.zeros(20, np.uint8)])


def test_what_cannot_be_is_said_with_all_places() -> None:
    nodes = [
        helper.make_node("Tile", ["a", "n"], ["t"], name="first"),
        helper.make_node("Unique", ["a"], ["u"], name="second"),
    ]
    inputs = {"a": (TEXT, ["n"]), "n": (INT, [1])}
    with pytest.raises(HeadraceError) as caught:
        backend.prepare(model_of(nodes, inputs, {"t": TEXT, "u": TEXT}))
    assert "'Tile' is not supported on strings" in str(caught.value)
    assert "'Unique' is not supported on strings" in str(caught.value)


def test_numbers_of_words_of_computed_numbers_are_refused() -> None:
    nodes = [
        helper.make_node("Abs", ["n"], ["m"]),
        helper.make_node(
            "LabelEncoder", ["m"], ["t"], domain=ML, keys_int64s=[1], values_strings=["a"]
        ),
        helper.make_node(
            "LabelEncoder", ["t"], ["k"], domain=ML, keys_strings=["a"], values_int64s=[5]
        ),
        helper.make_node("Neg", ["k"], ["y"]),
    ]
    model = model_of(nodes, {"n": (INT, ["k"])}, {"y": INT})
    with pytest.raises(HeadraceError, match="strings of computed numbers"):
        backend.prepare(model)


def test_a_wrong_text_is_an_error_of_the_node() -> None:
    nodes = [helper.make_node("Cast", ["a"], ["x"], to=FLOAT, name="reads")]
    prepared = backend.prepare(model_of(nodes, {"a": (TEXT, ["n"])}, {"x": FLOAT}))
    with pytest.raises(HeadraceError, match=r"HR1207.*Cast"):
        prepared.run([texts("one")])


def test_compiling_strings_names_the_backend() -> None:
    nodes = [helper.make_node("Identity", ["a"], ["b"])]
    model = model_of(nodes, {"a": (TEXT, ["n"])}, {"b": TEXT})
    with pytest.raises(HeadraceError, match=r"STRING is not supported(.|\n)*headrace.backend"):
        headrace.from_onnx(model)
