"""Divisions in offsets: never a wrong one, and the usual ones gone."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from harness import Linked, copied

from headrace.base.symbols import Expr, as_expr, parse_expr
from headrace.kernel.interp import evaluate
from headrace.kernel.text import parse_kernel
from headrace.targets.cpu.nest import lower
from headrace.targets.cpu.simplify import Facts, simplify

SIZES = {"%a": as_expr(3), "%b": as_expr(4), "%c": as_expr("n")}
RANGES = {"%a": (0, 2), "%b": (0, 3), "%c": (0, 1 << 31), "n": (0, 1 << 31)}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("(4*%a + %b) floordiv 4", "%a"),
        ("(4*%a + %b) mod 4", "%b"),
        ("(4*%a + %b) floordiv 12", "0"),
        ("(4*%a + %b) floordiv 8", "%a floordiv 2"),
        ("(4*%a + %b) mod 8", "4*(%a mod 2) + %b"),
        ("(%a*n + %c) floordiv n", "%a"),
        ("(%a*n + %c) mod n", "%c"),
        ("(3*%a*n + 3*%c + %a) floordiv (3*n)", "%a"),
        ("(%c floordiv 5)*5 + %c mod 5", "%c"),
        ("2*((%c floordiv 5)*5) + 2*(%c mod 5) + 1", "2*%c + 1"),
        ("(%a - 1) floordiv 4", "(%a - 1) floordiv 4"),
        ("%c floordiv 3", "%c floordiv 3"),
    ],
)
def test_known_divisions_go(before: str, after: str) -> None:
    assert simplify(parse_expr(before), Facts(SIZES, RANGES)) == parse_expr(after)


def test_simplified_expressions_are_equal() -> None:
    rng = np.random.default_rng(0)

    def random(depth: int) -> Expr:
        names = ["%a", "%b", "%c", "n"]
        if depth == 0:
            return as_expr(str(rng.choice(names))) * int(rng.integers(1, 9)) + int(
                rng.integers(-3, 4)
            )
        left, right = random(depth - 1), random(depth - 1)
        kind = int(rng.integers(0, 4))
        divisor = (
            as_expr(int(rng.choice([2, 3, 4, 6, 8, 12])))
            if rng.random() < 0.8
            else as_expr("n") * 2
        )
        if kind == 0:
            return left + right
        if kind == 1:
            return left // divisor
        if kind == 2:
            return left % divisor
        return (left // divisor) * divisor + left % divisor + right

    facts = Facts(SIZES, RANGES)
    for _ in range(300):
        before = random(int(rng.integers(1, 4)))
        after = simplify(before, facts)
        for a, b, n in itertools.product(range(3), range(4), (1, 2, 5)):
            for c in range(n):
                names = {"%a": a, "%b": b, "%c": c, "n": n}
                assert before.evaluate(names) == after.evaluate(names), (before, after)


HEADS = """
kernel(%d0 = 2, %d1 = s, %d2 = 48) dims(s) {
  ro x : f32[2, 3, s, 16]
  wo y : f32[2, s, 48]
  map() {
    %v0 = load x[%d0, %d2 floordiv 16, %d1, %d2 mod 16]
    store %v0 to y[%d0, %d1, %d2]
  }
}
"""
RESHAPE = """
kernel(%d0 = 2, %d1 = 3, %d2 = s, %d3 = 16) dims(s) {
  ro x : f32[2, s, 48]
  wo y : f32[2, 3, s, 16]
  map() {
    %v0 = load x[(48*%d0*s + 48*%d2 + 16*%d1 + %d3) floordiv (48*s), ((48*%d0*s + 48*%d2 + 16*%d1 + %d3) floordiv 48) mod s, (16*%d1 + %d3) mod 48]
    store %v0 to y[%d0, %d1, %d2, %d3]
  }
}
"""
SUM_OF_FLAT = """
kernel(%d0 = 5) {
  ro x : f32[5, 4, 6]
  wo y : f32[5]
  local a : f32
  reduce(%r0 = 24) {
    %v0 = load x[%d0, %r0 floordiv 6, %r0 mod 6]
    fold %v0 from 0.0 with add into a
  }
  map() {
    %v1 = read a[]
    store %v1 to y[%d0]
  }
}
"""


@pytest.mark.parametrize("text", [HEADS, RESHAPE, SUM_OF_FLAT])
def test_reshapes_become_linear(text: str) -> None:
    kernel = parse_kernel(text)
    for phase in lower(kernel, split=True).phases:
        for access in phase.accesses():
            assert "floordiv" not in str(access.offset) and "mod" not in str(access.offset)
    dims = {"s": 7} if kernel.dims else {}
    rng = np.random.default_rng(0)
    buffers = [
        rng.standard_normal(o.layout.size.evaluate(dims)).astype(np.float32)
        for o in kernel.operands
    ]
    expected = [b.copy() for b in buffers]
    evaluate(kernel, expected, dims)
    actual = copied(buffers)
    Linked(kernel)(actual, dims)
    np.testing.assert_allclose(actual[1], expected[1], rtol=1e-5, atol=1e-6)
