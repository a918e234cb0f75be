"""What a budget chooses from: rings of several depths, and what stays beside them.

A ring of the least size holds a unit in use and the next one arriving: enough where
every unit computes as long as the next one travels. A deeper ring lets the link run ahead
while early layers compute which need little, and pays for it with bytes that do not stay.
For each depth the units stand in an order of their own, and as many stay as the budget
then pays. Each such level is played through; the fastest is taken, of equally fast ones
that which brings least.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TypeAlias

from headrace.plan.cost import Event, Timing, Transfer, simulate, transfer_ns
from headrace.plan.fetch import place_ring, transfers_of
from headrace.plan.problem import Problem
from headrace.plan.streaming import fewer

_DEPTHS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Units that a ring holds beside the least."""

_LARGE = 1.05  # times the middle unit: worth levels of its own before it
_MOST_EXTRA = 16


@dataclass(frozen=True)
class Level:
    """What stays, and the ring beside it.

    Attributes:
        stays: units beyond those that stay at every budget.
        cost_bytes: the least budget that can pay it.
    """

    stays: tuple[int, ...]
    ring_bytes: int
    cost_bytes: int


_LevelKey: TypeAlias = tuple[int, tuple[int, ...]]


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
        self._known: dict[int, tuple[list[Level], list[int]]] = {}

    @property
    def everything(self) -> Level:
        """All units of the function stay."""
        rest = self._choice.rest
        return Level(rest, 0, self._choice.everything_bytes)

    @cached_property
    def rings_bytes(self) -> tuple[int, ...]:
        """Sizes a ring may have, ascending: the least first."""
        least = self._choice.ring_bytes
        sizes = sorted(self._units[u].size_bytes for u in self._choice.rest)
        if not sizes:
            return (least,)
        unit, most = sizes[len(sizes) // 2], sum(sizes) // 2
        return tuple(
            least + depth * unit for depth in _DEPTHS if not depth or depth * unit <= most
        )

    def choose(self, allowed_bytes: int) -> tuple[Level, Schedule]:
        """The level that a budget of at least the minimum takes, and its schedule."""
        if allowed_bytes >= self._choice.everything_bytes:
            # Nothing is faster than never to wait.
            idle = [False] * len(self._units)
            timing = Timing(self._problem.compute_ns, 0)
            return self.everything, Schedule(idle, [], [], timing)
        best: tuple[Level, Schedule] | None = None
        for ring_bytes in self.rings_bytes:
            levels, floors = self._levels(ring_bytes)
            for level, floor_ns in zip(reversed(levels), reversed(floors), strict=True):
                if level.cost_bytes > allowed_bytes:
                    continue
                if best is not None and floor_ns >= best[1].timing.step_ns:
                    break
                schedule = self._play(level)
                if best is None or schedule.timing.step_ns < best[1].timing.step_ns:
                    best = (level, schedule)
        assert best is not None
        return best

    def _levels(self, ring_bytes: int) -> tuple[list[Level], list[int]]:
        """Levels with a ring, cost rising, and for each a time that neither it nor one
        before it can beat."""
        found = self._known.get(ring_bytes)
        if found is not None:
            return found
        order = self._choice.order(ring_bytes)
        sizes = [self._units[u].size_bytes for u in order]
        large = sorted(sizes)[len(sizes) // 2] * _LARGE
        cost = self._choice.minimum_bytes - self._choice.ring_bytes + ring_bytes
        levels: list[Level] = []
        for kept, size in enumerate((*sizes, 0)):
            levels.append(Level(order[:kept], ring_bytes, cost))
            if size > large:
                levels.extend(self._before_large(kept, order, sizes, ring_bytes, cost))
            cost += size
        levels = [x for x in levels if x.cost_bytes < self._choice.everything_bytes]
        floors = [self._floor_ns(level) for level in levels]
        floors = list(accumulate(floors, min))
        self._known[ring_bytes] = levels, floors
        return levels, floors

    @staticmethod
    def _before_large(
        kept: int, order: Sequence[int], sizes: Sequence[int], ring_bytes: int, cost_bytes: int
    ) -> Iterator[Level]:
        """Levels for budgets that cannot yet pay the large unit next in the order: later
        ones stay instead, as long as all of them are smaller than it."""
        extra: list[int] = []
        total = 0
        for later in range(kept + 1, len(sizes)):
            if len(extra) == _MOST_EXTRA:
                return
            if total + sizes[later] >= sizes[kept]:
                continue
            extra.append(order[later])
            total += sizes[later]
            yield Level((*order[:kept], *extra), ring_bytes, cost_bytes + total)

    def _streams(self, level: Level) -> list[bool]:
        """For each unit whether it streams."""
        streams = [False] * len(self._units)
        for unit in self._choice.rest:
            streams[unit] = True
        for unit in level.stays:
            streams[unit] = False
        return streams

    @cached_property
    def _busy_ns(self) -> list[int]:
        """Time to bring each unit."""
        return [transfer_ns(u.size_bytes, self._problem.profile) for u in self._units]

    def _floor_ns(self, level: Level) -> int:
        """A time that the level cannot beat."""
        times, problem = self._busy_ns, self._problem
        busy = sum(times[u] for u in self._choice.rest) - sum(times[u] for u in level.stays)
        return max(busy, problem.compute_ns + int(busy * problem.profile.contention))

    def _play(self, level: Level) -> Schedule:
        key = level.ring_bytes, level.stays
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
