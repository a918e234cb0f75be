"""Where weights stand in the pool, and where the pool is cut into segments.

A segment is what stays or streams as one, so the two largest segments (one in use, one
arriving) are the least a budget can be. Segments therefore aim at an equal size: one
sixty-fourth of all weights, at least 256 KiB (below that the cost of a read is more
than its bytes) and at most 16 MiB (a GPU's link brings pieces of 16 MiB at 54.1 GB/s, of 64 MiB
at 54.5); a 100 MB model has segments of about 1.6 MB and
runs in about 3.3 MB of weights. A weight larger than that is cut at multiples of its
`step_bytes` (of their least common multiple with 4 KiB, so that both sides are whole
pages); one that cannot be cut has a segment of its own.

Weights stand in the order of first use with one exception. Small ones that are not cut
(biases, norms: at most 64 KiB each and a sixty-fourth of all together) stand first: nearly
every command needs one of them *beside* a large weight, and a bias at the far end of a
cut weight would keep two segments in use at once. So do larger ones that many commands read
(tables of positions), which every layer would bring again. Together they are one segment,
which a plan keeps.

In pools of 256 MiB and more, borders lie at multiples of 2 MiB where that costs at most a
hundredth of the pool, and so does the pool's place in the file: the page cache holds such
a file in pages of 2 MiB, and a mapping takes an aligned one whole (measured on Linux 6.18:
700 GB/s, against 7 to 20 GB/s page by page). Where only processors read the file, segments also
end early for it, at half of what they aim at, which is a forty-eighth: a decoder whose layers are
13.5 such pages then has no segment that shares one. (Giving one back costs 20 us, the other
processors being told: GPT-2 in segments of 6 MiB took 1.19 of its resident step, of 12 MiB 1.08.)

Where no processor reads the file in place, all that streams is *brought*, and padding too: where
segments reach 16 MiB borders then lie at pages of 4 KiB (a packed decoder of 5.4 GB brought 45 MB
less). And two fifths of what is cut stand in smaller ones there, of 10 MiB. A ring of two slots does not stay and each
transfer costs as much as 127 KiB (H200): with budgets that leave much to stream large ones cost
least, with those that leave a quarter or less these do, and a plan lets them stream first.

Tables that are only gathered from stand in segments of their own: their rows are read
where they stand and they never stream.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from headrace.artifact.container import ALIGNMENT_BYTES, PAGE_BYTES, aligned

SEGMENTS_WANTED = 64
SEGMENTS_ENDING_EARLY = 48
LEAST_SEGMENT_BYTES = 256 << 10
LARGEST_SEGMENT_BYTES = 16 << 20
SMALLER_SEGMENT_BYTES = 10 << 20
SMALL_WEIGHT_BYTES = 64 << 10
MANY_USES = 4
HUGE_PAGE_BYTES = 2 << 20
HUGE_PAGE_POOL_BYTES = 256 << 20

_SMALLER_SHARE = 0.4
_FINE = 4
"""Smaller segments need weights that can be cut this finely: into quarters of one."""

Reading: TypeAlias = Literal["in place", "brought", "both"]
"""Whether weights are used where the file is mapped, are brought elsewhere, or both."""


class Sized(Protocol):
    """What the layout needs to know of a weight."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def step_bytes(self) -> int: ...

    @property
    def row_bytes(self) -> int: ...

    @property
    def uses(self) -> int: ...


def segment_target_bytes(total_bytes: int, ends_early: bool = False) -> int:
    """The size segments aim at, for weights of that many bytes together.

    Args:
        ends_early: they may end at half of it (`PoolLayout`).
    """
    wanted = aligned(total_bytes // (SEGMENTS_ENDING_EARLY if ends_early else SEGMENTS_WANTED))
    return min(max(wanted, LEAST_SEGMENT_BYTES), LARGEST_SEGMENT_BYTES)


def storage_order(weights: Sequence[Sized]) -> tuple[list[int], list[int]]:
    """Indices in the order weights are stored: small ones, which have a segment of their
    own, and the others; both as used."""
    left = sum(w.size_bytes for w in weights) // SEGMENTS_WANTED
    small: set[int] = set()
    for index in sorted(range(len(weights)), key=lambda i: (weights[i].size_bytes, i)):
        weight = weights[index]
        whole = not weight.row_bytes and not weight.step_bytes
        large = weight.size_bytes > SMALL_WEIGHT_BYTES and weight.uses < MANY_USES
        if not whole or large or weight.size_bytes > left:
            continue
        small.add(index)
        left -= weight.size_bytes
    return sorted(small), [i for i in range(len(weights)) if i not in small]


def pool_offset_bytes(total_bytes: int) -> int:
    """Where the pool starts in the file."""
    return HUGE_PAGE_BYTES if total_bytes >= HUGE_PAGE_POOL_BYTES else PAGE_BYTES


def cut_unit_bytes(step_bytes: int, page_bytes: int = PAGE_BYTES) -> int:
    """The least distance between borders inside a weight; both sides are whole pages."""
    return math.lcm(step_bytes, page_bytes)


@dataclass(frozen=True)
class Span:
    """A range of the pool that becomes a segment."""

    offset_bytes: int
    size_bytes: int


class PoolLayout:
    """Places weights one after another and decides borders as it goes.

    `place` gives the offset of the next weight; `spans` are the segments closed so far.
    It needs only the total to start, so weights that turn out to be stored already can
    be left out.
    """

    def __init__(self, total_bytes: int, reading: Reading = "both") -> None:
        """Lays out weights of so many bytes together."""
        huge_pages = total_bytes >= HUGE_PAGE_POOL_BYTES
        self._ends_early = huge_pages and reading == "in place"
        self._target = segment_target_bytes(total_bytes, self._ends_early)
        self._mixes = reading == "brought" and self._target == LARGEST_SEGMENT_BYTES
        self._huge_pages = huge_pages and not self._mixes
        self._padding_left = total_bytes // 100
        self._start = 0
        self._end = 0
        self.spans: list[Span] = []

    def place(self, size_bytes: int, step_bytes: int, row_bytes: int = 0) -> int:
        """The offset of a weight; sizes in bytes, `step_bytes` 0 where it is one piece."""
        alone = row_bytes > 0 and size_bytes >= LEAST_SEGMENT_BYTES
        offset = aligned(self._end, ALIGNMENT_BYTES)
        if not alone and offset + size_bytes - self._start <= self._target:
            self._end = offset + size_bytes
            self._end_early(offset, size_bytes, step_bytes)
            return offset
        cuttable = step_bytes > 0 and not alone and size_bytes > self._target // 2
        if cuttable and cut_unit_bytes(step_bytes) < size_bytes:
            return self._place_cut(size_bytes, step_bytes)
        self.close()
        offset = self._end
        self._end = offset + size_bytes
        if alone or size_bytes >= self._target:
            self.close()
        return offset

    def _cut_unit_bytes(self, step_bytes: int) -> int:
        """In whole huge pages where a segment holds one such unit."""
        huge = cut_unit_bytes(step_bytes, HUGE_PAGE_BYTES)
        if self._huge_pages and huge <= self._target:
            return huge
        return cut_unit_bytes(step_bytes)

    def _place_cut(self, size_bytes: int, step_bytes: int) -> int:
        """Starts in the open segment where a unit fits, then goes on in equal pieces."""
        unit_bytes, least_unit = self._cut_unit_bytes(step_bytes), cut_unit_bytes(step_bytes)
        offset = aligned(self._end)
        room = self._start + self._target - offset
        first = room // unit_bytes * unit_bytes
        early = self._early_border(offset, self._start + self._target, least_unit)
        if early:
            first = early - offset
        elif first * 4 < self._target:
            self.close()
            offset, first = self._end, 0
        position = first
        if first:
            self._cut(offset + first)
        fine = unit_bytes * _FINE <= SMALLER_SEGMENT_BYTES
        if self._mixes and fine and size_bytes - position > self._target:
            return self._place_mixed(offset, position, size_bytes, unit_bytes)
        while size_bytes - position > self._target:
            pieces = -(-(size_bytes - position) // self._target)
            share = -(-(size_bytes - position) // pieces)
            early = self._early_border(offset, self._start + self._target, least_unit)
            if early:
                position = early - offset
                self._cut(early)
                continue
            step = max(1, round(share / unit_bytes)) * unit_bytes
            if step > self._target:
                step = max(1, self._target // unit_bytes) * unit_bytes
            if position + step >= size_bytes:
                break
            position += step
            self._cut(offset + position)
        self._end = offset + size_bytes
        self._end_early(offset, size_bytes, step_bytes)
        return offset

    def _place_mixed(
        self, offset_bytes: int, position_bytes: int, size_bytes: int, unit_bytes: int
    ) -> int:
        """Goes on with whole segments, then with smaller ones of one size, and ends there."""
        largest = self._target // unit_bytes * unit_bytes
        most = SMALLER_SEGMENT_BYTES // unit_bytes * unit_bytes
        left = size_bytes - position_bytes
        # As many large ones as leave the others nearly full.
        wanted = int(left * (1 - _SMALLER_SHARE) / largest)
        counts = [n for n in (wanted + 1, wanted) if n * largest < left]
        for _ in range(min(counts, key=lambda n: (n * largest - left) % most)):
            position_bytes += largest
            self._cut(offset_bytes + position_bytes)
        for pieces in range(-(-(size_bytes - position_bytes) // most), 1, -1):
            share = (size_bytes - position_bytes) / pieces
            position_bytes += min(max(1, round(share / unit_bytes)) * unit_bytes, most)
            self._cut(offset_bytes + position_bytes)
        self._end = offset_bytes + size_bytes
        if self._end - self._start > most // 2:
            self.close()
        return offset_bytes

    def _end_early(self, offset_bytes: int, size_bytes: int, step_bytes: int) -> None:
        """Ends the open segment at the last huge page that its last weight may be cut at."""
        end = offset_bytes + size_bytes
        unit = cut_unit_bytes(step_bytes) if step_bytes else size_bytes
        # It may always end where the weight does.
        whole = self._ends_early and end % HUGE_PAGE_BYTES == 0
        border = end if whole else self._early_border(offset_bytes, end, unit)
        if border and border - self._start >= self._target // 2:
            self._cut(border)
            self._end = end

    def _early_border(self, offset_bytes: int, last_bytes: int, unit_bytes: int) -> int:
        """The last border at a huge page and a unit of a weight; 0 where there is none that
        leaves half a segment.

        Args:
            offset_bytes: of the weight.
            last_bytes: the border lies there or before.
        """
        if not self._ends_early:
            return 0
        border = last_bytes // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
        least = max(offset_bytes + 1, self._start + self._target // 2)
        while border >= least and (border - offset_bytes) % unit_bytes:
            border -= HUGE_PAGE_BYTES
        return border if border >= least else 0

    def _cut(self, end_bytes: int) -> None:
        """Ends the open segment inside a weight, which goes on at that very byte."""
        self.spans.append(Span(self._start, end_bytes - self._start))
        self._start = self._end = end_bytes

    def close(self) -> None:
        """Ends the open segment at a whole page; at a huge one where there is padding left."""
        end = aligned(self._end)
        padding = aligned(end, HUGE_PAGE_BYTES) - end
        if self._huge_pages and end > self._start and padding <= self._padding_left:
            self._padding_left -= padding
            end += padding
        if end > self._start:
            self.spans.append(Span(self._start, end - self._start))
        self._start = self._end = end
