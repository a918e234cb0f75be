"""Scores of 16-bit attention in the units of `exp2`, and without roundings on the way.

Behind a product values keep the bits of f32 until they are stored (docs/numerics.md). What is left
of the scores is mostly the product times a number; with that times the logarithm of e the device's
`exp2` takes them as they are.
"""

from __future__ import annotations

import math

from headrace.base.dtypes import F32
from headrace.kernel.description import Compute, Constant, LoadLocal
from headrace.kernel.softmax_rows import SCORE, Tree, read_by

LOG2_E = math.log2(math.e)
_MOST = 2.0**127
_JUMPS = (
    "compare", "floor", "ceil", "round_nearest_afz", "round_nearest_even", "sign", "is_finite",
    "bitcast_convert", "remainder",
)  # fmt: skip


def is_smooth(scores: Tree) -> bool:
    """Whether a last bit more or less of the product stays one: all is floats, nothing jumps."""
    operation = scores.operation
    if SCORE not in read_by(scores):
        return True
    if isinstance(operation, Compute):
        if operation.operation in _JUMPS or not operation.dtype.is_float:
            return False
        if operation.operation == "select" and SCORE in read_by(scores.operands[0]):
            return False
    return all(map(is_smooth, scores.operands))


def factor_of(scores: Tree) -> float | None:
    """The positive number that scores are the product's multiple by, if they are just that."""
    operation = scores.operation
    if isinstance(operation, LoadLocal):
        return 1.0 if operation.local == SCORE else None
    if not isinstance(operation, Compute):
        return None
    if operation.operation == "convert":
        return factor_of(scores.operands[0])
    if operation.operation != "multiply":
        return None
    for product, number in (scores.operands, scores.operands[::-1]):
        times, factor = _number(number), factor_of(product)
        if times is not None and factor is not None and 0 < factor * times < _MOST:
            return factor * times
    return None


def times(scores: Tree, by: float) -> Tree | None:
    """The scores times a number, without a product more; None where that might overflow."""
    operation = scores.operation
    number = _number(scores)
    if number is not None:
        made = number * by
        overflows = math.isfinite(number) and abs(made) >= 2 * _MOST
        return None if overflows else _constant(made)
    factor = factor_of(scores)
    if factor is not None:
        product = Tree(LoadLocal("", SCORE))
        return Tree(Compute("", "multiply", (), F32), (product, _constant(factor * by)))
    if isinstance(operation, Compute) and operation.operation == "convert":
        return times(scores.operands[0], by)
    if isinstance(operation, Compute) and operation.operation == "select":
        condition, *values = scores.operands
        yes, no = (times(v, by) for v in values)
        if yes is not None and no is not None:
            return Tree(Compute("", "select", (), F32), (condition, yes, no))
    return None


def _constant(value: float) -> Tree:
    return Tree(Constant("", F32, value))


def _number(tree: Tree) -> float | None:
    operation = tree.operation
    if isinstance(operation, Constant) and operation.dtype.is_float:
        return float(operation.dtype.numpy_dtype.type(operation.value))
    return None
