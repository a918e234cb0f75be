"""What a budget chooses from: rings of several depths, and what stays beside them.

A ring of the least size holds a unit in use and the next one arriving: enough where
every unit computes as long as the next one travels. A deeper ring lets the link run ahead
while early layers compute which need little, and pays for it with bytes that do not stay.
For each depth the units stand in an order of their own, and as many stay as the budget
then pays. `search` plays such levels through and takes the fastest, of equally fast ones
that which brings least.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TypeAlias

from headrace.plan.cost import Event, Timing, Transfer, Waits, simulate, transfer_ns
from headrace.plan.fetch import least_ring_bytes, place_ring, transfers_of
from headrace.plan.problem import Problem
from headrace.plan.residency import Way
from headrace.plan.streaming import events_of

_DEPTHS = (0, 0.5, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Units that a ring holds beside the least. Where two largest are more than that, half of one makes
room for them: BERT-base at 50 % through Vulkan, 14 MB, brings 138 MB a step instead of 145."""

_MANY_DEPTHS = (0, 0.5, 2, 8)
"""The same where there are hundreds of units: every size has orders of its own, 1 to 3 ms each."""

_PAGE_BYTES = 4096

_LARGE = 1.05  # times the middle unit: worth levels of its own before it
_MOST_EXTRA = 16

_REACH, _FEW = 1024, 8
"""Beside each ring so many levels are looked at, divided by the units there are: to play one
takes as long as it has units, and a new budget must have its plan in a tenth of a second. Where
these are few, there are `many` units."""


@dataclass(frozen=True)
class Level:
    """What stays, and the ring beside it.

    Attributes:
        stays: units beyond those that stay at every budget.
    """

    stays: tuple[int, ...]
    ring_bytes: int


_LevelKey: TypeAlias = tuple[int, tuple[int, ...]]


@dataclass(frozen=True)
class Schedule:
    """A level played through."""

    streams: list[bool]
    events: list[Event]
    transfers: list[Transfer]
    timing: Timing


Found: TypeAlias = tuple[Level, Schedule]


class Levels:
    """The levels of a problem.

    Attributes:
        problem, choice: whose they are.
        played: schedules of those that the last budget looked at: each is played once.
        sizes: bytes of each unit.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.choice = problem.choice
        self._units = problem.streaming.units
        self.played: dict[_LevelKey, Schedule] = {}
        self._known: dict[tuple[int, Way], list[int]] = {}
        self.sizes = [u.size_bytes for u in self._units]

    @property
    def everything(self) -> Level:
        """All units of the function stay."""
        return Level(self.choice.rest, 0)

    @property
    def reach(self) -> int:
        """How many levels are looked at beside each ring."""
        return _REACH // max(1, len(self.choice.rest))

    @property
    def many(self) -> bool:
        """Whether there are hundreds of units."""
        return self.reach < _FEW

    @cached_property
    def rings_bytes(self) -> tuple[int, ...]:
        """Sizes a ring may have, ascending.

        Those below the least that holds whatever streams are for two units of a size that
        many have: all larger ones stay.
        """
        least = self.choice.ring_bytes
        sizes = sorted(self.sizes[u] for u in self.choice.rest)
        if not sizes:
            return (least,)
        unit, most = sizes[len(sizes) // 2], sum(sizes) // 2
        small = {2 * sizes[len(sizes) * quarter // 4] for quarter in (1, 2, 3)}
        deep = (
            least + int(depth * unit) // _PAGE_BYTES * _PAGE_BYTES
            for depth in (_MANY_DEPTHS if self.many else _DEPTHS)
            if not depth or depth * unit <= most
        )
        return (*sorted(ring for ring in small if ring < least), *deep)

    @cached_property
    def _largest_first(self) -> tuple[list[int], list[int]]:
        """Sizes of `rest` negated, ascending; and the bytes of the first of them."""
        sizes = sorted(-self.sizes[u] for u in self.choice.rest)
        return sizes, [-total for total in accumulate(sizes, initial=0)]

    def bring_ns(self, ring_bytes: int, allowed_bytes: int) -> float:
        """What the link takes at least beside a ring, all computing hidden; infinite where the
        budget does not pay the ring, or what the ring cannot hold two of."""
        choice, profile = self.choice, self.problem.profile
        sizes, bytes_to = self._largest_first
        must = self._rest_bytes + choice.minimum_bytes - choice.ring_bytes
        must -= allowed_bytes - ring_bytes
        first = 0 if ring_bytes >= choice.ring_bytes else bisect_left(sizes, -ring_bytes // 2)
        count = bisect_left(bytes_to, bytes_to[first] + must, lo=first) - first
        if allowed_bytes < choice.minimum_bytes - choice.ring_bytes + ring_bytes:
            return math.inf
        if first + count > len(sizes):
            return math.inf
        return must * 1e9 / profile.link_bytes_per_s + count * profile.fetch_overhead_ns

    def kept_bytes(self, ring_bytes: int, way: Way) -> list[int]:
        """Bytes of the first units of a ring's order: none, one, and so on."""
        found = self._known.get((ring_bytes, way))
        if found is None:
            sizes = (self.sizes[u] for u in self.choice.order(ring_bytes, way))
            found = self._known[ring_bytes, way] = list(accumulate(sizes, initial=0))
        return found

    def beside(
        self, order: Sequence[int], kept: int, left_bytes: int
    ) -> Iterator[tuple[int, ...]]:
        """What may stay beside the first `kept` of an order, most bytes first.

        Where the next unit is large, later ones may stay instead of it, as long as all of
        them are smaller than it: for budgets that cannot pay it.
        """
        if kept < len(order) and self.sizes[order[kept]] > self._large_bytes:
            extra: list[int] = []
            total = 0
            steps: list[tuple[int, ...]] = []
            for unit in order[kept + 1 :]:
                size = self.sizes[unit]
                if len(extra) == _MOST_EXTRA:
                    break
                if total + size >= self.sizes[order[kept]]:
                    continue
                total += size
                extra.append(unit)
                if total > left_bytes:
                    break
                steps.append(tuple(extra))
            yield from reversed(steps)
        yield ()

    def filled(self, order: Sequence[int], kept: int, left_bytes: int) -> tuple[int, ...]:
        """The first `kept` of an order, some of the last given up for larger ones behind
        them, or with one more, so that little is left."""
        stays, rest = list(order[:kept]), list(order[kept:])
        while True:
            # Of each size the last that stays, and the first that does not.
            outs = {self.sizes[u]: n for n, u in enumerate(stays)}
            ins = {self.sizes[u]: n for n, u in reversed(list(enumerate(rest)))}
            gains = [
                (new - old, out, into)
                for old, out in (*list(outs.items())[-_MOST_EXTRA:], (0, -1))
                for new, into in list(ins.items())[-_MOST_EXTRA:]
                if 0 < new - old <= left_bytes
            ]
            if not gains:
                return tuple(stays)
            gain, out, into = max(gains)
            left_bytes -= gain
            if out < 0:
                stays.append(rest.pop(into))
            else:
                stays[out], rest[into] = rest[into], stays[out]

    def _streams(self, level: Level) -> list[bool]:
        """For each unit whether it streams."""
        streams = [False] * len(self._units)
        for unit in self.choice.rest:
            streams[unit] = True
        for unit in level.stays:
            streams[unit] = False
        return streams

    @cached_property
    def _large_bytes(self) -> float:
        """What a unit is large from."""
        sizes = sorted(self.sizes[u] for u in self.choice.rest)
        return sizes[len(sizes) // 2] * _LARGE

    @cached_property
    def _largest_bytes(self) -> int:
        return max(self.sizes[u] for u in self.choice.rest)

    @cached_property
    def _rest_bytes(self) -> int:
        return sum(self.sizes[u] for u in self.choice.rest)

    def least_ns(self, kept_bytes: int) -> int:
        """A time that no level beats which keeps so many bytes or fewer."""
        problem, profile = self.problem, self.problem.profile
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
        return [transfer_ns(u.size_bytes, self.problem.profile) for u in self._units]

    def floor_ns(self, level: Level) -> int:
        """A time that the level cannot beat."""
        times, problem = self._busy_ns, self.problem
        busy = sum(times[u] for u in self.choice.rest) - sum(times[u] for u in level.stays)
        return max(busy, problem.compute_ns + int(busy * problem.profile.contention))

    def play(self, level: Level) -> Schedule | None:
        """The level's schedule; None where its ring is too small for what streams."""
        key = level.ring_bytes, level.stays
        known = self.played.get(key)
        if known is not None:
            return known
        streams = self._streams(level)
        problem = self.problem
        events = events_of(problem.streaming, streams, problem.runs)
        transfers = transfers_of(events, self.sizes)
        ring_bytes = level.ring_bytes
        if ring_bytes < self.choice.ring_bytes and ring_bytes < least_ring_bytes(transfers):
            return None
        place_ring(transfers, level.ring_bytes, events)
        timing = simulate(
            events, transfers, problem.profile, problem.compute_ns, problem.streaming.parts
        )
        schedule = self.played[key] = Schedule(streams, events, transfers, timing)
        return schedule

    def simulated(self, schedule: Schedule, waits: Waits | None = None) -> Timing:
        """Times of a schedule as its transfers say now; `waits` takes where it waits."""
        problem = self.problem
        return simulate(
            schedule.events,
            schedule.transfers,
            problem.profile,
            problem.compute_ns,
            problem.streaming.parts,
            waits,
        )
