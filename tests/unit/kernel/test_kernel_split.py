"""A kernel in pieces means what it means whole."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.kernel.buffers import pack_operand
from headrace.kernel.classify import classify
from headrace.kernel.interp import evaluate
from headrace.kernel.split import split
from headrace.kernel.text import parse_kernel
from headrace.kernel.verify import verify_kernel

ATTENTION = """
kernel(%d0 = heads, %d1 = rows) dims(heads, rows, keys) {
  ro q : f32[heads, rows, 8]
  ro k : f32[heads, keys, 8]
  ro v : f32[heads, keys, 16]
  wo y : f32[heads, rows, 16]
  local s : f32[keys]
  local m : f32
  local t : f32
  local o : f32[16]
  reduce(%d2 = keys, %r0 = 8) {
    %v0 = load q[%d0, %d1, %r0]
    %v1 = load k[%d0, %d2, %r0]
    %v2 = multiply(%v0, %v1) : f32
    fold %v2 from 0.0 with add into s
  }
  reduce(%r0 = keys) {
    %v0 = read s[%r0]
    fold %v0 from -inf with maximum into m
  }
  map(%d2 = keys) {
    %v0 = read s[%d2]
    %v1 = read m[]
    %v2 = subtract(%v0, %v1) : f32
    %v3 = exponential(%v2) : f32
    set s[%d2] = %v3
  }
  reduce(%r0 = keys) {
    %v0 = read s[%r0]
    fold %v0 from 0.0 with add into t
  }
  reduce(%d2 = 16, %r0 = keys) {
    %v0 = read s[%r0]
    %v1 = load v[%d0, %r0, %d2]
    %v2 = multiply(%v0, %v1) : f32
    fold %v2 from 0.0 with add into o
  }
  map(%d2 = 16) {
    %v0 = read o[%d2]
    %v1 = read t[]
    %v2 = divide(%v0, %v1) : f32
    store %v2 to y[%d0, %d1, %d2]
  }
}
"""
DIMS = {"heads": 2, "rows": 5, "keys": 7}


def test_attention_in_four_pieces() -> None:
    kernel = parse_kernel(ATTENTION)
    parted = split(kernel)
    assert parted is not None
    assert [classify(p) for p in parted.pieces] == ["contract", "row", "contract", "row"]
    # The folds' results that a later piece reads go with the rows.
    assert [o.name for o in parted.kept] == ["kept_s", "kept_t", "kept_o"]
    random = np.random.default_rng(1)
    buffers = []
    for operand in kernel.operands:
        shape = tuple(s.evaluate(DIMS) for s in operand.shape)
        values = random.standard_normal(shape).astype(np.float32)
        buffers.append(pack_operand(values, operand, DIMS))
    whole = [b.copy() for b in buffers]
    evaluate(kernel, whole, DIMS)
    scratch = [np.full(o.layout.size.evaluate(DIMS), np.nan, np.float32) for o in parted.kept]
    for piece in parted.pieces:
        verify_kernel(piece)
        evaluate(piece, [*buffers, *scratch], DIMS)
    np.testing.assert_allclose(buffers[3], whole[3], rtol=1e-6)


@pytest.mark.parametrize("part", ["kernel(%d0 = 4) {\n  ro x : f32[4]\n  wo y : f32[4]\n"])
def test_one_piece_is_left_alone(part: str) -> None:
    body = "  map() {\n    %v0 = load x[%d0]\n    store %v0 to y[%d0]\n  }\n}\n"
    assert split(parse_kernel(part + body)) is None
