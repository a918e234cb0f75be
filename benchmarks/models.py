"""Builds the models that `benchmarks/cpu.py` measures: an ONNX and a StableHLO file of each.

    python benchmarks/models.py FOLDER [NAME ...]      # needs torch, onnxscript and jax

Every network stands twice in `benchmarks/networks`, in torch and in jax. Its weights are
seeded; torch's exporter writes `NAME.onnx`, jax's `NAME.mlir` (StableHLO as text where it is
small, else a portable artifact) from the same arrays. Pictures are [1, 3, height, width] in
ONNX and channels last in StableHLO; integers are i64 in ONNX and i32 in StableHLO.

The rest of this file needs neither torch nor jax: what the models are and their inputs.
"""

from __future__ import annotations

import argparse
import inspect
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from networks.plans import BERT_BASE, CACHED, GPT2_SMALL, MINILM, PROMPT

Arrays = dict[str, np.ndarray]
CACHES = {"past_*": "present_*"}
"""Outputs that take the place of inputs, where a model has caches."""


@dataclass(frozen=True)
class Model:
    """One model to measure.

    Attributes:
        name: of its files.
        title: for tables.
        inputs: example inputs of the ONNX file from a seed, by name, in order.
        outputs: names of the outputs.
        torch_network: makes the torch module.
        jax_network: makes the equal jax function of (weights, *inputs).
        text: whether the StableHLO file is text.
        pictures: whether arrays of rank 4 are channels last in StableHLO.
    """

    name: str
    title: str
    inputs: Callable[[int], Arrays]
    outputs: tuple[str, ...]
    torch_network: Callable[[], Any]
    jax_network: Callable[[], Callable[..., Any]]
    text: bool = False
    pictures: bool = False

    @property
    def has_caches(self) -> bool:
        return any(name.startswith("past_") for name in self.inputs(0))

    def stablehlo_inputs(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """The ONNX file's inputs as the StableHLO file takes them."""
        return {name: self._to_stablehlo(array) for name, array in inputs.items()}

    def from_stablehlo(self, output: np.ndarray) -> np.ndarray:
        """An output of the StableHLO file as the ONNX file gives it."""
        if self.pictures and output.ndim == 4:
            return output.transpose(0, 3, 1, 2)
        return output

    def _to_stablehlo(self, array: np.ndarray) -> np.ndarray:
        if array.dtype == np.int64:
            return array.astype(np.int32)
        if self.pictures and array.ndim == 4:
            return np.ascontiguousarray(array.transpose(0, 2, 3, 1))
        return array


# -- inputs ----------------------------------------------------------------------------


def _picture(size: int) -> Callable[[int], Arrays]:
    def make(seed: int) -> Arrays:
        values = np.random.default_rng(seed).standard_normal((1, 3, size, size))
        return {"input": values.astype(np.float32)}

    return make


def _digit(seed: int) -> Arrays:
    return {"image": np.random.default_rng(seed).random((1, 28, 28), np.float32)}


def _sentence(seed: int) -> Arrays:
    """128 tokens, the last of them padding."""
    random = np.random.default_rng(seed)
    mask = np.ones((1, 128), np.int64)
    mask[:, 100 + seed % 20 :] = 0
    return {
        "input_ids": random.integers(0, MINILM.vocabulary, (1, 128)),
        "attention_mask": mask,
        "token_type_ids": np.zeros((1, 128), np.int64),
    }


def _cache_names(kind: str) -> list[str]:
    return [f"{kind}_{n}_{part}" for n in range(GPT2_SMALL.layers) for part in ("key", "value")]


def _gpt(tokens: int, position: int | None) -> Callable[[int], Arrays]:
    def make(seed: int) -> Arrays:
        random = np.random.default_rng(seed)
        heads = GPT2_SMALL.heads
        shape = (1, heads, CACHED, GPT2_SMALL.width // heads)
        made: Arrays = {"input_ids": random.integers(0, GPT2_SMALL.vocabulary, (1, tokens))}
        if position is not None:
            made["position"] = np.array(position + seed, np.int64)
        for name in _cache_names("past"):
            made[name] = random.standard_normal(shape, np.float32)
            if position is not None:
                made[name][:, :, position + seed :] = 0
        return made

    return make


# -- the networks, loaded when a file is made ------------------------------------------


def _torch(module: str, name: str, *args: Any, **keywords: Any) -> Callable[[], Any]:
    def make() -> Any:
        import importlib

        return getattr(importlib.import_module(f"networks.torch_{module}"), name)(
            *args, **keywords
        )

    return make


def _jax(module: str, name: str, *args: Any) -> Callable[[], Callable[..., Any]]:
    def make() -> Callable[..., Any]:
        import importlib
        from functools import partial

        function = getattr(importlib.import_module(f"networks.jax_{module}"), name)
        return partial(function, *args)

    return make


_CACHES = ("logits", *_cache_names("present"))

MODELS = {
    model.name: model
    for model in (
        Model(
            "mnist_mlp", "MNIST MLP", _digit, ("probabilities",),
            _torch("vision", "MnistMlp"), _jax("vision", "mnist_mlp"), text=True,
        ),
        Model(
            "mobilenet_v2", "MobileNetV2", _picture(224), ("logits",),
            _torch("vision", "MobileNetV2"), _jax("vision", "mobilenet_v2"),
            text=True, pictures=True,
        ),
        Model(
            "resnet50", "ResNet-50 v1.5", _picture(224), ("logits",),
            _torch("vision", "ResNet50"), _jax("vision", "resnet50"), pictures=True,
        ),
        Model(
            "vit_s16", "ViT-S/16", _picture(224), ("logits",),
            _torch("vision", "Vit"), _jax("vision", "vit"), pictures=True,
        ),
        Model(
            "minilm", "MiniLM, 128 tokens", _sentence, ("last_hidden_state",),
            _torch("language", "Bert", MINILM), _jax("language", "bert", MINILM),
        ),
        Model(
            "bert_base", "BERT-base, 128 tokens", _sentence, ("last_hidden_state",),
            _torch("language", "Bert", BERT_BASE), _jax("language", "bert", BERT_BASE),
        ),
        Model(
            "gpt2_prefill", "GPT-2 small, prefill 128", _gpt(PROMPT, None), _CACHES,
            _torch("language", "Gpt", GPT2_SMALL, whole=True),
            _jax("language", "gpt", GPT2_SMALL, True),
        ),
        Model(
            "gpt2_decode", "GPT-2 small, decode", _gpt(1, PROMPT), _CACHES,
            _torch("language", "Gpt", GPT2_SMALL),
            _jax("language", "gpt", GPT2_SMALL, False),
        ),
        Model(
            "unet256", "U-Net, 256", _picture(256), ("mask",),
            _torch("vision", "UNet"), _jax("vision", "unet"), text=True, pictures=True,
        ),
        Model(
            "yolo320", "YOLO-type detector, 320", _picture(320), ("boxes",),
            _torch("vision", "Yolo"), _jax("vision", "yolo"), text=True, pictures=True,
        ),
    )
}  # fmt: skip
"""Every model by the name of its files."""


# -- building --------------------------------------------------------------------------


def seeded(network: Any, example: Sequence[Any]) -> None:
    """Gives a torch module its weights: a generator for each name, so that networks which
    share a name and shape share the weight. Batch norms then take the mean and variance
    of the example's activations, which keeps deep networks sensitive to their input."""
    import torch

    norms = (torch.nn.BatchNorm2d, torch.nn.LayerNorm)
    with torch.no_grad():
        for prefix, module in network.named_modules():
            for name, weight in module.named_parameters(prefix, recurse=False):
                random = np.random.default_rng(zlib.crc32(name.encode()))
                shape = tuple(weight.shape)
                if isinstance(module, norms) or weight.ndim == 1:
                    values = random.uniform(-0.1, 0.1, shape) + (
                        isinstance(module, norms) and name.endswith("weight")
                    )
                elif isinstance(module, torch.nn.Embedding):
                    values = random.standard_normal(shape) * 0.05
                else:
                    first = type(module).__name__ == "Affine"
                    fan_in = shape[0] if first else int(np.prod(shape[1:]))
                    values = random.standard_normal(shape) / fan_in**0.5
                weight.copy_(torch.from_numpy(values.astype(np.float32)))
        normed = [m for m in network.modules() if isinstance(m, torch.nn.BatchNorm2d)]
        for module in normed:
            module.momentum = 1.0
        if normed:
            network.train()
            network(*example)
    network.eval()


def torch_network(model: Model) -> tuple[Any, tuple[Any, ...]]:
    """The model in torch with its weights, and its example inputs as tensors."""
    import torch

    example = tuple(torch.from_numpy(array) for array in model.inputs(0).values())
    network = model.torch_network()
    seeded(network, example)
    return network, example


def write_onnx(model: Model, network: Any, example: Sequence[Any], path: Path) -> None:
    """Exports with torch's exporter. Weights stand in the file where they fit in 2 GB."""
    import torch

    torch.onnx.export(
        network,
        tuple(example),
        path,
        input_names=list(model.inputs(0)),
        output_names=list(model.outputs),
        dynamo=True,
        external_data=False,
        verbose=False,
    )


def write_stablehlo(model: Model, network: Any, path: Path) -> None:
    """Traces the jax function with the module's weights as constants, and exports it."""
    import jax

    from networks.jax_layers import Weights

    weights = Weights({k: v.detach().numpy() for k, v in network.state_dict().items()})
    function = model.jax_network()
    inputs = model.stablehlo_inputs(model.inputs(0))

    def main(*arrays: Any) -> Any:
        return function(weights, *arrays)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    main.__signature__ = inspect.Signature(  # the names of the module's arguments
        [inspect.Parameter(name, kind) for name in inputs]
    )
    shapes = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in inputs.values()]
    exported = jax.export.export(jax.jit(main))(*shapes)
    if model.text:
        path.write_text(exported.mlir_module())
    else:
        path.write_bytes(exported.mlir_module_serialized)


def build(model: Model, folder: Path) -> None:
    """Writes the files of one model."""
    network, example = torch_network(model)
    write_onnx(model, network, example, folder / f"{model.name}.onnx")
    write_stablehlo(model, network, folder / f"{model.name}.mlir")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", choices=[*MODELS, []], metavar="NAME")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.names or MODELS:
        build(MODELS[name], options.folder)
        sizes = [
            f"{path.name} {path.stat().st_size / 1e6:.1f} MB"
            for path in sorted(options.folder.glob(f"{name}.*"))
        ]
        print(", ".join(sizes), flush=True)


if __name__ == "__main__":
    main()
