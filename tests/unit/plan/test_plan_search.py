"""Which of hundreds of units stream, and what a step that ends whole leaves to the next."""

from __future__ import annotations

import random

import plan_chains as chains
import pytest
from plan_checks import check_plan

from headrace.plan import levels, planner, residency, search
from headrace.plan.cost import Concurrency, Waits, simulate
from headrace.plan.profile import Profile
from headrace.runtime.drivers import null_check

MB = 1 << 20
LINK = 5e10
PROFILE = Profile(
    link_bytes_per_s=LINK,
    fetch_overhead_ns=2000,
    launch_overhead_ns=0,
    operations_per_s=1e12,
    memory_bytes_per_s=1e15,
)
ENDS_WHOLE = Concurrency(steps_end_whole=True)


def uneven(count, seed=1):
    """Launches that compute 10 to 500 us, each with a weight of 14 to 16 MiB."""
    rng = random.Random(seed)
    sizes = [chains.Sized(rng.choice([14, 15, 16]) * MB) for _ in range(count)]
    layers = [
        chains.Layer((n,), None, rng.choice([10, 50, 150, 500]) * 1_000_000, (n,), n + 1)
        for n in range(count)
    ]
    return chains.build(layers, sizes, [4096] * (count + 1))


def decoder(layers=16):
    """Layers as a decoder's: launches of 50 us that read 14 to 16 MiB, and 270 us without."""
    sizes: list[chains.Sized] = []
    launches: list[chains.Layer] = []
    values = [4096]
    for _ in range(layers):
        for kind in "qqqqqq-oogggggguuuuuudddddd":
            weights = () if kind == "-" else (len(sizes),)
            if weights:
                sizes.append(chains.Sized((16 if kind in "qo" else 14) * MB))
            us = 50 if weights else 270
            number = len(launches)
            launches.append(chains.Layer(weights, None, us * 1_000_000, (number,), number + 1))
            values.append(4096)
    return chains.build(launches, sizes, values)


def prepare(module, concurrency=None, profile=PROFILE):
    return planner.prepare(
        module, module.programs[0], 0, {}, profile, threads=1, concurrency=concurrency
    )


def budget_of(prepared, share=0.9):
    """The budget at which what streams takes that share of the computing, ring apart."""
    return prepared.stored_bytes - int(prepared.compute_ns * LINK * share / 1e9)


def test_few_levels_of_hundreds_of_units_are_played(monkeypatch):
    """A live change of the budget waits for its plan: an order takes 2 ms, a level one."""
    made: list[str] = []

    def counted(module, name):
        inner = getattr(module, name)

        def outer(*args):
            made.append(name)
            return inner(*args)

        monkeypatch.setattr(module, name, outer)

    counted(residency, "_order")
    counted(levels, "events_of")
    prepared = prepare(decoder())
    assert prepared.levels.many
    assert len(prepared.levels.rings_bytes) <= 7
    for share in (0.93, 0.85, 1.0, 2.0, 3.0):
        made.clear()
        prepared.plan(budget_of(prepared, share))
        assert 0 < made.count("events_of") <= 2 * 7 + search._SWAPS
        assert made.count("_order") <= 2 * 7


@pytest.mark.parametrize("share", [0.88, 0.93])
def test_swaps_hide_what_an_order_does_not(share, monkeypatch):
    module = decoder()
    budget = budget_of(prepare(module), share)
    plan = prepare(module).plan(budget)
    check_plan(module, plan, budget)
    monkeypatch.setattr(search, "_SWAPS", 0)
    before = prepare(module).plan(budget).prediction
    assert plan.prediction.stall_ns < before.stall_ns * 0.9
    assert plan.prediction.streamed_bytes <= before.streamed_bytes + 16 * MB


def test_of_small_and_large_units_those_stream_that_cost_least():
    """Half of a model stands in pieces of 10 MiB: with little to stream a ring for two of these
    costs least, with much one for two of 16 MiB, for then transfers are fewer."""
    count = 300
    sizes = [chains.Sized((10 if n // 3 % 2 else 16) * MB) for n in range(count)]
    layers = [chains.Layer((n,), None, 1000, (n,), n + 1) for n in range(count)]
    prepared = prepare(chains.build(layers, sizes, [4096] * (count + 1)))
    for share, piece in ((75, 10), (40, 16)):
        plan = prepared.plan(prepared.stored_bytes * share // 100)
        assert plan.ring_bytes == 2 * piece * MB
        assert max(f.size_bytes for f in plan.fetches) == piece * MB


def test_a_step_that_ends_whole_leaves_a_transfer_to_the_next():
    """Where computing fills the step, it would wait for the whole ring at the end."""
    module = decoder()
    prepared = prepare(module, ENDS_WHOLE)
    budget = budget_of(prepared)
    plan = prepared.plan(budget)
    check_plan(module, plan, budget)
    (late,) = (n for n, f in enumerate(plan.fetches) if f.at_begin)
    heads = [n for n, f in enumerate(plan.fetches) if f.issue_after < 0]
    assert late == heads[-1] and len(heads) > 1
    assert not any(f.at_begin for f in prepare(module).plan(budget).fetches)
    # Where it gains nothing, for the link decides, all are brought ahead.
    least = prepared.plan(prepared.minimum_budget_bytes)
    assert not any(f.at_begin for f in least.fetches)


def test_what_lies_between_steps_holds_the_link_up():
    module = uneven(40)
    slow = Concurrency(steps_end_whole=True, between_steps_ns=50_000_000)
    budget = prepare(module).minimum_budget_bytes
    plans = [prepare(module, c).plan(budget) for c in (ENDS_WHOLE, slow)]
    fast_ns, slow_ns = (plan.prediction.step_ns for plan in plans)
    assert 45_000_000 < slow_ns - fast_ns < 50_000_000
    # Nothing of it is paid where nothing streams.
    whole = prepare(module, slow).plan(prepare(module).stored_bytes)
    assert whole.prediction.step_ns == prepare(module).compute_ns


def test_waits_are_those_that_make_a_step_longer():
    module = uneven(40)
    prepared = prepare(module)
    level, schedule = search.choose(prepared.levels, budget_of(prepared))
    assert level.stays
    waits = Waits()
    timing = prepared.levels.simulated(schedule, waits)
    assert timing == schedule.timing
    assert sum(waits.computing.values()) == timing.stall_ns
    plan = prepared.plan(budget_of(prepared))
    played = null_check.simulate(plan, PROFILE, steps=8)
    assert played.step_ns == pytest.approx(timing.step_ns, rel=0.001)
    assert simulate([], [], PROFILE, 7, ENDS_WHOLE).step_ns == 7
