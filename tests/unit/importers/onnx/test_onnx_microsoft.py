"""`com.microsoft` operators, compiled, against onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper
from onnx_cases import Case, draw_again, floats, positive, proto_of
from onnx_graphs import check_on_cpu, model_of

from headrace import HeadraceError
from headrace.importers.onnx.reader import import_model

draw_again()

MS = "com.microsoft"
_DRAW = np.random.default_rng(31)


def numbers(kind: Any, *shape: int) -> Any:
    info = np.iinfo(kind)
    return _DRAW.integers(info.min, info.max + 1, shape).astype(kind)


def ids(*shape: int, below: int) -> Any:
    return _DRAW.integers(0, below, shape).astype(np.int32)


def case(kind: str, *args: Any, **more: Any) -> Case:
    return Case(kind, *args, domain=MS, **more)


def n_bits(
    bits: int, block: int, rows: int, columns: int, zeros: str = "", **more: Any
) -> Case:
    """A product with numbers of few bits; `zeros` is packed or floats."""
    blocks = -(-columns // block)
    weights = [
        numbers(np.uint8, rows, blocks, block * bits // 8),
        positive(rows * blocks) if bits != 2 else positive(rows, blocks),
    ]
    if zeros == "packed":
        weights.append(numbers(np.uint8, rows * -(-blocks * bits // 8)))
    elif zeros:
        weights.append(positive(rows, blocks) * 4)
    attributes = {"bits": bits, "block_size": block, "N": rows, "K": columns}
    return case("MatMulNBits", (floats(2, 3, columns),), tuple(weights), attributes, **more)


MASK = np.array([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]], np.int32)
WORDS, PLACES, SEGMENTS = floats(10, 6), floats(8, 6), floats(2, 6)

CASES = [
    *(
        case("FusedMatMul", (floats(*((2, 5, 3) if a else (2, 3, 5))),
                             floats(*((2, 4, 5) if b else (2, 5, 4)))), (),
             {"transA": a, "transB": b, "alpha": 0.5})
        for a in (0, 1)
        for b in (0, 1)
    ),
    case("FusedMatMul", (floats(4, 3, 5), floats(3, 5, 4)), (), {"transBatchA": 1}, note="batch"),
    case("FusedMatMul", (floats(4, 3, 5), floats(4, 3, 5)), (),
         {"transBatchA": 1, "transBatchB": 1, "transB": 1}, note="batches"),
    case("SkipLayerNormalization", (floats(2, 4, 6), floats(2, 4, 6)), (floats(6), floats(6)),
         {"epsilon": 1e-5}),
    case("SkipLayerNormalization", (floats(2, 4, 6), floats(1, 4, 6)),
         (floats(6), floats(6), floats(6)), {"epsilon": 1e-5}, note="bias"),
    case("SkipSimplifiedLayerNormalization", (floats(2, 4, 6), floats(2, 4, 6)),
         (floats(6), floats(6)), {"epsilon": 1e-5}),
    case("EmbedLayerNormalization", (ids(3, 4, below=10), ids(3, 4, below=2)),
         (WORDS, PLACES, SEGMENTS, floats(6), floats(6), MASK),
         {"epsilon": 1e-5, "mask_index_type": 1}, outputs=3, note="mask"),
    case("EmbedLayerNormalization", (ids(3, 4, below=10), ids(3, 4, below=2)),
         (WORDS, PLACES, SEGMENTS, floats(6), floats(6), None, ids(3, 4, below=8)), {}, outputs=3,
         note="places"),
    case("BiasGelu", (floats(3, 8),), (floats(8),)),
    case("Gelu", (floats(3, 8),)),
    case("FastGelu", (floats(3, 8) * 3,), (floats(8),)),
    case("FastGelu", (floats(3, 8),), note="no bias"),
    case("QuickGelu", (floats(3, 8),)),
    case("QuickGelu", (floats(3, 8),), (), {"alpha": 1.0}),
    *(
        case("FusedConv", (floats(2, 4, 7, 6),), (floats(6, 4, 3, 3), floats(6), *addend),
             {"pads": [1, 1, 1, 1], "activation": name,
              **({"activation_params": settings} if settings else {})},
             note=f"{len(addend)}")
        for name, settings in (
            ("Relu", []), ("Tanh", []), ("Sigmoid", []), ("LeakyRelu", [0.2]),
            ("Clip", [-0.5, 0.75]), ("HardSigmoid", [0.3, 0.4]),
        )
        for addend in ((), (floats(2, 6, 7, 6),))
    ),
    *(
        case("FusedGemm", (floats(5, 3),), (floats(5, 4), floats(4)),
             {"transA": 1, "alpha": 0.5, "beta": 2.0, "activation": name, **settings})
        for name, settings in (("Relu", {}), ("LeakyRelu", {"activation_alpha": 0.2}))
    ),
    *(
        case("DynamicQuantizeMatMul", (floats(2, 3, 16),),
             (numbers(kind, 16, 5), positive(*columns) / 50, zero), note=f"{kind.__name__}")
        for kind, columns, zero in (
            (np.int8, (), None), (np.uint8, (1,), np.array([120], np.uint8)),
            (np.int8, (5,), numbers(np.int8, 5)),
        )
    ),
    case("DynamicQuantizeMatMul", (floats(3, 16),),
         (numbers(np.int8, 16, 5), positive(5) / 50, None, floats(5)), note="bias"),
    case("MatMulIntegerToFloat", (numbers(np.uint8, 3, 16),),
         (numbers(np.int8, 16, 5), positive(1), positive(5) / 50, np.array([100], np.uint8),
          numbers(np.int8, 5), floats(5))),
    n_bits(4, 32, 5, 64, note="plain"),
    n_bits(4, 16, 5, 40, "packed", note="part of a block"),
    n_bits(4, 32, 5, 64, "floats", note="float zeros"),
    n_bits(8, 32, 5, 96, "packed", note="8 packed"),
    n_bits(2, 32, 6, 96, "packed", note="2 packed"),
    *(
        case("GatherBlockQuantized", (),
             (numbers(np.uint8, 10, 64 * bits // 8), ids(3, 4, below=10), positive(10, 4),
              *([numbers(np.uint8, 10, 4 * bits // 8)] if zeros else [])),
             {"bits": bits, "block_size": 16}, note=f"zeros {zeros}")
        for bits in (4, 8) for zeros in (False, True)
    ),
]  # fmt: skip

_SYMBOLIC = {
    "BiasGelu",
    "Gelu",
    "FastGelu",
    "QuickGelu",
    "DynamicQuantizeMatMul",
    "MatMulNBits",
}


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=f"{c.kind}-{c.note}-{n}") for n, c in enumerate(CASES)]
)
def test_microsoft(case: Case, tmp_path: Path) -> None:
    proto, inputs = proto_of(case, symbolic=False)
    if case.kind in _SYMBOLIC:
        proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    check_on_cpu(proto, inputs, tmp_path, tolerance=2e-5)


def test_channels_last_convolution(tmp_path: Path) -> None:
    """onnxruntime has it on its GPU only; here it is compared with Conv."""
    x, kernel, bias = floats(2, 7, 6, 4), floats(6, 3, 3, 2), floats(6)
    attributes = {"pads": [1, 0, 1, 2], "strides": [2, 1], "group": 2}
    node = helper.make_node("NhwcConv", ["x", "w", "b"], ["y"], domain=MS, **attributes)
    proto = model_of([node], {"x": x}, ["y"], weights={"w": kernel, "b": bias})
    peer = helper.make_node("Conv", ["x", "w", "b"], ["y"], **attributes)
    turned = x.transpose(0, 3, 1, 2)
    weights = {"w": kernel.transpose(0, 3, 1, 2).copy(), "b": bias}
    session = onnxruntime.InferenceSession(
        model_of([peer], {"x": turned}, ["y"], weights=weights).SerializeToString()
    )
    wanted = session.run(None, {"x": turned})[0].transpose(0, 2, 3, 1)
    check_on_cpu(proto, {"x": x}, tmp_path, wanted=[wanted])


def test_columns_of_few_bits_say_their_block(tmp_path: Path) -> None:
    """`g_idx`: the block of each column, in no order."""
    rows, columns, block = 3, 48, 16
    x, packed = floats(2, columns), numbers(np.uint8, rows, 3, 8)
    scale, zero = positive(rows, 3), numbers(np.uint8, rows * 2)
    group = _DRAW.permutation(np.repeat(np.arange(3, dtype=np.int32), 16))
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s", "z", "g"], ["y"], domain=MS,
        bits=4, block_size=block, N=rows, K=columns,
    )  # fmt: skip
    weights = {"w": packed, "s": scale.reshape(-1), "z": zero, "g": group}
    number = np.stack([packed & 15, packed >> 4], -1).reshape(rows, columns).astype(np.float32)
    zeros = np.stack([zero & 15, zero >> 4], -1).reshape(rows, 4)[:, :3].astype(np.float32)
    wanted = x @ ((number - zeros[:, group]) * scale[:, group]).T
    proto = model_of([node], {"x": x}, ["y"], weights=weights)
    check_on_cpu(proto, {"x": x}, tmp_path, tolerance=1e-4, wanted=[wanted])


def test_an_activation_that_nobody_knows_is_refused() -> None:
    node = helper.make_node("FusedConv", ["x", "w"], ["y"], domain=MS, activation="Swish")
    proto = model_of(
        [node], {"x": floats(1, 2, 4, 4)}, ["y"], weights={"w": floats(2, 2, 3, 3)}
    )
    with pytest.raises(HeadraceError, match="activation 'Swish'"):
        import_model(proto)


@pytest.mark.parametrize("simple", [False, True])
def test_the_sum_before_normalisation_is_an_output(simple: bool, tmp_path: Path) -> None:
    kind = "SkipSimplifiedLayerNormalization" if simple else "SkipLayerNormalization"
    weights = {"g": floats(6), "b": floats(6)}
    names = ["x", "s", "g", "b"] if simple else ["x", "s", "g", "", "b"]
    node = helper.make_node(kind, names, ["y", "", "", "z"], domain=MS, epsilon=1e-5)
    inputs = {"x": floats(2, 4, 6), "s": floats(2, 4, 6)}
    shapes = {n: ["batch", "length", 6] for n in inputs}
    proto = model_of([node], inputs, ["y", "z"], weights=weights, shapes=shapes)
    check_on_cpu(proto, inputs, tmp_path)
