"""Recording a straight run of a plan: parts, transfers, and what waits for what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.plan.model import Plan, PlannedDispatch
from headrace.runtime.drivers import vulkan_api
from headrace.runtime.drivers.vulkan_calls import Submission, VulkanCalls
from headrace.runtime.drivers.vulkan_commands import Commands, Hazards
from headrace.runtime.drivers.vulkan_state import External

vk: Any = vulkan_api


@dataclass(eq=False)
class Item:
    """One submission of a run: a part of the commands, or a transfer.

    Attributes:
        fetches: those a part waits for; the one that a transfer brings.
        after: the part that a transfer waits for; -1 for the run's beginning.
        position: of a part or transfer among its kind in the run.
        stamp: of a part that waits, the timestamp at its beginning: the one before it is
            that of the end of the part before. -1 for none.
    """

    is_transfer: bool
    command: int
    submission: Submission
    fetches: tuple[int, ...] = ()
    after: int = -1
    position: int = 0
    stamp: int = -1


@dataclass(eq=False)
class Run:
    """A straight run of commands, recorded.

    Attributes:
        items: in the order of issue.
        parts: how many of them are parts.
        batches: for each queue the array of submissions, with their items.
        queries: pool of timestamps, 0 for none, and how many.
    """

    items: list[Item] = field(default_factory=list[Item])
    parts: int = 0
    batches: list[tuple[int, Any, int]] = field(default_factory=list[tuple[int, Any, int]])
    queries: int = 0
    stamps: int = 0


class Recorder:
    """Records one straight run: its parts, and the transfers between them."""

    def __init__(
        self,
        step: Any,
        calls: VulkanCalls,
        commands: Commands,
        plan: Plan,
        span: tuple[int, int],
        sides: tuple[Sequence[External], Sequence[External]] | None,
    ) -> None:
        """`sides`: inputs and outputs, where the run is the whole plan."""
        self._step = step
        self._calls = calls
        self._commands = commands
        self._plan = plan
        self._begin, self._end = span
        self._sides = sides
        whole = sides is not None
        self._run = Run()
        self._hazards = Hazards()
        self._waited: set[int] = set()
        self._part_of: dict[int, int] = {}
        self._transfers = 0
        self._stamps = 0
        self._begun = -1
        self._pending: tuple[int, ...] = ()
        fetches = self._plan.fetches
        self._queue = [
            n
            for n, f in enumerate(fetches)
            if self._begin <= f.needed_by < self._end and not (whole and f.issue_after < 0)
        ]
        self._marks = {f.issue_after for f in fetches}
        if whole:
            self._marks |= {f.previous_issue_after for f in fetches if f.issue_after < 0}
        if whole and fetches and self._calls.has_timestamps:
            self._run.queries = step.queries(2 * len(fetches) + 2)
        self._command = 0

    def finish(self) -> Run:
        """Records everything."""
        run, sides = self._run, self._sides
        self._open(())
        if sides:
            self._commands.record_externals(self._command, sides[0], False, self._hazards)
        for number in range(self._begin, self._end):
            self._issue_until(number - 1)
            command = self._plan.commands[number]
            waits: tuple[int, ...] = ()
            if isinstance(command, PlannedDispatch):
                waits = tuple(f for f in command.waits if f not in self._waited)
            if waits:
                self._close(stamped=True)
                self._open(waits)
                self._waited.update(waits)
            self._commands.record(number, self._command, self._hazards)
            self._part_of[number] = run.parts
            if number in self._marks and number + 1 < self._end:
                self._close()
                self._open(())
        if sides:
            self._commands.record_externals(self._command, sides[1], True, self._hazards)
            self._calls.barrier_for_host(self._command)
        self._close()
        self._issue_until(self._end - 1)
        if sides:
            for number, fetch in enumerate(self._plan.fetches):
                if fetch.issue_after < 0:
                    self._transfer(number, fetch.previous_issue_after)
        self._batch()
        run.stamps = self._stamps
        return run

    def _open(self, waits: tuple[int, ...]) -> None:
        """Begins a part that waits for fetches; it sees what the parts before wrote."""
        self._command = self._step.begin()
        self._pending = waits
        if self._run.queries and not self._run.parts:
            count = 2 * len(self._plan.fetches) + 2
            self._calls.reset_queries(self._command, self._run.queries, count)
        self._begun = -1
        if waits and self._run.queries:
            self._calls.stamp(self._command, self._run.queries, self._stamps)
            self._begun = self._stamps
            self._stamps += 1

    def _close(self, stamped: bool = False) -> None:
        """Ends the part: one submission; `stamped` where the next one waits."""
        run, calls, waits = self._run, self._calls, self._pending
        stamp = self._begun
        if stamped and run.queries:
            calls.stamp(self._command, run.queries, self._stamps)
            self._stamps += 1
        calls.end(self._command)
        timelines = [calls.copied] * len(waits)
        submission = Submission(self._command, timelines, calls.computed)
        run.items.append(Item(False, self._command, submission, waits, -1, run.parts, stamp))
        run.parts += 1

    def _issue_until(self, command: int) -> None:
        """Puts on what may begin once `command` has run."""
        while self._queue:
            after = self._plan.fetches[self._queue[0]].issue_after
            if after > command:
                return
            self._transfer(self._queue.pop(0), after)

    def _transfer(self, number: int, after: int) -> None:
        part = self._part_of.get(after, -1)
        command = self._step.kept(self._step.transfer(number), True)
        submission = Submission(command, (self._calls.computed,), self._calls.copied)
        self._run.items.append(
            Item(True, command, submission, (number,), part, self._transfers)
        )
        self._transfers += 1

    def _batch(self) -> None:
        """The submissions of each queue in an array; a lone queue gets all in order."""
        run, calls = self._run, self._calls
        one = calls.queue == calls.copy_queue
        groups = [
            (calls.copy_queue, [i for i in run.items if i.is_transfer]),
            (calls.queue, [i for i in run.items if not i.is_transfer]),
        ]
        if one:
            groups = [(calls.queue, run.items)]
        for queue, items in groups:
            if items:
                infos = (vk.VkSubmitInfo2 * len(items))(*[i.submission.info for i in items])
                run.batches.append((queue, infos, len(items)))
