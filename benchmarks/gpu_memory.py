"""Row 10 of the CUDA issue: nothing leaks, and a second process holds most of the memory."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import headrace
from headrace.base.errors import HeadraceError

_HOLD = """
import sys
from headrace.runtime.drivers.cuda_calls import CudaCalls
calls = CudaCalls()
free = calls.memory()[0]
calls.allocate(max(0, free - int(sys.argv[1])), "nothing")
print(calls.memory()[0], flush=True)
sys.stdin.read()
"""


def modules_leave_memory(path: Path, ids: Any, count: int = 100) -> None:
    """Free memory after each of `count` modules, loaded, run and closed."""
    from headrace.runtime.drivers.table import open_device

    device: Any = open_device("cuda")
    found: list[int] = []
    for number in range(count):
        budget = ("max", "50%", "min")[number % 3]
        with headrace.load(path, device, weight_budget=budget) as module:
            module(ids)
        found.append(device.calls.memory()[0])
    device.close()
    # The driver keeps what the first modules grew its own heap by.
    same = "yes" if found[4] == found[-1] else f"NO, by {found[4] - found[-1]} bytes"
    print(f"| {count} modules | free memory as before: {same} |", flush=True)


def beside_another_process(path: Path, ids: Any, stored_bytes: int, wanted: bytes) -> None:
    """Runs, or is refused, where little but a tenth of the weights fits."""
    for spare in (3, 1.2, 0.1):
        room = int(stored_bytes * 0.1 * spare) + (600 << 20)
        holder = subprocess.Popen(
            [sys.executable, "-c", _HOLD, str(room)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert holder.stdin is not None and holder.stdout is not None
        try:
            free = int(holder.stdout.readline())
            try:
                with headrace.load(path, "cuda", weight_budget="auto") as module:
                    same = np.array(module(ids)[0]).tobytes() == wanted
                    told = (
                        f"ran in {module.weight_budget / 1e9:.2f} GB of weights, same bits "
                        f"{'yes' if same else 'NO'}"
                    )
            except HeadraceError as refused:
                told = " / ".join(str(refused).splitlines()[:3])
        finally:
            holder.stdin.close()
            holder.wait()
        print(f"| {free / 1e9:.2f} GB free | {told} |", flush=True)


def memory(path: Path, ids: Any) -> None:
    """Both, after one run with all memory."""
    importlib.import_module("torch").cuda.empty_cache()
    with headrace.load(path, "cuda", weight_budget="max") as module:
        stored = module.stored_bytes
        wanted = np.array(module(ids)[0]).tobytes()
    modules_leave_memory(path, ids)
    beside_another_process(path, ids, stored, wanted)
