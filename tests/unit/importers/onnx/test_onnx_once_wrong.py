"""What random shapes, types and attributes found wrong, compiled, against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx_cases import Case, draw_again, floats, integers, proto_of, unique
from onnx_graphs import check_on_cpu

draw_again()

ONCE_WRONG = [
    Case("GroupNormalization", (floats(1, 4, 2, 1, 5),), (floats(4), floats(4)),
         {"num_groups": 2}, note="a unit dimension"),
    Case("AffineGrid", (floats(1, 2, 3),), (np.array([1, 2, 4, 5]),), note="one batch entry"),
    Case("AffineGrid", (floats(2, 3, 4),), (np.array([2, 1, 3, 4, 5]),), {"align_corners": 1}),
    Case("Shrink", (integers(3, 4, low=-9).astype(np.int8),), (), {"bias": 0.5}),
    Case("Sinh", ((floats(3, 4) * 6).astype(np.float16),)),
    Case("Sinh", (floats(3, 4) * 8 - 8,), note="far below zero"),
    Case("Resize", (floats(1, 2, 5, 7),),
         (np.array([0, 0, 0.1, 0.2, 1, 1, 0.8, 0.9], np.float32),
          np.array([1, 1, 2, 1.5], np.float32)),
         {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"}),
    Case("CenterCropPad", (floats(5, 3, 4),), (np.array([3, 8]),), {"axes": [0, -1]}),
    Case("SpaceToDepth", (floats(1, 2, 6, 9),), (), {"blocksize": 3}),
    *(Case("Slice", (floats(2, width),),
           (np.array([-2]), np.array([-100]), np.array([1]), np.array([-2])),
           note=f"backward from before {width}") for width in (1, 2, 5)),
    Case("ReverseSequence", (floats(3, 2, 4), np.array([3, 1]))),
]  # fmt: skip


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("case", unique(ONCE_WRONG))
def test_once_wrong(case: Case, symbolic: bool, tmp_path: Path) -> None:
    half = case.inputs[0].dtype == np.float16
    proto, inputs = proto_of(case, symbolic)
    check_on_cpu(proto, inputs, tmp_path, tolerance=2e-3 if half else 1e-5)


def test_erf_of_integers(tmp_path: Path) -> None:
    proto, inputs = proto_of(Case("Erf", (np.array([-3, 0, 5], np.int32),)), True)
    check_on_cpu(proto, inputs, tmp_path, wanted=[np.array([0, 0, 1], np.int32)])


def test_a_product_without_rows(tmp_path: Path) -> None:
    """A kernel that is one larger than its image; of numbers, so it is a product."""
    x, w = np.ones((2, 4, 4, 5), np.uint8), np.ones((4, 2, 3, 2), np.uint8)
    case = Case("ConvInteger", (x,), (w,), {"dilations": [2, 2], "group": 2})
    proto, inputs = proto_of(case, False)
    check_on_cpu(proto, inputs, tmp_path, wanted=[np.zeros((2, 4, 0, 3), np.int32)])
