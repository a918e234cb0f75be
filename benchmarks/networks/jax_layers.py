"""Layers as jax users write them: pictures are [batch, height, width, channels].

Weights are those of the torch networks, found by name; they are turned here, while tracing,
so that the exported module holds them the way a jax network does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Activation = Callable[[Any], Any]


@dataclass(frozen=True)
class Weights:
    """The weights whose names start with `prefix`; `w / "name"` goes one step down."""

    arrays: Mapping[str, np.ndarray]
    prefix: str = ""

    def __truediv__(self, name: str | int) -> Weights:
        return Weights(self.arrays, f"{self.prefix}{name}.")

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[self.prefix + name]

    def __contains__(self, name: str) -> bool:
        return any(known.startswith(self.prefix + name) for known in self.arrays)


def dense(w: Weights, x: Any) -> Any:
    return x @ np.ascontiguousarray(w["weight"].T) + w["bias"]


def conv(w: Weights, x: Any, stride: int = 1, pad: int | None = None) -> Any:
    kernel = np.ascontiguousarray(w["weight"].transpose(2, 3, 1, 0))
    pad = kernel.shape[0] // 2 if pad is None else pad
    made = lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        [(pad, pad)] * 2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=x.shape[-1] // kernel.shape[2],
    )
    return made + w["bias"] if "bias" in w else made


def conv_transpose(w: Weights, x: Any) -> Any:
    """2 x 2 with stride 2."""
    kernel = np.ascontiguousarray(w["weight"].transpose(2, 3, 1, 0))
    made = lax.conv_transpose(
        x,
        kernel,
        (2, 2),
        "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        transpose_kernel=True,
    )
    return made + w["bias"]


def batch_norm(w: Weights, x: Any, epsilon: float = 1e-5) -> Any:
    scale = lax.rsqrt(w["running_var"] + np.float32(epsilon)) * w["weight"]
    return (x - w["running_mean"]) * scale + w["bias"]


def layer_norm(w: Weights, x: Any, epsilon: float) -> Any:
    mean = jnp.mean(x, -1, keepdims=True)
    variance = jnp.mean(jnp.square(x - mean), -1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + epsilon) * w["weight"] + w["bias"]


def conv_norm(w: Weights, x: Any, stride: int = 1, act: Activation = jax.nn.relu) -> Any:
    return act(batch_norm(w / 1, conv(w / 0, x, stride)))


def linear(x: Any) -> Any:
    return x


def max_pool(x: Any, size: int, stride: int, pad: int) -> Any:
    window, steps = (1, size, size, 1), (1, stride, stride, 1)
    pads = ((0, 0), (pad, pad), (pad, pad), (0, 0))
    return lax.reduce_window(x, -jnp.inf, lax.max, window, steps, pads)


def attend(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """[batch, heads, length, width of a head]; `mask` is added to the scores."""
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / np.float32(q.shape[-1] ** 0.5)
    weights = jax.nn.softmax(scores if mask is None else scores + mask, -1)
    return jnp.einsum("bhqk,bhkd->bhqd", weights, v)


def split_heads(x: Any, heads: int) -> Any:
    batch, length, width = x.shape
    return x.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)


def join_heads(x: Any) -> Any:
    batch, heads, length, width = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, length, heads * width)
