"""Scatters, updates of slices and sorts as phases: kernels that say where elements go
instead of where they come from.

A scatter and an update of a slice begin with a phase that copies what they change. Where
the result takes the operand's place, that phase goes (`stream/in_place.py`), and only what
is updated is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from headrace.base.dtypes import I1, I64
from headrace.base.symbols import ZERO, Expr, as_expr, dim
from headrace.flow.lowering.body import Body, python_scalar
from headrace.flow.lowering.folds import combiner
from headrace.flow.lowering.frame import Frame
from headrace.flow.lowering.operations import integers
from headrace.flow.lowering.pull import Pull, clamped
from headrace.ir.types import dtype_of, shape_of
from headrace.kernel.description import (
    Axis,
    Combiner,
    Constant,
    Local,
    Phase,
    Reduction,
    Store,
)
from headrace.kernel.text import simple_combiner
from headrace.tensor import dialect as t

PullAt = Callable[[Frame, Sequence[Axis]], Pull]
"""Makes the pull of a phase: its frame, and its axes beyond the outer ones."""


@dataclass(frozen=True)
class Placed:
    """What such an operation becomes.

    Attributes:
        frame: its outer axes.
        phases, locals: of the kernel.
    """

    frame: Frame
    phases: tuple[Phase, ...]
    locals: tuple[Local, ...] = ()


def inlined(made: Combiner, body: Body, left: Sequence[str], right: Sequence[str]) -> list[str]:
    """The results of a combiner computed in the body of a phase."""
    names = dict(zip(made.left, left, strict=True))
    names.update(zip(made.right, right, strict=True))
    for operation in made.body:
        if isinstance(operation, Constant):
            names[operation.result] = body.constant(operation.value, operation.dtype)
            continue
        arguments = tuple(names[o] for o in operation.operands)
        names[operation.result] = body.compute(
            operation.operation, arguments, operation.dtype, operation.attribute
        )
    return [names[r] for r in made.results]


# -- scatter --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Numbers:
    """The dimension numbers of a scatter, each way round.

    Attributes:
        window: input dimension -> update dimension of the window in it.
        batching: input dimension -> update dimension that walks with it.
        component: input dimension -> component of the index vector.
        scattered: update dimensions that are no window, in order.
        vector: dimension of the index vector in the indices.
    """

    window: dict[int, int]
    batching: dict[int, int]
    component: dict[int, int]
    scattered: list[int]
    vector: int

    @staticmethod
    def of(operation: t.ScatterOp) -> _Numbers:
        rank = len(shape_of(operation.inputs[0]))
        update_rank = len(shape_of(operation.updates[0]))
        window = integers(operation.update_window_dims)
        batching = integers(operation.input_batching_dims)
        inserted = {*integers(operation.inserted_window_dims), *batching}
        kept = [d for d in range(rank) if d not in inserted]
        scattered = [d for d in range(update_rank) if d not in window]
        (vector,) = integers(operation.index_vector_dim)
        walks = integers(operation.scatter_indices_batching_dims)
        return _Numbers(
            dict(zip(kept, window, strict=True)),
            {
                d: scattered[n - (1 if n > vector else 0)]
                for d, n in zip(batching, walks, strict=True)
            },
            {d: k for k, d in enumerate(integers(operation.scatter_dims_to_operand_dims))},
            scattered,
            vector,
        )


def scatter(operation: t.ScatterOp, pull_at: PullAt, first_result: int) -> Placed:
    """Copies the inputs, then combines the updates in, one after the other.

    Dimensions that updates walk through whole, or in step with a batch, are outer axes:
    their points do not meet.

    Args:
        first_result: number of the kernel operand of the first result.
    """
    numbers = _Numbers.of(operation)
    shape, updates = shape_of(operation.inputs[0]), shape_of(operation.updates[0])
    together = {d: u for d, u in numbers.batching.items() if d not in numbers.component}
    together |= {
        d: u
        for d, u in numbers.window.items()
        if d not in numbers.component and updates[u] == shape[d]
    }
    outer = {d: f"%d{n}" for n, d in enumerate(sorted(together))}
    frame = Frame(tuple((name, shape[d]) for d, name in outer.items()))
    copied = _copied(operation, pull_at, frame, outer, first_result)
    placed = _placed(operation, pull_at, frame, outer, together, numbers, first_result)
    return Placed(frame, (copied, placed))


def _copied(
    operation: t.ScatterOp,
    pull_at: PullAt,
    frame: Frame,
    outer: dict[int, str],
    first_result: int,
) -> Phase:
    shape = shape_of(operation.inputs[0])
    axes: list[Axis] = []
    index: list[Expr] = []
    for d, size in enumerate(shape):
        if d not in outer:
            axes.append(Axis(f"%d{len(outer) + len(axes)}", size))
        index.append(dim(outer.get(d) or axes[-1].name))
    pull = pull_at(frame, axes)
    stores = tuple(
        Store(pull.value(value, tuple(index)), first_result + n, tuple(index))
        for n, value in enumerate(operation.inputs)
    )
    return Phase(tuple(axes), (), tuple(pull.body.operations), None, stores)


def _placed(
    operation: t.ScatterOp,
    pull_at: PullAt,
    frame: Frame,
    outer: dict[int, str],
    together: dict[int, int],
    numbers: _Numbers,
    first_result: int,
) -> Phase:
    shape, updates = shape_of(operation.inputs[0]), shape_of(operation.updates[0])
    names = {u: outer[d] for d, u in together.items()}
    axes: list[Axis] = []
    for u, size in enumerate(updates):
        if u not in names:
            axes.append(Axis(f"%d{len(outer) + len(axes)}", size))
            names[u] = axes[-1].name
    at = tuple(dim(names[u]) for u in range(len(updates)))
    pull = pull_at(frame, axes)
    scattered = [at[u] for u in numbers.scattered]
    index: list[Expr] = []
    bounded: list[int] = []
    for d in range(len(shape)):
        place = at[numbers.window[d]] if d in numbers.window else ZERO
        if d in numbers.batching:
            place = at[numbers.batching[d]]
        if d in numbers.component:
            where = list(scattered)
            if numbers.vector < len(shape_of(operation.scatter_indices)):
                where.insert(numbers.vector, as_expr(numbers.component[d]))
            place = place + pull.as_index(operation.scatter_indices, tuple(where))
            bounded.append(d)
        index.append(place)
    where_to, limits = tuple(index), tuple(bounded)
    old: list[str] = []
    new: list[str] = []
    for n, value in enumerate(operation.updates):
        dtype = dtype_of(value)
        zero = python_scalar(0, dtype) if limits else None
        old.append(pull.body.load(first_result + n, dtype, where_to, limits, zero))
        new.append(pull.value(value, at))
    results = inlined(combiner(operation), pull.body, old, new)
    stores = tuple(
        Store(value, first_result + n, where_to, limits) for n, value in enumerate(results)
    )
    return Phase(tuple(axes), (), tuple(pull.body.operations), None, stores, serial=True)


# -- updates of slices ------------------------------------------------------------------


def update_slice(
    operation: t.DynamicUpdateSliceOp, pull_at: PullAt, first_result: int
) -> Placed:
    """Copies the operand, then puts the update over it.

    Dimensions that the update spans whole are outer axes, but for the last: elements of a
    row stay together. A start is held inside the operand, as StableHLO says.

    Args:
        first_result: number of the kernel operand of the result.
    """
    shape, update = shape_of(operation.operand), shape_of(operation.update)
    spanned = [d for d in range(len(shape) - 1) if update[d] == shape[d]]
    outer = {d: f"%d{n}" for n, d in enumerate(spanned)}
    frame = Frame(tuple((name, shape[d]) for d, name in outer.items()))

    def phase(value: SSAValue, starts: Sequence[SSAValue]) -> Phase:
        sizes = shape_of(value)
        inner = [d for d in range(len(shape)) if d not in outer]
        axes = [Axis(f"%d{len(outer) + n}", sizes[d]) for n, d in enumerate(inner)]
        names = outer | {d: axis.name for d, axis in zip(inner, axes, strict=True)}
        at = tuple(dim(names[d]) for d in range(len(shape)))
        pull = pull_at(frame, axes)
        target = list(at)
        for d, start in enumerate(starts):
            if d not in outer:
                target[d] = target[d] + clamped(pull.as_index(start, ()), shape[d] - update[d])
        store = Store(pull.value(value, at), first_result, tuple(target))
        return Phase(tuple(axes), (), tuple(pull.body.operations), None, (store,))

    copied = phase(operation.operand, ())
    placed = phase(operation.update, tuple(operation.start_indices))
    return Placed(frame, (copied, placed))


# -- sort -----------------------------------------------------------------------------


def sort(operation: t.SortOp, pull_at: PullAt, results: dict[SSAValue, int]) -> Placed:
    """Counts for each element how many stand before it, then puts it there.

    Every pair is compared, so the work grows with the square of the dimension; equal
    elements keep their order, and nothing depends on the order of the work.

    Args:
        results: number of the kernel operand of each result that is used.
    """
    (d,) = integers(operation.dimension)
    shape = shape_of(operation.inputs[0])
    others = [n for n in range(len(shape)) if n != d]
    frame = Frame(tuple((f"%d{n}", shape[place]) for n, place in enumerate(others)))
    here = Axis(f"%d{len(others)}", shape[d])
    there = Axis("%r0", shape[d])
    rank = Local("rank", I64, (shape[d],))

    def index(along: Expr) -> tuple[Expr, ...]:
        at = list(frame.outer_index)
        at.insert(d, along)
        return tuple(at)

    counted = _counted(operation, pull_at(frame, (here, there)), index, here, there)
    pull = pull_at(frame, (here,))
    place = dim(pull.body.load_local(rank.name, I64, (dim(here.name),)))
    stores = tuple(
        Store(pull.value(value, index(dim(here.name))), results[result], index(place))
        for value, result in zip(operation.inputs, operation.results, strict=True)
        if result in results
    )
    put = Phase((here,), (), tuple(pull.body.operations), None, stores)
    return Placed(frame, (counted, put), (rank,))


def _counted(
    operation: t.SortOp,
    pull: Pull,
    index: Callable[[Expr], tuple[Expr, ...]],
    here: Axis,
    there: Axis,
) -> Phase:
    body = pull.body
    mine = [pull.value(v, index(dim(here.name))) for v in operation.inputs]
    others = [pull.value(v, index(dim(there.name))) for v in operation.inputs]
    before = combiner(operation)
    (other_first,) = inlined(before, body, others, mine)
    (mine_first,) = inlined(before, body, mine, others)
    earlier = body.compare("LT", dim(there.name), dim(here.name))
    level = body.compute("not", (mine_first,), I1)
    tie = body.compute("and", (level, earlier), I1)
    counts = body.convert(body.compute("or", (other_first, tie), I1), I64)
    fold = Reduction((counts,), (0,), simple_combiner("add", I64), ("rank",))
    return Phase((here,), (there,), tuple(body.operations), fold)
