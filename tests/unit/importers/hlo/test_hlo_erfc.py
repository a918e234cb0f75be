"""`erfc` as JAX writes it out in StableHLO: recognised, and as accurate as what it replaces."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from headrace import api
from headrace.importers import stablehlo
from headrace.ir.passes import make_pass
from headrace.ir.text import print_module
from headrace.tensor.interp import evaluate_function

jax = pytest.importorskip("jax")


def exported(function: object, dtype: str, size: int) -> str:
    return jax.export.export(jax.jit(function))(
        jax.ShapeDtypeStruct((size,), dtype)
    ).mlir_module()


def is_recognised(text: str) -> bool:
    """Whether the model as compiled has one division, not the two of JAX's pattern."""
    model = stablehlo.load_module(text, "t.mlir")
    for name in ("tensor-inline-splats", "tensor-raise-erfc", "tensor-eliminate-dead-code"):
        make_pass(name).run(model)
    return print_module(model.ir).count("tensor.divide") == 1


def computed(text: str, x: np.ndarray, folder: Path) -> np.ndarray:
    model = stablehlo.load_module(text, "t.mlir")
    with api.load(api.compile(model, folder / "t.hrx")) as module:
        return np.array(module(x)[0])


def test_erfc_of_f32_within_ulps_of_the_truth(tmp_path: Path) -> None:
    x = np.linspace(-10, 9, 4001, dtype=np.float32)
    found = computed(exported(jax.scipy.special.erfc, "float32", x.size), x, tmp_path)
    truth = np.array([math.erfc(v) for v in x.tolist()])
    ulps = np.abs(found - truth) / np.spacing(truth.astype(np.float32))
    assert ulps[x < 2].max() <= 5
    assert ulps[(x >= 2) & (x < 4)].max() <= 12
    assert ulps[x >= 4].max() <= 80


def test_erfc_at_the_ends(tmp_path: Path) -> None:
    x = np.array([math.inf, -math.inf, math.nan, 0.0, -0.0, 1e30, -1e30, 1e-40], np.float32)
    found = computed(exported(jax.scipy.special.erfc, "float32", x.size), x, tmp_path)
    np.testing.assert_allclose(found, [0, 2, math.nan, 1, 1, 0, 2, 1], rtol=3e-7)


def gelu(x: object) -> object:
    return jax.nn.gelu(x, approximate=False)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gelu_is_recognised_and_keeps_its_accuracy(dtype: str, tmp_path: Path) -> None:
    x = np.linspace(-6, 6, 2001).astype(jax.numpy.dtype(dtype))
    text = exported(gelu, dtype, x.size)
    assert is_recognised(text)
    assert is_recognised(exported(gelu, dtype, 8))
    meant = evaluate_function(stablehlo.load_module(text, "t.mlir"), [x])[0]
    found = computed(text, x, tmp_path)
    wide = x.astype(np.float64)
    truth = np.array([0.5 * v * math.erfc(-v / math.sqrt(2.0)) for v in wide.tolist()])
    worst = np.abs(np.asarray(meant, np.float64) - truth).max()
    assert np.abs(found.astype(np.float64) - truth).max() <= 1.5 * worst + 1e-7
