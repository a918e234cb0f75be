"""Indices through reshapes, and what is known of their ranges."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from headrace.base.symbols import as_expr, dim
from headrace.flow.lowering.indexing import divide, is_below, reshape_index


def exprs(*values):
    return tuple(as_expr(v) for v in values)


CASES = [
    ((2, 3, 32), (2, 3, 4, 8)),
    ((2, 3, 4, 8), (6, 32)),
    ((6, 32), (2, 3, 4, 8)),
    ((1, 28), (1, 4, 7, 1)),
    ((4, 6), (6, 4)),
    ((2, 1, 6), (12,)),
    ((12,), (2, 1, 6)),
    ((5, 1), (1, 5)),
    ((1, 1), ()),
]


@pytest.mark.parametrize(("source", "target"), CASES)
def test_reshape_agrees_with_numpy(source, target):
    names = [f"%d{n}" for n in range(len(source))]
    sizes = dict(zip(names, exprs(*source), strict=True))
    index = reshape_index(tuple(map(dim, names)), exprs(*source), exprs(*target), sizes)
    array = np.arange(math.prod(source))
    for point in itertools.product(*map(range, source)):
        values = dict(zip(names, point, strict=True))
        there = tuple(i.evaluate(values) for i in index)
        assert array.reshape(target)[there] == array.reshape(source)[point]


def test_there_and_back_is_where_it_began():
    names = ["%d0", "%d1", "%d2"]
    source, target = exprs("batch", "seq", 384), exprs("batch", "seq", 12, 32)
    sizes = dict(zip(names, source, strict=True))
    index = tuple(map(dim, names))
    there = reshape_index(index, source, target, sizes)
    assert [str(i) for i in there] == ["%d0", "%d1", "(%d2 floordiv 32)", "(%d2 mod 32)"]
    assert reshape_index(there, target, source, sizes) == index


def test_symbolic_sizes_divide_where_they_can():
    sizes = {"%d0": as_expr("batch"), "%d1": as_expr("seq"), "%d2": as_expr(12)}
    assert divide(as_expr("%d0*seq + %d1"), dim("seq"), sizes) == exprs("%d0", "%d1")
    assert divide(as_expr("12*%d1 + %d2"), as_expr(12), sizes) == exprs("%d1", "%d2")
    quotient, rest = divide(as_expr("%d0*seq + %d2"), dim("seq"), sizes)
    assert str(quotient) == "%d0 + (%d2 floordiv seq)"
    assert str(rest) == "(%d2 mod seq)"


def test_bounds():
    sizes = {"%d0": as_expr(12), "%d1": as_expr("seq")}
    assert is_below(as_expr("%d0*seq + %d1"), as_expr("12*seq"), sizes)
    assert not is_below(as_expr("%d0*seq + %d1"), as_expr("11*seq"), sizes)
    assert not is_below(as_expr("%d0 - 1"), as_expr(12), sizes)
    assert not is_below(as_expr("%v0"), as_expr(12), sizes)
