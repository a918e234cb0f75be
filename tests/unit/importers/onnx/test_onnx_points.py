"""Operators that look between elements or at regions, compiled, against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx_cases import Case, draw_again, floats, image, positive, proto_of, unique
from onnx_graphs import check_on_cpu

draw_again()

GRID = np.random.default_rng(5).uniform(-1.6, 1.6, (2, 4, 5, 2)).astype(np.float32)
CUBE = np.random.default_rng(6).uniform(-1.4, 1.4, (1, 2, 3, 4, 3)).astype(np.float32)
ROIS = np.array([[0.4, 0.6, 5, 6], [2, 1, 2.2, 1.1], [-9, 3, 30, 12]], np.float32)
ROWS = np.array([1, 0, 1])
BOXES = np.array([[0, 0, 1, 5, 4], [1, 3, 2, 3, 2], [1, -4, 0, 2, 30]], np.float32)

CASES = [
    *(
        Case(
            "GridSample",
            (image(3), GRID),
            (),
            {"mode": mode, "padding_mode": padding, "align_corners": corners},
            opset=20,
        )
        for mode in ("linear", "nearest", "cubic")
        for padding in ("zeros", "border", "reflection")
        for corners in (0, 1)
    ),
    *(
        Case("GridSample", (floats(1, 2, 3, 4, 5), CUBE), (), {"mode": mode}, opset=20)
        for mode in ("linear", "nearest")
    ),
    *(
        Case(
            "RoiAlign",
            (image(2, 9, 8), ROIS, ROWS),
            (),
            {
                "mode": mode,
                "output_height": 2,
                "output_width": 3,
                "sampling_ratio": ratio,
                "spatial_scale": 0.9,
                "coordinate_transformation_mode": rule,
            },
            opset=16,
        )
        for mode in ("avg", "max")
        for rule in ("half_pixel", "output_half_pixel")
        for ratio in (2, 0)
    ),
    Case(
        "MaxRoiPool",
        (image(2, 9, 8), BOXES),
        (),
        {"pooled_shape": [3, 2], "spatial_scale": 0.8},
    ),
    Case(
        "Col2Im",
        (floats(2, 12, 9),),
        (np.array([5, 8]), np.array([2, 3])),
        {"dilations": [1, 2], "pads": [0, 1, 1, 1], "strides": [2, 2]},
    ),
    Case("Det", (floats(3, 5, 5),)),
    Case("Det", (np.array([[0, 2.0], [3, 1]], np.float32),), note="swap"),
    Case("Det", (np.array([[0, 2.0], [0, 1]], np.float32),), note="singular"),
    Case(
        "DeformConv",
        (image(4, 6, 7), floats(4, 4, 3, 3), floats(2, 36, 6, 7), floats(4)),
        (),
        {"pads": [1, 1, 1, 1], "group": 1, "offset_group": 2},
        opset=19,
    ),
    Case(
        "DeformConv",
        (image(4, 9, 8), floats(6, 2, 3, 2), floats(2, 12, 3, 3), floats(6), positive(2, 6, 3, 3)),
        (),
        {"group": 2, "strides": [2, 2], "dilations": [2, 3]},
        opset=19,
    ),
]  # fmt: skip

_STATIC = {"Col2Im", "Det", "DeformConv"}  # sizes that must be known, or known equal


@pytest.mark.parametrize("case", unique(CASES))
def test_points(case: Case, tmp_path: Path) -> None:
    proto, inputs = proto_of(case, symbolic=case.kind not in _STATIC)
    check_on_cpu(proto, inputs, tmp_path, tolerance=1e-4)
