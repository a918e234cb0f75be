"""Traces of steps as Chrome's trace events, which Perfetto draws: computing over copying.

Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
(complete events `X`, times in microseconds; metadata events `M` name the rows).
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace.artifact import schema
from headrace.base.errors import HeadraceError, error
from headrace.base.places import why_unwritable
from headrace.plan.model import Plan, PlannedCopy, PlannedDispatch, PlannedFill
from headrace.runtime.drivers.api import Span
from headrace.runtime.drivers.plan_parts import locations

_ROWS = {"compute": 1, "copy": 2}


def check_trace_file(path: str | os.PathLike[str]) -> None:
    """Says before any step runs that a trace cannot be saved.

    Raises:
        HeadraceError HR4017: there is no such folder, or it may not be written to.
    """
    why = why_unwritable(Path(path))
    if why:
        raise _unwritable(path, why)


def _unwritable(path: str | os.PathLike[str], why: str) -> HeadraceError:
    cure = "name a file in a folder that is there"
    return error("HR4017", "the trace cannot be written", at=str(path), notes=why, helps=cure)


class Trace:
    """What traced steps did when.

    Attributes:
        events: Chrome's, in the order of the steps; times count from the first.
    """

    def __init__(self, program: schema.Program) -> None:
        self._program = program
        self._origin_ns: int | None = None
        self._steps = 0
        self.events: list[dict[str, Any]] = []

    def add_step(self, plan: Plan, spans: Sequence[Span]) -> None:
        """The spans of one more step of a plan, by begin."""
        if self._origin_ns is None and spans:
            self._origin_ns = spans[0].begin_ns
        for span in spans:
            name, facts = self._describe(plan, span)
            self.events.append(
                {
                    "name": name,
                    "cat": span.row,
                    "ph": "X",
                    "pid": 1,
                    "tid": _ROWS[span.row],
                    "ts": (span.begin_ns - (self._origin_ns or 0)) / 1e3,
                    "dur": (span.end_ns - span.begin_ns) / 1e3,
                    "args": {"step": self._steps, span.row: span.index, **facts},
                }
            )
        self._steps += 1

    def _describe(self, plan: Plan, span: Span) -> tuple[str, dict[str, Any]]:
        if span.row == "copy":
            fetch = plan.fetches[span.index]
            facts = {"size_bytes": fetch.size_bytes, "needed_by": fetch.needed_by}
            return f"{span.what} segment {fetch.segment}", facts
        command = plan.commands[span.index]
        if isinstance(command, PlannedDispatch):
            function = self._program.functions[plan.function]
            facts = {
                "place": ", ".join(locations(function, command)),
                "predicted_us": command.predicted_ns / 1e3,
                "workgroups": list(command.workgroups),
            }
            return command.symbol, facts
        if isinstance(command, (PlannedCopy, PlannedFill)):
            kind = "copy" if isinstance(command, PlannedCopy) else "fill"
            return kind, {"size_bytes": command.size_bytes}
        return "branch", {}

    def as_json(self) -> dict[str, Any]:
        """The whole document."""
        names = [{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "headrace"}}]
        for row, number in _ROWS.items():
            named = {"name": "thread_name", "ph": "M", "pid": 1, "tid": number}
            names.append({**named, "args": {"name": row}})
        return {"displayTimeUnit": "ms", "traceEvents": [*names, *self.events]}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the document for ui.perfetto.dev or chrome://tracing.

        Raises:
            HeadraceError HR4017: the file cannot be written.
        """
        try:
            Path(path).write_text(json.dumps(self.as_json()), encoding="utf-8")
        except OSError as wrong:
            raise _unwritable(path, str(wrong)) from wrong
