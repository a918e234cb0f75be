"""Every transfer of a step for a report: when it should come and came, and who waited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.artifact import schema
from headrace.plan.model import Plan, PlannedDispatch
from headrace.plan.profile import Profile
from headrace.runtime.drivers.api import Span
from headrace.runtime.drivers.null_check import SimulatedStep, simulate
from headrace.runtime.drivers.plan_parts import locations

_CLOCK_NS = 1_000
"""Clocks of GPUs tick every half microsecond."""


@dataclass(frozen=True)
class TransferLine:
    """One transfer of each step; times count from the begin of the step's first command.

    Attributes:
        fetch, segment: which of the plan, and of the file.
        weights: those that it brings a part of.
        size_bytes: brought.
        needed_by: the place in the model of the first command that reads it.
        predicted_issue_ns, predicted_arrival_ns: before 0 where the step before brings it; of
            a plan with branches as if it ran straight through.
        measured_issue_ns, measured_arrival_ns: of the last step, None where it was not traced.
        predicted_wait_ns, measured_wait_ns: how long commands wait for it, a step.
    """

    fetch: int
    segment: int
    weights: tuple[str, ...]
    size_bytes: int
    needed_by: str
    predicted_issue_ns: int
    predicted_arrival_ns: int
    measured_issue_ns: int | None
    measured_arrival_ns: int | None
    predicted_wait_ns: int
    measured_wait_ns: int


def transfer_lines(
    module: schema.Module,
    program: schema.Program,
    plan: Plan,
    profile: Profile,
    wait_ns: Sequence[int],
    traced: Sequence[Sequence[Span]],
) -> tuple[TransferLine, ...]:
    """The transfers of a plan in order of use.

    Args:
        wait_ns: measured, by fetch; empty before the first step.
        traced: the spans of the last traced steps, the last one last.
    """
    if not plan.fetches:
        return ()
    simulated = simulate(plan, profile)
    origin = min((begin for begin, _ in simulated.commands_ns), default=0)
    measured = _measured(plan, traced)
    lines: list[TransferLine] = []
    for number, fetch in enumerate(plan.fetches):
        issue, arrival = _predicted(simulated, number)
        begin, end = measured.get(number, (None, None))
        low, high = fetch.offset_bytes, fetch.offset_bytes + fetch.size_bytes
        lines.append(
            TransferLine(
                fetch=number,
                segment=fetch.segment,
                weights=tuple(
                    w.name
                    for w in module.weights
                    if w.offset_bytes < high and low < w.offset_bytes + w.size_bytes
                ),
                size_bytes=fetch.size_bytes,
                needed_by=_place(program, plan, fetch.needed_by),
                predicted_issue_ns=issue - origin,
                predicted_arrival_ns=arrival - origin,
                measured_issue_ns=begin,
                measured_arrival_ns=end,
                predicted_wait_ns=simulated.wait_ns[number],
                measured_wait_ns=wait_ns[number] if wait_ns else 0,
            )
        )
    return tuple(lines)


def _predicted(simulated: SimulatedStep, fetch: int) -> tuple[int, int]:
    brought = simulated.fetches_ns
    return brought[fetch] if fetch < len(brought) else (0, 0)


def _place(program: schema.Program, plan: Plan, number: int) -> str:
    command = plan.commands[number]
    if not isinstance(command, PlannedDispatch):
        return f"command {number}"
    places = locations(program.functions[plan.function], command)
    return ", ".join(places) or command.symbol


def _measured(plan: Plan, traced: Sequence[Sequence[Span]]) -> dict[int, tuple[int, int]]:
    """Begin and end of the transfers that the last traced step read."""
    begins: dict[int, int] = {}
    for span in traced[-1] if traced else ():
        if span.row == "compute":
            begins.setdefault(span.index, span.begin_ns)
    if not begins:
        return {}
    origin = min(begins.values())
    found: dict[int, tuple[int, int]] = {}
    for span in (span for step in traced for span in step):
        if span.row != "copy" or span.what != "bring":
            continue
        needed = begins.get(plan.fetches[span.index].needed_by, origin)
        # What a step's end brings is the next one's: it comes too late for this one.
        if span.index not in found or span.end_ns <= needed + _CLOCK_NS:
            found[span.index] = span.begin_ns - origin, span.end_ns - origin
    return found
