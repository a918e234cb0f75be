"""What a budget chooses from: rings of several depths, and what stays beside them.

A ring of the least size holds a unit in use and the next one arriving: enough where
every unit computes as long as the next one travels. A deeper ring lets the link run ahead
while early layers compute which need little, and pays for it with bytes that do not stay.
For each depth the units stand in an order of their own, and as many stay as the budget
then pays. Each such level is played through; the fastest is taken, of equally fast ones
that which brings least.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, islice
from typing import TypeAlias

from headrace.plan.cost import Event, Timing, Transfer, simulate, transfer_ns
from headrace.plan.fetch import least_ring_bytes, place_ring, transfers_of
from headrace.plan.problem import Problem
from headrace.plan.residency import Choice, Way
from headrace.plan.streaming import events_of

_DEPTHS = (0, 0.5, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Units that a ring holds beside the least. Where two largest are more than that, half of one makes
room for them: BERT-base at 50 % through Vulkan, 14 MB, brings 138 MB a step instead of 145."""

_PAGE_BYTES = 4096

_LARGE = 1.05  # times the middle unit: worth levels of its own before it
_MOST_EXTRA = 16

_REACH, _FEW, _LEAST_REACH, _PROMISING = 1024, 8, 4, 3
"""Beside each ring so many levels are looked at, divided by the units there are: to play one
takes as long as it has units, and a new budget must have its plan in a tenth of a second. Where
these are few, the first level of each ring is, then those next to the best."""

_ENOUGH = 2
"""Rings deeper than the best so far, none of them better, after which no others are looked at."""


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


_Found: TypeAlias = tuple[Level, Schedule]


class Levels:
    """The levels of a problem.

    Attributes:
        played: schedules of those that the last budget looked at: each is played once.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._choice = problem.choice
        self._units = problem.streaming.units
        self.played: dict[_LevelKey, Schedule] = {}
        self._known: dict[tuple[int, Way], list[int]] = {}
        self._sizes = [u.size_bytes for u in self._units]

    @property
    def everything(self) -> Level:
        """All units of the function stay."""
        return Level(self._choice.rest, 0)

    @cached_property
    def rings_bytes(self) -> tuple[int, ...]:
        """Sizes a ring may have, ascending.

        Those below the least that holds whatever streams are for two units of a size that
        many have: all larger ones stay.
        """
        least = self._choice.ring_bytes
        sizes = sorted(self._sizes[u] for u in self._choice.rest)
        if not sizes:
            return (least,)
        unit, most = sizes[len(sizes) // 2], sum(sizes) // 2
        small = {2 * sizes[len(sizes) * share // 4] for share in range(1, 4)}
        deep = (
            least + int(depth * unit) // _PAGE_BYTES * _PAGE_BYTES
            for depth in _DEPTHS
            if not depth or depth * unit <= most
        )
        return (*sorted(ring for ring in small if ring < least), *deep)

    def choose(self, allowed_bytes: int) -> tuple[Level, Schedule]:
        """The level that a budget of at least the minimum takes, and its schedule."""
        if allowed_bytes >= self._choice.everything_bytes:
            # Nothing is faster than never to wait.
            idle = [False] * len(self._units)
            timing = Timing(self._problem.compute_ns, 0)
            return self.everything, Schedule(idle, [], [], timing)
        # The next budget pays others: of what it plays next to nothing would be found here.
        self.played.clear()
        count = len(self._choice.rest)
        reach = _REACH // max(1, count)
        many = reach < _FEW
        search = _Search(self, self._choice, allowed_bytes)
        ways = self._choice.ways
        if many:
            # Where there are hundreds of transfers, few of them are worth an order of its own.
            ways = (*ways, "large first")
        # From the least that holds whatever streams: it always has a level.
        least = bisect_left(self.rings_bytes, self._choice.ring_bytes)
        best_at = least
        for at in (*range(least, len(self.rings_bytes)), *range(least)):
            if many and at - best_at > _ENOUGH:
                continue
            before = search.best
            for way in ways:
                search.look(self.rings_bytes[at], way, 1 if many else reach, many)
            best_at = at if search.best is not before else best_at
        if many:
            for ring_bytes, way in search.promising():
                search.look(ring_bytes, way, max(_LEAST_REACH, reach))
        assert search.best is not None
        return search.best

    def kept_bytes(self, ring_bytes: int, way: Way) -> list[int]:
        """Bytes of the first units of a ring's order: none, one, and so on."""
        found = self._known.get((ring_bytes, way))
        if found is None:
            sizes = (self._sizes[u] for u in self._choice.order(ring_bytes, way))
            found = self._known[ring_bytes, way] = list(accumulate(sizes, initial=0))
        return found

    def beside(
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

    def filled(self, order: Sequence[int], kept: int, left_bytes: int) -> tuple[int, ...]:
        """The first `kept` of an order, some of the last given up for larger ones behind
        them, or with one more, so that little is left."""
        stays, rest = list(order[:kept]), list(order[kept:])
        while True:
            # Of each size the last that stays, and the first that does not.
            outs = {self._sizes[u]: n for n, u in enumerate(stays)}
            ins = {self._sizes[u]: n for n, u in reversed(list(enumerate(rest)))}
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

    def least_ns(self, kept_bytes: int) -> int:
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

    def floor_ns(self, level: Level) -> int:
        """A time that the level cannot beat."""
        times, problem = self._busy_ns, self._problem
        busy = sum(times[u] for u in self._choice.rest) - sum(times[u] for u in level.stays)
        return max(busy, problem.compute_ns + int(busy * problem.profile.contention))

    def play(self, level: Level) -> Schedule | None:
        """The level's schedule; None where its ring is too small for what streams."""
        key = level.ring_bytes, level.stays
        known = self.played.get(key)
        if known is not None:
            return known
        streams = self._streams(level)
        problem = self._problem
        events = events_of(problem.streaming, streams, problem.runs)
        transfers = transfers_of(events, self._sizes)
        ring_bytes = level.ring_bytes
        if ring_bytes < self._choice.ring_bytes and ring_bytes < least_ring_bytes(transfers):
            return None
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
        schedule = self.played[key] = Schedule(streams, events, transfers, timing)
        return schedule


class _Search:
    """The best of the levels that a budget can pay, among those looked at.

    Attributes:
        best: None where none was.
    """

    def __init__(self, levels: Levels, choice: Choice, allowed_bytes: int) -> None:
        self._levels = levels
        self._choice = choice
        self._allowed_bytes = allowed_bytes
        self._found: dict[tuple[int, Way], int] = {}
        self.best: _Found | None = None

    def promising(self) -> list[tuple[int, Way]]:
        """The rings and orders whose first level was fastest."""
        return sorted(self._found, key=lambda way: self._found[way])[:_PROMISING]

    def look(self, ring_bytes: int, way: Way, reach: int, fills: bool = False) -> None:
        """Plays levels of one order beside a ring.

        Args:
            reach: how many, from the one that keeps most.
            fills: of that one the last units that stay give way to larger ones, as far as is
                paid.
        """
        levels, choice = self._levels, self._choice
        place = choice.minimum_bytes - choice.ring_bytes + ring_bytes
        left_bytes = self._allowed_bytes - place
        if left_bytes < 0 or self._is_lost(left_bytes):
            return
        order = choice.order(ring_bytes, way)
        kept_bytes = levels.kept_bytes(ring_bytes, way)
        most = bisect_right(kept_bytes, left_bytes) - 1
        for kept in range(most, max(most - reach, -1), -1):
            if self._is_lost(kept_bytes[min(kept + 1, len(order))]):
                break
            stays, spare_bytes = order[:kept], left_bytes - kept_bytes[kept]
            if fills:
                filled = levels.filled(order, kept, spare_bytes)
                self._try(Level(filled, ring_bytes), way)
                continue
            for extra in islice(levels.beside(order, kept, spare_bytes), reach):
                self._try(Level((*stays, *extra), ring_bytes), way)

    def _is_lost(self, kept_bytes: int) -> bool:
        """Whether no level that keeps so many bytes can be better than the best."""
        return (
            self.best is not None
            and self._levels.least_ns(kept_bytes) >= self.best[1].timing.step_ns
        )

    def _try(self, level: Level, way: Way) -> None:
        best = self.best
        if best and self._levels.floor_ns(level) >= best[1].timing.step_ns:
            return
        schedule = self._levels.play(level)
        if schedule is None:
            return
        step_ns = schedule.timing.step_ns
        key = level.ring_bytes, way
        self._found[key] = min(step_ns, self._found.get(key, step_ns))
        if best is None or step_ns < best[1].timing.step_ns:
            self.best = level, schedule
