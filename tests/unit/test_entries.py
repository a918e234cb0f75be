"""Several models in one file: entry functions that share weights, dimensions and a budget."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, external_data_helper, helper, numpy_helper

import headrace
from headrace import api
from headrace.artifact.reader import open_artifact
from headrace.base.errors import HeadraceError
from headrace.cli import cli
from headrace.given import given, parse_entries

WEIGHT = np.random.default_rng(3).standard_normal((64, 96), np.float32)


def product(
    path: Path,
    weight: Any = WEIGHT,
    name: str = "w",
    rows: Any = "batch",
    external: bool = False,
) -> Path:
    """y = x @ weight."""
    depth, width = weight.shape
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", name], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (rows, depth))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (rows, width))],
        [numpy_helper.from_array(weight, name)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    if external:
        external_data_helper.convert_model_to_external_data(
            model, location=f"{path.stem}.bin", size_threshold=0
        )
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("external", [False, True])
def test_weights_equal_by_content_are_stored_once(tmp_path: Path, external: bool) -> None:
    many = product(tmp_path / "many.onnx", name="encoder.weight", external=external)
    one = product(tmp_path / "one.onnx", name="decoder.weight", rows=1, external=external)
    path = headrace.compile({"many": many, "one": one}, tmp_path / "both.hrx")
    held = open_artifact(path).module
    assert sum(s.size_bytes for s in held.segments) == WEIGHT.nbytes
    assert [w.name for w in held.weights] == ["encoder.weight"]
    with headrace.load(path) as module:
        assert module.functions == ("many", "one")
        x = np.random.default_rng(4).standard_normal((5, 64), np.float32)
        many_entry, one_entry = module.entry("many"), module.session().entry("one")
        np.testing.assert_allclose(many_entry(x)[0], x @ WEIGHT, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(
            one_entry(x=x[:1])["y"], x[:1] @ WEIGHT, rtol=1e-4, atol=1e-4
        )
        assert [str(i) for i in one_entry.inputs] == ["x: tensor<1x64xf32>"]
        with pytest.raises(HeadraceError, match="HR4007"):
            module.entry("two")


def test_one_name_for_two_contents_is_two_weights(tmp_path: Path) -> None:
    models = {
        "a": product(tmp_path / "a.onnx"),
        "b": product(tmp_path / "b.onnx", WEIGHT + 1),
    }
    path = headrace.compile(models, tmp_path / "both.hrx")
    assert [w.name for w in open_artifact(path).module.weights] == ["w", "b/w"]
    x = np.ones((2, 64), np.float32)
    with headrace.load(path, weight_budget="min") as module:
        for entry, weight in (("a", WEIGHT), ("b", WEIGHT + 1)):
            np.testing.assert_allclose(
                module(x, function=entry)[0], x @ weight, rtol=1e-4, atol=1e-4
            )


def test_a_dimension_is_one_in_all_entries(tmp_path: Path) -> None:
    models = {
        "a": product(tmp_path / "a.onnx"),
        "b": product(tmp_path / "b.onnx", rows="rows"),
    }
    path = headrace.compile(models, tmp_path / "c.hrx", dims={"batch": (2, 8), "rows": 3})
    with headrace.load(path) as module:
        assert [i.shape for i in module.inputs_of("a")] == [("batch", 64)]
        assert [i.shape for i in module.inputs_of("b")] == [(3, 64)]
        with pytest.raises(HeadraceError, match="dimension 'batch' is 9"):
            module.entry("a")(np.ones((9, 64), np.float32))
    with pytest.raises(HeadraceError, match=r"HR0203.*'depth'"):
        headrace.compile(models, tmp_path / "d.hrx", dims={"depth": 3, "rows": 3})


def test_sizes_of_a_model_that_was_read_are_told_then(tmp_path: Path) -> None:
    a = product(tmp_path / "a.onnx")
    for models in (headrace.from_onnx(onnx.load(a)), {"b": headrace.from_onnx(onnx.load(a))}):
        with pytest.raises(HeadraceError, match=r"HR0209.*'batch'"):
            headrace.compile(models, tmp_path / "r.hrx", dims={"batch": 4})
    read = headrace.from_onnx(onnx.load(a), dims={"batch": 4})
    with headrace.load(headrace.compile(read, tmp_path / "r.hrx")) as module:
        assert module.inputs[0].shape == (4, 64)


def test_names_of_entries() -> None:
    assert parse_entries(["prefill=a.onnx", "gpt-2.onnx"]) == {
        "prefill": Path("a.onnx"),
        "gpt_2": Path("gpt-2.onnx"),
    }
    with pytest.raises(HeadraceError, match="HR0205") as two:
        parse_entries(["x/m.onnx", "y/m.onnx", "2=b.onnx"])
    assert len(two.value.diagnostics) == 2
    for wrong, code in (({"a b": "m.onnx"}, "HR0205"), ({}, "HR0206")):
        with pytest.raises(HeadraceError, match=code):
            given(wrong)


def test_a_model_of_several_functions_is_no_entry(tmp_path: Path) -> None:
    text = "func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }\n"
    (tmp_path / "two.mlir").write_text(f"module {{ {text} {text.replace('@f', '@g')} }}")
    models = {"a": tmp_path / "two.mlir", "b": product(tmp_path / "b.onnx")}
    with pytest.raises(HeadraceError, match=r"HR1116.*\n.*\n.*they are f, g"):
        headrace.compile(models, tmp_path / "c.hrx")


def test_the_command_line_names_and_runs_entries(tmp_path: Path) -> None:
    first, second = product(tmp_path / "first.onnx"), product(tmp_path / "second.onnx", rows=1)
    output = tmp_path / "both.hrx"
    runner = CliRunner()
    arguments = ["compile", str(first), f"decode={second}", "-o", str(output)]
    done = runner.invoke(cli, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    shown = runner.invoke(cli, ["inspect", str(output), "--json"], catch_exceptions=False)
    data = json.loads(shown.output)
    assert [f["name"] for f in data["programs"][0]["functions"]] == ["first", "decode"]
    assert data["source"] == "first.onnx, second.onnx"
    ran = runner.invoke(
        cli,
        ["run", str(output), "--entry", "decode", "--input", "random", "--json"],
        catch_exceptions=False,
    )
    assert json.loads(ran.output)["outputs"]["y"]["shape"] == [1, 96]


def test_the_same_entries_are_compiled_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HEADRACE_MODEL_CACHE", "1")
    seen: list[Any] = []
    real = api.compile_parts

    def counting(models: Any, **options: Any) -> api.Compiled:
        seen.append(models)
        return real(models, **options)

    monkeypatch.setattr(api, "compile_parts", counting)
    a, b = product(tmp_path / "a.onnx"), product(tmp_path / "b.onnx", rows=1)
    first = api.compile({"a": a, "b": b}, tmp_path / "1.hrx").read_bytes()
    assert api.compile({"a": a, "b": b}, tmp_path / "2.hrx").read_bytes() == first
    assert len(seen) == 1
    # Other names and another file are other compilations.
    api.compile({"a": a, "c": b}, tmp_path / "3.hrx")
    product(b, WEIGHT * 2, rows=1)
    api.compile({"a": a, "b": b}, tmp_path / "4.hrx")
    assert len(seen) == 3


def test_small_weights_keep_their_names(tmp_path: Path) -> None:
    """Also where two entries call other contents alike, and equal contents otherwise."""
    generator = np.random.default_rng(5)

    def biased(name: str, bias: Any, called: str) -> Path:
        graph = helper.make_graph(
            [
                helper.make_node("MatMul", ["x", "w"], ["p"]),
                helper.make_node("Add", ["p", called], ["y"]),
            ],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, 64))],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, (4, 96))],
            [numpy_helper.from_array(WEIGHT, "w"), numpy_helper.from_array(bias, called)],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
        model.ir_version = 8
        onnx.save(model, tmp_path / name)
        return tmp_path / name

    bias, other = (generator.standard_normal(96).astype(np.float32) for _ in range(2))
    models = {
        "a": biased("a.onnx", bias, "layer.0.bias"),
        "b": biased("b.onnx", other, "layer.0.bias"),
        "c": biased("c.onnx", bias, "head/bias"),
    }
    path = headrace.compile(models, tmp_path / "m.hrx")
    module = open_artifact(path).module
    names = [w.name for w in module.weights]
    assert names[:2] == ["w", "layer.0.bias"]
    assert names[2].startswith("layer.0.bias.")
    assert names[3] == "head/bias"
    first, last = module.weights[1], module.weights[3]
    assert first.offset_bytes == last.offset_bytes
    x = np.ones((4, 64), np.float32)
    with headrace.load(path) as loaded:
        for entry, added in (("a", bias), ("b", other), ("c", bias)):
            np.testing.assert_allclose(
                loaded(x, function=entry)[0], x @ WEIGHT + added, rtol=1e-4, atol=1e-4
            )
