"""What every driver must keep, whatever it runs on."""

from __future__ import annotations

import numpy as np
import pytest

import headrace
from headrace.artifact.reader import open_artifact
from headrace.base.errors import HeadraceError
from headrace.plan.planner import prepare
from headrace.runtime.arrays import aligned_array
from headrace.runtime.module import load_module

BUDGETS = (0.0, 0.1, 0.5, 0.9, 1.0)


class Opened:
    """A driver's objects for one file, as the module would hold them."""

    def __init__(self, device, path):
        self.device = device
        self.artifact = open_artifact(path)
        (self.program,) = self.artifact.module.programs
        self.function = self.program.functions[0]
        self.code = device.link(self.program, self.artifact.code)
        self.weights = device.open_weights(self.artifact)
        self.state = device.open_state({})
        self.profile = device.measure(self.artifact)

    def plan(self, batch: int, share: float):
        prepared = prepare(
            self.artifact.module,
            self.program,
            0,
            {"batch": batch},
            self.profile,
            threads=self.device.properties.workers,
            variants=self.code.variants,
        )
        least, most = prepared.minimum_budget_bytes, prepared.stored_bytes
        return prepared.plan(int(least + share * (most - least)))

    def step(self, plan):
        self.state.reserve(plan)
        return self.device.prepare(self.function, plan, self.code, self.weights, self.state)

    def close(self):
        self.state.close()
        self.weights.close()


@pytest.fixture
def opened(device, streaming_path):
    found = Opened(device, streaming_path)
    yield found
    found.close()


def arrays(batch: int):
    x = aligned_array((batch, 1024), np.dtype(np.float32))
    x[...] = np.random.default_rng(batch).standard_normal(x.shape)
    return [x], [aligned_array((batch, 1024), np.dtype(np.float32))]


def test_it_says_what_it_is(device):
    properties = device.properties
    assert device.name and properties.name and properties.driver
    assert properties.workers >= 1
    assert properties.features == tuple(sorted(properties.features))
    assert device.free_bytes() > 0


def test_one_variant_is_chosen_for_each_executable(opened):
    assert len(opened.code.variants) == len(opened.program.executables)


def test_the_profile_has_positive_rates(opened):
    assert opened.profile.link_bytes_per_s > 0
    assert opened.profile.fetch_overhead_ns >= 0


@pytest.mark.parametrize("share", BUDGETS)
def test_weights_held_never_pass_the_budget(opened, share):
    plan = opened.plan(2, share)
    opened.weights.activate(plan)
    assert 0 < opened.weights.held_bytes <= plan.budget_bytes
    step = opened.step(plan)
    inputs, outputs = arrays(2)
    for _ in range(3):
        step.run(inputs, outputs)
        assert opened.weights.held_bytes <= plan.budget_bytes
    opened.weights.release()
    assert opened.weights.held_bytes == 0
    step.run(inputs, outputs)
    assert 0 < opened.weights.held_bytes <= plan.budget_bytes


def test_steps_are_counted_and_times_taken_once(opened):
    plan = opened.plan(1, 0.0)
    step = opened.step(plan)
    inputs, outputs = arrays(1)
    step.record(True)
    for _ in range(3):
        step.run(inputs, outputs)
    times = step.take_times()
    assert times.steps == 3
    assert len(times.wait_ns) == len(plan.fetches) and times.stall_ns == sum(times.wait_ns)
    assert len(times.command_ns) == len(plan.commands)
    assert all(ns > 0 for ns in times.command_ns)
    step.record(False)
    assert step.take_times().steps == 0
    step.run(inputs, outputs)
    after = step.take_times()
    assert after.steps == 1 and after.command_ns == []


def test_a_state_grows_and_tells_that_it_moved(opened):
    small, large = opened.plan(1, 1.0), opened.plan(64, 1.0)
    opened.state.reserve(small)
    first = opened.state.generation
    opened.state.reserve(small)
    assert opened.state.generation == first
    opened.state.reserve(large)
    assert opened.state.generation > first
    assert opened.state.held_bytes >= large.slab_bytes
    opened.state.reserve(small)
    assert opened.state.held_bytes >= large.slab_bytes
    opened.state.reserve(small, exact=True)
    assert small.slab_bytes <= opened.state.held_bytes < large.slab_bytes


def test_plans_alternate_on_one_state(opened):
    large = opened.plan(4, 0.5)
    opened.state.reserve(large)
    steps = [(b, opened.step(opened.plan(b, share))) for b in (1, 4) for share in (0.0, 1.0)]
    for _ in range(2):
        for batch, step in steps:
            inputs, outputs = arrays(batch)
            step.run(inputs, outputs)


def test_variables_are_counted(device):
    state = device.open_state({"a": 1000, "b": 5000})
    assert state.held_bytes >= 6000
    state.close()
    assert state.held_bytes == 0


def test_a_module_runs_at_every_budget_with_the_same_bits(device, streaming_path):
    (x,), _ = arrays(3)
    with load_module(streaming_path, device=device, weight_budget="max") as module:
        out = [np.zeros((3, 1024), np.float32)]
        expected = module(x, out=out)[0].copy()
        for budget in ("min", "30%", "70%", "max"):
            module.weight_budget = budget
            assert (module(x, out=out)[0] == expected).all()
            report = module.report()
            assert report.measured_peak_bytes >= report.minimum_budget_bytes
            assert report.interpreted == 0


def test_wrong_calls_are_refused_alike(device, streaming_path):
    with load_module(streaming_path, device=device) as module:
        with pytest.raises(HeadraceError, match="HR4001"):
            module(np.zeros((1, 5), np.float32))
        with pytest.raises(HeadraceError, match="HR3202"):
            module.weight_budget = 1


UPDATE = """
func.func public @main(%cache: tensor<4x64x8xf32> {tf.aliasing_output = 0 : i32},
    %row: tensor<4x1x8xf32>, %at: tensor<i32>) -> (tensor<4x64x8xf32>, tensor<4x8xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %none = stablehlo.constant dense<0.0> : tensor<f32>
  %next = stablehlo.dynamic_update_slice %cache, %row, %zero, %at, %zero
    : (tensor<4x64x8xf32>, tensor<4x1x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>)
    -> tensor<4x64x8xf32>
  %sum = stablehlo.reduce(%next init: %none) applies stablehlo.add across dimensions = [1]
    : (tensor<4x64x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  return %next, %sum : tensor<4x64x8xf32>, tensor<4x8xf32>
}
"""


def test_an_output_takes_the_place_of_an_input(device, tmp_path):
    if device.name == "null":
        pytest.skip("the null device computes nothing")
    (tmp_path / "update.mlir").write_text(UPDATE)
    path = headrace.compile(
        tmp_path / "update.mlir", tmp_path / "update.hrx", targets=(device.device_class,)
    )
    cache = np.random.default_rng(1).standard_normal((4, 64, 8), np.float32)
    row = np.random.default_rng(2).standard_normal((4, 1, 8), np.float32)
    with load_module(path, device=device) as module:
        for place, donate in ((7, False), (0, True), (63, True)):
            before = cache.copy()
            wanted = cache.copy()
            wanted[:, place : place + 1] = row
            after, total = module(cache, row, np.int32(place), donate=donate)
            assert (after == wanted).all()
            np.testing.assert_allclose(total, wanted.sum(1), rtol=1e-4, atol=1e-4)
            assert donate or (cache == before).all()
            cache = after
