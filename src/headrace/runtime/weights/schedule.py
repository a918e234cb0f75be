"""When fetched ranges are dropped and the next ones brought, worked out once per plan.

The order repeats every step, so the decisions do too: fetch `k` of step `e` needs so
many releases counted over all steps, and that number grows by the number of fetches
each step. All here is arithmetic on the plan; a driver turns it into commands.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.base.errors import error
from headrace.plan.model import Plan, PlannedBranch, PlannedDispatch, PlannedJump
from headrace.runtime.weights.mapping import without


@dataclass(frozen=True)
class Drop:
    """Gives back the ranges of one released fetch.

    Attributes:
        fetch: which.
        release_count: how many releases of this step must have happened; 0 or less
            counts back into the steps before.
        ranges: what is dropped: its range less what another fetch in flight covers.
    """

    fetch: int
    release_count: int
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Turn:
    """Drops to make room, then one fetch."""

    drops: tuple[Drop, ...]
    fetch: int


@dataclass(frozen=True)
class StreamSchedule:
    """Attributes:
    turns: one per fetch of a step, in order of use.
    release_order: fetches in the order in which the commands release them.
    """

    turns: tuple[Turn, ...]
    release_order: tuple[int, ...]


def streams_ahead(plan: Plan) -> bool:
    """Whether a stream may run ahead: every step does the same fetches in the same order."""
    return bool(plan.fetches) and not any(
        isinstance(command, PlannedBranch | PlannedJump) for command in plan.commands
    )


def release_order(plan: Plan) -> tuple[int, ...]:
    """Fetches in the order in which the plan's commands release them."""
    order: list[int] = []
    for command in plan.commands:
        if isinstance(command, PlannedDispatch):
            order.extend(command.releases)
    return tuple(order)


def stream_schedule(plan: Plan) -> StreamSchedule:
    """The schedule of a plan's fetches within `plan.ring_bytes`.

    Raises:
        HeadraceDefect HR9301: the plan cannot be kept: a fetch larger than the ring, one
            that is never released, or one that waits for its own release.
    """
    fetches = plan.fetches
    count = len(fetches)
    order = release_order(plan)
    if sorted(order) != list(range(count)):
        raise error("HR9301", "a plan does not release every fetch exactly once")
    size = [fetch.size_bytes for fetch in fetches]
    total = sum(size)
    ring = min(plan.ring_bytes, total)
    if count and max(size) > ring:
        raise error("HR9301", "a plan fetches more at once than its ring holds")
    released = [0]
    for fetch in order:
        released.append(released[-1] + size[fetch])

    def released_bytes(releases: int) -> int:
        """Bytes of the first `releases` releases, counted from step 0; may be negative."""
        steps, rest = divmod(releases, count)
        return steps * total + released[rest]

    overlaps = _overlaps(plan)
    rank = {fetch: place for place, fetch in enumerate(order)}
    turns: list[Turn] = []
    # Step 0 starts with all of step -1 brought and nothing of it released. What it then
    # does first is not periodic; from step 1 on every step does the same.
    goal = -count
    for epoch in (0, 1):
        brought = 0
        for k in range(count):
            done = goal
            wanted = epoch * total + brought + size[k] - ring
            while released_bytes(goal) < wanted:
                goal += 1
            brought += size[k]
            if not epoch:
                continue
            drops = [
                _drop(plan, order, rank, overlaps, release, goal, k)
                for release in range(done, goal)
            ]
            for drop in drops:
                _check_possible(plan, drop, k)
            turns.append(Turn(tuple(drops), k))
    return StreamSchedule(tuple(turns), order)


def _overlaps(plan: Plan) -> list[list[int]]:
    """For each fetch, the fetches (itself too) whose ranges of the pool overlap its own."""
    by_place = sorted(range(len(plan.fetches)), key=lambda k: plan.fetches[k].offset_bytes)
    found: list[list[int]] = [[k] for k in range(len(plan.fetches))]
    open_: list[int] = []
    for k in by_place:
        begin = plan.fetches[k].offset_bytes
        open_ = [
            o
            for o in open_
            if plan.fetches[o].offset_bytes + plan.fetches[o].size_bytes > begin
        ]
        for other in open_:
            found[other].append(k)
            found[k].append(other)
        open_.append(k)
    return found


def _drop(
    plan: Plan,
    order: tuple[int, ...],
    rank: dict[int, int],
    overlaps: list[list[int]],
    release: int,
    goal: int,
    k: int,
) -> Drop:
    """The drop for release number `release` (from step 0), made before fetch `k` of step 1."""
    count = len(order)
    step, place = divmod(release, count)
    fetch = order[place]
    mine = plan.fetches[fetch]
    own = (mine.offset_bytes, mine.offset_bytes + mine.size_bytes)
    live: list[tuple[int, int]] = []
    # Still in flight: brought before fetch k of step 1, and not among the drops made.
    for other_step in (-1, 0, 1):
        for other in overlaps[fetch]:
            if (other_step, other) >= (1, k) or (other_step, other) == (step, fetch):
                continue
            if other_step * count + rank[other] < goal:
                continue
            range_ = plan.fetches[other]
            live.append((range_.offset_bytes, range_.offset_bytes + range_.size_bytes))
    return Drop(fetch, release + 1 - count, tuple(without([own], live)))


def _check_possible(plan: Plan, drop: Drop, k: int) -> None:
    """A drop before fetch `k` must not need a command that itself needs fetch `k`."""
    if drop.release_count <= 0:
        return
    releasing = plan.fetches[drop.fetch].released_after
    if drop.release_count > len(plan.fetches) or releasing >= plan.fetches[k].needed_by:
        raise error("HR9301", f"fetch {k} of a plan waits for a command that waits for it")
