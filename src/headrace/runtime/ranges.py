"""Sets of bytes as ranges `(begin, end)`."""

from __future__ import annotations

from collections.abc import Sequence


def merged(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges `(begin, end)` sorted, touching ones joined, empty ones left out."""
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(r for r in ranges if r[0] < r[1]):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined


def without(
    ranges: Sequence[tuple[int, int]], taken: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """The parts of `ranges` that no range of `taken` covers."""
    rest = merged(ranges)
    for low, high in merged(taken):
        cut: list[tuple[int, int]] = []
        for begin, end in rest:
            if high <= begin or end <= low:
                cut.append((begin, end))
                continue
            if begin < low:
                cut.append((begin, low))
            if high < end:
                cut.append((high, end))
        rest = cut
    return rest


def covers(ranges: Sequence[tuple[int, int]], begin: int, end: int) -> bool:
    """Whether `ranges` hold every byte from `begin` to `end`."""
    return not without([(begin, end)], ranges)
