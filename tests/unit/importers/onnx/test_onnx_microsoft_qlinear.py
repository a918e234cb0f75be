"""`com.microsoft` operators on quantised numbers, compiled, against onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_cases import Case, draw_again, floats, positive, proto_of
from onnx_graphs import check_on_cpu, model_of, on_cpu, peer

from headrace import HeadraceError
from headrace.importers.onnx.reader import import_model
from headrace.tensor.interp import run

draw_again()

MS = "com.microsoft"
_DRAW = np.random.default_rng(41)


def numbers(kind: Any, *shape: int) -> Any:
    info = np.iinfo(kind)
    return _DRAW.integers(info.min, info.max + 1, shape).astype(kind)


def scale(number: float) -> Any:
    return np.array(number, np.float32)


def zero(kind: Any, number: int) -> Any:
    return np.array(number, kind)


def case(kind: str, *args: Any, **more: Any) -> Case:
    return Case(kind, *args, domain=MS, **more)


def both(x: Any, rest: tuple[Any, ...], to: float, kind: Any) -> tuple[Any, ...]:
    """x with a scale and a zero point, the rest, then those of the result."""
    point = zero(kind, 117 if kind is np.uint8 else -9)
    return ((x,), (scale(0.021), point, *rest, scale(to), zero(kind, int(point) // 2)))


U8, I8 = np.uint8, np.int8
IMAGE, LAST = (2, 3, 7, 6), (2, 7, 6, 3)

CASES = [
    *(
        case(name, *both(numbers(kind, 2, 3, 8), (numbers(kind, 3, 1), scale(0.017),
                                                    zero(kind, 5)), 0.03, kind))
        for name in ("QLinearAdd", "QLinearMul")
        for kind in (U8, I8)
    ),
    *(case(name, *both(numbers(kind, 5, 9), (), 0.008, kind), settings)
      for name, settings in (("QLinearSigmoid", {}), ("QLinearLeakyRelu", {"alpha": 0.3}))
      for kind in (U8, I8)),
    *(case("QLinearSoftmax", *both(numbers(kind, 2, 3, 9), (), 1 / 256, kind),
           {"axis": axis, "opset": opset})
      for kind in (U8, I8) for axis, opset in ((-1, 13), (1, 13), (1, 12))),
    *(case("QLinearGlobalAveragePool", *both(numbers(U8, *(LAST if last else IMAGE)), (), 0.015, U8),
           {"channels_last": last}) for last in (0, 1)),
    *(case("QLinearAveragePool", *both(numbers(kind, *(LAST if last else IMAGE)), (), 0.02, kind),
           {"channels_last": last, "kernel_shape": [3, 2], "pads": [1, 0, 1, 1],
            "strides": [2, 1], "count_include_pad": padded})
      for kind in (U8, I8) for last in (0, 1) for padded in (0, 1)),
    case("QLinearConcat", (scale(0.03), zero(U8, 100), numbers(U8, 2, 3, 4), scale(0.02)),
         (zero(U8, 90), numbers(U8, 2, 5, 4), scale(0.05), zero(U8, 128)), {"axis": 1}),
    case("QLinearWhere", (np.array([[True], [False]]), numbers(U8, 2, 5)),
         (scale(0.02), zero(U8, 100), numbers(U8, 5), scale(0.03), zero(U8, 7),
          scale(0.025), zero(U8, 60))),
    *(case("QGemm", (numbers(U8, *((16, 3) if a else (3, 16))),),
           (scale(0.02), zero(U8, 120), numbers(I8, *((5, 16) if b else (16, 5))),
            positive(5) / 100 if columns else scale(0.01),
            np.full(5, 3, I8) if columns else zero(I8, 3),
            _DRAW.integers(-999, 999, (1, 5)).astype(np.int32), *rest),
           {"transA": a, "transB": b, "alpha": 0.5}, note=f"{len(rest)}")
      for a, b, columns in ((0, 0, 0), (1, 1, 0), (0, 1, 1))
      for rest in ((), (scale(0.2), zero(U8, 125)))),
]  # fmt: skip

_SYMBOLIC = {"QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearGlobalAveragePool", "QGemm"}


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=f"{c.kind}-{c.note}-{n}") for n, c in enumerate(CASES)]
)
def test_quantised(case: Case, tmp_path: Path) -> None:
    """Few numbers may be one off, where onnxruntime looks them up or sums otherwise."""
    proto, inputs = proto_of(case, symbolic=False)
    if case.kind in _SYMBOLIC:
        proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    (wanted,) = peer(proto, inputs)
    model = import_model(proto)
    for results in (run(model, inputs), on_cpu(model, inputs, tmp_path)):
        (found,) = results.values()
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        if wanted.dtype == np.float32:
            np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)
            continue
        off = np.abs(found.astype(int) - wanted.astype(int))
        assert off.max() <= 1 and np.mean(off) < 0.05
        assert len(np.unique(wanted)) > 3


def lstm(
    length: int, batch: int, inner: int, hidden: int, directions: int = 1, columns: bool = False
) -> tuple[Any, dict[str, Any]]:
    """A model with weights of 8 bits, and the inputs of a call."""
    from onnx import helper

    scales = (directions, 4 * hidden) if columns else (directions,)
    weights = {
        "w": numbers(I8, directions, inner, 4 * hidden),
        "r": numbers(I8, directions, hidden, 4 * hidden),
        "b": floats(directions, 8 * hidden) / 4,
        "ws": positive(*scales) / 400,
        "wz": np.zeros(scales, I8),
        "rs": positive(*scales) / 400,
        "rz": np.zeros(scales, I8),
    }
    states = {n: floats(directions, batch, hidden) / 2 for n in ("h", "c")}
    inputs = {"x": floats(length, batch, inner), **states}
    node = helper.make_node(
        "DynamicQuantizeLSTM",
        ["x", "w", "r", "b", "", "h", "c", "", "ws", "wz", "rs", "rz"],
        ["y", "yh", "yc"],
        domain=MS,
        hidden_size=hidden,
        direction="bidirectional" if directions == 2 else "forward",
    )
    shapes = {"x": ["length", batch, inner]}
    return model_of([node], inputs, ["y", "yh", "yc"], weights=weights, shapes=shapes), inputs


@pytest.mark.parametrize("directions", (1, 2))
@pytest.mark.parametrize("columns", (False, True))
def test_lstm_with_weights_of_8_bits(directions: int, columns: bool, tmp_path: Path) -> None:
    proto, inputs = lstm(11, 1, 12, 8, directions, columns)
    check_on_cpu(proto, inputs, tmp_path, tolerance=2e-4)


def test_lstm_with_weights_of_8_bits_needs_their_scales(tmp_path: Path) -> None:
    proto, _ = lstm(3, 1, 4, 2)
    del proto.graph.node[0].input[8:]
    with pytest.raises(HeadraceError, match="is missing"):
        import_model(proto)
