"""Where the commands of a step meet the transfers that a kernel beside them makes.

Transfers run on a queue of their own, in order, each when its place in the ring is free;
commands run on another. They meet in memory: a *gate* is a tiny kernel among the commands
that says how many of them are done, and waits until a transfer has arrived. A gate runs
beside a command, and the barrier before the next command holds that one back; it needs one
of its own only where a transfer may begin no sooner than the command that reads it.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.plan.model import Plan, PlannedDispatch


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
    """

    rows: tuple[Row, ...]
    heads: int
    alone: tuple[Gate | None, ...]
    beside: tuple[Gate | None, ...]


def gates_of(plan: Plan) -> Gated:
    """The gates of a plan without branches."""
    inside = [n for n, f in enumerate(plan.fetches) if f.issue_after >= 0]
    heads = [n for n, f in enumerate(plan.fetches) if f.issue_after < 0]
    rows = [Row(n, plan.fetches[n].issue_after + 1) for n in inside]
    rows += [Row(n, plan.fetches[n].previous_issue_after + 1) for n in heads]
    row_of = {row.fetch: number for number, row in enumerate(rows)}
    # The order of arrival as a step sees it: its first weights came in the step before.
    rank = {fetch: number for number, fetch in enumerate((*heads, *inside))}
    # Commands that must be done before a transfer, or one before it in the queue, begins.
    needs = dict.fromkeys(heads, 0)
    most = 0
    for fetch in inside:
        most = needs[fetch] = max(most, plan.fetches[fetch].issue_after + 1)
    count = len(plan.commands)
    alone: list[Gate | None] = [None] * count
    waits_beside = [-1] * count
    marks = {row.release for row in rows}
    seen = -1
    for number, command in enumerate(plan.commands):
        if not isinstance(command, PlannedDispatch) or not command.waits:
            continue
        last = max(command.waits, key=lambda fetch: rank[fetch])
        if rank[last] <= seen:
            continue
        seen = rank[last]
        if number and needs[last] < number:
            waits_beside[number - 1] = row_of[last]
        else:
            alone[number] = Gate(number if number in marks else 0, row_of[last])
    beside: list[Gate | None] = []
    for number, row in enumerate(waits_beside):
        told = alone[number] is not None and alone[number].done  # pyright: ignore
        done = number if number in marks and not told else 0
        beside.append(Gate(done, row) if done or row >= 0 else None)
    return Gated(tuple(rows), len(heads), tuple(alone), tuple(beside))
