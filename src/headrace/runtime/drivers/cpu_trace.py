"""The table that the CPU command machine writes a trace to."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from headrace.runtime.drivers.api import Span
from headrace.runtime.drivers.cpu_machine_layout import (
    TRACE_ENTRY_WORDS,
    TRACE_HEADER_WORDS,
    TraceKind,
)

_REPEATS = 64
"""Loops run commands again: room for so many times what a plan says once."""


class CpuTrace:
    """Entries of one step.

    Attributes:
        address: as `Context.TRACE` takes it.
    """

    def __init__(self, commands: int, fetches: int) -> None:
        # A command may begin inside another; each fetch is brought and dropped.
        self._room = _REPEATS * (2 * commands + 2 * fetches + 1)
        count = TRACE_HEADER_WORDS + TRACE_ENTRY_WORDS * self._room
        self._words: Any = (ctypes.c_uint64 * count)()
        self._words[1] = self._room
        self.address = ctypes.addressof(self._words)

    def take(self) -> tuple[Span, ...]:
        """What was written since it was last asked, by begin."""
        count = min(self._words[0], self._room)
        end = TRACE_HEADER_WORDS + TRACE_ENTRY_WORDS * count
        flat = self._words[TRACE_HEADER_WORDS:end]
        self._words[0] = 0
        fields = [flat[word::TRACE_ENTRY_WORDS] for word in range(TRACE_ENTRY_WORDS)]
        return tuple(_spans(sorted(zip(*fields, strict=True), key=lambda e: (e[2], e[3]))))


def _spans(entries: Sequence[tuple[int, ...]]) -> list[Span]:
    """Spans by begin; a dispatch that has gone on with slices is cut where it did."""
    spans: list[Span] = []
    dispatch = -1  # where in the list the one stands that runs
    for kind, record, begin_ns, end_ns in entries:
        if kind == TraceKind.DISPATCH:
            dispatch = len(spans)
            spans.append(Span("compute", record, begin_ns, end_ns))
        elif kind != TraceKind.SLICE:
            spans.append(Span("copy", record, begin_ns, end_ns, TraceKind(kind).name.lower()))
        elif dispatch >= 0 and spans[dispatch].index != record:
            whole = spans[dispatch]
            spans[dispatch] = replace(whole, end_ns=begin_ns)
            dispatch = len(spans)
            spans.append(Span("compute", record, begin_ns, whole.end_ns))
    return spans
