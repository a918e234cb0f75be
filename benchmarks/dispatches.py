"""Where a step's time goes: every dispatch of a model with its time, rate and share.

    python benchmarks/dispatches.py resnet50 --folder FOLDER        # models by name
    python benchmarks/dispatches.py path/to/model.onnx --dims h=48  # or any file

One thread, weights resident. `--device cuda` puts each command 20 times into a graph of its
own, so that no event stands between launches; files must be compiled for it. A dispatch's time is the smallest over the measured steps:
other work on the machine can only add to it (`--median` for the median). Dispatches of one
kernel on one shape are one row; rates are of useful work: a multiply-add is two
operations, bytes are those of every binding once.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import headrace
from headrace.artifact import schema
from headrace.plan.model import Plan, PlannedDispatch
from headrace.runtime.arrays import aligned_array
from headrace.runtime.drivers.cuda_timing import repeated_ns

_SUMS = ("contract", "convolution", "winograd")
"""Families whose operations are multiply-adds: two each."""


@dataclass
class Row:
    """Dispatches alike.

    Attributes:
        name, family: of the kernel.
        sizes_bytes, workgroups: of the first dispatch.
        operations: of one dispatch, in the artifact's count.
        times_ns: one a dispatch.
        locations: where they come from in the user's model.
    """

    name: str
    family: str
    sizes_bytes: tuple[int, ...]
    workgroups: tuple[int, int, int]
    operations: int
    times_ns: list[int] = field(default_factory=list[int])
    locations: list[str] = field(default_factory=list[str])

    @property
    def total_ns(self) -> int:
        return sum(self.times_ns)

    @property
    def rate(self) -> str:
        """What the dispatch is bound by, more or less."""
        mean = max(1.0, self.total_ns / len(self.times_ns))
        if self.family in _SUMS:
            return f"{2 * self.operations / mean:.1f} GFLOP/s"
        return f"{sum(self.sizes_bytes) / mean:.1f} GB/s"


def rows(
    module: Any, steps: int, sizes: Mapping[str, int], use_median: bool
) -> tuple[list[Row], int]:
    """Runs a few steps with every command timed; rows in the order of the program."""
    with module.session() as session, session.lock:
        executor = session.executor(None)
        random = np.random.default_rng(0)
        arrays: list[Any] = []
        for signature in executor.function.inputs:
            shape = tuple(e.evaluate(sizes) for e in signature.shape)
            array = aligned_array(shape, signature.dtype.numpy_dtype)
            whole = signature.dtype.is_integer
            array[...] = (
                random.integers(0, 2, shape) if whole else random.standard_normal(shape)
            )
            arrays.append(array)
        prepared = executor.prepare(arrays)
        outputs = [aligned_array(shape, dtype) for shape, dtype in prepared.outputs]
        step: Any = prepared.step
        if module.device.device_class == "cuda":
            step.run(arrays, outputs)
            times = _repeated(step, prepared.plan)
            return _grouped(
                session.module.program, executor.function, prepared.plan, times, sizes
            )
        step.record(True)
        samples: list[list[int]] = []
        for _ in range(steps):
            step.run(arrays, outputs)
            samples.append(step.take_times().command_ns)
        step.record(False)
    pick = median if use_median else min
    times = [int(pick(ns)) for ns in zip(*samples[1:], strict=True)]
    return _grouped(session.module.program, executor.function, prepared.plan, times, sizes)


def _repeated(step: Any, plan: Plan) -> list[int]:
    """Nanoseconds of each command; those that are the same launch are measured once."""
    known: dict[Any, int] = {}
    found: list[int] = []
    for number, command in enumerate(plan.commands):
        if isinstance(command, PlannedDispatch):
            key: Any = (command.executable, command.symbol, command.workgroups)
        else:
            key = number
        if key not in known:
            known[key] = repeated_ns(step, [number], 20, 3)
        found.append(known[key])
    return found


def _grouped(
    program: schema.Program,
    function: schema.EntryFunction,
    plan: Plan,
    times: Sequence[int],
    sizes: Mapping[str, int],
) -> tuple[list[Row], int]:
    found: dict[tuple[Any, ...], Row] = {}
    everything = 0
    for command, ns in zip(plan.commands, times, strict=True):
        everything += ns
        if not isinstance(command, PlannedDispatch):
            continue
        source = function.body.commands[command.command] if command.command >= 0 else None
        operations, location = 0, ""
        if isinstance(source, schema.Dispatch):
            operations, location = source.operations.evaluate(sizes), source.location
        executable = program.executables[command.executable]
        name = executable.entry_points[command.entry_point].name
        key = (name, command.symbol, command.sizes_bytes, command.workgroups)
        if key not in found:
            found[key] = Row(
                name,
                _family(executable, command),
                command.sizes_bytes,
                command.workgroups,
                operations,
            )
        found[key].times_ns.append(ns)
        found[key].locations.append(location)
    return list(found.values()), everything


def _family(executable: schema.Executable, command: PlannedDispatch) -> str:
    for variant in executable.variants:
        for specialisation in variant.entry_points[command.entry_point]:
            for launch in specialisation.launches:
                if launch.symbol == command.symbol:
                    return launch.family
    return "?"


def show(module: Any, options: argparse.Namespace, sizes: Mapping[str, int]) -> None:
    table, everything = rows(module, options.steps, sizes, options.median)
    if not options.in_order:
        table.sort(key=lambda row: -row.total_ns)
    print(f"{everything / 1e6:.2f} ms in all, load {os.getloadavg()[0]:.1f}")
    print("| share | us each | count | family | rate | workgroups | KB | kernel | first at |")
    print("|---|---|---|---|---|---|---|---|---|")
    for row in table[: options.top]:
        kilobytes = " ".join(f"{size / 1024:.0f}" for size in row.sizes_bytes)
        groups = "x".join(str(w) for w in row.workgroups)
        print(
            f"| {100 * row.total_ns / everything:.1f} % "
            f"| {row.total_ns / len(row.times_ns) / 1e3:.1f} | {len(row.times_ns)} "
            f"| {row.family} | {row.rate} | {groups} | {kilobytes} | {row.name} "
            f"| {row.locations[0][-50:]} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "models", nargs="+", help="names of benchmarks/models.py, chain, or files"
    )
    parser.add_argument("--folder", type=Path, help="where the models are")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dims", nargs="*", default=[], help="named sizes: NAME=SIZE")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--top", type=int, default=40)
    parser.add_argument("--median", action="store_true")
    parser.add_argument("--in-order", action="store_true", help="as they run, not by time")
    parser.add_argument("--again", action="store_true", help="compile, even if it was before")
    options = parser.parse_args()
    given = {n: int(v) for n, _, v in (d.partition("=") for d in options.dims)}
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for model in options.models:
            compiled, usual = _compiled(model, folder, options.again)
            threads = {"threads": 1} if options.device == "cpu" else {}
            with headrace.load(
                compiled, options.device, weight_budget="max", **threads
            ) as module:
                print(f"\n## {model}")
                show(module, options, {**usual, **given})


def _compiled(model: str, folder: Path, again: bool) -> tuple[Path, dict[str, int]]:
    """The compiled file, and the sizes that are usual for the model."""
    if Path(model).suffix:
        source = Path(model)
        compiled = source if source.suffix == ".hrx" else folder / f"{source.stem}.hrx"
        if compiled != source and (again or not compiled.exists()):
            headrace.compile(source, compiled)
        return compiled, {}
    import limits

    compiled, inputs = limits.build(folder, model)
    sizes = {"batch": 1}
    if "input_ids" in inputs:
        sizes["sequence"] = inputs["input_ids"].shape[1]
    return compiled, sizes


if __name__ == "__main__":
    main()
