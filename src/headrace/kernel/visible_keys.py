"""Which keys a row of attention can see, as far as places alone say it.

A mask that a kernel computes compares the place of a key with something that is the same for
all keys: the row's own place (causal), that less a width (a window), the keys that a batch has
(a length that is loaded). Outside such bounds the score is one constant, whatever the product
was. What a constant lets a generator leave out is in `VisibleKeys.hidden`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.base.symbols import ONE, Expr, as_expr
from headrace.kernel.description import Compute, Constant, IndexValue, Load, LoadLocal
from headrace.kernel.softmax_rows import KEY, SoftmaxRows, Tree, axis_names

_MOST = {"i32": 1 << 30, "i64": 1 << 40}
"""No sum of a place and a number below this wraps; other types are left alone."""


@dataclass(frozen=True)
class Bound:
    """A place of keys: `place`, and what `tree` gives where there is one.

    Attributes:
        tree: an integer of 32 or 64 bits, any value of it, the same for all keys.
    """

    place: Expr
    tree: Tree | None = None


@dataclass(frozen=True)
class VisibleKeys:
    """The bounds of a row.

    Attributes:
        first, last: a key before any of the first or behind any of the last is hidden.
        hidden: the score of hidden keys. Of -inf the weight is 0, and neither the greatest
            score nor the sum know of the key, whatever the others are; of a number that
            is so only where a score that the row sees is far greater.
        scores: `SoftmaxRows.scores` of keys within all bounds.
        whole: bounds alone tell which keys are hidden.
    """

    first: tuple[Bound, ...]
    last: tuple[Bound, ...]
    hidden: float
    scores: Tree
    whole: bool


def visible_keys(found: SoftmaxRows) -> VisibleKeys | None:
    """The bounds that the scores have; None where places hide nothing."""
    kept: list[tuple[float, Tree, bool, _Said]] = []
    for condition in dict.fromkeys(_conditions(found.scores)):
        for truth in (True, False):
            hidden = _constant(_when(found.scores, condition, not truth))
            said = _said(condition, truth)
            if hidden is not None and hidden < math.inf and (said.first or said.last):
                kept.append((hidden, condition, truth, said))
    if not kept:
        return None
    hidden = min(kept, key=lambda k: k[0])[0]
    scores, first, last = found.scores, list[Bound](), list[Bound]()
    for score, condition, truth, said in kept:
        if score == hidden:
            first += said.first
            last += said.last
            scores = _when(scores, condition, truth) if said.all else scores
    whole = all(said.all for score, _, _, said in kept if score == hidden)
    return VisibleKeys(tuple(first), tuple(last), hidden, scores, whole)


# -- scores -------------------------------------------------------------------------------


def _conditions(tree: Tree) -> Iterator[Tree]:
    if _is(tree, "select"):
        yield tree.operands[0]
    for operand in tree.operands:
        yield from _conditions(operand)


def _is(tree: Tree, operation: str) -> bool:
    return isinstance(tree.operation, Compute) and tree.operation.operation == operation


def _when(tree: Tree, condition: Tree, truth: bool) -> Tree:
    """The value where a condition of selects is known."""
    if _is(tree, "select") and tree.operands[0] == condition:
        return _when(tree.operands[1 if truth else 2], condition, truth)
    return Tree(tree.operation, tuple(_when(o, condition, truth) for o in tree.operands))


def _constant(tree: Tree) -> float | None:
    """The float that a tree always is."""
    operation = tree.operation
    if isinstance(operation, Constant) and operation.dtype.is_float:
        return float(operation.dtype.numpy_dtype.type(operation.value))
    if _is(tree, "select"):
        values = [_constant(o) for o in tree.operands[1:]]
        return values[0] if values[0] == values[1] else None
    if isinstance(operation, Compute) and _is(tree, "convert") and operation.dtype.is_float:
        inner = _constant(tree.operands[0])
        return None if inner is None else float(operation.dtype.numpy_dtype.type(inner))
    return None


# -- bounds -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Said:
    """Bounds that a condition sets, and whether they are all that it says."""

    first: tuple[Bound, ...] = ()
    last: tuple[Bound, ...] = ()
    all: bool = False


def _said(tree: Tree, truth: bool) -> _Said:
    """What a condition says about the key where it holds, or where it does not."""
    if _is(tree, "not"):
        return _said(tree.operands[0], not truth)
    if _is(tree, "and" if truth else "or"):
        left, right = (_said(o, truth) for o in tree.operands)
        return _Said(left.first + right.first, left.last + right.last, left.all and right.all)
    if _is(tree, "compare") and isinstance(tree.operation, Compute):
        direction = tree.operation.attribute
        if not truth:
            direction = _OPPOSITE.get(direction, "")
        return _compared(direction, *tree.operands)
    return _Said()


_OPPOSITE = {"LT": "GE", "GE": "LT", "LE": "GT", "GT": "LE"}
_TURNED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}


def _compared(direction: str, left: Tree, right: Tree) -> _Said:
    """`left direction right` as a bound of the key."""
    if direction not in _TURNED:
        return _Said()
    if KEY in axis_names(right) and KEY not in axis_names(left):
        return _compared(_TURNED[direction], right, left)
    place, other = _place(left), _place(right)
    if place is None or (other is None and KEY in axis_names(right)):
        return _Said()
    if other is not None:
        place = place - other
    if not place.is_linear_in((KEY,)):
        return _Said()
    factor = place.coefficient(KEY)
    if factor == as_expr(-1) and other is not None:
        direction, place, factor = _TURNED[direction], -place, ONE
    if factor != ONE:
        return _Said()
    # Now the key and what is here subtracted stand on the left.
    beyond = {"LT": -1, "GT": 1}.get(direction, 0)
    bound = Bound(beyond - place.substitute({KEY: 0}), None if other is not None else right)
    if direction in ("LT", "LE"):
        return _Said(last=(bound,), all=True)
    return _Said(first=(bound,), all=True)


def _place(tree: Tree) -> Expr | None:
    """A signed integer of places and numbers, as an expression."""
    operation = tree.operation
    if isinstance(operation, (Load, LoadLocal)) or operation.dtype.name not in _MOST:
        return None
    if isinstance(operation, IndexValue):
        return operation.value
    if isinstance(operation, Constant):
        assert not isinstance(operation.value, complex)
        number, most = int(operation.value), _MOST[operation.dtype.name]
        return as_expr(number) if abs(number) < most else None
    known = [p for p in map(_place, tree.operands) if p is not None]
    if len(known) < len(tree.operands):
        return None
    if operation.operation == "convert":
        return known[0]
    if operation.operation == "add":
        return known[0] + known[1]
    return known[0] - known[1] if operation.operation == "subtract" else None
