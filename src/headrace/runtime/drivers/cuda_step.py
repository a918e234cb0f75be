"""A plan as CUDA graphs: one for each straight run of its commands, copies inside.

Two streams are captured into a graph: commands on one, transfers of weights on the other.
A transfer waits for the command after which its place in the ring is free, a command for
the transfers it reads. A plan without branches is one graph, and its tail brings the first
weights of the *next* step while the last commands run: an event before that marks the
outputs ready, so the host goes on while the tail still copies. The first step after a
change brings them itself; where it is long enough it runs command by command, and the graph
is made while it runs.

A plan with branches runs a graph per straight run; the host reads each condition.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal

from headrace.artifact import schema
from headrace.base.errors import HeadraceError, error
from headrace.plan.model import Plan, PlannedBranch, PlannedDispatch, PlannedJump
from headrace.runtime.arrays import address_of
from headrace.runtime.drivers.api import Span, StepTimes
from headrace.runtime.drivers.cuda_calls import CudaCalls
from headrace.runtime.drivers.cuda_commands import Commands, Spaces
from headrace.runtime.drivers.cuda_disk import EMPTY, FULL
from headrace.runtime.drivers.cuda_handles import Handles
from headrace.runtime.drivers.cuda_link import CudaCode
from headrace.runtime.drivers.cuda_memory import CudaState
from headrace.runtime.drivers.cuda_transfers import (
    Transfers,
    Wait,
    brought_ahead,
    put_commands,
)
from headrace.runtime.drivers.cuda_weights import CudaWeights
from headrace.runtime.drivers.plan_parts import straight_runs
from headrace.runtime.drivers.timed_step import TimedStep

_PUT_NS = 18_000
"""What it takes the host to put a command or a transfer on a stream: 10 to 25 us measured beside an
H200."""


class CudaStep(TimedStep):
    """A plan made ready on one session's state; graphs are made by the first run."""

    def __init__(
        self,
        device: Any,
        function: schema.EntryFunction,
        plan: Plan,
        code: CudaCode,
        weights: CudaWeights,
        state: CudaState,
    ) -> None:
        """Raises HeadraceError HR3013, HR3014: no room for inputs and outputs."""
        super().__init__(device, plan)
        self.device: Any = device
        self._calls: CudaCalls = device.calls
        self._function = function
        self.plan = plan
        self._code = code
        self._weights = weights
        self._state = state
        dims = dict(plan.dims)
        signatures = (*function.inputs, *function.outputs)
        self._sizes = [
            function.resources[s.resource].size_bytes.evaluate(dims) for s in signatures
        ]
        self._places = state.stage(self._sizes)
        for after, before in function.aliases:
            self._places[len(function.inputs) + after] = self._places[before]
        self._generation = state.generation
        self._made_for = -1
        self._unread = 0
        self.captures = False
        self.runs = straight_runs(plan)
        self._run_of = {begin: number for number, (begin, _) in enumerate(self.runs)}
        self._branches = any(isinstance(c, PlannedBranch | PlannedJump) for c in plan.commands)
        self.handles = Handles(self._calls)
        weakref.finalize(self, Handles.close, self.handles).atexit = False
        self._done = self.handles.event()
        # Events around a wait take 15 us. Where next to nothing is computed they cost nothing;
        # where computing is a quarter of the step they are a thirtieth of it.
        foreseen = plan.prediction
        self.times_waits = foreseen.stall_ns > foreseen.step_ns * 7 // 8
        self._drop_graphs()

    def _drop_graphs(self) -> None:
        self._read_waits()
        self.handles.close()
        self._done = self.handles.event()
        self._commands: Commands | None = None
        self._graphs: list[Any] = [None] * len(self.runs)
        self._waits: list[list[Wait]] = [[] for _ in self.runs]
        self._last_waits: list[Wait] = []
        # Of a traced step: (row, command or fetch, before, after) per run.
        self._marks: list[list[tuple[Literal["compute", "copy"], int, Any, Any]]] = [
            [] for _ in self.runs
        ]
        self._origin: Any = None

    def trace(self, on: bool) -> None:
        """See `api.Step.trace`: traced graphs have events around every node."""
        super().trace(on)
        self._made_for = -1

    # -- running ----------------------------------------------------------------------

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """See `api.Step.run`."""
        device, calls = self.device, self._calls
        with device.lock:
            if self._generation != self._state.generation:
                raise error("HR9303", "a step is run on a slab that has moved")
            calls.enter()
            try:
                self._weights.begin_step(self.plan)
                if self._made_for != self._weights.generation:
                    self._drop_graphs()
                    if not (self._branches or self._recording or device.synchronous):
                        self._bring_head()
                    self._commands = self._make_commands()
                    self._made_for = self._weights.generation
                pinned = self._state.pinned.address
                count = len(inputs)
                for array, place in zip(inputs, self._places[:count], strict=True):
                    ctypes.memmove(pinned + place, address_of(array), array.nbytes)
                if self._tracing and self._origin is None:
                    self._origin = self.handles.event(True)
                    calls.record(self._origin, device.stream)
                if self._recording or device.synchronous:
                    self._run_one_by_one()
                elif self._branches:
                    self._run_branching()
                else:
                    self._run_straight()
                for array, place in zip(outputs, self._places[count:], strict=True):
                    ctypes.memmove(address_of(array), pinned + place, array.nbytes)
            except BaseException:
                # What stands in the ring is not known any more, nor what the events hold.
                self._weights.head = None
                self._unread = 0
                raise
            self._steps += 1

    def _make_commands(self) -> Commands:
        state, function = self._state, self._function
        external = tuple(state.staging + place for place in self._places)
        variables = tuple(
            state.variables[r.name] for r in function.resources if r.lifetime == "variable"
        )
        spaces = Spaces(state.slab, external, variables)
        return Commands(self._calls, function, self.plan, self._code, self._weights, spaces)

    def _run_straight(self) -> None:
        calls, done = self._calls, self._done
        if self._graphs[0] is None and self._hides_capture():
            done = self._run_and_capture()
        else:
            if self._graphs[0] is None:
                self._graphs[0] = self._capture_straight()
            self._bring_head()
            calls.launch_graph(self._graphs[0], self.device.stream)
            self._last_waits = self._waits[0]
        if self._weights.disk is None:
            calls.finish_event(done)
        else:
            calls.poll_event(done)
            self._weights.disk.check()
        self._unread += 1
        self._note_spans(0)

    def _hides_capture(self) -> bool:
        """Whether a step is long enough that its graph is made while it runs."""
        plan = self.plan
        put_ns = _PUT_NS * (len(plan.commands) + len(plan.fetches))
        waits_for_disk = self._weights.disk is not None
        return bool(plan.fetches) and not (
            self._tracing or waits_for_disk or plan.prediction.step_ns < put_ns
        )

    def _run_and_capture(self) -> Any:
        """Puts one step on the streams command by command, and makes the graph of the next ones
        while it runs; an event that marks the outputs ready.

        So a change of budget waits for neither the capture nor what a graph's first launch
        takes: 40 ms of a decoder of 16 layers.
        """
        calls, device = self._calls, self.device
        done = self.handles.event()
        self._last_waits = []
        self._bring_head()
        try:
            self._put_step(done, self._last_waits)
        except BaseException:
            # What is there already writes to the slab until it has ended.
            for stream in (device.stream, device.copy_stream, *device.side_streams):
                with suppress(HeadraceError):
                    calls.finish(stream)
            raise
        self.handles.spend_marks()
        self._graphs[0] = self._capture_straight()
        calls.upload_graph(self._graphs[0], device.stream)
        return done

    def _put_step(self, done: Any, waits: list[Wait]) -> None:
        """Puts a whole step on the streams but the head of its transfers, which is there."""
        self._copy_inputs()
        transfers = Transfers(self, 0, 0, True)
        self._put_commands(0, transfers, waits)
        self._copy_outputs()
        self.note(done, self.device.stream)
        transfers.tail()
        transfers.join()

    def _put_commands(self, run: int, transfers: Transfers, waits: list[Wait]) -> None:
        # A capture that failed has left events which nothing records.
        waits.clear()
        self._marks[run].clear()
        assert self._commands is not None
        put_commands(self, self._commands, run, transfers, waits, self._tracing)

    def _capture_straight(self) -> Any:
        return self._capture(lambda: self._put_step(self._done, self._waits[0]))

    def note(self, event: Any, stream: Any) -> None:
        """Records an event that the host asks about, also from inside of a graph."""
        if self.captures:
            self._calls.record_outside(event, stream)
        else:
            self._calls.record(event, stream)

    def _capture(self, body: Any) -> Any:
        calls, stream = self._calls, self.device.stream
        calls.begin_capture(stream)
        self.captures = True
        try:
            body()
        except BaseException:
            calls.abandon_capture(stream)
            raise
        finally:
            self.captures = False
        graph = calls.end_capture(stream)
        self.handles.graphs.append(graph)
        self.handles.spend_marks()
        return graph

    def _bring_head(self) -> None:
        """Before the first step: what the tail of the step before would have brought."""
        if self._weights.head is self.plan:
            return
        self._weights.restart_disk()
        calls, device = self._calls, self.device
        heads = [n for n, f in enumerate(self.plan.fetches) if brought_ahead(f)]
        self._weights.head = self.plan
        if not heads:
            return
        event = self._done
        calls.record(event, device.stream)
        calls.wait(device.copy_stream, event)
        for number in heads:
            self.transfer(number)
        calls.record(event, device.copy_stream)
        calls.wait(device.stream, event)

    def _run_branching(self) -> None:
        calls, stream, plan = self._calls, self.device.stream, self.plan
        self._weights.head = None
        self._copy_inputs()
        at = 0
        while at < len(plan.commands):
            command = plan.commands[at]
            if isinstance(command, PlannedBranch | PlannedJump):
                at = self._next(at)
                continue
            number = self._run_of[at]
            end = self.runs[number][1]
            if self._graphs[number] is None:
                self._graphs[number] = self._capture_run(number)
            calls.launch_graph(self._graphs[number], stream)
            self._note_spans(number)
            at = end
        self._copy_outputs()
        calls.finish(stream)

    def _capture_run(self, number: int) -> Any:
        def body() -> None:
            transfers = Transfers(self, number, self.runs[number][0], False)
            self._put_commands(number, transfers, [])
            transfers.join()

        return self._capture(body)

    def _next(self, number: int) -> int:
        """Where a branch or jump goes on; waits until its condition is known."""
        command: Any = self.plan.commands[number]
        if isinstance(command, PlannedJump):
            return command.target
        calls, stream, condition = self._calls, self.device.stream, self.device.condition
        assert self._commands is not None
        calls.copy(condition, self._commands.resolve(command.condition, 1), 1, stream)
        calls.finish(stream)
        return number + 1 if ctypes.c_ubyte.from_address(condition).value else command.target

    def _run_one_by_one(self) -> None:
        """Every command waited for and timed; an error is that command's."""
        calls, stream = self._calls, self.device.stream
        plan, commands = self.plan, self._commands
        assert commands is not None
        self._weights.head = None
        before, after = self.handles.event(True), self.handles.event(True)
        here: set[int] = set()
        self._weights.restart_disk()
        self._copy_inputs()
        at = 0
        while at < len(plan.commands):
            command = plan.commands[at]
            if isinstance(command, PlannedBranch | PlannedJump):
                at = self._next(at)
                continue
            if isinstance(command, PlannedDispatch):
                for fetch in command.waits:
                    if fetch not in here:
                        here.add(fetch)
                        self.transfer(fetch)
                calls.poll(self.device.copy_stream)
            try:
                calls.record(before, stream)
                commands.issue(at, stream)
                calls.record(after, stream)
                calls.finish(stream)
            except HeadraceError as problem:
                raise commands.located(at, problem) from None
            self._command_ns[at] += calls.elapsed_ns(before, after)
            self._command_runs[at] += 1
            if self._tracing:
                self._add_span("compute", at, before, after)
            if isinstance(command, PlannedDispatch):
                here.difference_update(command.releases)
            at += 1
        self._copy_outputs()
        calls.finish(stream)

    # -- parts ------------------------------------------------------------------------

    def transfer(self, number: int) -> None:
        """Puts one fetch on the copy stream."""
        fetch, weights = self.plan.fetches[number], self._weights
        calls, stream, disk = self._calls, self.device.copy_stream, self._weights.disk
        target = weights.ring + fetch.ring_offset_bytes
        if disk is None or not disk.holds(number):
            source = weights.host_address + fetch.offset_bytes
            calls.copy(target, source, fetch.size_bytes, stream)
            return
        calls.wait_value(stream, disk.word(number), FULL)
        calls.copy(target, disk.source(number), fetch.size_bytes, stream)
        calls.write_value(stream, disk.word(number), EMPTY)

    def traced_transfer(self, run: int, number: int) -> None:
        """The same in a graph, timed where the step is traced."""
        if not self._tracing:
            self.transfer(number)
            return
        with self.marked(run, "copy", number, self.device.copy_stream):
            self.transfer(number)

    @contextmanager
    def marked(
        self, run: int, row: Literal["compute", "copy"], index: int, stream: Any
    ) -> Generator[None]:
        """Events of a graph around what is put on a stream."""
        before, after = self.handles.event(True), self.handles.event(True)
        self.note(before, stream)
        yield
        self.note(after, stream)
        self._marks[run].append((row, index, before, after))

    def _copy_inputs(self) -> None:
        count = len(self._function.inputs)
        for place, size in zip(self._places[:count], self._sizes[:count], strict=True):
            if size:
                state = self._state
                source = state.pinned.address + place
                self._calls.copy(state.staging + place, source, size, self.device.stream)

    def _copy_outputs(self) -> None:
        count = len(self._function.inputs)
        for place, size in zip(self._places[count:], self._sizes[count:], strict=True):
            if size:
                state = self._state
                target = state.pinned.address + place
                self._calls.copy(target, state.staging + place, size, self.device.stream)

    # -- times ------------------------------------------------------------------------

    def take_times(self) -> StepTimes:
        """See `api.Step.take_times`: waits are those of the last step, taken for every one.

        To read the events of a step takes the host about a millisecond, in which the link
        would stand still: so it is done when somebody asks.
        """
        with self.device.lock:
            self._read_waits()
            return super().take_times()

    def _read_waits(self) -> None:
        steps, self._unread = self._unread, 0
        if not steps or not self._calls.is_open:
            return
        self._calls.enter()
        for fetch, before, after in self._last_waits:
            waited = min(self._calls.elapsed_ns(event, after) for event in before)
            self._wait_ns[fetch] += steps * max(0, waited)

    def _note_spans(self, run: int) -> None:
        """Of a traced step; it waits for the transfers of the tail."""
        if not self._tracing:
            return
        self._calls.finish(self.device.stream)
        for row, index, before, after in self._marks[run]:
            self._add_span(row, index, before, after)

    def _add_span(
        self, row: Literal["compute", "copy"], index: int, before: Any, after: Any
    ) -> None:
        begin, end = (self._calls.elapsed_ns(self._origin, e) for e in (before, after))
        self._spans.append(Span(row, index, begin, end, "bring" if row == "copy" else ""))
