"""Whole models on a GPU beside torch: the part `models` of `gpu.py`, row 5 of the CUDA issue.

A cell is a model, a precision and a batch: `resnet50:f16:1`. Each peer of a cell runs in a
process of its own and writes its line into `models.json` in the folder; what is there is not
run again, so a command that was stopped goes on. What ours and `reduce-overhead` compile is
compiled side by side before, into caches in the folder; timed is one after the other.
`max-autotune` measures while it compiles, so it has the device to itself.

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
TORCH_MODES = ("reduce-overhead", "max-autotune")
PEERS = ("headrace", "torch eager", *(f"torch.compile {mode}" for mode in TORCH_MODES))
QUICK, SLOW = PEERS[:3], PEERS[3:]
_PREPARED = ("headrace", "torch.compile reduce-overhead")
_CALLS = 30
_ROUNDS = 7
_STEPS = 50
_MOST_SECONDS = 150
"""Of one peer of a cell: one that hangs, or compiles for long, does not cost the others."""
_LEAST_SECONDS = 40
"""With less left a peer is not begun."""


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
    output = cell.file(folder, ".onnx")
    unfinished = output.with_suffix(".part")
    torch.onnx.export(
        network.half() if cell.precision == "f16" else network,
        tuple(torch.from_numpy(array) for array in inputs.values()),
        unfinished,
        input_names=list(inputs),
        output_names=list(MODELS[cell.model].outputs),
        dynamo=True,
        external_data=False,
        verbose=False,
    )
    unfinished.replace(output)


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


def _environment(folder: Path) -> dict[str, str]:
    """Caches in the folder."""
    caches = {
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "HEADRACE_CACHE_DIR": str(folder / "headrace"),
    }
    return {**os.environ, **caches}


def _in_process(peer: str, cell: str, folder: Path, end: float) -> dict[str, Any] | None:
    """What a child said, or why it said nothing; None where the command's time was too short."""
    command = [sys.executable, __file__, peer, cell, str(folder)]
    left = end - time.monotonic()
    if left < _LEAST_SECONDS:
        return None
    try:
        done = subprocess.run(
            command,
            env=_environment(folder),
            capture_output=True,
            text=True,
            timeout=min(_MOST_SECONDS, left),
        )
    except subprocess.TimeoutExpired:
        return {"missing": f"not done in {_MOST_SECONDS} s"} if left > _MOST_SECONDS else None
    lines = done.stdout.strip().splitlines()
    if done.returncode:
        return {"missing": (done.stderr.strip().splitlines() or ["?"])[-1][:200]}
    return json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}


def _side_by_side(peers: Sequence[str], cells: Sequence[str], folder: Path, end: float) -> None:
    """Runs children whose figures do not count."""
    running = [
        subprocess.Popen(
            [sys.executable, __file__, peer, cell, str(folder)],
            env=_environment(folder),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for peer in peers
        for cell in cells
    ]
    for process in running:
        try:
            process.wait(max(1.0, min(_MOST_SECONDS, end - time.monotonic())))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def build_all(cells: Sequence[str], folder: Path, end: float) -> None:
    """The ONNX files that the folder lacks, side by side."""
    files = {cell: Cell.parse(cell).file(folder, ".onnx") for cell in cells}
    _side_by_side(["build"], [c for c in cells if not files[c].exists()], folder, end)
    for cell in cells:
        if not files[cell].exists():
            raise RuntimeError(f"{cell} cannot be built")


def models(
    folder: Path, cells: Sequence[str], peers: Sequence[str], again: bool, end: float
) -> dict[str, Any]:
    """Runs what the folder's results lack (`again`: headrace in any case); prints the table.

    Args:
        end: of `time.monotonic`, by which it is over.

    Returns:
        ours over the best of torch.compile by cell, and how many cells each mode has; `left`
        what there was no time for.
    """
    path = folder / "models.json"
    found: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}
    build_all(cells, folder, end)
    for peer in (p for p in _PREPARED if p in peers):
        lacking = [c for c in cells if f"{c} {peer}" not in found or again]
        _side_by_side([peer], lacking, folder, end)
    left = 0
    for cell in cells:
        for peer in peers:
            key = f"{cell} {peer}"
            if key in found and not (again and peer == "headrace"):
                continue
            line = _in_process(peer, cell, folder, end)
            if line is None:
                left += 1
                continue
            found[key] = line
            path.write_text(json.dumps(found, indent=1))
    ratios = table(found, cells)
    timed = [key for key, line in found.items() if "device_s" in line]
    modes = {
        mode: sum(key.endswith(f"compile {mode}") for key in timed) for mode in TORCH_MODES
    }
    return {"ratios": ratios, "modes": modes, "left": left}


def table(found: dict[str, dict[str, Any]], cells: Sequence[str]) -> dict[str, float]:
    """What was found, and ours over the best of torch.compile; that by cell."""
    print("| model | peer | device | call | compiled in, from caches | largest error |")
    print("|---|---|---|---|---|---|")
    ratios: dict[str, float] = {}
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
            ratios[cell] = ratio = ours / min(best)
            print(f"| {cell} | **headrace / best torch.compile** | **{ratio:.3f}** | | | |")
    if ratios:
        mean, largest = geometric_mean(ratios.values()), max(ratios.values())
        print(f"\ngeometric mean {mean:.3f}, largest {largest:.3f}")
    return ratios


if __name__ == "__main__":
    child(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
