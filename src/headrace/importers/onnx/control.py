"""If, Loop, Scan and SequenceMap: the operators whose attributes are graphs.

A condition or a number of trips that is known leaves no control flow behind; loops of few
trips are written out, so that shapes may change from trip to trip.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from xdsl.ir import Block, SSAValue

from headrace.base.dtypes import F32, I64
from headrace.base.parameters import array_source
from headrace.base.symbols import Expr, as_expr
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.values import OptionalValue, SequenceValue, Value
from headrace.ir.types import dtype_of, shape_of
from headrace.tensor.loops import (
    WRITTEN_TRIPS,
    Stepped,
    branch,
    counted_loop,
    discard,
    get_row,
    move,
)

if TYPE_CHECKING:
    from onnx import GraphProto

    from headrace.importers.onnx.graph import GraphImporter, Scope

Rule: TypeAlias = Callable[["GraphImporter", NodeContext, "Scope"], "list[Value | None]"]

MOST_WRITTEN_TRIPS = 1024
"""A loop that only makes sense written out may have so many trips."""
_UNLIMITED = 1 << 31
"""Exporters write such a number of trips where only the condition counts."""


def control_rule(op_type: str) -> Rule | None:
    """How an operator of the standard domain is imported; None where it has no graphs."""
    return _RULES.get(op_type)


def _graph(c: NodeContext, name: str) -> GraphProto:
    from onnx import GraphProto

    found = c.attribute(name, GraphProto, None)
    if found is None:
        raise c.malformed(f"'{name}' is missing")
    return found


# -- If --------------------------------------------------------------------------------


def _if(at: GraphImporter, c: NodeContext, scope: Scope) -> list[Value | None]:
    known = c.known(0)
    graphs = _graph(c, "then_branch"), _graph(c, "else_branch")
    if known is not None:
        taken = graphs[0 if bool(known.reshape(-1)[0]) else 1]
        return list(at.subgraph(taken, (), c, scope))
    condition = at.build.reshape(c.data(0), ())
    sides: list[list[Value]] = []

    def side(graph: GraphProto) -> Callable[[Block], list[SSAValue]]:
        def fill(_: Block) -> list[SSAValue]:
            values = at.subgraph(graph, (), c, scope)
            sides.append(values)
            if len(sides) == 2:
                _require_alike(c, *sides)
            return [_tensor(c, at, v) for v in values]

        return fill

    results = branch(at.build, condition, side(graphs[0]), side(graphs[1]))
    return [Value("", dtype_of(r), shape_of(r), ssa=r) for r in results]


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
    body = _graph(c, "body")
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
    except _Changes as why:
        if most is not None and most <= MOST_WRITTEN_TRIPS and first is True:
            written = _written_out(at, most, carried, trip, MOST_WRITTEN_TRIPS)
            if written is not None:
                return written
        raise c.unsupported(str(why)) from why


class _Changes(ValueError):
    """A value changes from trip to trip, so that only a written out loop can have it."""


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
    return [*states, *(_stacked(at, column) for column in zip(*rows, strict=True))]


def _stacked(at: GraphImporter, rows: Sequence[Value], axis: int = 0) -> Value:
    parts: list[SSAValue] = []
    for row in rows:
        shape = [*row.shape[:axis], as_expr(1), *row.shape[axis:]]
        parts.append(at.build.reshape(at.materialise(row), shape))
    made = at.build.concatenate(parts, axis)
    return Value("", dtype_of(made), shape_of(made), ssa=made)


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
        _require_same(c, carried, made.carried)
        early[0] |= made.goes_on is not True
        flag = None if made.goes_on else at.build.reshape(at.materialise(made.flag), ())
        if made.stacked and not isinstance(limit, Expr):
            raise _Changes("values are stacked, and nothing bounds how often the loop runs")
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


def _require_same(c: NodeContext, before: Sequence[Value], after: Sequence[Value]) -> None:
    for old, new in zip(before, after, strict=True):
        if old.dtype != new.dtype:
            raise c.malformed(f"'{old.name}' becomes {new.dtype} from {old.dtype} in a trip")
        try:
            if len(old.shape) != len(new.shape):
                raise ValueError
            for a, b in zip(old.shape, new.shape, strict=True):
                c.dims.same(a, b)
        except ValueError as wrong:
            raise _Changes(f"'{old.name}' changes its shape from trip to trip") from wrong


# -- Scan ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _ScanForm:
    """The attributes of a Scan, each list whole.

    Attributes:
        states: how many values are carried.
        input_axes, output_axes: what is scanned, and stacked along.
        backward_inputs, backward_outputs: whether from the last to the first.
    """

    states: int
    input_axes: list[int]
    output_axes: list[int]
    backward_inputs: list[bool]
    backward_outputs: list[bool]


def _scan(at: GraphImporter, c: NodeContext, scope: Scope) -> list[Value | None]:
    body = _graph(c, "body")
    if c.opset < 9:
        return _scan_of_batches(at, c, scope, body)
    return _scan_values(at, c, scope, body, list(map(c.value, range(len(c.inputs)))))


def _scan_of_batches(
    at: GraphImporter, c: NodeContext, scope: Scope, body: GraphProto
) -> list[Value | None]:
    """Version 8: every input has a batch dimension first, scanned one after the other."""
    if c.has(0):
        raise c.unsupported("sequence lengths")
    inputs = [c.value(n) for n in range(1, len(c.inputs))]
    batch = inputs[0].shape[0]
    if not batch.is_constant or not 1 <= batch.value <= MOST_WRITTEN_TRIPS:
        raise c.unsupported(f"a batch of {batch}")
    rows: list[list[Value]] = []
    for n in range(batch.value):
        given: list[Value] = []
        for value in inputs:
            row = c.slice_axis(at.materialise(value), 0, n, n + 1)
            row = at.build.reshape(row, value.shape[1:])
            given.append(Value(value.name, value.dtype, shape_of(row), ssa=row))
        made = _scan_values(at, c, scope, body, given)
        rows.append([v for v in made if v is not None])
    return [_stacked(at, column) for column in zip(*rows, strict=True)]


def _scan_values(
    at: GraphImporter,
    c: NodeContext,
    scope: Scope,
    body: GraphProto,
    inputs: Sequence[Value],
) -> list[Value | None]:
    count = c.int("num_scan_inputs")
    if not 1 <= count <= len(inputs):
        raise c.malformed(f"{count} scan inputs of {len(inputs)} inputs")
    states, scanned = list(inputs[:-count]), inputs[-count:]
    form = _form(c, len(states), scanned, len(body.output))
    trips = scanned[0].shape[form.input_axes[0]]
    for value, axis in zip(scanned, form.input_axes, strict=True):
        c.dims.same(trips, value.shape[axis])
    data = [at.materialise(v) for v in scanned]

    def trip(
        slices: Sequence[SSAValue], carried: Sequence[Value]
    ) -> tuple[list[Value], list[Value]]:
        given = [Value("", dtype_of(s), shape_of(s), ssa=s) for s in slices]
        made = at.subgraph(body, [*carried, *given], c, scope)
        return made[: len(states)], made[len(states) :]

    if trips.is_constant and 1 <= trips.value <= WRITTEN_TRIPS:
        return _scan_written_out(at, c, form, trips.value, states, data, trip)
    return _scan_loop(at, c, form, trips, states, data, trip)


def _form(c: NodeContext, states: int, scanned: Sequence[Value], outputs: int) -> _ScanForm:
    count = len(scanned)
    if outputs < states:
        raise c.malformed(f"its body returns {outputs} values for {states} states")
    if c.opset < 9:
        directions = c.ints("directions", [0] * count)
        forward = [False] * (outputs - states)
        assert directions is not None
        return _ScanForm(
            states, [0] * count, [0] * (outputs - states), list(map(bool, directions)), forward
        )
    lists = [
        c.ints("scan_input_axes", [0] * count),
        c.ints("scan_output_axes", [0] * (outputs - states)),
        c.ints("scan_input_directions", [0] * count),
        c.ints("scan_output_directions", [0] * (outputs - states)),
    ]
    sizes = [count, outputs - states] * 2
    if any(found is None or len(found) != n for found, n in zip(lists, sizes, strict=True)):
        raise c.malformed("an attribute does not have an entry for each input or output")
    input_axes, output_axes, backward, turned = (list(found or ()) for found in lists)
    axes = [c.normal_axis(a, v.rank) for a, v in zip(input_axes, scanned, strict=True)]
    return _ScanForm(
        states, axes, output_axes, list(map(bool, backward)), list(map(bool, turned))
    )


ScanTrip: TypeAlias = Callable[
    [Sequence[SSAValue], Sequence[Value]], tuple["list[Value]", "list[Value]"]
]


def _scan_written_out(
    at: GraphImporter,
    c: NodeContext,
    form: _ScanForm,
    trips: int,
    states: Sequence[Value],
    data: Sequence[SSAValue],
    trip: ScanTrip,
) -> list[Value | None]:
    carried, rows = list(states), list[list[Value]]()
    for n in range(trips):
        slices: list[SSAValue] = []
        for value, axis, back in zip(data, form.input_axes, form.backward_inputs, strict=True):
            place = trips - 1 - n if back else n
            shape = [s for d, s in enumerate(shape_of(value)) if d != axis]
            slices.append(at.build.reshape(c.slice_axis(value, axis, place, place + 1), shape))
        carried, kept = trip(slices, carried)
        rows.append(kept)
    found: list[Value | None] = list(carried)
    for n, column in enumerate(zip(*rows, strict=True)):
        ordered = tuple(reversed(column)) if form.backward_outputs[n] else column
        axis = c.normal_axis(form.output_axes[n], column[0].rank + 1)
        found.append(_stacked(at, ordered, axis))
    return found


def _scan_loop(
    at: GraphImporter,
    c: NodeContext,
    form: _ScanForm,
    trips: Expr,
    states: Sequence[Value],
    data: Sequence[SSAValue],
    trip: ScanTrip,
) -> list[Value | None]:
    build = at.build
    count = build.dimension(trips, I64)

    def step(number: SSAValue, carried: list[SSAValue]) -> Stepped:
        last = build.binary("subtract", count, build.scalar(1, I64))
        turned = build.binary("subtract", last, number)
        slices = [
            get_row(build, value, axis, turned if back else number)
            for value, axis, back in zip(
                data, form.input_axes, form.backward_inputs, strict=True
            )
        ]
        given = [
            Value(v.name, v.dtype, v.shape, ssa=s) for v, s in zip(states, carried, strict=True)
        ]
        following, kept = trip(slices, given)
        _require_same(c, states, following)
        return Stepped(
            [at.materialise(v) for v in following], [at.materialise(v) for v in kept]
        )

    start = [at.materialise(v) for v in states]
    try:
        made = counted_loop(build, trips, start, step, reverse=form.backward_outputs)
    except _Changes as why:
        raise c.unsupported(str(why)) from why
    found = list(made.carried)
    for value, axis in zip(made.kept, form.output_axes, strict=True):
        rank = len(shape_of(value))
        place = c.normal_axis(axis, rank)
        order = list(range(1, rank))
        order.insert(place, 0)
        found.append(build.transpose(value, order) if place else value)
    return [Value("", dtype_of(v), shape_of(v), ssa=v) for v in found]


# -- SequenceMap -----------------------------------------------------------------------


def _sequence_map(at: GraphImporter, c: NodeContext, scope: Scope) -> list[Value | None]:
    """The body on each element of the sequences; tensors are the same for all."""
    body = _graph(c, "body")
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
    "Scan": _scan,
    "SequenceMap": _sequence_map,
}
