"""The one list of levels that all budgets share, and the level a budget takes.

First the ring grows to its depth, then one unit after another stays. Cost rises along
the list and bytes brought fall. A budget takes, of the levels it can pay, the one that
is predicted fastest, of equal ones the last; so a larger budget, which can pay the same
levels and later ones, is never slower and never brings more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from headrace.plan.cost import Event, Timing, Transfer, simulate, transfer_ns
from headrace.plan.fetch import place_ring, transfers_of
from headrace.plan.problem import Problem
from headrace.plan.streaming import fewer

_DEPTHS = (0, 1, 2, 4, 8, 16)
_LARGE = 1.5  # times the middle unit: worth levels of its own before it
_MOST_EXTRA = 16


@dataclass(frozen=True)
class Level:
    """The first `kept` units of the order stay, and `extra` ones after them.

    Attributes:
        extra: positions in the order.
        cost_bytes: the least budget that can pay it.
    """

    kept: int
    ring_bytes: int
    cost_bytes: int
    extra: tuple[int, ...] = ()


_LevelKey: TypeAlias = tuple[int, int, tuple[int, ...]]


@dataclass(frozen=True)
class Schedule:
    """A level played through."""

    streams: list[bool]
    events: list[Event]
    transfers: list[Transfer]
    timing: Timing


class Levels:
    """The levels of a problem; those looked at are played once and kept."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._choice = problem.choice
        self._units = problem.streaming.units
        self._played: dict[_LevelKey, Schedule] = {}

    @cached_property
    def all(self) -> list[Level]:
        """From the least budget to all units of the function staying."""
        base = self._choice.minimum_bytes - self._choice.ring_bytes
        order = self._choice.order
        sizes = [self._units[u].size_bytes for u in order]
        everything = self._everything
        if not order:
            return [everything]
        least = self._choice.ring_bytes
        unit = sorted(sizes)[len(sizes) // 2]
        depth = self._best_depth(unit)
        rings = [least + d * unit for d in range(depth + 1)]
        levels = [Level(0, ring, base + ring) for ring in rings]
        kept = 0
        for position, size in enumerate(sizes[:-1]):
            if size > unit * _LARGE:
                levels.extend(self._before_large(position, sizes, rings[-1], base + kept))
            kept += size
            levels.append(Level(position + 1, rings[-1], base + kept + rings[-1]))
        levels = [level for level in levels if level.cost_bytes < everything.cost_bytes]
        return [*self._bringing_ever_less(levels), everything]

    @property
    def _everything(self) -> Level:
        return Level(len(self._choice.rest), 0, self._choice.everything_bytes)

    def _bringing_ever_less(self, levels: list[Level]) -> list[Level]:
        """Leaves out levels that bring more than one before them.

        There are some only where a unit is brought twice in a step: what stays instead
        of it may be larger and yet save less.
        """
        sizes = [u.size_bytes for u in self._units]
        base = transfers_of(self._choice.events, sizes)
        if len(base) == len(self._choice.order):
            return levels
        kept: list[Level] = []
        least = sum(t.size_bytes for t in base)
        for level in levels:
            streams = self._streams(level)
            events = fewer(self._choice.events, streams)
            brought = sum(t.size_bytes for t in transfers_of(events, sizes))
            if brought <= least:
                kept.append(level)
                least = brought
        return kept

    @staticmethod
    def _before_large(
        position: int, sizes: Sequence[int], ring_bytes: int, kept_bytes: int
    ) -> Iterator[Level]:
        """Levels for budgets that cannot yet pay the large unit next in the order: later
        ones stay instead, as long as all of them are smaller than it."""
        extra: list[int] = []
        total = 0
        for later in range(position + 1, len(sizes)):
            if len(extra) == _MOST_EXTRA:
                return
            if total + sizes[later] >= sizes[position]:
                continue
            extra.append(later)
            total += sizes[later]
            cost = kept_bytes + total + ring_bytes
            yield Level(position, ring_bytes, cost, tuple(extra))

    def _best_depth(self, unit_bytes: int) -> int:
        """How many units more than the least the ring should hold: predicted at three
        budgets, where a deeper ring keeps as many units fewer."""
        count = len(self._choice.order)
        best: tuple[int, int] | None = None
        for depth in _DEPTHS:
            ring = self._choice.ring_bytes + depth * unit_bytes
            kept = [max(0, count * quarter // 4 - depth) for quarter in (1, 2, 3)]
            if depth and depth >= count // 4:
                break
            total = sum(self._play(Level(k, ring, 0)).timing.step_ns for k in kept)
            # A little faster is not worth a deeper ring: it is bytes that do not stay.
            if best is None or total * 1.005 < best[0]:
                best = (total, depth)
            elif depth >= 2 * max(best[1], 1):
                break
        assert best is not None
        return best[1]

    def choose(self, allowed_bytes: int) -> tuple[Level, Schedule]:
        """The level that a budget of at least the minimum takes, and its schedule."""
        if allowed_bytes >= self._choice.everything_bytes:
            # Nothing is faster than never to wait.
            idle = [False] * len(self._units)
            timing = Timing(self._problem.compute_ns, 0)
            return self._everything, Schedule(idle, [], [], timing)
        best: tuple[Level, Schedule] | None = None
        for level, floor in zip(reversed(self.all), reversed(self._floors_ns), strict=True):
            if level.cost_bytes > allowed_bytes:
                continue
            if best is not None and floor >= best[1].timing.step_ns:
                break
            schedule = self._play(level)
            if best is None or schedule.timing.step_ns < best[1].timing.step_ns:
                best = (level, schedule)
        assert best is not None
        return best

    def _streaming(self, level: Level) -> list[int]:
        """The units that stream."""
        extra = set(level.extra)
        order = self._choice.order
        return [order[p] for p in range(level.kept, len(order)) if p not in extra]

    def _streams(self, level: Level) -> list[bool]:
        """For each unit whether it streams."""
        streams = [False] * len(self._units)
        for unit in self._streaming(level):
            streams[unit] = True
        return streams

    @cached_property
    def _floors_ns(self) -> list[int]:
        """For each level, a time that neither it nor any before it can beat."""
        order = self._choice.order
        times = [transfer_ns(self._units[u].size_bytes, self._problem.profile) for u in order]
        left = [sum(times)]
        for time in times:
            left.append(left[-1] - time)
        floors: list[int] = []
        for level in self.all:
            busy = left[level.kept] - sum(times[p] for p in level.extra)
            floor = max(
                busy, self._problem.compute_ns + int(busy * self._problem.profile.contention)
            )
            floors.append(min(floor, floors[-1]) if floors else floor)
        return floors

    def _play(self, level: Level) -> Schedule:
        key = (level.kept, level.ring_bytes, level.extra)
        known = self._played.get(key)
        if known is not None:
            return known
        streams = self._streams(level)
        events = fewer(self._choice.events, streams)
        transfers = transfers_of(events, [u.size_bytes for u in self._units])
        place_ring(transfers, level.ring_bytes, events)
        timing = simulate(events, transfers, self._problem.profile)
        schedule = self._played[key] = Schedule(streams, events, transfers, timing)
        return schedule
