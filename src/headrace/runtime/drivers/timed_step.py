"""What steps of GPU drivers keep of their times until it is taken."""

from __future__ import annotations

from typing import Any

from headrace.plan.model import Plan
from headrace.runtime.drivers.api import Span, StepTimes


class TimedStep:
    """The clock of a step; a driver adds to its numbers, nanoseconds by fetch and command."""

    def __init__(self, device: Any, plan: Plan) -> None:
        self._device = device
        self._recording = self._tracing = False
        self._spans: list[Span] = []
        self._steps = 0
        self._wait_ns = [0] * len(plan.fetches)
        self._command_ns = [0] * len(plan.commands)
        self._command_runs = [0] * len(plan.commands)

    def record(self, on: bool) -> None:
        """See `api.Step.record`: recorded steps run one command at a time."""
        self._recording = on

    def trace(self, on: bool) -> None:
        """See `api.Step.trace`."""
        self._tracing = on
        self._spans.clear()

    def take_spans(self) -> tuple[Span, ...]:
        """See `api.Step.take_spans`."""
        with self._device.lock:
            found = sorted(self._spans, key=lambda s: (s.begin_ns, s.end_ns))
            self._spans.clear()
            return tuple(found)

    def take_times(self) -> StepTimes:
        """See `api.Step.take_times`. Waits of branching plans are not measured."""
        with self._device.lock:
            runs = zip(self._command_ns, self._command_runs, strict=True)
            means = [ns // max(1, count) for ns, count in runs]
            times = StepTimes(
                self._steps, sum(self._wait_ns), self._wait_ns, means if self._recording else []
            )
            self._steps = 0
            self._wait_ns = [0] * len(self._wait_ns)
            self._command_ns = [0] * len(means)
            self._command_runs = [0] * len(means)
            return times
