"""Measuring kernels on the device: a few steps with every command timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from headrace.artifact import schema
from headrace.plan.model import Plan, PlannedDispatch
from headrace.plan.profile import kernel_key, two_digits
from headrace.runtime.arrays import aligned_array

if TYPE_CHECKING:
    from headrace.runtime.session import Session

_WARM_STEPS = 1
_STEPS = 5


def measure_kernels(
    session: Session, function: str | None, dims: Mapping[str, int]
) -> dict[str, int]:
    """Nanoseconds per whole launch by `kernel_key`, rounded to two digits.

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
    return launch_times(session.module.program, plan, typical)


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
        found.setdefault(key, []).append(sum(ns for _, ns in group))

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
        key: max(1, int(two_digits(sum(times) / len(times))))
        for key, times in sorted(found.items())
    }
