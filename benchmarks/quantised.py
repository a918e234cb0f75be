"""Quantised products, convolutions and models beside onnxruntime in the same process, in turn.

    python benchmarks/quantised.py [--target cpu:native] [--folder FOLDER]

Prints tables in Markdown for `docs/measured/cpu.md`: medians of calls in alternating blocks, two
threads each, and by how many units the answers differ at most. With a folder of `models.py`'s
models, MobileNetV2 and ResNet-50 too, as onnxruntime quantises them: each output channel of a
weight by itself, activations after four seeded inputs.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

import headrace
from models import MODELS

BLOCK_S, BLOCKS, THREADS = 0.25, 4, 2
UNSIGNED = TensorProto.UINT8
ROWS, TERMS, COLUMNS, CHANNELS, SIDE = 128, 768, 3072, 128, 28


def model(nodes: list[Any], x: list[Any], y: list[Any], **weights: Any) -> Any:
    graph = helper.make_graph(
        nodes,
        "quantised",
        [helper.make_tensor_value_info("x", *x)],
        [helper.make_tensor_value_info("y", *y)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()],
    )
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 21)])


def cases() -> dict[str, Any]:
    random = np.random.default_rng(0)
    weight = random.integers(-127, 128, (TERMS, COLUMNS)).astype(np.int8)
    kernel = random.integers(-127, 128, (CHANNELS, CHANNELS, 3, 3)).astype(np.int8)
    scales = (random.random(COLUMNS) * 0.01 + 0.005).astype(np.float32)
    x, y = [UNSIGNED, (ROWS, TERMS)], [UNSIGNED, (ROWS, COLUMNS)]
    image = [UNSIGNED, (1, CHANNELS, SIDE, SIDE)]
    activation = {"xs": np.float32(0.02), "xz": np.uint8(121)}
    result = {"ys": np.float32(1), "yz": np.uint8(128)}
    linear = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
    one = {"ws": np.float32(0.01), "wz": np.int8(0)}

    def convolution(size: int) -> Any:
        node = helper.make_node(
            "QLinearConv", linear, ["y"], pads=[size // 2] * 4, kernel_shape=[size, size]
        )
        w = np.ascontiguousarray(kernel[:, :, :size, :size])
        return model([node], image, image, w=w, **activation, **one, **result)

    def dequantised(operation: str, axis: int, place: list[Any], out: list[Any], w: Any) -> Any:
        many = {"ws": scales[: w.shape[axis]], "wz": np.zeros(w.shape[axis], np.int8)}
        pads = {"pads": [1] * 4} if operation == "Conv" else {}
        nodes = [
            helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["a"]),
            helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["b"], axis=axis),
            helper.make_node(operation, ["a", "b"], ["c"], **pads),
            helper.make_node("QuantizeLinear", ["c", "ys", "yz"], ["y"]),
        ]
        return model(nodes, place, out, w=w, **activation, **many, **result)

    return {
        "MatMulInteger, 128 x 768 x 3072": model(
            [helper.make_node("MatMulInteger", ["x", "w", "xz"], ["y"])],
            x,
            [TensorProto.INT32, y[1]],
            w=weight,
            xz=np.uint8(121),
        ),
        "QLinearMatMul, the same": model(
            [helper.make_node("QLinearMatMul", linear, ["y"])],
            x,
            y,
            w=weight,
            **activation,
            **one,
            **result,
        ),
        "DequantizeLinear, MatMul, the same": dequantised("MatMul", 1, x, y, weight),
        "QLinearConv 3 x 3, 128 channels at 28 x 28": convolution(3),
        "QLinearConv 1 x 1, the same": convolution(1),
        "DequantizeLinear, Conv 3 x 3, the same": dequantised("Conv", 0, image, image, kernel),
    }


def times_us(call: Callable[[], Any]) -> list[float]:
    call()
    found: list[float] = []
    end = time.perf_counter() + BLOCK_S
    while time.perf_counter() < end:
        start = time.perf_counter_ns()
        call()
        found.append((time.perf_counter_ns() - start) / 1e3)
    time.sleep(0.05)  # so that no pool of threads spins beside the other's block
    return found


def medians_us(
    path: Path, target: str, inputs: dict[str, Any]
) -> tuple[float, float, Any, Any]:
    """Headrace's and onnxruntime's time of a call, and their answers."""
    compiled = headrace.compile(path, path.with_suffix(".hrx"), targets=[target])
    options = ort.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = ort.InferenceSession(path, options)
    with headrace.load(compiled, threads=THREADS) as module:
        ours, theirs = np.array(module(**inputs)[0]), session.run(None, inputs)[0]
        blocks = [
            (times_us(lambda: module(**inputs)), times_us(lambda: session.run(None, inputs)))
            for _ in range(BLOCKS)
        ]
    a, b = (statistics.median(t for block in blocks for t in block[n]) for n in (0, 1))
    return a, b, ours, theirs


def measure(name: str, made: Any, target: str, folder: Path) -> None:
    path = folder / "m.onnx"
    onnx.save(made, path)
    shape = [d.dim_value for d in made.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(1).integers(0, 256, shape).astype(np.uint8)
    a, b, ours, theirs = medians_us(path, target, {"x": x})
    apart = np.abs(ours.astype(np.int64) - theirs.astype(np.int64)).max()
    print(f"| {name} | {a:.0f} us | {b:.0f} us | {a / b:.2f} | {apart} |", flush=True)


WHOLE = ("mobilenet_v2", "resnet50")
FORMATS = ("QDQ", "QOperator")


def quantised(source: Path, name: str, kind: str, folder: Path) -> Path:
    """A model of `models.py` quantised by onnxruntime."""
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Seeded(CalibrationDataReader):
        def __init__(self) -> None:
            self._left = iter(range(4))

        def get_next(self) -> dict[str, Any] | None:
            seed = next(self._left, None)
            return None if seed is None else MODELS[name].inputs(seed)

    prepared, made = folder / "prepared.onnx", folder / f"{name}.{kind}.onnx"
    quant_pre_process(source, prepared, skip_symbolic_shape=True)
    quantize_static(
        prepared,
        made,
        Seeded(),
        quant_format=QuantFormat[kind],
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    return made


def measure_whole(models: Path, target: str, folder: Path) -> None:
    """Apart: of the largest value; f32: onnxruntime's answer of the model before."""
    print(
        f"\n| {target} | headrace | onnxruntime | ratio | apart | from f32 | onnxruntime's from f32 |"
        "\n|---|---|---|---|---|---|---|"
    )
    for name in WHOLE:
        source, inputs = models / f"{name}.onnx", MODELS[name].inputs(5)
        exact = ort.InferenceSession(source).run(None, inputs)[0]
        scale = np.abs(exact).max()
        for kind in FORMATS:
            path = quantised(source, name, kind, folder)
            a, b, ours, theirs = medians_us(path, target, inputs)
            apart, own, peer = (
                np.abs(x - y).max() / scale
                for x, y in ((ours, theirs), (ours, exact), (theirs, exact))
            )
            print(
                f"| {name}, {kind} | {a / 1e3:.2f} ms | {b / 1e3:.2f} ms | {a / b:.2f} "
                f"| {apart:.3f} | {own:.3f} | {peer:.3f} |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="cpu:native")
    parser.add_argument("--folder", type=Path, help="where models.py's models are")
    options = parser.parse_args()
    print(
        f"| {options.target} | headrace | onnxruntime | ratio | apart |\n|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as folder:
        for name, made in cases().items():
            measure(name, made, options.target, Path(folder))
        if options.folder is not None:
            measure_whole(options.folder, options.target, Path(folder))


if __name__ == "__main__":
    main()
