"""Depthwise convolutions of many channels: channels outermost within a tile."""

from __future__ import annotations

import numpy as np
from harness import NATIVE, Linked, copied

from headrace.kernel.interp import evaluate
from headrace.kernel.text import parse_kernel
from headrace.targets.cpu import window

DEPTHWISE = """
kernel(%d0 = 300, %d1 = h, %d2 = 9) dims(h) {
  ro x : f32[300, h, 9] layout [1, 3300, 300] offset 3600 size 3300*h + 6600 halo [0, 1, 1] [0, 1, 1] value 0.0
  ro constant k : f32[300, 3, 3] layout [1, 900, 300] offset 0 size 2700
  wo y : f32[300, h, 9] layout [1, 2700, 300] offset 0 size 2700*h
  local a : f32
  reduce(%r0 = 3, %r1 = 3) {
    %v0 = load x[%d0, %d1 + %r0 - 1, %d2 + %r1 - 1]
    %v1 = load k[%d0, %r0, %r1]
    %v2 = multiply(%v0, %v1) : f32
    fold %v2 from 0.0 with add into a
  }
  map() {
    %v3 = read a[]
    store %v3 to y[%d0, %d1, %d2]
  }
}
"""


def test_channels_outermost() -> None:
    kernel = parse_kernel(DEPTHWISE)
    plan = window.match(kernel, NATIVE.machine)
    assert plan is not None and plan.schedule.turned
    random = np.random.default_rng(0)
    sizes = [o.layout.size.evaluate({"h": 4}) for o in kernel.operands]
    buffers = [random.standard_normal(size).astype(np.float32) for size in sizes]
    expected = [b.copy() for b in buffers]
    evaluate(kernel, expected, {"h": 4})
    linked, found = Linked(kernel), []
    for parts in (1, 5):
        actual = copied(buffers)
        linked(actual, {"h": 4}, parts=parts)
        np.testing.assert_allclose(actual[-1], expected[-1], rtol=1e-5, atol=1e-5)
        found.append(actual[-1].tobytes())
    assert found[0] == found[1]
