"""Which kernels are a softmax between two products, so that it can be formed while reading.

Attention keeps a row of scores, its greatest, the sum of exponentials and the weights. Where
the phases between the two products are just that (whatever elementwise operations make the
scores), the row need not be kept: the greatest so far rescales what was summed before
(Milakov and Gimelshein, arXiv 1805.02867; Dao et al., arXiv 2205.14135). Values are compared
as expressions, so it does not matter how they are spread over phases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Union

from headrace.base.dtypes import F32, I1
from headrace.base.symbols import Expr, dim
from headrace.kernel.classify import contraction
from headrace.kernel.description import (
    Axis,
    Compute,
    Constant,
    IndexValue,
    Kernel,
    Load,
    LoadLocal,
    Local,
    Phase,
    ScalarOperation,
    Store,
)

KEY, WIDTH = "%key", "%width"
"""What the axis along a row of scores, and that along a row of results, are called."""

SCORE, GREATEST, TOTAL, MIX = "score", "greatest", "total", "mix"
"""Locals that the expressions read: product, the two folds, product of weights and values."""


@dataclass(frozen=True)
class Tree:
    """A value as an expression: an operation without a name, and its operands."""

    operation: ScalarOperation
    operands: tuple[Tree, ...] = ()


@dataclass(frozen=True)
class SoftmaxRows:
    """A kernel seen as attention.

    Attributes:
        query, key, value: loads of the factors; `key` and `value` along `KEY`, `value`
            along `WIDTH`, the first two along `depth`.
        keys, width: the sizes of those axes.
        scores: what the softmax is of; reads `SCORE`.
        exponential: of the score less the greatest; reads `SCORE` and `GREATEST`.
        divided: whether the weights are divided by their sum before the product.
        no_nan: whether weights that are no number are 0.
        rounded: the type that weights are rounded to, empty for none.
        rows, batch: outer axes that keys and values do not, and do, depend on.
        stores: what is written in the end; the values read `MIX`, `TOTAL`, `GREATEST`.
    """

    query: Load
    key: Load
    value: Load
    depth: Axis
    keys: Expr
    width: Expr
    scores: Tree
    exponential: Tree
    divided: bool
    no_nan: bool
    rounded: str
    rows: tuple[Axis, ...]
    batch: tuple[Axis, ...]
    stores: tuple[tuple[Store, Tree], ...]


_Places = Mapping[str, Union[Tree, None]]


def as_softmax_rows(kernel: Kernel) -> SoftmaxRows | None:
    """The kernel as attention; None where it is anything else."""
    mixes = [n for n, p in enumerate(kernel.phases) if p.parallel and p.reduction]
    if len(mixes) != 2 or mixes[0] != 0 or any(p.serial for p in kernel.phases):
        return None
    try:
        found = _match(kernel, mixes[1])
    except _Other:
        return None
    return found if _reads_before_it_writes(kernel, found) else None


def _reads_before_it_writes(kernel: Kernel, found: SoftmaxRows) -> bool:
    """Whether only the query may stand where results go, each row of it in its own row's
    place: it is read whole before anything is written."""
    written = {store.operand for store, _ in found.stores}
    trees = (found.scores, *(tree for _, tree in found.stores))
    read = {found.key.operand, found.value.operand}.union(*map(_operands, trees))
    if read & written:
        return False
    for store, _ in found.stores:
        index = tuple(i.substitute({WIDTH: dim(found.depth.name)}) for i in store.index)
        same = index == found.query.index and found.width == found.depth.size
        if store.operand == found.query.operand and not same:
            return False
    return True


def _operands(tree: Tree) -> set[int | str]:
    own = {tree.operation.operand} if isinstance(tree.operation, Load) else set[int]()
    return set[Union[int, str]](own).union(*map(_operands, tree.operands))


class _Other(Exception):
    """The kernel is no attention."""


def _match(kernel: Kernel, at: int) -> SoftmaxRows:
    first = kernel.phases[0]
    key_axis, depth, (query, key) = _product(kernel, first, KEY)
    assert first.reduction is not None
    places = {first.reduction.results[0]: _read(SCORE)}
    folds: list[tuple[str, Tree]] = []
    for phase in kernel.phases[1:at]:
        folds += _middle(phase, key_axis.size, places)
    if [kind for kind, _ in folds] != ["maximum", "add"]:
        raise _Other
    scores, exponential = (tree for _, tree in folds)
    if exponential != _exponential(scores):
        raise _Other
    mix = kernel.phases[at]
    width, term, value, weights = _mix(kernel, mix, places)
    if term.size != key_axis.size:
        raise _Other
    divided, no_nan, rounded = _weights(weights, exponential)
    assert mix.reduction is not None
    for name in [n for n, tree in places.items() if KEY in axis_names(tree)]:
        del places[name]
    places[mix.reduction.results[0]] = _read(MIX)
    stores: list[tuple[Store, Tree]] = []
    for phase in kernel.phases[at + 1 :]:
        stores += _last(phase, width.size, places)
    held = _index_names(key) | _index_names(value)
    if KEY in _index_names(query) or not stores:
        raise _Other
    return SoftmaxRows(
        query, key, value, depth, key_axis.size, width.size, scores, exponential,
        divided, no_nan, rounded,
        tuple(a for a in kernel.outer if a.name not in held),
        tuple(a for a in kernel.outer if a.name in held),
        tuple(stores),
    )  # fmt: skip


# -- expressions ----------------------------------------------------------------------


def _read(local: str) -> Tree:
    return Tree(LoadLocal("", local))


def _index_names(operation: ScalarOperation) -> set[str]:
    if isinstance(operation, Load):
        return {name for i in operation.index for name in i.names}
    return set(operation.value.names) if isinstance(operation, IndexValue) else set()


def axis_names(tree: Tree) -> set[str]:
    """Axes that a value depends on; a score, along the keys; a mix, along the width."""
    found = set(_index_names(tree.operation))
    if isinstance(tree.operation, LoadLocal):
        found |= {SCORE: {KEY}, MIX: {WIDTH}}.get(tree.operation.local, set())
    for operand in tree.operands:
        found |= axis_names(operand)
    return found


def _trees(phase: Phase, axis: str, name: str, places: _Places) -> dict[str, Tree]:
    """The values of a body, its axis renamed and its locals replaced by what they are."""
    values: dict[str, Tree] = {}
    renamed = {axis: dim(name)} if axis else {}
    for o in phase.body:
        if isinstance(o, LoadLocal):
            kept = places.get(o.local)
            inner = (dim(axis),) if o.index else ()
            if kept is None or o.index != inner:
                raise _Other
            values[o.result] = kept
        elif isinstance(o, Compute):
            operands = tuple(values[x] for x in o.operands)
            values[o.result] = Tree(replace(o, result="", operands=()), operands)
        elif isinstance(o, Load):
            index = tuple(i.substitute(renamed) for i in o.index)
            made = replace(o, result="", index=index)
            if _index_names(made) & values.keys():
                raise _Other
            values[o.result] = Tree(made)
        elif isinstance(o, IndexValue):
            values[o.result] = Tree(replace(o, result="", value=o.value.substitute(renamed)))
        else:
            values[o.result] = Tree(replace(o, result=""))
    return values


def linearise(tree: Tree) -> tuple[tuple[ScalarOperation, ...], str]:
    """An expression as a body, each part of it once, and the name of its value."""
    made: list[ScalarOperation] = []
    names: dict[Tree, str] = {}

    def visit(part: Tree) -> str:
        if part not in names:
            operands = tuple(visit(p) for p in part.operands)
            name = f"%v{len(made)}"
            operation = replace(part.operation, result=name)
            if isinstance(operation, Compute):
                operation = replace(operation, operands=operands)
            made.append(operation)
            names[part] = name
        return names[part]

    last = visit(tree)
    return tuple(made), last


# -- phases -----------------------------------------------------------------------------


def _product(kernel: Kernel, phase: Phase, name: str) -> tuple[Axis, Axis, tuple[Load, Load]]:
    factors, reduction = contraction(phase), phase.reduction
    if factors is None or reduction is None or str(reduction.initial[0]) not in _ZEROS:
        raise _Other
    if len(phase.parallel) != 1 or len(phase.reduction_axes) != 1:
        raise _Other
    axis, depth = phase.parallel[0], phase.reduction_axes[0]
    trees = _trees(phase, axis.name, name, {})
    loads = [_plain_load(kernel, trees[f]) for f in factors]
    if name in _index_names(loads[0]):
        loads.reverse()
    left, right = loads
    if name in _index_names(left) or name not in _index_names(right):
        raise _Other
    return axis, depth, (left, right)


_ZEROS = ("0", "0.0", "-0.0")


def _plain_load(kernel: Kernel, tree: Tree) -> Load:
    """The load that a factor is, widened to f32 or not at all."""
    dtypes: list[str] = []
    while isinstance(tree.operation, Compute) and tree.operation.operation == "convert":
        dtypes.append(tree.operation.dtype.name)
        (tree,) = tree.operands
    if not isinstance(tree.operation, Load) or tree.operation.bounded:
        raise _Other
    source = kernel.operands[tree.operation.operand].dtype.name
    if source not in ("f32", "f16", "bf16") or any(d not in ("f32", source) for d in dtypes):
        raise _Other
    return tree.operation


def _middle(phase: Phase, keys: Expr, places: dict[str, Tree]) -> list[tuple[str, Tree]]:
    """What a phase over the row folds, and how; maps only name values."""
    axes = (*phase.parallel, *phase.reduction_axes)
    if len(axes) > 1 or any(a.size != keys for a in axes):
        raise _Other
    trees = _trees(phase, axes[0].name if axes else "", KEY, places)
    reduction = phase.reduction
    if reduction is None:
        for store in phase.stores:
            inner = (dim(axes[0].name),) if axes else ()
            if not isinstance(store.operand, str) or store.index != inner:
                raise _Other
            places[store.operand] = trees[store.value]
        return []
    if len(reduction.results) != 1 or phase.parallel:
        raise _Other
    start, kind = str(reduction.initial[0]), reduction.combiner.kind
    if kind == "maximum" and start == "-inf":
        places[reduction.results[0]] = _read(GREATEST)
    elif kind == "add" and start in _ZEROS:
        places[reduction.results[0]] = _read(TOTAL)
    else:
        raise _Other
    return [(kind, trees[reduction.values[0]])]


def _exponential(scores: Tree) -> Tree | None:
    """exp(score - greatest) in f32."""
    dtype = getattr(scores.operation, "dtype", None)
    if isinstance(scores.operation, LoadLocal):
        dtype = F32
    if dtype != F32:
        return None
    less = Tree(Compute("", "subtract", (), F32), (scores, _read(GREATEST)))
    return Tree(Compute("", "exponential", (), F32), (less,))


def _mix(kernel: Kernel, phase: Phase, places: _Places) -> tuple[Axis, Axis, Load, Tree]:
    factors, reduction = contraction(phase), phase.reduction
    if factors is None or reduction is None or str(reduction.initial[0]) not in _ZEROS:
        raise _Other
    if len(phase.parallel) != 1 or len(phase.reduction_axes) != 1:
        raise _Other
    width, term = phase.parallel[0], phase.reduction_axes[0]
    trees = _trees(phase, term.name, KEY, places)
    for left, right in (factors, factors[::-1]):
        if axis_names(trees[left]) & {width.name} or SCORE not in read_by(trees[left]):
            continue
        load = _plain_load(kernel, trees[right])
        index = tuple(i.substitute({width.name: dim(WIDTH)}) for i in load.index)
        load = replace(load, index=index)
        if {KEY, WIDTH} <= _index_names(load):
            return width, term, load, trees[left]
    raise _Other


def read_by(tree: Tree) -> set[str]:
    """Locals that a value depends on."""
    own = {tree.operation.local} if isinstance(tree.operation, LoadLocal) else set[str]()
    return own.union(*(read_by(o) for o in tree.operands))


def _weights(tree: Tree, exponential: Tree) -> tuple[bool, bool, str]:
    """Whether the weights are divided, are 0 where they are no number, and rounded to what."""
    rounded = ""
    while isinstance(tree.operation, Compute) and tree.operation.operation == "convert":
        if tree.operation.dtype.name not in ("f32", "f16", "bf16"):
            raise _Other
        if tree.operation.dtype != F32:
            rounded = tree.operation.dtype.name
        (tree,) = tree.operands
    if tree == exponential:
        return False, False, rounded
    quotient = Tree(Compute("", "divide", (), F32), (exponential, _read(TOTAL)))
    if tree == quotient:
        return True, False, rounded
    operation = tree.operation
    if isinstance(operation, Compute) and operation.operation == "select":
        is_nan, zero, kept = tree.operands
        wanted = Compute("", "compare", (), I1, "NE")
        number = zero.operation
        if (
            kept == quotient
            and is_nan == Tree(wanted, (quotient, quotient))
            and isinstance(number, Constant)
            and not number.value
        ):
            return True, True, rounded
    raise _Other


def _last(phase: Phase, width: Expr, places: dict[str, Tree]) -> list[tuple[Store, Tree]]:
    """What a map along the results writes."""
    if phase.reduction is not None or len(phase.parallel) > 1:
        raise _Other
    axis = phase.parallel[0].name if phase.parallel else ""
    if any(a.size != width for a in phase.parallel):
        raise _Other
    trees = _trees(phase, axis, WIDTH, places)
    found: list[tuple[Store, Tree]] = []
    for store in phase.stores:
        if isinstance(store.operand, str):
            if store.index != ((dim(axis),) if axis else ()):
                raise _Other
            places[store.operand] = trees[store.value]
            continue
        if not axis or store.bounded:
            raise _Other
        index = tuple(i.substitute({axis: dim(WIDTH)}) for i in store.index)
        found.append((replace(store, value="", index=index), trees[store.value]))
    return found


def read_locals() -> tuple[Local, ...]:
    """What the expressions read, as locals of f32."""
    return tuple(Local(name, F32) for name in (SCORE, GREATEST, TOTAL, MIX))
