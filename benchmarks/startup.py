"""What comes before the first step: compile time, start time; and the smallest call."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from models import MODELS
from peer import run

ROUNDS = 5

_FIRST_OUTPUT = """
import sys, numpy as np, headrace
x = np.zeros((1, 3, 224, 224), np.float32)
with headrace.load(sys.argv[1], threads=2) as module:
    module(x)
"""


def compiling(folder: Path, names: Sequence[str] = ()) -> None:
    """Seconds of `headrace compile` as a process: with an empty cache; with the kernels in
    the cache but the model changed elsewhere; and with the whole model in it."""
    print("\n| model | cold | kernels cached | model cached |\n|---|---|---|---|")
    for name in names or MODELS:
        for suffix in (".onnx", ".mlir"):
            source = folder / f"{name}{suffix}"
            with tempfile.TemporaryDirectory() as cache:
                command = [
                    *(sys.executable, "-m", "headrace", "compile", str(source)),
                    *("--target", "cpu", "-o", f"{cache}/model.hrx"),
                ]
                cold = run(command, HEADRACE_CACHE_DIR=cache)
                kernels = run(command, HEADRACE_CACHE_DIR=cache, HEADRACE_MODEL_CACHE="0")
                whole = run(command, HEADRACE_CACHE_DIR=cache)
            print(
                f"| {source.name} | {cold:.2f} s | {kernels:.2f} s | {whole:.2f} s |",
                flush=True,
            )


def start(folder: Path) -> None:
    """From the start of a process to the first output of ResNet-50, files in the page cache."""
    compiled = folder / "resnet50.start.hrx"
    run([sys.executable, "-m", "headrace", "compile", str(folder / "resnet50.onnx"),
         "--target", "cpu", "-o", str(compiled)])  # fmt: skip
    times: list[float] = []
    for _ in range(ROUNDS + 1):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", _FIRST_OUTPUT, str(compiled)], check=True)
        times.append(time.perf_counter() - begin)
    compiled.unlink()
    print("\n| process start to first ResNet-50 output | least | most |\n|---|---|---|")
    warm = times[1:]
    print(f"| {median(warm):.2f} s | {min(warm):.2f} s | {max(warm):.2f} s |")
