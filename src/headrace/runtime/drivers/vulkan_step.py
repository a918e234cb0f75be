"""A plan recorded once in command buffers, and submitted anew each step.

Two timelines order what runs. Commands are recorded in *parts*: a new one begins where
commands must wait for a transfer, and behind a command that frees a place in the ring. Each
part and each transfer is one submission: a part waits for the transfers it reads, a
transfer for the part after which its place is free. All submissions of a step go to the
two queues in two calls; a device with one queue gets them in the order of issue. So a step
whose weights all stay is one command buffer, submitted by one call.

A device that runs two queues side by side brings weights by a kernel instead
(`vulkan_beside.py`): then too a step is one command buffer.

The last transfers of a step bring the first weights of the *next* one: the host waits for
the last part only. A plan with branches runs part by part; the host reads each condition.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from time import perf_counter_ns
from typing import Any, Literal

from headrace.artifact import schema
from headrace.base.errors import HeadraceError, error
from headrace.plan.model import Plan, PlannedBranch, PlannedDispatch, PlannedJump
from headrace.runtime.arrays import address_of
from headrace.runtime.drivers.api import Span
from headrace.runtime.drivers.plan_parts import locations, straight_runs
from headrace.runtime.drivers.timed_step import TimedStep
from headrace.runtime.drivers.vulkan_beside import StreamingRecorder
from headrace.runtime.drivers.vulkan_calls import VulkanCalls
from headrace.runtime.drivers.vulkan_commands import Commands, Hazards, Spaces
from headrace.runtime.drivers.vulkan_link import VulkanCode
from headrace.runtime.drivers.vulkan_recorder import Recorder, Run
from headrace.runtime.drivers.vulkan_state import VulkanState
from headrace.runtime.drivers.vulkan_streamer import Streamer
from headrace.runtime.drivers.vulkan_weights import VulkanWeights


class _Handles:
    """What a step has recorded, given back when it is dropped."""

    def __init__(self, calls: VulkanCalls) -> None:
        self.calls = calls
        self.commands: list[tuple[int, bool]] = []
        self.queries: list[int] = []
        self.made: Commands | None = None

    def close(self) -> None:
        if self.calls.is_open and (self.commands or self.made):
            self.calls.finish()
        for command, copies in self.commands:
            self.calls.free_command(command, copies)
        for queries in self.queries:
            self.calls.destroy("vkDestroyQueryPool", queries)
        if self.made is not None:
            self.made.close()
        self.commands.clear()
        self.queries.clear()
        self.made = None


class VulkanStep(TimedStep):
    """A plan made ready on one session's state; recorded by the first run."""

    def __init__(
        self,
        device: Any,
        function: schema.EntryFunction,
        plan: Plan,
        code: VulkanCode,
        weights: VulkanWeights,
        state: VulkanState,
    ) -> None:
        """Raises HeadraceError HR3013, HR3014: no room for inputs and outputs."""
        super().__init__(device, plan)
        self._calls: VulkanCalls = device.calls
        self._function = function
        self._plan = plan
        self._code = code
        self._weights = weights
        self._state = state
        dims = dict(plan.dims)
        resources = function.resources
        self._sizes = [
            [resources[s.resource].size_bytes.evaluate(dims) for s in signatures]
            for signatures in (function.inputs, function.outputs)
        ]
        self._stage()
        self._generation = state.generation
        self._made_for = (-1, -1)
        self._synchronous = device.synchronous
        self._straight = straight_runs(plan)
        self._span_of = {begin: number for number, (begin, _) in enumerate(self._straight)}
        self._branches = any(isinstance(c, PlannedBranch | PlannedJump) for c in plan.commands)
        self._handles = _Handles(self._calls)
        weakref.finalize(self, _Handles.close, self._handles).atexit = False
        self._runs: dict[int, Run] = {}
        self._conditions: dict[int, int] = {}
        self._inputs_copied = self._outputs_copied = 0

    def _stage(self) -> None:
        """Where inputs and outputs stand; one that takes an input's place stands in it."""
        self._inputs, self._outputs = self._state.stage(*self._sizes)
        for after, before in self._function.aliases:
            self._outputs[after] = self._inputs[before]

    def _drop(self) -> None:
        self._handles.close()
        self._runs.clear()
        self._conditions.clear()
        self._inputs_copied = self._outputs_copied = 0

    # -- running ----------------------------------------------------------------------

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """See `api.Step.run`."""
        with self._device.lock:
            if self._generation != self._state.generation:
                raise error("HR9303", "a step is run on a slab that has moved")
            try:
                self._weights.begin_step(self._plan)
                if self._made_for != (self._weights.generation, self._state.staged):
                    self._drop()
                    self._stage()
                    self._handles.made = self._make_commands()
                    self._made_for = self._weights.generation, self._state.staged
                for array, external in zip(inputs, self._inputs, strict=True):
                    ctypes.memmove(external.address, address_of(array), array.nbytes)
                if self._recording or self._tracing or self._synchronous:
                    self._run_one_by_one()
                elif self._branches:
                    self._run_branching()
                else:
                    self._run_straight()
                for array, external in zip(outputs, self._outputs, strict=True):
                    ctypes.memmove(address_of(array), external.address, array.nbytes)
            except BaseException:
                # What stands in the ring is not known any more, and may still be moving.
                self._weights.head = None
                self._device.finish()
                raise
            self._steps += 1

    @property
    def _commands(self) -> Commands:
        made = self._handles.made
        assert made is not None
        return made

    def _make_commands(self) -> Commands:
        variables = tuple(
            self._state.variables[r.name]
            for r in self._function.resources
            if r.lifetime == "variable"
        )
        externals = (*self._inputs, *self._outputs)
        spaces = Spaces(self._state.slab, externals, variables, self._device.spare)
        return Commands(
            self._calls, self._function, self._plan, self._code, self._weights, spaces
        )

    def _run_straight(self) -> None:
        run, calls, weights = self._runs.get(0), self._calls, self._weights
        streamer = None
        if self._plan.fetches and self._device.stream_code is not None:
            streamer = weights.streamer
        if run is None:
            run = self._runs[0] = self._record_run(0, True, streamer)
        if weights.head is not self._plan:
            if streamer is not None:
                calls.finish()
                streamer.reset(self._head_copies())
            else:
                self._bring_head()
        if streamer is not None:
            streamer.start()
        self._submit(run)
        weights.head = self._plan
        calls.wait(calls.computed, calls.computed.value)
        if streamer is not None:
            streamer.check()
        self._note_waits(run)

    def _head_copies(self) -> list[tuple[tuple[int, int], tuple[int, int], int]]:
        """What the step before would have brought: target, source, bytes."""
        found: list[tuple[tuple[int, int], tuple[int, int], int]] = []
        for fetch in self._plan.fetches:
            if fetch.issue_after < 0:
                source = self._weights.host.held(fetch.offset_bytes, fetch.size_bytes)
                target = self._weights.ring.handle, fetch.ring_offset_bytes
                found.append((target, (source.buffer, source.offset_bytes), fetch.size_bytes))
        return found

    def _record_run(self, number: int, whole: bool, streamer: Streamer | None = None) -> Run:
        if streamer is not None:
            return StreamingRecorder(
                self,
                self._calls,
                self._commands,
                self._plan,
                self._weights.ring,
                streamer,
                (self._inputs, self._outputs),
            ).finish()
        sides = (self._inputs, self._outputs) if whole else None
        span, plan = self._straight[number], self._plan
        return Recorder(self, self._calls, self._commands, plan, span, sides).finish()

    def _submit(self, run: Run) -> None:
        """Puts a run on the queues; values of both timelines count on from where they are."""
        calls, arrivals = self._calls, self._weights.arrivals
        computed, copied = calls.computed.value, calls.copied.value
        brought: dict[int, int] = {}
        for item in run.items:
            submission = item.submission
            if item.is_transfer:
                submission.waits[0].value = computed + item.after + 1
                submission.signal.value = copied + item.position + 1
                brought[item.fetches[0]] = copied + item.position + 1
            else:
                for wait, fetch in zip(submission.waits, item.fetches, strict=False):
                    wait.value = brought.get(fetch) or arrivals[fetch]
                submission.signal.value = computed + item.position + 1
        self._weights.arrivals = brought
        calls.computed.value = computed + run.parts
        calls.copied.value = copied + len(run.items) - run.parts
        for queue, infos, count in run.batches:
            calls.submit(queue, infos, count)

    def _bring_head(self) -> None:
        """Before the first step: what the tail of the step before would have brought."""
        self._weights.arrivals = {
            number: self._calls.start(self.kept(self.transfer(number), True), copies=True)
            for number, fetch in enumerate(self._plan.fetches)
            if fetch.issue_after < 0
        }

    def kept(self, command: int, copies: bool = False) -> int:
        """A command buffer that stands until the step is dropped."""
        self._handles.commands.append((command, copies))
        return command

    def transfer(self, number: int) -> int:
        """A command buffer that brings one fetch."""
        fetch, weights, calls = self._plan.fetches[number], self._weights, self._calls
        source = weights.host.held(fetch.offset_bytes, fetch.size_bytes)
        command = calls.begin(copies=True)
        target = weights.ring.handle, fetch.ring_offset_bytes
        calls.copy(command, target, (source.buffer, source.offset_bytes), fetch.size_bytes)
        calls.end(command)
        return command

    # -- branches ---------------------------------------------------------------------

    def _run_branching(self) -> None:
        calls, plan = self._calls, self._plan
        self._weights.head = None
        self._copy_inputs()
        at = 0
        while at < len(plan.commands):
            command = plan.commands[at]
            if isinstance(command, PlannedBranch | PlannedJump):
                at = self._next(at)
                continue
            number = self._span_of[at]
            run = self._runs.get(number)
            if run is None:
                run = self._runs[number] = self._record_run(number, False)
            self._submit(run)
            # The next run's transfers may go where this one still reads.
            calls.wait(calls.computed, calls.computed.value)
            at = self._straight[number][1]
        self._copy_outputs()

    def _next(self, number: int) -> int:
        """Where a branch or jump goes on; waits until its condition is known."""
        command: Any = self._plan.commands[number]
        if isinstance(command, PlannedJump):
            return command.target
        calls, spare = self._calls, self._device.condition
        recorded = self._conditions.get(number)
        if recorded is None:
            recorded = self.begin()
            place = self._commands.resolve(command.condition, 1)
            calls.barrier(recorded)
            source = place.buffer, place.offset_bytes
            calls.copy(recorded, (spare.handle, 0), source, 1)
            calls.barrier_for_host(recorded)
            calls.end(recorded)
            self._conditions[number] = recorded
        calls.run(recorded)
        return (
            number + 1 if ctypes.c_ubyte.from_address(spare.address).value else command.target
        )

    def queries(self, count: int) -> int:
        """A pool of timestamps that stands until the step is dropped."""
        pool = self._calls.queries(count)
        self._handles.queries.append(pool)
        return pool

    def begin(self) -> int:
        """A command buffer for kernels that stands until the step is dropped."""
        return self.kept(self._calls.begin())

    def _copy_inputs(self) -> None:
        if all(e.host == e.device for e in self._inputs):
            return
        if not self._inputs_copied:
            self._inputs_copied = self.begin()
            self._commands.record_externals(self._inputs_copied, self._inputs, False, Hazards())
            self._calls.barrier(self._inputs_copied)
            self._calls.end(self._inputs_copied)
        self._calls.run(self._inputs_copied)

    def _copy_outputs(self) -> None:
        if not self._outputs_copied:
            self._outputs_copied = self.begin()
            self._calls.barrier(self._outputs_copied)
            self._commands.record_externals(
                self._outputs_copied, self._outputs, True, Hazards()
            )
            self._calls.barrier_for_host(self._outputs_copied)
            self._calls.end(self._outputs_copied)
        self._calls.run(self._outputs_copied)

    # -- one by one -------------------------------------------------------------------

    def _run_one_by_one(self) -> None:
        """Every command waited for and timed; an error is that command's."""
        calls, plan, commands = self._calls, self._plan, self._commands
        calls.finish()  # what brings the next step's first weights
        self._weights.head = None
        pool = calls.queries(2) if calls.has_timestamps else 0
        here: set[int] = set()
        try:
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
                            begin = perf_counter_ns()
                            transfer = self.transfer(fetch)
                            calls.run(transfer, copies=True)
                            calls.free_command(transfer, copies=True)
                            self._note_span("copy", fetch, begin, perf_counter_ns())
                begin = perf_counter_ns()
                try:
                    command_ns = max(1, self._time(at, commands, pool))
                except HeadraceError as problem:
                    raise self._located(at, problem) from None
                self._command_ns[at] += command_ns
                self._note_span("compute", at, begin, begin + command_ns)
                self._command_runs[at] += 1
                if isinstance(command, PlannedDispatch):
                    here.difference_update(command.releases)
                at += 1
            self._copy_outputs()
        finally:
            if pool:
                calls.destroy("vkDestroyQueryPool", pool)

    def _note_span(
        self, row: Literal["compute", "copy"], index: int, begin_ns: int, end_ns: int
    ) -> None:
        if self._tracing:
            what = "bring" if row == "copy" else ""
            self._spans.append(Span(row, index, begin_ns, end_ns, what))

    def _time(self, number: int, commands: Commands, pool: int) -> int:
        calls = self._calls
        recorded = calls.begin()
        if pool:
            calls.reset_queries(recorded, pool, 2)
        calls.barrier(recorded)
        if pool:
            calls.stamp(recorded, pool, 0)
        commands.record(number, recorded, Hazards())
        if pool:
            calls.stamp(recorded, pool, 1)
        calls.end(recorded)
        start = perf_counter_ns()
        calls.run(recorded)
        host_ns = perf_counter_ns() - start
        calls.free_command(recorded)
        if not pool:
            return host_ns
        before, after = calls.times_ns(pool, 2)
        return after - before

    def _located(self, number: int, problem: HeadraceError) -> HeadraceError:
        command = self._plan.commands[number]
        if not isinstance(command, PlannedDispatch):
            return problem
        first = problem.diagnostics[0]
        notes = (f"while running '{command.symbol}'", *first.notes)
        places = locations(self._function, command)
        return error(first.code, first.fact, at=places, notes=notes, helps=first.helps)

    # -- times ------------------------------------------------------------------------

    def _note_waits(self, run: Run) -> None:
        if not run.stamps:
            return
        times = self._calls.times_ns(run.queries, run.stamps)
        for item in run.items:
            if item.stamp >= 0:
                waited = max(0, times[item.stamp] - times[item.stamp - 1])
                self._wait_ns[item.fetches[-1]] += waited
