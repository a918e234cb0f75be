"""benchmarks/gpu.py: three commands that go on where they were, and one table of all rows."""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.fixture
def gpu() -> Any:
    return importlib.import_module("gpu")


def results(folder: Path) -> Any:
    return importlib.import_module("gpu_results").Results(folder)


def cell(tokens: int, budget: str, of_floor: float) -> dict[str, Any]:
    return {
        "tokens": tokens,
        "budget": budget,
        "step_s": 2e-3,
        "of_floor": of_floor,
        "streamed_bytes": 10,
        "allowed_bytes": 10,
        "predicted": 0.98,
        "peak": 1.0,
        "same": True,
    }


def decoder(**other: Any) -> dict[str, Any]:
    return {
        "link": 5e10,
        "read": 4e12,
        "read_a_step": 7e9,
        "rows": [cell(1, "max", 1.0), cell(1, "25%", 1.02), cell(2048, "75%", 1.045)],
        "changes_s": 0.05,
        "changes_same": True,
        **other,
    }


def test_every_row_is_in_the_table(tmp_path: Path) -> None:
    kept = results(tmp_path)
    kept.put("decoder", decoder())
    packed = {"tokens": 1, "of_floor": 0.7, "of_resident": 1.1, "same": True}
    rows = [{**packed, "budget": b} for b in ("max", "80 %", "50 %", "25 %", "min")]
    kept.put("packed", {"rows": rows})
    kept.put("disk", {"of_floor": 0.7, "same": True})
    modes = {"reduce-overhead": 1, "max-autotune": 0}
    kept.put("models", {"ratios": {"resnet50:f16:1": 0.7}, "modes": modes, "left": 0})
    kept.put("products", {"seed": 1, "square": 0.95, "drawn": 0.9})
    kept.put("nodes", {"count": 600, "passed": 590, "interpreted": 0})
    beside = [{"free_bytes": 10**9, "told": "ran", "right": True}]
    kept.put("memory", {"left_bytes": 0, "beside": beside})
    kept.put("compiling", {"ResNet-50": (9.0, 1.0), "decoder": (13.0, 4.0)})
    peer = {"peer": "torch eager", "budget": "max", "tokens": 1, "step_s": 0.02}
    kept.put("peers", {"rows": [peer], "left": 0})
    module = importlib.import_module("gpu_results")
    text = module.table(results(tmp_path).found)
    numbers = {line.split("|")[1].strip() for line in text.splitlines() if "|" in line}
    assert {str(n) for n in range(1, 12)} <= numbers
    assert "**no**" not in text and "not run" not in text
    assert "1.020 (1 tokens, 25%)" in text and "torch eager" in text


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"rows": [cell(1, "max", 1.0), cell(1, "50%", 1.031), cell(128, "10%", 1)]}, "1.031"),
        ({"changes_s": 0.101}, "101 ms"),
        ({"changes_same": False}, "50 ms"),
        ({"read": 6e12}, "1.714"),
        (
            {"rows": [{**cell(1, "max", 1.0), "predicted": 1.06}, cell(128, "min", 1.04)]},
            "0.060",
        ),
    ],
)
def test_a_bar_that_is_missed_is_said(
    change: dict[str, Any], line: str, tmp_path: Path
) -> None:
    kept = results(tmp_path)
    kept.put("decoder", decoder(**change))
    text = importlib.import_module("gpu_results").table(kept.found)
    (missed,) = [found for found in text.splitlines() if "**no**" in found]
    assert line in missed


def test_a_command_goes_on_where_it_was(
    gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def part(name: str, left: int = 0) -> Any:
        def run(_: Any) -> dict[str, Any]:
            done.append(name)
            if name == "nodes" and done.count("nodes") == 1:
                raise RuntimeError("no")
            return {"left": left}

        return run

    parts = {name: part(name) for name in gpu.PARTS}
    parts["autotune"] = part("autotune", 2)
    monkeypatch.setattr(gpu, "PARTS", parts)
    options = argparse.Namespace(folder=tmp_path)
    gpu.run_command(gpu.COMMANDS["two"], options, results(tmp_path))
    assert done == ["models", "products", "nodes", "autotune"]
    assert "nodes" not in json.loads((tmp_path / "results.json").read_text())
    gpu.run_command(gpu.COMMANDS["two"], options, results(tmp_path))
    assert done[4:] == ["nodes", "autotune"]
    monkeypatch.setattr(gpu, "_MOST_SECONDS", 50)
    gpu.run_command(("compiling", "memory"), options, results(tmp_path))
    assert done[6:] == ["compiling"]


def test_the_commands_hold_every_part(gpu: Any) -> None:
    assert {p for parts in gpu.COMMANDS.values() for p in parts} == set(gpu.PARTS)
    for name, parts in gpu.COMMANDS.items():
        assert f"gpu.py {name} --folder DIR" in gpu.__doc__ and " ".join(parts) in gpu.__doc__


def test_node_tests_are_counted() -> None:
    rows = [("pass", 0), ("pass", 2), ("wrong", 0)]
    lines = [json.dumps({"kind": kind, "interpreted": count}) for kind, count in rows]
    counts = importlib.import_module("gpu_nodes").counts("\n".join(["{}", *lines]))
    assert counts == {"count": 3, "passed": 1, "interpreted": 1}
