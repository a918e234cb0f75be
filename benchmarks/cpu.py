"""Speed, streaming, prediction and memory on the CPU, beside onnxruntime in the same run.

    python benchmarks/cpu.py speed shapes streaming memory chain      # all by default

Times are medians; ours and the peer's run in alternating blocks with a pause between, so
that one side's spinning threads do not disturb the other. Two threads each. Prints one
table in Markdown for `docs/measured/cpu.md`.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

# Numpy and onnxruntime are measured as they come: see the note on OPENBLAS_CORETYPE.
os.environ.pop("OPENBLAS_CORETYPE", None)
os.environ.pop("OPENBLAS_L2_SIZE", None)

import numpy as np
import onnx

import headrace

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.models import builders  # noqa: E402

THREADS = 2
ROUNDS = 8
"""Budgets are measured in turn, so many times: the machine's moods hit all alike."""
SIZE = {"input": (1, 3, 224, 224)}


def tokens(length: int) -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {
        "input_ids": random.integers(0, 30000, (1, length)),
        "attention_mask": np.ones((1, length), np.int64),
        "token_type_ids": np.zeros((1, length), np.int64),
    }


def picture() -> dict[str, Any]:
    return {"input": np.random.default_rng(0).standard_normal(SIZE["input"]).astype(np.float32)}


def chain_input(width: int) -> dict[str, Any]:
    return {"x": np.random.default_rng(0).standard_normal((1, width)).astype(np.float32)}


def build(folder: Path, name: str) -> tuple[Path, Path, dict[str, Any]]:
    """The ONNX file, the compiled file and an input, made once per folder."""
    source = folder / f"{name}.onnx"
    inputs: dict[str, Any]
    if name == "chain":
        if not source.exists():
            builders.write_mlp_chain(source, layers=25, width=2048)
        inputs = chain_input(2048)
    else:
        make = {
            "resnet50": builders.resnet50,
            "mobilenet_v2": builders.mobilenet_v2,
            "minilm": builders.minilm,
        }[name]
        if not source.exists():
            onnx.save(make(), source)
        inputs = tokens(128) if name == "minilm" else picture()
    names = {i.name for i in onnx.load(source, load_external_data=False).graph.input}
    inputs = {k: v for k, v in inputs.items() if k in names}
    compiled = folder / f"{name}.hrx"
    if not compiled.exists():
        headrace.compile(source, compiled)
    return source, compiled, inputs


def session(source: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def alternate(
    sides: Sequence[Callable[[], Any]], blocks: int, per_block: int
) -> list[list[float]]:
    """Seconds per call of each side, in alternating blocks with a pause between them."""
    times: list[list[float]] = [[] for _ in sides]
    for side in sides:
        side()
        side()
    for _ in range(blocks):
        for number, side in enumerate(sides):
            side()
            for _ in range(per_block):
                start = time.perf_counter()
                side()
                times[number].append(time.perf_counter() - start)
            time.sleep(0.06)
    return times


def summary(times: Sequence[float]) -> str:
    low, middle, high = quantiles(times, n=4)
    return f"{middle * 1e3:.2f} ms ({low * 1e3:.2f} to {high * 1e3:.2f})"


def speed(folder: Path) -> None:
    """Row 11: a step beside onnxruntime's."""
    print("\n| model | headrace, median (quartiles) | onnxruntime | ratio |\n|---|---|---|---|")
    for name in ("resnet50", "mobilenet_v2", "minilm"):
        source, compiled, inputs = build(folder, name)
        peer = session(source)
        with headrace.load(compiled, weight_budget="max", threads=THREADS) as module:
            sides = [partial(module, **inputs), partial(peer.run, None, inputs)]
            ours, theirs = alternate(sides, 8, 8)
        ratio = median(ours) / median(theirs)
        print(f"| {name} | {summary(ours)} | {summary(theirs)} | {ratio:.2f} |", flush=True)


def reader_rate(path: Path, offset: int, size: int) -> float:
    """The best rate, bytes a second, at which an independent reader gets at the file:
    `preadv` into a reused buffer, or a populated mapping, whichever is faster."""
    best = 0.0
    buffer = bytearray(8 << 20)
    with path.open("rb") as file:
        for _ in range(3):
            start = time.perf_counter()
            for at in range(offset, offset + size, len(buffer)):
                os.preadv(file.fileno(), [buffer], at)
            best = max(best, size / (time.perf_counter() - start))
            with mmap.mmap(
                file.fileno(), 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ
            ) as view:
                start = time.perf_counter()
                view.madvise(22, offset, size)  # MADV_POPULATE_READ
                best = max(best, size / (time.perf_counter() - start))
    return best


def streaming(folder: Path) -> None:
    """Rows 9 and 10: a streamed step against its floor, and against its prediction."""
    print(
        "\n| model | budget | step | floor | step / floor | predicted | predicted / step "
        "| peak exact |\n|---|---|---|---|---|---|---|---|"
    )
    for name in ("resnet50", "chain"):
        _, compiled, inputs = build(folder, name)
        with headrace.load(compiled, weight_budget="max", threads=THREADS) as module:
            module.calibrate()
            artifact = module.artifact
            rate = reader_rate(compiled, artifact.pool_offset_bytes, artifact.pool_size_bytes)
            stored = module.stored_bytes
            predictions = {
                b: module.plan(weight_budget=b).prediction for b in ("max", "50%", "25%", "min")
            }

            times: dict[str, list[float]] = {b: [] for b in predictions}
            exact: dict[str, bool] = {}
            for _ in range(ROUNDS):
                for budget in predictions:
                    module.weight_budget = budget
                    (block,) = alternate([partial(module, **inputs)], 1, 5)
                    times[budget] += block
                    report = module.report()
                    exact[budget] = report.predicted_peak_bytes == report.measured_peak_bytes
            most = median(times["max"])
            for budget, prediction in predictions.items():
                module.weight_budget = budget
                step = median(times[budget])
                floor = max(most, (stored - module.weight_budget) / rate)
                predicted = prediction.step_ns * 1e-9
                print(
                    f"| {name} | {budget} | {step * 1e3:.2f} ms | {floor * 1e3:.2f} ms "
                    f"| {step / floor:.2f} | {predicted * 1e3:.2f} ms "
                    f"| {predicted / step:.2f} | {exact[budget]} |",
                    flush=True,
                )


SHAPES = ((1, 128), (2, 16), (1, 7), (3, 33), (1, 64))


def shapes(folder: Path) -> None:
    """Row 7: one file, five shapes in turn; what a shape costs when it was seen before."""
    _, compiled, _ = build(folder, "minilm")
    print("\n| batch x tokens | first call | planned again |\n|---|---|---|")
    with headrace.load(compiled, weight_budget="max", threads=THREADS) as module:
        first: dict[tuple[int, int], float] = {}
        for batch, length in SHAPES:
            inputs = {k: np.repeat(v, batch, axis=0) for k, v in tokens(length).items()}
            start = time.perf_counter()
            module(**inputs)
            first[batch, length] = time.perf_counter() - start
        names = [name for name, _ in module.report().dims]
        for shape in SHAPES:
            dims = dict(zip(names, shape, strict=True))
            again: list[float] = []
            for _ in range(50):
                start = time.perf_counter()
                module.plan(dims)
                again.append(time.perf_counter() - start)
            print(
                f"| {shape[0]} x {shape[1]} | {first[shape] * 1e3:.1f} ms "
                f"| {median(again) * 1e6:.0f} us |"
            )


_MEMORY = """
import sys, json, numpy as np, headrace
path, budget = sys.argv[1:]
x = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)
with headrace.load(path, weight_budget=budget, threads=2) as module:
    for _ in range(5):
        y = module(input=x)[0]
    lines = open("/proc/self/status").read().splitlines()
    hwm = next(int(l.split()[1]) * 1024 for l in lines if l.startswith("VmHWM"))
    print(json.dumps({"hwm": hwm, "budget": module.weight_budget, "stored": module.stored_bytes,
                      "digest": __import__("hashlib").sha256(np.array(y).tobytes()).hexdigest()}))
"""


def memory(folder: Path) -> None:
    """Row 8: peak resident memory of fresh processes, and the bits."""
    _, compiled, _ = build(folder, "resnet50")
    print("\n| budget | VmHWM | allowed | same bits |\n|---|---|---|---|")
    base: dict[str, Any] = {}
    for budget in ("max", "50MB", "25MB", "min"):
        run = subprocess.run(
            [sys.executable, "-c", _MEMORY, str(compiled), budget],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        found = json.loads(run.stdout)
        base = base or found
        allowed = base["hwm"] - max(0, found["stored"] - found["budget"]) + 8_000_000
        same = found["digest"] == base["digest"]
        print(
            f"| {budget} | {found['hwm'] / 1e6:.1f} MB | {allowed / 1e6:.1f} MB | {same} |",
            flush=True,
        )


_COMPILE = """
import sys, headrace
from pathlib import Path
headrace.compile(sys.argv[1], sys.argv[2])
lines = open("/proc/self/status").read().splitlines()
print(next(int(l.split()[1]) * 1024 for l in lines if l.startswith("VmHWM")))
"""


def chain(folder: Path) -> None:
    """Row 12: compiling a 7 GB chain in bounded memory."""
    source, target = folder / "big.onnx", folder / "big.hrx"
    builders.write_mlp_chain(source, layers=105, width=4096)
    weights = sum(p.stat().st_size for p in folder.glob("big*") if p.suffix != ".hrx")
    start = time.perf_counter()
    run = subprocess.run(
        [sys.executable, "-c", _COMPILE, str(source), str(target)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    print(
        f"\n| weights | peak resident | .hrx / weights | seconds |\n|---|---|---|---|\n"
        f"| {weights / 1e9:.2f} GB | {int(run.stdout) / 1e9:.2f} GB "
        f"| {target.stat().st_size / weights:.3f} | {seconds:.0f} |"
    )
    for path in folder.glob("big*"):
        path.unlink()


PARTS = {
    "speed": speed,
    "shapes": shapes,
    "streaming": streaming,
    "memory": memory,
    "chain": chain,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=list(PARTS))
    parser.add_argument("--folder", type=Path, help="where models are kept between runs")
    options = parser.parse_args()
    import onnxruntime

    print(
        f"{date.today()}, {platform.processor() or platform.machine()}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}, headrace {headrace.__version__}, "
        f"onnxruntime {onnxruntime.__version__}, numpy {np.__version__}"
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for part in options.parts or PARTS:
            PARTS[part](folder)


if __name__ == "__main__":
    main()
