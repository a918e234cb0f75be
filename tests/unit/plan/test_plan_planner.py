"""Properties that hold for every program and budget."""

from __future__ import annotations

import time

import plan_chains as chains
import pytest
from plan_checks import allocated_bytes, check_plan

from headrace.base.errors import HeadraceError
from headrace.plan import levels, planner
from headrace.plan.cost import Concurrency
from headrace.plan.model import PlannedDispatch
from headrace.plan.profile import Profile
from headrace.runtime.drivers.null_check import simulate

SLOW_LINK = Profile(link_bytes_per_s=1e9, operations_per_s=2e11)
PROFILES = (Profile(), SLOW_LINK, Profile(link_bytes_per_s=5e10, fetch_overhead_ns=0))


def budgets(prepared: planner.Prepared, count: int) -> list[int]:
    low, high = prepared.minimum_budget_bytes, prepared.stored_bytes + 4096
    span = max(high - low, 0)
    return [low + span * i // count for i in range(count + 1)]


def prepare(module, profile=None, threads=2):
    return planner.prepare(
        module, module.programs[0], 0, {}, profile or Profile(), threads=threads
    )


@pytest.mark.parametrize("seed", range(24))
def test_every_plan_keeps_its_promises(seed):
    module = chains.random_module(seed, 30)
    prepared = prepare(module, PROFILES[seed % 3])
    for budget in budgets(prepared, 6):
        check_plan(module, prepared.plan(budget), budget)


@pytest.mark.parametrize("seed", range(24, 36))
def test_more_budget_is_never_slower(seed):
    module = chains.random_module(seed, 40)
    for profile in PROFILES:
        prepared = prepare(module, profile)
        found = [prepared.plan(b).prediction for b in budgets(prepared, 40)]
        steps = [p.step_ns for p in found]
        assert steps == sorted(steps, reverse=True)
        assert found[-1].streamed_bytes == 0
        assert steps[-1] == found[-1].compute_ns


@pytest.mark.parametrize("seed", range(6))
def test_the_minimum_is_exact(seed):
    module = chains.random_module(seed)
    least = planner.minimum_budget_bytes(module, module.programs[0], 0, {})
    prepared = prepare(module)
    assert prepared.minimum_budget_bytes == least
    check_plan(module, prepared.plan(least), least)
    with pytest.raises(HeadraceError) as caught:
        prepared.plan(least - 1)
    assert caught.value.diagnostics[0].code == "HR3202"
    assert str(least) in str(caught.value)


def test_equal_questions_have_equal_plans():
    module = chains.random_module(7)
    budget = prepare(module).minimum_budget_bytes * 2
    first = planner.plan(module, module.programs[0], 0, {}, budget, None, Profile(), threads=2)
    other = prepare(chains.random_module(7))
    other.plan(budget * 2)
    assert other.plan(budget) == first


def test_everything_fits_so_nothing_streams():
    module = chains.chain(20, bias_bytes=4096)
    prepared = prepare(module)
    plan = prepared.plan(prepared.stored_bytes)
    assert plan.fetches == () and plan.ring_bytes == 0
    assert len(plan.resident) == len(module.segments)
    assert plan.prediction.stall_ns == 0
    assert plan.prediction.peak_bytes == allocated_bytes(plan) + prepared.stored_bytes


def test_a_chain_streams_in_the_shadow_of_its_computing_at_the_minimum():
    module = chains.chain(60, 1 << 20, 1 << 14, operations=20_000_000, bias_bytes=4096)
    prepared = prepare(module)
    assert prepared.minimum_budget_bytes < prepared.stored_bytes / 20
    prediction = prepared.plan(prepared.minimum_budget_bytes).prediction
    # With an odd number of transfers the last and the first of the next step share a place.
    assert prediction.stall_ns <= 0.01 * prediction.compute_ns
    assert prediction.streamed_bytes > prepared.stored_bytes * 0.9


def test_a_bound_link_is_kept_busy():
    profile = Profile(link_bytes_per_s=1e9, fetch_overhead_ns=0)
    module = chains.chain(60, 1 << 20, 1 << 14, operations=8_000_000, bias_bytes=4096)
    prepared = prepare(module, profile)
    for share in (10, 4, 2):
        budget = prepared.stored_bytes // share
        prediction = prepared.plan(budget).prediction
        link_ns = (prepared.stored_bytes - budget) / profile.link_bytes_per_s * 1e9
        assert prediction.step_ns <= 1.1 * max(prediction.compute_ns, link_ns)


def test_a_deeper_ring_brings_late_weights_while_early_layers_compute(monkeypatch):
    """A network like ResNet: two thirds of the computing need a sixteenth of the weights."""
    profile = Profile(
        link_bytes_per_s=5e10,
        fetch_overhead_ns=0,
        launch_overhead_ns=0,
        operations_per_s=1e12,
        memory_bytes_per_s=1e15,
    )
    sizes = [chains.Sized(1 << 17)] * 32 + [chains.Sized(1 << 20)] * 64
    layers = [
        chains.Layer((n,), None, 32_000_000 if n < 32 else 8_000_000, (n,), n + 1)
        for n in range(96)
    ]
    module = chains.build(layers, sizes, [4096] * 97)
    prepared = prepare(module, profile)
    budget = prepared.stored_bytes * 6 // 10
    plan = prepared.plan(budget)
    assert plan.prediction.step_ns < 1.03 * prepared.compute_ns
    least, *deeper = prepared.levels.rings_bytes
    assert plan.ring_bytes > 4 * least
    monkeypatch.setattr(levels, "_DEPTHS", (0,))
    shallow = prepare(module, profile).plan(budget)
    assert shallow.ring_bytes == least and deeper
    assert shallow.prediction.step_ns > 1.1 * prepared.compute_ns


def test_slices_hold_back_only_what_they_read():
    module = chains.chain(4, 8 << 20, 1 << 16, bias_bytes=512)
    prepared = prepare(module)
    plan = prepared.plan(prepared.minimum_budget_bytes)
    assert prepared.minimum_budget_bytes < 2 << 20
    slices = [c for c in plan.commands if isinstance(c, PlannedDispatch)]
    assert len(slices) > 60
    assert all(len(c.waits) <= 1 for c in slices)
    whole = prepared.plan(prepared.stored_bytes)
    assert len(whole.commands) == 4


def test_a_memory_limit_counts_values_too():
    module = chains.chain(20, bias_bytes=4096)
    prepared = prepare(module)
    limit = prepared.slab_bytes + prepared.minimum_budget_bytes
    plan = prepared.plan(prepared.stored_bytes, limit)
    assert plan.prediction.peak_bytes <= limit
    with pytest.raises(HeadraceError) as caught:
        prepared.plan(prepared.stored_bytes, limit - 1)
    assert caught.value.diagnostics[0].code == "HR3203"
    assert str(limit) in str(caught.value)


def test_tables_are_read_in_place_until_they_fit():
    sizes = [chains.Sized(8 << 20, 0, 1024), chains.Sized(1 << 20), chains.Sized(1 << 20)]
    layers = [
        chains.Layer((0,), reads=(0,), writes=1),
        chains.Layer((1,), reads=(1,), writes=2),
        chains.Layer((2,), reads=(2,), writes=3),
    ]
    module = chains.build(layers, sizes, [512, 1 << 16, 1 << 16, 1 << 16])
    prepared = prepare(module)
    assert prepared.minimum_budget_bytes < 4 << 20
    least = prepared.plan(prepared.minimum_budget_bytes)
    table = least.commands[0]
    assert isinstance(table, PlannedDispatch)
    assert [a.index for a in table.addresses if a.space == "pool"] == [-2]
    full = prepared.plan(prepared.stored_bytes)
    table = full.commands[0]
    assert isinstance(table, PlannedDispatch)
    assert [a.index for a in table.addresses if a.space == "pool"] == [-1]


def test_large_programs_plan_quickly():
    """A guard against quadratic cost; the bar itself is measured by a benchmark."""
    module = chains.chain(5000, 1 << 18, 4096, bias_bytes=1024)
    small = chains.chain(1000, 1 << 18, 4096, bias_bytes=1024)

    def seconds(m):
        begin = time.process_time()
        prepared = prepare(m)
        prepared.plan(prepared.stored_bytes // 2)
        return time.process_time() - begin

    seconds(small)
    assert seconds(module) < 20 * min(seconds(small) for _ in range(2))


@pytest.mark.parametrize("seed", range(4))
def test_a_budget_for_everything_needs_no_order(seed):
    """New sizes are planned in a few milliseconds: what streaming needs is left out."""
    module = chains.random_module(seed, 30)
    prepared = prepare(module)
    everything = prepared.choice.everything_bytes
    plan = prepared.plan(everything)
    assert "events" not in vars(prepared.choice)
    assert plan.fetches == ()
    assert plan.ring_bytes == 0
    # Played through like any other level it is the very same.
    last = prepared.levels.everything
    assert prepared.levels.play(last).timing.step_ns == plan.prediction.step_ns
    for ring_bytes in prepared.levels.rings_bytes:
        assert sorted(prepared.choice.order(ring_bytes)) == sorted(prepared.choice.rest)
    check_plan(module, prepared.plan(everything - 1), everything - 1)


def slots_of(module, slots):
    """Every launch runs so many workgroups at once."""
    names = [e.entry_points[0].name for e in module.programs[0].executables]
    return Concurrency({(n, name): slots for n, name in enumerate(names)})


@pytest.mark.parametrize("seed", range(12))
def test_plans_of_a_device_that_runs_launches_in_waves_keep_their_promises(seed):
    module = chains.random_module(seed, 30)
    profile = PROFILES[seed % 3]
    prepared = planner.prepare(
        module, module.programs[0], 0, {}, profile, threads=1, concurrency=slots_of(module, 16)
    )
    plain = prepare(module, profile, threads=1)
    # Shares of a launch are rounded down.
    assert prepared.compute_ns == pytest.approx(plain.compute_ns, abs=1000)
    assert prepared.minimum_budget_bytes == plain.minimum_budget_bytes
    found = []
    for budget in budgets(prepared, 12):
        plan = prepared.plan(budget)
        check_plan(module, plan, budget)
        found.append(plan.prediction.step_ns)
        played = simulate(plan, profile, steps=8)
        assert played.step_ns == pytest.approx(plan.prediction.step_ns, rel=0.02)
    assert found == sorted(found, reverse=True)


def test_a_slice_of_one_wave_takes_as_long_as_the_launch():
    """One launch of 64 workgroups that are all at once, over 4 MiB that stream in parts."""
    module = chains.chain(2, 4 << 20, 1 << 16, operations=100_000_000)
    profile = Profile(link_bytes_per_s=1e12, fetch_overhead_ns=0, launch_overhead_ns=1000)
    linear = prepare(module, profile, threads=1)
    waves = planner.prepare(
        module, module.programs[0], 0, {}, profile, threads=1, concurrency=slots_of(module, 64)
    )
    (whole_ns, *_) = [c.predicted_ns for c in waves.plan(waves.stored_bytes).commands]
    cut = waves.plan(waves.minimum_budget_bytes).commands
    assert len(cut) > 8
    assert {c.predicted_ns for c in cut} == {whole_ns}
    # The first of each launch begins it; the others run beside it and add nothing.
    for command, before in zip(cut[1:], cut, strict=False):
        if command.first_workgroup[0]:
            grown_ns = command.together_ns - (before.together_ns or whole_ns)
            assert 0 < grown_ns < whole_ns / 100
        else:
            assert command.together_ns == 0
    shares = linear.plan(linear.minimum_budget_bytes).commands
    assert sum(c.predicted_ns for c in shares) <= 2 * whole_ns
    assert {c.together_ns for c in shares} == {0}


def test_a_table_that_every_layer_reads_stays_before_others():
    """Apart from its readers' weights it would be brought for each of them."""
    sizes = [chains.Sized(1 << 20)] + [chains.Sized(2 << 20, 1 << 16) for _ in range(24)]
    layers = [chains.Layer((n, 0), 0, 1_000_000, (n - 1,), n) for n in range(1, 25)]
    module = chains.build(layers, sizes, [4096] * 25)
    prepared = prepare(module, Profile(link_bytes_per_s=1e9))
    budget = prepared.minimum_budget_bytes + (1 << 20)
    plan = prepared.plan(budget)
    table = module.weights[0]
    brought = [
        f
        for f in plan.fetches
        if f.offset_bytes <= table.offset_bytes < f.offset_bytes + f.size_bytes
    ]
    assert not brought
    assert plan.prediction.streamed_bytes <= prepared.stored_bytes


def test_rows_that_the_host_holds_take_nothing_of_the_device():
    sizes = [chains.Sized(8 << 20, 0, 1024), chains.Sized(1 << 20), chains.Sized(1 << 20)]
    layers = [chains.Layer((n,), reads=(n,), writes=n + 1) for n in range(3)]
    module = chains.build(layers, sizes, [512, 1 << 16, 1 << 16, 1 << 16])
    here = prepare(module)
    there = planner.prepare(
        module, module.programs[0], 0, {}, Profile(), threads=2, tables_on_host=True
    )
    rows = here.plan(here.minimum_budget_bytes).row_bytes
    assert rows > 0
    assert there.minimum_budget_bytes == here.minimum_budget_bytes - rows
    plan = there.plan(there.minimum_budget_bytes)
    assert plan.row_bytes == 0
    check_plan(module, plan, there.minimum_budget_bytes)


def test_slices_that_run_after_one_another_are_predicted_slower():
    slower = 0
    for seed in range(4):
        module = chains.random_module(seed, 30)
        found: dict[bool, list[int]] = {}
        for branches in (False, True):
            prepared = planner.prepare(
                module,
                module.programs[0],
                0,
                {},
                PROFILES[seed % 3],
                threads=1,
                concurrency=Concurrency(slots_of(module, 16).slots, branches),
            )
            found[branches] = [
                prepared.plan(b).prediction.step_ns for b in budgets(prepared, 12)
            ]
        assert found[False] == sorted(found[False], reverse=True)
        slower += sum(a > b for a, b in zip(found[False], found[True], strict=True))
    assert slower


@pytest.mark.parametrize("seed", range(4))
def test_a_new_budget_makes_anew_only_what_it_changes(seed):
    """A launch all of whose weights stay is the very same in every plan."""
    module = chains.random_module(seed, 30)
    prepared = prepare(module, SLOW_LINK)
    plans = [prepared.plan(b) for b in budgets(prepared, 6)]
    all_stay = prepared.plan(prepared.stored_bytes + 4096)
    known = {id(command) for command in all_stay.commands}
    shared = 0
    for plan in plans[:-1]:
        for command in plan.commands:
            if isinstance(command, PlannedDispatch) and id(command) in known:
                assert not command.waits and not command.releases
                assert all(a.index < 0 for a in command.addresses if a.space == "pool")
                shared += 1
    assert shared
    fresh = prepare(module, SLOW_LINK)
    assert [fresh.plan(b) for b in reversed(budgets(fresh, 6))] == plans[::-1]


def test_what_a_budget_looked_at_is_not_kept():
    """A process that changes its budget again and again does not grow by what it leaves."""
    module = chains.random_module(3, 40)
    prepared = prepare(module, SLOW_LINK)
    for budget in budgets(prepared, 8)[:-1]:
        prepared.plan(budget)
        fresh = prepare(module, SLOW_LINK)
        fresh.plan(budget)
        assert prepared.levels.played.keys() == fresh.levels.played.keys() != set()
