"""A GPT-2 in two graphs that share weights: prefill, and decode of one token on caches.

Built by `onnx.helper`, seeded. Each graph names the weights in its own way, as exporters
do, so that only their content says that they are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto
from tests.models.builders import GraphWriter

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


@dataclass(frozen=True)
class Decoder:
    """Sizes of a decoder.

    Attributes:
        positions: room in the caches.
        prompt: tokens of a prefill.
    """

    width: int = 32
    heads: int = 4
    layers: int = 2
    vocabulary: int = 96
    positions: int = 16
    prompt: int = 8
    seed: int = 11

    @property
    def cache_shape(self) -> tuple[int, ...]:
        return (1, self.heads, self.positions, self.width // self.heads)

    def cache_names(self, stem: str) -> list[str]:
        """`past_key_0`, `past_value_0`, `past_key_1`, ... for the stem `past`."""
        return [f"{stem}_{kind}_{n}" for n in range(self.layers) for kind in ("key", "value")]

    def prefill(self) -> onnx.ModelProto:
        """tokens -> logits of the last one, and caches with room behind the prompt."""
        graph = _Graph(self, "", self.prompt)
        hidden, caches = graph.embedded(graph.constant("at", np.arange(self.prompt))), []
        for layer in range(self.layers):
            hidden, key, value = graph.layer(hidden, layer, None, "")
            caches += [key, value]
        last = graph.node("Gather", [hidden, graph.constant("last", [self.prompt - 1])], axis=1)
        return graph.finish("prefill", last, caches, [("tokens", INT64, (1, self.prompt))])

    def decode(self) -> onnx.ModelProto:
        """token, position and caches -> logits, and the caches with one row more."""
        graph = _Graph(self, "decoder.", 1)
        hidden, caches = graph.embedded("position"), []
        names = self.cache_names("past")
        for layer in range(self.layers):
            pasts = (names[2 * layer], names[2 * layer + 1])
            hidden, key, value = graph.layer(hidden, layer, pasts, "position")
            caches += [key, value]
        inputs = [("tokens", INT64, (1, 1)), ("position", INT64, (1,))]
        inputs += [(name, FLOAT, self.cache_shape) for name in names]
        return graph.finish("decode", hidden, caches, inputs)


class _Graph(GraphWriter):
    """One of the two; `count` tokens go in."""

    def __init__(self, sizes: Decoder, prefix: str, count: int) -> None:
        super().__init__(sizes.seed)
        self.sizes, self.prefix, self.count = sizes, prefix, count

    def constant(self, name: str, value: Any) -> str:
        return self.weight(f"{self.prefix}{name}", np.asarray(value, np.int64))

    def drawn(self, name: str, *shape: int) -> str:
        return self.normal(f"{self.prefix}{name}", shape, shape[0], 1.0)

    def embedded(self, positions: str) -> str:
        s = self.sizes
        table = self.drawn("wte", s.vocabulary, s.width)
        token = self.node("Gather", [table, "tokens"])
        place = self.node("Gather", [self.drawn("wpe", s.positions, s.width), positions])
        return self.node("Add", [token, place])

    def normalised(self, x: str, name: str) -> str:
        width = self.sizes.width
        scale = self.weight(
            f"{self.prefix}{name}.scale",
            1 + self.generator.standard_normal(width, np.float32) / 4,
        )
        bias = self.drawn(f"{name}.bias", width)
        return self.node("LayerNormalization", [x, scale, bias], axis=-1)

    def linear(self, x: str, name: str, rows: int, columns: int) -> str:
        product = self.node("MatMul", [x, self.drawn(f"{name}.weight", rows, columns)])
        return self.node("Add", [product, self.drawn(f"{name}.bias", columns)])

    def layer(
        self, x: str, n: int, pasts: tuple[str, str] | None, position: str
    ) -> tuple[str, str, str]:
        """The block's output, and its key and value caches."""
        s = self.sizes
        size = s.width // s.heads
        joined = self.linear(self.normalised(x, f"h{n}.ln1"), f"h{n}.qkv", s.width, 3 * s.width)
        shape = self.constant(f"h{n}.split", [1, self.count, 3, s.heads, size])
        apart = self.node(
            "Transpose", [self.node("Reshape", [joined, shape])], perm=[2, 0, 3, 1, 4]
        )
        query, key, value = (
            self.node("Gather", [apart, self.constant(f"h{n}.part{k}", k)], axis=0)
            for k in range(3)
        )
        if pasts is None:
            room = self.constant(f"h{n}.room", [0, 0, 0, 0, 0, 0, s.positions - s.prompt, 0])
            key, value = self.node("Pad", [key, room]), self.node("Pad", [value, room])
            rows: Any = np.arange(s.prompt)[:, None]
            seen = self.weight(f"h{n}.seen", np.arange(s.positions)[None, :] <= rows)
        else:
            key = self._scattered_elements(pasts[0], key, position, n)
            value = self._scattered_rows(pasts[1], value, position, n)
            places = self.constant(f"h{n}.places", np.arange(s.positions))
            seen = self.node("LessOrEqual", [places, position])
        scale = self.weight(f"{self.prefix}h{n}.scale", np.float32(size**-0.5))
        turned = self.node("Transpose", [key], perm=[0, 1, 3, 2])
        scores = self.node("Mul", [self.node("MatMul", [query, turned]), scale])
        least = self.weight(f"{self.prefix}h{n}.least", np.float32(-1e9))
        weights = self.node("Softmax", [self.node("Where", [seen, scores, least])], axis=-1)
        mixed = self.node(
            "Transpose", [self.node("MatMul", [weights, value])], perm=[0, 2, 1, 3]
        )
        flat = self.node(
            "Reshape", [mixed, self.constant(f"h{n}.flat", [1, self.count, s.width])]
        )
        x = self.node("Add", [x, self.linear(flat, f"h{n}.out", s.width, s.width)])
        wide = self.linear(self.normalised(x, f"h{n}.ln2"), f"h{n}.up", s.width, 4 * s.width)
        bent = self.node("Gelu", [wide], approximate="tanh")
        x = self.node("Add", [x, self.linear(bent, f"h{n}.down", 4 * s.width, s.width)])
        return x, key, value

    def _scattered_elements(self, past: str, row: str, position: str, n: int) -> str:
        """The row put at the position by an index for every element."""
        shape = self.constant(
            f"h{n}.row", (1, self.sizes.heads, 1, self.sizes.width // self.sizes.heads)
        )
        index = self.node("Expand", [position, shape])
        return self.node("ScatterElements", [past, index, row], axis=2)

    def _scattered_rows(self, past: str, row: str, position: str, n: int) -> str:
        """The row put at the position by an index for each head."""
        heads = self.sizes.heads
        place = np.stack([np.zeros(heads), np.arange(heads)], -1).reshape(1, heads, 1, 2)
        known = self.constant(f"h{n}.heads", place)
        shape = self.constant(f"h{n}.index", (1, heads, 1, 1))
        index = self.node("Concat", [known, self.node("Expand", [position, shape])], axis=-1)
        return self.node("ScatterND", [past, index, row])

    def finish(
        self, name: str, hidden: str, caches: list[str], inputs: list[Any]
    ) -> onnx.ModelProto:
        s = self.sizes
        normal = self.normalised(hidden, "final")
        table = self.node("Transpose", [f"{self.prefix}wte"], perm=[1, 0])
        logits = self.node("MatMul", [normal, table])
        outputs = [(logits, "logits", FLOAT, (1, 1, s.vocabulary))]
        outputs += [
            (cache, name, FLOAT, s.cache_shape)
            for cache, name in zip(caches, s.cache_names("present"), strict=True)
        ]
        return self.model(name, inputs, outputs, 20)


GPT2_SMALL = Decoder(768, 12, 12, 50257, 1024, 128)
