"""The networks of `torch_vision.py` in jax, channels last."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from networks.jax_layers import (
    Activation,
    Weights,
    attend,
    conv,
    conv_norm,
    conv_transpose,
    dense,
    join_heads,
    layer_norm,
    linear,
    max_pool,
)
from networks.plans import BINS, MOBILE_STAGES, RESNET_STAGES, STRIDES


def mnist_mlp(w: Weights, image: Any) -> Any:
    x = jax.nn.relu(dense(w / "hidden", image.reshape(image.shape[0], -1)))
    return jax.nn.softmax(dense(w / "out", x), -1)


def mobilenet_v2(w: Weights, x: Any) -> Any:
    features = w / "features"
    x = conv_norm(features / 0, x, 2, jax.nn.relu6)
    number = 1
    for expand, _, blocks, stride in MOBILE_STAGES:
        for n in range(blocks):
            x = _inverted_residual(
                features / number / "conv", x, expand, stride if n == 0 else 1
            )
            number += 1
    x = conv_norm(features / number, x, 1, jax.nn.relu6)
    return dense(w / "classifier", x.mean((1, 2)))


def _inverted_residual(w: Weights, x: Any, expand: int, stride: int) -> Any:
    y, at = x, 0
    if expand != 1:
        y, at = conv_norm(w / 0, y, 1, jax.nn.relu6), 1
    y = conv_norm(w / at, y, stride, jax.nn.relu6)
    y = conv_norm(w / (at + 1), y, 1, linear)
    return x + y if x.shape == y.shape else y


def resnet50(w: Weights, x: Any) -> Any:
    x = max_pool(conv_norm(w / "stem", x, 2), 3, 2, 1)
    number = 0
    for _, blocks, stride in RESNET_STAGES:
        for n in range(blocks):
            block, step = w / "blocks" / number, stride if n == 0 else 1
            y = conv_norm(block / "b", conv_norm(block / "a", x), step)
            y = conv_norm(block / "c", y, 1, linear)
            short = conv_norm(block / "short", x, step, linear) if "short" in block else x
            x = jax.nn.relu(y + short)
            number += 1
    return dense(w / "head", x.mean((1, 2)))


def vit(w: Weights, x: Any, heads: int = 6) -> Any:
    x = conv(w / "patch", x, 16, 0)
    x = x.reshape(x.shape[0], -1, x.shape[3])
    first = jnp.broadcast_to(w["cls_token"], (x.shape[0], 1, x.shape[2]))
    x = jnp.concatenate([first, x], 1) + w["pos_embed"]
    number = 0
    while str(number) in w / "blocks":
        x = _vit_block(w / "blocks" / number, x, heads)
        number += 1
    return dense(w / "head", layer_norm(w / "norm", x, 1e-6)[:, 0])


def _vit_block(w: Weights, x: Any, heads: int) -> Any:
    batch, length, width = x.shape
    qkv = dense(w / "qkv", layer_norm(w / "norm1", x, 1e-6))
    qkv = qkv.reshape(batch, length, 3, heads, width // heads)
    q, k, v = (qkv[:, :, n].transpose(0, 2, 1, 3) for n in range(3))
    x = x + dense(w / "proj", join_heads(attend(q, k, v)))
    hidden = dense(w / "fc1", layer_norm(w / "norm2", x, 1e-6))
    return x + dense(w / "fc2", jax.nn.gelu(hidden, approximate=False))


def unet(w: Weights, x: Any, depth: int = 4) -> Any:
    def double(part: Weights, y: Any) -> Any:
        return conv_norm(part / 1, conv_norm(part / 0, y))

    kept: list[Any] = []
    for n in range(depth + 1):
        x = double(w / "down" / n, max_pool(x, 2, 2, 0) if n else x)
        kept.append(x)
    kept.pop()
    for n in range(depth):
        x = jnp.concatenate([conv_transpose(w / "up" / n, x), kept.pop()], -1)
        x = double(w / "join" / n, x)
    return jax.nn.sigmoid(conv(w / "out", x))


# -- the detector ----------------------------------------------------------------------


def _silu(w: Weights, x: Any, stride: int = 1, act: Activation = jax.nn.silu) -> Any:
    return conv_norm(w, x, stride, act)


def _cross_stage(w: Weights, x: Any, adds: bool) -> Any:
    parts = list(jnp.split(_silu(w / "enter", x), 2, -1))
    number = 0
    while str(number) in w / "blocks":
        block = w / "blocks" / number
        y = _silu(block / "b", _silu(block / "a", parts[-1]))
        parts.append(parts[-1] + y if adds else y)
        number += 1
    return _silu(w / "leave", jnp.concatenate(parts, -1))


def _pyramid_pool(w: Weights, x: Any) -> Any:
    parts = [_silu(w / "enter", x)]
    for _ in range(3):
        parts.append(max_pool(parts[-1], 5, 1, 2))
    return _silu(w / "leave", jnp.concatenate(parts, -1))


def _branch(w: Weights, x: Any) -> Any:
    return conv(w / 2, _silu(w / 1, _silu(w / 0, x)))


def _twice(x: Any) -> Any:
    batch, height, width, channels = x.shape
    return jax.image.resize(x, (batch, 2 * height, 2 * width, channels), "nearest")


def yolo(w: Weights, x: Any) -> Any:
    x = _silu(w / "stem", x, 2)
    levels: list[Any] = []
    for n in range(4):
        x = _cross_stage(w / "stage" / n, _silu(w / "shrink" / n, x, 2), True)
        levels.append(x)
    _, small, middle, large = levels
    large = _pyramid_pool(w / "pool", large)
    up, down, turn = w / "up", w / "down", w / "turn"
    middle = _cross_stage(up / 0, jnp.concatenate([_twice(large), middle], -1), False)
    small = _cross_stage(up / 1, jnp.concatenate([_twice(middle), small], -1), False)
    turned = _silu(turn / 0, small, 2)
    middle = _cross_stage(down / 0, jnp.concatenate([turned, middle], -1), False)
    turned = _silu(turn / 1, middle, 2)
    large = _cross_stage(down / 1, jnp.concatenate([turned, large], -1), False)
    found: list[Any] = []
    for n, level in enumerate((small, middle, large)):
        both = [_branch(w / "box" / n, level), _branch(w / "kind" / n, level)]
        joined = jnp.concatenate(both, -1)
        found.append(joined.reshape(joined.shape[0], -1, joined.shape[3]))
    every = jnp.concatenate(found, 1)
    boxes, scores = every[..., : 4 * BINS], every[..., 4 * BINS :]
    sizes = [level.shape[1] for level in (small, middle, large)]
    answer = jnp.concatenate([_decode(boxes, sizes), jax.nn.sigmoid(scores)], -1)
    return answer.transpose(0, 2, 1)


def _decode(boxes: Any, sizes: list[int]) -> Any:
    batch, count, _ = boxes.shape
    weights = jax.nn.softmax(boxes.reshape(batch, count, 4, BINS), -1)
    sides = weights @ jnp.arange(BINS, dtype=jnp.float32)
    centres, strides = [], []
    for size, stride in zip(sizes, STRIDES, strict=True):
        line = np.arange(size, dtype=np.float32) + np.float32(0.5)
        y, x = np.meshgrid(line, line, indexing="ij")
        centres.append(np.stack([x.ravel(), y.ravel()], 1))
        strides.append(np.full((size * size, 1), stride, np.float32))
    centre = np.concatenate(centres)
    low, high = centre - sides[..., :2], centre + sides[..., 2:]
    return jnp.concatenate([(low + high) / 2, high - low], -1) * np.concatenate(strides)
