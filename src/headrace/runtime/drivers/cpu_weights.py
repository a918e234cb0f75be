"""Weights on a CPU: used where the file is mapped; resident or streamed by the plan.

A *stream* is the machine run on a thread of its own, over commands that drop released
ranges and populate the next ones, step after step, as far ahead as the ring allows. Two
counters couple it with the steps: `arrived` (fetches brought) and `released` (fetches no
longer needed). Both only grow; a step adds the plan's number of fetches to each.
"""

from __future__ import annotations

import threading

from headrace.artifact import schema
from headrace.base.errors import HeadraceError
from headrace.plan.model import Plan
from headrace.runtime.drivers import cpu_machine_ir as ir
from headrace.runtime.drivers.cpu_commands import Memory, command
from headrace.runtime.drivers.cpu_machine import Counter, Machine, RunContext
from headrace.runtime.drivers.cpu_machine_ir import COMMAND_BYTES, Context, Operation
from headrace.runtime.memory import PAGE_BYTES, advise
from headrace.runtime.weights.mapping import (
    DONT_NEED,
    POPULATE_READ,
    PoolMapping,
    merged,
    without,
)
from headrace.runtime.weights.schedule import stream_schedule, streams_ahead

_NO_HUGE_PAGE = 15


def _pages(begin: int, end: int) -> tuple[int, int]:
    """The whole pages inside a range."""
    return -(-begin // PAGE_BYTES) * PAGE_BYTES, end // PAGE_BYTES * PAGE_BYTES


class CpuWeights:
    """The mapped pool of one module and the stream of its active plan.

    `begin_step` and `end_step` are called with `Machine.lock` held; `activate`, `release`
    and `close` take it.
    """

    def __init__(self, machine: Machine, mapping: PoolMapping, module: schema.Module) -> None:
        self._machine = machine
        self.mapping = mapping
        self._segments = module.segments
        tables = [w for w in module.weights if w.row_bytes]
        self._tables = merged(
            [_pages(w.offset_bytes, w.offset_bytes + w.size_bytes) for w in tables]
        )
        for begin, end in self._tables:
            # Only rows of a table are read: no page of 2 MiB may be mapped for one.
            advise(mapping.address + begin, end - begin, _NO_HUGE_PAGE)
        self.arrived = Counter()
        self.released = Counter()
        self._plan: Plan | None = None
        self._resident: list[tuple[int, int]] = []
        self._ring_bytes = 0
        self._epoch = 0
        self._stream: threading.Thread | None = None
        self._context = RunContext()
        self._kept: list[Memory] = []
        self._running: RunContext | None = None
        self._failure: tuple[int, int] | None = None
        machine.watch(self)

    @property
    def held_bytes(self) -> int:
        """Resident bytes and the ring of the active plan."""
        return sum(end - begin for begin, end in self._resident) + self._ring_bytes

    def activate(self, plan: Plan) -> None:
        """See `api.Weights.activate`."""
        with self._machine.lock:
            self.mapping.check_unchanged()
            self._activate(plan)

    def _activate(self, plan: Plan) -> None:
        if self._plan is plan:
            return
        self.stop()
        self._plan = None
        mapping = self.mapping
        wanted = merged(
            [
                (s.offset_bytes, s.offset_bytes + s.size_bytes)
                for s in (self._segments[index] for index in plan.resident)
            ]
        )
        # First out, then in: the two together must not pass the budget.
        for begin, end in without([(0, mapping.size_bytes)], wanted):
            mapping.drop(begin, end)
        if plan.fetches or wanted != [(0, mapping.size_bytes)]:
            borders = [p for r in (*wanted, *self._tables) for p in r]
            for fetch in plan.fetches:
                borders += (fetch.offset_bytes, fetch.offset_bytes + fetch.size_bytes)
            mapping.cut_at(borders)
        self._resident = wanted
        self._ring_bytes = min(plan.ring_bytes, sum(f.size_bytes for f in plan.fetches))
        try:
            for begin, end in wanted:
                mapping.populate(begin, end)
            if streams_ahead(plan):
                self._start(plan)
        except BaseException:
            self._release()
            raise
        self._plan = plan

    def _start(self, plan: Plan) -> None:
        """Starts the stream at the head of a step, with nothing in flight."""
        self.arrived.reset()
        self.released.reset()
        self._epoch = 0
        self._failure = None
        buffer = Memory(self._stream_commands(plan))
        self._kept = [buffer]
        self._context = RunContext()
        self._stream = threading.Thread(
            target=self._run_stream,
            args=(buffer.address, self._context),
            name="headrace-stream",
            daemon=True,
        )
        self._stream.start()

    def _stream_commands(self, plan: Plan) -> bytes:
        base = self.mapping.address
        count = len(plan.fetches)
        commands: list[bytes] = []
        for turn in stream_schedule(plan).turns:
            for drop in turn.drops:
                commands.append(
                    command(Operation.WAIT, self.released.address, drop.release_count, count, 0)
                )
                commands += (
                    command(Operation.ADVISE, base + begin, end - begin, DONT_NEED)
                    for begin, end in drop.ranges
                )
            fetch = plan.fetches[turn.fetch]
            address = base + fetch.offset_bytes
            if self.mapping.populates:
                following = plan.fetches[(turn.fetch + 1) % count]
                commands.append(
                    command(
                        Operation.ADVISE,
                        address,
                        fetch.size_bytes,
                        POPULATE_READ,
                        base + following.offset_bytes,
                        following.size_bytes,
                    )
                )
            else:
                commands.append(command(Operation.TOUCH, address, fetch.size_bytes))
            commands.append(command(Operation.ADVANCE, self.arrived.address, 1))
        commands.append(command(Operation.NEXT_EPOCH))
        commands.append(command(Operation.JUMP, -COMMAND_BYTES * len(commands)))
        return b"".join(commands)

    def _run_stream(self, commands: int, context: RunContext) -> None:
        status = self._machine.run(commands, context.address)
        if status != ir.STATUS_FAILED_CALL:
            return
        number = context.words[Context.ERROR_NUMBER]
        place = context.words[Context.POSITION]
        self._failure = (number, place - commands)
        running = self._running
        if running is not None:
            self._machine.cancel(running, ir.STATUS_CANCELLED, self.arrived)

    def begin_step(self, plan: Plan, context: RunContext) -> None:
        """Readies the stream for one step, which runs with `context`.

        Raises:
            HeadraceError: the weights cannot be read.
        """
        self.mapping.check_unchanged()
        self._activate(plan)
        if self._stream is None:
            return
        context.words[Context.EPOCH] = self._epoch
        self._running = context
        if self._failure is not None:
            raise self.failure()

    def end_step(self, finished: bool) -> None:
        """After a step; one that did not finish leaves the counters meaningless."""
        self._running = None
        for begin, end in without(self._tables, self._resident):
            # Rows read in this step; what stands there again is read from the page cache.
            self.mapping.drop(begin, end)
        if finished:
            self._epoch += 1
        else:
            self._plan = None

    def failure(self) -> HeadraceError:
        """Why the stream stopped; the next step starts it anew."""
        number, _ = self._failure or (0, 0)
        fetch = self.arrived.value % max(1, len(self._plan.fetches) if self._plan else 1)
        offset = self._plan.fetches[fetch].offset_bytes if self._plan else 0
        self._plan = None
        return self.mapping.read_failure(number, offset)

    def stop(self) -> None:
        """Ends the stream's thread; ranges in flight stay mapped until the next plan."""
        stream, self._stream = self._stream, None
        if stream is None:
            return
        self._machine.cancel(self._context, ir.STATUS_CANCELLED, self.released)
        stream.join()

    def release(self) -> None:
        """See `api.Weights.release`."""
        with self._machine.lock:
            self._release()

    def _release(self) -> None:
        self.stop()
        self._plan = None
        self._resident = []
        self._ring_bytes = 0
        if self.mapping.address:
            self.mapping.drop(0, self.mapping.size_bytes)

    def notes(self) -> tuple[str, ...]:
        if self.mapping.populates:
            return ()
        return ("this kernel cannot populate mappings (Linux 5.14): pages are touched instead",)

    def reset_after_fork(self) -> None:
        """In a forked child: no thread, and no page of the pool mapped yet."""
        self._stream = None
        self._plan = None
        self._running = None

    def close(self) -> None:
        """Ends the stream and unmaps the pool; steps prepared before must not run."""
        with self._machine.lock:
            self._release()
            self.mapping.close()
