"""Sides of a branch that need different sizes, where data chooses the side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_graphs import on_cpu

from headrace.importers.onnx.reader import import_model

F, B = TensorProto.FLOAT, TensorProto.BOOL


def _side(name: str, most: int) -> onnx.GraphProto:
    """x + x[0:most], so that x has at most so many elements."""
    bounds = [
        numpy_helper.from_array(np.array([v]), f"{name}_{what}")
        for what, v in (("start", 0), ("end", most))
    ]
    nodes = [
        helper.make_node("Slice", ["x", f"{name}_start", f"{name}_end"], [f"{name}_part"]),
        helper.make_node("Add", ["x", f"{name}_part"], [f"{name}_sum"]),
        helper.make_node("Mul", [f"{name}_sum", f"{name}_sum"], [f"{name}_y"]),
    ]
    return helper.make_graph(
        nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", F, None)], bounds
    )


def _model() -> onnx.ModelProto:
    node = helper.make_node(
        "If", ["c"], ["y"], then_branch=_side("then", 8), else_branch=_side("else", 16)
    )
    graph = helper.make_graph(
        [node],
        "sides",
        [
            helper.make_tensor_value_info("c", B, []),
            helper.make_tensor_value_info("x", F, ["n"]),
        ],
        [helper.make_tensor_value_info("y", F, ["n"])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_the_wider_bounds_are_the_signatures() -> None:
    assert import_model(_model()).dimension_ranges == {"n": (1, 16)}


@pytest.mark.parametrize(
    ("size", "chosen", "fits"), [(6, True, True), (6, False, True), (16, False, True),
                                 (10, True, False)],
)  # fmt: skip
def test_each_side_takes_its_own_sizes(
    size: int, chosen: bool, fits: bool, tmp_path: Path
) -> None:
    x = np.arange(size, dtype=np.float32)
    given: dict[str, Any] = {"c": np.array(chosen), "x": x}
    found = on_cpu(import_model(_model()), given, tmp_path)["y"]
    np.testing.assert_array_equal(found, (2 * x) ** 2 if fits else np.full(size, np.nan))
