"""Casts from and to every element type, compiled, against ONNX's reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from onnx_graphs import on_cpu

from headrace.importers.onnx.reader import import_model

FLOATS = (
    *("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ"),
    *("FLOAT8E5M2", "FLOAT8E5M2FNUZ", "FLOAT8E8M0", "FLOAT4E2M1"),
)
WHOLE = (
    *("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"),
    *("INT4", "UINT4", "INT2", "UINT2", "BOOL"),
)
NUMBERS = [
    *(0, -0.0, 1, -1, 2, 3, 0.5, -0.5, 1.5, 2.5, -2.5, 3.7, -3.7, 5, 6, 6.5, 7, -7, -8, 7.9),
    *(15, 16, 100, 127, 128, -128, -129, 200, 240, 255, 256, 447, 448, 464, 480, 1000),
    *(32767, 57344, 60000, 65504, 1e5, 1e-3, 1e-8, 3e-39),
]
ODD = [np.inf, -np.inf, np.nan, 1e10, -1e10, 1e38]


def _code(name: str) -> int:
    return TensorProto.DataType.Value(name)


def _type(name: str) -> Any:
    return np.dtype(helper.tensor_dtype_to_np_dtype(_code(name)))


def _numbers(name: str) -> Any:
    """Numbers that the type holds, edges among them."""
    kind = _type(name)
    with np.errstate(all="ignore"):
        if name in FLOATS:
            return np.array([*NUMBERS, *ODD]).astype(kind)
        if name == "BOOL":
            return np.array([False, True])
        edge = ml_dtypes.iinfo(kind)
        low, high = int(edge.min), int(edge.max)
        whole = sorted({int(v) for v in NUMBERS if low <= int(v) <= high} | {low, high})
        return np.array(whole, np.int64 if low < 0 else np.uint64).astype(kind)


def _model(source: str, targets: tuple[str, ...], saturate: int) -> onnx.ModelProto:
    size = [len(_numbers(source))]
    nodes = [
        helper.make_node("Cast", ["x"], [t], to=_code(t), saturate=saturate) for t in targets
    ]
    graph = helper.make_graph(
        nodes,
        "casts",
        [helper.make_tensor_value_info("x", _code(source), size)],
        [helper.make_tensor_value_info(t, _code(t), size) for t in targets],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11)


def _reference(source: str, target: str, saturate: int) -> Any:
    """What ONNX's reference gives; None for the few pairs that it lacks."""
    evaluator = ReferenceEvaluator(_model(source, (target,), saturate))
    try:
        with np.errstate(all="ignore"):
            return np.asarray(evaluator.run(None, {"x": _numbers(source)})[0])
    except TypeError:
        return None


def _comparable(source: str, target: str) -> Any:
    """Floats that an integer type cannot hold may become anything."""
    numbers = _numbers(source).astype(np.float64)
    if source not in FLOATS or target not in WHOLE or target == "BOOL":
        return np.full(numbers.shape, True)
    edge = ml_dtypes.iinfo(_type(target))
    whole = np.trunc(numbers)
    return np.isfinite(numbers) & (whole >= float(edge.min)) & (whole <= float(edge.max))


@pytest.mark.parametrize(
    ("source", "saturate"), [*((s, 1) for s in (*FLOATS, *WHOLE)), *((s, 0) for s in FLOATS)]
)
def test_casts(source: str, saturate: int, tmp_path: Path) -> None:
    targets = tuple(t for t in (*FLOATS, *WHOLE) if t != source)
    model = import_model(_model(source, targets, saturate))
    found = on_cpu(model, {"x": _numbers(source)}, tmp_path)
    compared = 0
    for target in targets:
        wanted = _reference(source, target, saturate)
        if wanted is None:
            continue
        got, want = (a.astype(np.float64) for a in (found[target], wanted))
        same = (got == want) | (np.isnan(got) & np.isnan(want)) | ~_comparable(source, target)
        bad = [(float(_numbers(source)[n]), got[n], want[n]) for n in np.nonzero(~same)[0]]
        assert found[target].dtype == _type(target)
        assert not bad, f"to {target}: (number, got, wanted) {bad[:5]}"
        compared += 1
    assert compared >= len(targets) - 9
