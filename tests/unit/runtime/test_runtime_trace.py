"""Traces: rows of computing and copying as Perfetto reads them, from every driver."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from fake_cuda import FakeDevice
from runtime_programs import doubling_loop

from headrace.artifact.reader import open_artifact
from headrace.cli import cli
from headrace.plan.model import PlannedDispatch
from headrace.plan.profile import Profile
from headrace.runtime.drivers.null import NullDevice
from headrace.runtime.module import Module, load_module

PROFILE = Profile(link_bytes_per_s=5e10, operations_per_s=1e12, memory_bytes_per_s=1e12)


def module_on(device: str, path) -> Module:
    if device == "cpu":
        return load_module(path, weight_budget="50%", threads=2)
    made = FakeDevice() if device == "cuda" else NullDevice(profile=PROFILE)
    return Module(open_artifact(path), made, "50%", profile=PROFILE)


def rows_of(trace, row: str, step: int) -> list[dict]:
    return [e for e in trace.events if e["cat"] == row and e["args"]["step"] == step]


@pytest.mark.parametrize("device", ["cpu", "cuda", "null"])
def test_a_steady_step_shows_each_dispatch_and_each_transfer_once(device, mlp_path):
    x = np.ones((2, 1024), np.float32)
    with module_on(device, mlp_path) as module:
        expected = np.array(module(x)[0])
        with module.trace() as trace:
            for _ in range(3):
                result = module(x)[0]
        plan = module.plan({"batch": 2})
        assert plan.fetches
        if device != "null":
            assert np.array_equal(expected, result)
        after = len(trace.events)
        module(x)
        assert len(trace.events) == after
    dispatches = [n for n, c in enumerate(plan.commands) if isinstance(c, PlannedDispatch)]
    for step in (1, 2):
        computing = rows_of(trace, "compute", step)
        assert [e["args"]["compute"] for e in computing] == dispatches
        assert all(e["name"] == plan.commands[e["args"]["compute"]].symbol for e in computing)
        assert all(e["dur"] >= 0 for e in computing)
        ends = [e["ts"] + e["dur"] for e in computing]
        assert all(a <= b["ts"] + 1e-6 for a, b in zip(ends, computing[1:], strict=False))
        brought = [e for e in rows_of(trace, "copy", step) if e["name"].startswith("bring")]
        assert Counter(e["args"]["copy"] for e in brought) == Counter(range(len(plan.fetches)))
        sizes = [plan.fetches[e["args"]["copy"]].size_bytes for e in brought]
        assert [e["args"]["size_bytes"] for e in brought] == sizes


def test_a_transfer_ends_before_the_dispatch_that_needs_it_begins(mlp_path):
    x = np.ones((2, 1024), np.float32)
    for device in ("cpu", "cuda", "null"):
        with module_on(device, mlp_path) as module, module.trace() as trace:
            for _ in range(4):
                module(x)
            plan = module.plan({"batch": 2})
        begins = {
            (e["args"]["step"], e["args"]["compute"]): e["ts"]
            for e in trace.events
            if e["cat"] == "compute"
        }
        checked = 0
        for event in trace.events:
            if event["cat"] != "copy" or not event["name"].startswith("bring"):
                continue
            fetch = plan.fetches[event["args"]["copy"]]
            # A graph's tail brings the next step's head: the null device shows it there too.
            ahead = device == "cuda" and fetch.issue_after < 0 and not fetch.at_begin
            begin = begins.get((event["args"]["step"] + ahead, fetch.needed_by))
            if begin is not None:
                checked += 1
                assert event["ts"] + event["dur"] <= begin + 1e-6
        assert checked


@pytest.mark.parametrize("device", ["cpu", "cuda", "null"])
def test_a_report_of_traced_steps_has_issue_and_arrival_of_each_transfer(device, mlp_path):
    x = np.ones((2, 1024), np.float32)
    with module_on(device, mlp_path) as module:
        with module.trace() as trace:
            for _ in range(3):
                module(x)
        report = module.report()
        plan = module.plan({"batch": 2})
    assert [t.fetch for t in report.transfers] == list(range(len(plan.fetches)))
    computing = [e for e in rows_of(trace, "compute", 2)]
    origin = computing[0]["ts"]
    begins = {e["args"]["compute"]: 1e3 * (e["ts"] - origin) for e in computing}
    for line, fetch in zip(report.transfers, plan.fetches, strict=True):
        assert line.weights == (f"w{line.needed_by[-1]}",)
        assert line.predicted_issue_ns < line.predicted_arrival_ns
        assert line.measured_issue_ns <= line.measured_arrival_ns
        assert line.measured_arrival_ns <= begins[fetch.needed_by] + 1e3
        if device == "null":  # what is predicted is what happens
            measured = line.measured_issue_ns, line.measured_arrival_ns, line.measured_wait_ns
            predicted = line.predicted_issue_ns, line.predicted_arrival_ns
            assert measured == (*predicted, line.predicted_wait_ns)
    assert f"transfers {len(plan.fetches)} per step" in str(report)
    # What nobody waits for, as on the CPU here, is not listed.
    assert device == "cpu" or "w0 for layer0" in str(report)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_loops_show_every_turn(device, tmp_path):
    path = doubling_loop(tmp_path / "loop.hrx")
    made = FakeDevice() if device == "cuda" else "cpu"
    with load_module(path, device=made) as module, module.trace() as trace:
        module(np.ones(100, np.float32), np.array(3))
    turns = Counter(e["args"]["compute"] for e in trace.events if e["cat"] == "compute")
    assert max(turns.values()) > 1


def test_the_command_line_writes_a_document_with_named_rows(mlp_path, tmp_path, capsys):
    out = tmp_path / "trace.json"
    arguments = ["run", str(mlp_path), "--input", "random", "--dim", "batch=2", "--steps", "2"]
    cli.main([*arguments, "--weight-budget", "min", "--trace", str(out)], standalone_mode=False)
    document = json.loads(out.read_text())
    named = {
        e["tid"]: e["args"]["name"]
        for e in document["traceEvents"]
        if e["name"] == "thread_name"
    }
    assert named == {1: "compute", 2: "copy"}
    events = [e for e in document["traceEvents"] if e["ph"] == "X"]
    assert {e["tid"] for e in events} == {1, 2}
    # In each row one thing at a time, and the steps one behind the other.
    for row in (1, 2):
        spans = [(e["ts"], e["dur"], e["args"]["step"]) for e in events if e["tid"] == row]
        assert spans == sorted(spans) and all(dur >= 0 for _, dur, _ in spans)
