"""What a budget chooses from: rings of several depths, and what stays beside them.

A ring of the least size holds a unit in use and the next one arriving: enough where
every unit computes as long as the next one travels. A deeper ring lets the link run ahead
while early layers compute which need little, and pays for it with bytes that do not stay.
For each depth the units stand in an order of their own, and as many stay as the budget
then pays. Each such level is played through; the fastest is taken, of equally fast ones
that which brings least.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, islice
from typing import TypeAlias

from headrace.plan.cost import Event, Timing, Transfer, simulate, transfer_ns
from headrace.plan.fetch import place_ring, transfers_of
from headrace.plan.problem import Problem
from headrace.plan.streaming import events_of

_DEPTHS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Units that a ring holds beside the least."""

_LARGE = 1.05  # times the middle unit: worth levels of its own before it
_MOST_EXTRA = 16

_REACH, _FEW, _LEAST_REACH = 2048, 16, 4
"""Beside each ring so many levels are looked at, divided by the units there are: to play one
takes as long as it has units, and a new budget must have its plan in a tenth of a second. Where
these are few, the first level of every other ring is, then those next to the best."""


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


_Found: TypeAlias = tuple[Level, Schedule]


class Levels:
    """The levels of a problem; those looked at are played once and kept."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._choice = problem.choice
        self._units = problem.streaming.units
        self._played: dict[_LevelKey, Schedule] = {}
        self._known: dict[tuple[int, bool], list[int]] = {}
        self._sizes = [u.size_bytes for u in self._units]

    @property
    def everything(self) -> Level:
        """All units of the function stay."""
        rest = self._choice.rest
        return Level(rest, 0, self._choice.everything_bytes)

    @cached_property
    def rings_bytes(self) -> tuple[int, ...]:
        """Sizes a ring may have, ascending: the least first."""
        least = self._choice.ring_bytes
        sizes = sorted(self._sizes[u] for u in self._choice.rest)
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
        reach = _REACH // max(1, len(self._choice.rest))
        best: _Found | None = None
        way = self.rings_bytes[0], False
        rings = self.rings_bytes if reach >= _FEW else self.rings_bytes[::2]
        for ring_bytes in rings:
            left_bytes = allowed_bytes - self._choice.minimum_bytes
            left_bytes -= ring_bytes - self._choice.ring_bytes
            if left_bytes < 0:
                break
            if best and self._least_ns(left_bytes) >= best[1].timing.step_ns:
                break  # a larger ring leaves still less for what stays
            for by_launch in self._choice.ways:
                looked = reach if reach >= _FEW else 1
                found = self._best_of(ring_bytes, by_launch, left_bytes, looked, best)
                if found is not best:
                    best, way = found, (ring_bytes, by_launch)
        assert best is not None
        if reach < _FEW:
            left_bytes = allowed_bytes - self._choice.minimum_bytes
            left_bytes -= way[0] - self._choice.ring_bytes
            best = self._best_of(*way, left_bytes, max(_LEAST_REACH, reach), best)
        assert best is not None
        return best

    def _best_of(
        self,
        ring_bytes: int,
        by_launch: bool,
        left_bytes: int,
        reach: int,
        best: _Found | None,
    ) -> _Found | None:
        """The best of one order beside a ring, or what was found before.

        Args:
            left_bytes: for what stays beside the ring and what always does.
            reach: how many levels are looked at, from the one that keeps most.
        """
        choice = self._choice
        place = choice.minimum_bytes - choice.ring_bytes + ring_bytes
        order = choice.order(ring_bytes, by_launch)
        kept_bytes = self._kept_bytes(ring_bytes, by_launch)
        most = bisect_right(kept_bytes, left_bytes) - 1
        for kept in range(most, max(most - reach, -1), -1):
            above = kept_bytes[min(kept + 1, len(order))]
            if best and self._least_ns(above) >= best[1].timing.step_ns:
                break
            beside = self._beside(order, kept, left_bytes - kept_bytes[kept])
            for extra in islice(beside, reach):
                cost = place + kept_bytes[kept] + sum(self._sizes[u] for u in extra)
                level = Level((*order[:kept], *extra), ring_bytes, cost)
                if best and self._floor_ns(level) >= best[1].timing.step_ns:
                    continue
                schedule = self._play(level)
                if best is None or schedule.timing.step_ns < best[1].timing.step_ns:
                    best = (level, schedule)
        return best

    def _kept_bytes(self, ring_bytes: int, by_launch: bool) -> list[int]:
        """Bytes of the first units of a ring's order: none, one, and so on."""
        found = self._known.get((ring_bytes, by_launch))
        if found is None:
            sizes = (self._sizes[u] for u in self._choice.order(ring_bytes, by_launch))
            found = self._known[ring_bytes, by_launch] = list(accumulate(sizes, initial=0))
        return found

    def _beside(
        self, order: Sequence[int], kept: int, left_bytes: int
    ) -> Iterator[tuple[int, ...]]:
        """What may stay beside the first `kept` of an order, most bytes first.

        Where the next unit is large, later ones may stay instead of it, as long as all of
        them are smaller than it: for budgets that cannot pay it.
        """
        if kept < len(order) and self._sizes[order[kept]] > self._large_bytes:
            extra: list[int] = []
            total = 0
            steps: list[tuple[int, ...]] = []
            for unit in order[kept + 1 :]:
                size = self._sizes[unit]
                if len(extra) == _MOST_EXTRA:
                    break
                if total + size >= self._sizes[order[kept]]:
                    continue
                total += size
                extra.append(unit)
                if total > left_bytes:
                    break
                steps.append(tuple(extra))
            yield from reversed(steps)
        yield ()

    def _streams(self, level: Level) -> list[bool]:
        """For each unit whether it streams."""
        streams = [False] * len(self._units)
        for unit in self._choice.rest:
            streams[unit] = True
        for unit in level.stays:
            streams[unit] = False
        return streams

    @cached_property
    def _large_bytes(self) -> float:
        """What a unit is large from."""
        sizes = sorted(self._sizes[u] for u in self._choice.rest)
        return sizes[len(sizes) // 2] * _LARGE

    @cached_property
    def _largest_bytes(self) -> int:
        return max(self._sizes[u] for u in self._choice.rest)

    @cached_property
    def _rest_bytes(self) -> int:
        return sum(self._sizes[u] for u in self._choice.rest)

    def _least_ns(self, kept_bytes: int) -> int:
        """A time that no level beats which keeps so many bytes or fewer."""
        problem, profile = self._problem, self._problem.profile
        left = max(0, self._rest_bytes - kept_bytes)
        transfers = -(-left // self._largest_bytes)
        busy = transfers * profile.fetch_overhead_ns + int(
            left * 1e9 / profile.link_bytes_per_s
        )
        busy -= len(self._units)  # each transfer is rounded down
        return max(busy, problem.compute_ns + int(busy * profile.contention))

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
        problem = self._problem
        events = events_of(problem.streaming, streams, problem.runs)
        transfers = transfers_of(events, self._sizes)
        place_ring(transfers, level.ring_bytes, events)
        parts = problem.streaming.parts
        timing = simulate(
            events,
            transfers,
            problem.profile,
            problem.compute_ns,
            parts.branches,
            parts.steps_end_whole,
        )
        schedule = self._played[key] = Schedule(streams, events, transfers, timing)
        return schedule
