"""`--pack`: what is stored takes less, comes back bit for bit, and every budget can be planned."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import headrace
from headrace.artifact.reader import open_artifact
from headrace.base.errors import HeadraceError
from headrace.base.exponent_codes import decode
from headrace.cli import cli
from headrace.plan.profile import Profile
from headrace.runtime.drivers.null import NullDevice
from headrace.runtime.module import Module

pytest.importorskip("triton")
WIDTH, LAYERS = 512, 3
PROFILE = Profile(link_bytes_per_s=5e10, operations_per_s=1e12, memory_bytes_per_s=1e12)


def arrays() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    found = []
    for _ in range(LAYERS):
        values = random.standard_normal((WIDTH, WIDTH)) * 0.02
        values[0, :7] = 0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 3e30
        found.append(values.astype(ml_dtypes.bfloat16))
    return found


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("packing") / "chain.onnx"
    nodes, weights, value = [], [], "x"
    for number, array in enumerate(arrays()):
        weights.append(
            helper.make_tensor(
                f"w{number}", TensorProto.BFLOAT16, array.shape, array.tobytes(), raw=True
            )
        )
        nodes.append(helper.make_node("MatMul", [value, f"w{number}"], [f"m{number}"]))
        nodes.append(helper.make_node("Relu", [f"m{number}"], [f"y{number}"]))
        value = f"y{number}"
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "chain",
        [info("x", TensorProto.BFLOAT16, ["rows", WIDTH])],
        [info(value, TensorProto.BFLOAT16, ["rows", WIDTH])],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)]), path)
    return path


@pytest.fixture(scope="module")
def packed(source):
    path = source.with_name("packed.hrx")
    return headrace.compile(
        source, path, targets=["cuda:sm_90"], pack="all", dims={"rows": (1, 64)}
    )


def test_every_weight_comes_back_bit_for_bit(packed):
    artifact = open_artifact(packed)
    artifact.verify_weights()
    found = {}
    data = packed.read_bytes()
    for weight in artifact.module.weights:
        assert weight.codes is not None
        assert weight.size_bytes < 0.8 * 2 * WIDTH * WIDTH
        begin = artifact.pool_offset_bytes + weight.offset_bytes
        stored = np.frombuffer(data, np.uint8, weight.size_bytes, begin)
        found[weight.name] = decode(stored, weight.codes, 2).reshape(WIDTH, WIDTH)
    for number, array in enumerate(arrays()):
        # Columns stand one behind the other, as the product reads them.
        assert (array.view(np.uint16) == found[f"w{number}"].T).all()


def test_equal_layers_keep_one_kernel_and_can_be_cut(packed):
    module = open_artifact(packed).module
    assert len({w.codes for w in module.weights}) == 1
    assert len(module.programs[0].executables) == 1
    assert all(0 < w.step_bytes < w.size_bytes for w in module.weights)


def test_plans_count_packed_bytes_and_are_sound_at_every_budget(packed):
    device = NullDevice("cuda", profile=PROFILE)
    x = np.zeros((1, WIDTH), ml_dtypes.bfloat16)
    with Module(open_artifact(packed), device, "max", profile=PROFILE) as module:
        stored = sum(w.size_bytes for w in module.artifact.module.weights)
        assert stored <= module.stored_bytes < stored + 4 * 4096
        for budget in ("max", "70%", "min"):
            module.weight_budget = budget
            module(x)  # the null driver refuses what cannot be kept
            plan = module.plan({"rows": 1})
            resident = sum(module.artifact.module.segments[s].size_bytes for s in plan.resident)
            streamed = plan.prediction.streamed_bytes
            assert resident + streamed >= stored
            assert bool(streamed) == (budget != "max")


def test_a_machine_without_the_device_plans_and_traces_its_steps(packed, tmp_path, capsys):
    out = tmp_path / "trace.json"
    options = ["--device", "null:cuda", "--weight-budget", "min"]
    run = ["run", str(packed), *options, "--input", "random", "--dim", "rows=1"]
    cli.main([*run, "--trace", str(out), "--report"], standalone_mode=False)
    report = capsys.readouterr().out
    assert "on null device, cuda" in report and " waited for" in report
    events = [e for e in json.loads(out.read_text())["traceEvents"] if e["ph"] == "X"]
    assert {e["cat"] for e in events} == {"compute", "copy"}
    cli.main(["plan", str(packed), *options, "--dim", "rows=1"], standalone_mode=False)
    assert "warning: weights stream although" in capsys.readouterr().out


def test_auto_leaves_small_weights_and_the_cpu_alone(source, tmp_path):
    path = headrace.compile(
        source, tmp_path / "a.hrx", targets=["cpu"], pack="auto", dims={"rows": 4}
    )
    assert all(w.codes is None for w in open_artifact(path).module.weights)


def test_all_is_refused_where_nothing_reads_packed_weights(source, tmp_path):
    with pytest.raises(HeadraceError, match=r"HR2299(.|\n)*cpu:(.|\n)*--pack auto"):
        headrace.compile(source, tmp_path / "a.hrx", targets=["cuda:sm_90", "cpu"], pack="all")
    with pytest.raises(HeadraceError, match=r"HR2298.*'some'"):
        headrace.compile(source, tmp_path / "a.hrx", pack="some")
