"""The CUDA driver over a driver in host memory: addresses, graphs, ring, caps, errors."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeCalls, FakeDevice
from runtime_models import Mlp
from runtime_programs import accumulator, doubling_loop, table_lookup

from headrace.artifact.reader import open_artifact
from headrace.base.errors import HeadraceError
from headrace.plan import search
from headrace.plan.profile import Profile
from headrace.runtime.drivers.cuda_calls import CudaCalls, load_bindings
from headrace.runtime.drivers.cuda_cubin import required_threads
from headrace.runtime.drivers.cuda_link import pick_variants, runs_on
from headrace.runtime.drivers.cuda_timing import repeated_ns
from headrace.runtime.module import Module, load_module

PROFILE = Profile(link_bytes_per_s=5e10, operations_per_s=1e12, memory_bytes_per_s=1e12)
# Kernels that take longer than a branch of a graph costs.
SLOW = Profile(link_bytes_per_s=5e10, operations_per_s=1e10, memory_bytes_per_s=1e10)
WIDTHS = (1024,) * 7
BUDGETS = ("max", "70%", "50%", "min")


def opened(path: Path, device: FakeDevice, profile: Profile = PROFILE, **options) -> Module:
    return Module(open_artifact(path), device, profile=profile, **options)


@pytest.mark.parametrize("copies_first, takes_files", [(True, True), (False, False)])
def test_all_budgets_give_the_same_bits_in_any_order_of_copies(
    mlp_path, copies_first, takes_files
):
    model = Mlp(WIDTHS)
    random = np.random.default_rng(1)
    inputs = [random.standard_normal((n, 1024)).astype(np.float32) for n in (1, 3, 1, 1)]
    device = FakeDevice(copies_first=copies_first, takes_files=takes_files)
    found: dict[str, list[bytes]] = {}
    with opened(mlp_path, device, SLOW, weight_budget="max") as module:
        for budget in (*BUDGETS, "max"):
            module.weight_budget = budget
            results = [np.array(module(x)[0]) for x in inputs]
            for x, y in zip(inputs, results, strict=True):
                assert np.allclose(y, model(x), atol=1e-3)
            found[budget] = [y.tobytes() for y in results]
        module.weight_budget = "min"
        commands = module.plan({"batch": 3}).commands
    # Slices of a launch run beside one another.
    assert any(getattr(c, "together_ns", 0) for c in commands)
    assert all(f == found["max"] for f in found.values())


@pytest.mark.parametrize("copies_first", [True, False])
def test_a_step_may_bring_the_last_of_its_head_itself(mlp_path, copies_first, monkeypatch):
    monkeypatch.setattr(search, "_WORTH", 2.0)
    model = Mlp(WIDTHS)
    random = np.random.default_rng(1)
    device = FakeDevice(copies_first=copies_first)
    with opened(mlp_path, device, SLOW, weight_budget="max") as module:
        for budget in ("70%", "min", "50%", "70%"):
            module.weight_budget = budget
            for batch in (1, 3, 3, 1, 1):
                x = random.standard_normal((batch, 1024)).astype(np.float32)
                assert np.allclose(np.array(module(x)[0]), model(x), atol=1e-3)
            plan = module.plan({"batch": 1})
            assert sum(f.at_begin for f in plan.fetches) == 1
            before = device.fake.copied_bytes
            module(x)
            streamed = sum(f.size_bytes for f in plan.fetches)
            assert device.fake.copied_bytes - before == streamed + 2 * x.nbytes


def test_a_step_is_one_graph_and_brings_what_the_plan_says(mlp_path):
    device = FakeDevice()
    x = np.ones((2, 1024), np.float32)
    with opened(mlp_path, device, weight_budget="min") as module:
        module(x)
        module(x)
        captures, launches = device.fake.captures, device.fake.graph_launches
        before = device.fake.copied_bytes
        module(x)
        assert device.fake.captures == captures
        assert device.fake.graph_launches == launches + 1
        plan = module.plan({"batch": 2})
        streamed = sum(f.size_bytes for f in plan.fetches)
        assert streamed > 0
        assert device.fake.copied_bytes - before == streamed + 2 * x.nbytes


# A step that streams is longer than its graph takes to make.
LONG = replace(SLOW, link_bytes_per_s=1e9)


@pytest.mark.parametrize("copies_first", [True, False])
def test_the_first_step_of_a_budget_runs_while_its_graph_is_made(mlp_path, copies_first):
    device = FakeDevice(copies_first=copies_first)
    fake = device.fake
    x = np.linspace(-1, 1, 3072, dtype=np.float32).reshape(3, 1024)
    with opened(mlp_path, device, LONG, weight_budget="max") as module:
        wanted = np.array(module(x)[0])
        assert (fake.captures, fake.graph_launches) == (1, 1)  # nothing streams
        for budget in ("min", "50%", "70%", "min"):
            captures, launches = fake.captures, fake.graph_launches
            module.weight_budget = budget
            assert (np.array(module(x)[0]) == wanted).all()
            assert (fake.captures, fake.graph_launches) == (captures + 1, launches)
            report = module.report()
            assert report.steps == 1
            for _ in range(2):
                assert (np.array(module(x)[0]) == wanted).all()
            assert (fake.captures, fake.graph_launches) == (captures + 1, launches + 2)
        # Another slab of the same module, between two steps of the first.
        with module.session() as other:
            assert (np.array(other(x)[0]) == wanted).all()
            assert (np.array(module(x)[0]) == wanted).all()
    assert not fake.held and not fake.pinned


def test_waits_of_a_first_step_are_timed_like_those_of_a_graph(mlp_path):
    device = FakeDevice()
    x = np.ones((2, 1024), np.float32)
    slow_link = replace(PROFILE, link_bytes_per_s=1e9)
    with opened(mlp_path, device, slow_link, weight_budget="min") as module:
        module(x)
        assert (device.fake.captures, device.fake.graph_launches) == (1, 0)
        assert module.report().measured_stall_ns > 0
        module(x)
        assert device.fake.graph_launches == 1
        assert module.report().measured_stall_ns > 0


def test_events_given_back_are_taken_again(mlp_path, monkeypatch):
    """To make one and to drop it takes the host 2 us, and a graph has hundreds."""
    device = FakeDevice()
    released: list[int] = []
    monkeypatch.setattr(
        device.fake, "release_event", lambda event, timed=False: released.append(event)
    )
    x = np.ones((2, 1024), np.float32)
    with opened(mlp_path, device, LONG, weight_budget="min") as module:
        module(x)
        # Of the step that ran alone, and of its graph: at least one for every transfer each.
        fetches = len(module.plan({"batch": 2}).fetches)
        assert len(released) == len(set(released)) > 2 * fetches > 0
    calls: Any = object.__new__(CudaCalls)
    calls._spare_events = ([], [])
    calls.release_event("plain")
    calls.release_event("timed", timed=True)
    assert (calls.event(timed=True), calls.event()) == ("timed", "plain")


def test_launches_overlap_where_they_need_nothing_but_the_one_before(mlp_path):
    device = FakeDevice()
    x = np.ones((2, 1024), np.float32)
    with opened(mlp_path, device, weight_budget="max") as module:
        module(x)
        commands = len(module.plan({"batch": 2}).commands)
        # The first comes behind a copy of the input.
        assert device.fake.overlapping == commands - 1 > 1
        with module.trace():
            module(x)
        assert device.fake.overlapping == commands - 1
        module.weight_budget = "min"
        module(x)
        assert device.fake.overlapping - commands + 1 < commands - 1


def test_what_is_held_keeps_budget_and_limit(mlp_path):
    for budget in BUDGETS:
        device = FakeDevice()
        with opened(mlp_path, device, weight_budget=budget) as module:
            module(np.ones((2, 1024), np.float32))
            plan = module.plan({"batch": 2})
            assert module.weights.held_bytes <= plan.budget_bytes + 4096
            report = module.report()
            assert sum(device.fake.held.values()) == (
                report.measured_peak_bytes + report.staging_bytes
            )


def test_a_memory_limit_holds_at_all_times(mlp_path):
    limit = 16 << 20
    device = FakeDevice()
    with opened(mlp_path, device, weight_budget="max", memory_limit=limit) as module:
        for batch in (1, 8, 2, 8):
            module(np.ones((batch, 1024), np.float32))
        module.weight_budget = "min"
        module(np.ones((8, 1024), np.float32))
        module.weight_budget = "max"
        module(np.ones((8, 1024), np.float32))
    assert device.fake.peak_bytes <= limit


def test_everything_is_given_back(mlp_path):
    device = FakeDevice()
    with opened(mlp_path, device, weight_budget="50%") as module:
        module(np.ones((2, 1024), np.float32))
        with module.session() as session:
            session(np.ones((3, 1024), np.float32))
    assert not device.fake.held
    assert not device.fake.pinned
    assert not device.fake.is_open


def test_too_little_memory_on_the_device_is_an_error(mlp_path):
    device = FakeDevice(total_bytes=12 << 20)
    with pytest.raises(HeadraceError, match="HR3013") as caught:
        opened(mlp_path, device, weight_budget="max")
    assert "the minimum at these sizes is" in str(caught.value)
    assert not device.fake.held
    with opened(mlp_path, device, weight_budget="auto") as module:
        assert module.weight_budget <= 11 << 20
        x = np.ones((2, 1024), np.float32)
        y = np.array(module(x)[0])
        before = module.weight_budget
        # A change that fails leaves a module that runs.
        with pytest.raises(HeadraceError, match="HR3013"):
            module.weight_budget = "max"
        assert module.weight_budget == before
        assert (np.array(module(x)[0]) == y).all()


def test_hidden_memory_is_not_taken(mlp_path, monkeypatch):
    device = FakeDevice(total_bytes=64 << 20)
    monkeypatch.setenv("HEADRACE_HIDE_DEVICE_MEMORY", "52MiB")
    with opened(mlp_path, device, weight_budget="auto") as module:
        assert module.weight_budget <= 12 << 20


@pytest.mark.parametrize("text", ["abc", "-5", "10%", " ", "1e9"])
def test_a_bad_size_of_hidden_memory_names_the_variable(mlp_path, monkeypatch, text):
    device = FakeDevice()
    pinned = dict(device.fake.pinned)
    monkeypatch.setenv("HEADRACE_HIDE_DEVICE_MEMORY", text)
    with pytest.raises(HeadraceError, match=r"HR3201(.|\n)*--> HEADRACE_HIDE_DEVICE_MEMORY"):
        opened(mlp_path, device, owns_device=False)
    # Nothing of the module is left on the device: its code neither.
    assert not device._codes and not device.fake.held and device.fake.pinned == pinned
    device.close()


def test_more_is_hidden_than_there_is(mlp_path, monkeypatch):
    monkeypatch.setenv("HEADRACE_HIDE_DEVICE_MEMORY", "9999TB")
    with pytest.raises(HeadraceError, match=r"HR3202(.|\n)*'auto' takes(.|\n)*the minimum"):
        opened(mlp_path, FakeDevice(), weight_budget="auto")


def test_a_new_budget_brings_only_what_is_new(mlp_path):
    """What stays moves on the device; the file is pinned once."""
    device = FakeDevice()
    x = np.linspace(-1, 1, 2048, dtype=np.float32).reshape(2, 1024)
    with opened(mlp_path, device, weight_budget="max") as module:
        wanted = np.array(module(x)[0])
        pinned = dict(device.fake.pinned)
        segments = module.artifact.module.segments
        resident = set(module.plan({"batch": 2}).resident)
        for budget in ("60%", "80%", "30%", "min", "max", "45%"):
            before = device.fake.brought_bytes
            module.weight_budget = budget
            plan = module.plan({"batch": 2})
            new = sum(segments[s].size_bytes for s in set(plan.resident) - resident)
            # It is on its way still: only a step waits for it.
            assert device.fake.brought_bytes == before or not new
            device.finish()
            assert device.fake.brought_bytes - before == new
            resident = set(plan.resident)
            assert (np.array(module(x)[0]) == wanted).all()
            assert device.fake.pinned.items() >= pinned.items()
    assert not device.fake.held and not device.fake.pinned


def test_memory_that_cannot_be_pinned_is_an_error(mlp_path):
    device = FakeDevice(takes_files=False)
    with opened(mlp_path, device, weight_budget="max") as module:
        device.fake.can_pin = False
        with pytest.raises(HeadraceError, match="HR3014"):
            module.weight_budget = "min"
        device.fake.can_pin = True
        module.weight_budget = "min"
        module(np.ones((1, 1024), np.float32))


def test_two_sessions_share_the_ring(mlp_path):
    model = Mlp(WIDTHS)
    a = np.ones((2, 1024), np.float32)
    b = np.full((5, 1024), 0.5, np.float32)
    with (
        opened(mlp_path, FakeDevice(), weight_budget="min") as module,
        module.session() as one,
        module.session() as other,
    ):
        for _ in range(3):
            assert np.allclose(one(a)[0], model(a), atol=1e-3)
            assert np.allclose(other(b)[0], model(b), atol=1e-3)


def test_variables_live_as_long_as_the_session(tmp_path):
    device = FakeDevice()
    with opened(accumulator(tmp_path / "a.hrx"), device) as module:
        x = np.arange(200, dtype=np.float32)
        for n in (1, 2, 3):
            assert (np.array(module(x, function="add")[0]) == n * x).all()
        assert (np.array(module(function="read")[0]) == 3 * x).all()


@pytest.mark.parametrize("budget", ["max", "min"])
def test_loops_and_branches_run_a_graph_per_straight_run(tmp_path, budget):
    path = doubling_loop(tmp_path / "loop.hrx", weights=5)
    device = FakeDevice()
    x = np.arange(100, dtype=np.float32)
    factors = np.full(100, 32, np.float32)
    factors[0] = 2 * 3 * 4 * 5 * 6
    with opened(path, device, weight_budget=budget) as module:
        for times in (0, 1, 2, 3):
            wanted = x.copy()
            for _ in range(times):
                wanted *= factors
            y = np.array(module(x, np.array(times))[0])
            assert (y == wanted + (1000 if times % 2 else 0)).all()
        captures = device.fake.captures
        module(x, np.array(3))
        assert device.fake.captures == captures


def test_rows_of_a_table_are_read_from_pinned_memory(tmp_path):
    path = table_lookup(tmp_path / "table.hrx", 1 << 16)
    device = FakeDevice()
    with opened(path, device, weight_budget="min") as module:
        assert module.weights.held_bytes < 1 << 20
        y = np.array(module(np.array([5, 0, 65535, 7]))[0])
        assert (y[:, 0] == np.array([5, 0, 65535, 7]) * 64).all()
        assert any("pinned" in note for note in module.report().notes)


def test_calibration_times_every_launch(mlp_path):
    device = FakeDevice()
    with opened(mlp_path, device, weight_budget="min") as module:
        assert module.plan({"batch": 2}).fetches
        profile = module.calibrate({"batch": 2})
        assert len(profile.kernel_ns) == 2
        # The fake's clock gives every command 1 us; slices take less together than alone.
        assert all(ns >= 1000 for ns in profile.kernel_ns.values())
        module(np.ones((2, 1024), np.float32))


@pytest.mark.parametrize("synchronous", ["0", "1"])
@pytest.mark.parametrize("profile", [PROFILE, LONG])
def test_a_refused_launch_names_the_users_node(mlp_path, monkeypatch, synchronous, profile):
    monkeypatch.setenv("HEADRACE_GPU_SYNCHRONOUS", synchronous)
    device = FakeDevice(copies_first=False)
    x = np.ones((1, 1024), np.float32)
    with opened(mlp_path, device, profile, weight_budget="50%") as module:
        device.fake.refuse = "matmul_1024_1024_0"
        with pytest.raises(HeadraceError, match="layer5") as caught:
            module(x)
        assert "HR4022" in str(caught.value)
        device.fake.refuse = ""
        assert np.allclose(module(x)[0], Mlp(WIDTHS)(x), atol=1e-3)


def test_measuring_gives_rates(mlp_path):
    profile = FakeDevice().measure(open_artifact(mlp_path))
    assert profile.link_bytes_per_s > 0
    assert profile.memory_bytes_per_s > 0
    assert profile.contention == 0


def section(name: str, entries: bytes) -> bytes:
    """A 64-bit ELF file whose only other section is `name`."""
    names = b"\0.shstrtab\0" + name.encode() + b"\0"
    data = names + entries
    header = b"\x7fELF\x02\x01\x01" + bytes(33) + struct.pack("<Q", 64 + len(data)) + bytes(12)
    header += struct.pack("<3H", 64, 3, 1)
    header = header[:58] + struct.pack("<3H", 64, 3, 1)
    row = "<IIQQQQIIQQ"
    table = bytes(64) + struct.pack(row, 1, 3, 0, 0, 64, len(names), 0, 0, 1, 0)
    at = 64 + len(names)
    table += struct.pack(row, 11, 1, 0, 0, at, len(entries), 0, 0, 1, 0)
    return header + data + table


def test_threads_of_a_block_are_read_from_the_cubin():
    entries = struct.pack("<BBHI", 4, 0x17, 4, 7) + struct.pack("<BBH", 3, 0x1B, 255)
    entries += struct.pack("<BBH3I", 4, 0x10, 12, 64, 2, 1)
    cubin = section(".nv.info.my_kernel", entries)
    assert required_threads(cubin) == {"my_kernel": 128}
    assert required_threads(section(".nv.info.my_kernel", entries[:-8])) == {}
    assert required_threads(b"no ELF") == {}
    for end in range(0, len(cubin), 7):
        required_threads(cubin[:end])


@pytest.mark.parametrize(
    ("features", "capability", "runs"),
    [
        (("sm_90",), (9, 0), True),
        (("sm_80",), (8, 6), True),
        (("sm_86",), (8, 0), False),
        (("sm_80",), (9, 0), False),
        (("sm_90a",), (9, 0), True),
        (("sm_100",), (10, 0), True),
        (("gfx942",), (9, 0), False),
    ],
)
def test_code_runs_on_its_own_generation(features, capability, runs):
    assert runs_on(features, capability) is runs


def test_no_fitting_code_is_an_error_that_names_the_cure(mlp_path):
    program = open_artifact(mlp_path).module.programs[0]
    with pytest.raises(HeadraceError, match="--target cuda:sm_90"):
        pick_variants(program, (9, 0), "NVIDIA H200")
    executables = tuple(
        replace(
            e,
            variants=tuple(
                replace(e.variants[0], format="cubin", features=(f,))
                for f in ("sm_80", "sm_86")
            ),
        )
        for e in program.executables
    )
    newest = pick_variants(replace(program, executables=executables), (8, 9), "a GPU")
    assert set(newest) == {1}


def test_without_bindings_or_gpu_the_error_says_so(mlp_path):
    try:
        load_bindings()
    except HeadraceError as problem:
        assert "headrace[cuda]" in str(problem)
        with pytest.raises(HeadraceError, match="HR4020"):
            load_module(mlp_path, "cuda")
        return
    try:
        CudaCalls()
    except HeadraceError as problem:
        assert "HR4021" in str(problem)


def test_the_fake_keeps_the_interface():
    wanted = {n for n in vars(CudaCalls) if not n.startswith("_")} - {"allow_shared"}
    assert wanted <= set(dir(FakeCalls())), wanted - set(dir(FakeCalls()))


def test_code_goes_with_its_module_where_the_device_stays_open(mlp_path):
    device = FakeDevice()
    for _ in range(3):
        with opened(mlp_path, device, owns_device=False) as module:
            module(np.ones((2, 1024), np.float32))
        assert device._codes == []
    device.close()


def test_a_memory_limit_holds_for_context_and_code_too(mlp_path):
    device = FakeDevice()
    device.context_bytes = 300 << 20
    with opened(mlp_path, device, owns_device=False, memory_limit="320MiB") as module:
        module(np.ones((2, 1024), np.float32))
        held = module.weights.held_bytes + module._session.held_bytes
        assert held <= 20 << 20
        assert "314.6 MB" in str(module.report())
    with pytest.raises(HeadraceError, match="HR3203") as caught:
        opened(mlp_path, device, owns_device=False, memory_limit="300MiB")
    assert "the driver's context" in str(caught.value)
    device.close()


def test_commands_are_timed_in_a_graph_of_their_own(mlp_path):
    device = FakeDevice()
    x = np.ones((2, 1024), np.float32)
    with opened(mlp_path, device, weight_budget="max") as module:
        y = np.array(module(x)[0])
        step: Any = module._session.last[1].step
        graphs = list(step.handles.graphs)
        launched = device.fake.graph_launches
        assert repeated_ns(step, [0, 1], 3, 2) > 0
        assert device.fake.graph_launches == launched + 3
        assert step.handles.graphs == graphs
        assert (module(x)[0] == y).all()
