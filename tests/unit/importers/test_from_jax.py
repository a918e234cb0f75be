"""JAX functions become models: names, symbolic sizes, weights, donated arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace
from headrace.base.errors import HeadraceError

jax = pytest.importorskip("jax")
jnp = jax.numpy
export = pytest.importorskip("jax.export")


def run(model: Any, folder: Path, *inputs: Any, **named: Any) -> dict[str, Any]:
    path = headrace.compile(model, folder / "model.hrx")
    with headrace.load(path) as module:
        return {name: np.array(value) for name, value in module(*inputs, **named).items()}


def test_a_function_with_weights_and_nested_arguments(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)

    def layer(x: Any, p: Any) -> Any:
        return {"y": jnp.tanh(x @ weight) + p["bias"], "total": x.sum()}

    x = np.ones((3, 64), np.float32)
    bias = np.full(32, 0.5, np.float32)
    model = headrace.from_jax(layer, x, {"bias": bias})
    assert len(model.parameters) == 1
    found = run(model, tmp_path, **{"x": x, "p.bias": bias})
    wanted = layer(x, {"bias": bias})
    assert set(found) == {"y", "total"}
    for name, value in found.items():
        np.testing.assert_allclose(value, wanted[name], rtol=1e-5, atol=1e-5)


def test_symbolic_sizes_stay_open(tmp_path: Path) -> None:
    (batch,) = export.symbolic_shape("batch")

    def stack(x: Any) -> Any:
        twice = jnp.concatenate([x, x + 1], 0)
        return twice.reshape(-1), jax.nn.softmax(x, axis=0), jnp.arange(x.shape[0]) * 2

    model = headrace.from_jax(stack, jax.ShapeDtypeStruct((batch, 4), np.float32))
    path = headrace.compile(model, tmp_path / "m.hrx")
    with headrace.load(path) as module:
        assert str(module.inputs[0].shape[0]) == "batch"
        for size in (1, 3, 7):
            x = np.random.default_rng(size).random((size, 4)).astype(np.float32)
            for found, wanted in zip(module(x), stack(jnp.asarray(x)), strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_an_exported_function_and_unused_arguments(tmp_path: Path) -> None:
    exported = export.export(jax.jit(lambda x, unused: jnp.sin(x)))(
        np.ones(5, np.float32), np.ones(2, np.float32)
    )
    model = headrace.from_jax(exported)
    found = run(model, tmp_path, np.arange(5, dtype=np.float32))
    np.testing.assert_allclose(found["result0"], np.sin(np.arange(5)), rtol=1e-5)


def test_donated_arguments_stay_donated() -> None:
    step = jax.jit(lambda cache, x: (cache.at[0].set(x), x + 1), donate_argnums=0)
    model = headrace.from_jax(step, np.zeros((4, 8), np.float32), np.ones(8, np.float32))
    (function,) = model.ir.body.block.ops
    assert "hr.alias" in str(function.properties["res_attrs"])


def test_what_cannot_be_exported_is_told() -> None:
    with pytest.raises(HeadraceError, match="HR1009") as refused:
        headrace.from_jax(lambda x: x @ x, np.ones((2, 3), np.float32))
    assert "jax function '<lambda>'" in str(refused.value)
    exported = export.export(jax.jit(jnp.sin))(np.ones(2, np.float32))
    with pytest.raises(HeadraceError, match="has its arguments already"):
        headrace.from_jax(exported, np.ones(2, np.float32))
    both = export.export(jax.jit(jnp.sin), platforms=["cpu", "cuda"])(np.ones(2, np.float32))
    with pytest.raises(HeadraceError, match="HR1010"):
        headrace.from_jax(both)


def test_a_missing_jax_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(HeadraceError, match=r"headrace\[jax\]"):
        headrace.from_jax(lambda x: x, np.ones(2, np.float32))
