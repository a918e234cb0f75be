"""The networks of `torch_language.py` in jax."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from networks.jax_layers import (
    Weights,
    attend,
    dense,
    join_heads,
    layer_norm,
    split_heads,
)
from networks.plans import CACHED, BertSize, GptSize

LOWEST = np.finfo(np.float32).min


def bert(size: BertSize, w: Weights, input_ids: Any, attention_mask: Any, kinds: Any) -> Any:
    length = input_ids.shape[1]
    x = jnp.asarray(w["words.weight"])[input_ids] + jnp.asarray(w["kinds.weight"])[kinds]
    x = layer_norm(w / "norm", x + w["positions.weight"][:length], 1e-12)
    mask = (1.0 - attention_mask[:, None, None, :].astype(jnp.float32)) * LOWEST
    for n in range(size.layers):
        layer = w / "layers" / n
        q, k, v = (
            split_heads(dense(layer / p, x), size.heads) for p in ("query", "key", "value")
        )
        mixed = dense(layer / "dense", join_heads(attend(q, k, v, mask)))
        x = layer_norm(layer / "norm1", mixed + x, 1e-12)
        hidden = jax.nn.gelu(dense(layer / "inner", x), approximate=False)
        x = layer_norm(layer / "norm2", dense(layer / "outer", hidden) + x, 1e-12)
    return x


def _affine(w: Weights, x: Any) -> Any:
    return x @ w["weight"] + w["bias"]


def gpt(size: GptSize, whole: bool, w: Weights, input_ids: Any, *state: Any) -> Any:
    """One step, as `torch_language.Gpt`; the caches are updated by dynamic_update_slice."""
    length = input_ids.shape[1]
    position, caches = (0, state) if whole else (state[0], state[1:])
    places = jnp.arange(length) + position
    seen = jnp.arange(length if whole else CACHED)
    mask = jnp.where(seen[None, :] <= places[:, None], 0.0, LOWEST)
    table = jnp.asarray(w["wte.weight"])
    x = table[input_ids] + jnp.asarray(w["wpe.weight"])[places]
    updated: list[Any] = []
    for n in range(size.layers):
        block, keys, values = w / "h" / n, caches[2 * n], caches[2 * n + 1]
        qkv = _affine(block / "c_attn", layer_norm(block / "ln_1", x, 1e-5))
        q, k, v = (split_heads(t, size.heads) for t in jnp.split(qkv, 3, -1))
        keys = lax.dynamic_update_slice(keys, k, (0, 0, position, 0))
        values = lax.dynamic_update_slice(values, v, (0, 0, position, 0))
        if not whole:
            k, v = keys, values
        x = x + _affine(block / "c_proj", join_heads(attend(q, k, v, mask)))
        hidden = _affine(block / "c_fc", layer_norm(block / "ln_2", x, 1e-5))
        x = x + _affine(block / "c_out", jax.nn.gelu(hidden, approximate=True))
        updated += [keys, values]
    return (layer_norm(w / "ln_f", x[:, -1], 1e-5) @ table.T, *updated)
