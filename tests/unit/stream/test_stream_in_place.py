"""Kernels that write over an operand give the same as those that do not."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.kernel.interp import evaluate
from headrace.kernel.text import parse_kernel
from headrace.kernel.verify import verify_kernel
from headrace.stream.in_place import in_place_operand, written_in_place

SUM = """kernel(%d0 = 6) {
  ro x : f32[6]
  wo z : f32[6]
  ro y : f32[6]
  map() {
    %v0 = load x[%d0]
    %v1 = load y[%d0]
    %v2 = subtract(%v0, %v1) : f32
    store %v2 to z[%d0]
  }
}"""

SOFTMAX = """kernel(%d0 = 3) {
  ro x : f32[3, 4]
  ro b : f32[3, 4]
  wo z : f32[3, 4]
  local m : f32
  reduce(%r0 = 4) {
    %v0 = load x[%d0, %r0]
    fold %v0 from -inf with maximum into m
  }
  map(%d1 = 4) {
    %v0 = load x[%d0, %d1]
    %v1 = read m[]
    %v2 = subtract(%v0, %v1) : f32
    %v3 = load b[%d0, 3 - %d1]
    %v4 = add(%v2, %v3) : f32
    store %v4 to z[%d0, %d1]
  }
}"""


def kernel_of(text: str):
    kernel = parse_kernel(text)
    verify_kernel(kernel, ())
    return kernel


@pytest.mark.parametrize(("text", "result", "allowed"), [(SUM, 1, [0, 2]), (SOFTMAX, 2, [0])])
def test_allowed_operands(text: str, result: int, allowed: list[int]) -> None:
    kernel = kernel_of(text)
    assert list(in_place_operand(kernel, result)) == allowed
    random = np.random.default_rng(0)
    count = int(kernel.operands[0].layout.size.value)
    inputs = [random.standard_normal(count).astype(np.float32) for _ in kernel.operands]
    wanted = [a.copy() for a in inputs]
    evaluate(kernel, wanted, {})
    for operand in allowed:
        changed = written_in_place(kernel, result, operand)
        verify_kernel(changed, ())
        buffers = [a.copy() for n, a in enumerate(inputs) if n != result]
        evaluate(changed, buffers, {})
        (written,) = changed.outputs
        np.testing.assert_array_equal(buffers[written], wanted[result])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("load x[%d0]", "load x[5 - %d0]"),  # another point's element
        ("load x[%d0]", "load x[%d0 + 1] bounded [0] otherwise 0.0"),
        ("ro x : f32[6]", "ro constant x : f32[6]"),  # a weight
        ("ro x : f32[6]", "ro x : i32[6]"),
        ("ro x : f32[6]", "ro x : f32[6] layout [2] offset 0 size 12"),
    ],
)
def test_forbidden_operands(before: str, after: str) -> None:
    text = SUM.replace(before, after)
    assert text != SUM
    assert list(in_place_operand(parse_kernel(text), 1)) == [2]


def test_a_later_phase_may_not_read_what_is_overwritten() -> None:
    text = SUM.replace("wo z", "wo u : f32[6]\n  wo z").rstrip("}")
    text += """  map() {
    %v0 = load x[%d0]
    store %v0 to u[%d0]
  }
}"""
    assert list(in_place_operand(kernel_of(text), 2)) == [3]


def test_rows_shared_by_points_are_not_owned() -> None:
    text = SOFTMAX.replace("kernel(%d0 = 3)", "kernel(%d0 = 3, %d1 = 4)")
    text = text.replace("map(%d1 = 4)", "map()")
    assert list(in_place_operand(kernel_of(text), 2)) == []
