"""Device memory for weights that grows and shrinks at its end, and what stays keeps its bytes.

A range of addresses is reserved once; physical memory is mapped behind it piece by piece.
So a new budget moves on the device what stays (at 2 TB/s) and brings only what is new,
and at no moment is more held than the larger of the two budgets.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from itertools import pairwise

from headrace.runtime.drivers.cuda_calls import CudaCalls

_PIECES = 256
_LARGEST_PIECE_BYTES = 32 << 20
"""Smaller than any ring: behind what stays a whole piece can be given back."""

Move = tuple[int, int, int]
"""Target, source and bytes."""


class Arena:
    """Bytes at one address of the device.

    Attributes:
        address: of the first byte.
        size_bytes: as asked for; the driver holds whole granules.
    """

    def __init__(self, calls: CudaCalls, most_bytes: int) -> None:
        """Reserves addresses for so many bytes. Raises HeadraceError HR4022."""
        self._calls = calls
        self._piece_bytes = min(
            self._whole(max(1, most_bytes // _PIECES)), _LARGEST_PIECE_BYTES
        )
        # A model without weights has an address too: the driver refuses to reserve nothing.
        self._reserved_bytes = self._whole(max(1, most_bytes))
        self.address = calls.reserve(self._reserved_bytes)
        self.size_bytes = 0
        self._pieces: list[tuple[int, int]] = []
        self._release = weakref.finalize(
            self, _give_back, calls, self.address, self._reserved_bytes, self._pieces
        )
        self._release.atexit = False

    def _whole(self, size_bytes: int) -> int:
        granule = self._calls.granule_bytes
        return -(-size_bytes // granule) * granule

    def fits(self, size_bytes: int) -> bool:
        """Whether addresses for so many bytes are reserved."""
        return self._whole(size_bytes) <= self._reserved_bytes

    def can_resize(self, size_bytes: int, live_bytes: int) -> bool:
        """Whether a new size keeps the first `live_bytes`."""
        end = self._whole(size_bytes)
        cut = next((begin for begin, size in self._pieces if begin < end < begin + size), end)
        return live_bytes <= cut

    def resize(self, size_bytes: int) -> None:
        """Gives back what is behind a size, or maps what it lacks.

        A piece that the new end cuts loses its bytes (`can_resize`).

        Raises:
            HeadraceError HR3013: the device has no room.
        """
        calls, end = self._calls, self._whole(size_bytes)
        self.size_bytes = size_bytes
        while self._pieces and sum(self._pieces[-1]) > end:
            begin, size = self._pieces.pop()
            calls.unback(self.address + begin, size)
        first = at = sum(self._pieces[-1]) if self._pieces else 0
        while at < end:
            size = min(self._piece_bytes, end - at)
            calls.back(self.address + at, size, "weights")
            self._pieces.append((at, size))
            at += size
        if first < at:
            calls.open_to_kernels(self.address + first, at - first)

    def close(self) -> None:
        """Gives memory and addresses back; nothing may still use them."""
        self._release()


def _give_back(
    calls: CudaCalls, address: int, size_bytes: int, pieces: list[tuple[int, int]]
) -> None:
    if not calls.is_open:
        return
    calls.enter()
    for begin, size in pieces:
        calls.unback(address + begin, size)
    pieces.clear()
    calls.unreserve(address, size_bytes)


def _runs(moves: Sequence[Move]) -> list[Move]:
    """Neighbours that move together as one."""
    found: list[Move] = []
    for target, source, size in moves:
        if found:
            before = found[-1]
            if before[0] + before[2] == target and before[1] + before[2] == source:
                found[-1] = (before[0], before[1], before[2] + size)
                continue
        found.append((target, source, size))
    return [move for move in found if move[0] != move[1]]


def moved_down(moves: Sequence[Move]) -> Iterator[Move]:
    """Copies, one after another, that move ranges to lower places in ascending order.

    No copy's source and target meet, and none writes what a later one reads.
    """
    for target, source, size in _runs(moves):
        step = source - target
        for begin in range(0, size, step):
            yield target + begin, source + begin, min(step, size - begin)


def moved_up(moves: Sequence[Move]) -> Iterator[Move]:
    """The same for higher places: moves are given in ascending order, made from the last."""
    for target, source, size in reversed(_runs(moves)):
        step = target - source
        borders = [*range(size, 0, -step), 0]
        for end, begin in pairwise(borders):
            yield target + begin, source + begin, end - begin
