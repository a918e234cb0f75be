"""Quantised models: integers exactly as the formula says, whatever instruction multiplies them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import headrace
from headrace.ir.text import print_module
from headrace.pipeline import Options, compile_to
from headrace.targets.cpu.target import CpuTarget, make

TARGETS = pytest.mark.parametrize("target", ["cpu", "cpu:native"])
UNSIGNED, SIGNED = TensorProto.UINT8, TensorProto.INT8


def saved(
    folder: Path, nodes: list[Any], x: tuple[Any, ...], y: tuple[Any, ...], **weights: Any
) -> Path:
    graph = helper.make_graph(
        nodes,
        "quantised",
        [helper.make_tensor_value_info("x", x[0], x[1:])],
        [helper.make_tensor_value_info("y", y[0], y[1:])],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    onnx.save(model, folder / "m.onnx")
    return folder / "m.onnx"


def answer(model: Path, target: str, x: Any) -> Any:
    compiled = headrace.compile(model, model.with_suffix(".hrx"), targets=[target])
    with headrace.load(compiled) as module:
        return module(x)[0]


def bytes_of(kind: Any, *shape: int) -> Any:
    info = np.iinfo(kind)
    return np.random.default_rng(4).integers(info.min, info.max, shape, kind, endpoint=True)


def rounded(values: Any, zero: int, kind: Any) -> Any:
    info = np.iinfo(kind)
    return np.clip(np.rint(values) + zero, info.min, info.max).astype(kind)


def convolved(x: Any, w: Any) -> Any:
    """Stride 1, padding 1 of a 3 x 3 window, in i64."""
    wide = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, w.astype(np.int64))


@TARGETS
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("zero_of_weight", [0, 3])
def test_a_product_with_zero_points(
    tmp_path: Path, target: str, kind: Any, zero_of_weight: int
) -> None:
    x, w, zero = bytes_of(kind, 7, 19), bytes_of(np.int8, 19, 21), kind(113)
    node = helper.make_node("MatMulInteger", ["x", "w", "zero", "zero_of_weight"], ["y"])
    code = SIGNED if kind == np.int8 else UNSIGNED
    model = saved(
        tmp_path,
        [node],
        (code, "rows", 19),
        (TensorProto.INT32, "rows", 21),
        w=w,
        zero=zero,
        zero_of_weight=np.int8(zero_of_weight),
    )
    wide = x.astype(np.int64) - int(zero), w.astype(np.int64) - zero_of_weight
    assert (answer(model, target, x) == wide[0] @ wide[1]).all()


@TARGETS
@pytest.mark.parametrize("channels", [1, 5, 32])
def test_a_convolution_pads_with_its_zero_point(
    tmp_path: Path, target: str, channels: int
) -> None:
    x, w = bytes_of(np.uint8, 1, channels, 7, 6), bytes_of(np.int8, 18, channels, 3, 3)
    bias = np.arange(-900, 900, 100, dtype=np.int32)
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "bias"]
    node = helper.make_node("QLinearConv", names, ["y"], pads=[1] * 4, kernel_shape=[3, 3])
    scale = np.float32(64 * channels)
    model = saved(
        tmp_path,
        [node],
        (UNSIGNED, *x.shape),
        (UNSIGNED, 1, 18, 7, 6),
        xs=np.float32(1),
        xz=np.uint8(121),
        w=w,
        ws=np.float32(1),
        wz=np.int8(0),
        ys=scale,
        yz=np.uint8(128),
        bias=bias,
    )
    sums = convolved(x.astype(np.int64) - 121, w) + bias[:, None, None]
    expected = rounded(sums.astype(np.float32) * (np.float32(1) / scale), 128, np.uint8)
    assert (answer(model, target, x) == expected).all()


def dequantised_convolution(folder: Path, groups: int = 1) -> tuple[Path, Any, Any]:
    """`DequantizeLinear` of both factors, the weight by output channels; f32 comes out."""
    x, w = bytes_of(np.uint8, 1, 8, 7, 6), bytes_of(np.int8, 16, 8 // groups, 3, 3)
    scales = np.linspace(0.01, 0.03, 16, dtype=np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["b"], axis=0),
        helper.make_node("Conv", ["a", "b"], ["y"], pads=[1] * 4, group=groups),
    ]
    model = saved(
        folder,
        nodes,
        (UNSIGNED, *x.shape),
        (TensorProto.FLOAT, 1, 16, 7, 6),
        xs=np.float32(0.02),
        xz=np.uint8(7),
        w=w,
        ws=scales,
        wz=np.zeros(16, np.int8),
    )
    sums = convolved(x.astype(np.int64) - 7, w) if groups == 1 else None
    factor = (np.float32(0.02) * scales)[:, None, None]
    return model, x, None if sums is None else sums.astype(np.float32) * factor


@TARGETS
def test_dequantised_factors_are_summed_exactly(tmp_path: Path, target: str) -> None:
    """To the bit what integers scaled once are: no order of f32 sums would give that."""
    model, x, expected = dequantised_convolution(tmp_path)
    assert (answer(model, target, x) == expected).all()


def text_of(model: Path, target: CpuTarget, numerics: str = "fast") -> str:
    made = compile_to(
        headrace.from_onnx(onnx.load(model)),
        "tensor",
        Options(targets=(target,), numerics=numerics),
    )
    (line,) = (n for n in print_module(made.whole.ir).splitlines() if "tensor.convolution" in n)
    return line.rpartition(" : ")[2]


def test_factors_are_as_narrow_as_the_target_multiplies_fast(tmp_path: Path) -> None:
    model, _, _ = dequantised_convolution(tmp_path)
    vnni, words = make("cpu:x86-64-v3"), make("cpu:generic")
    assert text_of(model, vnni).startswith("(tensor<1x8x9x8xui8>, tensor<16x8x3x3xi8>)")
    assert text_of(model, words).startswith("(tensor<1x8x7x6xi16>, tensor<16x8x3x3xi8>)")
    assert "f32" in text_of(model, words, "exact").partition(" -> ")[0]
    grouped, _, _ = dequantised_convolution(tmp_path, groups=4)
    assert "f32" in text_of(grouped, vnni).partition(" -> ")[0]
    depthwise, _, _ = dequantised_convolution(tmp_path, groups=8)
    assert text_of(depthwise, vnni).startswith("(tensor<1x8x7x6xi16>, tensor<16x1x3x3xi8>)")


def test_bytes_with_zero_points_of_zero_are_multiplied_as_they_are(tmp_path: Path) -> None:
    """As behind a Relu, the weight's zero points one an output channel, more than are inlined."""
    x, w = bytes_of(np.uint8, 1, 8, 5, 5), bytes_of(np.int8, 1200, 8, 1, 1)
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
    model = saved(
        tmp_path,
        [helper.make_node("QLinearConv", names, ["y"])],
        (UNSIGNED, *x.shape),
        (UNSIGNED, 1, 1200, 5, 5),
        xs=np.float32(1),
        xz=np.uint8(0),
        w=w,
        ws=np.ones(1200, np.float32),
        wz=np.zeros(1200, np.int8),
        ys=np.float32(256),
        yz=np.uint8(128),
    )
    assert text_of(model, make("cpu:x86-64-v3")).startswith(
        "(tensor<1x8x5x5xui8>, tensor<1200x8x1x1xi8>)"
    )
    sums = np.einsum("nchw,oc->nohw", x.astype(np.int64), w[:, :, 0, 0].astype(np.int64))
    assert (answer(model, "cpu:native", x) == rounded(sums / 256, 128, np.uint8)).all()


def test_the_scale_of_a_result_does_not_go_into_quantised_weights(tmp_path: Path) -> None:
    """No activation between Conv and QuantizeLinear: what divides its result divides no weight."""
    dequantised, _, _ = dequantised_convolution(tmp_path)
    proto = onnx.load(dequantised)
    proto.graph.node[-1].output[0] = "sums"
    node = helper.make_node("QuantizeLinear", ["sums", "ys", "yz"], ["y"])
    proto.graph.node.append(node)
    proto.graph.initializer.extend(
        [
            numpy_helper.from_array(np.float32(0.7), "ys"),
            numpy_helper.from_array(np.uint8(9), "yz"),
        ]
    )
    proto.graph.output[0].type.tensor_type.elem_type = UNSIGNED
    onnx.save(proto, dequantised)
    assert "f32" not in text_of(dequantised, make("cpu:x86-64-v3"))
