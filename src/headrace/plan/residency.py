"""Which units stay.

Some must: what copies read, and small weights that nearly every launch reads beside
others (*anchors*). The others stand in one order, the same for every budget: a larger
budget keeps a longer head of it, so it never brings more bytes. The order is made from
its end: starting with all resident, the unit that is hidden best behind the computing
before it is the first to stream, and so on; equal layers thereby spread evenly.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Literal, TypeAlias

from headrace.plan.cost import Concurrency, Event, PartTimes, transfer_ns
from headrace.plan.fetch import least_ring_bytes, transfers_of
from headrace.plan.profile import Profile
from headrace.plan.steps import FlatFunction
from headrace.plan.streaming import Atom, Streaming, Unit, events_of

_ANCHOR_COUNTS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_TWICE = 2
_STAGES = (*(n / 32 for n in range(1, 33)), 1.25, 1.5, 2.0, 3.0, 4.0, 8.0)
"""Link time for each nanosecond of computing, of what would bring all weights."""

_MANY = 128
_COARSE = (*(n / 8 for n in range(1, 9)), 1.25, 1.5, 2.0, 3.0, 4.0, 8.0)
"""Stages of so many units: each finds dozens, and all of an order took 4 ms of 500 units."""

_DEAR = 0.2
"""Computing that a unit's slices cost beside their share, in times of its transfer."""

_LARGE = 0.97
"""Of half a ring: units for which it has been made."""

Way: TypeAlias = Literal["spread", "large first", "by launch", "dear last"]
"""How units are ordered: evenly over the step; the largest that a ring holds two of first to
stream, for that makes few transfers; those that the slices of a launch read behind one another,
so that few launches are cut between what stays and what streams; or those last to stream whose
slices cost most computing."""


class Choice:
    """What every budget shares.

    Order and events are worked out when they are first asked for: a budget that holds
    everything needs neither.

    Attributes:
        always: units that stay at every budget.
        rest: the other units this function reads, in order of the pool.
        tables: units read in place where they do not stay.
        unused: units only other entry functions read.
        ring_bytes: the least ring while something streams.
        minimum_bytes: the least budget.
        everything_bytes: the least budget with which none of `rest` streams.
    """

    def __init__(
        self,
        flat: FlatFunction,
        streaming: Streaming,
        runs: Sequence[tuple[int, int]],
        profile: Profile,
    ) -> None:
        self._parts = (flat, streaming, runs, profile)
        self._orders: dict[tuple[int, Way], tuple[int, ...]] = {}
        units = streaming.units
        fixed = [i for i, u in enumerate(units) if u.fixed]
        free = [(i, u) for i, u in enumerate(units) if not u.fixed]
        self.tables = tuple([i for i, u in free if u.in_place])
        self.unused = tuple([i for i, u in free if not u.uses and not u.in_place])
        pattern = tuple([(atom.step, atom.units) for atom in streaming.atoms])
        anchors, self.ring_bytes = _anchors(tuple(units), pattern, tuple(runs))
        self.always = tuple(sorted([*fixed, *anchors]))
        others = [i for i, u in free if u.uses and not u.in_place]
        self.rest = tuple([i for i in others if i not in set(anchors)])
        kept = sum([units[i].size_bytes for i in self.always])
        kept += streaming.row_bytes if self.tables else 0
        self.minimum_bytes = kept + self.ring_bytes
        self.everything_bytes = kept + sum([units[i].size_bytes for i in self.rest])

    @cached_property
    def events(self) -> list[Event]:
        """Of a step in which all of `rest` stream."""
        _, streaming, runs, _ = self._parts
        streams = [False] * len(streaming.units)
        for unit in self.rest:
            streams[unit] = True
        return events_of(streaming, streams, runs)

    @cached_property
    def ways(self) -> tuple[Way, ...]:
        """What `order` may be asked for: others too where slices cost more than shares."""
        _, streaming, _, _ = self._parts
        if not any(streaming.parts.slots):
            return ("spread",)
        return ("spread", "by launch", "dear last") if self._dear else ("spread", "by launch")

    @cached_property
    def _uses(self) -> _Uses:
        flat, streaming, runs, _ = self._parts
        sizes = [u.size_bytes for u in streaming.units]
        return _uses(flat, sizes, runs, self.rest, self.events)

    @cached_property
    def _times_ns(self) -> list[int]:
        """Of the transfer of each unit."""
        _, streaming, _, profile = self._parts
        return [transfer_ns(u.size_bytes, profile) for u in streaming.units]

    @cached_property
    def _dear(self) -> frozenset[int]:
        """Units whose slices take much longer than their share of the launch."""
        _, streaming, _, _ = self._parts
        more_ns: Counter[int] = Counter()
        for atom in streaming.atoms:
            if not atom.whole and streaming.parts.slots[atom.step]:
                more_ns.update(
                    dict.fromkeys(atom.units, streaming.parts.more_ns(atom.step, atom.count))
                )
        return frozenset(u for u in self.rest if more_ns[u] > _DEAR * self._times_ns[u])

    def order(self, ring_bytes: int, way: Way = "spread") -> tuple[int, ...]:
        """`rest` in the order in which its units stay beside a ring of this size."""
        found = self._orders.get((ring_bytes, way))
        if found is None:
            _, streaming, _, profile = self._parts
            sizes = {u: streaming.units[u].size_bytes for u in self.rest}
            # A ring below the least that holds whatever streams: the larger units stay.
            wide = (u for u in self.rest if ring_bytes < min(self.ring_bytes, 2 * sizes[u]))
            late = self._dear if way == "dear last" else frozenset[int]()
            if way == "large first":
                half = min(ring_bytes, self.ring_bytes) / 2
                late = frozenset(u for u in self.rest if sizes[u] < _LARGE * half)
            found = self._orders[ring_bytes, way] = tuple(
                _order(
                    self._uses,
                    self._times_ns,
                    transfer_ns(ring_bytes, profile),
                    frozenset(wide),
                    late,
                    _launches(streaming) if way == "by launch" else {},
                )
            )
        return found


@lru_cache(maxsize=256)
def _anchors(
    units: tuple[Unit, ...],
    pattern: tuple[tuple[int, tuple[int, ...]], ...],
    runs: tuple[tuple[int, int], ...],
) -> tuple[tuple[int, ...], int]:
    """The anchors with which the minimum is least, and the least ring beside them.

    Candidates are the most used units, ever more of them; all of them is the function
    without streaming. Times play no part, so that sizes which cut a function alike share
    the answer: it takes longer than all else of a plan.

    Args:
        pattern: step and units of each atom.
        runs: straight runs of steps (first, end).
    """
    atoms = [Atom(step, 0, 1, read, True, 0) for step, read in pattern]
    parts = PartTimes((), (), Concurrency(), 0)
    streaming = Streaming(atoms, list(units), [], 0, [], parts, [])
    others = [i for i, u in enumerate(units) if u.uses and not u.in_place and not u.fixed]
    sizes = [u.size_bytes for u in units]
    ranked = sorted(others, key=lambda i: (-units[i].uses, units[i].size_bytes, i))
    counts = [c for c in _ANCHOR_COUNTS if c < len(ranked)] + [len(ranked)]
    best: tuple[int, int, int] | None = None
    for count in counts:
        streams = [False] * len(units)
        for unit in ranked[count:]:
            streams[unit] = True
        events = events_of(streaming, streams, runs)
        transfers = transfers_of(events, sizes)
        ring = least_ring_bytes(transfers)
        cost = ring + sum(sizes[i] for i in ranked[:count])
        # Of equal cost the most anchors: what stays need not be brought.
        if best is None or cost <= best[0]:
            best = (cost, count, ring)
        if all(len(e.units) < 2 for e in events) and len(transfers) <= len(others) - count:
            break  # nothing is read together or twice: more anchors only cost
    assert best is not None
    _, count, ring = best
    return tuple(ranked[:count]), ring


@dataclass(frozen=True)
class _Uses:
    """How a step reads the units of `rest`.

    Attributes:
        needed_ns: computing before the first reader of each.
        groups: the order in which they begin to stream: those brought once or twice, those that
            many launches read apart and are brought for each of them, those of loops. Each by
            first reader.
        compute_ns: of the step.
    """

    needed_ns: dict[int, int]
    groups: tuple[list[int], list[int], list[int]]
    compute_ns: int


def _uses(
    flat: FlatFunction,
    sizes_bytes: Sequence[int],
    runs: Sequence[tuple[int, int]],
    rest: Sequence[int],
    events: Sequence[Event],
) -> _Uses:
    begin = 0
    needed: dict[int, int] = {}
    trips: dict[int, int] = {}
    brought = Counter(t.unit for t in transfers_of(events, sizes_bytes))
    for event in events:
        for unit in event.units:
            needed.setdefault(unit, begin)
            trips[unit] = max(trips.get(unit, 1), _trips(flat, runs[event.run]))
        begin += event.using_ns + event.trailing_ns
    places = sorted(rest, key=lambda u: (needed[u], u))
    often = [u for u in places if trips[u] > 1]
    again = [u for u in places if trips[u] == 1 and brought[u] > _TWICE]
    once = [u for u in places if trips[u] == 1 and brought[u] <= _TWICE]
    return _Uses(needed, (once, again, often), max(begin, 1))


def _order(
    uses: _Uses,
    times_ns: Sequence[int],
    ring_ns: int,
    wide: frozenset[int],
    late: frozenset[int],
    launches: Mapping[int, int],
) -> list[int]:
    """Units in the order in which they stay: the reverse of how they begin to stream.

    Args:
        times_ns: of each unit's transfer.
        ring_ns: of bringing as much as the ring holds.
        wide: units that all stay.
        late: units that stream behind others that are brought as often.
        launches: units of one begin together.
    """
    order: list[int] = []
    once, *others = uses.groups
    groups = ([u for u in once if u not in late], [u for u in once if u in late], *others)
    for group in groups:
        together: dict[int, list[int]] = {}
        for unit in group:
            if unit not in wide:
                together.setdefault(launches.get(unit, ~unit), []).append(unit)
        parts = list(together.values())
        times = [sum(times_ns[u] for u in units) for units in parts]
        first = [uses.needed_ns[units[0]] for units in parts]
        for pick in _hidden_first(first, times, uses.compute_ns, ring_ns):
            order.extend(parts[pick])
    order.extend(sorted(wide))
    return order[::-1]


def _launches(streaming: Streaming) -> dict[int, int]:
    """The step whose slices read a unit first, of those that slices read."""
    found: dict[int, int] = {}
    for atom in streaming.atoms:
        if not atom.whole:
            for unit in atom.units:
                found.setdefault(unit, atom.step)
    return found


def _trips(flat: FlatFunction, run: tuple[int, int]) -> int:
    trips = 1
    for span in flat.loops:
        if span.first < run[1] and run[0] <= span.last:
            trips *= span.trips
    return trips


def _hidden_first(
    needed: Sequence[int], times: Sequence[int], compute_ns: int, ring_ns: int
) -> list[int]:
    """Positions in the order in which they begin to stream.

    While computing runs the link may bring ahead what the ring holds beside the unit in
    use: credit grows with the computing, up to that, and a unit that streams takes its
    time of it. With little credit for each nanosecond few units can be paid, evenly
    spread over the step; it grows from stage to stage, and what can be paid first begins
    to stream first.

    Args:
        needed: computing before each unit's first reader, ascending.
        times: of the transfer of each unit.
        compute_ns: of a step.
        ring_ns: time of bringing as much as the ring holds.
    """
    streams = [False] * len(times)
    order: list[int] = []
    busy_ns = sum(times)
    gaps = [at - before for before, at in pairwise((0, *needed))]
    rest_ns = compute_ns - needed[-1] if needed else compute_ns
    for stage in _STAGES if len(times) <= _MANY else _COARSE:
        if len(order) == len(times):
            break
        rate = stage * busy_ns / compute_ns
        credit, held = float(ring_ns), 0
        found: list[int] = []
        # What was left after each unit, and what is held. Of all units, for each of some
        # forty rates: no function is called here.
        left: list[float] = []
        holds: list[int] = []
        for position, (gap, time) in enumerate(zip(gaps, times, strict=True)):
            most = ring_ns - held
            if most < time:
                most = time
            credit += gap * rate
            if credit > most:
                credit = most
            if streams[position]:
                credit -= time
                held = time
            elif credit >= time:
                credit -= time
                held = time
                found.append(position)
            left.append(credit)
            holds.append(held)
        # The second time as a steady step would find it: until nothing differs any more.
        credit, held = min(credit + rest_ns * rate, ring_ns - held), 0
        first, found = found, []
        for position, (gap, time) in enumerate(zip(gaps, times, strict=True)):
            most = ring_ns - held
            if most < time:
                most = time
            credit += gap * rate
            if credit > most:
                credit = most
            if streams[position]:
                credit -= time
                held = time
            elif credit >= time:
                credit -= time
                held = time
                found.append(position)
            if credit == left[position] and held == holds[position]:
                found.extend(first[bisect_right(first, position) :])
                break
        for pick in _spread(len(found)):
            streams[found[pick]] = True
            order.append(found[pick])
    order.extend(p for p, there in enumerate(streams) if not there)
    return order


def _spread(count: int) -> list[int]:
    """Positions so that every head of the list is spread evenly: bits reversed."""
    bits = max(1, (count - 1).bit_length())
    mirrored = [int(f"{i:0{bits}b}"[::-1], 2) for i in range(1 << bits)]
    return [m for m in mirrored if m < count]
