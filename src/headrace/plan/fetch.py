"""What is brought when, and where in the ring it stands.

Transfers happen in order of use. A place is chosen among those that the transfers still
in use at that time leave free, so no transfer ever waits for a command that waits for
it; of those places the one that was free earliest, so transfers run as far ahead as the
ring allows. The places of a step are the same every step: the first transfers of the
next step move into the ring behind the last of this one.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from headrace.plan.cost import Event, Transfer
from headrace.plan.memory import Interval, place_intervals

_SHALLOW = 3  # a ring of fewer largest units than this fills from both ends


def transfers_of(events: Sequence[Event], sizes_bytes: Sequence[int]) -> list[Transfer]:
    """The transfers of a step, in order of use, not yet placed.

    A unit stays from its first reader to its last as long as nothing else had to be
    brought meanwhile for events that do not read it; else it is brought again.
    """
    found: list[Transfer] = []
    open_transfers: dict[int, Transfer] = {}
    run = -1
    for index, event in enumerate(events):
        units = event.units
        if event.run != run:
            open_transfers = {}
            run = event.run
        missing = [u for u in units if u not in open_transfers]
        if missing:
            open_transfers = {u: open_transfers[u] for u in units if u in open_transfers}
            for unit in missing:
                transfer = Transfer(unit, sizes_bytes[unit], index, index)
                open_transfers[unit] = transfer
                found.append(transfer)
        for unit in units:
            open_transfers[unit].last = index
    return found


def least_ring_bytes(transfers: Sequence[Transfer]) -> int:
    """The least ring: all that is read at once, and the next unit arriving meanwhile.

    For units read one after another these are the two largest neighbours. Any larger
    ring can place the same transfers.
    """
    if not transfers:
        return 0
    # The step comes round: the first unit arrives while the last is in use.
    around = transfers[-1].size_bytes + transfers[0].size_bytes if len(transfers) > 1 else 0
    return max(around, _overlapped(transfers)[1])


def _overlapped(transfers: Sequence[Transfer]) -> tuple[list[int], int]:
    """Places where each transfer stands from when the one before it is first read, and
    the bytes needed."""
    if all(later.first > earlier.last for earlier, later in itertools.pairwise(transfers)):
        return _both_ends(transfers)
    intervals = [
        Interval(i, t.size_bytes, transfers[i - 1].first if i else t.first, t.last)
        for i, t in enumerate(transfers)
    ]
    places, size, _ = place_intervals(intervals)
    return places, size


def _both_ends(transfers: Sequence[Transfer]) -> tuple[list[int], int]:
    """Transfers read one after another: every other one stands at the other end."""
    size = max(
        (a.size_bytes + b.size_bytes for a, b in itertools.pairwise(transfers)),
        default=transfers[0].size_bytes,
    )
    places = [0 if i % 2 == 0 else size - t.size_bytes for i, t in enumerate(transfers)]
    return places, size


class _Ring:
    """Who stands where: ranges side by side in ascending order, each with its last reader."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._lasts: list[int] = []

    def latest(self, offset: int, size: int) -> int:
        """The last event that reads what stands there; -1 where nothing does."""
        low = bisect_right(self._ends, offset)
        high = bisect_left(self._starts, offset + size)
        return max(self._lasts[low:high], default=-1)

    def put(self, offset: int, size: int, last: int, first: int) -> int | None:
        """Gives a range to who is read from event `first` to `last`.

        Returns `latest` of before; None, and nothing is done, where what stands there is still
        to be read at `first`.
        """
        starts, ends, lasts = self._starts, self._ends, self._lasts
        stop = offset + size
        low, high = bisect_right(ends, offset), bisect_left(starts, stop)
        latest = -1
        begins, stops, readers = [offset], [stop], [last]
        if low < high:
            latest = max(lasts[low:high])
            if latest >= first:
                return None
            if starts[low] < offset:
                begins.insert(0, starts[low])
                stops.insert(0, offset)
                readers.insert(0, lasts[low])
            if ends[high - 1] > stop:
                begins.append(stop)
                stops.append(ends[high - 1])
                readers.append(lasts[high - 1])
        starts[low:high], ends[low:high], lasts[low:high] = begins, stops, readers
        return latest

    def free_earliest(self, size: int, ring_bytes: int, first: int) -> int | None:
        """The place that is free earliest, lowest first; None where all are read at `first`."""
        candidates = {0, ring_bytes - size, *self._ends, *(at - size for at in self._starts)}
        best: tuple[int, int] | None = None
        for offset in sorted(c for c in candidates if 0 <= c <= ring_bytes - size):
            latest = self.latest(offset, size)
            if latest < first and (best is None or latest < best[0]):
                best = (latest, offset)
        return None if best is None else best[1]


def place_ring(transfers: Sequence[Transfer], ring_bytes: int, events: Sequence[Event]) -> None:
    """Sets place and constraints of each transfer, for a ring of at least the least size."""
    if not transfers:
        return
    ring = _Ring()
    before = _place_greedily(ring, transfers, ring_bytes)
    if before is None:
        for transfer, offset in zip(transfers, _overlapped(transfers)[0], strict=True):
            transfer.offset_bytes = offset
        ring, before = _Ring(), []
        for transfer in transfers:
            # Every event of the step comes before its end: nothing is refused.
            latest = ring.put(
                transfer.offset_bytes, transfer.size_bytes, transfer.last, len(events)
            )
            assert latest is not None
            before.append(latest)
    _constrain(transfers, events, ring, before)


def _place_greedily(
    ring: _Ring, transfers: Sequence[Transfer], ring_bytes: int
) -> list[int] | None:
    """Places in order: of each the last event that reads what stood there, -1 for none; None
    where what is in use leaves no gap that fits."""
    shallow = ring_bytes < _SHALLOW * max(t.size_bytes for t in transfers)
    before: list[int] = []
    end, bottom = 0, False
    for transfer in transfers:
        size = transfer.size_bytes
        bottom = not bottom
        if shallow:
            wished = 0 if bottom else ring_bytes - size
        else:
            wished = end if end + size <= ring_bytes else 0
        latest = ring.put(wished, size, transfer.last, transfer.first)
        if latest is None:
            chosen = ring.free_earliest(size, ring_bytes, transfer.first)
            if chosen is None:
                return None
            wished = chosen
            latest = ring.put(wished, size, transfer.last, transfer.first)
            assert latest is not None
        before.append(latest)
        transfer.offset_bytes = wished
        end = wished + size
    return before


def _constrain(
    transfers: Sequence[Transfer],
    events: Sequence[Event],
    ring: _Ring,
    before: Sequence[int],
) -> None:
    """When each place is free: owners of this step, else of the step before.

    Events of the step before count from `-len(events)`. In a function of several runs
    nothing moves before its run begins, and nothing into the step before its end.

    Args:
        ring: as the step leaves it, and finds it.
        before: the last event of this step that reads what stood where each comes to.
    """
    count = len(events)
    several = events[-1].run != events[0].run
    run_begin = -1
    run = 0
    for transfer, latest in zip(transfers, before, strict=True):
        if several:
            event_run = events[transfer.first].run
            if event_run != run:
                run = event_run
                run_begin = next(i for i, e in enumerate(events) if e.run == run) - 1
            transfer.after = max(run_begin, latest, -1)
            transfer.previous = count - 1
        elif latest < 0:
            transfer.after = -1
            transfer.previous = ring.latest(transfer.offset_bytes, transfer.size_bytes)
        else:
            transfer.after, transfer.previous = latest, -1
