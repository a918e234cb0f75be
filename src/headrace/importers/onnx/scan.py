"""Scan: a graph over slices of its inputs, carrying state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from xdsl.ir import SSAValue

from headrace.base.dtypes import I64
from headrace.base.symbols import Expr
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.subgraphs import (
    MOST_WRITTEN_TRIPS,
    Changes,
    graph_of,
    require_same,
    stack,
)
from headrace.importers.onnx.values import Value
from headrace.ir.types import dtype_of, shape_of
from headrace.tensor.loops import WRITTEN_TRIPS, Stepped, counted_loop, get_row

if TYPE_CHECKING:
    from onnx import GraphProto

    from headrace.importers.onnx.graph import GraphImporter, Scope


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


def import_scan(at: GraphImporter, c: NodeContext, scope: Scope) -> list[Value | None]:
    """The results of a Scan node of any version."""
    body = graph_of(c, "body")
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
    return [stack(at, column) for column in zip(*rows, strict=True)]


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
        found.append(stack(at, ordered, axis))
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
        require_same(c, states, following)
        return Stepped(
            [at.materialise(v) for v in following], [at.materialise(v) for v in kept]
        )

    start = [at.materialise(v) for v in states]
    try:
        made = counted_loop(build, trips, start, step, reverse=form.backward_outputs)
    except Changes as why:
        raise c.unsupported(str(why)) from why
    found = list(made.carried)
    for value, axis in zip(made.kept, form.output_axes, strict=True):
        rank = len(shape_of(value))
        place = c.normal_axis(axis, rank)
        order = list(range(1, rank))
        order.insert(place, 0)
        found.append(build.transpose(value, order) if place else value)
    return [Value("", dtype_of(v), shape_of(v), ssa=v) for v in found]
