"""The null driver finds what is wrong with a plan, and keeps the planner's time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.artifact.reader import open_artifact
from headrace.base.errors import HeadraceError
from headrace.plan.model import Address, PlannedDispatch
from headrace.plan.planner import prepare
from headrace.plan.profile import Profile
from headrace.runtime.drivers.null import NullDevice
from headrace.runtime.drivers.null_check import check_plan, simulate


@pytest.fixture(scope="module")
def opened(mlp_path):
    artifact = open_artifact(mlp_path)
    return artifact, artifact.module.programs[0]


def plans(opened, profile=Profile()):  # noqa: B008
    artifact, program = opened
    prepared = prepare(artifact.module, program, 0, {"batch": 2}, profile, threads=1)
    least, most = prepared.minimum_budget_bytes, prepared.stored_bytes
    return [prepared.plan(least + (most - least) * part // 6) for part in range(7)]


def test_plans_of_the_planner_are_sound(opened):
    artifact, program = opened
    for plan in plans(opened):
        assert check_plan(artifact.module, program, plan) == []


@pytest.mark.parametrize("rate", [1e9, 6e9, 1e11])
def test_the_simulated_step_is_the_predicted_one(opened, rate):
    profile = Profile(link_bytes_per_s=rate)
    for plan in plans(opened, profile):
        found = simulate(plan, profile, steps=8)
        assert found.step_ns == pytest.approx(plan.prediction.step_ns, rel=0.02)


def broken(opened, change) -> str:
    artifact, program = opened
    plan = change(plans(opened)[0])
    facts = check_plan(artifact.module, program, plan)
    assert facts
    device = NullDevice()
    weights = device.open_weights(artifact)
    code = device.link(program, artifact.code)
    with pytest.raises(HeadraceError, match="HR9304"):
        device.prepare(program.functions[0], plan, code, weights, device.open_state({}))
    return "\n".join(facts)


def change_dispatch(number: int, **values):
    def change(plan):
        commands = list(plan.commands)
        commands[number] = replace(commands[number], **values)
        return replace(plan, commands=tuple(commands))

    return change


def test_a_command_that_does_not_wait_is_found(opened):
    number = next(i for i, c in enumerate(plans(opened)[0].commands) if c.waits)
    text = broken(opened, change_dispatch(number, waits=()))
    assert "have not all arrived" in text


def test_a_fetch_that_is_never_released_is_found(opened):
    number = next(i for i, c in enumerate(plans(opened)[0].commands) if c.releases)
    assert "never released" in broken(opened, change_dispatch(number, releases=()))


def test_a_place_used_too_early_is_found(opened):
    def change(plan):
        late = next(i for i, f in enumerate(plan.fetches) if f.issue_after >= 0)
        fetches = list(plan.fetches)
        fetches[late] = replace(fetches[late], issue_after=-1)
        return replace(plan, fetches=tuple(fetches))

    assert "still read" in broken(opened, change)


def test_a_place_of_the_step_before_used_too_early_is_found(opened):
    def change(plan):
        fetches = [
            replace(f, previous_issue_after=-1) if f.issue_after < 0 else f
            for f in plan.fetches
        ]
        return replace(plan, fetches=tuple(fetches))

    assert "of the step before" in broken(opened, change)


def test_a_budget_that_is_passed_and_a_ring_too_small_are_found(opened):
    assert "pass the budget" in broken(opened, lambda p: replace(p, budget_bytes=1))
    assert "outside the ring" in broken(opened, lambda p: replace(p, ring_bytes=4096))


def test_a_value_read_before_it_is_written_is_found(opened):
    plan = plans(opened)[0]
    assert isinstance(plan.commands[-1], PlannedDispatch)
    places = list(plan.commands[0].addresses)
    places[0] = Address("slab", 0)
    text = broken(opened, change_dispatch(0, addresses=tuple(places)))
    assert "before any writes" in text


def test_writing_to_weights_or_past_the_slab_is_found(opened):
    plan = plans(opened)[0]
    places = list(plan.commands[0].addresses)
    places[3] = Address("pool", 0)
    text = broken(opened, change_dispatch(0, addresses=tuple(places)))
    assert "writes to the weights" in text
    places[3] = Address("slab", plan.slab_bytes)
    text = broken(opened, change_dispatch(0, addresses=tuple(places)))
    assert "outside the slab" in text
