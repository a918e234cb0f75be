"""`headrace bench`: what it measures at each budget, in words and as data."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from headrace import api, cli

SIZE = 512


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three products, so that weights can stream."""
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "cache"))
    random = np.random.default_rng(0)
    nodes: list[Any] = []
    weights: list[Any] = []
    for n in range(3):
        array = random.standard_normal((SIZE, SIZE)).astype(np.float32)
        weights.append(numpy_helper.from_array(array, f"w{n}"))
        nodes.append(helper.make_node("MatMul", [f"v{n}", f"w{n}"], [f"h{n}"]))
        nodes.append(helper.make_node("Tanh", [f"h{n}"], [f"v{n + 1}"]))
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("v0", TensorProto.FLOAT, ("batch", SIZE))],
        [helper.make_tensor_value_info("v3", TensorProto.FLOAT, ("batch", SIZE))],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, tmp_path / "chain.onnx")
    return api.compile(tmp_path / "chain.onnx", tmp_path / "chain.hrx")


def test_each_budget_has_a_row(compiled: Path) -> None:
    made = api.bench(compiled, budgets=("max", "min", "max"), runs=7, dims={"batch": 2})
    data = made.data
    assert [row["weight_budget"] for row in data["budgets"]] == ["max", "min", "max"]
    assert data["dims"] == {"batch": 2}
    assert data["stored_bytes"] >= 3 * SIZE * SIZE * 4
    for row in data["budgets"]:
        low, high = row["quartiles_ns"]
        assert 0 < row["least_ns"] <= low <= row["median_ns"] <= high
        assert row["runs"] == 7
        assert row["predicted_step_ns"] > 0
        assert row["peak_bytes"] == row["predicted_peak_bytes"]
    whole, least, _ = data["budgets"]
    assert whole["streamed_bytes"] == 0 < least["streamed_bytes"]
    assert least["weight_budget_bytes"] < whole["weight_budget_bytes"]
    lines = made.text.splitlines()
    assert lines[0].startswith("chain.hrx: main(batch=2) on ")
    assert len(lines) == 5


def test_one_run_and_a_calibration(compiled: Path) -> None:
    data = api.bench(
        compiled, runs=1, warm=0, calibrate=True, dims={"batch": 1}, threads=1
    ).data
    (row,) = data["budgets"]
    assert row["quartiles_ns"] == [row["median_ns"]] * 2
    assert data["threads"] == 1


def test_the_command_line(
    compiled: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", ["headrace", "bench", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(ended.value.code or 0)

    given = ("--dim", "batch=1", "--runs", "3", "--threads", "2")
    assert run(compiled, *given, "--weight-budget", "min", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)["budgets"]
    assert row["weight_budget"] == "min"
    # A model file is compiled into the cache first.
    assert run(compiled.with_suffix(".onnx"), *given) == 0
    assert "median" in capsys.readouterr().out
    assert run(compiled, *given, "--weight-budget", "1") == 2
    assert "error[HR3202]" in capsys.readouterr().err
