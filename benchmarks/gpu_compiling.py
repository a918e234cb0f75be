"""Row 11 of the CUDA issue: compiling for sm_90 on two cores, cold and warm.

ResNet-50 by the command `headrace compile`; the decoder as far as its code, without its
weights. Each is a process of its own, twice, with a cache folder that begins empty.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from headrace.api import compile_parts
from headrace.given import given

_CORES = 2


def _seconds(command: list[str], cache: str) -> float:
    cores = sorted(os.sched_getaffinity(0))
    begin = time.perf_counter()
    subprocess.run(
        [*command],
        check=True,
        env={**os.environ, "HEADRACE_CACHE_DIR": cache},
        preexec_fn=lambda: os.sched_setaffinity(0, set(cores[:_CORES])),
        stdout=subprocess.DEVNULL,
    )
    return time.perf_counter() - begin


def compiling(resnet: Path, decoder: Path) -> dict[str, tuple[float, float]]:
    """Seconds, cold and warm, of both models (ONNX files)."""
    found: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-row-11-") as folder:
        output = str(Path(folder) / "out.hrx")
        commands = {
            "ResNet-50": [
                *(sys.executable, "-m", "headrace", "compile", str(resnet)),
                *("--target", "cuda:sm_90", "-o", output),
            ],
            "decoder": [sys.executable, __file__, str(decoder)],
        }
        for name, command in commands.items():
            cache = str(Path(folder) / name)
            found[name] = (_seconds(command, cache), _seconds(command, cache))
            print(f"| {name} | cold {found[name][0]:.1f} s | warm {found[name][1]:.1f} s |")
    return found


def without_weights(path: Path) -> None:
    """All of a compilation but the writing."""
    dims: dict[str, int | tuple[int, int]] = {"tokens": (1, 2048)}
    compile_parts(given(path), targets=("cuda:sm_90",), level=2, dims=dims)


if __name__ == "__main__":
    without_weights(Path(sys.argv[1]))
