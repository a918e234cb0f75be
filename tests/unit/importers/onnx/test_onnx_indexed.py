"""Scatters, the largest elements and Fourier transforms, compiled, against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx_cases import Case, floats, integers, proto_of, unique
from onnx_graphs import check_on_cpu

TIES = np.array([[3, 1, 3, 2, 3], [1, 1, 0, 1, 0]])

CASES = [
    *(
        Case(
            "ScatterElements",
            (floats(4, 5), integers(3, 5, low=-4, high=4), floats(3, 5)),
            (),
            {"reduction": reduction},
            opset=18,
        )
        for reduction in ("add", "mul", "max", "min")
    ),
    Case("ScatterElements", (floats(4, 5), TIES[:, :1] * 0 + 2, floats(2, 1)), (), {"axis": 1}),
    *(
        Case(
            "ScatterND",
            (floats(4, 5, 3), np.array([[[0, 1], [-1, 2]], [[0, 1], [3, -5]]]), floats(2, 2, 3)),
            (),
            {"reduction": reduction},
            opset=18,
        )
        for reduction in ("add", "mul", "max", "min")
    ),
    Case("ScatterND", (floats(4, 5), np.array([[2], [0]]), floats(2, 5)), opset=16),
    *(
        Case("TopK", (floats(3, 7),), (np.array([4]),), {"axis": axis, "largest": largest},
             outputs=2)
        for axis, largest in ((1, 1), (-1, 0))
    ),
    Case("TopK", (TIES,), (np.array([5]),), outputs=2, note="ties"),
    Case("TopK", (floats(2, 9),), (), {"k": 3}, opset=1, outputs=2),
    *(
        Case("DFT", (floats(2, 10, parts),), (), {"onesided": onesided}, opset=17)
        for parts, onesided in ((1, 1), (1, 0), (2, 0))
    ),
    Case("DFT", (floats(2, 12, 2),), (), {"inverse": 1}, opset=17),
    Case("DFT", (floats(2, 5, 10, 1),), (np.array(16), np.array(2)), opset=20),
    Case(
        "STFT", (floats(2, 100, 1),), (np.array(10), floats(16)), {"onesided": 1}, opset=17
    ),
]  # fmt: skip

# The index vectors' length, the parts of a number and the signal's length must be known.
_STATIC = {"ScatterND", "DFT", "STFT"}


@pytest.mark.parametrize("case", unique(CASES))
def test_indexed(case: Case, tmp_path: Path) -> None:
    proto, inputs = proto_of(case, symbolic=case.kind not in _STATIC)
    check_on_cpu(proto, inputs, tmp_path, tolerance=2e-4)


@pytest.mark.parametrize(("length", "inverse"), [(700, 0), (1024, 1), (257, 0)])
def test_long_transforms_are_numpys(length: int, inverse: int, tmp_path: Path) -> None:
    """onnxruntime loses digits here."""
    signal = floats(2, length, 2)
    case = Case("DFT", (signal,), (), {"inverse": inverse}, opset=17)
    proto, inputs = proto_of(case, symbolic=False)
    numbers = signal[..., 0] + 1j * signal[..., 1].astype(np.float64)
    wanted = (np.fft.ifft if inverse else np.fft.fft)(numbers, axis=1)
    parts = np.stack([wanted.real, wanted.imag], -1).astype(np.float32)
    check_on_cpu(proto, inputs, tmp_path, tolerance=1e-5, wanted=[parts])


def test_a_transform_of_a_symbolic_length(tmp_path: Path) -> None:
    """The roots of unity are computed from the size."""
    signal = floats(2, 30, 1)
    case = Case("DFT", (signal,), (), {"onesided": 1}, opset=17)
    proto, inputs = proto_of(case, symbolic=False)
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "length"
    wanted = np.fft.rfft(signal[..., 0].astype(np.float64), axis=1)
    parts = np.stack([wanted.real, wanted.imag], -1).astype(np.float32)
    check_on_cpu(proto, inputs, tmp_path, tolerance=1e-5, wanted=[parts])
