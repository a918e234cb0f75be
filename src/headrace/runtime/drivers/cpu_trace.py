"""The table that the CPU command machine writes a trace to."""

from __future__ import annotations

import ctypes
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
        # Each fetch is brought and dropped.
        self._room = _REPEATS * (commands + 2 * fetches + 1)
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
        spans = [_span(*entry) for entry in zip(*fields, strict=True)]
        return tuple(sorted(spans, key=lambda span: (span.begin_ns, span.end_ns)))


def _span(kind: int, record: int, begin_ns: int, end_ns: int) -> Span:
    if kind == TraceKind.DISPATCH:
        return Span("compute", record, begin_ns, end_ns)
    return Span("copy", record, begin_ns, end_ns, TraceKind(kind).name.lower())
