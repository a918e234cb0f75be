"""What a ring costs: its size, what is left of a budget, and slices that take whole waves."""

from __future__ import annotations

from dataclasses import replace

import plan_chains as chains
import pytest
from plan_checks import check_plan

from headrace.plan import levels, planner
from headrace.plan.cost import Concurrency
from headrace.plan.model import PlannedDispatch
from headrace.plan.profile import Profile
from headrace.runtime.drivers.null_check import simulate

MB = 1 << 20
PIECE = 16 * MB  # what the pool cuts large models into
LINK_DECIDES = Profile(
    link_bytes_per_s=5e10, fetch_overhead_ns=0, operations_per_s=1e13, memory_bytes_per_s=1e13
)


def layers_of(sizes_bytes, operations=1_000_000, step_bytes=0, scratch_bytes=0):
    """A row of launches, each with a weight of its own."""
    sizes = [chains.Sized(size, step_bytes) for size in sizes_bytes]
    cut = 0 if step_bytes else None
    layers = [
        chains.Layer((n,), cut, operations, (n,), n + 1, scratch_bytes)
        for n in range(len(sizes))
    ]
    return chains.build(layers, sizes, [4096] * (len(sizes) + 1))


def prepare(module, profile=LINK_DECIDES, slots=0):
    names = [e.entry_points[0].name for e in module.programs[0].executables]
    found = {(n, name): slots for n, name in enumerate(names)} if slots else {}
    return planner.prepare(
        module, module.programs[0], 0, {}, profile, threads=1, concurrency=Concurrency(found)
    )


def left_bytes(module, plan):
    kept = sum(module.segments[s].size_bytes for s in plan.resident)
    return plan.budget_bytes - kept - plan.ring_bytes


@pytest.mark.parametrize("count", [40, 200])
def test_a_ring_is_no_larger_than_two_of_what_streams(count):
    """Where the larger half stays, a ring for the smaller is enough, and more stays."""
    module = layers_of([(n % 2 + 1) * PIECE for n in range(count)])
    prepared = prepare(module)
    assert prepared.choice.ring_bytes > 2 * PIECE
    budget = prepared.stored_bytes * 8 // 10
    plan = prepared.plan(budget)
    check_plan(module, plan, budget)
    assert plan.ring_bytes == 2 * PIECE
    assert {f.size_bytes for f in plan.fetches} == {PIECE}
    # The least budget still holds whatever streams.
    least = prepared.minimum_budget_bytes
    check_plan(module, prepared.plan(least), least)


def test_of_hundreds_of_units_those_stay_that_leave_least_of_a_budget():
    sizes = [PIECE + MB * (n % 5) for n in range(300)]
    module = layers_of(sizes)
    prepared = prepare(module)
    for part in range(20, 90, 7):
        budget = prepared.stored_bytes * part // 100
        plan = prepared.plan(budget)
        check_plan(module, plan, budget)
        assert 0 <= left_bytes(module, plan) < MB


def test_where_the_link_decides_hundreds_of_transfers_are_as_few_as_may_be():
    module = layers_of([PIECE if n % 3 else 2 * PIECE for n in range(300)])
    prepared = prepare(module, replace(LINK_DECIDES, fetch_overhead_ns=100_000))
    budget = prepared.stored_bytes * 3 // 4
    plan = prepared.plan(budget)
    small = [f for f in plan.fetches if f.size_bytes == PIECE]
    assert len(small) <= 2 < len(plan.fetches)


@pytest.mark.parametrize("scratch_bytes", [0, 4096])
def test_slices_take_whole_waves_and_share_no_scratch(scratch_bytes):
    module = layers_of([4 * MB] * 2, 100_000_000, 1 << 16, scratch_bytes)
    profile = Profile(link_bytes_per_s=1e12, fetch_overhead_ns=0, launch_overhead_ns=1000)
    prepared = prepare(module, profile, slots=64)
    (whole_ns, *_) = [c.predicted_ns for c in prepared.plan(prepared.stored_bytes).commands]
    plan = prepared.plan(prepared.minimum_budget_bytes)
    slices = [c for c in plan.commands if isinstance(c, PlannedDispatch)]
    assert len(slices) > 8
    assert {c.predicted_ns for c in slices} == {whole_ns}
    beside = [c for c in slices if c.together_ns]
    assert bool(beside) == (not scratch_bytes)
    played = simulate(plan, profile, steps=8)
    assert played.step_ns == pytest.approx(plan.prediction.step_ns, rel=0.01)


def test_slices_run_one_after_another_where_the_link_decides():
    """Branches hold transfers up; the fewer bytes stream, the more computing decides."""
    module = layers_of([4 * MB] * 16, 100_000_000, 1 << 16)
    profile = Profile(link_bytes_per_s=2e8, fetch_overhead_ns=0, launch_overhead_ns=1000)
    prepared = prepare(module, profile, slots=64)
    beside = []
    for budget in (prepared.minimum_budget_bytes, prepared.stored_bytes * 9 // 10):
        commands = prepared.plan(budget).commands
        assert any(getattr(c, "first_workgroup", (0,))[0] for c in commands)
        beside.append(any(getattr(c, "together_ns", 0) for c in commands))
    assert beside == [False, True]


def test_weights_whose_slices_cost_most_stay_before_others():
    """Every other launch runs all its workgroups at once: each of its slices takes as long."""
    sizes = [chains.Sized(4 * MB, 1 << 16) for _ in range(12)]
    layers = [chains.Layer((n,), 0, 20_000_000, (n,), n + 1, 64) for n in range(12)]
    module = chains.build(layers, sizes, [4096] * 13)
    names = [e.entry_points[0].name for e in module.programs[0].executables]
    slots = {(n, name): 64 if n % 2 else 4 for n, name in enumerate(names)}
    profile = Profile(link_bytes_per_s=2e10, fetch_overhead_ns=0, launch_overhead_ns=0)
    prepared = planner.prepare(
        module, module.programs[0], 0, {}, profile, threads=1, concurrency=Concurrency(slots)
    )
    assert "dear last" in prepared.choice.ways
    budget = prepared.stored_bytes * 7 // 10
    plan = prepared.plan(budget)
    check_plan(module, plan, budget)
    starts = [w.offset_bytes for w in module.weights]
    streamed = {sum(f.offset_bytes >= s for s in starts) - 1 for f in plan.fetches}
    assert streamed and not any(weight % 2 for weight in streamed)
    assert plan.prediction.stall_ns < prepared.compute_ns // 10


def test_a_ring_of_two_largest_lets_these_stream_one_behind_the_other(monkeypatch):
    """Like BERT-base: the least ring is for neighbours of 4 and 6 MB, and those of 6 stream."""
    module = layers_of([(4, 4, 6)[n % 3] * MB for n in range(72)], operations=500_000_000)
    budget = sum(segment.size_bytes for segment in module.segments) // 2
    prepared = prepare(module)
    plan = prepared.plan(budget)
    check_plan(module, plan, budget)
    assert plan.ring_bytes == 12 * MB
    monkeypatch.setattr(levels, "_DEPTHS", (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32))
    before = prepare(module).plan(budget)
    assert plan.prediction.step_ns < 0.98 * before.prediction.step_ns
    assert plan.prediction.streamed_bytes < before.prediction.streamed_bytes
