"""`com.microsoft` operators of optimisers and converters, compiled, against onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_cases import Case, draw_again, floats, positive, proto_of
from onnx_graphs import check_on_cpu, on_cpu

from headrace import HeadraceError
from headrace.importers.onnx.reader import import_model

draw_again()

MS = "com.microsoft"
_DRAW = np.random.default_rng(53)


def numbers(kind: Any, *shape: int) -> Any:
    info = np.iinfo(kind)
    return _DRAW.integers(info.min, info.max + 1, shape).astype(kind)


def scale(number: float) -> Any:
    return np.array(number, np.float32)


def case(kind: str, *args: Any, **more: Any) -> Case:
    return Case(kind, *args, domain=MS, **more)


def below(most: int, *shape: int) -> Any:
    return _DRAW.integers(0, most, shape).astype(np.int32)


def four_bits(kind: int, rows: int, columns: int, block: int) -> Case:
    count = rows * columns
    weights = (numbers(np.uint8, (count + 1) // 2), positive(-(-count // block)))
    attributes = {"K": columns, "N": rows, "block_size": block, "quant_type": kind}
    return case("MatMulBnb4", (floats(3, columns),), weights, attributes)


U8, I8 = np.uint8, np.int8
EMBEDDED = (
    numbers(U8, 10, 8), numbers(U8, 6, 8), numbers(U8, 2, 8), numbers(U8, 8), numbers(U8, 8),
    np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32),
    *(scale(s) for s in (0.02, 0.01, 0.03, 0.007, 0.005)),
    *(np.array(z, U8) for z in (120, 128, 99, 3, 131)),
)  # fmt: skip

CASES = [
    *(case("QLinearConv", (numbers(kind, 2, 7, 6, 4),),
           (scale(0.02), np.array(3, kind), numbers(I8, 6, 4 // group, 3, 2),
            positive(6) / 50 if columns else scale(0.01), np.zeros(6 if columns else (), I8),
            scale(0.6), np.array(9, kind), _DRAW.integers(-99, 99, 6).astype(np.int32)),
           {"channels_last": 1, "group": group, "pads": [1, 0, 1, 1], "strides": [2, 1]},
           note=f"{np.dtype(kind)}{columns}")
      for kind in (U8, I8) for group in (1, 2) for columns in (0, 1)),
    *(case("NhwcMaxPool", (numbers(kind, 2, 7, 6, 3),), (),
           {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]},
           note=str(np.dtype(kind))) for kind in (U8, I8)),
    *(case("CDist", (floats(5, 7), floats(4, 7)), (), {"metric": rule})
      for rule in ("euclidean", "sqeuclidean")),
    case("Trilu", (floats(2, 4, 5),), (np.array(-1, np.int64),), {"upper": 0}),
    case("GatherND", (floats(3, 4, 5),), (np.array([[0, 1], [2, -1]], np.int64),)),
    case("ExpandDims", (floats(3, 4),), (np.array(-2, np.int32),)),
    *(case("Pad", (floats(3, 4),), (np.array([1, 0, 0, 2], np.int64), *value), {"mode": mode})
      for mode, value in (("constant", ()), ("constant", (scale(2.5),)), ("reflect", ()))),
    *(case("GridSample", (floats(2, 3, 5, 4), floats(2, 6, 7, 2)), (),
           {"mode": mode, "padding_mode": beyond, "align_corners": corners})
      for mode, beyond, corners in (("bilinear", "zeros", 0), ("nearest", "border", 1),
                                    ("bicubic", "reflection", 0))),
    *(four_bits(kind, rows, columns, block)
      for kind in (0, 1) for rows, columns, block in ((8, 64, 16), (5, 32, 64), (3, 48, 32))),
    case("QEmbedLayerNormalization", (below(10, 2, 5), below(2, 2, 5)), EMBEDDED,
         {"epsilon": 1e-5}, outputs=2),
]  # fmt: skip


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=f"{n}-{c.kind}") for n, c in enumerate(CASES)]
)
def test_as_onnxruntime(case: Case, tmp_path: Path) -> None:
    proto, inputs = proto_of(case, symbolic=False)
    check_on_cpu(proto, inputs, tmp_path, tolerance=2e-5)


def _normalised(x: Any, groups: int, epsilon: float) -> Any:
    parted = x.astype(np.float64).reshape(x.shape[0], -1, groups, x.shape[-1] // groups)
    centred = parted - parted.mean((1, 3), keepdims=True)
    return (centred / np.sqrt(centred.var((1, 3), keepdims=True) + epsilon)).reshape(x.shape)


def _gelu(x: Any) -> Any:
    from math import erf

    return x * (1 + np.vectorize(erf)(x / np.sqrt(2))) / 2


@pytest.mark.parametrize("silu", (0, 1))
@pytest.mark.parametrize("skip", (None, (2, 3, 5, 8), (2, 1, 1, 8), (2, 8)))
def test_group_norms(silu: int, skip: tuple[int, ...] | None, tmp_path: Path) -> None:
    """onnxruntime has them on GPUs alone: against their definition."""
    x, gamma, beta, bias = floats(2, 3, 5, 8), floats(8), floats(8), floats(8)
    settings = {"groups": 4, "activation": silu, "epsilon": 1e-3}
    total, extra = x, ()
    if skip is not None:
        more = floats(*skip)
        extra = (more, bias)
        total = x + more.reshape(2, *([1, 1] if len(skip) == 2 else []), *skip[1:]) + bias
    kind = "GroupNorm" if skip is None else "SkipGroupNorm"
    case = Case(kind, (x,), (gamma, beta, *extra), settings, outputs=1 + bool(extra), domain=MS)
    wanted = _normalised(total, 4, 1e-3) * gamma + beta
    wanted = wanted / (1 + np.exp(-wanted)) if silu else wanted
    proto, inputs = proto_of(case, symbolic=False)
    found = on_cpu(import_model(proto), inputs, tmp_path)
    np.testing.assert_allclose(found["y0"], wanted, rtol=1e-4, atol=1e-4)
    if extra:
        np.testing.assert_allclose(found["y1"], total, rtol=1e-6)


def test_biased_sums_and_gates(tmp_path: Path) -> None:
    x, bias, skip = floats(2, 3, 8), floats(8), floats(2, 3, 8)
    proto, inputs = proto_of(case("BiasAdd", (x,), (bias, skip)), symbolic=False)
    found = on_cpu(import_model(proto), inputs, tmp_path)
    np.testing.assert_allclose(found["y0"], x + bias + skip, rtol=1e-6)
    proto, inputs = proto_of(case("BiasSplitGelu", (x,), (bias,)), symbolic=False)
    found = on_cpu(import_model(proto), inputs, tmp_path)
    value, gate = np.split((x + bias).astype(np.float64), 2, -1)
    np.testing.assert_allclose(found["y0"], value * _gelu(gate), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("case", "fact"),
    [(case("CDist", (floats(2, 3), floats(2, 3)), (), {"metric": "cosine"}), "cosine"),
     (case("GroupNorm", (floats(1, 2, 2, 4),), (floats(4), floats(4)), {"groups": 0}), "groups")],
)  # fmt: skip
def test_what_is_not_taken(case: Case, fact: str) -> None:
    proto, _ = proto_of(case, symbolic=False)
    with pytest.raises(HeadraceError, match=fact):
        import_model(proto)
