"""All rows of the CUDA issue on a bare machine with a GPU, in three commands:

    python benchmarks/gpu.py one --folder DIR         # decoder packed disk memory
    python benchmarks/gpu.py two --folder DIR         # models products nodes autotune
    python benchmarks/gpu.py three --folder DIR       # peers compiling autotune

Each ends within 8 minutes and prints one table of what the folder's `results.json` has so far;
what stands there is not run again, so a command that was stopped, or had no time for all, goes
on where it was. The last part of two of them is torch's max-autotune, a cell at a time, for as
long as there is time. A part by its name is run in any case:

    python benchmarks/gpu.py decoder --folder DIR     # 7.0 GB of bf16 weights, made there
    python benchmarks/gpu.py packed --folder DIR      # the same packed, beside the plain one
    python benchmarks/gpu.py memory --folder DIR      # leaks, and a process that holds memory
    python benchmarks/gpu.py disk --folder DIR        # half stays, the disk brings the rest
    python benchmarks/gpu.py peers --folder DIR       # torch, accelerate and JAX, the same weights
    python benchmarks/gpu.py products --folder DIR    # bf16 products beside cuBLAS, by --seed
    python benchmarks/gpu.py models --folder DIR      # ResNet-50 and BERT-base beside torch
    python benchmarks/gpu.py nodes --folder DIR       # 600 ONNX node tests
    python benchmarks/gpu.py compiling --folder DIR   # ResNet-50 and the decoder on two cores

Needs the extra `headrace[cuda]`, and torch for the peers and for the rates of the machine. The
floor of a streamed step is the larger of the resident step and (bytes a step must read -
budget) / link rate, both measured in the same run. Nothing is compiled while anything is timed.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import random
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import gpu_compiling
import gpu_memory
import gpu_models
import gpu_nodes
import gpu_packed
import gpu_peers
import gpu_products
import headrace
from decoder import TOKENS, Shape, ids_of, write_decoder
from gpu_results import Results, table

BUDGETS = ("max", "75%", "50%", "25%", "10%", "min")


def _torch() -> Any:
    return importlib.import_module("torch")


def link_bytes_per_second() -> float:
    """The best rate of a copy of 1 GiB from pinned memory to the device."""
    torch = _torch()
    host = torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True)
    device = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    return (1 << 30) / min(_timed(lambda: device.copy_(host, non_blocking=True)))


def read_bytes_per_second() -> float:
    """The best rate at which a sum reads 2 GiB of device memory."""
    torch = _torch()
    values = torch.ones(1 << 29, dtype=torch.float32, device="cuda")
    return (2 << 30) / min(_timed(lambda: torch.sum(values)))


def _timed(run: Callable[[], object], rounds: int = 9) -> list[float]:
    """Seconds of each round, by events."""
    torch = _torch()
    run()
    found: list[float] = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) / 1e3)
    return found


def _source(folder: Path, shape: Shape) -> Path:
    """The decoder's file, made once."""
    source = folder / "decoder.onnx"
    if not source.exists():
        write_decoder(folder, shape)
    return source


def _build(folder: Path, shape: Shape) -> Path:
    """The decoder compiled, made once."""
    output = folder / "decoder.hrx"
    if output.exists():
        return output
    begin = time.perf_counter()
    source = _source(folder, shape)
    written = time.perf_counter()
    headrace.compile(source, output, targets=["cuda:sm_90"], dims={"tokens": (1, 2048)})
    done = time.perf_counter()
    print(f"model written in {written - begin:.0f} s, compiled in {done - written:.0f} s")
    return output


def _build_packed(folder: Path, shape: Shape) -> Path:
    """The decoder compiled with its weights packed, made once."""
    path = folder / "packed.hrx"
    if not path.exists():
        gpu_packed.build_packed(_source(folder, shape), path)
    return path


def _build_both(folder: Path, shape: Shape) -> None:
    """Both decoders side by side, in processes that open no device."""
    _source(folder, shape)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        for made in [pool.submit(b, folder, shape) for b in (_build, _build_packed)]:
            made.result()


def packed_decoder(folder: Path, shape: Shape) -> dict[str, Any]:
    """Row 2."""
    plain, path = _build(folder, shape), _build_packed(folder, shape)
    link = link_bytes_per_second()
    print(f"link {link / 1e9:.1f} GB/s")
    _torch().cuda.empty_cache()
    gathered = 2 * shape.vocabulary * shape.hidden
    return gpu_packed.packed(plain, path, ids_of(shape, max(TOKENS)), gathered, link, _steps)


def memory(folder: Path, shape: Shape) -> dict[str, Any]:
    """Row 10."""
    return gpu_memory.memory(_build(folder, shape), ids_of(shape, 1))


def _steps(module: Any, ids: Any, count: int) -> tuple[float, bytes]:
    """Median seconds of whole calls, and the bits of the output."""
    y = np.array(module(ids)[0])
    times: list[float] = []
    for _ in range(count):
        begin = time.perf_counter()
        module(ids)
        times.append(time.perf_counter() - begin)
    return statistics.median(times), y.tobytes()


def decoder(folder: Path, shape: Shape) -> dict[str, Any]:
    """Rows 1, 3, 7 and 8 of the CUDA issue."""
    path = _build(folder, shape)
    link, read = link_bytes_per_second(), read_bytes_per_second()
    print(f"link {link / 1e9:.1f} GB/s, device memory read at {read / 1e9:.0f} GB/s")
    _torch().cuda.empty_cache()
    ids = ids_of(shape, max(TOKENS))
    print(
        "\n| tokens | budget | streamed | step | floor | step / floor | predicted / step | peak exact | same bits |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    rows: list[dict[str, Any]] = []
    begin = time.perf_counter()
    with headrace.load(path, "cuda", weight_budget="max") as module:
        print(f"loaded in {time.perf_counter() - begin:.1f} s")
        stored = module.stored_bytes
        # The rows of the embedding that a step gathers are all it reads of the table.
        read_a_step = stored - 2 * shape.vocabulary * shape.hidden
        for tokens in TOKENS:
            rows += _decoder_rows(module, ids[:, :tokens], read_a_step, link)
        worst, same = _live_changes(module, ids[:, :1], link)
    print(f"reading {read_a_step / 1e9:.2f} GB once takes {1e3 * read_a_step / read:.2f} ms")
    return {
        "link": link,
        "read": read,
        "read_a_step": read_a_step,
        "rows": rows,
        "changes_s": worst,
        "changes_same": same,
    }


def _decoder_rows(module: Any, ids: Any, read_a_step: int, link: float) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    module.weight_budget = "max"
    module(ids)
    module.calibrate({"tokens": ids.shape[1]})
    resident, wanted = _steps(module, ids, 15)
    for budget in BUDGETS:
        module.weight_budget = budget
        plan = module.plan({"tokens": ids.shape[1]})
        step, bits = _steps(module, ids, 5)
        report = module.report()
        floor = max(resident, (read_a_step - module.weight_budget) / link)
        print(
            f"| {ids.shape[1]} | {budget} | {report.streamed_bytes / 1e9:.2f} GB | "
            f"{1e3 * step:.2f} ms | {1e3 * floor:.2f} ms | {step / floor:.3f} | "
            f"{plan.prediction.step_ns / 1e9 / step:.3f} | "
            f"{report.predicted_peak_bytes / report.measured_peak_bytes:.3f} | "
            f"{'yes' if bits == wanted else 'NO'} |",
            flush=True,
        )
        # What a step streams, the least budget holds in its ring.
        ring = module.minimum_weight_budget
        rows.append(
            {
                "tokens": ids.shape[1],
                "budget": budget,
                "step_s": step,
                "of_floor": step / floor,
                "streamed_bytes": report.streamed_bytes,
                "allowed_bytes": max(0, read_a_step - module.weight_budget) + ring,
                "predicted": plan.prediction.step_ns / 1e9 / step,
                "peak": report.predicted_peak_bytes / report.measured_peak_bytes,
                "same": bits == wanted,
            }
        )
    return rows


def _live_changes(module: Any, ids: Any, link: float) -> tuple[float, bool]:
    """Seconds of the slowest of 10 changes beside step and bytes; whether bits stay."""
    module.weight_budget = "max"
    wanted = _steps(module, ids, 1)[1]
    draw = random.Random(3)
    sizes = {"tokens": ids.shape[1]}
    segments = module.weights.module.segments
    worst, same = 0.0, True
    for _ in range(10):
        before = set(module.plan(sizes).resident)
        after = draw.randint(module.minimum_weight_budget, module.stored_bytes)
        begin = time.perf_counter()
        module.weight_budget = after
        bits = np.array(module(ids)[0]).tobytes()
        spent = time.perf_counter() - begin
        step, _ = _steps(module, ids, 1)
        brought = set(module.plan(sizes).resident) - before
        moved = sum(segments[s].size_bytes for s in brought) / link
        worst = max(worst, spent - step - moved)
        same = same and bits == wanted
    print(f"\n10 changes of budget: at most {1e3 * worst:.0f} ms beside step and bytes moved")
    print(f"the same bits: {'yes' if same else 'NO'}")
    return worst, same


def disk(folder: Path, shape: Shape) -> dict[str, Any]:
    """Row 4; the limit is a seventh of the weights, 1 GiB of 7.0 GB."""
    path = _build(folder, shape)
    # The table of tokens stays pinned; a ring of two slots is the least beside it.
    table = 2 * shape.vocabulary * shape.hidden
    limit = f"{max(table + (64 << 20), (shape.layers << 30) // 16)}"
    return gpu_memory.disk(path, ids_of(shape, 1), limit, _steps)


@dataclass(frozen=True)
class Run:
    """How a part is run: what the command line says, and `time.monotonic` when it must be over."""

    options: argparse.Namespace
    end: float

    @property
    def folder(self) -> Path:
        return self.options.folder

    @property
    def shape(self) -> Shape:
        return Shape(layers=self.options.layers)

    def models(self, peers: tuple[str, ...]) -> dict[str, Any]:
        """Row 5, some of its peers; then all that the folder has."""
        chosen = [p for p in peers if p in self.options.peers]
        o = self.options
        return gpu_models.models(o.folder, o.cells, chosen, o.again, self.end)

    def peers(self) -> dict[str, Any]:
        """What others reach."""
        _build(self.folder, self.shape)
        return gpu_peers.peers(self.folder, self.shape, self.end)

    def compiling(self) -> dict[str, Any]:
        """Row 11."""
        resnet = self.folder / "resnet50_tf32_b1.onnx"
        gpu_models.build_all(["resnet50:tf32:1"], self.folder, self.end)
        return gpu_compiling.compiling(resnet, _source(self.folder, self.shape))


PARTS: dict[str, Callable[[Run], dict[str, Any]]] = {
    "decoder": lambda r: decoder(r.folder, r.shape),
    "packed": lambda r: packed_decoder(r.folder, r.shape),
    "disk": lambda r: disk(r.folder, r.shape),
    "memory": lambda r: memory(r.folder, r.shape),
    "models": lambda r: r.models(gpu_models.QUICK),
    "autotune": lambda r: r.models(gpu_models.SLOW),
    "products": lambda r: gpu_products.products(r.options.seed),
    "nodes": lambda r: gpu_nodes.nodes(r.folder, r.end - time.monotonic()),
    "peers": lambda r: r.peers(),
    "compiling": lambda r: r.compiling(),
}
COMMANDS = {
    "one": ("decoder", "packed", "disk", "memory"),
    "two": ("models", "products", "nodes", "autotune"),
    "three": ("peers", "compiling", "autotune"),
}
_MOST_SECONDS = 470
_LEAST_SECONDS = {"packed": 60, "disk": 40, "memory": 100, "products": 60, "nodes": 100}
"""With less left a part is not begun; others need 40 s."""


def run_command(parts: tuple[str, ...], options: argparse.Namespace, results: Results) -> None:
    """What the folder lacks of some parts, for as long as a command may take."""
    run = Run(options, time.monotonic() + _MOST_SECONDS)
    if "packed" in parts and not {"decoder", "packed"} <= results.found.keys():
        _build_both(run.folder, run.shape)
    left: list[str] = []
    for part in parts:
        kept = results.found.get(part)
        if kept is not None and not kept.get("left"):
            continue
        if run.end - time.monotonic() < _LEAST_SECONDS.get(part, 40):
            left.append(part)
            continue
        print(f"\n== {part}", flush=True)
        try:
            data = PARTS[part](run)
        except Exception as failed:
            # The other parts are worth their minutes all the same.
            print(f"{part} failed: {type(failed).__name__}: {failed}", flush=True)
            left.append(part)
            continue
        results.put(part, data)
        if data.get("left"):
            left.append(part)
    if left:
        print(f"\nnot done: {', '.join(left)}; the same command goes on")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="+", choices=[*COMMANDS, *sorted(PARTS)])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--layers", type=int, default=Shape.layers)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--cells", nargs="+", default=gpu_models.CELLS, help="of `models`")
    parser.add_argument("--peers", nargs="+", default=gpu_models.PEERS, help="of `models`")
    parser.add_argument("--again", action="store_true", help="`models`: headrace anew")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    results = Results(options.folder)
    for part in options.parts:
        if part in COMMANDS:
            run_command(COMMANDS[part], options, results)
        else:
            run = Run(options, time.monotonic() + 10 * _MOST_SECONDS)
            results.put(part, PARTS[part](run))
    print(f"\n{table(results.found)}")


if __name__ == "__main__":
    main()
