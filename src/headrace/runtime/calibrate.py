"""Measuring kernels on the device: a few steps with every command timed, then as they run.

A command that is timed alone takes longer than among others (events around it cost a GPU
2 us and more) or shorter (its weights still stand in the processor's cache). So where nothing
streams the times are fitted: together they take what a whole step does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.artifact import schema
from headrace.plan.model import Plan, PlannedBranch, PlannedDispatch, PlannedJump
from headrace.plan.profile import kernel_key, rounded
from headrace.runtime.arrays import aligned_array

if TYPE_CHECKING:
    from headrace.runtime.drivers.api import Step
    from headrace.runtime.session import Session

_WARM_STEPS = 1
_STEPS = 5
_DIGITS = 3
"""Of a kernel's time: sixty equal kernels, each two percent off, are two percent of a step."""


def measure_kernels(
    session: Session, function: str | None, dims: Mapping[str, int]
) -> dict[str, int]:
    """Nanoseconds per whole launch by `kernel_key`, rounded to three digits.

    Runs a few steps at the module's budget on inputs of zeros. What does not run then (a
    branch not taken) has no entry.
    """
    with session.lock:
        executor = session.executor(function).head
        arrays = [
            _zeros(tuple(e.evaluate(dims) for e in i.shape), i.dtype.numpy_dtype)
            for i in executor.function.inputs
        ]
        prepared = executor.prepare(arrays)
        outputs = [aligned_array(shape, dtype) for shape, dtype in prepared.outputs]
        step, plan = prepared.step, prepared.plan
        step.record(True)
        try:
            samples: list[list[int]] = []
            for number in range(_WARM_STEPS + _STEPS):
                step.run(arrays, outputs)
                times = step.take_times()
                if number >= _WARM_STEPS:
                    samples.append(times.command_ns)
        finally:
            step.record(False)
        typical = [int(median(ns)) for ns in zip(*samples, strict=True)]
        straight = not any(isinstance(c, PlannedBranch | PlannedJump) for c in plan.commands)
        if straight and not plan.fetches:
            typical = fitted(typical, _step_ns(step, arrays, outputs))
    return launch_times(session.module.program, plan, typical)


def _step_ns(step: Step, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """Median time of steps as they always run."""
    found: list[int] = []
    for _ in range(_WARM_STEPS + _STEPS):
        begin = perf_counter_ns()
        step.run(inputs, outputs)
        found.append(perf_counter_ns() - begin)
    return int(median(found[_WARM_STEPS:]))


def fitted(times_ns: Sequence[int], whole_ns: int) -> list[int]:
    """Times of commands, changed so that all together take `whole_ns`.

    Timed too long, each has the same taken off, at most seven eighths of it: what timing
    costs. Timed too short, each grows by its share.
    """
    excess = sum(times_ns) - whole_ns
    count = sum(1 for ns in times_ns if ns)
    if not count:
        return list(times_ns)
    off = max(0, excess) / count
    less = [max(ns - off, ns / 8) for ns in times_ns]
    scale = whole_ns / sum(less)
    return [max(1, int(ns * scale)) if ns else 0 for ns in less]


def _zeros(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> np.ndarray:
    array = aligned_array(shape, dtype)
    array[...] = np.zeros((), dtype)
    return array


def launch_times(
    program: schema.Program, plan: Plan, command_ns: Sequence[int]
) -> dict[str, int]:
    """Times of whole launches from those of their slices; launches of one key averaged."""
    found: dict[str, list[int]] = {}
    group: list[tuple[PlannedDispatch, int]] = []

    def close() -> None:
        if not group or not all(ns for _, ns in group):
            return
        first = group[0][0]
        x, y, z = (
            max(d.first_workgroup[axis] + d.workgroups[axis] for d, _ in group)
            for axis in range(3)
        )
        digest = program.executables[first.executable].digest
        key = kernel_key(digest, first.symbol, plan.dims, (x, y, z))
        whole = sum(ns for _, ns in group)
        last, alone = group[-1][0], sum(d.predicted_ns for d, _ in group)
        if last.together_ns and alone:
            # Slices that each took a wave for a part of one: less together.
            whole = whole * last.together_ns // alone
        found.setdefault(key, []).append(whole)

    for command, ns in zip(plan.commands, command_ns, strict=True):
        # A launch begins at workgroup 0; its further slices follow it.
        begins = not isinstance(command, PlannedDispatch) or command.first_workgroup == (
            0,
            0,
            0,
        )
        if begins:
            close()
            group.clear()
        if isinstance(command, PlannedDispatch):
            group.append((command, ns))
    close()
    return {
        key: max(1, int(rounded(sum(times) / len(times), _DIGITS)))
        for key, times in sorted(found.items())
    }
