"""Budgets, memory and shapes of our own: streamed steps against their floor, peak memory."""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx

import headrace
from models import MODELS

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.models import builders  # noqa: E402

THREADS = 2
ROUNDS = 8
"""Budgets are measured in turn, so many times: the machine's moods hit all alike."""


def tokens(length: int) -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {
        "input_ids": random.integers(0, 30000, (1, length)),
        "attention_mask": np.ones((1, length), np.int64),
        "token_type_ids": np.zeros((1, length), np.int64),
    }


def build(folder: Path, name: str) -> tuple[Path, dict[str, Any]]:
    """The compiled file and an input; sources are made once per folder."""
    if name in MODELS:
        source, inputs = folder / f"{name}.onnx", MODELS[name].inputs(0)
    elif name == "chain":
        source = folder / "chain.onnx"
        if not source.exists():
            builders.write_mlp_chain(source, layers=25, width=2048)
        x = np.random.default_rng(0).standard_normal((1, 2048))
        inputs = {"x": x.astype(np.float32)}
    else:
        source, inputs = folder / "published_minilm.onnx", tokens(128)
        if not source.exists():
            onnx.save(builders.minilm(), source)
    compiled = folder / f"{name}.hrx"
    headrace.compile(source, compiled)
    return compiled, inputs


def block(side: Callable[[], Any], calls: int) -> list[float]:
    """Seconds of each call; two before them are not counted."""
    side()
    side()
    times: list[float] = []
    for _ in range(calls):
        start = time.perf_counter()
        side()
        times.append(time.perf_counter() - start)
    time.sleep(0.06)
    return times


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


BUDGETS = ("max", "50%", "25%", "min")


def streaming(folder: Path, names: Sequence[str] = ()) -> None:
    """A streamed step against its floor, and against its prediction. The floor is the larger
    of the step with every weight resident, and what a step reads beyond the budget at the
    best rate of an independent reader."""
    print(
        "\n| model | budget | step | floor | step / floor | predicted | predicted / step "
        "| peak exact |\n|---|---|---|---|---|---|---|---|"
    )
    for name in names or ("resnet50", "bert_base", "gpt2_decode", "chain"):
        compiled, inputs = build(folder, name)
        with headrace.load(compiled, weight_budget="max", threads=THREADS) as module:
            _streaming(name, module, compiled, inputs)


def _streaming(name: str, module: Any, compiled: Path, inputs: dict[str, Any]) -> None:
    module.calibrate()
    artifact = module.artifact
    rate = reader_rate(compiled, artifact.pool_offset_bytes, artifact.pool_size_bytes)
    predictions = {b: module.plan(weight_budget=b).prediction for b in BUDGETS}
    times: dict[str, list[float]] = {b: [] for b in BUDGETS}
    exact: dict[str, bool] = {}
    for _ in range(ROUNDS):
        for budget in BUDGETS:
            module.weight_budget = budget
            times[budget] += block(partial(module, **inputs), 5)
            report = module.report()
            exact[budget] = report.predicted_peak_bytes == report.measured_peak_bytes
    # Rows of a gathered table are fetched one by one: no step reads the table.
    read = sum(
        line.stored_bytes
        for line in module.report().weights
        if line.resident_bytes or line.streamed_bytes
    )
    most = median(times["max"])
    for budget, prediction in predictions.items():
        module.weight_budget = budget
        step = median(times[budget])
        floor = max(most, (read - module.weight_budget) / rate)
        predicted = prediction.step_ns * 1e-9
        print(
            f"| {name}, {read / 1e6:.0f} MB | {budget} | {step * 1e3:.2f} ms "
            f"| {floor * 1e3:.2f} ms | {step / floor:.2f} | {predicted * 1e3:.2f} ms "
            f"| {predicted / step:.2f} | {exact[budget]} |",
            flush=True,
        )


SHAPES = ((1, 128), (2, 16), (1, 7), (3, 33), (1, 64))


def shapes(folder: Path) -> None:
    """One file, five shapes in turn; what a shape costs when it was seen before."""
    compiled, _ = build(folder, "published_minilm")
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
    """Peak resident memory of fresh processes, and the bits."""
    compiled, _ = build(folder, "resnet50")
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
    """Compiling a 7 GB chain in bounded memory."""
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
