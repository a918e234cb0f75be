"""What `headrace bench` does: times of calls at several budgets, predicted beside measured."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import quantiles
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from headrace.inputs import read_inputs

if TYPE_CHECKING:
    from headrace.runtime.module import Module


def bench_module(
    module: Module,
    name: str,
    budgets: Sequence[int | str],
    arrays: Mapping[str, Any],
    function: str | None,
    runs: int,
    warm: int,
) -> dict[str, Any]:
    """Times calls of a module at each budget, one budget after another.

    Args:
        name: of the model, for the result.
        arrays: the inputs by name.
        runs: timed calls of each budget, after `warm` others.

    Returns:
        What `bench_text` prints; times in ns, sizes in bytes.
    """
    rows = [_row(module, budget, arrays, function, runs, warm) for budget in budgets]
    properties = module.device.properties
    report = module.report()
    return {
        "model": name,
        "device": properties.name,
        "driver": properties.driver,
        "threads": properties.workers,
        "load_average": os.getloadavg()[0],
        "function": report.function,
        "dims": dict(report.dims),
        "stored_bytes": module.stored_bytes,
        "runs": runs,
        "budgets": rows,
    }


def _row(
    module: Module,
    budget: int | str,
    arrays: Mapping[str, Any],
    function: str | None,
    runs: int,
    warm: int,
) -> dict[str, Any]:
    module.weight_budget = budget
    for _ in range(max(1, warm)):
        module(**arrays, function=function)
    module.report()  # what was measured until here is not of these runs
    times: list[int] = []
    for _ in range(runs):
        start = perf_counter_ns()
        module(**arrays, function=function)
        times.append(perf_counter_ns() - start)
    report = module.report()
    low, middle, high = quantiles(times, n=4) if runs > 1 else times * 3
    return {
        "weight_budget": str(budget),
        "weight_budget_bytes": report.weight_budget_bytes,
        "runs": runs,
        "median_ns": round(middle),
        "quartiles_ns": [round(low), round(high)],
        "least_ns": min(times),
        "predicted_step_ns": report.predicted_step_ns,
        "stall_ns": report.measured_stall_ns,
        "predicted_stall_ns": report.predicted_stall_ns,
        "streamed_bytes": report.streamed_bytes,
        "peak_bytes": report.measured_peak_bytes,
        "predicted_peak_bytes": report.predicted_peak_bytes,
    }


def bench_text(data: Mapping[str, Any]) -> str:
    """The table for people."""
    dims = ", ".join(f"{k}={v}" for k, v in data["dims"].items())
    head = (
        "budget", "weights", "median", "quartiles", "predicted", "waiting", "predicted",
        "peak", "predicted",
    )  # fmt: skip
    rows: list[tuple[str, ...]] = [head]
    for row in data["budgets"]:
        low, high = row["quartiles_ns"]
        rows.append(
            (
                row["weight_budget"],
                _mb(row["weight_budget_bytes"]),
                _ms(row["median_ns"]),
                f"{_ms(low)} to {_ms(high)}",
                _ms(row["predicted_step_ns"]),
                _ms(row["stall_ns"]),
                _ms(row["predicted_stall_ns"]),
                _mb(row["peak_bytes"]),
                _mb(row["predicted_peak_bytes"]),
            )
        )
    widths = [max(len(row[n]) for row in rows) for n in range(len(head))]
    lines = [
        f"{data['model']}: {data['function']}({dims}) on {data['device']}, "
        f"{data['threads']} threads, {data['runs']} runs, load {data['load_average']:.1f}; "
        "times in ms, sizes in MB"
    ]
    lines += [
        "  " + "  ".join(text.ljust(w) for text, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join(lines)


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.2f}"


def _ms(ns: float) -> str:
    return f"{ns / 1e6:.3f}"


def bench(
    path: str | os.PathLike[str],
    device: str,
    budgets: Sequence[int | str],
    runs: int,
    warm: int,
    calibrate: bool,
    inputs: Sequence[str],
    seed: int,
    dims: Mapping[str, int],
    threads: int | None,
    function: str | None,
) -> dict[str, Any]:
    """Opens a `.hrx` and times it; see `api.bench`."""
    from headrace.runtime.module import load_module

    options = {} if threads is None else {"threads": threads}
    with load_module(path, device, budgets[0], **options) as module:
        arrays = read_inputs(inputs, module.inputs_of(function), dims, seed)
        module(**arrays, function=function)
        if calibrate:
            module.calibrate(function=function)
        return bench_module(module, Path(path).name, budgets, arrays, function, runs, warm)
