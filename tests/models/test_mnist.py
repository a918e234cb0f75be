"""Seed 1: its listing at both levels, the trained weights of 2019, and Keras digits."""

from __future__ import annotations

import os
import re
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace
from headrace.api import compile_to_text
from headrace.artifact.reader import open_artifact
from headrace.artifact.schema import Copy, Dispatch
from headrace.importers.legacy_hlo import load
from headrace.plan.model import PlannedDispatch

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared"
DIGITS = ROOT / "examples" / "digits"


@pytest.fixture(scope="session")
def listing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seed 1's first listing, exactly as it stands in the document."""
    text = (SHARED / "seeds" / "000_746024c98127eb64.txt").read_text()
    start = text.index("module {\n   func @main")
    path = tmp_path_factory.mktemp("seed") / "listing.mlir"
    path.write_text(text[start : text.index("```", start)])
    return path


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Keras MNIST of 2019 with its trained weights."""
    folder = tmp_path_factory.mktemp("legacy")
    name = "legacy_xla_hlo/2019-09-26/test/models/mnist.mlir"
    with tarfile.open(SHARED / "conformance" / "legacy_xla_hlo.tar.gz") as archive:
        archive.extract(name, folder, filter="data")
    return folder / name


def run(path: Path, image: Any) -> np.ndarray:
    with headrace.load(path, weight_budget="max") as module:
        return np.array(module(image)[0])


def softmax(logits: np.ndarray, start: float = 0.0) -> np.ndarray:
    exponents = np.exp(logits - logits.max())
    return exponents / (exponents.sum() + start)


def placeholder(image: np.ndarray) -> np.ndarray:
    """The listing's arithmetic in f64: every weight, bias, floor and start is 0.5."""
    hidden = np.maximum(
        image.reshape(1, 784).astype(np.float64) @ np.full((784, 128), 0.5) + 0.5, 0.5
    )
    return softmax(hidden @ np.full((128, 10), 0.5) + 0.5, start=0.5)


def mlp(image: np.ndarray, weights: list[np.ndarray]) -> np.ndarray:
    kernel, bias, out, out_bias = (w.astype(np.float64) for w in weights)
    hidden = np.maximum(image.reshape(1, -1).astype(np.float64) @ kernel + bias, 0)
    return softmax(hidden @ out + out_bias)


# -- the listing -------------------------------------------------------------------------


def test_listing_as_written_gives_the_nine_dispatches_of_the_seed(listing: Path) -> None:
    text = compile_to_text(listing, "flow", level=0)
    names = re.findall(r"flow\.executable @(\w+)", text)
    assert names == [f"main_ex_dispatch_{n}" for n in range(9)]
    entries = re.findall(r"func\.func @(main_entry_dispatch_\d)", text)
    assert entries == [f"main_entry_dispatch_{n}" for n in range(9)]
    workloads = re.findall(r'hr\.workload = #hr\.exprs<\["(\d+)", "1", "1"\]>', text)
    assert workloads == ["784", "128", "128", "10", "10", "1", "10", "1", "10"]
    # The two large constants are bound; the small ones stand inside the kernels.
    assert len(re.findall(r"tensor\.parameter @", text)) == 2
    assert len(re.findall(r"flow\.dispatch @", text)) == 9


def test_listing_as_written_has_a_buffer_for_each_result(listing: Path, tmp_path: Path) -> None:
    path = headrace.compile(listing, tmp_path / "o0.hrx", level=0)
    (function,) = open_artifact(path).module.programs[0].functions
    written = [
        b.resource
        for c in function.body.commands
        if isinstance(c, Dispatch)
        for b in c.bindings
        if b.access != "ro"
    ]
    assert len(written) == 9 and len(set(written)) == 9
    zero = np.zeros((1, 28, 28, 1), np.float32)
    np.testing.assert_allclose(run(path, zero), placeholder(zero), atol=1e-6)


def test_listing_optimised(listing: Path, tmp_path: Path) -> None:
    path = headrace.compile(listing, tmp_path / "o2.hrx")
    (function,) = open_artifact(path).module.programs[0].functions
    assert sum(isinstance(c, Dispatch) for c in function.body.commands) <= 3
    assert not any(isinstance(c, Copy) for c in function.body.commands)
    with headrace.load(path, weight_budget="max") as module:
        assert module.plan().slab_bytes <= 576
    zero = np.zeros((1, 28, 28, 1), np.float32)
    np.testing.assert_allclose(run(path, zero), placeholder(zero), atol=1e-6)
    for seed in range(3):
        image = np.random.default_rng(seed).random((1, 28, 28, 1), np.float32)
        np.testing.assert_allclose(run(path, image), placeholder(image), atol=5e-3)


# -- trained weights ---------------------------------------------------------------------


def import_keras() -> Any:
    """Keras on JAX, which must be chosen before Keras loads."""
    os.environ.setdefault("KERAS_BACKEND", "jax")
    pytest.importorskip("jax", reason="pip install 'headrace[keras]'")
    return pytest.importorskip("keras", reason="pip install 'headrace[keras]'")


def few_dispatches(path: Path) -> int:
    with headrace.load(path, weight_budget="max") as module:
        commands = module.plan().commands
        return sum(isinstance(c, PlannedDispatch) for c in commands)


def trained_weights(path: Path) -> list[np.ndarray]:
    """Kernel and bias of both layers of the model of 2019."""
    from headrace.ir.types import static_shape
    from headrace.tensor.build import to_numpy
    from headrace.tensor.dialect import ConstantOp
    from headrace.tensor.interp import evaluate_source

    model = load(path)
    large = [evaluate_source(s) for s in model.parameters.values()]
    small = [
        to_numpy(op.value)
        for op in model.ir.walk()
        if isinstance(op, ConstantOp) and len(static_shape(op.result)) == 1
    ]
    return [large[0], small[0], large[1], small[1]]


def digit_pixels(image: np.ndarray) -> np.ndarray:
    """An 8 x 8 digit as the models take it."""
    pixels = np.pad(image.repeat(3, 0).repeat(3, 1), 2)[None, ..., None] / np.float32(16)
    return pixels.astype(np.float32)


def test_trained_mnist(trained: Path, tmp_path: Path) -> None:
    weights = trained_weights(trained)
    path = headrace.compile(trained, tmp_path / "trained.hrx")
    assert few_dispatches(path) <= 3
    images = np.load(DIGITS / "digits.npz")["images"][:20]
    for image in images:
        pixels = digit_pixels(image)
        found = run(path, pixels)
        expected = mlp(pixels, weights)
        np.testing.assert_allclose(found, expected, atol=1e-6)
        assert found.argmax() == expected.argmax()


def test_keras_digits(tmp_path: Path) -> None:
    keras = import_keras()

    path = headrace.compile(DIGITS / "digits.keras", tmp_path / "digits.hrx")
    assert few_dispatches(path) <= 3
    weights = keras.saving.load_model(DIGITS / "digits.keras", compile=False).get_weights()
    data = np.load(DIGITS / "digits.npz")
    right = 0
    with headrace.load(path, weight_budget="max") as module:
        for image, label in zip(data["images"], data["labels"], strict=True):
            pixels = digit_pixels(image)
            found = np.array(module(pixels)[0])
            expected = mlp(pixels, weights)
            np.testing.assert_allclose(found, expected, atol=1e-6)
            assert found.argmax() == expected.argmax()
            right += int(found.argmax() == label)
    assert right >= 0.97 * len(data["labels"])


def test_keras_model_in_memory(tmp_path: Path) -> None:
    keras = import_keras()

    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.layers.Input((16, 16, 3), name="picture"),
            keras.layers.Conv2D(8, 3, padding="same", activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.MaxPooling2D(),
            keras.layers.DepthwiseConv2D(3, padding="same"),
            keras.layers.Activation("gelu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(5, activation="softmax"),
        ]
    )
    path = headrace.compile(headrace.from_keras(model), tmp_path / "conv.hrx")
    picture = np.random.default_rng(0).standard_normal((1, 16, 16, 3)).astype(np.float32)
    with headrace.load(path) as module:
        assert [i.name for i in module.inputs] == ["picture"]
        found = np.array(module(picture=picture)[0])
    np.testing.assert_allclose(found, model.predict(picture, verbose=0), atol=1e-5)
