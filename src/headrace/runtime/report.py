"""What a module says of its last steps: predicted and measured side by side."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.artifact import schema
from headrace.plan.beside import Beside
from headrace.plan.budget import format_bytes
from headrace.plan.model import Plan
from headrace.runtime.transfers import TransferLine

_MOST_SHOWN = 6


@dataclass(frozen=True)
class WeightLine:
    """One weight in a report.

    Attributes:
        stored_bytes: in the pool.
        resident_bytes: that stay between steps.
        streamed_bytes: brought by each step.
    """

    name: str
    stored_bytes: int
    resident_bytes: int
    streamed_bytes: int


@dataclass(frozen=True)
class Report:
    """The last plan that ran and what was measured with it.

    Attributes:
        device, driver: where.
        function, dims: what; dims are sorted pairs.
        steps: how many were measured with this plan.
        predicted_step_ns, measured_step_ns: of a steady step; measured is the median.
        predicted_stall_ns, measured_stall_ns: waiting for weights, per step.
        predicted_peak_bytes: slab, weights and ring; measured_peak_bytes: slab and
            variables held by all sessions, and weights.
        staging_bytes: held beside these for inputs and outputs that had to be copied.
        context_bytes, code_bytes: held beside these by the driver and by machine code.
        weight_budget_bytes, minimum_budget_bytes, stored_bytes: of weights.
        streamed_bytes: brought by each step.
        weights: one line per weight, in the order of the file.
        transfers: of each step, in order of use: issue, arrival, who waited.
        stalls: (fetch, ns per step) for those waited for, the longest first.
        interpreted: commands that an interpreter ran instead of compiled code.
        notes: a slower way taken, and why.
    """

    device: str
    driver: str
    function: str
    dims: tuple[tuple[str, int], ...]
    steps: int
    predicted_step_ns: int
    measured_step_ns: int
    predicted_stall_ns: int
    measured_stall_ns: int
    predicted_peak_bytes: int
    measured_peak_bytes: int
    staging_bytes: int
    context_bytes: int
    code_bytes: int
    weight_budget_bytes: int
    minimum_budget_bytes: int
    stored_bytes: int
    streamed_bytes: int
    weights: tuple[WeightLine, ...]
    transfers: tuple[TransferLine, ...]
    stalls: tuple[tuple[int, int], ...]
    interpreted: int
    notes: tuple[str, ...]

    def __str__(self) -> str:
        dims = ", ".join(f"{name}={size}" for name, size in self.dims)
        lines = [
            f"{self.function}({dims}) on {self.device}, {self.driver}",
            f"  step      predicted {_time(self.predicted_step_ns)}, measured "
            f"{_time(self.measured_step_ns)} (median of {self.steps})",
            f"  stall     predicted {_time(self.predicted_stall_ns)}, measured "
            f"{_time(self.measured_stall_ns)}",
            f"  peak      predicted {format_bytes(self.predicted_peak_bytes)}, measured "
            f"{format_bytes(self.measured_peak_bytes)}",
            f"  weights   {format_bytes(self.stored_bytes)} stored, budget "
            f"{format_bytes(self.weight_budget_bytes)}, minimum "
            f"{format_bytes(self.minimum_budget_bytes)}",
            f"  streamed  {format_bytes(self.streamed_bytes)} per step",
            *self._beside(),
            *self._waited_for(),
            f"  interpreted commands: {self.interpreted}",
        ]
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)

    def _beside(self) -> tuple[str, ...]:
        held = Beside(self.context_bytes, self.code_bytes, self.staging_bytes)
        return (f"  beside    {held}",) if held.total_bytes else ()

    def _waited_for(self) -> list[str]:
        """The transfers that commands wait for, the longest first."""
        waited = [t for t in self.transfers if t.measured_wait_ns or t.predicted_wait_ns]
        waited.sort(key=lambda t: (-t.measured_wait_ns, -t.predicted_wait_ns, t.fetch))
        if not self.transfers:
            return []
        lines = [f"  transfers {len(self.transfers)} per step, {len(waited)} waited for"]
        lines += [f"    {_transfer(t)}" for t in waited[:_MOST_SHOWN]]
        if len(waited) > _MOST_SHOWN:
            lines.append(f"    and {len(waited) - _MOST_SHOWN} more")
        return lines


def _transfer(line: TransferLine) -> str:
    begin, end = line.measured_issue_ns, line.measured_arrival_ns
    when = "" if begin is None or end is None else f"{_time(begin)} to {_time(end)}, "
    return (
        f"{', '.join(line.weights) or f'segment {line.segment}'} for {line.needed_by}: "
        f"{format_bytes(line.size_bytes)}, predicted {_time(line.predicted_issue_ns)} to "
        f"{_time(line.predicted_arrival_ns)}, wait {_time(line.predicted_wait_ns)}; "
        f"measured {when}wait {_time(line.measured_wait_ns)}"
    )


def _time(ns: int) -> str:
    if ns < 0:
        return f"-{_time(-ns)}"
    for unit, factor in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if ns >= factor:
            return f"{ns / factor:.3g} {unit}"
    return f"{ns} ns"


def weight_lines(module: schema.Module, plan: Plan) -> tuple[WeightLine, ...]:
    """How many bytes of each weight stay and how many each step brings."""
    kept = [
        (s.offset_bytes, s.offset_bytes + s.size_bytes)
        for s in (module.segments[i] for i in plan.resident)
    ]
    brought = [(f.offset_bytes, f.offset_bytes + f.size_bytes) for f in plan.fetches]
    return tuple(
        WeightLine(w.name, w.size_bytes, _overlap(w, kept), _overlap(w, brought))
        for w in module.weights
    )


def _overlap(weight: schema.Weight, ranges: list[tuple[int, int]]) -> int:
    begin, end = weight.offset_bytes, weight.offset_bytes + weight.size_bytes
    return sum(max(0, min(end, high) - max(begin, low)) for low, high in ranges)
