"""Vulkan on a GPU: accuracy, speed and streaming beside their bars, in one short table.

    python benchmarks/vulkan.py FOLDER [--seconds 140] [--device vulkan:NAME] [PART ...]

Parts are `mnist`, `product` (f16), `resnet50`, `bert_base` and `models` (the others of
`benchmarks/models.py`), in this order, until the seconds are over. Models are built and
compiled there, and taken again where they lie in the folder: this needs torch, onnxscript and
onnxruntime beside headrace itself. The floor of a streamed step is the larger of the resident step and
(bytes a step must read - budget) / the link's rate, measured through Vulkan.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import headrace

Arrays = Mapping[str, np.ndarray]
STREAMED = ("resnet50", "bert_base")
OTHERS = (
    "mobilenet_v2",
    "minilm",
    "vit_s16",
    "gpt2_prefill",
    "gpt2_decode",
    "unet256",
    "yolo320",
)
SIDE = 4096


class Bench:
    """One run: where files lie, the device, and when it must end."""

    def __init__(self, folder: Path, device: str, seconds: float) -> None:
        self.folder = folder
        self.device = device
        self.end = time.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.end

    def compiled(self, name: str, write: Callable[[Path], object]) -> tuple[Path, Path]:
        """The model's ONNX file and its `.hrx`, made once."""
        source, output = self.folder / f"{name}.onnx", self.folder / f"{name}.hrx"
        if not source.exists():
            write(source)
        if not output.exists():
            begin = time.perf_counter()
            headrace.compile(source, output, targets=["vulkan"])
            print(f"  {name} compiled in {time.perf_counter() - begin:.1f} s", flush=True)
        return source, output

    def load(self, path: Path) -> Any:
        begin = time.perf_counter()
        module = headrace.load(path, self.device, weight_budget="max")
        print(f"  {path.stem} loaded in {time.perf_counter() - begin:.1f} s", flush=True)
        return module


def row(what: str, found: str, bar: str, holds: bool | None) -> None:
    """One line of the table."""
    verdict = "" if holds is None else "yes" if holds else "NO"
    print(f"| {what} | {found} | {bar} | {verdict} |", flush=True)


def steps(module: Any, inputs: Arrays, count: int) -> tuple[float, list[np.ndarray]]:
    """Median seconds of whole calls with arrays in and out, and the outputs."""
    arrays = list(inputs.values())
    outputs = [np.array(o) for o in module(*arrays)]
    for _ in range(3):
        module(*arrays)
    times: list[float] = []
    for _ in range(count):
        begin = time.perf_counter()
        module(*arrays)
        times.append(time.perf_counter() - begin)
    return statistics.median(times), outputs


def kernels(module: Any, inputs: Arrays) -> tuple[float, list[tuple[str, int, int]]]:
    """Seconds of all kernels by timestamps, and the slowest families' shares."""
    arrays = list(inputs.values())
    with module.session() as session:
        executor = session.executor(None)
        prepared = executor.prepare(arrays)
        results = [np.zeros(shape, dtype) for shape, dtype in prepared.outputs]
        step, plan = prepared.step, prepared.plan
        step.record(True)
        for _ in range(3):
            step.run(arrays, results)
        step.take_times()
        for _ in range(5):
            step.run(arrays, results)
        times = step.take_times().command_ns
        step.record(False)
    spent: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for command, ns in zip(plan.commands, times, strict=True):
        number = getattr(command, "executable", None)
        if number is None:
            continue
        variant = module.program.executables[number].variants[module.code.variants[number]]
        family = variant.entry_points[0][0].launches[0].family
        spent[family] += ns
        count[family] += 1
    slowest = [(f, count[f], ns) for f, ns in spent.most_common()]
    return sum(times) / 1e9, slowest


def error_of(found: list[np.ndarray], wanted: list[np.ndarray]) -> float:
    """The largest difference over the largest value, of the worst output."""
    pairs = zip(found, wanted, strict=True)
    return max(float(np.abs(f - w).max() / max(np.abs(w).max(), 1e-30)) for f, w in pairs)


def reference(source: Path, inputs: Arrays) -> list[np.ndarray]:
    """What onnxruntime computes on the CPU."""
    import onnxruntime

    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    return session.run(None, dict(inputs))


def link_bytes_per_second(module: Any) -> tuple[float, float]:
    """Rates of 256 MiB to the device: the best by a queue of copies, and the kernel's."""
    from headrace.runtime.drivers.vulkan_streamer import stream_ns

    device = module.device
    calls = device.calls
    size = 256 << 20
    source = calls.heap.buffer(size, "upload", "measuring")
    target = calls.heap.buffer(size, "device", "measuring")
    ctypes.memset(source.address, 1, size)
    command = calls.begin(copies=True)
    calls.copy(command, (target.handle, 0), (source.handle, 0), size)
    calls.end(command)
    times: list[float] = []
    for _ in range(8):
        begin = time.perf_counter()
        calls.run(command, copies=True)
        times.append(time.perf_counter() - begin)
    calls.free_command(command, copies=True)
    kernel = 0.0
    if device.stream_code is not None:
        addresses = calls.address(source), calls.address(target)
        kernel = size / stream_ns(calls, device.stream_code, addresses, 64, size // 64, 8) * 1e9
    calls.heap.free(source)
    calls.heap.free(target)
    return max(size / min(times), kernel), kernel


# -- parts -----------------------------------------------------------------------------


def mnist(bench: Bench) -> None:
    """Rows 1 and 5: a step of at most 70 us; within 1e-6 of float64."""
    import onnx
    from onnx import numpy_helper
    from tests.models import builders

    source, path = bench.compiled("mnist", lambda place: onnx.save(builders.mnist_mlp(), place))
    graph = onnx.load(source).graph
    weights = {w.name: numpy_helper.to_array(w).astype(np.float64) for w in graph.initializer}
    name = graph.input[0].name
    shape = [d.dim_value for d in graph.input[0].type.tensor_type.shape.dim]
    image = np.random.default_rng(0).random(shape, np.float32)
    with bench.load(path) as module:
        step, found = steps(module, {name: image}, 2000)
        wanted = _evaluate64(graph, weights, {name: image.astype(np.float64)})
        wrong = float(np.abs(found[0] - wanted).max())
        row("MNIST, error to float64", f"{wrong:.1e}", "1e-6", wrong <= 1e-6)
        plan = module.plan()
        row("MNIST, dispatches", str(len(plan.commands)), "3", len(plan.commands) <= 3)
        row("MNIST, step", f"{1e6 * step:.1f} us", "70 us", step <= 70e-6)
        total, shares = kernels(module, {name: image})
        print(f"  kernels {1e6 * total:.1f} us: {shares}")


def _evaluate64(graph: Any, weights: Mapping[str, Any], values: dict[str, Any]) -> Any:
    """The MLP's graph in float64."""
    from onnx import helper

    known = {**weights, **values}
    for node in graph.node:
        a = [known[n] for n in node.input]
        attributes = {x.name: helper.get_attribute_value(x) for x in node.attribute}
        if node.op_type == "Identity":
            result = a[0]
        elif node.op_type == "Flatten":
            result = a[0].reshape(a[0].shape[0], -1)
        elif node.op_type == "Reshape":
            result = a[0].reshape(a[1].astype(int))
        elif node.op_type == "MatMul":
            result = a[0] @ a[1]
        elif node.op_type == "Gemm":
            b = a[1].T if attributes.get("transB") else a[1]
            result = a[0] @ b + a[2]
        elif node.op_type == "Add":
            result = a[0] + a[1]
        elif node.op_type == "Relu":
            result = np.maximum(a[0], 0)
        elif node.op_type == "Softmax":
            e = np.exp(a[0] - a[0].max(-1, keepdims=True))
            result = e / e.sum(-1, keepdims=True)
        else:
            raise NotImplementedError(node.op_type)
        known[node.output[0]] = result
    return known[graph.output[0].name]


def product(bench: Bench) -> None:
    """Row 5: 4096^3 in f16 at 60 TFLOP/s or more, kernel time alone."""
    import onnx
    from onnx import TensorProto, helper

    def write(place: Path) -> None:
        def value(name: str) -> Any:
            return helper.make_tensor_value_info(name, TensorProto.FLOAT16, [SIDE, SIDE])

        graph = helper.make_graph(
            [helper.make_node("MatMul", ["a", "b"], ["c"])],
            "product",
            [value("a"), value("b")],
            [value("c")],
        )
        onnx.save(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
            place,
        )

    _, path = bench.compiled("product", write)
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((SIDE, SIDE)).astype(np.float16) for _ in range(2))
    with bench.load(path) as module:
        found = np.array(module(a, b)[0])
        some = random.integers(0, SIDE, 64)
        wanted = a[some].astype(np.float64) @ b.astype(np.float64)
        wrong = float(np.abs(found[some] - wanted).max() / np.abs(wanted).max())
        row("f16 product, error", f"{wrong:.1e}", "1e-3", wrong <= 1e-3)
        seconds, shares = kernels(module, {"a": a, "b": b})
        rate = 2 * SIDE**3 / seconds / 1e12
        row("f16 product", f"{rate:.1f} TFLOP/s", "60", rate >= 60)
        print(f"  {1e3 * seconds:.3f} ms: {shares}")


def _write_model(name: str) -> Callable[[Path], None]:
    def write(place: Path) -> None:
        import models

        model = models.MODELS[name]
        network, example = models.torch_network(model)
        models.write_onnx(model, network, example, place)

    return write


def _model(bench: Bench, name: str) -> tuple[Path, Path, Arrays]:
    import models

    source, path = bench.compiled(name, _write_model(name))
    return source, path, models.MODELS[name].inputs(0)


def streamed(bench: Bench, name: str) -> None:
    """Rows 2, 5 and 6: accuracy, the resident step, and steps at 50 % and `min`."""
    source, path, inputs = _model(bench, name)
    wanted = reference(source, inputs)
    with bench.load(path) as module:
        resident, found = steps(module, inputs, 100)
        wrong = error_of(found, wanted)
        row(f"{name}, error", f"{wrong:.1e}", "1e-4", wrong <= 1e-4)
        bar = 3e-3 if name == "resnet50" else None
        row(
            f"{name}, resident step",
            f"{1e3 * resident:.2f} ms",
            "3 ms" if bar else "",
            resident <= bar if bar else None,
        )
        total, shares = kernels(module, inputs)
        print(f"  kernels {1e3 * total:.2f} ms: {shares}")
        sizes = dict(zip(_dims(module), _sizes(module, inputs), strict=True))
        module.calibrate(sizes)
        link, kernel = link_bytes_per_second(module)
        read = module.stored_bytes - sum(
            w.size_bytes for w in module.artifact.module.weights if w.row_bytes
        )
        print(
            f"  link {link / 1e9:.1f} GB/s, by a kernel {kernel / 1e9:.1f}; "
            f"a step reads {read / 1e6:.1f} MB"
        )
        for budget in ("50%", "min"):
            module.weight_budget = budget
            step, bits = steps(module, inputs, 60)
            same = all(np.array_equal(x, y) for x, y in zip(bits, found, strict=True))
            floor = max(resident, (read - module.weight_budget) / link)
            report = module.report()
            row(
                f"{name} at {budget} ({module.weight_budget / 1e6:.0f} MB), "
                f"{report.streamed_bytes / 1e6:.0f} MB streamed",
                f"{1e3 * step:.2f} ms = {step / floor:.3f} x floor",
                "1.10",
                step <= 1.10 * floor and same,
            )
            plan = module.plan(sizes)
            print(
                f"  {len(plan.fetches)} fetches, ring {plan.ring_bytes / 1e6:.1f} MB, predicted "
                f"{plan.prediction.step_ns / 1e6:.2f} ms, of it stalls "
                f"{plan.prediction.stall_ns / 1e6:.2f}; bits {'the same' if same else 'DIFFER'}"
            )


def _dims(module: Any) -> list[str]:
    return [d.name for d in module.artifact.module.dimensions]


def _sizes(module: Any, inputs: Arrays) -> list[int]:
    """Named sizes that the inputs have."""
    executor = module.session().executor(None)
    solved = executor.matcher.solve(list(inputs.values()))
    return [solved[name] for name in _dims(module)]


def models_part(bench: Bench) -> None:
    """Row 2: the other models beside onnxruntime."""
    for name in OTHERS:
        if bench.is_over:
            print(f"  no time left for {name}")
            continue
        try:
            source, path, inputs = _model(bench, name)
            wanted = reference(source, inputs)
            with bench.load(path) as module:
                step, found = steps(module, inputs, 20)
            wrong = error_of(found, wanted)
            row(
                f"{name}, error ({1e3 * step:.2f} ms a step)",
                f"{wrong:.1e}",
                "1e-4",
                wrong <= 1e-4,
            )
        except Exception as problem:
            row(name, f"{type(problem).__name__}: {str(problem)[:200]}", "", False)


PARTS: dict[str, Callable[[Bench], None]] = {
    "mnist": mnist,
    "product": product,
    "resnet50": lambda bench: streamed(bench, "resnet50"),
    "bert_base": lambda bench: streamed(bench, "bert_base"),
    "models": models_part,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("parts", nargs="*", default=list(PARTS))
    parser.add_argument("--device", default="vulkan")
    parser.add_argument("--seconds", type=float, default=140)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    bench = Bench(options.folder, options.device, options.seconds)
    print("| what | found | bar | holds |\n|---|---|---|---|")
    for part in options.parts:
        if bench.is_over:
            print(f"  no time left for {part}")
            continue
        try:
            PARTS[part](bench)
        except Exception as problem:
            row(part, f"{type(problem).__name__}: {str(problem)[:400]}", "", False)


if __name__ == "__main__":
    main()
