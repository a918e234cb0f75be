"""Which level a budget takes: of those looked at, the one that is predicted fastest.

Where there are few units, levels of every ring and order are played. Where there are hundreds,
the first of each ring that the link can win with is, in two orders, and units of the best are then
*swapped*: one that computing waits for stays, and one streams that is read where the link would
wait. A plan of 500 units takes 4 to 30 ms so; thrice the rings, four orders, and swaps in two
levels took up to 100 ms for steps that were as long.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from headrace.plan.cost import Event, Timing, Waits
from headrace.plan.levels import Found, Level, Levels, Schedule
from headrace.plan.residency import Way

_PROMISING = 2
"""Rings of which the other order is looked at where the link decides."""

_SWAPS, _SWAPPED, _SKIPPED = 6, 8, 2
"""How many levels are tried by swaps, of how many units the first, and how many waits without a
gain are passed over."""

_ALIKE = 0.04
"""Sizes that may be swapped differ by no more of them."""

_NEAREST = 24
"""Parts of launches on both sides, among which what streams instead is looked for."""

_NEAR = 1.005
"""Times what link or computing take anyway: of such a level nothing is swapped."""

_WORTH = 0.995
"""Times the step: what leaving a transfer to the next step's begin has to gain, for the link then
stands still until that step is launched, which may take longer than foreseen."""


def choose(levels: Levels, allowed_bytes: int) -> Found:
    """The level that a budget of at least the minimum takes, and its schedule."""
    if allowed_bytes >= levels.choice.everything_bytes:
        # Nothing is faster than never to wait.
        idle = [False] * len(levels.sizes)
        timing = Timing(levels.problem.compute_ns, 0)
        return levels.everything, Schedule(idle, [], [], timing)
    # The next budget pays others: of what it plays next to nothing would be found here.
    levels.played.clear()
    level, schedule = _Search(levels, allowed_bytes).run()
    return level, _head_left(levels, schedule)


def _head_left(levels: Levels, schedule: Schedule) -> Schedule:
    """The schedule with the last of a step's first transfers left to its own begin, where that is
    faster: a step that ends whole does not wait for it then.
    """
    problem = levels.problem
    head = [t for t in schedule.transfers if t.after < 0]
    if not problem.streaming.parts.steps_end_whole or len(problem.runs) > 1 or len(head) <= 1:
        return schedule
    head[-1].at_begin = True
    timing = levels.simulated(schedule)
    if timing.step_ns < schedule.timing.step_ns * _WORTH:
        return replace(schedule, timing=timing)
    head[-1].at_begin = False
    return schedule


class _Search:
    """The best of the levels that a budget can pay, among those looked at."""

    def __init__(self, levels: Levels, allowed_bytes: int) -> None:
        self._levels = levels
        self._choice = levels.choice
        self._allowed_bytes = allowed_bytes
        self._found: dict[tuple[int, Way], Found] = {}
        self._best: Found | None = None

    def run(self) -> Found:
        """Looks at levels; the best."""
        if self._levels.many:
            self._look_at_many()
        else:
            rings = self._levels.rings_bytes
            # From the least that holds whatever streams: it always has a level.
            least = bisect_left(rings, self._choice.ring_bytes)
            for ring_bytes in (*rings[least:], *rings[:least]):
                for way in self._choice.ways:
                    self._look(ring_bytes, way, self._levels.reach)
        assert self._best is not None
        return self._best

    def _look_at_many(self) -> None:
        levels = self._levels
        bring_ns = {r: levels.bring_ns(r, self._allowed_bytes) for r in levels.rings_bytes}
        ways: list[Way] = ["large first"]
        # What slices cost counts where computing decides: then at once, else of the best.
        other: list[Way] = ["by launch" if "by launch" in self._choice.ways else "spread"]
        if min(bring_ns.values()) < levels.problem.compute_ns:
            ways, other = [*ways, *other], []

        def look(ring_bytes: int, ways: Sequence[Way]) -> None:
            best = self._best
            if best is None or bring_ns[ring_bytes] < best[1].timing.step_ns:
                for way in ways:
                    self._look(ring_bytes, way, 1, fills=True)

        for ring_bytes in sorted(bring_ns, key=lambda ring: bring_ns[ring]):
            look(ring_bytes, ways)
        fastest = sorted(self._found.values(), key=lambda found: found[1].timing.step_ns)
        for ring_bytes in list(dict.fromkeys(f[0].ring_bytes for f in fastest))[:_PROMISING]:
            look(ring_bytes, other)

        def promise(found: Found) -> float:
            """Fast now, and fast if all computing were hidden."""
            return found[1].timing.step_ns + bring_ns[found[0].ring_bytes]

        self._swap(min(self._found.values(), key=promise))

    # -- levels of one order --------------------------------------------------------

    def _left_bytes(self, ring_bytes: int) -> int:
        """What a budget leaves beside a ring and what always stays."""
        choice = self._choice
        return self._allowed_bytes - (choice.minimum_bytes - choice.ring_bytes + ring_bytes)

    def _look(self, ring_bytes: int, way: Way, reach: int, fills: bool = False) -> None:
        """Plays levels of one order beside a ring.

        Args:
            reach: how many, from the one that keeps most.
            fills: of that one the last units that stay give way to larger ones, as far as is
                paid.
        """
        levels = self._levels
        left_bytes = self._left_bytes(ring_bytes)
        if left_bytes < 0 or self._is_lost(left_bytes):
            return
        order = self._choice.order(ring_bytes, way)
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
        best = self._best
        return best is not None and self._levels.least_ns(kept_bytes) >= best[1].timing.step_ns

    def _try(self, level: Level, way: Way) -> None:
        best = self._best
        if best and self._levels.floor_ns(level) >= best[1].timing.step_ns:
            return
        schedule = self._levels.play(level)
        if schedule is None:
            return
        found = level, schedule
        known = self._found.setdefault((level.ring_bytes, way), found)
        if schedule.timing.step_ns < known[1].timing.step_ns:
            self._found[level.ring_bytes, way] = found
        self._keep(found)

    def _keep(self, found: Found) -> None:
        """Takes what is better than the best."""
        if self._best is None or found[1].timing.step_ns < self._best[1].timing.step_ns:
            self._best = found

    # -- swaps ----------------------------------------------------------------------

    def _swap(self, found: Found) -> None:
        """Swaps units of a level as long as that makes it better, fewer and fewer."""
        levels = self._levels
        count, skip = _SWAPPED, 0
        for _ in range(_SWAPS):
            level, schedule = found
            step_ns = schedule.timing.step_ns
            if not level.stays or levels.floor_ns(level) * _NEAR >= step_ns:
                return
            swapped = self._swapped(found, count, skip)
            played = None if swapped is None else levels.play(swapped)
            if swapped is not None and played is not None and played.timing.step_ns < step_ns:
                found, skip = (swapped, played), 0
                self._keep(found)
            elif count > 1:
                count //= 2
            elif skip < _SKIPPED:
                skip += 1
            else:
                return

    def _swapped(self, found: Found, count: int, skip: int) -> Level | None:
        """A level in which units stay for which computing waits longest, behind the first `skip`,
        and others stream that are read where the link waits longest: up to `count` of them. None
        where there are none.
        """
        level, schedule = found
        levels, events, sizes = self._levels, schedule.events, self._levels.sizes
        waits = Waits()
        levels.simulated(schedule, waits)
        late = sorted(waits.computing, key=lambda event: -waits.computing[event])
        idle = sorted(waits.link, key=lambda transfer: -waits.link[transfer])
        stays = set(level.stays)
        left_bytes = self._left_bytes(level.ring_bytes) - sum(sizes[u] for u in stays)
        for event, transfer in zip(late[skip : skip + count], idle[:count], strict=False):
            into = next((u for u in events[event].units if u not in stays), None)
            if into is None:
                continue
            # A place in the ring is free late where computing read little for long.
            free = schedule.transfers[transfer]
            for out in self._near(events, max(free.after, free.previous)):
                more = sizes[into] - sizes[out]
                if out in stays and abs(more) <= _ALIKE * sizes[into] and more <= left_bytes:
                    stays.remove(out)
                    stays.add(into)
                    left_bytes -= more
                    break
        return (
            None if stays == set(level.stays) else Level(tuple(sorted(stays)), level.ring_bytes)
        )

    def _near(self, events: Sequence[Event], event: int) -> Iterator[int]:
        """Units, nearest first, that are read about half way between what an event reads and
        what the one before it does."""
        atoms = self._levels.problem.streaming.atoms
        begin = events[event - 1].last_atom if event > 0 else 0
        middle = (begin + events[event].first_atom) // 2
        for distance in range(_NEAREST):
            for at in (middle - distance, middle + distance):
                if 0 <= at < len(atoms):
                    yield from atoms[at].units
