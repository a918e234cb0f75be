"""Speed, streaming and prediction on a GPU, one table a part, each resumable.

    python benchmarks/gpu.py decoder --folder DIR     # 7.0 GB of bf16 weights, made there
    python benchmarks/gpu.py packed --folder DIR      # the same packed, beside the plain one
    python benchmarks/gpu.py memory --folder DIR      # leaks, and a process that holds memory
    python benchmarks/gpu.py disk --folder DIR        # half stays, the disk brings the rest
    python benchmarks/gpu.py peers --folder DIR       # torch, accelerate and JAX, the same weights
    python benchmarks/gpu.py products --folder DIR    # bf16 products beside cuBLAS, by --seed
    python benchmarks/gpu.py models --folder DIR      # ResNet-50 and BERT-base beside torch

Needs the extra `headrace[cuda]`, and torch for the peers and for the rates of the machine.
What is built lies in the folder and is taken again; so a part that was stopped goes on. The
floor of a streamed step is the larger of the resident step and (bytes a step must read -
budget) / link rate, both measured in the same run.
"""

from __future__ import annotations

import argparse
import importlib
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import gpu_memory
import gpu_models
import gpu_packed
import gpu_peers
import gpu_products
import headrace
from decoder import TOKENS, Shape, ids_of, write_decoder

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


def _build(folder: Path, shape: Shape) -> Path:
    """The decoder compiled, made once."""
    output = folder / "decoder.hrx"
    if output.exists():
        return output
    begin = time.perf_counter()
    source = folder / "decoder.onnx"
    if not source.exists():
        write_decoder(folder, shape)
    written = time.perf_counter()
    headrace.compile(source, output, targets=["cuda:sm_90"], dims={"tokens": (1, 2048)})
    done = time.perf_counter()
    print(f"model written in {written - begin:.0f} s, compiled in {done - written:.0f} s")
    return output


def packed_decoder(folder: Path, shape: Shape) -> None:
    """Row 2."""
    plain, path = _build(folder, shape), folder / "packed.hrx"
    if not path.exists():
        gpu_packed.build_packed(folder / "decoder.onnx", path)
    link = link_bytes_per_second()
    print(f"link {link / 1e9:.1f} GB/s")
    _torch().cuda.empty_cache()
    gathered = 2 * shape.vocabulary * shape.hidden
    gpu_packed.packed(plain, path, ids_of(shape, max(TOKENS)), gathered, link, _steps)


def memory(folder: Path, shape: Shape) -> None:
    """Row 10."""
    gpu_memory.memory(_build(folder, shape), ids_of(shape, 1))


def _steps(module: Any, ids: Any, count: int) -> tuple[float, bytes]:
    """Median seconds of whole calls, and the bits of the output."""
    y = np.array(module(ids)[0])
    times: list[float] = []
    for _ in range(count):
        begin = time.perf_counter()
        module(ids)
        times.append(time.perf_counter() - begin)
    return statistics.median(times), y.tobytes()


def decoder(folder: Path, shape: Shape) -> None:
    """Rows 1, 3, 7 and 8 of the CUDA issue."""
    path = _build(folder, shape)
    link, read = link_bytes_per_second(), read_bytes_per_second()
    print(f"link {link / 1e9:.1f} GB/s, device memory read at {read / 1e9:.0f} GB/s")
    _torch().cuda.empty_cache()
    table = ids_of(shape, max(TOKENS))
    print(
        "\n| tokens | budget | streamed | step | floor | step / floor | predicted / step | peak exact | same bits |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    begin = time.perf_counter()
    with headrace.load(path, "cuda", weight_budget="max") as module:
        print(f"loaded in {time.perf_counter() - begin:.1f} s")
        stored = module.stored_bytes
        # The rows of the embedding that a step gathers are all it reads of the table.
        read_a_step = stored - 2 * shape.vocabulary * shape.hidden
        for tokens in TOKENS:
            _decoder_rows(module, table[:, :tokens], read_a_step, link)
        _live_changes(module, table[:, :1], link)
    print(f"reading {read_a_step / 1e9:.2f} GB once takes {1e3 * read_a_step / read:.2f} ms")


def _decoder_rows(module: Any, ids: Any, read_a_step: int, link: float) -> None:
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


def _live_changes(module: Any, ids: Any, link: float) -> None:
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


def disk(folder: Path, shape: Shape) -> None:
    """Row 4; the limit is a seventh of the weights, 1 GiB of 7.0 GB."""
    path = _build(folder, shape)
    # The table of tokens stays pinned; a ring of two slots is the least beside it.
    table = 2 * shape.vocabulary * shape.hidden
    limit = f"{max(table + (64 << 20), (shape.layers << 30) // 16)}"
    gpu_memory.disk(path, ids_of(shape, 1), limit, _steps)


def peers(folder: Path, shape: Shape) -> None:
    """What others reach."""
    _build(folder, shape)
    gpu_peers.peers(folder, shape)


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "decoder": lambda o: decoder(o.folder, Shape(layers=o.layers)),
    "packed": lambda o: packed_decoder(o.folder, Shape(layers=o.layers)),
    "disk": lambda o: disk(o.folder, Shape(layers=o.layers)),
    "peers": lambda o: peers(o.folder, Shape(layers=o.layers)),
    "memory": lambda o: memory(o.folder, Shape(layers=o.layers)),
    "products": lambda o: gpu_products.products(o.seed),
    "models": lambda o: gpu_models.models(o.folder, o.cells, o.peers, o.again),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="+", choices=sorted(PARTS))
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--layers", type=int, default=Shape.layers)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--cells", nargs="+", default=gpu_models.CELLS, help="of `models`")
    parser.add_argument("--peers", nargs="+", default=gpu_models.PEERS, help="of `models`")
    parser.add_argument("--again", action="store_true", help="`models`: headrace anew")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for part in options.parts:
        PARTS[part](options)


if __name__ == "__main__":
    main()
