"""Modules on a device: values at every budget, shapes, errors, sessions, reports."""

from __future__ import annotations

import gc
import threading
import time

import numpy as np
import pytest
from runtime_models import Mlp

from headrace.base.errors import HeadraceError
from headrace.runtime.arrays import aligned_array
from headrace.runtime.module import load_module


@pytest.fixture
def mlp():
    return Mlp((1024,) * 7)


def rows(count: int, width: int = 1024, seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


def test_values_are_those_of_numpy_and_the_same_bits_at_every_budget(mlp, mlp_path):
    x = rows(3)
    with load_module(mlp_path, weight_budget="max") as module:
        (first,) = module(x)
        assert np.abs(first - mlp(x)).max() < 1e-4
        for budget in ("min", "50%", "10%", "75%", "max", "min"):
            if budget == "10%":
                budget = max(module.minimum_weight_budget, module.stored_bytes // 10)
            module.weight_budget = budget
            for _ in range(3):
                assert (module(x=x)["y"] == first).all()
            plan = module.plan({"batch": 3})
            assert plan.budget_bytes == module.weight_budget
            assert module.weights.held_bytes <= module.weight_budget
            assert bool(plan.fetches) == (module.weight_budget < module.stored_bytes)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_bits_do_not_depend_on_threads(mlp_path, threads):
    x = rows(2)
    with load_module(mlp_path, weight_budget="max", threads=2) as module:
        expected = module(x)[0]
    with load_module(mlp_path, weight_budget="min", threads=threads) as module:
        assert (module(x)[0] == expected).all()


def test_shapes_change_from_call_to_call(mlp, mlp_path):
    with load_module(mlp_path, weight_budget="min") as module:
        for batch in (1, 7, 2, 7, 33, 1):
            x = rows(batch, seed=batch)
            out = module(x)
            assert out["y"].shape == (batch, 1024)
            assert np.abs(out["y"] - mlp(x)).max() < 1e-4


def test_a_shape_seen_before_is_not_planned_again(mlp_path, monkeypatch):
    with load_module(mlp_path) as module:
        for batch in (2, 3, 2):  # the slab grows at 3, so 2 is prepared once more
            module(rows(batch))
        monkeypatch.setattr(module, "plan_for", None)
        module(rows(2))
        module(rows(3))


def test_outputs_answer_to_position_and_name(mlp_path):
    with load_module(mlp_path) as module:
        out = module(rows(1))
        (y,) = out
        assert out["y"] is y and out[0] is y and out.names == ("y",)
        assert dict(out.items())["y"] is y and set(dict(out)) == {"y"}
        with pytest.raises(KeyError):
            out["z"]


def test_inputs_and_outputs_tell_their_signatures(mlp_path):
    with load_module(mlp_path) as module:
        assert str(module.inputs[0]) == "x: tensor<batchx1024xf32>"
        assert module.outputs[0].shape == ("batch", 1024)
        assert module.functions == ("main",)


def test_inputs_whose_elements_are_not_aligned_or_contiguous_are_copied(mlp_path):
    x = rows(4)
    with load_module(mlp_path) as module:
        aligned = aligned_array(x.shape, x.dtype)
        aligned[...] = x
        expected = module(aligned)[0]
        buffer = np.empty(x.nbytes + 64, np.uint8)
        start = -buffer.__array_interface__["data"][0] % 64
        for shift, is_copied in ((4, False), (2, True)):
            place = buffer[start + shift :][: x.nbytes]
            crooked = place.view(np.float32).reshape(x.shape)
            crooked[...] = x
            with module.session() as session:
                assert (session(crooked)[0] == expected).all()
                assert (session.staging_bytes > 0) == is_copied
        assert (module(np.asfortranarray(x))[0] == expected).all()
        wide = np.zeros((4, 2048), np.float32)
        wide[:, ::2] = x
        assert (module(wide[:, ::2])[0] == expected).all()


def test_out_is_written_in_place_aligned_or_not(mlp_path):
    x = rows(2)
    with load_module(mlp_path) as module:
        expected = module(x)[0]
        buffer = np.empty(expected.nbytes + 128, np.uint8)
        base = -buffer.__array_interface__["data"][0] % 64
        for shift in (0, 4, 2):
            raw = buffer[base + shift : base + shift + expected.nbytes]
            mine = raw.view(np.float32).reshape(expected.shape)
            mine[...] = 0
            out = module(x, out=[mine])
            assert out[0] is mine and (mine == expected).all()
        wrong = [np.empty((3, 1024), np.float32)]
        with pytest.raises(HeadraceError, match="HR4004"):
            module(x, out=wrong)
        with pytest.raises(HeadraceError, match="HR4004"):
            module(x, out=[np.empty((1024, 2), np.float32).T])
        with pytest.raises(HeadraceError, match="HR4004"):
            module(x, out=[])
        with pytest.raises(HeadraceError, match="HR4004"):
            module(x, out=[memoryview(expected.copy())])


def test_out_must_not_share_bytes_with_an_input(mlp_path):
    both = np.zeros((3, 1024), np.float32)
    with load_module(mlp_path) as module:
        with pytest.raises(HeadraceError, match=r"HR4004.*'y' shares bytes"):
            module(both[:2], out=[both[1:]])
        out = module(both[:1], out=[both[1:2]])
        assert out[0].base is both and (both[1] == module(both[:1])[0]).all()


def test_lists_take_the_dtype_of_the_model(mlp_path):
    with load_module(mlp_path) as module:
        x = np.ones((1, 1024), np.float32)
        assert (module(x.tolist())[0] == module(x)[0]).all()


def wrong_call(module, *args, **kwargs) -> str:
    with pytest.raises(HeadraceError) as caught:
        module(*args, **kwargs)
    assert all(d.code == "HR4001" for d in caught.value.diagnostics)
    return str(caught.value)


def test_wrong_inputs_are_named(mlp_path):
    with load_module(mlp_path) as module:
        assert "input 'x' is f64" in wrong_call(module, rows(1).astype(np.float64))
        assert ".astype('float32')" in wrong_call(module, rows(1).astype(np.float64))
        text = wrong_call(module, z=rows(1))
        assert "no input 'z'" in text and "'x' is missing" in text
        assert "axis 1 of input 'x' is 7, not 1024" in wrong_call(module, rows(1, 7))
        assert "rank 1" in wrong_call(module, rows(1)[0])
        assert "2 inputs are given" in wrong_call(module, rows(1), rows(1))
        assert "given twice" in wrong_call(module, rows(1), x=rows(1))
        assert "dimension 'batch' is 0" in wrong_call(module, rows(0))
        assert "x: tensor<batchx1024xf32>" in wrong_call(module)
        assert module(rows(1))[0].shape == (1, 1024)


def test_a_budget_below_the_minimum_names_it_and_changes_nothing(mlp_path):
    with load_module(mlp_path, weight_budget="50%") as module:
        before = module.weight_budget
        y = module(rows(2))[0]
        with pytest.raises(HeadraceError, match="HR3202") as caught:
            module.weight_budget = module.minimum_weight_budget - 1
        assert str(module.minimum_weight_budget) in str(caught.value)
        with pytest.raises(HeadraceError, match="HR3201"):
            module.weight_budget = "much"
        assert module.weight_budget == before
        assert (module(rows(2))[0] == y).all()
        module.weight_budget = module.minimum_weight_budget
        assert (module(rows(2))[0] == y).all()
        module.weight_budget = 0
        assert module.weight_budget == module.minimum_weight_budget


def test_a_memory_limit_caps_everything_together(mlp_path):
    x = rows(64)
    with load_module(mlp_path, weight_budget="max", memory_limit="16MiB") as module:
        with load_module(mlp_path, weight_budget="max") as free:
            expected = free(x)[0]
        for batch in (1, 64, 1):
            y = module(x[:batch])[0]
            assert np.allclose(y, expected[:batch], atol=1e-5)
            assert module.weights.held_bytes + module._session.held_bytes <= 16 << 20
        with pytest.raises(HeadraceError, match="HR3203") as caught:
            module(rows(5000))
        assert "minimum" in str(caught.value)
        assert np.allclose(module(x)[0], expected, atol=1e-5)


def test_a_memory_limit_below_the_least_is_refused_before_anything_is_held(mlp_path):
    with pytest.raises(HeadraceError, match="HR3203"):
        load_module(mlp_path, memory_limit="100kB")


def test_sessions_share_weights_and_run_on_their_threads(mlp, mlp_path):
    failures: list[str] = []
    with load_module(mlp_path, weight_budget="min") as module:

        def work(number: int) -> None:
            with module.session() as session:
                for step in range(5):
                    batch = 1 + (number + step) % 3
                    x = rows(batch, seed=number * 100 + step)
                    if np.abs(session(x)[0] - mlp(x)).max() > 1e-4:
                        failures.append(f"{number} {step}")

        threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        budgets = iter(("max", "min", "50%") * 3)
        while any(t.is_alive() for t in threads):
            module.weight_budget = next(budgets, "max")
            time.sleep(0.02)
        for thread in threads:
            thread.join()
    assert not failures


def test_a_closed_module_says_so(mlp_path):
    module = load_module(mlp_path)
    session = module.session()
    module(rows(1))
    module.close()
    module.close()
    for call in (lambda: module(rows(1)), lambda: session(rows(1)), module.session):
        with pytest.raises(HeadraceError, match="HR4005"):
            call()


def test_an_unknown_function_or_device_is_named(mlp_path):
    with load_module(mlp_path) as module, pytest.raises(HeadraceError, match="it has main"):
        module(rows(1), function="decode")
    with pytest.raises(HeadraceError, match="HR4013"):
        load_module(mlp_path, device="abacus")
    for threads in (0, -1, True, 10**6, 1.5, "2"):
        with pytest.raises(HeadraceError, match="HR4012"):
            load_module(mlp_path, threads=threads)


def test_the_report_sets_measured_beside_predicted(mlp_path):
    with load_module(mlp_path, weight_budget="50%") as module:
        before = module.report()
        assert before.measured_step_ns == 0 and before.predicted_step_ns > 0
        for _ in range(4):
            module(rows(2))
        report = module.report()
        assert report.steps == 4 and report.measured_step_ns > 0
        assert report.dims == (("batch", 2),) and report.interpreted == 0
        # Whether a step waits hangs on the machine.
        waits = [ns for _, ns in report.stalls]
        assert sum(waits) <= report.measured_stall_ns and waits == sorted(waits, reverse=True)
        assert report.streamed_bytes == sum(w.streamed_bytes for w in report.weights)
        for line in report.weights:
            assert line.resident_bytes + line.streamed_bytes == line.stored_bytes
        assert report.measured_peak_bytes == report.predicted_peak_bytes
        assert "measured" in str(report)
        assert [t.size_bytes for t in report.transfers] == [
            f.size_bytes for f in module.plan({"batch": 2}).fetches
        ]
        assert [
            (t.fetch, t.measured_wait_ns) for t in report.transfers if t.measured_wait_ns
        ] == (sorted(report.stalls))
        assert all(t.measured_issue_ns is None for t in report.transfers)
        assert module.report().measured_stall_ns == 0


def test_calibration_measures_every_kernel_and_is_kept(mlp_path):
    with load_module(mlp_path, weight_budget="50%") as module:
        profile = module.calibrate({"batch": 2})
        assert len(profile.kernel_ns) == 2
        assert all("batch=2" in key and "(64x1x1)" in key for key in profile.kernel_ns)
        assert all(ns > 1000 for ns in profile.kernel_ns.values())
        assert module.plan({"batch": 2}).prediction.compute_ns >= sum(
            profile.kernel_ns.values()
        )
        module(rows(2))
    with load_module(mlp_path, weight_budget="50%") as module:
        assert module.profile == profile


def test_a_damaged_profile_is_measured_again(mlp_path, tmp_path, monkeypatch):
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path))
    load_module(mlp_path).close()
    (path,) = tmp_path.glob("profile-*.json")
    path.write_text("{")
    load_module(mlp_path).close()
    assert '"link_bytes_per_s"' in path.read_text()


def test_a_dropped_module_frees_its_memory(mlp_path):
    def mapped() -> int:
        with open("/proc/self/maps") as maps:
            return sum(str(mlp_path) in line for line in maps)

    module = load_module(mlp_path)
    module(rows(1))
    assert mapped() > 0
    module.close()
    del module
    gc.collect()
    assert mapped() == 0
