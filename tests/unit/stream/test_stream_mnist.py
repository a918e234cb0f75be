"""A dense network as seed 1 has it: a buffer for each result at 0; one slab at 2."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from xdsl.dialects.func import FuncOp

from headrace.importers.options import ImportOptions
from headrace.importers.table import load
from headrace.ir.model import Model
from headrace.pipeline import Options, compile_to
from headrace.stream import interp
from headrace.stream.commands import CopyOp, DispatchOp
from headrace.stream.dialect import ResourceAllocOp
from headrace.stream.liveness import touches
from headrace.stream.resources import size_of
from headrace.targets.table import target


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """784 -> 128 relu -> 10 softmax."""
    random = np.random.default_rng(0)
    shapes = {"w0": (784, 128), "b0": (128,), "w1": (128, 10), "b1": (10,)}
    weights = [
        numpy_helper.from_array(random.standard_normal(s).astype(np.float32) * 0.05, n)
        for n, s in shapes.items()
    ]
    nodes = [
        helper.make_node("Flatten", ["image"], ["x"]),
        helper.make_node("MatMul", ["x", "w0"], ["m0"]),
        helper.make_node("Add", ["m0", "b0"], ["a0"]),
        helper.make_node("Relu", ["a0"], ["h"]),
        helper.make_node("MatMul", ["h", "w1"], ["m1"]),
        helper.make_node("Add", ["m1", "b1"], ["a1"]),
        helper.make_node("Softmax", ["a1"], ["y"], axis=1),
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, (1, 28, 28, 1))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 10))
    graph = helper.make_graph(nodes, "mnist", [image], [y], weights)
    path = tmp_path_factory.mktemp("mnist") / "mnist.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def compiled(path: Path, level: int) -> tuple[Model, FuncOp]:
    imported = load(path, ImportOptions({}))
    options = Options((target("cpu"),), level)
    model = compile_to(imported, "stream", options).classes["cpu"]
    (function,) = [op for op in model.ir.ops if isinstance(op, FuncOp)]
    return model, function


def most_alive_bytes(function: FuncOp) -> int:
    """The largest sum of transients alive at one command."""
    block = function.body.block
    alive = [0] * len(list(block.ops))
    for resource, touched in touches(block).items():
        size = size_of(resource)
        if isinstance(resource.owner, ResourceAllocOp) and size is not None:
            for position in range(touched[0].position, touched[-1].position + 1):
                alive[position] += size.value
    return max(alive)


def test_level_0_has_a_buffer_for_each_result(model_path: Path) -> None:
    _, function = compiled(model_path, 0)
    dispatches = [op for op in function.walk() if isinstance(op, DispatchOp)]
    written = [
        r
        for op in dispatches
        for r, a in zip(op.resources, op.accesses.data, strict=True)
        if a.data != "ro"
    ]
    assert len(set(written)) == len(written) == len(dispatches) > 3
    assert not any(isinstance(op, CopyOp) for op in function.walk())


def test_level_2_needs_one_small_slab(model_path: Path) -> None:
    _, function = compiled(model_path, 2)
    dispatches = [op for op in function.walk() if isinstance(op, DispatchOp)]
    assert len(dispatches) <= 3
    assert not any(isinstance(op, CopyOp) for op in function.walk())
    assert most_alive_bytes(function) <= 576


def test_levels_agree(model_path: Path) -> None:
    image = np.random.default_rng(1).random((1, 28, 28, 1), np.float32)
    answers = [
        interp.run(compiled(model_path, level)[0], {"image": image})["y"] for level in (0, 2)
    ]
    np.testing.assert_allclose(*answers, rtol=1e-4, atol=1e-6)
    assert abs(answers[0].sum() - 1) < 1e-5
