"""One suite for all drivers: `device` is each of them in turn."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "runtime"))
os.environ.setdefault("HEADRACE_CACHE_DIR", tempfile.mkdtemp(prefix="headrace-test-cache-"))


@pytest.fixture(scope="session")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By device class, an MLP of 8 layers of 4 MiB with a symbolic batch."""
    from runtime_models import Mlp

    folder = tmp_path_factory.mktemp("drivers")
    return {
        "cpu": Mlp((1024,) * 9, seed=3).write(folder / "mlp.hrx"),
        "vulkan": _compiled(folder),
    }


def _compiled(folder: Path) -> Path:
    """The MLP as a user compiles it for Vulkan."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    import headrace

    random = np.random.default_rng(3)
    nodes, weights, value = [], [], "x"
    for layer in range(8):
        w = (random.standard_normal((1024, 1024)) / 32).astype(np.float32)
        b = random.standard_normal(1024).astype(np.float32)
        weights += [numpy_helper.from_array(w, f"w{layer}")]
        weights += [numpy_helper.from_array(b, f"b{layer}")]
        result = "y" if layer == 7 else f"h{layer}"
        nodes += [
            helper.make_node("MatMul", [value, f"w{layer}"], [f"m{layer}"]),
            helper.make_node("Add", [f"m{layer}", f"b{layer}"], [f"a{layer}"]),
            helper.make_node("Relu", [f"a{layer}"], [result]),
        ]
        value = result
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 1024])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 1024])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, folder / "mlp.onnx")
    return headrace.compile(folder / "mlp.onnx", folder / "vulkan.hrx", targets=["vulkan"])


@pytest.fixture
def streaming_path(device, paths) -> Path:
    """The MLP compiled for the device."""
    return paths[device.device_class]


def _drive_as_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.runtime.drivers import vulkan

    real = vulkan.find_device

    def found(wanted: str = ""):
        device = real(wanted)
        return replace(device, features=tuple(sorted({*device.features, "gpu"})))

    monkeypatch.setattr(vulkan, "find_device", found)


@pytest.fixture(params=["cpu", "cpu-1", "null", "vulkan", "vulkan-gpu"])
def device(request: pytest.FixtureRequest):
    """Each driver, opened; `vulkan-gpu` as a GPU would be driven."""
    from headrace.runtime.drivers.table import open_device

    if request.param.startswith("vulkan"):
        from headrace.runtime.drivers.vulkan_instance import missing

        if reason := missing():
            pytest.skip(reason)
    if request.param == "vulkan-gpu":
        _drive_as_a_gpu(request.getfixturevalue("monkeypatch"))
    opened = {
        "cpu": lambda: open_device("cpu", threads=2),
        "cpu-1": lambda: open_device("cpu", threads=1),
        "null": lambda: open_device("null", threads=2),
        "vulkan": lambda: open_device("vulkan"),
        "vulkan-gpu": lambda: open_device("vulkan"),
    }[request.param]()
    yield opened
    opened.close()
