"""`headrace tune`: rounds, what is kept, and what later compiles make of it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

from headrace import api, translation, tuning
from headrace.artifact.reader import open_artifact
from headrace.base.errors import HeadraceError, error
from headrace.cli import cli
from headrace.targets.cpu.tuned import tables
from headrace.tuning import Request, tune_model


def write(path: Path, nodes: list[Any], weights: dict[str, Any]) -> Path:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (40, 64))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    onnx.save(helper.make_model(graph, ir_version=10), path)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    weight = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)
    return write(
        tmp_path / "m.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": weight}
    )


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def third_wins(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, int]]:
    """Real steps, but their times say that the third schedule is twice as fast."""
    rounds: list[dict[str, int]] = []
    real = tuning._launch_times

    def timed(*arguments: Any) -> dict[str, int]:
        found = dict.fromkeys(real(*arguments), 500 if len(rounds) == 2 else 1000)
        rounds.append(found)
        return found

    monkeypatch.setattr(tuning, "_launch_times", timed)
    return rounds


def test_later_compiles_use_what_was_found(
    model: Path,
    tmp_path: Path,
    third_wins: list[dict[str, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = api.compile(model, tmp_path / "before.hrx").read_bytes()
    found = tune_model(Request(model, steps=1))
    assert found["problems"] == found["tuned"] == 1
    assert len(third_wins) >= 5 and all(third_wins)
    (row,) = found["rows"]
    assert row["choice"] is not None and row["best_ns"] == 500
    path = tables("x86-64-v3").own_path
    assert json.loads(path.read_text())["tables"]["x86-64-v3"] == {
        row["problem"]: row["choice"]
    }
    after = api.compile(model, tmp_path / "after.hrx").read_bytes()
    assert after != before
    x = np.random.default_rng(1).standard_normal((40, 64)).astype(np.float32)
    results = []
    for name in ("before", "after"):
        with api.load(tmp_path / f"{name}.hrx") as module:
            results.append(np.array(module(x=x)[0]))
    np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-5)
    monkeypatch.setenv("HEADRACE_TUNED", "0")
    assert api.compile(model, tmp_path / "off.hrx").read_bytes() == before
    monkeypatch.setenv("HEADRACE_TUNED", "1")
    monkeypatch.setenv("HEADRACE_MODEL_CACHE", "0")
    assert api.compile(model, tmp_path / "again.hrx").read_bytes() == after


def test_a_gpu_is_tuned_on_its_device(
    model: Path,
    tmp_path: Path,
    third_wins: list[dict[str, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("triton")
    from headrace.runtime.drivers import table
    from headrace.runtime.drivers.null import NullDevice
    from headrace.targets.triton import tuned

    opened: list[str] = []

    def open_device(name: str, **options: Any) -> NullDevice:
        opened.append(name)
        return NullDevice(device_class=name)

    monkeypatch.setattr(table, "open_device", open_device)
    monkeypatch.setattr(tuned, "_SLOW", tuned._SLOW[:3])
    found = tune_model(Request(model, "cuda:sm_90", steps=1))
    assert opened == ["cuda"] and found["rounds"] == [len(third_wins)] * 2
    assert found["tuned"] == 1
    (row,) = found["rows"]
    assert row["problem"] == "contract 40 by 256 over 64 batch 1 ieee"
    assert found["table"].endswith("tuned/cuda-sm_90.json")
    with pytest.raises(HeadraceError, match="HR0118"):
        tune_model(Request(model, "rocm"))
    after = api.compile(model, tmp_path / "after.hrx", targets=["cuda:sm_90"])
    assert "contract" in {
        launch.family
        for program in open_artifact(after).module.programs
        for executable in program.executables
        for variant in executable.variants
        for entry in variant.entry_points
        for specialisation in entry
        for launch in specialisation.launches
    }


def test_a_table_of_its_own(
    model: Path, tmp_path: Path, third_wins: list[dict[str, int]]
) -> None:
    table = tmp_path / "mine.json"
    arguments = ["tune", str(model), "--steps", "1", "--table", str(table), "--json"]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["table"] == str(table)
    assert "contract 40 by 256 over 64" in table.read_text()
    assert not tables("x86-64-v3").own_path.exists()


def test_time_that_is_used_up_leaves_alternatives_out(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tune_model(Request(model, steps=1))["rounds"]
    assert whole[0] == whole[1] > 3
    done = CliRunner().invoke(cli, ["tune", str(model), "--steps", "1", "--seconds", "0"])
    assert done.exit_code == 0, done.output
    assert f"2 of {whole[1]} rounds were measured in the time given" in done.output


def test_a_round_translates_what_it_changes(
    tmp_path: Path, third_wins: list[dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)
    nodes = [
        helper.make_node("Softmax", ["x"], ["p"], axis=0),
        helper.make_node("MatMul", ["p", "w"], ["y"]),
    ]
    model = write(tmp_path / "two.onnx", nodes, {"w": weight})
    translated: list[str] = []
    real = translation._translate_one

    def counted(target: Any, task: Any) -> Any:
        translated.append(translation.kernel_symbol(task.kernel))
        return real(target, task)

    monkeypatch.setattr(translation, "_translate_one", counted)
    rounds = tune_model(Request(model, steps=1))["rounds"][1]
    counts = sorted(Counter(translated).values())
    # The product's schedules, one a round but the last; everything else once.
    assert counts[-1] == rounds - 1 and set(counts[:-1]) == {1}


def test_a_schedule_that_is_refused_gives_way(
    model: Path, third_wins: list[dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = translation._translate_one, [0]

    def refusing(target: Any, task: Any) -> Any:
        asked[0] += 1
        return error("HR2422", "no room") if asked[0] == 3 else real(target, task)

    monkeypatch.setattr(translation, "_translate_one", refusing)
    found = tune_model(Request(model, steps=1))
    # The third one would have won.
    assert found["rounds"][0] == found["rounds"][1] == len(third_wins)
    assert found["rows"][0]["choice"] is None


def test_noise_changes_nothing(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, count = tuning._launch_times, [1000]

    def timed(*arguments: Any) -> dict[str, int]:
        count[0] -= 2
        return dict.fromkeys(real(*arguments), count[0])

    monkeypatch.setattr(tuning, "_launch_times", timed)
    assert tune_model(Request(model, steps=1))["tuned"] == 0
    assert json.loads(tables("x86-64-v3").own_path.read_text())["tables"]["x86-64-v3"] == {}


def test_what_cannot_be_tuned(model: Path, tmp_path: Path) -> None:
    relu = write(tmp_path / "r.onnx", [helper.make_node("Relu", ["x"], ["y"])], {})
    with pytest.raises(HeadraceError, match="HR0117"):
        tune_model(Request(relu))
    with pytest.raises(HeadraceError, match="HR0118"):
        tune_model(Request(model, "vulkan"))
    (tmp_path / "file").write_text("")
    with pytest.raises(HeadraceError, match="HR0119"):
        tune_model(Request(model, steps=1, table=tmp_path / "file" / "t.json"))
