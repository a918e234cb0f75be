"""Times of commands, and of the step they make together."""

from __future__ import annotations

import pytest

import headrace
from headrace.runtime import calibrate
from headrace.runtime.calibrate import fitted


def test_what_timing_costs_is_taken_off_each():
    assert fitted([10_000, 4_000, 0, 6_000], 14_000) == [8_000, 2_000, 0, 4_000]
    # A command is never taken for less than an eighth, and the whole still fits.
    found = fitted([100_000, 1_000, 1_000], 80_000)
    assert found[0] > 75_000 and found[1] == found[2] > 0
    assert sum(found) == pytest.approx(80_000, abs=3)


def test_what_is_too_short_grows_by_its_share():
    assert fitted([3_000, 1_000], 8_000) == [6_000, 2_000]
    assert fitted([], 5) == [] and fitted([0, 0], 5) == [0, 0]


def test_a_calibrated_step_is_predicted_as_long_as_it_was(mlp_path, monkeypatch):
    """Launches are dearer or cheaper alone than together; the step decides."""
    for whole_ns in (40_000_000, 900_000):
        monkeypatch.setattr(calibrate, "_step_ns", lambda *_, ns=whole_ns: ns)
        with headrace.load(mlp_path, weight_budget="max", threads=1) as module:
            module.calibrate({"batch": 2})
            predicted = module.plan({"batch": 2}).prediction.compute_ns
            assert predicted == pytest.approx(whole_ns, rel=0.01)
