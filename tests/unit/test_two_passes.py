"""Reductions of everything to one value: in two passes, whose work threads share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from headrace import api
from headrace.plan.model import PlannedDispatch


def compiled(
    folder: Path, kind: str, shape: tuple[int, ...], numerics: str
) -> tuple[Path, list[int]]:
    """A model of one reduction over everything, and the workgroups of its dispatches."""
    graph = helper.make_graph(
        [helper.make_node(kind, ["x"], ["y"], keepdims=0)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ())],
    )
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)])
    onnx.save(model, folder / "m.onnx")
    path = api.compile(folder / "m.onnx", folder / f"{numerics}.hrx", numerics=numerics)
    with api.load(path) as module:
        commands = module.plan().commands
    groups = [c.workgroups for c in commands if isinstance(c, PlannedDispatch)]
    return path, [x * y * z for x, y, z in groups]


MEANINGS: dict[str, Any] = {
    "ReduceSum": np.sum,
    "ReduceMean": np.mean,
    "ReduceMax": np.max,
    "ReduceL2": lambda x: np.sqrt(np.sum(np.square(x))),
}


@pytest.mark.parametrize("kind", MEANINGS)
@pytest.mark.parametrize("shape", [(40, 50, 60), (1 << 17,), (3, 70, 64, 8)])
def test_one_value(kind: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    path, groups = compiled(tmp_path, kind, shape, "fast")
    assert len(groups) == 2 and groups[0] >= 4
    found: set[bytes] = set()
    for threads in (1, 2):
        with api.load(path, threads=threads) as module:
            actual = np.array(module(x=x)[0])
        np.testing.assert_allclose(
            actual, MEANINGS[kind](x.astype(np.float64)), rtol=2e-5, atol=2e-3
        )
        found.add(actual.tobytes())
    assert len(found) == 1


def test_exact_numerics_add_in_one_chain(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((40, 50, 60)).astype(np.float32)
    path, groups = compiled(tmp_path, "ReduceSum", x.shape, "exact")
    assert groups == [1]
    with api.load(path) as module:
        actual = np.array(module(x=x)[0])
    # numpy's cumulative sum adds one after the other.
    assert actual.tobytes() == np.cumsum(x.reshape(-1))[-1].tobytes()
