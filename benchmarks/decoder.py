"""A decoder of Llama's shape as an ONNX file with external bf16 weights, any size.

Written operation by operation as exporters do: RMS norms in fp32, rotary positions, causal
attention over the tokens of the step, gated MLP, logits of the last token. `tokens` is a
named dimension. Weights are drawn once, 64 million values, and each weight is a run of these
from a place of its own: 7 GB are made as fast as the disk takes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TOKENS = (1, 128, 2048)
"""Of a step, in the benchmarks."""

_POOL = 1 << 26
_ALIGNMENT = 4096
_MOST_TOKENS = 4096


@dataclass(frozen=True)
class Shape:
    """The sizes of a decoder; the default has 7.0 GB of weights."""

    layers: int = 16
    hidden: int = 4096
    heads: int = 32
    intermediate: int = 11008
    vocabulary: int = 32000

    @property
    def head(self) -> int:
        return self.hidden // self.heads


def ids_of(shape: Shape, tokens: int) -> Any:
    """The first tokens of the sequence that all benchmarks give a decoder, int64[1, tokens]."""
    drawn = np.random.default_rng(1).integers(0, shape.vocabulary, (1, max(TOKENS)))
    return drawn[:, :tokens]


class _Writer:
    def __init__(self, folder: Path, seed: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._file = (folder / "weights.bin").open("wb")
        drawn = np.random.default_rng(seed).standard_normal(_POOL, dtype=np.float32)
        self._pool = drawn
        self._narrow: dict[int, Any] = {}

    def close(self) -> None:
        self._file.close()

    def weight(self, name: str, rows: int, columns: int) -> str:
        """A bf16 matrix of variance 1 / rows, in the external file."""
        if rows not in self._narrow:
            scaled = self._pool * np.float32(rows**-0.5)
            self._narrow[rows] = scaled.astype(ml_dtypes.bfloat16)
        self._file.write(bytes(-self._file.tell() % _ALIGNMENT))
        tensor = TensorProto(name=name, data_type=TensorProto.BFLOAT16, dims=[rows, columns])
        tensor.data_location = TensorProto.EXTERNAL
        place = (
            ("location", "weights.bin"),
            ("offset", str(self._file.tell())),
            ("length", str(2 * rows * columns)),
        )
        for key, value in place:
            tensor.external_data.add(key=key, value=value)
        left, start = rows * columns, (7919 * len(self.weights)) % (_POOL // 2)
        while left:
            part = self._narrow[rows][start : start + left]
            part.tofile(self._file)
            left -= part.size
            start = 0
        self.weights.append(tensor)
        return name

    def constant(self, name: str, value: Any) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], output, **attributes))
        return output


def write_decoder(folder: Path, shape: Shape | None = None, seed: int = 7) -> Path:
    """Writes `decoder.onnx` and `weights.bin`; the path of the first."""
    shape = shape or Shape()
    folder.mkdir(parents=True, exist_ok=True)
    w = _Writer(folder, seed)
    _constants(w, shape)
    x = w.node(
        "Gather", [w.weight("embedding", shape.vocabulary, shape.hidden), "ids"], "embedded"
    )
    w.node("Shape", ["ids"], "count", start=1, end=2)
    w.node("Slice", ["cosines", "zero", "count"], "cosine")
    w.node("Slice", ["sines", "zero", "count"], "sine")
    w.node("Squeeze", ["count", "zero"], "count_scalar")
    w.node("Range", ["zero_scalar", "count_scalar", "one_scalar"], "positions")
    w.node("Unsqueeze", ["positions", "one"], "rows")
    w.node("LessOrEqual", ["positions", "rows"], "visible")
    for layer in range(shape.layers):
        x = _attention(w, shape, f"layers.{layer}.attention", x)
        x = _mlp(w, shape, f"layers.{layer}.mlp", x)
    x = _norm(w, shape, "norm", x)
    x = w.node("Slice", [x, "minus_one", "past_end", "one"], "last")
    w.node("MatMul", [x, w.weight("head", shape.hidden, shape.vocabulary)], "logits16")
    w.node("Cast", ["logits16"], "logits", to=TensorProto.FLOAT)
    w.close()
    graph = helper.make_graph(
        w.nodes,
        "decoder",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [1, "tokens"])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 1, shape.vocabulary])],
        w.weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 8
    onnx.save(model, folder / "decoder.onnx")
    return folder / "decoder.onnx"


def _constants(w: _Writer, shape: Shape) -> None:
    powers = 10000.0 ** (-np.arange(0, shape.head, 2) / shape.head)
    angles = np.arange(_MOST_TOKENS)[:, None] * np.concatenate([powers, powers])[None, :]
    w.constant("cosines", np.cos(angles).astype(ml_dtypes.bfloat16))
    w.constant("sines", np.sin(angles).astype(ml_dtypes.bfloat16))
    w.constant("zero", np.array([0], np.int64))
    w.constant("one", np.array([1], np.int64))
    w.constant("minus_one", np.array([-1], np.int64))
    w.constant("past_end", np.array([2**31 - 1], np.int64))
    w.constant("zero_scalar", np.array(0, np.int64))
    w.constant("one_scalar", np.array(1, np.int64))
    w.constant("half", np.array([shape.head // 2], np.int64))
    w.constant("last_axis", np.array([3], np.int64))
    w.constant("split_heads", np.array([1, -1, shape.heads, shape.head], np.int64))
    w.constant("join_heads", np.array([1, -1, shape.hidden], np.int64))
    w.constant("scale", np.array(shape.head**-0.5, ml_dtypes.bfloat16))
    w.constant("hidden_out", np.array(-np.inf, np.float32))
    w.constant("epsilon", np.array(1e-5, np.float32))
    w.constant("two", np.array(2.0, np.float32))


def _norm(w: _Writer, shape: Shape, name: str, x: str) -> str:
    gain = w.constant(f"{name}.weight", np.ones(shape.hidden, ml_dtypes.bfloat16))
    wide = w.node("Cast", [x], f"{name}.wide", to=TensorProto.FLOAT)
    square = w.node("Pow", [wide, "two"], f"{name}.square")
    mean = w.node("ReduceMean", [square, "minus_one"], f"{name}.mean", keepdims=1)
    shifted = w.node("Add", [mean, "epsilon"], f"{name}.shifted")
    root = w.node("Sqrt", [shifted], f"{name}.root")
    inverse = w.node("Reciprocal", [root], f"{name}.inverse")
    scaled = w.node("Mul", [wide, inverse], f"{name}.scaled")
    narrow = w.node("Cast", [scaled], f"{name}.narrow", to=TensorProto.BFLOAT16)
    return w.node("Mul", [gain, narrow], f"{name}.out")


def _project(w: _Writer, name: str, x: str, rows: int, columns: int) -> str:
    return w.node("MatMul", [x, w.weight(f"{name}.weight", rows, columns)], f"{name}.out")


def _rotate(w: _Writer, name: str, x: str) -> str:
    first = w.node("Slice", [x, "zero", "half", "last_axis"], f"{name}.first")
    second = w.node("Slice", [x, "half", "past_end", "last_axis"], f"{name}.second")
    turned = w.node("Neg", [second], f"{name}.turned")
    other = w.node("Concat", [turned, first], f"{name}.other", axis=-1)
    along = w.node("Mul", [x, "cosine"], f"{name}.along")
    across = w.node("Mul", [other, "sine"], f"{name}.across")
    return w.node("Add", [along, across], f"{name}.rotated")


def _attention(w: _Writer, shape: Shape, name: str, residual: str) -> str:
    x = _norm(w, shape, f"{name}.norm", residual)
    parts: dict[str, str] = {}
    for part in ("q", "k", "v"):
        made = _project(w, f"{name}.{part}", x, shape.hidden, shape.hidden)
        split = w.node("Reshape", [made, "split_heads"], f"{name}.{part}.split")
        parts[part] = w.node("Transpose", [split], f"{name}.{part}.heads", perm=[0, 2, 1, 3])
    q, k = (_rotate(w, f"{name}.{part}", parts[part]) for part in ("q", "k"))
    transposed = w.node("Transpose", [k], f"{name}.k.transposed", perm=[0, 1, 3, 2])
    scores = w.node("MatMul", [q, transposed], f"{name}.scores")
    scaled = w.node("Mul", [scores, "scale"], f"{name}.scaled")
    wide = w.node("Cast", [scaled], f"{name}.scores.wide", to=TensorProto.FLOAT)
    masked = w.node("Where", ["visible", wide, "hidden_out"], f"{name}.masked")
    weights = w.node("Softmax", [masked], f"{name}.softmax", axis=-1)
    narrow = w.node("Cast", [weights], f"{name}.softmax.narrow", to=TensorProto.BFLOAT16)
    mixed = w.node("MatMul", [narrow, parts["v"]], f"{name}.mixed")
    rows = w.node("Transpose", [mixed], f"{name}.rows", perm=[0, 2, 1, 3])
    joined = w.node("Reshape", [rows, "join_heads"], f"{name}.joined")
    out = _project(w, f"{name}.o", joined, shape.hidden, shape.hidden)
    return w.node("Add", [residual, out], f"{name}.sum")


def _mlp(w: _Writer, shape: Shape, name: str, residual: str) -> str:
    x = _norm(w, shape, f"{name}.norm", residual)
    gate = _project(w, f"{name}.gate", x, shape.hidden, shape.intermediate)
    up = _project(w, f"{name}.up", x, shape.hidden, shape.intermediate)
    logistic = w.node("Sigmoid", [gate], f"{name}.logistic")
    silu = w.node("Mul", [gate, logistic], f"{name}.silu")
    gated = w.node("Mul", [silu, up], f"{name}.gated")
    down = _project(w, f"{name}.down", gated, shape.intermediate, shape.hidden)
    return w.node("Add", [residual, down], f"{name}.sum")
