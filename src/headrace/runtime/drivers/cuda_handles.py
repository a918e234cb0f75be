"""Graphs and events of a step."""

from __future__ import annotations

from typing import Any

from headrace.runtime.drivers.cuda_calls import CudaCalls


class Handles:
    """What a step has of the driver, given back when the step is dropped.

    Attributes:
        graphs: executable ones.
    """

    def __init__(self, calls: CudaCalls) -> None:
        self.calls = calls
        self.graphs: list[Any] = []
        self._events: list[Any] = []
        self._timed: list[Any] = []
        self._marks: list[Any] = []

    def event(self, timed: bool = False) -> Any:
        """An event that lasts as long as the step."""
        made = self.calls.event(timed)
        (self._timed if timed else self._events).append(made)
        return made

    def mark(self) -> Any:
        """An event that is recorded and waited for only while commands are put on streams."""
        made = self.calls.event()
        self._marks.append(made)
        return made

    def spend_marks(self) -> None:
        """Gives marks back: a graph has edges for them, a stream what stood in them then."""
        for event in self._marks:
            self.calls.release_event(event)
        self._marks.clear()

    def close(self) -> None:
        """Gives everything back."""
        if not self.calls.is_open:
            return
        self.calls.enter()
        for graph in self.graphs:
            self.calls.destroy_graph(graph)
        self.graphs.clear()
        self.spend_marks()
        for event in self._events:
            self.calls.release_event(event)
        for event in self._timed:
            self.calls.release_event(event, timed=True)
        self._events.clear()
        self._timed.clear()
