"""Where the commands of a step meet the transfers that a kernel beside them makes.

Transfers run on a queue of their own, in order, each when its place in the ring is free;
commands run on another. They meet in memory: a *gate* is a tiny kernel among the commands
that says how many of them are done, and waits until a transfer has arrived. A gate runs
beside a command, and the barrier before the next command holds that one back; it stands between
two barriers of its own only where a transfer may begin no sooner than the command that reads it,
and where it would hold up a transfer: the end of that command is told by a gate behind the
barrier, and were that one to wait for the row too, the next row would begin only when this one
has arrived and said so (8 us for each row of a ring of two places, measured on an H200).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from headrace.plan.model import Plan, PlannedDispatch

_ROW_NS = 2_500
"""What a transfer takes beside its bytes, measured on an H200."""


@dataclass(frozen=True)
class Row:
    """One transfer.

    Attributes:
        fetch: of the plan.
        release: commands of the step that must be done before; 0 for none.
    """

    fetch: int
    release: int


@dataclass(frozen=True)
class Gate:
    """Says that the first `done` commands are done (0: nothing), then waits for `row`.

    Rows arrive in order, so all before it are there too; -1 waits for none.
    """

    done: int = 0
    row: int = -1


@dataclass(frozen=True)
class Gated:
    """A step's transfers and gates.

    Attributes:
        rows: in order; the last ones bring what the next step reads first.
        heads: how many of them do.
        alone: for each command the gate before it, between two barriers.
        beside: for each command the gate that runs with it.
        joined: for each command whether it is a slice that runs with the one before it.
    """

    rows: tuple[Row, ...]
    heads: int
    alone: tuple[Gate | None, ...]
    beside: tuple[Gate | None, ...]
    joined: tuple[bool, ...]


def gates_of(plan: Plan, link_bytes_per_s: float) -> Gated:
    """The gates of a plan without branches; the link's rate says which slices are joined."""
    return _Gates(plan, link_bytes_per_s).run()


class _Gates:
    def __init__(self, plan: Plan, link_bytes_per_s: float) -> None:
        self._plan = plan
        self._rate = link_bytes_per_s
        fetches = plan.fetches
        inside = [n for n, f in enumerate(fetches) if f.issue_after >= 0]
        heads = [n for n, f in enumerate(fetches) if f.issue_after < 0]
        self._inside, self._heads = inside, len(heads)
        rows = [Row(n, fetches[n].issue_after + 1) for n in inside]
        rows += [Row(n, fetches[n].previous_issue_after + 1) for n in heads]
        self._rows = rows
        self._row_of = {row.fetch: number for number, row in enumerate(rows)}
        # The order of arrival as a step sees it: its first weights came in the step before.
        self._rank = {fetch: number for number, fetch in enumerate((*heads, *inside))}
        # Commands that must be done before a transfer, or one before it in the queue, begins.
        self._needs = dict.fromkeys(heads, 0)
        most = 0
        for fetch in inside:
            most = self._needs[fetch] = max(most, fetches[fetch].issue_after + 1)
        # When each command has ended and each transfer has arrived, by the plan's times.
        self._ended: list[float] = []
        self._arrived = dict.fromkeys((f for f, n in self._needs.items() if not n), 0.0)

    def run(self) -> Gated:
        joined = self._joined()
        count = len(joined)
        free = [n for n, with_last in enumerate((*joined, False)) if not with_last]
        # Commands that run together are done together.
        told = {row.release: free[bisect_left(free, row.release)] for row in self._rows}
        marks = {told[row.release] for row in self._rows if row.release}
        # The first row that each mark frees a place for.
        frees = {told[r.release]: n for n, r in reversed([*enumerate(self._rows)]) if r.release}
        alone: list[Gate | None] = [None] * count
        waits_beside = [-1] * count
        seen = -1
        for number, after in pairwise(free):
            waits = [f for n in range(number, after) for f in self._waits(n)]
            last = max(waits, key=lambda fetch: self._rank[fetch], default=-1)
            if last < 0 or self._rank[last] <= seen:
                continue
            seen = self._rank[last]
            needs = free[bisect_left(free, self._needs[last])]
            if number and needs < number and not self._holds_up(number, last, frees):
                waits_beside[number - 1] = self._row_of[last]
            else:
                alone[number] = Gate(number if number in marks else 0, self._row_of[last])
        beside: list[Gate | None] = []
        for number, row in enumerate(waits_beside):
            before = alone[number]
            told_here = before is not None and before.done
            done = number if number in marks and not told_here else 0
            beside.append(Gate(done, row) if done or row >= 0 else None)
        return Gated(tuple(self._rows), self._heads, tuple(alone), tuple(beside), joined)

    def _holds_up(self, number: int, fetch: int, frees: Mapping[int, int]) -> bool:
        """Whether the link would idle were the end of `number` commands told behind a fetch."""
        follows = frees.get(number, len(self._rows)) <= self._row_of[fetch] + 1
        return follows and self._arrived[fetch] > self._ended[number - 1]

    def _waits(self, number: int) -> tuple[int, ...]:
        return getattr(self._plan.commands[number], "waits", ())

    def _joined(self) -> tuple[bool, ...]:
        """Slices of one launch whose weights are all there when the first of them begins.

        A slice of a small launch takes as long as the whole: it leaves most of the device
        idle. So slices run together, but where that would wait for the link.
        """
        plan = self._plan
        ended, arrived = self._ended, self._arrived
        found: list[bool] = []
        link = now = begun = 0.0
        first = following = before = 0
        for number, command in enumerate(plan.commands):
            while following < len(self._inside):
                fetch = self._inside[following]
                if self._needs[fetch] > number:
                    break
                size = plan.fetches[fetch].size_bytes
                link = max(link, ended[self._needs[fetch] - 1]) + _ROW_NS
                link += size * 1e9 / self._rate
                arrived[fetch] = link
                following += 1
            waits = self._waits(number)
            there = all(arrived[f] <= begun and self._needs[f] <= first for f in waits)
            found.append(number > 0 and there and self._same_launch(number))
            now = max((now, *(arrived[f] for f in waits)))
            duration, together = (
                getattr(command, name, 0) for name in ("predicted_ns", "together_ns")
            )
            if not found[-1]:
                first, begun = number, now
                before = max(0, together - duration)  # of the launch, in earlier groups
            # Slices that run together take less than each alone.
            beside = found[-1] and together
            now = max(now, begun + together - before) if beside else now + duration
            ended.append(now)
        return tuple(found)

    def _same_launch(self, number: int) -> bool:
        """Whether a command is a further slice of the launch of the one before it."""
        before, here = self._plan.commands[number - 1 : number + 1]
        if not isinstance(before, PlannedDispatch) or not isinstance(here, PlannedDispatch):
            return False
        same = (before.command, before.executable, before.symbol)
        return same == (here.command, here.executable, here.symbol) and any(
            here.first_workgroup
        )
