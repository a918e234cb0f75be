"""`com.microsoft` attention, compiled, against onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx_cases import Case, draw_again, floats, positive
from onnx_graphs import check_on_cpu, model_of, on_cpu

import headrace
from headrace import HeadraceError
from headrace.importers.onnx.reader import import_model
from headrace.tensor.interp import run

draw_again()

MS = "com.microsoft"
_DRAW = np.random.default_rng(37)
B, S, T, H, D = 2, 3, 5, 4, 16  # batch, queries, keys, heads, size of a head
HIDDEN = H * D

ROWS = np.array([[1, 1, 0], [1, 0, 0]], np.int32)
LONG = np.array([[1, 1, 1, 0, 1], [1, 1, 0, 0, 0]], np.int32)
ANGLES = floats(16, D // 2)
COSINE, SINE = np.cos(ANGLES), np.sin(ANGLES)


def case(
    kind: str, inputs: tuple[Any, ...], note: str, outputs: int = 1, **attributes: Any
) -> Case:
    """Every input is data but None, which is left out."""
    return Case(kind, inputs, (), attributes, outputs=outputs, note=note, domain=MS)


def attention(note: str, *more: Any, length: int = S, **attributes: Any) -> Case:
    inputs = (floats(B, length, 12), floats(12, 3 * HIDDEN) / 3, floats(3 * HIDDEN), *more)
    outputs = 2 if len(more) > 1 and more[1] is not None else 1
    return case("Attention", inputs, note, outputs, num_heads=H, **attributes)


def many(note: str, *more: Any, outputs: int = 1, **attributes: Any) -> Case:
    inputs = (floats(B, S, HIDDEN), floats(B, T, HIDDEN), floats(B, T, HIDDEN), *more)
    return case("MultiHeadAttention", inputs, note, outputs, num_heads=H, **attributes)


def grouped(
    note: str, past: int, room: int, ends: list[int], total: int, *more: Any, count: int = 1,
    packed: bool = False, **attributes: Any,
) -> Case:  # fmt: skip
    """Two heads share one of keys; `past` is the length of the buffer."""
    kv = 2 * D
    if packed:
        three: tuple[Any, ...] = (floats(B, count, HIDDEN + 2 * kv), None, None)
    else:
        three = (floats(B, count, HIDDEN), floats(B, count, kv), floats(B, count, kv))
    old = (floats(B, 2, room, D), floats(B, 2, room, D)) if past else (None, None)
    lengths = (np.array(ends, np.int32), np.array(total, np.int32))
    inputs = (*three, *old, *lengths, *more)
    attributes = {"num_heads": H, "kv_num_heads": 2, **attributes}
    return case("GroupQueryAttention", inputs, note, 3, **attributes)


CASES = [
    attention("plain"),
    attention("causal", unidirectional=1),
    attention("scale", scale=0.2),
    attention("rows", ROWS),
    attention("cube", _DRAW.integers(0, 2, (B, S, S)).astype(np.int32)),
    attention("ends", np.array([2, 3], np.int32)),
    attention("starts", np.array([3, 2, 1, 0], np.int32)),
    attention("filter", ROWS, mask_filter_value=-3.0),
    attention("past", None, floats(2, B, H, 2, D), unidirectional=1),
    attention("bias", None, None, floats(1, H, S, S)),
    case("Attention", (floats(B, S, 12), floats(12, 160), floats(160)), "sizes", num_heads=H,
         qkv_hidden_sizes=[64, 64, 32]),
    *(
        case("QAttention",
             (_DRAW.integers(0, 256, (B, S, 12)).astype(np.uint8),
              _DRAW.integers(-127, 128, (12, 3 * HIDDEN)).astype(np.int8), floats(3 * HIDDEN),
              np.array(0.02, np.float32), np.asarray(positive(*columns) / 50, np.float32), np.array([2, 3], np.int32),
              np.array(120, np.uint8), np.zeros(columns, np.int8)), f"{columns}", num_heads=H,
             unidirectional=1)
        for columns in ((), (3 * HIDDEN,))
    ),
    many("cross"),
    many("bias", floats(3 * HIDDEN)),
    many("padding", None, LONG),
    many("ends", None, np.array([4, 2], np.int32)),
    many("cube", None, _DRAW.integers(0, 2, (B, S, T)).astype(np.int32)),
    many("addend", None, None, floats(B, 1, S, T), scale=0.3),
    many("past", None, None, None, floats(B, H, 4, D), floats(B, H, 4, D), outputs=3),
    case("MultiHeadAttention", (floats(B, S, HIDDEN), floats(B, H, T, D), floats(B, H, T, D)),
         "heads", num_heads=H),
    case("MultiHeadAttention", (floats(B, S, HIDDEN),) * 3, "causal", num_heads=H,
         unidirectional=1),
    *(
        case("RotaryEmbedding", (x, ids, COSINE, SINE), f"{x.ndim} {ids.ndim} {turn}",
             interleaved=turn)
        for x in (floats(B, S, HIDDEN), floats(B, H, S, D))
        for ids in (np.array([3]), np.array([[1, 2, 3], [0, 5, 4]]))
        for turn in (0, 1)
    ),
    case("RotaryEmbedding", (floats(B, S, HIDDEN), np.array([3]), COSINE[:, :2], SINE[:, :2]),
         "part", num_heads=H, rotary_embedding_dim=4),
    grouped("prompt", 0, 0, [3, 3], 4, count=4),
    grouped("packed prompt", 0, 0, [3, 3], 4, COSINE, SINE, count=4, packed=True, do_rotary=1),
    grouped("window", 0, 0, [3, 3], 4, count=4, local_window_size=2),
    grouped("softcap", 0, 0, [3, 3], 4, count=4, softcap=0.7),
    grouped("smooth", 0, 0, [3, 3], 4, count=4, smooth_softmax=1),
    grouped("sink", 0, 0, [3, 3], 4, None, None, None, None, floats(H), count=4),
    grouped("addend", 0, 0, [3, 3], 4, None, None, None, floats(B, 1, 4, 4), count=4),
    grouped("next", 1, 6, [6, 6], 7),
    grouped("in a full buffer", 1, 7, [6, 6], 7, COSINE, SINE, do_rotary=1),
]  # fmt: skip


def proto_of(given: Case) -> tuple[Any, dict[str, Any]]:
    names = [f"x{n}" if a is not None else "" for n, a in enumerate(given.inputs)]
    inputs = {f"x{n}": a for n, a in enumerate(given.inputs) if a is not None}
    weights: dict[str, Any] = {}
    if given.kind == "GroupQueryAttention":
        weights["x6"] = inputs.pop("x6")
    outputs = [f"y{n}" for n in range(given.outputs)]
    node = helper.make_node(given.kind, names, outputs, domain=MS, **given.attributes)
    proto = model_of([node], inputs, outputs, weights=weights)
    return proto, inputs


@pytest.mark.parametrize("given", [pytest.param(c, id=f"{c.kind}-{c.note}") for c in CASES])
def test_attention(given: Case, tmp_path: Path) -> None:
    proto, inputs = proto_of(given)
    check_on_cpu(proto, inputs, tmp_path, tolerance=2e-5)


@pytest.mark.parametrize("flag", ["do_rotary", "past_present_share_buffer"])
def test_forms_that_are_not_taken_are_refused(flag: str) -> None:
    proto, _ = proto_of(attention("refused", **{flag: 1}))
    with pytest.raises(HeadraceError, match=f"with {flag}"):
        import_model(proto)


PADDED = [
    grouped("padded prompt", 0, 0, [1, 3], 4, count=4),
    grouped("next of two lengths", 1, 6, [6, 4], 7),
    grouped("next in a buffer", 1, 9, [6, 4], 7, COSINE, SINE, do_rotary=1),
    grouped("interleaved", 1, 9, [6, 4], 7, COSINE, SINE, do_rotary=1, rotary_interleaved=1),
]


@pytest.mark.parametrize("given", [pytest.param(c, id=c.note) for c in PADDED])
def test_rows_of_several_lengths(given: Case, tmp_path: Path) -> None:
    """What is behind a row's length is not defined: only what is before is compared."""
    proto, inputs = proto_of(given)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    wanted = session.run(None, inputs)
    model = import_model(proto)
    for got in (run(model, inputs), on_cpu(model, inputs, tmp_path)):
        for row, end in enumerate(inputs["x5"]):
            queries = slice(0, min(int(end) + 1, wanted[0].shape[1]))
            np.testing.assert_allclose(
                got["y0"][row, queries], wanted[0][row, queries], rtol=2e-5, atol=2e-5
            )
            for n in (1, 2):
                assert got[f"y{n}"].shape == wanted[n].shape
                keys = (row, slice(None), slice(0, int(end) + 1))
                np.testing.assert_allclose(got[f"y{n}"][keys], wanted[n][keys], rtol=2e-5)


def test_one_file_generates_at_every_length(tmp_path: Path) -> None:
    """Lengths come from the attention mask, as exporters of language models write it."""
    nodes = [
        helper.make_node("ReduceSum", ["mask", "one"], ["sum"], keepdims=0),
        helper.make_node("Sub", ["sum", "one"], ["last"]),
        helper.make_node("Cast", ["last"], ["ends"], to=TensorProto.INT32),
        helper.make_node("Shape", ["mask"], ["shape"]),
        helper.make_node("Gather", ["shape", "second"], ["length"]),
        helper.make_node("Cast", ["length"], ["total"], to=TensorProto.INT32),
        helper.make_node(
            "GroupQueryAttention",
            ["q", "k", "v", "pk", "pv", "ends", "total", "cos", "sin"],
            ["y", "nk", "nv"], domain=MS, num_heads=H, kv_num_heads=2, do_rotary=1,
        ),
    ]  # fmt: skip

    def inputs_of(batch: int, new: int, past: int) -> dict[str, Any]:
        kv = 2 * D
        return {
            "q": floats(batch, new, HIDDEN), "k": floats(batch, new, kv),
            "v": floats(batch, new, kv), "pk": floats(batch, 2, past, D),
            "pv": floats(batch, 2, past, D), "mask": np.ones((batch, past + new), np.int64),
        }  # fmt: skip

    example = inputs_of(1, 2, 3)
    shapes = {n: ["b", "s", example[n].shape[2]] for n in ("q", "k", "v")}
    shapes |= {n: ["b", 2, "p", D] for n in ("pk", "pv")}
    shapes["mask"] = ["b", "total"]
    weights = {"one": np.array([1]), "second": np.array(1), "cos": COSINE, "sin": SINE}
    proto = model_of(nodes, example, ["y", "nk", "nv"], weights=weights, shapes=shapes)
    headrace.compile(import_model(proto, dimensions={"p": (0, 64)}), tmp_path / "m.hrx", jobs=1)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    with headrace.load(tmp_path / "m.hrx", threads=1) as module:
        for batch, new, past in ((1, 5, 0), (1, 5, 2), (1, 1, 5), (2, 1, 7)):
            inputs = inputs_of(batch, new, past)
            got = module(**inputs)
            for n, want in enumerate(session.run(None, inputs)):
                np.testing.assert_allclose(np.asarray(got[n]), want, rtol=2e-5, atol=2e-5)
