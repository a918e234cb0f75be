"""Networks for text, as torch users write them. Token ids are i64 [batch, length]."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from networks.plans import CACHED, GPT2_SMALL, BertSize, GptSize


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[batch, length, width] -> [batch, heads, length, width / heads]."""
    return x.view(x.shape[0], x.shape[1], heads, x.shape[2] // heads).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], x.shape[1] * x.shape[3])


# -- BERT (Devlin et al. 2019) ---------------------------------------------------------


class BertLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.dense = nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width, eps=1e-12)
        self.inner = nn.Linear(width, 4 * width)
        self.outer = nn.Linear(4 * width, width)
        self.norm2 = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (split_heads(p(x), self.heads) for p in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = self.norm1(self.dense(join_heads(mixed)) + x)
        return self.norm2(self.outer(F.gelu(self.inner(x))) + x)


class Bert(nn.Module):
    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.words = nn.Embedding(size.vocabulary, size.width)
        self.positions = nn.Embedding(size.positions, size.width)
        self.kinds = nn.Embedding(2, size.width)
        self.norm = nn.LayerNorm(size.width, eps=1e-12)
        self.layers = nn.ModuleList(
            BertLayer(size.width, size.heads) for _ in range(size.layers)
        )

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> Tensor:
        places = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
        x = self.words(input_ids) + self.kinds(token_type_ids) + self.positions(places)
        x = self.norm(x)
        kept = attention_mask[:, None, None, :].to(x.dtype)
        mask = (1.0 - kept) * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, mask)
        return x


# -- GPT-2 (Radford et al. 2019), its cache of a fixed size ----------------------------


class Affine(nn.Module):
    """A dense layer whose weight is [in, out], as GPT-2 stores it."""

    def __init__(self, width_in: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width_in, width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        flat = torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight)
        return flat.view(*x.shape[:-1], self.weight.shape[1])


class GptBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.c_attn = Affine(width, 3 * width)
        self.c_proj = Affine(width, width)
        self.ln_2 = nn.LayerNorm(width)
        self.c_fc = Affine(width, 4 * width)
        self.c_out = Affine(4 * width, width)

    def forward(
        self, x: Tensor, keys: Tensor, values: Tensor, places: Tensor, mask: Tensor, whole: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.c_attn(self.ln_1(x)).split(x.shape[2], 2)
        q, k, v = (split_heads(t, self.heads) for t in (q, k, v))
        rows = places.view(1, 1, -1, 1).expand_as(k)
        keys, values = keys.scatter(2, rows, k), values.scatter(2, rows, v)
        if not whole:
            k, v = keys, values
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.c_proj(join_heads(mixed))
        hidden = F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh")
        return x + self.c_out(hidden), keys, values


class Gpt(nn.Module):
    """One step: the tokens' keys and values go into the caches at their positions.

    Inputs are `input_ids` [1, n], the first token's `position` (i64 []) and the caches of all
    layers, key and value in turn, [1, heads, CACHED, 64]. Outputs are the last token's logits
    [1, vocabulary] and the caches. The first step of a conversation, `whole`, has no
    `position`: it is 0, and tokens attend to the step's own only.
    """

    def __init__(self, size: GptSize = GPT2_SMALL, whole: bool = False) -> None:
        super().__init__()
        self.wte = nn.Embedding(size.vocabulary, size.width)
        self.wpe = nn.Embedding(size.positions, size.width)
        self.h = nn.ModuleList(GptBlock(size.width, size.heads) for _ in range(size.layers))
        self.ln_f = nn.LayerNorm(size.width)
        self.whole = whole

    def forward(self, input_ids: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        length = input_ids.shape[1]
        position, caches = (None, state) if self.whole else (state[0], state[1:])
        places = torch.arange(length)
        if position is not None:
            places = places + position
        seen = torch.arange(length if self.whole else CACHED)
        mask = seen[None, None, None, :] <= places[None, None, :, None]
        x = self.wte(input_ids) + self.wpe(places)[None]
        updated: list[Tensor] = []
        for block, key, value in zip(self.h, caches[0::2], caches[1::2], strict=True):
            x, key, value = block(x, key, value, places, mask, self.whole)
            updated += [key, value]
        last = self.ln_f(x[:, -1])
        return (F.linear(last, self.wte.weight), *updated)
