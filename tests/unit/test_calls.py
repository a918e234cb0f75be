"""Calls of a compiled model from Python: however the inputs are given, the same answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import headrace
from headrace.base.errors import HeadraceError


def rows(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((1, 8)).astype(np.float32)


def difference(folder: Path) -> Path:
    """x - y, which the order of the inputs changes."""
    x, y, z = (helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, 8)) for n in "xyz")
    graph = helper.make_graph([helper.make_node("Sub", ["x", "y"], ["z"])], "g", [x, y], [z])
    model = folder / "difference.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), model)
    headrace.compile(model, folder / "difference.hrx", targets=["cpu"])
    return folder / "difference.hrx"


def test_inputs_by_name_come_in_any_order_and_wrong_ones_are_named(tmp_path):
    with headrace.load(difference(tmp_path)) as module:
        x, y = rows(1), rows(2)
        expected = module(x, y)[0]
        assert (expected == x - y).all()
        for _ in range(2):
            assert (module(x=x, y=y)[0] == expected).all()
            assert (module(y=y, x=x)[0] == expected).all()
            assert (module(x, y=y)[0] == expected).all()
            assert (module(x=x.tolist(), y=y)[0] == expected).all()
        for wrong in (
            {"x": x},
            {"x": x, "z": y},
            {"x": x, "y": y, "z": y},
            {"x": x, "y": None},
        ):
            with pytest.raises(HeadraceError, match="HR4001"):
                module(**wrong)
        with pytest.raises(HeadraceError, match="HR4001"):
            module(x, y.astype(np.float64))
        with pytest.raises(HeadraceError, match="HR4001"):
            module(x, y[:, :4])
