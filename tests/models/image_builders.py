"""A U-Net and a YOLO-type detector built by `onnx.helper` with seeded weights; no torch.

Small by default, as tests want them; `unet(size=256, width=32)` and `detector(size=320,
width=16)` are of the size that benchmarks measure.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from tests.models.builders import GraphWriter


def _convolution(
    g: GraphWriter,
    x: str,
    name: str,
    channels: tuple[int, int],
    kernel: int = 3,
    stride: int = 1,
) -> str:
    """A convolution with bias."""
    inputs, outputs = channels
    weight = g.normal(f"{name}.w", (outputs, inputs, kernel, kernel), inputs * kernel * kernel)
    bias = g.weight(f"{name}.b", _small(g, outputs))
    pad = kernel // 2
    return g.node(
        "Conv",
        [x, weight, bias],
        name,
        kernel_shape=[kernel, kernel],
        strides=[stride, stride],
        pads=[pad, pad, pad, pad],
    )


def _small(g: GraphWriter, count: int) -> Any:
    return g.generator.uniform(-0.1, 0.1, count).astype(np.float32)


def _integers(g: GraphWriter, name: str, values: list[int]) -> str:
    return g.weight(name, np.array(values, np.int64))


def _split(g: GraphWriter, x: str, name: str, sizes: list[int]) -> list[str]:
    """Channels in parts."""
    outputs = [f"{name}_{n}" for n in range(len(sizes))]
    inputs = [x, _integers(g, f"{name}.sizes", sizes)]
    g.nodes.append(helper.make_node("Split", inputs, outputs, name, axis=1))
    return outputs


# -- U-Net ------------------------------------------------------------------------------


def unet(
    size: int = 32, *, width: int = 16, depth: int = 2, up: str = "transposed", seed: int = 7
) -> onnx.ModelProto:
    """`input` [1, 3, size, size] -> `output` [1, 2, size, size].

    Args:
        width: channels of the first level; doubled at each of `depth` levels below.
        up: `transposed` (ConvTranspose 2 x 2), `nearest` or `linear` (Resize and Conv).
    """
    g = GraphWriter(seed)
    x, channels, skips = "input", 3, list[tuple[str, int]]()
    for level in range(depth + 1):
        outputs = width << level
        x = _twice(g, x, f"down{level}", channels, outputs)
        channels = outputs
        if level < depth:
            skips.append((x, outputs))
            x = g.node("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])
    for level in reversed(range(depth)):
        skip, outputs = skips[level]
        x = _upsampled(g, x, f"up{level}", channels, outputs, up)
        x = g.node("Concat", [skip, x], f"join{level}", axis=1)
        x = _twice(g, x, f"back{level}", 2 * outputs, outputs)
        channels = outputs
    x = _convolution(g, x, "head", (channels, 2), 1)
    shape = (1, 3, size, size)
    result = (x, "output", TensorProto.FLOAT, (1, 2, size, size))
    return g.model("unet", [("input", TensorProto.FLOAT, shape)], [result], opset=17)


def _twice(g: GraphWriter, x: str, name: str, inputs: int, outputs: int) -> str:
    x = g.node("Relu", [_convolution(g, x, f"{name}a", (inputs, outputs))])
    return g.node("Relu", [_convolution(g, x, f"{name}b", (outputs, outputs))])


def _upsampled(g: GraphWriter, x: str, name: str, inputs: int, outputs: int, kind: str) -> str:
    if kind == "transposed":
        weight = g.normal(f"{name}.w", (inputs, outputs, 2, 2), inputs)
        bias = g.weight(f"{name}.b", _small(g, outputs))
        sizes = {"kernel_shape": [2, 2], "strides": [2, 2]}
        return g.node("ConvTranspose", [x, weight, bias], name, **sizes)
    x = _resized(g, x, name, kind)
    return _convolution(g, x, f"{name}.conv", (inputs, outputs))


def _resized(g: GraphWriter, x: str, name: str, kind: str = "nearest") -> str:
    """Twice as wide and high."""
    scales = g.weight(f"{name}.scales", np.array([1, 1, 2, 2], np.float32))
    attributes: dict[str, Any] = {"mode": kind}
    if kind == "nearest":
        attributes |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return g.node("Resize", [x, "", scales], f"{name}.resize", **attributes)


# -- detector ---------------------------------------------------------------------------


def detector(
    size: int = 64, *, width: int = 16, classes: int = 16, seed: int = 9
) -> onnx.ModelProto:
    """A YOLO-type detector: `input` [1, 3, size, size] -> `output` [1, 4 + classes, boxes].

    Split blocks (C2f), pyramid pooling (SPPF), features up and down again, and three heads
    whose boxes are expectations over a softmax (DFL). `size` is a multiple of 32.
    """
    g = GraphWriter(seed)
    w = width
    x = _silu(g, "input", "stem", (3, w), 3, 2)
    x = _block(g, _silu(g, x, "s1", (w, 2 * w), 3, 2), "c1", 2 * w, 2 * w, 1)
    third = _block(g, _silu(g, x, "s2", (2 * w, 4 * w), 3, 2), "c2", 4 * w, 4 * w, 2)
    fourth = _block(g, _silu(g, third, "s3", (4 * w, 8 * w), 3, 2), "c3", 8 * w, 8 * w, 2)
    x = _block(g, _silu(g, fourth, "s4", (8 * w, 16 * w), 3, 2), "c4", 16 * w, 16 * w, 1)
    fifth = _pyramid(g, x, "sppf", 16 * w)
    x = g.node("Concat", [_resized(g, fifth, "u1"), fourth], "j1", axis=1)
    middle = _block(g, x, "n1", 24 * w, 8 * w, 1, residual=False)
    x = g.node("Concat", [_resized(g, middle, "u2"), third], "j2", axis=1)
    small = _block(g, x, "n2", 12 * w, 4 * w, 1, residual=False)
    x = g.node("Concat", [_silu(g, small, "d1", (4 * w, 4 * w), 3, 2), middle], "j3", axis=1)
    medium = _block(g, x, "n3", 12 * w, 8 * w, 1, residual=False)
    x = g.node("Concat", [_silu(g, medium, "d2", (8 * w, 8 * w), 3, 2), fifth], "j4", axis=1)
    large = _block(g, x, "n4", 24 * w, 16 * w, 1, residual=False)
    levels = (
        (small, 4 * w, size // 8),
        (medium, 8 * w, size // 16),
        (large, 16 * w, size // 32),
    )
    rows = [
        _head(g, feature, f"h{n}", channels, side, 4 * w, classes)
        for n, (feature, channels, side) in enumerate(levels)
    ]
    boxes = sum(side * side for _, _, side in levels)
    x = _decoded(g, g.node("Concat", rows, "all", axis=2), boxes, classes)
    shape = (1, 3, size, size)
    result = (x, "output", TensorProto.FLOAT, (1, 4 + classes, boxes))
    return g.model("detector", [("input", TensorProto.FLOAT, shape)], [result], opset=17)


def _silu(
    g: GraphWriter,
    x: str,
    name: str,
    channels: tuple[int, int],
    kernel: int = 3,
    stride: int = 1,
) -> str:
    x = _convolution(g, x, name, channels, kernel, stride)
    return g.node("Mul", [x, g.node("Sigmoid", [x])])


def _block(
    g: GraphWriter,
    x: str,
    name: str,
    inputs: int,
    outputs: int,
    repeats: int,
    residual: bool = True,
) -> str:
    """C2f: half of the channels go through pairs of convolutions; all are joined."""
    half = outputs // 2
    x = _silu(g, x, f"{name}.in", (inputs, outputs), 1)
    parts = _split(g, x, f"{name}.split", [half, half])
    for n in range(repeats):
        y = _silu(g, parts[-1], f"{name}.{n}a", (half, half))
        y = _silu(g, y, f"{name}.{n}b", (half, half))
        parts.append(g.node("Add", [parts[-1], y]) if residual else y)
    joined = g.node("Concat", parts, f"{name}.join", axis=1)
    return _silu(g, joined, f"{name}.out", ((2 + repeats) * half, outputs), 1)


def _pyramid(g: GraphWriter, x: str, name: str, channels: int) -> str:
    """SPPF: three maxima over 5 x 5, one after the other, joined."""
    half = channels // 2
    parts = [_silu(g, x, f"{name}.in", (channels, half), 1)]
    for _ in range(3):
        sizes = {"kernel_shape": [5, 5], "strides": [1, 1], "pads": [2, 2, 2, 2]}
        parts.append(g.node("MaxPool", [parts[-1]], **sizes))
    joined = g.node("Concat", parts, f"{name}.join", axis=1)
    return _silu(g, joined, f"{name}.out", (4 * half, channels), 1)


def _head(
    g: GraphWriter, x: str, name: str, channels: int, side: int, width: int, classes: int
) -> str:
    """[1, 64 + classes, side * side]: 16 bins for each border of a box, and scores."""
    boxes = _silu(g, x, f"{name}.box1", (channels, width))
    boxes = _silu(g, boxes, f"{name}.box2", (width, width))
    boxes = _convolution(g, boxes, f"{name}.box3", (width, 64), 1)
    scores = _silu(g, x, f"{name}.score1", (channels, width))
    scores = _silu(g, scores, f"{name}.score2", (width, width))
    scores = _convolution(g, scores, f"{name}.score3", (width, classes), 1)
    joined = g.node("Concat", [boxes, scores], f"{name}.join", axis=1)
    shape = _integers(g, f"{name}.shape", [1, 64 + classes, side * side])
    return g.node("Reshape", [joined, shape], f"{name}.rows")


def _decoded(g: GraphWriter, x: str, boxes: int, classes: int) -> str:
    bins, scores = _split(g, x, "parts", [64, classes])
    bins = g.node("Reshape", [bins, _integers(g, "bins.shape", [1, 4, 16, boxes])])
    bins = g.node("Transpose", [bins], perm=[0, 2, 1, 3])
    bins = g.node("Softmax", [bins], axis=1)
    weight = g.weight("bins.w", np.arange(16, dtype=np.float32).reshape(1, 16, 1, 1))
    borders = g.node("Conv", [bins, weight], "borders", kernel_shape=[1, 1])
    borders = g.node("Reshape", [borders, _integers(g, "borders.shape", [1, 4, boxes])])
    return g.node("Concat", [borders, g.node("Sigmoid", [scores])], "found", axis=1)
