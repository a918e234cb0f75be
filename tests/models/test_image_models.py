"""U-Net and detector against onnxruntime, and the families that their kernels come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto
from tests.models import image_builders
from tests.models.builders import GraphWriter

import headrace
from headrace.artifact.reader import open_artifact

Compiled = Callable[..., tuple[Path, Path]]

MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "unet": image_builders.unet,
    "unet_nearest": lambda: image_builders.unet(up="nearest"),
    "unet_linear": lambda: image_builders.unet(up="linear"),
    "detector": image_builders.detector,
}
SUMS = {"contract", "convolution", "winograd"}


def families(path: Path) -> Counter[str]:
    """How many kernels of each family a compiled model has."""
    found: Counter[str] = Counter()
    for program in open_artifact(path).module.programs:
        for executable in program.executables:
            for variant in executable.variants:
                for entry in variant.entry_points:
                    found.update(launch.family for s in entry for launch in s.launches)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_like_onnxruntime_at_every_budget(name: str, compiled: Compiled) -> None:
    source, path = compiled(name, MODELS[name])
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    found: set[bytes] = set()
    with headrace.load(path, weight_budget="max", threads=2) as module:
        (signature,) = module.inputs
        shape = tuple(int(size) for size in signature.shape)
        random = np.random.default_rng(3)
        given = {"input": random.standard_normal(shape).astype(np.float32)}
        (expected,) = session.run(None, given)
        for budget in ("max", "min"):
            module.weight_budget = budget
            actual = np.array(module(**given)[0])
            assert np.abs(actual - expected).max() <= 1e-4 * np.abs(expected).max()
            found.add(actual.tobytes())
        given["input"] = given["input"] + 1
        assert np.abs(np.array(module(**given)[0]) - actual).max() > 1e-2 * np.abs(actual).max()
    assert len(found) == 1


def test_every_convolution_of_the_detector_is_a_sum_of_products(compiled: Compiled) -> None:
    _, path = compiled("detector", MODELS["detector"])
    found = families(path)
    # Two kinds of max pools; convolutions of halves (C2f) are no guarded windows.
    assert found["window"] == 2 and found["naive"] == 0
    assert sum(found[f] for f in SUMS) >= 45


@pytest.mark.parametrize(
    ("channels", "kernel", "stride", "pad", "extra", "group", "family"),
    [
        ((32, 16), 2, 2, 0, 0, 1, "contract"),
        ((32, 20), 4, 2, 1, 0, 1, "convolution"),
        ((16, 24), 3, 2, 1, 1, 1, "convolution"),
        ((16, 16), 3, 2, 1, 0, 1, "convolution"),  # an odd output
        ((16, 16), 5, 3, 2, 1, 1, "convolution"),
        ((8, 16), 2, 3, 0, 0, 1, "contract"),  # gaps
        ((16, 16), 4, 2, 1, 0, 16, "window"),  # depthwise
    ],
)
def test_transposed_convolution(
    channels: tuple[int, int],
    kernel: int,
    stride: int,
    pad: int,
    extra: int,
    group: int,
    family: str,
    tmp_path: Path,
) -> None:
    inputs, outputs = channels
    g = GraphWriter(1)
    weight = g.normal("w", (inputs, outputs // group, kernel, kernel), inputs * kernel)
    bias = g.weight("b", np.linspace(-1, 1, outputs, dtype=np.float32))
    x = g.node(
        "ConvTranspose",
        ["input", weight, bias],
        kernel_shape=[kernel, kernel],
        strides=[stride, stride],
        pads=[pad] * 4,
        output_padding=[extra] * 2,
        group=group,
    )
    sides = [(side - 1) * stride + kernel - 2 * pad + extra for side in (5, 7)]
    model = g.model(
        "transposed",
        [("input", TensorProto.FLOAT, (2, inputs, 5, 7))],
        [(g.node("Relu", [x]), "output", TensorProto.FLOAT, (2, outputs, *sides))],
        opset=17,
    )
    onnx.save(model, tmp_path / "model.onnx")
    path = headrace.compile(tmp_path / "model.onnx", tmp_path / "model.hrx")
    given = {"input": np.random.default_rng(0).standard_normal((2, inputs, 5, 7), np.float32)}
    session = onnxruntime.InferenceSession(
        tmp_path / "model.onnx", providers=["CPUExecutionProvider"]
    )
    with headrace.load(path) as module:
        actual = np.array(module(**given)[0])
    np.testing.assert_allclose(actual, session.run(None, given)[0], rtol=1e-5, atol=2e-5)
    assert families(path)[family] == 1 and not families(path)["naive"]
