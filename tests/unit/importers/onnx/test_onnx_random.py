"""Random numbers: the generator's known answers, distributions, masks; training operators."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx_graphs import model_of, on_cpu

from headrace.importers.onnx.reader import import_model
from headrace.tensor.interp import run

COUNT = 40_000


def _drawn(
    folder: Path, kind: str, inputs: dict[str, Any] | None = None, opset: int = 22, **rest: Any
) -> Any:
    given = inputs or {}
    node = helper.make_node(kind, [*given], ["y"], **rest)
    proto = model_of([node], given, ["y"], opset=opset)
    meant = run(import_model(proto), given)["y"].astype(np.float64)
    found = on_cpu(import_model(proto), given, folder)["y"]
    np.testing.assert_allclose(found.astype(np.float64), meant, 1e-5, 1e-5)
    return found


def test_first_numbers_are_those_of_threefry(tmp_path: Path) -> None:
    """Random123's known answer for key and counter 0: 6b200159 99ba4efe."""
    single = _drawn(tmp_path, "RandomUniform", shape=[1], seed=0.0)
    assert single[0] == (0x6B200159 >> 8) * 2.0**-24
    double = _drawn(tmp_path, "RandomUniform", shape=[1], seed=0.0, dtype=11)
    assert double[0] == ((0x6B200159 >> 5) * 2**26 + (0x99BA4EFE >> 6)) * 2.0**-53


@pytest.mark.parametrize("dtype", [1, 10, 11, 16])
def test_uniform_numbers(dtype: int, tmp_path: Path) -> None:
    found = _drawn(tmp_path, "RandomUniform", shape=[COUNT], low=-1.0, high=3.0, dtype=dtype)
    found = found.astype(np.float64)
    assert found.min() >= -1 and found.max() <= 3
    shares = np.histogram(found, 16, (-1, 3))[0] / COUNT
    assert np.abs(shares - 1 / 16).max() < 5 * math.sqrt(1 / 16 / COUNT)
    pairs = np.corrcoef(found[:-1], found[1:])[0, 1]
    assert abs(pairs) < 5 / math.sqrt(COUNT)


@pytest.mark.parametrize("dtype", [1, 11])
def test_normal_numbers(dtype: int, tmp_path: Path) -> None:
    like = {"x": np.zeros((COUNT // 2, 2), np.float32)}
    found = _drawn(tmp_path, "RandomNormalLike", like, mean=2.0, scale=0.5, dtype=dtype)
    z = (found.astype(np.float64) - 2) / 0.5
    assert abs(z.mean()) < 5 / math.sqrt(COUNT)
    assert abs(z.std() - 1) < 5 / math.sqrt(COUNT)
    for border, share in ((1, 0.6827), (2, 0.9545), (3, 0.9973)):
        assert abs((np.abs(z) < border).mean() - share) < 0.01


def test_multinomial_follows_the_shares(tmp_path: Path) -> None:
    shares = np.array([[0.1, 0.6, 0.3], [0.5, 0.0, 0.5]])
    with np.errstate(divide="ignore"):
        given = {"x": (np.log(shares) + 7).astype(np.float32)}
    found = _drawn(tmp_path, "Multinomial", given, sample_size=COUNT, dtype=7, seed=3.0)
    assert found.dtype == np.int64 and found.shape == (2, COUNT)
    for row, wanted in zip(found, shares, strict=True):
        assert np.abs(np.bincount(row, minlength=3) / COUNT - wanted).max() < 0.02


def test_bernoulli_and_training_dropout(tmp_path: Path) -> None:
    x = np.full((COUNT,), 0.3, np.float32)
    found = _drawn(tmp_path, "Bernoulli", {"x": x})
    assert set(np.unique(found)) == {0, 1} and abs(found.mean() - 0.3) < 0.02
    node = helper.make_node("Dropout", ["x", "r", "t"], ["y", "mask"])
    weights = {"r": np.float32(0.25), "t": np.array(True)}
    proto = model_of([node], {"x": x}, ["y", "mask"], weights=weights)
    made = on_cpu(import_model(proto), {"x": x}, tmp_path)
    assert abs(made["mask"].mean() - 0.75) < 0.02
    np.testing.assert_allclose(made["y"], np.where(made["mask"], x / 0.75, 0), rtol=1e-6)


def test_dropout_told_when_it_runs(tmp_path: Path) -> None:
    node = helper.make_node("Dropout", ["x", "r", "t"], ["y"])
    given = {"x": np.ones(1000, np.float32), "r": np.float32(0.5), "t": np.array(False)}
    proto = model_of([node], given, ["y"])
    made = on_cpu(import_model(proto), given, tmp_path)["y"]
    assert made.tolist() == given["x"].tolist()
    trained = on_cpu(import_model(proto), {**given, "t": np.array(True)}, tmp_path)["y"]
    assert set(np.unique(trained)) == {0, 2} and 0.8 < trained.mean() < 1.2


def test_nodes_draw_different_numbers_and_calls_the_same(tmp_path: Path) -> None:
    nodes = [helper.make_node("RandomUniform", [], [y], y, shape=[8]) for y in ("a", "b")]
    proto = model_of(nodes, {}, ["a", "b"])
    first, again = (on_cpu(import_model(proto), {}, tmp_path) for _ in range(2))
    assert not np.array_equal(first["a"], first["b"])
    assert np.array_equal(first["a"], again["a"])


def test_a_seed_decides(tmp_path: Path) -> None:
    one, same, other = (
        _drawn(tmp_path, "RandomUniform", shape=[8], seed=s) for s in (5.0, 5.0, 6.0)
    )
    assert np.array_equal(one, same) and not np.array_equal(one, other)
