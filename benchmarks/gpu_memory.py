"""Rows 4 and 10 of the CUDA issue: the disk as third level; leaks; memory held by others."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import headrace
from headrace.artifact.reader import open_artifact
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


def modules_leave_memory(path: Path, ids: Any, count: int = 100) -> int:
    """Bytes less of free memory after `count` modules, each loaded, run and closed."""
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
    left = found[4] - found[-1]
    same = "yes" if not left else f"NO, by {left} bytes"
    print(f"| {count} modules | free memory as before: {same} |", flush=True)
    return left


def beside_another_process(
    path: Path, ids: Any, stored_bytes: int, wanted: bytes
) -> list[dict[str, Any]]:
    """Runs, or is refused, where little but a tenth of the weights fits."""
    found: list[dict[str, Any]] = []
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
                    right = np.array(module(ids)[0]).tobytes() == wanted
                    told = (
                        f"ran in {module.weight_budget / 1e9:.2f} GB of weights, same bits "
                        f"{'yes' if right else 'NO'}"
                    )
            except HeadraceError as refused:
                told = " / ".join(str(refused).splitlines()[:3])
                right = refused.diagnostics[0].code in ("HR3202", "HR3203")
        finally:
            holder.stdin.close()
            holder.wait()
        print(f"| {free / 1e9:.2f} GB free | {told} |", flush=True)
        found.append({"free_bytes": free, "told": told, "right": right})
    return found


def memory(path: Path, ids: Any) -> dict[str, Any]:
    """Both, after one run with all memory."""
    importlib.import_module("torch").cuda.empty_cache()
    with headrace.load(path, "cuda", weight_budget="max") as module:
        stored = module.stored_bytes
        wanted = np.array(module(ids)[0]).tobytes()
    return {
        "left_bytes": modules_leave_memory(path, ids),
        "beside": beside_another_process(path, ids, stored, wanted),
    }


_PIECE_BYTES, _READERS = 4 << 20, 4


def disk_bytes_per_second(path: Path, size_bytes: int) -> float:
    """The rate at which four threads read the pool past the page cache, piece by piece."""
    artifact = open_artifact(path)
    size = min(size_bytes, artifact.pool_size_bytes) // _PIECE_BYTES * _PIECE_BYTES
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    target = np.empty((_READERS + 1) * _PIECE_BYTES + 4096, np.uint8)
    base = -target.ctypes.data % 4096

    def read(at: int) -> None:
        slot = base + at // _PIECE_BYTES % _READERS * _PIECE_BYTES
        view = memoryview(target)[slot : slot + _PIECE_BYTES]
        os.preadv(descriptor, [view], artifact.pool_offset_bytes + at)

    begin = time.perf_counter()
    with ThreadPoolExecutor(_READERS) as pool:
        list(pool.map(read, range(0, size, _PIECE_BYTES)))
    spent = time.perf_counter() - begin
    os.close(descriptor)
    return size / spent


def disk(
    path: Path,
    ids: Any,
    host_limit: str,
    steps: Callable[[Any, Any, int], tuple[float, bytes]],
) -> dict[str, Any]:
    """A step at half of the weights where host memory holds little of the rest."""
    with headrace.load(path, "cuda", weight_budget="max") as module:
        wanted = np.array(module(ids)[0]).tobytes()
    with headrace.load(path, "cuda", weight_budget="50%", host_limit=host_limit) as module:
        step, bits = steps(module, ids, 5)
        report = module.report()
        cold = module.weights.disk.read_bytes
        print("\n".join(report.notes))
    rate = disk_bytes_per_second(path, cold)
    print(
        f"| host limit {host_limit} | streamed {report.streamed_bytes / 1e9:.2f} GB | from the "
        f"disk {cold / 1e9:.2f} GB at {rate / 1e9:.2f} GB/s | step {1e3 * step:.0f} ms | "
        f"step / (streamed / disk) {step * rate / report.streamed_bytes:.3f} | "
        f"step / (cold / disk) {step * rate / cold:.3f} | "
        f"same bits {'yes' if bits == wanted else 'NO'} |",
        flush=True,
    )
    return {"of_floor": step * rate / report.streamed_bytes, "same": bits == wanted}
