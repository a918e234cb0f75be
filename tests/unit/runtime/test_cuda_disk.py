"""The third level: what host memory has no room for comes from the disk, bit for bit."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from fake_cuda import FakeDevice
from runtime_programs import doubling_loop

from headrace.artifact.reader import open_artifact
from headrace.base.errors import HeadraceError
from headrace.plan.profile import Profile
from headrace.runtime.drivers.cuda_disk import share_host
from headrace.runtime.module import Module, load_module

PROFILE = Profile(link_bytes_per_s=5e10, operations_per_s=1e12, memory_bytes_per_s=1e12)
X = np.random.default_rng(3).standard_normal((2, 1024)).astype(np.float32)


def opened(path: Path, device: FakeDevice, budget: str) -> Module:
    return Module(open_artifact(path), device, budget, profile=PROFILE)


@pytest.fixture(scope="module")
def wanted(mlp_path):
    with opened(mlp_path, FakeDevice(), "max") as module:
        return np.array(module(X)[0]).tobytes()


@pytest.mark.parametrize("copies_first", [True, False])
@pytest.mark.parametrize("limit", ["2MB", "6MB", "1GB"])
def test_bits_do_not_depend_on_where_weights_come_from(mlp_path, wanted, copies_first, limit):
    device = FakeDevice(copies_first=copies_first, host_limit=limit)
    with opened(mlp_path, device, "min") as module:
        for budget in ("min", "50%", "min"):
            module.weight_budget = budget
            for _ in range(4):
                assert np.array(module(X)[0]).tobytes() == wanted
            disk = module.weights.disk
            assert (disk is None) == (limit == "1GB")
            notes = " ".join(module.report().notes)
            assert ("read from the disk" in notes) == (disk is not None)
            module.calibrate({"batch": 2})
    assert not device.fake.pinned or limit == "1GB"


@pytest.mark.parametrize("limit", [2 << 20, 3 << 20, 6 << 20])
def test_what_is_pinned_keeps_the_limit(mlp_path, limit):
    device = FakeDevice(host_limit=limit)
    before = sum(device.fake.pinned.values())
    with opened(mlp_path, device, "min") as module:
        module(X)
        plan = module.plan({"batch": 2})
        share = share_host(module.artifact.module, plan, limit)
        assert share.cold and share.slots >= 2
        held = module.weights._host.held_bytes + module.weights.disk.held_bytes
        staging = module._session._state.pinned.size_bytes
        assert sum(device.fake.pinned.values()) == before + held + staging
        assert held <= limit
        cold = sum(plan.fetches[f].size_bytes for f in share.cold)
        assert cold == module.weights.disk.read_bytes
        streamed = sum(f.size_bytes for f in plan.fetches)
        assert cold + sum(e - b for b, e in share.held) == streamed


def test_too_small_a_limit_names_the_minimum(mlp_path):
    device = FakeDevice(host_limit=4096)
    with pytest.raises(HeadraceError, match=r"HR3017(.|\n)*the minimum at this budget is"):
        opened(mlp_path, device, "min")
    assert device.fake.held.keys() <= set()


@pytest.mark.parametrize("text", ["-5", "abc", "1%", "min", "9" * 5000])
def test_what_is_no_host_limit(text):
    with pytest.raises(HeadraceError, match=r"HR3201(.|\n)*--> host limit"):
        FakeDevice(host_limit=text)


def test_branches_leave_nothing_to_the_disk(tmp_path):
    path = doubling_loop(tmp_path / "loop.hrx", n=1 << 18, weights=5)
    with opened(path, FakeDevice(host_limit="1GB"), "min") as module:
        plan = module.plan()
        assert plan.fetches
        with pytest.raises(HeadraceError, match=r"HR3018(.|\n)*branches"):
            share_host(module.artifact.module, plan, 4096)


def test_a_file_that_is_cut_stops_the_step_and_nothing_hangs(mlp_path, tmp_path):
    path = tmp_path / "m.hrx"
    path.write_bytes(mlp_path.read_bytes())
    module = opened(path, FakeDevice(host_limit="2MB"), "min")
    module(X)
    os.truncate(path, 1 << 20)
    with pytest.raises(HeadraceError, match="HR3105"):
        module(X)
        module(X)
    module.close()


def test_only_cuda_takes_a_host_limit(mlp_path):
    with pytest.raises(HeadraceError, match=r"HR4037.*'cpu'"):
        load_module(mlp_path, "cpu", host_limit="1GB")


def test_a_report_says_where_nothing_needs_to_stream(mlp_path):
    with opened(mlp_path, FakeDevice(), "min") as module:
        module(X)
        assert "all of them would fit" in " ".join(module.report().notes)
        assert "all of them would fit" in " ".join(module.warnings())
        module.weight_budget = "max"
        module(X)
        assert "would fit" not in " ".join(module.report().notes)
        assert not module.warnings()
        # Told by a plan too, which nothing has run yet.
        plan = module.plan({"batch": 64}, weight_budget="50%")
        assert "all of them would fit" in " ".join(module.warnings(plan))
    device = FakeDevice()
    device.context_bytes = 300 << 20
    with Module(
        open_artifact(mlp_path), device, "min", memory_limit="320MiB", profile=PROFILE
    ) as module:
        # The context takes of the limit what the weights would need.
        module(X)
        assert not module.warnings()
    stored = 25190400
    with opened(mlp_path, FakeDevice(total_bytes=stored + (1 << 20)), "min") as module:
        assert module.warnings()
        # Values of so many rows leave no room, and are not there before the first step.
        assert not module.warnings(module.plan({"batch": 256}))
    with opened(mlp_path, FakeDevice(total_bytes=12 << 20), "min") as module:
        module(X)
        assert not module.warnings()
        assert "would fit" not in " ".join(module.report().notes)
