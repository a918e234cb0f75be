"""`--numerics exact` from the command line to the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

from headrace import api
from headrace.artifact.reader import open_artifact
from headrace.base.errors import HeadraceError
from headrace.cli import cli


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A convolution that is Winograd's, and its batch norm."""
    random = np.random.default_rng(0)
    weights = {
        "w": random.standard_normal((32, 32, 3, 3)),
        **{n: random.uniform(0.5, 1.5, 32) for n in ("scale", "shift", "mean", "variance")},
    }
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
            helper.make_node(
                "BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["y"]
            ),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 32, 16, 16))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 32, 16, 16))],
        [numpy_helper.from_array(a.astype(np.float32), n) for n, a in weights.items()],
    )
    onnx.save(helper.make_model(graph, ir_version=10), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def families(path: Path) -> set[str]:
    (program,) = open_artifact(path).module.programs
    return {
        launch.family
        for executable in program.executables
        for variant in executable.variants
        for entry in variant.entry_points
        for specialisation in entry
        for launch in specialisation.launches
    }


def test_the_file_says_what_it_was_compiled_with(model: Path, tmp_path: Path) -> None:
    paths = {n: tmp_path / f"{n}.hrx" for n in ("fast", "exact")}
    for numerics, path in paths.items():
        arguments = ["compile", str(model), "-o", str(path), "--numerics", numerics]
        assert CliRunner().invoke(cli, arguments).exit_code == 0
        options = dict(open_artifact(path).module.provenance.options)
        assert options["numerics"] == numerics
        assert api.inspect(path).data["options"] == options
    assert "winograd" in families(paths["fast"])
    assert "winograd" not in families(paths["exact"])


def test_exact_results_are_close_and_the_same_at_every_thread_count(
    model: Path, tmp_path: Path
) -> None:
    x = np.random.default_rng(1).standard_normal((1, 32, 16, 16)).astype(np.float32)
    found: dict[str, list[Any]] = {}
    for numerics in ("fast", "exact"):
        path = api.compile(model, tmp_path / f"{numerics}.hrx", numerics=numerics)
        for threads in (1, 2):
            with api.load(path, threads=threads) as module:
                found.setdefault(numerics, []).append(np.array(module(x=x)[0]))
    for one, two in found.values():
        assert one.tobytes() == two.tobytes()
    np.testing.assert_allclose(found["fast"][0], found["exact"][0], rtol=1e-4, atol=1e-4)
    assert found["fast"][0].tobytes() != found["exact"][0].tobytes()


def test_batch_norms_stay_as_written(model: Path) -> None:
    assert "tensor.multiply %" in api.compile_to_text(model, "tensor", numerics="exact")
    assert "tensor.multiply %" not in api.compile_to_text(model, "tensor")


def test_who_cannot_says_so(model: Path, tmp_path: Path) -> None:
    with pytest.raises(HeadraceError, match="HR0113"):
        api.compile(model, tmp_path / "a.hrx", targets=("vulkan",), numerics="exact")
    with pytest.raises(HeadraceError, match="HR0114"):
        api.compile(model, tmp_path / "a.hrx", numerics="best")
    assert not (tmp_path / "a.hrx").exists()


def test_a_precision_is_said_in_kernels_and_the_file(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    text = api.compile_to_text(model, "hal", targets=("cuda:sm_90",), precision="tf32")
    assert text.count("precision(tf32)") == 1
    path = tmp_path / "t.hrx"
    arguments = [
        "compile",
        str(model),
        "-o",
        str(path),
        "--target",
        "cuda",
        "--precision",
        "tf32",
    ]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    assert dict(open_artifact(path).module.provenance.options)["precision"] == "tf32"


def test_a_precision_that_a_target_lacks_is_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(HeadraceError, match=r"HR0123.*'cpu:x86-64-v3', 'vulkan"):
        api.compile(
            model, tmp_path / "a.hrx", targets=("cpu", "vulkan", "cuda"), precision="tf32"
        )
    with pytest.raises(HeadraceError, match="HR0122"):
        api.compile(model, tmp_path / "a.hrx", precision="fp8")
    assert not (tmp_path / "a.hrx").exists()
