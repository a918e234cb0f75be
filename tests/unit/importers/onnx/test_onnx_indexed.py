"""Scatters, the largest elements and Fourier transforms, compiled, against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.parser import parse_model
from onnx_cases import Case, draw_again, floats, integers, proto_of, unique
from onnx_graphs import check_on_cpu

import headrace.api

draw_again()

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

# Rows of a cache of 2 heads, 6 positions: each index vector is spread over heads and width.
CACHE, ROWS = floats(2, 6, 3), floats(2, 2, 3)


def spread(*rows: int) -> np.ndarray:
    return np.broadcast_to(np.array(rows)[None, :, None], (2, len(rows), 3)).copy()


ROW_CASES = [
    Case("ScatterElements", (CACHE,), (spread(2, 3), ROWS), {"axis": 1}, note="adjacent"),
    Case("ScatterElements", (CACHE,), (spread(-1, 1), ROWS), {"axis": 1}, note="apart"),
    Case("ScatterElements", (CACHE,), (spread(4, 4), ROWS), {"axis": 1, "reduction": "add"},
         opset=18, note="the same twice"),
    Case("ScatterElements", (CACHE, np.array([[0, 3, 1], [1, 1, 2]])[:, None], floats(2, 1, 3)),
         (), {"axis": 1}, note="no rows"),
]  # fmt: skip


@pytest.mark.parametrize("case", unique(ROW_CASES))
def test_whole_rows(case: Case, tmp_path: Path) -> None:
    proto, inputs = proto_of(case, symbolic=False)
    check_on_cpu(proto, inputs, tmp_path, tolerance=0)


@pytest.mark.parametrize("count", [1, 2])
def test_a_cache_is_written_at_a_position(count: int, tmp_path: Path) -> None:
    """As torch exports `cache.scatter(1, position.expand_as(new), new)`."""
    graph = parse_model(f"""<ir_version: 10, opset_import: ["": 20]>
        step (float[2,6,3] cache, float[2,{count},3] new, int64[{count}] position)
            => (float[2,6,3] next)
        <int64[3] column = {{1, {count}, 1}}, int64[3] whole = {{2, {count}, 3}}>
        {{
            upright = Reshape (position, column)
            indices = Expand (upright, whole)
            next = ScatterElements <axis: int = 1> (cache, indices, new)
        }}""")
    inputs = {"cache": CACHE, "new": ROWS[:, :count], "position": np.array([4, -6][:count])}
    check_on_cpu(graph, inputs, tmp_path, tolerance=0)
    text = tmp_path / "step.onnx"
    onnx.save(graph, text)
    made = headrace.api.compile_to_text(text, "tensor")
    assert ("dynamic_update_slice" in made) == (count == 1), made


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
