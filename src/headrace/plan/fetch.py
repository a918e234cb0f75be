"""What is brought when, and where in the ring it stands.

Transfers happen in order of use. A place is chosen among those that the transfers still
in use at that time leave free, so no transfer ever waits for a command that waits for
it; of those places the one that was free earliest, so transfers run as far ahead as the
ring allows. The places of a step are the same every step: the first transfers of the
next step move into the ring behind the last of this one.
"""

from __future__ import annotations

import itertools
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
        if event.run != run:
            open_transfers = {}
            run = event.run
        missing = [u for u in event.units if u not in open_transfers]
        if missing:
            open_transfers = {u: t for u, t in open_transfers.items() if u in event.units}
            for unit in missing:
                transfer = Transfer(unit, sizes_bytes[unit], index, index)
                open_transfers[unit] = transfer
                found.append(transfer)
        for unit in event.units:
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
    intervals = [
        Interval(i, t.size_bytes, transfers[i - 1].first if i else t.first, t.last)
        for i, t in enumerate(transfers)
    ]
    simple = all(later.first > earlier.last for earlier, later in itertools.pairwise(transfers))
    if simple:
        return _both_ends(transfers)
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


def place_ring(transfers: Sequence[Transfer], ring_bytes: int, events: Sequence[Event]) -> None:
    """Sets place and constraints of each transfer, for a ring of at least the least size."""
    if not transfers:
        return
    if not _place_greedily(transfers, ring_bytes):
        for transfer, offset in zip(transfers, _overlapped(transfers)[0], strict=True):
            transfer.offset_bytes = offset
    _constrain(transfers, events)


def _place_greedily(transfers: Sequence[Transfer], ring_bytes: int) -> bool:
    """Places in order; False where what is in use leaves no gap that fits."""
    shallow = ring_bytes < _SHALLOW * max(t.size_bytes for t in transfers)
    owners: list[tuple[int, int, int]] = []
    end, bottom = 0, False
    for transfer in transfers:
        size = transfer.size_bytes
        bottom = not bottom
        if shallow:
            wished = 0 if bottom else ring_bytes - size
        else:
            wished = end if end + size <= ring_bytes else 0
        if _score(owners, wished, size, transfer.first) is None:
            chosen = _search(owners, size, ring_bytes, transfer.first)
            if chosen is None:
                return False
            wished = chosen
        transfer.offset_bytes = wished
        end = wished + size
        _own(owners, wished, size, transfer.last)
    return True


def _score(
    owners: Sequence[tuple[int, int, int]], offset: int, size: int, first: int
) -> int | None:
    """The last event that reads what stands there now; None where one is still to come."""
    latest = -1
    for start, end, last in owners:
        if start < offset + size and offset < end:
            if last >= first:
                return None
            latest = max(latest, last)
    return latest


def _search(
    owners: Sequence[tuple[int, int, int]], size: int, ring_bytes: int, first: int
) -> int | None:
    """The place that is free earliest, lowest first; None where there is none."""
    candidates = {0, ring_bytes - size}
    for start, end, _ in owners:
        candidates |= {end, start - size}
    best: tuple[int, int] | None = None
    for offset in sorted(c for c in candidates if 0 <= c <= ring_bytes - size):
        score = _score(owners, offset, size, first)
        if score is not None and (best is None or score < best[0]):
            best = (score, offset)
    return None if best is None else best[1]


def _own(owners: list[tuple[int, int, int]], offset: int, size: int, last: int) -> list[int]:
    """Records a new owner of a range; returns what the owners before it gave."""
    stop = offset + size
    given: list[int] = []
    kept: list[tuple[int, int, int]] = []
    for start, end, value in owners:
        if start < stop and offset < end:
            given.append(value)
            if start < offset:
                kept.append((start, offset, value))
            if end > stop:
                kept.append((stop, end, value))
        else:
            kept.append((start, end, value))
    kept.append((offset, stop, last))
    owners[:] = kept
    return given


def _constrain(transfers: Sequence[Transfer], events: Sequence[Event]) -> None:
    """When each place is free: owners of this step, else of the step before.

    Events of the step before count from `-len(events)`. In a function of several runs
    nothing moves before its run begins, and nothing into the step before its end.
    """
    count = len(events)
    several = events[-1].run != events[0].run
    owners: list[tuple[int, int, int]] = []
    for transfer in transfers:
        _own(owners, transfer.offset_bytes, transfer.size_bytes, transfer.last - count)
    run_begin = -1
    run = 0
    for transfer in transfers:
        given = _own(owners, transfer.offset_bytes, transfer.size_bytes, transfer.last)
        latest = max(given)
        if several:
            event_run = events[transfer.first].run
            if event_run != run:
                run = event_run
                run_begin = next(i for i, e in enumerate(events) if e.run == run) - 1
            transfer.after = max(run_begin, latest, -1)
            transfer.previous = count - 1
            continue
        transfer.after = max(latest, -1)
        transfer.previous = latest + count if latest < 0 else -1
