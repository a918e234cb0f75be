"""Sizes of the networks, shared by their torch and their jax form."""

from __future__ import annotations

from dataclasses import dataclass

MOBILE_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""MobileNetV2: expansion, channels, blocks, stride of the first block."""

RESNET_STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
"""ResNet-50: channels, blocks, stride of the first block."""

CLASSES, BINS = 80, 16
STRIDES = (8, 16, 32)
"""The detector: classes, bins of a side's distribution, pixels a cell of each level."""


@dataclass(frozen=True)
class BertSize:
    width: int = 768
    layers: int = 12
    heads: int = 12
    vocabulary: int = 30522
    positions: int = 512


BERT_BASE = BertSize()
MINILM = BertSize(width=384, layers=6)


@dataclass(frozen=True)
class GptSize:
    width: int = 768
    layers: int = 12
    heads: int = 12
    vocabulary: int = 50257
    positions: int = 1024


GPT2_SMALL = GptSize()
CACHED, PROMPT = 256, 128
"""Positions of a cache; tokens of the prompt."""
