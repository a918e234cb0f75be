"""Kernels for known sizes: numbers instead of names, the same meaning."""

from __future__ import annotations

import numpy as np

from headrace.kernel.interp import evaluate
from headrace.kernel.known_sizes import with_sizes
from headrace.kernel.text import parse_kernel, print_kernel
from headrace.kernel.verify import verify_kernel

TEXT = """
kernel(%d0 = rows, %d1 = 3) dims(rows, count) {
  ro x : f32[rows, count]
  ro w : f32[3, count]
  wo y : f32[rows, 3]
  local a : f32
  reduce(%r0 = count) {
    %v0 = load x[%d0, %r0]
    %v1 = load w[%d1, %r0]
    %v2 = multiply(%v0, %v1) : f32
    fold %v2 from 0.0 with add into a
  }
  map() {
    %v3 = read a[]
    %v4 = index[rows - %d0] : f32
    %v5 = add(%v3, %v4) : f32
    store %v5 to y[%d0, %d1]
  }
}"""


def test_the_meaning_for_these_sizes() -> None:
    kernel = parse_kernel(TEXT)
    known = with_sizes(kernel, {"rows": 2})
    verify_kernel(known)
    assert known.dims == kernel.dims
    assert known.outer_size.value == 6
    assert print_kernel(known).count("rows") == 1
    random = np.random.default_rng(0)
    buffers = [random.standard_normal(n).astype(np.float32) for n in (10, 15, 6)]
    again = [b.copy() for b in buffers]
    evaluate(kernel, buffers, {"rows": 2, "count": 5})
    evaluate(known, again, {"rows": 2, "count": 5})
    assert buffers[2].tobytes() == again[2].tobytes()
