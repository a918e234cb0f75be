"""Every family with every size symbolic, against onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx_cases import Case, draw_again, floats, image, integers, positive, proto_of, unique
from onnx_graphs import check, model_of, on_cpu

from headrace.importers.onnx.reader import import_model

draw_again()

ELEMENTWISE = [
    *(Case(k, (floats(2, 3),)) for k in ("Abs", "Neg", "Exp", "Erf", "Floor", "Ceil", "Sign")),
    *(Case(k, (floats(2, 3),)) for k in ("Sin", "Cos", "Tan", "Sinh", "Cosh", "Asinh", "Tanh")),
    *(Case(k, (positive(2, 3),)) for k in ("Log", "Sqrt", "Reciprocal")),
    Case("Acosh", (positive(2, 3) + 1,)),
    *(Case(k, (floats(2, 3) / 4,)) for k in ("Atanh", "Asin", "Acos", "Atan")),
    Case("Round", (np.array([0.5, 1.5, 2.5, -0.5, -1.5, 0.4], np.float32),)),
    *(
        Case(k, (floats(2, 3),))
        for k in (
            *("Relu", "LeakyRelu", "Elu", "Selu", "Celu", "Softplus", "Softsign"),
            *("HardSigmoid", "HardSwish", "Gelu", "Mish", "ThresholdedRelu", "Sigmoid"),
        )
    ),
    Case("Gelu", (floats(2, 3),), attributes={"approximate": "tanh"}),
    Case("PRelu", (floats(2, 3, 4),), (positive(3, 1),)),
    *(Case(k, (floats(2, 3, 4), floats(4)), note="bcast") for k in ("Add", "Sub", "Mul")),
    Case("Div", (floats(2, 3), positive(2, 3))),
    Case("Div", (integers(2, 3, low=-9), integers(2, 3, low=1)), note="integer"),
    Case("Pow", (positive(2, 3), floats(3))),
    Case("Mod", (integers(2, 3, low=-9), np.array([3, -4, 5])), note="sign"),
    Case("Mod", (floats(2, 3), positive(3)), attributes={"fmod": 1}),
    *(Case(k, (floats(2, 3), floats(3), floats(1, 3))) for k in ("Max", "Min", "Sum", "Mean")),
    Case("Clip", (floats(2, 3),), (np.float32(-0.5), np.float32(0.5))),
    Case("Clip", (floats(2, 3),), attributes={"max": 0.25}, opset=8),
    Case("Where", (floats(2, 3) > 0, floats(2, 3), floats(3))),
    *(
        Case(k, (integers(2, 3), integers(3)))
        for k in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
    ),
    *(Case(k, (floats(2, 3) > 0, floats(3) > 0)) for k in ("And", "Or", "Xor")),
    Case("IsNaN", (np.array([1.0, np.nan, np.inf], np.float32),)),
    Case("IsInf", (np.array([1.0, -np.inf, np.inf], np.float32),)),
    Case("Cast", (floats(2, 3) * 4,), attributes={"to": 6}),
    Case("Cast", (floats(2, 3),), attributes={"to": 9}),
]

MOVEMENT = [
    Case("Transpose", (floats(2, 3, 4),), attributes={"perm": [2, 0, 1]}),
    Case("Flatten", (floats(2, 3, 4),), attributes={"axis": 2}),
    Case("Reshape", (floats(2, 3, 4),), (np.array([0, -1]),)),
    Case("Reshape", (floats(2, 3, 4),), (np.array([0, 0, 1, -1]),), note="new"),
    Case("Unsqueeze", (floats(2, 3),), (np.array([0, -1]),)),
    Case("Unsqueeze", (floats(2, 3),), attributes={"axes": [1]}, opset=11),
    Case("Concat", (floats(2, 3), floats(2, 4)), attributes={"axis": -1}),
    Case("Split", (floats(6, 3),), attributes={"num_outputs": 4}, outputs=4),
    Case("Slice", (floats(5, 6),), tuple(np.array(v) for v in ([1], [4], [0]))),
    Case("Slice", (floats(5, 6),), tuple(np.array(v) for v in ([-3], [99], [1], [2]))),
    Case("Slice", (floats(5, 6),), tuple(np.array(v) for v in ([-1], [-99], [0], [-2]))),
    Case("Slice", (floats(5, 6),), attributes={"starts": [1, 2], "ends": [-1, 9]}, opset=9),
    Case("Expand", (floats(3, 1),), (np.array([2, 1, 4]),)),
    Case("Tile", (floats(2, 3),), (np.array([2, 3]),)),
    Case("Pad", (floats(4, 5),), (np.array([1, 0, 2, 3]),)),
    Case("Pad", (floats(4, 5),), (np.array([1, -1, 0, 2]), np.float32(7)), note="cut"),
    *(
        Case("Pad", (floats(4, 5),), (np.array([1, 2, 3, 0]),), {"mode": mode})
        for mode in ("reflect", "edge", "wrap")
    ),
    Case("Gather", (floats(5, 4),), (np.array([[0, -1], [2, 3]]),)),
    Case("Gather", (floats(5, 4), integers(2, 3, high=4)), attributes={"axis": 1}),
    Case("Gather", (floats(5, 4),), (np.array(-2),), {"axis": 1}, note="one"),
    Case("GatherElements", (floats(5, 4), integers(3, 4, low=-5, high=5))),
    Case("GatherND", (floats(2, 3, 4),), (np.array([[0, 1], [1, -1]]),)),
    Case("GatherND", (floats(2, 3, 4),), (np.array([[1], [0]]),), {"batch_dims": 1}),
    Case("Trilu", (floats(4, 5),), attributes={"upper": 0}),
    Case("Trilu", (floats(4, 5),), (np.array(1),)),
    Case("OneHot", (integers(2, 3, high=5),), (np.array(5), np.array([2, 7], np.float32))),
    Case("DepthToSpace", (floats(1, 8, 2, 3),), attributes={"blocksize": 2, "mode": "CRD"}),
    Case("Shape", (floats(2, 3),)),
    Case("Size", (floats(2, 3),)),
    Case("EyeLike", (floats(3, 4),), attributes={"k": 1}),
]

REDUCTIONS = [
    *(
        Case(f"Reduce{k}", (positive(2, 3, 4),), (np.array([0, -1]),), {"keepdims": keep})
        for k in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "SumSquare")
        for keep in (0, 1)
    ),
    Case("ReduceLogSumExp", (floats(2, 3, 4) * 80,), attributes={"axes": [1]}, opset=13),
    Case("ReduceSum", (floats(2, 3),), attributes={"noop_with_empty_axes": 1}),
    Case("ReduceMax", (integers(2, 3),), attributes={"axes": [0]}, opset=12),
    *(
        Case(k, (integers(4, 6, high=3),), attributes={"axis": 1, "select_last_index": last})
        for k in ("ArgMax", "ArgMin")
        for last in (0, 1)
    ),
    *(
        Case("CumSum", (floats(3, 5),), (np.array(1),), {"exclusive": e, "reverse": r})
        for e in (0, 1)
        for r in (0, 1)
    ),
    *(Case(k, (floats(2, 3, 4),), attributes={"axis": 1}) for k in ("Softmax", "LogSoftmax")),
    Case("Softmax", (floats(2, 3, 4),), attributes={"axis": 1}, opset=11),
    Case("Hardmax", (integers(3, 5).astype(np.float32),)),
]

CONTRACTIONS = [
    Case("MatMul", (floats(3, 4), floats(4, 5))),
    Case("MatMul", (floats(2, 1, 3, 4), floats(5, 4, 6)), note="batched"),
    Case("MatMul", (floats(4), floats(2, 4, 3)), note="vector"),
    Case("MatMul", (floats(2, 3, 4), floats(4)), note="vector_behind"),
    Case("Gemm", (floats(3, 4), floats(5, 3)), (floats(5),), {"transA": 1, "transB": 1}),
    Case("Gemm", (floats(4, 3), floats(3, 5), floats(1, 5)), (), {"alpha": 0.5, "beta": 2.0}),
    *(
        Case("Einsum", inputs, attributes={"equation": equation})
        for equation, inputs in (
            ("bij,bjk->bik", (floats(2, 3, 4), floats(2, 4, 5))),
            ("...ij->...ji", (floats(2, 3, 4),)),
            ("bhqd,bhkd->bhqk", (floats(2, 2, 3, 4), floats(2, 2, 5, 4))),
            ("ij,jk,k", (floats(2, 3), floats(3, 4), floats(4))),
            ("ii->i", (floats(3, 3),)),
        )
    ),
]

WINDOWS = [
    Case("Conv", (floats(2, 4, 9),), (floats(6, 4, 3), floats(6)), {"pads": [1, 2]}),
    Case("Conv", (image(),), (floats(6, 2, 3, 3),), {"group": 2, "dilations": [2, 1]}),
    Case("Conv", (image(),), (floats(4, 1, 3, 3),), {"group": 4, "strides": [2, 2]}),
    Case("Conv", (floats(1, 2, 4, 5, 6),), (floats(3, 2, 2, 2, 2),)),
    *(
        Case("Conv", (image(),), (floats(3, 4, 3, 4),), {"auto_pad": rule, "strides": [2, 3]})
        for rule in ("SAME_UPPER", "SAME_LOWER", "VALID")
    ),
    Case("ConvTranspose", (image(),), (floats(4, 3, 3, 3), floats(3)), {"strides": [2, 2]}),
    Case(
        "ConvTranspose",
        (image(),),
        (floats(4, 2, 3, 2),),
        {"group": 2, "strides": [2, 3], "pads": [1, 0, 1, 1], "output_padding": [1, 0]},
    ),
    *(
        Case(
            kind,
            (image(),),
            attributes={
                "kernel_shape": [3, 2],
                "strides": [2, 2],
                "pads": [1, 0, 1, 1],
                "ceil_mode": ceil,
            },
        )
        for kind in ("MaxPool", "AveragePool")
        for ceil in (0, 1)
    ),
    Case("MaxPool", (image(),), attributes={"kernel_shape": [2, 2]}, outputs=2),
    Case(
        "AveragePool",
        (image(),),
        attributes={"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
    ),
    *(Case(k, (image(),)) for k in ("GlobalAveragePool", "GlobalMaxPool")),
]

NORMS = [
    Case("BatchNormalization", (image(),), (*(floats(4) for _ in range(3)), positive(4))),
    Case("InstanceNormalization", (image(),), (floats(4), floats(4))),
    Case("LayerNormalization", (floats(2, 3, 8),), (floats(8), floats(8))),
    Case("LayerNormalization", (floats(2, 3, 8),), (floats(3, 8),), {"axis": 1}, outputs=3),
    Case("RMSNormalization", (floats(2, 3, 8),), (floats(8),), opset=23),
    Case("GroupNormalization", (image(),), (floats(4), floats(4)), {"num_groups": 2}),
    Case("LRN", (image(8),), attributes={"size": 3}),
    Case("LpNormalization", (floats(3, 4),), attributes={"p": 1}),
]


def _resize(sizes: Any = None, scales: Any = None, **attributes: Any) -> Case:
    weights = (None, None if scales is None else np.array(scales, np.float32))
    if sizes is not None:
        weights = (*weights, np.array(sizes))
    return Case("Resize", (floats(1, 2, 5, 6),), weights, attributes, opset=19)


RESIZES = [
    _resize(scales=[1, 1, 2, 2], mode="nearest"),
    _resize(scales=[1, 1, 2, 3], mode="nearest", nearest_mode="floor",
            coordinate_transformation_mode="asymmetric"),
    _resize(scales=[1, 1, 0.6, 1.5], mode="nearest"),
    _resize(sizes=[1, 2, 8, 9], mode="linear"),
    _resize(scales=[1, 1, 2, 2], mode="linear", coordinate_transformation_mode="align_corners"),
    _resize(scales=[1, 1, 2, 2], mode="linear", coordinate_transformation_mode="asymmetric"),
    _resize(sizes=[1, 2, 7, 3], mode="linear",
            coordinate_transformation_mode="pytorch_half_pixel"),
    _resize(scales=[1, 1, 1.5, 2], mode="cubic"),
]  # fmt: skip

ALL = [*ELEMENTWISE, *MOVEMENT, *REDUCTIONS, *CONTRACTIONS, *WINDOWS, *NORMS, *RESIZES]


@pytest.mark.parametrize("case", unique(ALL))
def test_operator_with_static_sizes(case: Case) -> None:
    check(*proto_of(case, symbolic=False), tolerance=2e-5)


@pytest.mark.parametrize("case", unique(ALL))
def test_operator_with_symbolic_sizes(case: Case) -> None:
    check(*proto_of(case, symbolic=True), tolerance=2e-5)


def test_the_mean_of_a_large_plane_keeps_its_digits(tmp_path: Path) -> None:
    """Behind a convolution channels are last, and a plane is summed one after another."""
    x = (1 + floats(1, 16, 240, 240) / 10).astype(np.float32)
    same = np.eye(16, dtype=np.float32).reshape(16, 16, 1, 1)
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["m"]),
        helper.make_node("GlobalAveragePool", ["m"], ["y"]),
    ]
    shapes = {"x": [1, 16, "height", "width"]}
    proto = model_of(nodes, {"x": x}, ["y"], weights={"k": same}, shapes=shapes)
    (found,) = on_cpu(import_model(proto), {"x": x}, tmp_path).values()
    wanted = x.astype(np.float64).mean((2, 3), keepdims=True)
    np.testing.assert_allclose(found, wanted, rtol=2e-6)
