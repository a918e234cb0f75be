"""What is put on streams or into a graph: commands, transfers, slices beside one another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from headrace.plan.model import Fetch, PlannedCommand, PlannedDispatch
from headrace.runtime.drivers.cuda_calls import CudaCalls
from headrace.runtime.drivers.cuda_commands import Commands

Wait: TypeAlias = tuple[int, tuple[Any, ...], Any]
"""Timed events around a wait: the fetch, what had to end before waiting, after."""


def brought_ahead(fetch: Fetch) -> bool:
    """Whether the step before brings it."""
    return fetch.issue_after < 0 and not fetch.at_begin


class Transfers:
    """The transfers of one graph while it is captured: in order, each as early as it may.

    Attributes:
        arrived: event of each fetch that this graph brings itself.
    """

    def __init__(self, step: Any, run: int, begin: int, head_is_there: bool) -> None:
        self._step: Any = step
        self._run = run
        self._calls: CudaCalls = step.device.calls
        self._device: Any = step.device
        self._handles: Any = step.handles
        self._fetches = step.plan.fetches
        self._forked = False
        self.arrived: dict[int, Any] = {}
        end = next(e for b, e in step.runs if b == begin)
        if head_is_there:
            end = len(step.plan.commands)
        self._queue = [
            n
            for n, f in enumerate(self._fetches)
            if begin <= f.needed_by < end and not (head_is_there and brought_ahead(f))
        ]
        self._next = 0
        marks = {f.issue_after for f in self._fetches}
        if head_is_there:
            marks |= {f.previous_issue_after for f in self._fetches if brought_ahead(f)}
        self._marks = marks
        self._ran: dict[int, tuple[Any, ...]] = {}
        self._slices: list[Any] = []

    def ran(self, command: int, stream: Any, of_several: bool, beside: bool) -> None:
        """A command has been put on a stream; transfers may wait for it.

        Args:
            of_several: it is one of several slices that run beside one another: who waits
                for it waits for those before it too.
            beside: it is not the first of them.
        """
        if not beside:
            self._slices.clear()
        if of_several or command in self._marks:
            event = self._handles.mark()
            self._calls.record(event, stream)
            self._slices.append(event)
            self._ran[command] = tuple(self._slices)

    def issue_until(self, command: int) -> None:
        """Puts on what may begin once `command` has run."""
        while self._next < len(self._queue):
            number = self._queue[self._next]
            after = self._fetches[number].issue_after
            if after > command:
                return
            self._wait_for(after)
            self._step.traced_transfer(self._run, number)
            event = self._handles.mark()
            self._calls.record(event, self._device.copy_stream)
            self.arrived[number] = event
            self._next += 1

    def tail(self) -> None:
        """The next step's head, each where its place is free in this one."""
        for number, fetch in enumerate(self._fetches):
            if brought_ahead(fetch):
                self._wait_for(fetch.previous_issue_after)
                self._step.traced_transfer(self._run, number)

    def _wait_for(self, command: int) -> None:
        """The copy stream joins the graph, and waits for a command of it."""
        calls, copies = self._calls, self._device.copy_stream
        if not self._forked:
            self._forked = True
            event = self._handles.mark()
            calls.record(event, self._device.stream)
            calls.wait(copies, event)
        for event in self._ran.get(command, ()):
            calls.wait(copies, event)

    def join(self) -> None:
        """The graph ends when its transfers have."""
        if self._forked:
            event = self._handles.mark()
            self._calls.record(event, self._device.copy_stream)
            self._calls.wait(self._device.stream, event)


class Branches:
    """Streams for slices that run beside the ones of their launch before them.

    A launch takes whole waves of workgroups, and a slice of one leaves most of the device
    idle: so the slices of a launch are branches of the graph, each from where the launch
    may begin and its weights are there. What follows waits for all of them.

    Attributes:
        ends: timed events behind the slices of the open launch, in order.
    """

    def __init__(
        self,
        step: Any,
        commands: Sequence[PlannedCommand],
        one_by_one: bool = False,
        timed: bool = True,
    ) -> None:
        """With `one_by_one` no slice runs beside another: a trace shows them in one row.
        Without `timed` there are no `ends`."""
        self._step: Any = step
        self._one_by_one, self._timed = one_by_one, timed
        self._calls: CudaCalls = step.device.calls
        self._main: Any = step.device.stream
        self._sides: tuple[Any, ...] = step.device.side_streams
        self._handles: Any = step.handles
        self._commands = commands
        self._fork: Any = None
        self._used: list[Any] = []
        self._count = 0
        self.ends: list[Any] = []

    @property
    def is_open(self) -> bool:
        """Whether slices of a launch run beside one another now."""
        return self._fork is not None

    def begins(self, number: int) -> bool:
        """Whether the command runs beside the one before it."""
        if self._one_by_one or number >= len(self._commands):
            return False
        command = self._commands[number]
        return isinstance(command, PlannedDispatch) and command.together_ns > 0

    def stream(self, number: int) -> Any:
        """The stream for a command; the launch before it is joined where it ends here."""
        calls = self._calls
        if not self.begins(number):
            self.join()
            if self.begins(number + 1):
                self._fork = self._handles.mark()
                calls.record(self._fork, self._main)
            return self._main
        side = self._sides[self._count % len(self._sides)]
        self._count += 1
        if side not in self._used:
            self._used.append(side)
            calls.wait(side, self._fork)
        return side

    def ran(self, number: int, stream: Any) -> bool:
        """The command has been put on its stream; whether it is one of several slices."""
        if self._fork is None:
            return False
        if self._timed and self.begins(number + 1):
            end = self._handles.event(True)
            self._step.note(end, stream)
            self.ends.append(end)
        return True

    def join(self) -> None:
        """What comes next on the main stream waits for all slices."""
        for side in self._used:
            event = self._handles.mark()
            self._calls.record(event, side)
            self._calls.wait(self._main, event)
        self._used.clear()
        self.ends.clear()
        self._fork, self._count = None, 0


def put_commands(
    step: Any,
    commands: Commands,
    run: int,
    transfers: Transfers,
    waits: list[Wait],
    traced: bool,
) -> None:
    """Puts the commands of a straight run of a `CudaStep` and their transfers on the streams.

    Args:
        waits: gets those that are timed.
        traced: every command stands between events.
    """
    calls: CudaCalls = step.device.calls
    planned: Sequence[PlannedCommand] = step.plan.commands
    begin, end = step.runs[run]
    branches = Branches(step, planned, traced, step.times_waits)
    follows = False
    for number in range(begin, end):
        transfers.issue_until(number - 1)
        command = planned[number]
        was_open = branches.is_open
        stream = branches.stream(number)
        follows = follows and not (was_open or branches.is_open)
        if isinstance(command, PlannedDispatch):
            for fetch in command.waits:
                arrived = transfers.arrived.get(fetch)
                if arrived is None:
                    continue  # brought before this graph began
                follows = False
                if not step.times_waits:
                    calls.wait(stream, arrived)
                    continue
                before, after = step.handles.event(True), step.handles.event(True)
                step.note(before, stream)
                calls.wait(stream, arrived)
                step.note(after, stream)
                waits.append((fetch, (before, *branches.ends), after))
        if traced:
            with step.marked(run, "compute", number, stream):
                commands.issue(number, stream)
        else:
            commands.issue(number, stream, follows)
            # Alone on a stream a launch may have an event before it.
            follows = step.captures and commands.launches(number)
        several = branches.ran(number, stream)
        transfers.ran(number, stream, several, branches.begins(number))
    branches.join()
    transfers.issue_until(end - 1)
