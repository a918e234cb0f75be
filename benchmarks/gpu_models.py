"""Whole models on a GPU beside torch: the part `models` of `gpu.py`, row 5 of the CUDA issue.

A cell is a model, a precision and a batch: `resnet50:f16:1`. Each peer of a cell runs in a
process of its own, one after the other, and writes its line into `models.json` in the
folder; what is there is not run again, so a command that was stopped goes on.

A step is timed two ways. *Device*: inputs and outputs stand on the device, steps follow one
another, their time is taken by events. *Call*: arrays of the host in and out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np

import headrace
from headrace.runtime.drivers.cuda_timing import repeated_ns
from models import MODELS, Arrays, torch_network

CELLS = tuple(
    f"{model}:{precision}:{batch}"
    for model, precisions in (("resnet50", ("f16", "tf32")), ("bert_base", ("f16",)))
    for precision in precisions
    for batch in (1, 32)
)
TORCH_MODES = ("reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
PEERS = ("headrace", "torch eager", *(f"torch.compile {mode}" for mode in TORCH_MODES))
_CALLS = 30
_ROUNDS = 7
_STEPS = 50
_MOST_SECONDS = 150
"""Of one peer of a cell: one that hangs, or compiles for long, does not cost the others."""


@dataclass(frozen=True)
class Cell:
    """What is measured: a model of `models.py`, `f16` or `tf32`, and its batch."""

    model: str
    precision: str
    batch: int

    @classmethod
    def parse(cls, text: str) -> Cell:
        model, precision, batch = text.split(":")
        return cls(model, precision, int(batch))

    def file(self, folder: Path, suffix: str) -> Path:
        return folder / f"{self.model}_{self.precision}_b{self.batch}{suffix}"

    def inputs(self) -> Arrays:
        """As many examples of the model as the batch has."""
        made = [MODELS[self.model].inputs(seed) for seed in range(self.batch)]
        joined = {name: np.concatenate([m[name] for m in made]) for name in made[0]}
        if self.precision == "f16":
            return {
                name: array.astype(np.float16) if array.dtype == np.float32 else array
                for name, array in joined.items()
            }
        return joined


# -- what runs in a process of its own ----------------------------------------------------


def build(cell: Cell, folder: Path) -> None:
    """The ONNX file, and what torch gives in fp32 on the processor."""
    import torch

    network, _ = torch_network(MODELS[cell.model])
    inputs = cell.inputs()
    wide = [
        torch.from_numpy(a.astype(np.float32) if a.dtype == np.float16 else a)
        for a in inputs.values()
    ]
    with torch.inference_mode():
        wanted = network(*wide)
    np.save(cell.file(folder, ".npy"), wanted.numpy())
    torch.onnx.export(
        network.half() if cell.precision == "f16" else network,
        tuple(torch.from_numpy(array) for array in inputs.values()),
        cell.file(folder, ".onnx"),
        input_names=list(inputs),
        output_names=list(MODELS[cell.model].outputs),
        dynamo=True,
        external_data=False,
        verbose=False,
    )


def _compiled(cell: Cell, folder: Path) -> tuple[Path, float]:
    """The `.hrx`, and the seconds it took."""
    output = cell.file(folder, ".hrx")
    begin = time.perf_counter()
    options = {"precision": "tf32"} if cell.precision == "tf32" else {}
    headrace.compile(cell.file(folder, ".onnx"), output, targets=["cuda:sm_90"], **options)
    return output, time.perf_counter() - begin


def run_headrace(cell: Cell, folder: Path) -> dict[str, Any]:
    """Our line of a cell."""
    path, compile_s = _compiled(cell, folder)
    arrays = list(cell.inputs().values())
    with headrace.load(path, "cuda", weight_budget="max") as module:
        output = np.array(module(*arrays)[0])
        calls = [_seconds(lambda: module(*arrays)) for _ in range(_CALLS)]
        with module.session() as session, session.lock:
            prepared: Any = session.executor(None).prepare(arrays)
            outputs = [np.empty(shape, dtype) for shape, dtype in prepared.outputs]
            prepared.step.run(arrays, outputs)
            every = range(len(prepared.plan.commands))
            device = repeated_ns(prepared.step, every, _STEPS, _ROUNDS) / 1e9
    return {
        "device_s": device,
        "call_s": median(calls),
        "compile_s": compile_s,
        "error": _error(cell, folder, output),
    }


def run_torch(cell: Cell, folder: Path, mode: str) -> dict[str, Any]:
    """A line of torch's: `mode` of torch.compile, or empty for eager."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.set_float32_matmul_precision("high")
    network, _ = torch_network(MODELS[cell.model])
    network = network.half() if cell.precision == "f16" else network
    pictures = MODELS[cell.model].pictures
    order = torch.channels_last if pictures else torch.contiguous_format
    network = network.cuda().to(memory_format=order)
    host = [torch.from_numpy(array) for array in cell.inputs().values()]
    given = [t.cuda() for t in host]
    if pictures:
        given = [t.contiguous(memory_format=torch.channels_last) for t in given]
    function = torch.compile(network, mode=mode) if mode else network
    with torch.inference_mode():
        compile_s = _seconds(lambda: function(*given))
        for _ in range(5):
            output = function(*given)
        found = [_device_seconds(lambda: function(*given)) for _ in range(_ROUNDS)]
        calls = [
            _seconds(lambda: function(*(t.cuda() for t in host)).cpu()) for _ in range(_CALLS)
        ]
        output = function(*given).float().cpu().numpy()
    return {
        "device_s": min(found),
        "call_s": median(calls),
        "compile_s": compile_s,
        "error": _error(cell, folder, output),
    }


def _seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def _device_seconds(run: Callable[[], object]) -> float:
    """Of one of many steps that follow one another."""
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(_STEPS):
        run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3 / _STEPS


def _error(cell: Cell, folder: Path, output: np.ndarray) -> float:
    """The largest difference to torch in fp32, over the largest value."""
    wanted = np.load(cell.file(folder, ".npy"))
    return float(np.abs(output.astype(np.float32) - wanted).max() / np.abs(wanted).max())


def child(peer: str, text: str, folder: Path) -> None:
    """One peer of a cell; prints a JSON line last."""
    cell = Cell.parse(text)
    if peer == "build":
        build(cell, folder)
        return
    if peer == "headrace":
        found = run_headrace(cell, folder)
    else:
        found = run_torch(
            cell, folder, peer.removeprefix("torch.compile ").replace("torch eager", "")
        )
    print(json.dumps(found))


# -- the table -----------------------------------------------------------------------------


def _in_process(peer: str, cell: str, folder: Path) -> dict[str, Any]:
    """What a child said, or why it said nothing."""
    caches = {
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }
    command = [sys.executable, __file__, peer, cell, str(folder)]
    environment = {**os.environ, **caches}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_MOST_SECONDS
        )
    except subprocess.TimeoutExpired:
        return {"missing": f"not done in {_MOST_SECONDS} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode:
        return {"missing": (done.stderr.strip().splitlines() or ["?"])[-1][:200]}
    return json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}


def models(folder: Path, cells: Sequence[str], peers: Sequence[str], again: bool) -> None:
    """Runs what the folder's results lack (`again`: headrace in any case); prints the table."""
    path = folder / "models.json"
    found: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}
    missing = [c for c in cells if not Cell.parse(c).file(folder, ".npy").exists()]
    running = [
        subprocess.Popen(
            [sys.executable, __file__, "build", cell, str(folder)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for cell in missing
    ]
    for cell, process in zip(missing, running, strict=True):
        if process.wait():
            raise RuntimeError(f"{cell} cannot be built")
    for cell in cells:
        for peer in peers:
            key = f"{cell} {peer}"
            if key in found and not (again and peer == "headrace"):
                continue
            found[key] = _in_process(peer, cell, folder)
            path.write_text(json.dumps(found, indent=1))
    table(found, cells)


def table(found: dict[str, dict[str, Any]], cells: Sequence[str]) -> None:
    """What was found, and ours over the best of torch.compile."""
    print("| model | peer | device | call | compiled in | largest error |")
    print("|---|---|---|---|---|---|")
    ratios: list[float] = []
    for cell in cells:
        best: list[float] = []
        for peer in PEERS:
            line = found.get(f"{cell} {peer}")
            if line is None:
                continue
            if "missing" in line:
                print(f"| {cell} | {peer} | {line['missing']} | | | |")
                continue
            if peer.startswith("torch.compile"):
                best.append(line["device_s"])
            print(
                f"| {cell} | {peer} | {1e3 * line['device_s']:.3f} ms "
                f"| {1e3 * line['call_s']:.3f} ms | {line['compile_s']:.1f} s "
                f"| {line['error']:.1e} |"
            )
        ours = found.get(f"{cell} headrace", {}).get("device_s")
        if ours and best:
            ratios.append(ours / min(best))
            print(
                f"| {cell} | **headrace / best torch.compile** | **{ratios[-1]:.3f}** | | | |"
            )
    if ratios:
        print(f"\ngeometric mean {geometric_mean(ratios):.3f}, largest {max(ratios):.3f}")


if __name__ == "__main__":
    child(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
