"""Where weights stand and where segments end."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass, replace

import pytest

from headrace.artifact.pool import (
    LARGEST_SEGMENT_BYTES,
    PoolLayout,
    pool_offset_bytes,
    segment_target_bytes,
    storage_order,
)


@dataclass
class Sized:
    size_bytes: int
    step_bytes: int = 0
    row_bytes: int = 0
    uses: int = 1


def lay_out(weights, reading="both"):
    layout = PoolLayout(sum(w.size_bytes for w in weights), reading)
    offsets = {}
    for group in storage_order(weights):
        for i in group:
            w = weights[i]
            offsets[i] = layout.place(w.size_bytes, w.step_bytes, w.row_bytes)
        layout.close()
    return offsets, layout.spans


def random_weights(seed):
    rng = random.Random(seed)
    weights = []
    for _ in range(60):
        step = rng.choice([0, 0, 64, 300, 9408, 65536])
        size = int(4 * 10 ** rng.uniform(1, 6.3))
        weights.append(Sized(size, step if step and size > step else 0))
    return weights


@pytest.mark.parametrize("reading", ["both", "in place", "brought"])
@pytest.mark.parametrize("seed", range(20))
def test_segments_cover_the_pool_and_borders_are_where_they_may_be(seed, reading):
    weights = random_weights(seed)
    if reading != "both":
        weights = [replace(w, size_bytes=20 * w.size_bytes) for w in weights]
    offsets, spans = lay_out(weights, reading)
    end = 0
    for span in spans:
        assert span.offset_bytes == end and span.size_bytes % 4096 == 0 < span.size_bytes
        end += span.size_bytes
    borders = [s.offset_bytes for s in spans]
    places = sorted((offsets[i], offsets[i] + w.size_bytes) for i, w in enumerate(weights))
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(places))
    assert places[-1][1] <= end
    for index, weight in enumerate(weights):
        start = offsets[index]
        assert start % 64 == 0
        for border in borders:
            if start < border < start + weight.size_bytes:
                assert weight.step_bytes > 0
                assert (border - start) % weight.step_bytes == 0


@pytest.mark.parametrize("seed", range(20))
def test_only_what_cannot_be_cut_is_larger_than_the_target(seed):
    weights = random_weights(seed)
    _, spans = lay_out(weights)
    target = segment_target_bytes(sum(w.size_bytes for w in weights))
    whole = max([w.size_bytes for w in weights if not w.step_bytes], default=0)
    units = max([math.lcm(w.step_bytes, 4096) for w in weights if w.step_bytes], default=0)
    assert max(s.size_bytes for s in spans) <= max(target, whole, units, 0) + 2 * 4096


def test_the_padding_is_small():
    for seed in range(10):
        weights = random_weights(seed)
        _, spans = lay_out(weights)
        total = sum(w.size_bytes for w in weights)
        assert sum(s.size_bytes for s in spans) <= 1.01 * total + 65536


def test_small_weights_stand_first_together():
    weights = [Sized(4 << 20, 1 << 14), Sized(4096)] * 20
    offsets, spans = lay_out(weights)
    assert storage_order(weights)[0] == list(range(1, 40, 2))
    assert spans[0].size_bytes == 20 * 4096
    assert all(offsets[i] < 20 * 4096 for i in range(1, 40, 2))


def test_a_table_has_a_segment_of_its_own():
    weights = [Sized(300_000), Sized(5_000_000, 0, 1536), Sized(300_000)]
    offsets, spans = lay_out(weights)
    table = next(s for s in spans if s.offset_bytes == offsets[1])
    assert table.size_bytes == -(-5_000_000 // 4096) * 4096


def test_targets():
    assert segment_target_bytes(1) == 256 << 10
    assert segment_target_bytes(100 << 20) == 1638400
    assert segment_target_bytes(1 << 40) == LARGEST_SEGMENT_BYTES
    assert segment_target_bytes(480 << 20, ends_early=True) == 10 << 20


def test_resnet_sized_weights_run_in_a_thirtieth_of_them():
    weights = [
        Sized(n * 4096 * 16, 4096 * 16) for n in (3, 10, 36, 24, 144, 80, 2, 144, 64) * 5
    ]
    _, spans = lay_out(weights)
    largest = sorted(s.size_bytes for s in spans)[-2:]
    assert sum(largest) <= sum(w.size_bytes for w in weights) / 30


def test_large_pools_lie_on_huge_pages() -> None:
    huge = 2 << 20
    total = 25 * (16 << 20) + 200_000
    layout = PoolLayout(total)
    layout.place(200_000, 0)
    layout.close()
    for _ in range(25):
        layout.place(16 << 20, 1 << 20)
    layout.close()
    assert all(s.offset_bytes % huge == 0 for s in layout.spans)
    end = layout.spans[-1].offset_bytes + layout.spans[-1].size_bytes
    assert end <= total * 101 // 100 + 4096
    assert pool_offset_bytes(total) == huge
    assert pool_offset_bytes(100 << 20) == 4096


@pytest.mark.parametrize(("reading", "shared"), [("in place", 0), ("both", 15)])
def test_layers_of_half_a_huge_page_share_none_where_the_file_is_mapped(
    reading, shared
) -> None:
    """GPT-2's: its four products are 3.375, 1.125, 4.5 and 4.5 pages."""
    eighth = 1 << 18
    layer = [Sized(27 * eighth, 3 << 17), Sized(9 * eighth, 3 << 16)]
    layer += [Sized(36 * eighth, 3 << 17), Sized(36 * eighth, 3 << 18)]
    _, spans = lay_out([*layer * 12, Sized(296 << 20, 1 << 20)], reading)
    assert sum(s.offset_bytes % (2 << 20) > 0 for s in spans) == shared
    sizes = sorted(s.size_bytes for s in spans[:60])
    target = segment_target_bytes(sum(s.size_bytes for s in spans), reading == "in place")
    assert sizes[-1] <= target + (2 << 20) and sizes[2] >= target // 2


def test_a_huge_page_never_moves_a_border_inside_a_weight() -> None:
    # 43 * 64 KiB: no common multiple with 2 MiB that a segment could hold.
    step = 43 << 16
    weights = [Sized(100 * step, step), Sized(60 << 20, 1 << 20), Sized(99 * step, step)]
    offsets, spans = lay_out(weights)
    for i, weight in enumerate(weights):
        begin, end = offsets[i], offsets[i] + weight.size_bytes
        inside = [s.offset_bytes for s in spans if begin < s.offset_bytes < end]
        assert inside
        assert all((border - begin) % weight.step_bytes == 0 for border in inside)


def test_what_many_commands_read_stands_with_the_small_ones() -> None:
    weights = [Sized(64 << 20, 1 << 20), Sized(1 << 20, uses=32), Sized(1 << 20, uses=2)]
    weights.append(Sized(64 << 20, 1 << 20))
    assert storage_order(weights) == ([1], [0, 2, 3])


@pytest.mark.parametrize("reading", ["both", "brought"])
def test_what_is_brought_has_no_padding(reading) -> None:
    weights = [Sized((9 << 20) + 4096 * n, 4096) for n in range(1, 120)]
    _, spans = lay_out(weights, reading)
    padding = sum(s.size_bytes for s in spans) - sum(w.size_bytes for w in weights)
    assert padding == 0 if reading == "brought" else padding > 1 << 20


def test_of_large_models_that_are_brought_two_fifths_stand_in_smaller_segments() -> None:
    """A decoder's layer: 96, 32, 86, 86 MiB; the last is cut in pieces of 2.7 MiB, too coarsely."""
    layer = [Sized(96 << 20, 1 << 13), Sized(32 << 20, 1 << 14), Sized(86 << 20, 1 << 13)]
    layer += [Sized(86 << 20, 1 << 14), Sized(86 << 20, 11 << 18)]
    _, spans = lay_out(layer * 4, "brought")
    assert max(s.size_bytes for s in spans) == 16 << 20
    small = [s for s in spans if s.size_bytes <= 10 << 20]
    share = sum(s.size_bytes for s in small) / sum(w.size_bytes for w in layer * 4)
    assert 0.25 < share < 0.45
    assert sum(s.size_bytes >= 8 << 20 for s in small) > 0.9 * len(small)
    # One that fits into a large one is not cut.
    _, whole = lay_out([Sized(15 << 20, 1 << 13)] * 80, "brought")
    assert {s.size_bytes for s in whole} == {15 << 20}
