"""Whole models on a Vulkan device: MNIST of seed 1 for three targets in one file, networks.

`as a GPU` gives the device the variants that a GPU would take: lavapipe runs them too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests.models import builders
from tests.models.test_mnist import (  # noqa: F401
    DIGITS,
    digit_pixels,
    import_keras,
    listing,
    mlp,
    placeholder,
    trained,
    trained_weights,
)
from tests.models.test_whole_models import peer, pictures, tokens

import headrace
from headrace.artifact.reader import open_artifact
from headrace.artifact.schema import Dispatch
from headrace.runtime.drivers import vulkan as driver
from headrace.runtime.drivers.vulkan_instance import find_device, missing

_REASON = missing()
pytestmark = pytest.mark.skipif(bool(_REASON), reason=_REASON or "none")


@pytest.fixture
def as_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    real = driver.find_device

    def found(wanted: str = "") -> Any:
        device = real(wanted)
        return replace(device, features=tuple(sorted({*device.features, "gpu"})))

    monkeypatch.setattr(driver, "find_device", found)


def families(module: Any) -> set[str]:
    """Of the kernels that the device runs."""
    pairs = zip(module.program.executables, module.code.variants, strict=True)
    return {e.variants[v].entry_points[0][0].launches[0].family for e, v in pairs}


# -- MNIST -------------------------------------------------------------------------------


def test_one_file_holds_the_listing_for_three_targets(
    listing: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    pytest.importorskip("triton", reason="triton is not installed: no code for cuda")
    targets = ["cpu", "cuda", "vulkan"]
    path = headrace.compile(listing, tmp_path / "m.hrx", targets=targets)
    programs = {p.device_class: p for p in open_artifact(path).module.programs}
    formats = {
        name: {v.format for e in p.executables for v in e.variants}
        for name, p in programs.items()
    }
    assert formats == {"cpu": {"elf-object"}, "cuda": {"cubin"}, "vulkan": {"spirv"}}
    for program in programs.values():
        commands = program.functions[0].body.commands
        assert sum(isinstance(c, Dispatch) for c in commands) <= 3
    image = np.zeros((1, 28, 28, 1), np.float32)
    for device in ("cpu", "vulkan", f"vulkan:{find_device().name}"):
        with headrace.load(path, device) as loaded:
            np.testing.assert_allclose(loaded(image)[0], placeholder(image), atol=1e-6)


@pytest.mark.parametrize("gpu", [False, True])
def test_trained_mnist_is_close_to_float64(
    gpu: bool,
    trained: Path,  # noqa: F811
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    if gpu:
        request.getfixturevalue("as_a_gpu")
    path = headrace.compile(trained, tmp_path / "m.hrx", targets=["vulkan"])
    weights = trained_weights(trained)
    with headrace.load(path, "vulkan") as module:
        assert ("row" in families(module)) == gpu
        assert len(module.plan().commands) <= 3
        for image in np.load(DIGITS / "digits.npz")["images"][:20]:
            pixels = digit_pixels(image)
            np.testing.assert_allclose(module(pixels)[0], mlp(pixels, weights), atol=1e-6)


def test_keras_digits(tmp_path: Path) -> None:
    keras = import_keras()
    path = headrace.compile(DIGITS / "digits.keras", tmp_path / "m.hrx", targets=["vulkan"])
    weights = keras.saving.load_model(DIGITS / "digits.keras", compile=False).get_weights()
    with headrace.load(path, "vulkan") as module:
        for image in np.load(DIGITS / "digits.npz")["images"][:20]:
            pixels = digit_pixels(image)
            np.testing.assert_allclose(module(pixels)[0], mlp(pixels, weights), atol=1e-6)


def test_the_page_shows_what_is_compiled(listing: Path) -> None:  # noqa: F811
    """The page is written anew by tools/generate_spirv_page.py."""
    import importlib.util

    place = Path(__file__).parents[2] / "tools" / "generate_spirv_page.py"
    spec = importlib.util.spec_from_file_location("generate_spirv_page", place)
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    page = tool.PAGE.read_text()
    assert page == tool.make_page(listing)
    assert "OpControlBarrier" in page and "OpEntryPoint GLCompute" in page


# -- networks ----------------------------------------------------------------------------

Make = Callable[[], onnx.ModelProto]


def small_pictures() -> dict[str, Any]:
    values = np.random.default_rng(0).standard_normal((1, 3, 64, 64))
    return {"input": values.astype(np.float32)}


def _check(make: Make, inputs: dict[str, Any], folder: Path) -> None:
    source = folder / "m.onnx"
    onnx.save(make(), source)
    path = headrace.compile(source, folder / "m.hrx", targets=["vulkan"])
    wanted = peer(source, inputs)
    found: list[list[bytes]] = []
    with headrace.load(path, "vulkan", weight_budget="max") as module:
        for budget in ("max", "50%", "min"):
            module.weight_budget = budget
            outputs = [np.array(y) for y in module(**inputs)]
            for y, w in zip(outputs, wanted, strict=True):
                assert np.abs(y - w).max() <= 1e-4 * np.abs(w).max()
            found.append([y.tobytes() for y in outputs])
        assert module.report().interpreted == 0
    assert found[0] == found[1] == found[2]


def test_mobilenet_small(tmp_path: Path) -> None:
    _check(lambda: builders.mobilenet_v2(size=64), small_pictures(), tmp_path)


@pytest.mark.usefixtures("as_a_gpu")
def test_minilm_with_the_kernels_of_a_gpu(tmp_path: Path) -> None:
    _check(lambda: builders.minilm(layers=2), tokens(0, 2, 12), tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("as_a_gpu")
def test_resnet_with_the_kernels_of_a_gpu(tmp_path: Path) -> None:
    _check(lambda: builders.resnet50(size=64), small_pictures(), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "inputs"),
    [
        (builders.mobilenet_v2, pictures(0)),
        (builders.resnet50, pictures(0)),
        (builders.minilm, tokens(0, 1, 128)),
    ],
    ids=["mobilenet_v2", "resnet50", "minilm"],
)
def test_whole_networks(make: Make, inputs: dict[str, Any], tmp_path: Path) -> None:
    _check(make, inputs, tmp_path)
