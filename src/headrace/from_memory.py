"""Models of other libraries in memory, made ready for `api.compile`.

Importers and their libraries load inside the functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.given import PathLike

if TYPE_CHECKING:
    from onnx import ModelProto

    from headrace.importers.options import DimensionChoice
    from headrace.ir.model import Model


def from_keras(model: Any, *, dims: Mapping[str, DimensionChoice] | None = None) -> Model:
    """A Keras 3 model in memory, ready for `compile`.

    Args:
        model: built; sequential and functional models of supported layers.
        dims: `batch` fixes the size that Keras leaves open; 1 by default.

    Raises:
        HeadraceError HR1003: `headrace[keras]` is missing; HR1xxx: it cannot be imported.
    """
    from headrace.importers import keras
    from headrace.importers.options import ImportOptions
    from headrace.importers.table import import_exported

    exported = keras.from_keras(model, f"keras model '{model.name}'", ImportOptions(dims or {}))
    return import_exported(exported)


def from_jax(function: Any, *arguments: Any) -> Model:
    """A JAX function, ready for `compile`.

    Args:
        function: to be traced, or jitted already (donated arguments stay donated); or an
            `Exported` of `jax.export`, without arguments.
        arguments: arrays or `jax.ShapeDtypeStruct`s, nested as the function takes them.
            Sizes that are symbolic (`jax.export.symbolic_shape`) stay open.

    Raises:
        HeadraceError HR1003: `headrace[jax]` is missing; HR1009: JAX cannot export it;
            HR1xxx: it cannot be imported.
    """
    from headrace.importers import jax
    from headrace.importers.table import import_exported

    name = getattr(function, "__name__", None) or getattr(function, "fun_name", "function")
    return import_exported(jax.from_jax(function, arguments, f"jax function '{name}'"))


def from_onnx(
    model: ModelProto,
    *,
    folder: PathLike | None = None,
    dims: Mapping[str, DimensionChoice] | None = None,
    constants: Mapping[str, Any] | None = None,
    examples: Mapping[str, Any] | None = None,
) -> Model:
    """An ONNX model in memory, ready for `compile`.

    Args:
        folder: where external weights lie; None refuses them.
        constants: inputs that always hold these arrays; they leave the signature.
        examples: how many tensors of which shapes sequences and optionals hold.

    Raises:
        HeadraceError HR1xxx: it cannot be imported; HR0203: no such dimension.
    """
    from headrace.importers.onnx.reader import import_model

    place = None if folder is None else Path(folder)
    return import_model(
        model, folder=place, dimensions=dims, constants=constants, examples=examples
    )


def from_torch(
    module: Any,
    *arguments: Any,
    dynamic_shapes: Any = None,
    dims: Mapping[str, DimensionChoice] | None = None,
) -> Model:
    """A PyTorch module in memory, ready for `compile`.

    Args:
        module: a `torch.nn.Module`, exported for inference.
        arguments: example tensors, as its `forward` takes them.
        dynamic_shapes: which sizes stay open, as `torch.export` takes them
            (`({0: "batch"},)`); None for none.
        dims: sizes and bounds of those.

    Raises:
        HeadraceError HR1003: `headrace[torch]` is missing; HR1011: PyTorch cannot export it;
            HR1012: it is too large for a model in memory; HR1xxx: it cannot be imported.
    """
    from headrace.importers import torch

    source = f"torch module '{type(module).__name__}'"
    return from_onnx(torch.to_onnx(module, arguments, dynamic_shapes, source), dims=dims)
