"""Keras 3 models: exported to StableHLO by `jax.export`, weights taken as they are.

`load` reads a `.keras` file (weights are data; Python code inside layers is refused by
Keras's safe mode), `from_keras` takes a model in memory. Needs the extra
`headrace[keras]`; loads on first use.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from headrace.base.errors import error
from headrace.base.parameters import Source, array_source
from headrace.importers.options import ExportedModel, ImportOptions


def load(path: Path, options: ImportOptions) -> ExportedModel:
    """The model in a `.keras` file, as StableHLO for the table.

    Args:
        path: of the file.
        options: the dimension `batch` fixes what Keras leaves open, 1 where not given.

    Raises:
        HeadraceError HR1003: keras or jax is missing; HR1005: Keras refuses the file.
    """
    keras = _keras(path.name)
    try:
        model = keras.saving.load_model(path, compile=False, safe_mode=True)
    except Exception as refused:
        raise error(
            "HR1005",
            "Keras cannot load this file",
            at=path.name,
            notes=str(refused).strip().splitlines()[:4],
        ) from refused
    return from_keras(model, path.name, options)


def from_keras(model: Any, source: str, options: ImportOptions) -> ExportedModel:
    """A Keras model in memory, for inference, as StableHLO for the table.

    Sizes that Keras leaves open take the dimension `batch`, 1 where not given.

    Raises:
        HeadraceError HR1003: keras or jax is missing; HR1006: Keras's backend is not JAX;
            HR1101: operations that are not supported, all at once.
    """
    keras = _keras(source)
    if keras.config.backend() != "jax":
        raise error(
            "HR1006",
            f"Keras runs on '{keras.config.backend()}', and exporting needs its JAX backend",
            at=source,
            helps="set KERAS_BACKEND=jax before keras is imported",
        )
    import jax
    import numpy as np
    from jax import export

    if not model.built:
        raise error(
            "HR1007",
            "the model has no input shape yet",
            at=source,
            helps="give it an Input layer, or call it once",
        )
    batch = options.dimensions.get("batch", 1)
    if not isinstance(batch, int):
        raise error(
            "HR1008",
            "a Keras model is exported at one batch size",
            at=source,
            helps="give the batch one size, as in --dim batch=1",
        )
    trainable = [v.value for v in model.trainable_variables]
    frozen = [v.value for v in model.non_trainable_variables]

    def infer(weights: Any, *inputs: Any) -> Any:
        structured = inputs[0] if len(inputs) == 1 else list(inputs)
        result, _ = model.stateless_call(weights[0], weights[1], structured, training=False)
        return result

    def spec(value: Any) -> Any:
        return jax.ShapeDtypeStruct(value.shape, value.dtype)

    inputs = [
        jax.ShapeDtypeStruct(tuple(s or batch for s in i.shape), np.dtype(i.dtype))
        for i in model.inputs
    ]
    weights = jax.tree.map(spec, (trainable, frozen))
    exported = export.export(jax.jit(infer))(weights, *inputs)
    variables = [*model.trainable_variables, *model.non_trainable_variables]
    # jax.export drops arguments that the function never reads (seeds, counters).
    kept: dict[int, tuple[str, Source]] = {}
    for position, flat in enumerate(exported.module_kept_var_idx):
        if flat < len(variables):
            kept[position] = (
                variables[flat].path,
                array_source(np.asarray(variables[flat].value)),
            )
    return ExportedModel(
        str(model.name),
        source,
        exported.mlir_module_serialized,
        kept,
        tuple(i.name for i in model.inputs),
        tuple(o.name for o in model.outputs),
        ("batch",),
    )


def _keras(source: str) -> Any:
    os.environ.setdefault("KERAS_BACKEND", "jax")
    try:
        import jax  # noqa: F401  # pyright: ignore[reportUnusedImport]
        import keras
    except ImportError as missing:
        raise error(
            "HR1003",
            f"reading Keras models needs {missing.name}, which is not installed",
            at=source,
            helps="pip install 'headrace[keras]'",
        ) from missing
    return keras
