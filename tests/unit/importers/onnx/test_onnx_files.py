"""Reading files: weights in and beside the model, and everything that can be wrong."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_graphs import check, model_of

from headrace.base.errors import HeadraceError
from headrace.base.parameters import FileSource
from headrace.importers import table
from headrace.importers.onnx.reader import NEWEST_OPSET, import_model, load
from headrace.tensor.interp import run

_F = np.float32
_WIDE = np.arange(2000, dtype=_F)


def _add(weights: dict[str, Any], **options: Any) -> onnx.ModelProto:
    node = helper.make_node("Add", ["x", "w"], ["y"], "plus")
    return model_of([node], {"x": _WIDE}, ["y"], weights=weights, **options)


def _external(folder: Path, **changes: str) -> Path:
    """A model whose weight lies in `data.bin` at byte 64, with fields changed."""
    (folder / "data.bin").write_bytes(bytes(64) + _WIDE.tobytes())
    proto = _add({"w": _WIDE})
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    fields = {"location": "data.bin", "offset": "64", "length": str(_WIDE.nbytes), **changes}
    for key, value in fields.items():
        tensor.external_data.add(key=key, value=value)
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def _error(call: Any) -> str:
    with pytest.raises(HeadraceError) as caught:
        call()
    return str(caught.value)


def test_external_weights_stay_in_their_file(tmp_path: Path) -> None:
    model = load(_external(tmp_path))
    (source,) = model.parameters.values()
    assert isinstance(source, FileSource)
    assert (source.path, source.offset_bytes) == (str(tmp_path / "data.bin"), 64)
    np.testing.assert_array_equal(run(model, {"x": _WIDE})["y"], _WIDE * 2)


@pytest.mark.parametrize("location", ["../data.bin", "/etc/passwd", "", "a/../../data.bin"])
def test_external_data_outside_the_folder_is_refused(tmp_path: Path, location: str) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "data.bin").write_bytes(bytes(64) + _WIDE.tobytes())
    text = _error(lambda: load(_external(inner, location=location)))
    assert text.startswith("error[HR1112]")
    assert "weight 'w'" in text


def test_a_link_that_leaves_the_folder_is_refused(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(64) + _WIDE.tobytes())
    os.symlink(tmp_path / "secret.bin", inner / "link.bin")
    assert "HR1112" in _error(lambda: load(_external(inner, location="link.bin")))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"location": "missing.bin"}, "HR1114"),
        ({"offset": "999999"}, "HR1113"),
        ({"offset": "-8"}, "HR1113"),
        ({"offset": "many"}, "HR1113"),
        ({"length": "12"}, "HR1113"),
    ],
)
def test_external_data_that_does_not_fit(
    tmp_path: Path, changes: dict[str, str], code: str
) -> None:
    assert f"error[{code}]" in _error(lambda: load(_external(tmp_path, **changes)))


def test_data_that_does_not_fit_its_shape() -> None:
    proto = _add({"w": _WIDE})
    proto.graph.initializer[0].raw_data = b"\0" * 12
    assert "HR1111" in _error(lambda: import_model(proto))


def test_small_weights_are_constants_and_large_ones_parameters() -> None:
    node = helper.make_node("Add", ["x", "w"], ["a"])
    again = helper.make_node("Mul", ["a", "w"], ["b"])
    small = helper.make_node("Add", ["b", "s"], ["c"])
    flat = helper.make_node("Add", ["c", "splat"], ["y"])
    weights = {"w": _WIDE, "s": np.ones(1, _F), "splat": np.full(2000, 3, _F)}
    proto = model_of([node, again, small, flat], {"x": _WIDE}, ["y"], weights=weights)
    model = check(proto, {"x": _WIDE})
    assert list(model.parameters) == ["w"]  # shared by two nodes, one parameter
    names = [op.name for op in model.ir.walk()]
    assert names.count("tensor.parameter") == 1
    assert names.count("tensor.constant") == 2


def test_weights_listed_as_inputs_are_weights() -> None:
    proto = _add({"w": _WIDE})
    proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [2000]))
    model = import_model(proto)
    assert list(run(model, {"x": _WIDE})) == ["y"]


def test_every_unsupported_operator_is_listed_at_once() -> None:
    nodes = [
        helper.make_node("ImageDecoder", ["x"], ["a"], "first"),
        helper.make_node("ImageDecoder", ["x"], ["b"], "second"),
        helper.make_node("Frobnicate", ["x"], ["c"], "third", domain="com.example"),
        helper.make_node("Relu", ["x"], ["y"]),
    ]
    proto = model_of(nodes, {"x": _WIDE}, ["y"])
    proto.opset_import.append(helper.make_opsetid("com.example", 3))
    text = _error(lambda: import_model(proto))
    assert "ONNX operator 'ImageDecoder' (opset 21) is not supported, used 2 times" in text
    assert "node 'first'" in text
    assert "node 'second'" in text
    assert "'com.example.Frobnicate' (opset 3) is not supported, used once" in text
    assert "2 of 3 operator kinds in this model are missing" in text


@pytest.mark.parametrize(
    "data", [b"", b"\x00\x01\x02", b"not a model at all", b"\x3a\xff\xff\xff\xff\x0f"]
)
def test_files_that_are_no_models(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(data)
    text = _error(lambda: load(path))
    assert "error[HR11" in text


def test_cut_files_give_errors_only(tmp_path: Path) -> None:
    data = _external(tmp_path).read_bytes()
    path = tmp_path / "cut.onnx"
    for length in range(0, len(data), 7):
        path.write_bytes(data[:length])
        assert "error[HR1" in _error(lambda: load(path))


def test_newer_opsets_are_refused() -> None:
    proto = _add({"w": _WIDE}, opset=NEWEST_OPSET + 1)
    assert "HR1103" in _error(lambda: import_model(proto))


def test_values_must_be_made_once_and_before_use() -> None:
    relu = helper.make_node("Relu", ["nothing"], ["y"], "lost")
    text = _error(lambda: import_model(model_of([relu], {"x": _WIDE}, ["y"])))
    assert "HR1104" in text
    assert "node 'lost'" in text
    twice = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Abs", ["x"], ["y"])]
    text = _error(lambda: import_model(model_of(twice, {"x": _WIDE}, ["y"])))
    assert "'y' is made twice" in text
    text = _error(lambda: import_model(model_of([], {"x": _WIDE}, ["z"])))
    assert "output 'z' is made by no node" in text


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("Relu", [], ["y"]),
        helper.make_node("Conv", ["x", "x"], ["y"]),
        helper.make_node("Transpose", ["x"], ["y"], perm=[3, 4]),
        helper.make_node("Concat", ["x", "x"], ["y"], axis=7),
        helper.make_node("Softmax", ["x"], ["y"], axis="one"),
        helper.make_node("Cast", ["x"], ["y"], to=99),
        helper.make_node("MaxPool", ["x"], ["y"]),
    ],
    ids=lambda n: n.op_type,
)
def test_malformed_nodes_are_located(node: onnx.NodeProto) -> None:
    text = _error(lambda: import_model(model_of([node], {"x": _WIDE}, ["y"])))
    assert "error[HR1" in text
    assert "--> model.onnx: node 0" in text


def test_inputs_that_cannot_be() -> None:
    proto = _add({"w": _WIDE})
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    assert "HR1109" in _error(lambda: import_model(proto))
    proto = _add({"w": _WIDE})
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    text = _error(lambda: import_model(proto))
    assert "HR1110" in text
    assert "STRING" in text


def test_narrow_and_packed_elements_are_read() -> None:
    import ml_dtypes

    four = np.array([-8, 3, 7], ml_dtypes.int4)
    node = helper.make_node("Cast", ["w"], ["c"], to=1)
    plus = helper.make_node("Add", ["x", "c"], ["y"])
    proto = model_of([node, plus], {"x": np.zeros(3, _F)}, ["y"], opset=21)
    proto.graph.initializer.append(numpy_helper.from_array(four, "w"))
    result = run(import_model(proto), {"x": np.zeros(3, _F)})["y"]
    np.testing.assert_array_equal(result, [-8, 3, 7])


def test_functions_of_the_model_are_put_in_place() -> None:
    body = [
        helper.make_node("Mul", ["a", "a"], ["s"]),
        helper.make_node("LeakyRelu", ["s"], ["r"]),
    ]
    body[1].attribute.add(name="alpha", ref_attr_name="slope", type=1)
    function = helper.make_function(
        "own", "Squared", ["a"], ["r"], body, [helper.make_opsetid("", 21)], ["slope"]
    )
    call = helper.make_node("Squared", ["x"], ["y"], domain="own", slope=0.5)
    proto = model_of([call], {"x": _WIDE}, ["y"])
    proto.opset_import.append(helper.make_opsetid("own", 1))
    proto.functions.append(function)
    check(proto, {"x": _WIDE})


def test_the_table_finds_importers_by_suffix(tmp_path: Path) -> None:
    model = table.load(_external(tmp_path))
    assert model.name == "model"
    (tmp_path / "weights.bin").write_bytes(b"")
    assert "HR0201" in _error(lambda: table.load(tmp_path / "weights.bin"))


def test_damaged_files_give_errors_or_models(tmp_path: Path) -> None:
    data = _external(tmp_path).read_bytes()
    draw = np.random.default_rng(5)
    path = tmp_path / "damaged.onnx"
    for _ in range(300):
        damaged = bytearray(data)
        damaged[draw.integers(len(data))] = draw.integers(256)
        path.write_bytes(bytes(damaged))
        with contextlib.suppress(HeadraceError):
            load(path)


@pytest.mark.parametrize("taken", [True, False])
def test_a_constant_condition_takes_one_branch(taken: bool) -> None:
    def branch(kind: str, name: str) -> onnx.GraphProto:
        node = helper.make_node(kind, ["x"], [name])
        return helper.make_graph([node], name, [], [onnx.ValueInfoProto(name=name)])

    node = helper.make_node(
        "If", ["c"], ["y"], then_branch=branch("Neg", "a"), else_branch=branch("Abs", "b")
    )
    weights = {"c": np.array(taken)}
    proto = model_of([node], {"x": _WIDE}, ["y"], weights=weights)
    result = run(import_model(proto), {"x": _WIDE})["y"]
    np.testing.assert_array_equal(result, -_WIDE if taken else _WIDE)
    proto = model_of([node], {"x": _WIDE, "c": np.array(taken)}, ["y"])
    result = run(import_model(proto), {"x": _WIDE, "c": np.array(taken)})["y"]
    np.testing.assert_array_equal(result, -_WIDE if taken else _WIDE)


@pytest.mark.parametrize(
    ("data", "fact"),
    [
        (b"", "HR1102.*the file is empty"),
        (b"\xff" * 40, "HR1102.*is no ONNX model"),
        (onnx.ModelProto(ir_version=8).SerializeToString(), "HR1103.*names no operator set"),
    ],
)
def test_what_is_no_model_says_what_to_do(data: bytes, fact: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    with pytest.raises(HeadraceError, match=fact) as refused:
        load(path)
    assert refused.value.diagnostics[0].helps
