"""Precision `tf32`: what it makes of factors, in the meaning and in the text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headrace.kernel.interp import evaluate
from headrace.kernel.shortened import TF32_TOLERANCE, shortened, sums_products
from headrace.kernel.text import KernelTextError, parse_kernel, print_kernel

MATMUL = """
kernel(%d0 = 7, %d1 = 9) {
  ro x : f32[7, 40]
  ro w : f32[40, 9]
  wo y : f32[7, 9]
  local a : f32
  reduce(%r0 = 40) {
    %v0 = load x[%d0, %r0]
    %v1 = load w[%r0, %d1]
    %v2 = multiply(%v0, %v1) : f32
    fold %v2 from 0.0 with add into a
  }
  map() {
    %v3 = read a[]
    store %v3 to y[%d0, %d1]
  }
}
"""


def test_factors_keep_ten_bits_of_mantissa() -> None:
    given = np.array([1 + 2.0**-10, 1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 - 2.0**-12, -3.0e38])
    made = shortened(given.astype(np.float32))
    assert made[:4].tolist() == [1 + 2.0**-10, 1.0, 1 + 2.0**-9, 1.0]
    assert not np.any(made.view(np.uint32) & 0x1FFF)
    special = np.array([np.inf, -np.inf, np.nan, -0.0], np.float32)
    np.testing.assert_array_equal(shortened(special), special)
    doubles = np.array([1 + 2.0**-40])
    assert shortened(doubles) is doubles


def test_a_sum_of_products_differs_by_what_is_said() -> None:
    kernel = parse_kernel(MATMUL)
    assert sums_products(kernel)
    random = np.random.default_rng(3)
    factors = [random.standard_normal(o.layout.size.value, np.float32) for o in kernel.operands]
    results = []
    for precision in ("ieee", "tf32"):
        buffers = [f.copy() for f in factors]
        evaluate(replace(kernel, precision=precision), buffers, {})
        results.append(buffers[kernel.outputs[0]])
    magnitudes = [np.abs(f) for f in factors]
    evaluate(kernel, magnitudes, {})
    difference = np.abs(results[0] - results[1])
    assert difference.max() > 0
    assert np.all(difference <= TF32_TOLERANCE * magnitudes[kernel.outputs[0]])


def test_the_text_holds_it() -> None:
    kernel = replace(parse_kernel(MATMUL), precision="tf32")
    text = print_kernel(kernel)
    assert " precision(tf32) {" in text
    assert parse_kernel(text) == kernel
    assert "precision" not in print_kernel(parse_kernel(MATMUL))
    with pytest.raises(KernelTextError, match="ieee or tf32"):
        parse_kernel(text.replace("tf32", "fp8"))
