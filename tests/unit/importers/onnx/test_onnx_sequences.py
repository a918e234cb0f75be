"""Sequences and optionals: lengths that are known when compiling, through the backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import headrace
import headrace.backend
from headrace.base.errors import HeadraceError

A = np.arange(6, dtype=np.float32).reshape(2, 3)


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model('<ir_version: 9, opset_import: ["" : 21]>\n' + text)


def run(text: str, *inputs: Any) -> tuple[Any, ...]:
    return headrace.backend.run_model(parsed(text), list(inputs))


EDITS = """
agraph (seq(float[n, m]) xs, float[n, m] y) => (seq(float[n, m]) zs, int64 length, float[k, m] joined) {
  one = Constant <value = int64 {1}> ()
  minus = Constant <value = int64 {-1}> ()
  a = SequenceInsert (xs, y, one)
  b = SequenceErase (a, minus)
  first = SequenceAt (b, minus)
  double = Add (first, first)
  zs = SequenceInsert (b, double)
  length = SequenceLength (zs)
  joined = ConcatFromSequence <axis = 0> (zs)
}
"""


def test_sequences_are_edited_and_joined() -> None:
    zs, length, joined = run(EDITS, [A, 10 * A], 100 * A)
    wanted = [A, 100 * A, 200 * A]
    assert length == 3
    for got, want in zip(zs, wanted, strict=True):
        np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(joined, np.concatenate(wanted))


def test_one_rep_takes_sequences_of_any_length() -> None:
    rep = headrace.backend.prepare(parsed(EDITS))
    for count in (1, 3, 1):
        zs, length, _ = rep.run([[A] * count, A])
        assert length == len(zs) == count + 1
    rep.close()


def test_a_sequence_in_the_signature_needs_an_example() -> None:
    with pytest.raises(HeadraceError, match="the number of tensors in an input") as refused:
        headrace.from_onnx(parsed(EDITS))
    assert "examples=" in str(refused.value)
    headrace.from_onnx(parsed(EDITS), examples={"xs": [A, A]})


@pytest.mark.parametrize("keep", [0, 1])
def test_split_and_map(keep: int) -> None:
    text = f"""
agraph (float[4, 3] x, float[3] y) => (seq(float[k, m]) zs) {{
  parts = SplitToSequence <axis = 0, keepdims = {keep}> (x)
  zs = SequenceMap (parts, y) <
    body = g (float[k, m] e, float[m] w) => (float[k, m] r) {{ r = Mul (e, w) }}
  >
}}
"""
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    (zs,) = run(text, x, A[0])
    rows = [x[n : n + 1] if keep else x[n] for n in range(4)]
    for got, want in zip(zs, rows, strict=True):
        np.testing.assert_array_equal(got, want * A[0])


def test_optionals_choose_when_compiling() -> None:
    text = """
agraph (optional(float[n, m]) x, float[n, m] y) => (float[n, m] z) {
  there = OptionalHasElement (x)
  z = If (there) <
    then_branch = g () => (float[n, m] t) { e = OptionalGetElement (x)  t = Add (e, y) },
    else_branch = h () => (float[n, m] u) { u = Neg (y) }
  >
}
"""
    np.testing.assert_array_equal(run(text, A, A)[0], 2 * A)
    np.testing.assert_array_equal(run(text, None, A)[0], -A)


def test_data_may_not_decide_about_a_position() -> None:
    text = """
agraph (float[2, 3] x, int64 n) => (float[2, 3] y) {
  xs = SequenceConstruct (x, x)
  y = SequenceAt (xs, n)
}
"""
    with pytest.raises(HeadraceError, match="data decides about a position in a sequence"):
        headrace.from_onnx(parsed(text))


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        ("y = Neg (xs)", "is a sequence where a tensor is needed"),
        ("y = SequenceAt (x, zero)", "is no sequence"),
        ("five = Constant <value = int64 {5}> () y = SequenceAt (xs, five)", "position 5"),
    ],
)
def test_misuse_is_said_with_its_place(node: str, reason: str) -> None:
    text = f"""
agraph (float[2, 3] x) => (float[2, 3] y) {{
  zero = Constant <value = int64 {{0}}> ()
  xs = SequenceConstruct (x, x)
  {node}
}}
"""
    with pytest.raises(HeadraceError, match=reason):
        headrace.from_onnx(parsed(text))
