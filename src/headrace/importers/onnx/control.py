"""If, Loop, Scan and SequenceMap: the operators whose attributes are graphs.

A condition or a number of trips that is known leaves no control flow behind; loops of few
trips are written out, so that shapes may change from trip to trip.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from xdsl.ir import Block, SSAValue

from headrace.base.dtypes import F32, I1, I64
from headrace.base.parameters import array_source
from headrace.base.symbols import Expr
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.scan import import_scan
from headrace.importers.onnx.subgraphs import (
    MOST_WRITTEN_TRIPS,
    Changes,
    graph_of,
    require_same,
    stack,
)
from headrace.importers.onnx.values import OptionalValue, SequenceValue, Value
from headrace.ir.types import dtype_of, shape_of
from headrace.tensor.loops import (
    WRITTEN_TRIPS,
    Stepped,
    branch,
    counted_loop,
    discard,
    move,
)

if TYPE_CHECKING:
    from onnx import GraphProto

    from headrace.importers.onnx.graph import GraphImporter, Scope

Rule: TypeAlias = Callable[["GraphImporter", NodeContext, "Scope"], "list[Value | None]"]

_UNLIMITED = 1 << 31
"""Exporters write such a number of trips where only the condition counts."""


def control_rule(op_type: str) -> Rule | None:
    """How an operator of the standard domain is imported; None where it has no graphs."""
    return _RULES.get(op_type)


# -- If --------------------------------------------------------------------------------


def _if(at: GraphImporter, c: NodeContext, scope: Scope) -> list[Value | None]:
    known = c.known(0)
    graphs = graph_of(c, "then_branch"), graph_of(c, "else_branch")
    if known is not None:
        taken = graphs[0 if bool(known.reshape(-1)[0]) else 1]
        return list(at.subgraph(taken, (), c, scope))
    compared = c.value(0).compared
    if compared is not None and _names_of(graphs) == (["Squeeze"], ["Identity"]):
        # An axis goes where it holds one element: a result has one rank, so it does, and a
        # call with other sizes is refused.
        c.dims.same(*compared)
        return list(at.subgraph(graphs[0], (), c, scope))
    condition = at.build.reshape(c.data(0), ())
    sides: list[list[Value]] = []

    names = [f"{c.node.label}/{word}" for word in ("then", "else")]

    def side(graph: GraphProto, name: str) -> Callable[[Block], list[SSAValue]]:
        def fill(_: Block) -> list[SSAValue]:
            with c.dims.within(name):
                values = at.subgraph(graph, (), c, scope)
                sides.append(values)
                if len(sides) == 2:
                    _require_alike(c, *sides)
                made = [_tensor(c, at, v) for v in values]
            return _guarded(c, made, name)

        return fill

    sides_of = [side(g, n) for g, n in zip(graphs, names, strict=True)]
    results = branch(at.build, condition, *sides_of)
    c.dims.join(names)
    return [Value("", dtype_of(r), shape_of(r), ssa=r) for r in results]


def _names_of(graphs: Sequence[GraphProto]) -> tuple[list[str], ...]:
    """The operators of each, but for constants."""
    return tuple([n.op_type for n in g.node if n.op_type != "Constant"] for g in graphs)


def _guarded(c: NodeContext, made: list[SSAValue], branch_name: str) -> list[SSAValue]:
    """The results of a branch, NaN for sizes of inputs that the branch does not take.

    Only when it runs is it known which branch it must fit, and nothing can be refused then.
    """
    ranges = c.dims.branch_ranges.get(branch_name, {})
    if not ranges:
        return made
    if not any(dtype_of(v).is_float for v in made):
        raise c.unsupported("a branch that data takes bounds sizes of inputs")
    b = c.build
    fits = b.scalar(True, I1)
    for name, (low, high) in sorted(ranges.items()):
        size = b.dimension(name)
        fits = b.binary("and", fits, b.compare("GE", size, b.scalar(low, I64)))
        if high is not None:
            fits = b.binary("and", fits, b.compare("LE", size, b.scalar(high, I64)))
    found: list[SSAValue] = []
    for value in made:
        if dtype_of(value).is_float:
            valid = b.broadcast_in_dim(fits, (), shape_of(value))
            value = b.select(valid, value, c.scalar_like(float("nan"), value))
        found.append(value)
    return found


def _require_alike(c: NodeContext, then: Sequence[Value], otherwise: Sequence[Value]) -> None:
    for a, b in zip(then, otherwise, strict=True):
        if a.dtype != b.dtype or len(a.shape) != len(b.shape):
            kinds = f"{a.dtype} of rank {a.rank} and {b.dtype} of rank {b.rank}"
            raise c.unsupported(f"data chooses between branches that return {kinds}")
        for left, right in zip(a.shape, b.shape, strict=True):
            c.dims.same(left, right)


def _tensor(c: NodeContext, at: GraphImporter, value: Value) -> SSAValue:
    if isinstance(value, (SequenceValue, OptionalValue)):
        raise c.unsupported("data decides about a sequence or an optional")
    return at.materialise(value)


# -- Loop ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Trip:
    """What a trip leaves: whether it goes on (None: data decides), carried, stacked."""

    goes_on: bool | None
    flag: Value
    carried: list[Value]
    stacked: list[Value]


def _loop(at: GraphImporter, c: NodeContext, scope: Scope) -> list[Value | None]:
    body = graph_of(c, "body")
    carried_count = max(0, len(c.inputs) - 2)
    limit = _limit(c, stacks=len(body.output) > 1 + carried_count)
    first = _truth(c, c.value(1)) if c.has(1) else True
    carried = [c.value(n) for n in range(2, len(c.inputs))]

    def trip(number: Value, states: Sequence[Value]) -> _Trip:
        # The body only runs where the condition held, so inside it is true.
        made = at.subgraph(body, [number, _number(at, True), *states], c, scope)
        count = len(states) + 1
        if len(made) < count:
            raise c.malformed(f"its body returns {len(made)} values, not {count} or more")
        return _Trip(_truth(c, made[0]), made[0], made[1:count], made[count:])

    most = limit.value if isinstance(limit, Expr) and limit.is_constant else None
    if most == 0 or first is False:
        return _no_trips(at, carried, trip)
    few = most is None or most <= WRITTEN_TRIPS or most >= _UNLIMITED
    changing = any(isinstance(v, (SequenceValue, OptionalValue)) for v in carried)
    if first is True and (few or changing):
        tries = MOST_WRITTEN_TRIPS if changing else WRITTEN_TRIPS
        written = _written_out(at, most, carried, trip, tries)
        if written is not None:
            return written
    try:
        return _real_loop(at, c, limit, first, carried, trip)
    except Changes as why:
        if most is not None and most <= MOST_WRITTEN_TRIPS and first is True:
            written = _written_out(at, most, carried, trip, MOST_WRITTEN_TRIPS)
            if written is not None:
                return written
        raise c.unsupported(str(why)) from why


def _limit(c: NodeContext, stacks: bool) -> Expr | SSAValue | None:
    """The number of trips: a size, a scalar that data decides, or None where there is none.

    Where values are stacked it is always a size: one that is read back if need be.
    """
    if not c.has(0):
        return None
    value = c.value(0)
    if value.sizes is None and c.known(0) is None:
        number = c.build.reshape(c.data(0), ())
        if not stacks:
            return number
        number = c.build.binary("maximum", number, c.build.scalar(0, I64))
        return c.decided_size(number, None)
    return c.size(0)


def _truth(c: NodeContext, value: Value) -> bool | None:
    known = c.known_value(value)
    return None if known is None else bool(known.reshape(-1)[0])


def _number(at: GraphImporter, number: Any) -> Value:
    import numpy as np

    dtype = np.bool_ if isinstance(number, bool) else np.int64
    return at.add_source("", array_source(np.array(number, dtype)))


Trip: TypeAlias = Callable[[Value, Sequence[Value]], _Trip]


def _written_out(
    at: GraphImporter, most: int | None, carried: Sequence[Value], trip: Trip, tries: int
) -> list[Value | None] | None:
    """The loop trip by trip; None where data decides how many there are, or many are."""
    draft = Block()
    states, rows = list(carried), list[list[Value]]()
    try:
        with at.build.inside(draft):
            while most is None or len(rows) < most:
                if len(rows) == tries:
                    return None
                made = trip(_number(at, len(rows)), states)
                if made.goes_on is None and (most is None or len(rows) + 1 < most):
                    return None
                states = made.carried
                rows.append(made.stacked)
                if made.goes_on is False:
                    break
        move(draft, at.build)
    finally:
        discard(draft)
    return [*states, *(stack(at, column) for column in zip(*rows, strict=True))]


def _no_trips(at: GraphImporter, carried: Sequence[Value], trip: Trip) -> list[Value | None]:
    """The body is only looked at for what it would stack."""
    draft = Block()
    try:
        with at.build.inside(draft):
            kinds = [(v.dtype, v.shape) for v in trip(_number(at, 0), carried).stacked]
    finally:
        discard(draft)
    empty = [at.build.splat(0, dtype, (0, *shape)) for dtype, shape in kinds]
    return [*carried, *(Value("", dtype_of(e), shape_of(e), ssa=e) for e in empty)]


def _real_loop(
    at: GraphImporter,
    c: NodeContext,
    limit: Expr | SSAValue | None,
    first: bool | None,
    carried: Sequence[Value],
    trip: Trip,
) -> list[Value | None]:
    start = [_tensor(c, at, v) for v in carried]
    early = [first is None]

    def step(number: SSAValue, states: list[SSAValue]) -> Stepped:
        given = [
            Value(v.name, v.dtype, v.shape, ssa=s) for v, s in zip(carried, states, strict=True)
        ]
        made = trip(Value("", I64, (), ssa=number), given)
        require_same(c, carried, made.carried)
        early[0] |= made.goes_on is not True
        flag = None if made.goes_on else at.build.reshape(at.materialise(made.flag), ())
        if made.stacked and not isinstance(limit, Expr):
            raise Changes("values are stacked, and nothing bounds how often the loop runs")
        return Stepped(
            [at.materialise(v) for v in made.carried],
            [at.materialise(v) for v in made.stacked],
            flag,
        )

    flag = None if first else at.build.reshape(c.data(1), ())
    made = counted_loop(at.build, limit, start, step, goes_on=flag)
    if made.kept and early[0]:
        trips = c.decided_size(made.count, limit if isinstance(limit, Expr) else None)
        rows = [c.slice_axis(v, 0, 0, trips) for v in made.kept]
        made = replace(made, kept=rows)
    return [Value("", dtype_of(v), shape_of(v), ssa=v) for v in (*made.carried, *made.kept)]


# -- SequenceMap -----------------------------------------------------------------------


def _sequence_map(at: GraphImporter, c: NodeContext, scope: Scope) -> list[Value | None]:
    """The body on each element of the sequences; tensors are the same for all."""
    body = graph_of(c, "body")
    inputs = [c.value(n) for n in range(len(c.inputs))]
    lengths = {len(v.items) for v in inputs if isinstance(v, SequenceValue)}
    if not isinstance(inputs[0], SequenceValue) or len(lengths) != 1:
        raise c.malformed("the first input is a sequence, others are equally long or tensors")
    rows = [
        at.subgraph(
            body,
            [v.items[n] if isinstance(v, SequenceValue) else v for v in inputs],
            c,
            scope,
        )
        for n in range(lengths.pop())
    ]
    columns = zip(*rows, strict=True) if rows else [()] * len(body.output)
    return [
        SequenceValue("", column[0].dtype if column else F32, (), items=tuple(column))
        for column in columns
    ]


_RULES: dict[str, Rule] = {
    "If": _if,
    "Loop": _loop,
    "Scan": import_scan,
    "SequenceMap": _sequence_map,
}
