"""Ensembles of decision trees: all trees of all rows go down one level a step.

A forest is a few tables with one row a node. Leaves stand behind the inner nodes and are
their own children, so that a shallow tree waits for the deepest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from xdsl.ir import SSAValue

from headrace.base.dtypes import F32, F64, DType
from headrace.base.symbols import as_expr
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.ops.ml_scores import (
    best_labels,
    chosen_label,
    integer_labels,
    matrix_input,
    post_transform,
    table,
    transformed,
    two_columns,
)
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import dtype_of, shape_of

_MODES = ("LE", "LT", "GE", "GT", "EQ", "NE")
_NAMED = {
    "BRANCH_LEQ": "LE",
    "BRANCH_LT": "LT",
    "BRANCH_GTE": "GE",
    "BRANCH_GT": "GT",
    "BRANCH_EQ": "EQ",
    "BRANCH_NEQ": "NE",
}
_MEMBER = 6
_DEEPEST = 256
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")


@dataclass(frozen=True)
class Split:
    """An inner node: where `feature` compares so with `threshold`, go to `on_true`.

    Attributes:
        on_true, on_false: keys of nodes or leaves.
        missing_is_true: whether NaN goes to `on_true` in any case.
    """

    feature: int
    mode: str
    threshold: float
    on_true: Any
    on_false: Any
    missing_is_true: bool


@dataclass
class Forest:
    """Trees by keys of their nodes.

    Attributes:
        roots: one a tree; a leaf may be a root.
        splits: the inner nodes.
        leaves: key -> (target, weight) pairs.
    """

    roots: list[Any] = field(default_factory=list[Any])
    splits: dict[Any, Split] = field(default_factory=dict[Any, Split])
    leaves: dict[Any, list[tuple[int, float]]] = field(
        default_factory=dict[Any, "list[tuple[int, float]]"]
    )

    def levels(self) -> int:
        """How many splits the longest way down has; -1 where one never ends."""
        level, now = 0, set(self.roots) & self.splits.keys()
        while now and level <= len(self.splits):
            children = {
                k for n in now for k in (self.splits[n].on_true, self.splits[n].on_false)
            }
            level, now = level + 1, children & self.splits.keys()
        return -1 if now else level


# -- running ----------------------------------------------------------------------------


def _work_type(c: NodeContext) -> DType:
    return F64 if c.dtype(0) == F64 else F32


def _check(c: NodeContext, forest: Forest, targets: int) -> int:
    """The number of levels of a forest that is one.

    Raises:
        HeadraceError HR1207: a node leads nowhere or in a circle, a number is out of range.
        HeadraceError HR1204: it is too deep.
    """
    known = forest.splits.keys() | forest.leaves.keys()
    for split in forest.splits.values():
        if split.on_true not in known or split.on_false not in known:
            raise c.malformed("a node's child is not in its tree")
        if split.feature < 0:
            raise c.malformed("a feature's number is negative")
    if not forest.roots or any(r not in known for r in forest.roots):
        raise c.malformed("there is no tree")
    if any(not 0 <= t < targets for pairs in forest.leaves.values() for t, _ in pairs):
        raise c.malformed(f"a leaf's target is not one of {targets}")
    width = shape_of(matrix_input(c))[1]
    most = max((s.feature for s in forest.splits.values()), default=-1)
    if width.is_constant and most >= width.value:
        raise c.malformed(f"a node looks at feature {most} of {width}")
    levels = forest.levels()
    if levels < 0:
        raise c.malformed("a tree has a circle")
    if levels > _DEEPEST:
        raise c.unsupported(f"trees of {levels} levels; at most {_DEEPEST} are taken")
    return levels


def leaf_weights(c: NodeContext, forest: Forest, targets: int, absent: float = 0.0) -> SSAValue:
    """What every tree gives every target: [batch, trees, targets].

    Args:
        absent: the weight of a target that a leaf does not name.
    """
    import numpy as np

    levels = _check(c, forest, targets)
    b, work = c.build, _work_type(c)
    x = b.convert(matrix_input(c), work)
    batch, trees = shape_of(x)[0], as_expr(len(forest.roots))
    number = {key: n for n, key in enumerate((*forest.splits, *forest.leaves))}
    inner = len(forest.splits)
    roots = table(c, [number[r] for r in forest.roots], np.int32)
    at = b.broadcast_in_dim(roots, (1,), (batch, trees))
    down = _Descent(c, forest, number, x)
    for _ in range(levels):
        at = down.step(at)
    weights = np.full((len(forest.leaves), targets), absent, work.numpy_dtype)
    named = np.zeros(weights.shape, np.bool_)
    for key, pairs in forest.leaves.items():
        for target, weight in pairs:
            row = number[key] - inner
            before = weights[row, target] if named[row, target] else 0
            weights[row, target] = before + weight
            named[row, target] = True
    return b.take(table(c, weights, work.numpy_dtype), c.with_scalar("subtract", at, inner), 0)


class _Descent:
    """The tables of a forest, and one step down them."""

    def __init__(
        self, c: NodeContext, forest: Forest, number: dict[Any, int], x: SSAValue
    ) -> None:
        import numpy as np

        self._c, self._x = c, x
        splits = list(forest.splits.values())
        leaves = range(len(splits), len(number))
        rest = len(leaves)

        def column(of: Callable[[Split], Any], kind: Any, fill: Any = 0) -> SSAValue:
            behind = list(leaves) if fill is None else [fill] * rest
            return table(c, [*(of(s) for s in splits), *behind], kind)

        self._feature = column(lambda s: s.feature, np.int32)
        kind = dtype_of(x).numpy_dtype
        self._threshold = column(lambda s: s.threshold, kind)
        self._on_true = column(lambda s: number[s.on_true], np.int32, None)
        self._on_false = column(lambda s: number[s.on_false], np.int32, None)
        self._modes = sorted({s.mode for s in splits})
        self._mode = column(lambda s: self._modes.index(s.mode), np.int32)
        self._missing = None
        if any(s.missing_is_true for s in splits):
            self._missing = column(lambda s: int(s.missing_is_true), np.int32)

    def step(self, at: SSAValue) -> SSAValue:
        """The nodes of the next level, [batch, trees] as the nodes of this."""
        c, b = self._c, self._c.build
        value = self._features(b.take(self._feature, at, 0))
        threshold = b.take(self._threshold, at, 0)
        yes = b.compare(self._modes[0], value, threshold)
        mode = b.take(self._mode, at, 0) if len(self._modes) > 1 else None
        for n, name in enumerate(self._modes[1:], 1):
            assert mode is not None
            this = b.compare("EQ", mode, c.scalar_like(n, mode))
            yes = b.select(this, b.compare(name, value, threshold), yes)
        if self._missing is not None:
            follows = b.take(self._missing, at, 0)
            follows = b.compare("NE", follows, c.scalar_like(0, follows))
            absent = b.compare("NE", value, value)
            yes = b.binary("or", yes, b.binary("and", absent, follows))
        return b.select(yes, b.take(self._on_true, at, 0), b.take(self._on_false, at, 0))

    def _features(self, feature: SSAValue) -> SSAValue:
        """x[n, feature[n, t]]."""
        b, shape = self._c.build, shape_of(feature)
        return b.gather(
            self._x,
            b.reshape(feature, (*shape, 1)),
            offset_dims=[],
            collapsed_slice_dims=[1],
            start_index_map=[1],
            index_vector_dim=2,
            slice_sizes=[1, 1],
            operand_batching_dims=[0],
            start_indices_batching_dims=[0],
        )


def _aggregated(c: NodeContext, forest: Forest, targets: int, how: str) -> SSAValue:
    """[batch, targets]: what the trees give, as one number."""
    if how not in _AGGREGATES:
        raise c.malformed(f"aggregate function '{how}' is unknown")
    if how in ("SUM", "AVERAGE"):
        total = c.reduce(leaf_weights(c, forest, targets), 0, [1], "add")
        many = len(forest.roots)
        return total if how == "SUM" else c.with_scalar("divide", total, many)
    none = float("inf") if how == "MIN" else float("-inf")
    reducer = "minimum" if how == "MIN" else "maximum"
    made = c.reduce(leaf_weights(c, forest, targets, none), none, [1], reducer)
    absent = c.build.compare("EQ", made, c.scalar_like(none, made))
    return c.build.select(absent, c.scalar_like(0, made), made)


# -- TreeEnsemble -------------------------------------------------------------------------


@onnx_op("TreeEnsemble", domain="ai.onnx.ml", since=5)
def tree_ensemble(c: NodeContext) -> SSAValue:
    how = c.int("aggregate_function", 1)
    name = _AGGREGATES[how] if 0 <= how < len(_AGGREGATES) else str(how)
    made = _aggregated(c, _indexed_forest(c), c.int("n_targets", 1), name)
    return c.build.convert(transformed(c, made, post_transform(c)), c.dtype(0))


def _indexed_forest(c: NodeContext) -> Forest:
    """The forest whose nodes refer to each other by position."""
    features = c.ints("nodes_featureids") or []
    count = len(features)
    modes = _tensor(c, "nodes_modes", count)
    splits = _tensor(c, "nodes_splits", count)
    missing = c.ints("nodes_missing_value_tracks_true") or [0] * count
    branches = [
        (_entries(c, f"nodes_{side}nodeids", count), _entries(c, f"nodes_{side}leafs", count))
        for side in ("true", "false")
    ]
    weights = c.tensor("leaf_weights")
    owners = c.ints("leaf_targetids") or []
    if weights is None or len(weights) != len(owners):
        raise c.malformed("'leaf_weights' and 'leaf_targetids' must have one length")
    forest = Forest()
    for n, (target, weight) in enumerate(zip(owners, weights, strict=True)):
        forest.leaves["leaf", n] = [(target, float(weight))]
    members = _member_sets(c, sum(int(m) == _MEMBER for m in modes))
    for n in range(count):
        true, false = (("leaf" if leaf[n] else "node", ids[n]) for ids, leaf in branches)
        follows = bool(missing[n])
        if int(modes[n]) != _MEMBER:
            mode = _MODES[int(modes[n])]
            split = Split(features[n], mode, float(splits[n]), true, false, follows)
            forest.splits["node", n] = split
            continue
        # One comparison a member; who is equal to none goes on to the false branch.
        values = members.pop(0) or [float("nan")]
        for m, value in enumerate(values):
            key = ("node", n) if m == 0 else ("member", n, m)
            behind = false if m == len(values) - 1 else ("member", n, m + 1)
            forest.splits[key] = Split(features[n], "EQ", value, true, behind, follows)
    forest.roots = [("node", r) for r in c.ints("tree_roots") or []]
    return forest


def _entries(c: NodeContext, name: str, count: int) -> list[int]:
    found = c.ints(name) or []
    if len(found) != count:
        raise c.malformed(f"'{name}' must have {count} entries, has {len(found)}")
    return found


def _tensor(c: NodeContext, name: str, count: int) -> Any:
    found = c.tensor(name)
    if found is None or found.reshape(-1).shape != (count,):
        raise c.malformed(f"'{name}' must have {count} entries")
    return found.reshape(-1)


def _member_sets(c: NodeContext, count: int) -> list[list[float]]:
    """The sets of `membership_values`: each ends with a NaN."""
    values = c.tensor("membership_values")
    sets: list[list[float]] = [[]]
    for value in [] if values is None else values.reshape(-1):
        if value != value:
            sets.append([])
        else:
            sets[-1].append(float(value))
    if len(sets) - 1 != count or sets[-1]:
        raise c.malformed(f"'membership_values' must have {count} sets")
    return sets[:-1]


# -- TreeEnsembleRegressor, TreeEnsembleClassifier ------------------------------------------


@onnx_op("TreeEnsembleRegressor", domain="ai.onnx.ml")
def tree_ensemble_regressor(c: NodeContext) -> SSAValue:
    targets = c.int("n_targets", 1)
    how = c.string("aggregate_function", "SUM")
    made = _aggregated(c, _named_forest(c, "target"), targets, how)
    base = _numbers(c, "base_values")
    if base:
        made = _with_base(c, made, base)
    return c.build.convert(transformed(c, made, post_transform(c)), F32)


def _with_base(c: NodeContext, made: SSAValue, base: list[float]) -> SSAValue:
    row = table(c, base, dtype_of(made).numpy_dtype)
    return c.build.binary("add", made, c.along(row, 1, shape_of(made)))


def _numbers(c: NodeContext, name: str) -> list[float]:
    """A list of floats, or of doubles in a tensor; empty where there is neither."""
    found = c.tensor(f"{name}_as_tensor")
    return c.floats(name) or [] if found is None else [float(v) for v in found.reshape(-1)]


def _named_forest(c: NodeContext, owner: str) -> Forest:
    """The forest whose nodes have a tree's and a node's number; the first is the root.

    Args:
        owner: prefix of the leaves' attributes: `target` or `class`.
    """
    trees = c.ints("nodes_treeids") or []
    count = len(trees)
    keys = list(zip(trees, _entries(c, "nodes_nodeids", count), strict=True))
    features = _entries(c, "nodes_featureids", count)
    on_true = _entries(c, "nodes_truenodeids", count)
    on_false = _entries(c, "nodes_falsenodeids", count)
    modes: list[str] = c.attribute("nodes_modes", list, [])
    values = _numbers(c, "nodes_values") or [0.0] * count
    missing = c.ints("nodes_missing_value_tracks_true") or [0] * count
    if not len(modes) == len(values) == len(missing) == count:
        raise c.malformed(f"every list of 'nodes_' must have {count} entries")
    forest = Forest()
    seen: set[int] = set()
    for n, key in enumerate(keys):
        if key[0] not in seen:
            seen.add(key[0])
            forest.roots.append(key)
        if modes[n] == "LEAF":
            forest.leaves[key] = []
            continue
        if modes[n] not in _NAMED:
            raise c.malformed(f"a node's mode '{modes[n]}' is unknown")
        true, false = (key[0], on_true[n]), (key[0], on_false[n])
        mode = _NAMED[modes[n]]
        forest.splits[key] = Split(features[n], mode, values[n], true, false, bool(missing[n]))
    weights = _numbers(c, f"{owner}_weights")
    count = len(weights)
    owners = zip(
        _entries(c, f"{owner}_treeids", count),
        _entries(c, f"{owner}_nodeids", count),
        _entries(c, f"{owner}_ids", count),
        weights,
        strict=True,
    )
    for tree, node, target, weight in owners:
        if (tree, node) not in forest.leaves:
            raise c.malformed(f"node {node} of tree {tree} has a weight and is no leaf")
        forest.leaves[tree, node].append((target, weight))
    return forest


@onnx_op("TreeEnsembleClassifier", domain="ai.onnx.ml")
def tree_ensemble_classifier(c: NodeContext) -> list[SSAValue]:
    """Scores of one class only are those of the positive one of two."""
    b = c.build
    labels = integer_labels(c, "classlabels_int64s", "classlabels_strings")
    classes = len(labels)
    if not classes:
        raise c.malformed("there are no labels")
    forest = _named_forest(c, "class")
    base = _numbers(c, "base_values")
    name = post_transform(c)
    named = {t for pairs in forest.leaves.values() for t, _ in pairs}
    if classes > 2 or len(named) > 1 or len(base) > 1:
        made = _aggregated(c, forest, classes, "SUM")
        if base:
            made = _with_base(c, made, base)
        scores = b.convert(transformed(c, made, name), F32)
        return [best_labels(c, made, labels), scores]
    for pairs in forest.leaves.values():
        pairs[:] = [(0, weight) for _, weight in pairs]
    made = _aggregated(c, forest, 1, "SUM")
    if base:
        made = _with_base(c, made, base)
    positive = all(w >= 0 for w in _numbers(c, "class_weights"))
    bound = 0.5 if positive else 0.0
    above = b.reshape(b.compare("GT", made, c.scalar_like(bound, made)), shape_of(made)[:1])
    if classes == 1:
        label = chosen_label(c, above, 1 if labels[0] == 1 else labels[0], 0)
    else:
        label = chosen_label(c, above, labels[1], labels[0])
    if named == {1}:
        both = b.concatenate([c.scalar_like(0, made), made], 1)
        return [label, b.convert(transformed(c, both, name), F32)]
    return [label, b.convert(two_columns(c, made, positive, name), F32)]
