"""Networks for pictures, as torch users write them. Pictures are [batch, 3, height, width]."""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from networks.plans import BINS, CLASSES, MOBILE_STAGES, RESNET_STAGES, STRIDES


class ConvNorm(nn.Sequential):
    """A convolution without bias that keeps the size (at stride 1), batch norm, activation."""

    def __init__(
        self,
        channels_in: int,
        channels: int,
        size: int = 3,
        stride: int = 1,
        groups: int = 1,
        act: Any = nn.ReLU,
    ) -> None:
        conv = nn.Conv2d(
            channels_in, channels, size, stride, size // 2, groups=groups, bias=False
        )
        super().__init__(conv, nn.BatchNorm2d(channels), act())


class MnistMlp(nn.Module):
    """784 -> 128 -> 10 with softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(784, 128)
        self.out = nn.Linear(128, 10)

    def forward(self, image: Tensor) -> Tensor:
        return self.out(F.relu(self.hidden(image.flatten(1)))).softmax(-1)


# -- MobileNetV2 (Sandler et al. 2018, table 2) ----------------------------------------


class InvertedResidual(nn.Module):
    def __init__(self, channels_in: int, channels: int, stride: int, expand: int) -> None:
        super().__init__()
        self.adds = stride == 1 and channels_in == channels
        wide = channels_in * expand
        parts: list[nn.Module] = []
        if expand != 1:
            parts.append(ConvNorm(channels_in, wide, 1, act=nn.ReLU6))
        parts.append(ConvNorm(wide, wide, 3, stride, groups=wide, act=nn.ReLU6))
        parts.append(ConvNorm(wide, channels, 1, act=nn.Identity))
        self.conv = nn.Sequential(*parts)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.adds else self.conv(x)


class MobileNetV2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        parts: list[nn.Module] = [ConvNorm(3, 32, 3, 2, act=nn.ReLU6)]
        at = 32
        for expand, channels, blocks, stride in MOBILE_STAGES:
            for n in range(blocks):
                parts.append(InvertedResidual(at, channels, stride if n == 0 else 1, expand))
                at = channels
        parts.append(ConvNorm(at, 1280, 1, act=nn.ReLU6))
        self.features = nn.Sequential(*parts)
        self.classifier = nn.Linear(1280, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


# -- ResNet-50 v1.5: the stride stands in the 3x3 convolution --------------------------


class Bottleneck(nn.Module):
    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.a = ConvNorm(channels_in, channels, 1)
        self.b = ConvNorm(channels, channels, 3, stride)
        self.c = ConvNorm(channels, 4 * channels, 1, act=nn.Identity)
        changes = stride != 1 or channels_in != 4 * channels
        self.short = (
            ConvNorm(channels_in, 4 * channels, 1, stride, act=nn.Identity)
            if changes
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.c(self.b(self.a(x))) + self.short(x))


class ResNet50(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvNorm(3, 64, 7, 2)
        blocks: list[nn.Module] = []
        at = 64
        for channels, count, stride in RESNET_STAGES:
            for n in range(count):
                blocks.append(Bottleneck(at, channels, stride if n == 0 else 1))
                at = 4 * channels
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(2048, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(F.max_pool2d(self.stem(x), 3, 2, 1))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


# -- ViT-S/16 (Dosovitskiy et al. 2021; width 384 of DeiT-S) ---------------------------


class VitBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Vit(nn.Module):
    def __init__(self, width: int = 384, depth: int = 12, heads: int = 6) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 16, 16)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, 197, width))
        self.blocks = nn.Sequential(*(VitBlock(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], 1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


# -- U-Net (Ronneberger et al. 2015), padded, 32 channels at the top -------------------


class Double(nn.Sequential):
    def __init__(self, channels_in: int, channels: int) -> None:
        super().__init__(ConvNorm(channels_in, channels), ConvNorm(channels, channels))


class UNet(nn.Module):
    def __init__(self, base: int = 32, depth: int = 4) -> None:
        super().__init__()
        widths = [base << n for n in range(depth + 1)]
        pairs = list(itertools.pairwise(widths))
        self.down = nn.ModuleList(
            Double(a, b) for a, b in zip([3, *widths], widths, strict=False)
        )
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in reversed(pairs))
        self.join = nn.ModuleList(Double(2 * a, a) for a, _ in reversed(pairs))
        self.out = nn.Conv2d(base, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for n, part in enumerate(self.down):
            x = part(F.max_pool2d(x, 2) if n else x)
            kept.append(x)
        kept.pop()
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([up(x), kept.pop()], 1))
        return torch.sigmoid(self.out(x))


# -- a YOLO-type detector: cross-stage parts, a pyramid, a head without anchors --------


def silu_conv(channels_in: int, channels: int, size: int = 3, stride: int = 1) -> ConvNorm:
    return ConvNorm(channels_in, channels, size, stride, act=nn.SiLU)


class Residual(nn.Module):
    def __init__(self, channels: int, adds: bool) -> None:
        super().__init__()
        self.a = silu_conv(channels, channels)
        self.b = silu_conv(channels, channels)
        self.adds = adds

    def forward(self, x: Tensor) -> Tensor:
        return x + self.b(self.a(x)) if self.adds else self.b(self.a(x))


class CrossStage(nn.Module):
    """Splits channels in two; every block's result is kept and all are joined."""

    def __init__(self, channels_in: int, channels: int, blocks: int, adds: bool) -> None:
        super().__init__()
        half = channels // 2
        self.enter = silu_conv(channels_in, channels, 1)
        self.blocks = nn.ModuleList(Residual(half, adds) for _ in range(blocks))
        self.leave = silu_conv((2 + blocks) * half, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.enter(x).chunk(2, 1))
        for block in self.blocks:
            parts.append(block(parts[-1]))
        return self.leave(torch.cat(parts, 1))


class PyramidPool(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.enter = silu_conv(channels, channels // 2, 1)
        self.leave = silu_conv(2 * channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.enter(x)]
        for _ in range(3):
            parts.append(F.max_pool2d(parts[-1], 5, 1, 2))
        return self.leave(torch.cat(parts, 1))


class Branch(nn.Sequential):
    def __init__(self, channels_in: int, channels: int, out: int) -> None:
        super().__init__(
            silu_conv(channels_in, channels),
            silu_conv(channels, channels),
            nn.Conv2d(channels, out, 1),
        )


class Yolo(nn.Module):
    """-> [batch, 4 + classes, boxes]: centre, size in pixels, and a score for each class."""

    def __init__(self, size: int = 320) -> None:
        super().__init__()
        c = (16, 32, 64, 128, 256)
        self.stem = silu_conv(3, c[0], 3, 2)
        self.shrink = nn.ModuleList(silu_conv(a, b, 3, 2) for a, b in itertools.pairwise(c))
        self.stage = nn.ModuleList(
            CrossStage(b, b, n, True) for b, n in zip(c[1:], (1, 2, 2, 1), strict=True)
        )
        self.pool = PyramidPool(256)
        self.up = nn.ModuleList([CrossStage(384, 128, 1, False), CrossStage(192, 64, 1, False)])
        self.turn = nn.ModuleList([silu_conv(64, 64, 3, 2), silu_conv(128, 128, 3, 2)])
        self.down = nn.ModuleList(
            [CrossStage(192, 128, 1, False), CrossStage(384, 256, 1, False)]
        )
        self.box = nn.ModuleList(Branch(a, 64, 4 * BINS) for a in (64, 128, 256))
        self.kind = nn.ModuleList(Branch(a, 80, CLASSES) for a in (64, 128, 256))
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        levels: list[Tensor] = []
        for shrink, stage in zip(self.shrink, self.stage, strict=True):
            x = stage(shrink(x))
            levels.append(x)
        _, small, middle, large = levels
        large = self.pool(large)
        middle = self.up[0](torch.cat([F.interpolate(large, scale_factor=2.0), middle], 1))
        small = self.up[1](torch.cat([F.interpolate(middle, scale_factor=2.0), small], 1))
        middle = self.down[0](torch.cat([self.turn[0](small), middle], 1))
        large = self.down[1](torch.cat([self.turn[1](middle), large], 1))
        found = [
            torch.cat([box(level), kind(level)], 1).flatten(2)
            for level, box, kind in zip(
                (small, middle, large), self.box, self.kind, strict=True
            )
        ]
        boxes, scores = torch.cat(found, 2).split([4 * BINS, CLASSES], 1)
        return torch.cat([self.decode(boxes), scores.sigmoid()], 1)

    def decode(self, boxes: Tensor) -> Tensor:
        """Distances to the four sides, each the mean of a distribution over bins."""
        batch, _, count = boxes.shape
        bins = torch.arange(BINS, dtype=torch.float32)
        weights = boxes.view(batch, 4, BINS, count).transpose(2, 1).softmax(1)
        sides = F.conv2d(weights, bins.view(1, BINS, 1, 1)).view(batch, 4, count)
        centres, strides = self.anchors()
        before, after = sides.chunk(2, 1)
        low, high = centres - before, centres + after
        return torch.cat([(low + high) / 2, high - low], 1) * strides

    def anchors(self) -> tuple[Tensor, Tensor]:
        centres: list[Tensor] = []
        strides: list[Tensor] = []
        for stride in STRIDES:
            n = self.size // stride
            line = torch.arange(n, dtype=torch.float32) + 0.5
            y, x = torch.meshgrid(line, line, indexing="ij")
            centres.append(torch.stack([x, y]).view(2, -1))
            strides.append(torch.full((1, n * n), float(stride)))
        return torch.cat(centres, 1), torch.cat(strides, 1)
