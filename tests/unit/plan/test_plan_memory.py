"""The slab: liveness and placing."""

from __future__ import annotations

import itertools
import random

import pytest

from headrace.artifact import schema as s
from headrace.base.symbols import as_expr
from headrace.plan.memory import Interval, live_intervals, place_intervals, plan_slab
from headrace.plan.steps import FlatFunction, LoopSpan, Operand, Step


def flat(steps, sizes, loops=()):
    resources = tuple(s.Resource(f"v{i}", "transient", as_expr(n)) for i, n in enumerate(sizes))
    function = s.EntryFunction("main", (), (), resources, s.Block(()))
    found = [
        Step(
            "dispatch",
            (
                *(Operand(r, 0, sizes[r], True, False) for r in reads),
                *(Operand(w, 0, sizes[w], False, True) for w in writes),
            ),
            scratch_bytes=scratch,
        )
        for reads, writes, scratch in steps
    ]
    return FlatFunction(function, list(sizes), found, list(loops))


def assert_apart(intervals, places):
    for (a, at), (b, bt) in itertools.combinations(zip(intervals, places, strict=True), 2):
        if a.first <= b.last and b.first <= a.last:
            assert at + a.size_bytes <= bt or bt + b.size_bytes <= at


def brute_force(intervals):
    """The least slab over all orders of first fit, which holds an optimal layout."""
    best = 1 << 60
    for order in itertools.permutations(range(len(intervals))):
        placed = []
        top = 0
        for index in order:
            mine = intervals[index]
            offset = 0
            for start, end in sorted(
                (p, p + o.size_bytes)
                for o, p in placed
                if o.first <= mine.last and mine.first <= o.last
            ):
                if offset + mine.size_bytes <= start:
                    break
                offset = max(offset, end)
            placed.append((mine, offset))
            top = max(top, offset + mine.size_bytes)
        best = min(best, top)
    return best


@pytest.mark.parametrize("seed", range(40))
def test_small_problems_are_placed_nearly_as_well_as_possible(seed):
    rng = random.Random(seed)
    intervals = []
    for _ in range(6):
        first = rng.randrange(8)
        size = 64 * rng.randrange(1, 20)
        intervals.append(Interval(0, size, first, first + rng.randrange(4)))
    places, size, bound = place_intervals(intervals)
    assert_apart(intervals, places)
    assert bound <= size <= 1.05 * brute_force(intervals)


@pytest.mark.parametrize("seed", range(10))
def test_large_problems_come_near_the_bound(seed):
    rng = random.Random(seed)
    intervals = []
    for step in range(300):
        length = rng.choice([1, 1, 1, 2, 3, 6])
        size = 64 * int(2 ** rng.uniform(0, 12))
        intervals.append(Interval(step, size, step, step + length))
    places, size, bound = place_intervals(intervals)
    assert_apart(intervals, places)
    assert size <= 1.06 * bound


def test_values_live_from_their_writer_to_their_last_reader():
    function = flat(
        [((), (0,), 0), ((0,), (1,), 0), ((1,), (2,), 0), ((0, 2), (3,), 0)], [64] * 4
    )
    spans = [(i.first, i.last) for i in live_intervals(function)]
    assert spans == [(0, 3), (1, 2), (2, 3), (3, 3)]


def test_what_a_loop_carries_keeps_its_place_and_what_it_does_not_is_free():
    # 0 is set before the loop and read in it; 1 is carried; 2 is local; 3 comes after.
    function = flat(
        [
            ((), (0,), 0),
            ((1,), (2,), 0),
            ((2,), (1,), 0),
            ((0,), (4,), 0),
            ((1,), (3,), 0),
        ],
        [64] * 5,
        [LoopSpan(1, 3, 10)],
    )
    spans = {i.resource: (i.first, i.last) for i in live_intervals(function)}
    assert spans == {0: (0, 3), 1: (1, 4), 2: (1, 2), 3: (4, 4), 4: (3, 3)}


def test_a_value_read_late_in_an_outer_loop_survives_inner_ones():
    function = flat(
        [((), (0,), 0), ((), (1,), 0), ((1,), (2,), 0), ((0,), (3,), 0)],
        [64] * 4,
        [LoopSpan(0, 3, 2), LoopSpan(1, 2, 2)],
    )
    spans = {i.resource: (i.first, i.last) for i in live_intervals(function)}
    assert spans[0] == (0, 3)
    assert spans[1] == (1, 2)


def test_a_partial_write_before_a_read_in_a_loop_is_carried():
    function = flat([((), (0,), 0), ((0,), (1,), 0)], [128, 64], [LoopSpan(0, 1, 3)])
    function.steps[0].operands = (Operand(0, 0, 64, False, True),)
    spans = {i.resource: (i.first, i.last) for i in live_intervals(function)}
    assert spans == {0: (0, 1), 1: (1, 1)}


def test_scratch_stands_where_values_do_not_live_yet():
    function = flat([((), (0,), 1000), ((0,), (1,), 0)], [64, 2048])
    layout = plan_slab(function, threads=2)
    assert layout.scratch == {0: layout.scratch[0]}
    assert layout.slab_bytes == layout.lower_bound_bytes == 2112


def resnet50_values():
    """Values of ResNet-50 at batch 1: (reads, writes) per launch, sizes with a halo of one."""
    sizes: list[int] = []
    steps = []

    def value(channels, side, halo=0):
        sizes.append(4 * channels * (side + 2 * halo) ** 2)
        return len(sizes) - 1

    stem = value(64, 112)
    steps.append(((), (stem,), 0))
    x = value(64, 56)
    steps.append(((stem,), (x,), 0))
    side = 56
    for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        for block in range(blocks):
            stride = 2 if block == 0 and stage else 1
            a = value(width, side, 1)
            steps.append(((x,), (a,), 0))
            after = side // stride
            b = value(width, after)
            steps.append(((a,), (b,), 0))
            if block == 0:
                y = value(4 * width, after)
                steps.append(((x,), (y,), 0))
                x = y
            steps.append(((b, x), (x,), 0))  # the residual is added in place
            side = after
    out = value(2048, 1)
    steps.append(((x,), (out,), 0))
    return flat(steps, sizes)


def test_resnet50_has_the_smallest_slab_there_is():
    layout = plan_slab(resnet50_values(), threads=2)
    assert layout.slab_bytes == layout.lower_bound_bytes
    assert layout.slab_bytes <= 5_800_000
