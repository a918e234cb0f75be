"""Parts of a plan that every driver of a GPU walks over."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from headrace.artifact import schema
from headrace.plan.model import Plan, PlannedBranch, PlannedDispatch, PlannedJump


def straight_runs(plan: Plan) -> list[tuple[int, int]]:
    """Ranges of commands `(begin, end)` without a branch, jump or target inside."""
    cuts = {0, len(plan.commands)}
    for number, command in enumerate(plan.commands):
        if isinstance(command, PlannedBranch | PlannedJump):
            cuts |= {number, number + 1, command.target}
    return list(itertools.pairwise(sorted(cuts)))


def locations(function: schema.EntryFunction, command: PlannedDispatch) -> tuple[str, ...]:
    """The user's nodes that a planned dispatch computes."""
    found: dict[str, None] = {}
    for index, dispatch in _dispatches(function.body):
        same = (index, dispatch.executable, dispatch.entry_point)
        if dispatch.location and same == (
            command.command,
            command.executable,
            command.entry_point,
        ):
            found[dispatch.location] = None
    return tuple(found)


def _dispatches(block: schema.Block) -> Iterator[tuple[int, schema.Dispatch]]:
    for index, command in enumerate(block.commands):
        if isinstance(command, schema.Dispatch):
            yield index, command
        elif isinstance(command, schema.If):
            yield from _dispatches(command.then)
            yield from _dispatches(command.otherwise)
        elif isinstance(command, schema.Loop):
            yield from _dispatches(command.before)
            yield from _dispatches(command.body)
