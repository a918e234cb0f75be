"""Quantisation, compiled, against onnxruntime: the forms that ONNX's suite leaves out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_cases import Case, draw_again, floats, proto_of, unique
from onnx_graphs import check_on_cpu, model_of, on_cpu, symbolic_shapes

from headrace.importers.onnx.reader import import_model
from headrace.tensor.interp import run

draw_again()

_DRAW = np.random.default_rng(11)


def numbers(kind: Any, *shape: int) -> Any:
    """Integers of a type, over its whole range."""
    info = np.iinfo(kind)
    return _DRAW.integers(info.min, info.max + 1, shape).astype(kind)


def scale(*shape: int) -> Any:
    return np.asarray(_DRAW.uniform(0.01, 0.1, shape), np.float32)


ONE = np.array(1, np.float32)


WIDE = np.array([[-1e30, 1e30, np.inf, -np.inf, 2.5, 3.5, -2.5, 0.0]], np.float32)
HALF = floats(3, 8).astype(np.float16)

CASES = [
    *(
        Case("QuantizeLinear", (x, s), (z,), opset=opset, note=f"{z.dtype}")
        for opset in (10, 13, 19, 21)
        for x, s in ((floats(3, 8) * 9, scale()), (WIDE, ONE))
        for z in (np.uint8(131), np.int8(-7))
    ),
    *(
        Case("QuantizeLinear", (WIDE, ONE), (z,), note=f"{z.dtype}")
        for z in (np.uint16(60000), np.int16(-30000))
    ),
    Case("QuantizeLinear", (floats(3, 8), scale()), note="no zero point"),
    Case("QuantizeLinear", (HALF, np.array(0.03, np.float16)), (np.uint8(7),), note="f16"),
    Case("QuantizeLinear", (floats(2, 3, 4),), (scale(4), numbers(np.uint8, 4)), {"axis": -1}),
    Case("QuantizeLinear", (floats(2, 3, 4),), (scale(3), numbers(np.int8, 3)), opset=13),
    Case("QuantizeLinear", (floats(2, 7, 4),), (scale(2, 3, 4), numbers(np.int8, 2, 3, 4)),
         {"axis": 1, "block_size": 3}),
    *(
        Case("DequantizeLinear", (numbers(kind, 3, 8), scale()), (kind(9),), opset=opset,
             note=kind.__name__)
        for opset in (10, 13, 19, 21)
        for kind in (np.uint8, np.int8)
    ),
    Case("DequantizeLinear", (numbers(np.int32, 3, 8) // 256, scale()), note="i32"),
    Case("DequantizeLinear", (numbers(np.uint16, 3, 8), scale(8)), (numbers(np.uint16, 8),)),
    Case("DequantizeLinear", (numbers(np.int8, 2, 3, 4),), (scale(3),), {"axis": -2}),
    Case("DequantizeLinear", (numbers(np.int8, 2, 7, 4),),
         (scale(2, 3, 4), numbers(np.int8, 2, 3, 4)), {"axis": 1, "block_size": 3}),
    *(
        Case("MatMulInteger", (numbers(a, 2, 3, 5), numbers(b, 5, 4)), zeros,
             note=f"{a.__name__} {b.__name__} {len(zeros)}")
        for a in (np.uint8, np.int8)
        for b in (np.uint8, np.int8)
        for zeros in ((), (a(3),), (a(3), b(100)), (a(3), numbers(b, 4)))
    ),
    *(
        Case("QLinearMatMul", (numbers(a, 3, 5),),
             (scale(), a(7), numbers(b, 5, 4), scale(*columns), numbers(b, *columns),
              np.float32(2), y(5)), note=f"{a.__name__} {b.__name__} {columns}")
        for a, b, y in ((np.uint8, np.int8, np.uint8), (np.int8, np.int8, np.int8))
        for columns in ((), (4,))
    ),
    *(
        Case("QLinearConv", (numbers(np.uint8, 2, 4, 7, 6),),
             (scale(), np.uint8(120), numbers(w, 6, 4 // group, 3, 2), scale(*per),
              np.zeros(per, w) + w(zero), np.float32(3), np.uint8(99),
              numbers(np.int16, 6).astype(np.int32)),
             {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2], "group": group},
             note=f"{w.__name__} {per}")
        for w, zero in ((np.uint8, 77), (np.int8, 0))
        for per in ((), (6,))
        for group in (1, 2)
    ),
    Case("ConvInteger", (numbers(np.uint8, 2, 4, 9),),
         (numbers(np.uint8, 3, 4, 2), np.uint8(12), np.uint8(9)), {"auto_pad": "SAME_UPPER"}),
    Case("DynamicQuantizeLinear", (floats(4, 6) * 3,), outputs=3),
    Case("DynamicQuantizeLinear", (np.zeros((4, 6), np.float32),), outputs=3, note="zeros"),
]  # fmt: skip

_STATIC = {"QLinearConv", "ConvInteger"}  # channels must be known


def _is_static(case: Case) -> bool:
    return case.kind in _STATIC or "block_size" in case.attributes or bool(case.weights)


@pytest.mark.parametrize("case", unique(CASES))
def test_quantisation(case: Case, tmp_path: Path) -> None:
    proto, inputs = proto_of(case, symbolic=not _is_static(case))
    check_on_cpu(
        proto, inputs, tmp_path, tolerance=0 if case.kind != "DequantizeLinear" else 1e-6
    )


def test_rows_of_a_left_matrix_have_zero_points(tmp_path: Path) -> None:
    """onnxruntime takes one number only; the specification a vector of one a row."""
    a, b, zero = numbers(np.uint8, 3, 5), numbers(np.int8, 5, 4), numbers(np.uint8, 3)
    node = helper.make_node("MatMulInteger", ["a", "b", "z"], ["y"])
    inputs = {"a": a, "b": b, "z": zero}
    proto = model_of([node], inputs, ["y"], shapes=symbolic_shapes(inputs))
    wanted = (a.astype(np.int32) - zero[:, None]) @ b.astype(np.int32)
    check_on_cpu(proto, inputs, tmp_path, tolerance=0, wanted=[wanted])


@pytest.mark.parametrize("bits", ["int4", "uint4", "int2", "uint2"])
def test_narrow_integers_there_and_back(bits: str, tmp_path: Path) -> None:
    """Every value of the type, and what lies beyond, with a scale an axis of any length."""
    kind = np.dtype(getattr(ml_dtypes, bits))
    info = ml_dtypes.iinfo(kind)
    x = np.arange(info.min - 2, info.max + 3, 0.5, dtype=np.float32).reshape(1, -1)
    x = np.concatenate([x, x * 2])
    code = getattr(TensorProto, bits.upper())
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s"], ["q"], axis=0, output_dtype=code),
        helper.make_node("DequantizeLinear", ["q", "s"], ["y"], axis=0),
    ]
    weights = {"s": np.array([1, 2], np.float32)}
    proto = model_of(nodes, {"x": x}, ["y"], weights=weights, opset=25, shapes={"x": [2, "n"]})
    ratio = np.clip(np.rint(x / weights["s"][:, None]), info.min, info.max)
    check_on_cpu(proto, {"x": x}, tmp_path, tolerance=0, wanted=[ratio * weights["s"][:, None]])


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz"])
@pytest.mark.parametrize("saturate", [0, 1])
def test_narrow_floats(name: str, saturate: int, tmp_path: Path) -> None:
    kind = np.dtype(getattr(ml_dtypes, name))
    x = np.array([0.1, 3.3, -700, 1e9, -0.0, 17], np.float32)
    codes = {
        "float8_e4m3fn": TensorProto.FLOAT8E4M3FN,
        "float8_e5m2": TensorProto.FLOAT8E5M2,
        "float8_e4m3fnuz": TensorProto.FLOAT8E4M3FNUZ,
    }
    node = helper.make_node(
        "QuantizeLinear", ["x", "s"], ["q"], output_dtype=codes[name], saturate=saturate
    )
    back = helper.make_node("DequantizeLinear", ["q", "s"], ["y"])
    proto = model_of(
        [node, back],
        {"x": x},
        ["y"],
        weights={"s": np.float32(2)},
        opset=23,
        shapes={"x": ["n"]},
    )
    largest = float(ml_dtypes.finfo(kind).max)
    ratio = np.clip(x / 2, -largest, largest) if saturate else x / 2
    check_on_cpu(
        proto,
        {"x": x},
        tmp_path,
        tolerance=0,
        wanted=[ratio.astype(kind).astype(np.float32) * 2],
    )


def test_quotients_have_the_precision_asked_for(tmp_path: Path) -> None:
    """f16 cannot tell 2051 / 2 from 1024; f32 divides it to 1025.5, a tie."""
    x = np.array([1.0, 2049.0], np.float32)
    node = helper.make_node(
        "QuantizeLinear", ["x", "s", "z"], ["y"], precision=TensorProto.FLOAT16
    )
    weights = {"s": np.float16(1), "z": np.int16(0)}
    proto = model_of([node], {"x": x}, ["y"], weights=weights, opset=23)
    wanted = np.array([1, 2048], np.int16)
    model = import_model(proto)
    assert np.array_equal(run(model, {"x": x})["y"], wanted)
    assert np.array_equal(on_cpu(model, {"x": x}, tmp_path)["y"], wanted)


def test_integers_have_scales_too(tmp_path: Path) -> None:
    x = np.array([5, 15, -25, 100000], np.int32)
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])
    weights = {"s": np.float32(10), "z": np.uint8(3)}
    proto = model_of([node], {"x": x}, ["y"], weights=weights, opset=23, shapes={"x": ["n"]})
    wanted = np.array([3, 5, 1, 255], np.uint8)
    check_on_cpu(proto, {"x": x}, tmp_path, tolerance=0, wanted=[wanted])
