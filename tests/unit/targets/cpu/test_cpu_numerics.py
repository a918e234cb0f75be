"""`exact` numerics: every sum is one chain in the order that docs/numerics.md says."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.targets.cpu.harness import NATIVE, Linked
from tests.unit.targets.cpu.test_cpu_contract import convolution, matmul, with_wishes

from headrace.kernel.buffers import pack_operand, unpack_operand
from headrace.kernel.text import parse_kernel

EXACT = NATIVE.with_numerics("exact")

ROWS = """
kernel(%d0 = 5) {
  ro x : f32[5, 40, 37]
  wo y : f32[5]
  local a : f32
  reduce(%r0 = 37, %r1 = 40) {
    %v0 = load x[%d0, %r1, %r0]
    fold %v0 from 0.25 with add into a
  }
  map() {
    %v1 = read a[]
    store %v1 to y[%d0]
  }
}
"""

LARGEST = ROWS.replace("from 0.25 with add", "from -inf with maximum")


def run(kernel, arrays, target, parts=3):
    buffers = [pack_operand(a, o, {}) for a, o in zip(arrays, kernel.operands, strict=True)]
    Linked(kernel, target)(buffers, {}, parts=parts)
    return unpack_operand(buffers[-1], kernel.operands[-1], {})


def chain(terms, start=0.0):
    """One sum after the other, rounded to f32 each time; `terms` runs along axis 0.

    Products come unrounded in f64 (exact there): a fused multiply-add rounds once. Rounding
    to f64 first and then to f32 differs from it for one term in 2**29 or so.
    """
    total = np.full(terms.shape[1:], start, np.float32)
    for term in terms:
        total = (total.astype(np.float64) + term).astype(np.float32)
    return total


def random_of(kernel, seed=0):
    random = np.random.default_rng(seed)
    return [
        random.standard_normal([s.value for s in o.shape]).astype(np.float32)
        for o in kernel.operands
    ]


def test_a_sum_of_rows_is_one_chain_in_the_order_of_its_axes():
    kernel = parse_kernel(ROWS)
    arrays = random_of(kernel)
    terms = arrays[0].transpose(2, 1, 0).reshape(-1, 5)
    wanted = chain(terms, 0.25)
    assert run(kernel, arrays, EXACT).tobytes() == wanted.tobytes()
    assert run(kernel, arrays, NATIVE).tobytes() != wanted.tobytes()


def test_a_maximum_keeps_its_vectors():
    kernel = parse_kernel(LARGEST)
    assert Linked(kernel, EXACT).family({}) == Linked(kernel, NATIVE).family({}) == "row"


@pytest.mark.parametrize(("m", "n", "k"), [(1, 24, 500), (13, 33, 65), (20, 16, 1100)])
def test_a_product_is_one_chain(m, n, k):
    kernel = with_wishes(matmul(m, n, k), EXACT)
    arrays = random_of(kernel)
    a, w, bias = (x.astype(np.float64) for x in arrays[:3])
    wanted = chain(a.T[:, :, None] * w[:, None, :])
    wanted = np.maximum(wanted + bias.astype(np.float32), np.float32(0))
    assert run(kernel, arrays, EXACT).tobytes() == wanted.tobytes()


def test_a_convolution_adds_rows_then_columns_then_channels():
    kernel = with_wishes(convolution(32, 32, 16, 3, 1), EXACT)
    linked = Linked(kernel, EXACT)
    assert linked.family({}) == "convolution"
    arrays = random_of(kernel)
    image = np.pad(arrays[0].astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    weight, bias = arrays[1].astype(np.float64), arrays[2]
    terms = [
        image[:, None, c, y : y + 16, x : x + 16] * weight[None, :, c, y, x, None, None]
        for y in range(3)
        for x in range(3)
        for c in range(32)
    ]
    wanted = np.maximum(chain(np.array(terms)) + bias[:, None, None], np.float32(0))
    assert run(kernel, arrays, EXACT).tobytes() == wanted.tobytes()


def test_exact_is_part_of_what_code_is_kept_under():
    from headrace.code_cache import code_key

    kernel = parse_kernel(ROWS)
    assert code_key(kernel, NATIVE) != code_key(kernel, EXACT)
