"""Maps that read along one axis and write along another: blocks turned in registers.

A transposed copy, alone or with elementwise work fused to it. Eight rows of eight are
loaded along the axis that reads run along, turned, and computed and stored along the
axis that writes run along: every access is a whole vector. Rests go lane by lane.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.base.symbols import ONE, as_expr, ceildiv
from headrace.kernel.description import Axis, Kernel
from headrace.kernel.target import Launch, LayoutWish, Specialisation
from headrace.targets.cpu.emit import Context, NestEmitter, Typed
from headrace.targets.cpu.ir_text import Function, Module, Value, vector_type
from headrace.targets.cpu.machine import Machine
from headrace.targets.cpu.nest import Nest, NestPhase, Read, stride
from headrace.targets.cpu.offsets import Names
from headrace.targets.cpu.schedule import Schedule
from headrace.targets.cpu.simple import lowered

__all__ = ["emit", "layout_wishes", "match"]

_BLOCK = 8
_RUN = 64


@dataclass(frozen=True)
class TransposePlan:
    """A nest, its schedule (the axis of writes last) and the axis that reads run along."""

    nest: Nest
    schedule: Schedule
    along: Axis


def match(kernel: Kernel, machine: Machine) -> TransposePlan | None:
    """One map whose writes all run along one axis, and some read along another."""
    nest = lowered(kernel, machine)
    if len(nest.phases) != 1 or nest.phases[0].axes or nest.phases[0].reduction:
        return None
    phase = nest.phases[0]
    for last in nest.outer:
        if any(stride(w.access, last.name) != 1 for w in phase.writes) or _short(last):
            continue
        for along in nest.outer:
            if along is not last and not _short(along) and _turned(phase, along, last, kernel):
                others = tuple(a for a in nest.outer if a not in (along, last))
                size = last.size
                chunk = 0 if size.is_constant and size.value <= _RUN else _RUN
                order = (*others, along, last)
                schedule = Schedule("transpose", order, _BLOCK, (None,), chunk, 1)
                return TransposePlan(nest, schedule, along)
    return None


def _short(axis: Axis) -> bool:
    return axis.size.is_constant and axis.size.value < _BLOCK


def _turned(phase: NestPhase, along: Axis, last: Axis, kernel: Kernel) -> tuple[Read, ...]:
    """The reads that run along `along` and stride along `last`; none if others do worse."""
    found: list[Read] = []
    written = {w.access.place for w in phase.writes}
    for read in phase.reads:
        access = read.access
        if access.place in written:
            return ()
        if not access.offset.is_linear_in((along.name, last.name)):
            continue
        step = access.offset.coefficient(last.name)
        # Blocks are read before the values are that a gather's places come from.
        gathered = any(name.startswith("%v") for name in access.names)
        plain = not access.guards and not gathered and step.names <= set(kernel.dims)
        if plain and step not in (as_expr(0), ONE) and stride(access, along.name) == 1:
            found.append(read)
    return tuple(found)


def emit(
    module: Module, symbol: str, kernel: Kernel, schedule: TransposePlan, machine: Machine
) -> tuple[Specialisation, ...]:
    """One function, one launch, for all sizes."""
    emitter = TransposeEmitter(module, symbol, kernel, schedule, machine)
    emitter.emit()
    launch = Launch(symbol, (emitter.tiles(), ONE, ONE), family="transpose")
    return (Specialisation((), (launch,)),)


def layout_wishes(kernel: Kernel, machine: Machine) -> Mapping[int, LayoutWish] | None:
    """Copies take what their neighbours wish."""
    return None


class TransposeEmitter(NestEmitter):
    """A row is a run along the reading axis: long enough to use whole cache lines."""

    def __init__(
        self, module: Module, symbol: str, kernel: Kernel, plan: TransposePlan, machine: Machine
    ) -> None:
        super().__init__(module, symbol, kernel, plan.nest, plan.schedule, machine)
        self._along = plan.along
        (phase,) = plan.nest.phases
        self._reads = _turned(phase, plan.along, self._last, kernel)

    @property
    def _rest(self) -> tuple[Axis, ...]:
        *others, along = self._schedule.order[:-1]
        return (*others, Axis(along.name, ceildiv(along.size, _RUN)))

    def _row(self, names: Names, low: Value, high: Value) -> None:
        """A run of the reading axis: its whole blocks, then what is left of it."""
        f = self._f
        name = self._along.name
        others = {n: v for n, v in names.items() if n != name}
        first = f.mul(names[name], _RUN)
        end = f.minimum(f.add(first, _RUN), self._entry.size(self._along.size))
        whole = self._whole(first, end, _BLOCK)
        self._blocks(others, (first, whole), low, high)

        def one(i: Value, _: list[Value]) -> None:
            super(TransposeEmitter, self)._row({**names, name: i}, low, high)

        f.loop(whole, end, 1, one)

    def _blocks(self, names: Names, run: tuple[Value, Value], low: Value, high: Value) -> None:
        f = self._f
        base = self._open({**self._entry.names, **names})
        end = self._whole(low, high, _BLOCK)

        def column(j: Value, _: list[Value]) -> None:
            start = self._bind(base, self._last, j)
            f.loop(*run, _BLOCK, lambda i, _: self._block(start, i))

        f.loop(low, end, _BLOCK, column)
        if self._last.size.is_constant and self._last.size.value % _BLOCK == 0:
            return

        def rest(j: Value, _: list[Value]) -> None:
            start = self._bind(base, self._last, j)
            f.loop(*run, 1, lambda i, _: self._point(self._bind(start, self._along, i)))

        f.loop(end, high, 1, rest)

    def _block(self, start: Context, first: Value) -> None:
        """Eight points along each axis; `start` has the writing axis bound."""
        corner = self._bind(start, self._along, first)
        turned = {read: self._turn(corner, read) for read in self._reads}
        for number in range(_BLOCK):
            for read, lanes in turned.items():
                self._given[read.result] = Typed(lanes[number], read.dtype)
            vector = replace(start, width=_BLOCK, axis=self._last.name)
            self._point(self._bind(vector, self._along, self._f.add(first, number)))
        self._given = {}

    def _turn(self, start: Context, read: Read) -> list[Value]:
        """Loads eight vectors along the reading axis; returns them along the writing one."""
        f = self._f
        base, element, size_bytes = self._where(read.access, read.dtype)
        at, extra = self._scalar_offset(start, {}, read.access)
        step = self._entry.size(read.access.offset.coefficient(self._last.name))
        loaded: list[Value] = []
        for j in range(_BLOCK):
            moved = f.add(at, f.mul(step, j))
            address = self._address(base, (moved, extra), size_bytes)
            raw = f.load(vector_type(element, _BLOCK), address, size_bytes)
            loaded.append(raw)
        return [self._from_memory(read.access, read.dtype, v) for v in transpose_8x8(f, loaded)]


def transpose_8x8(f: Function, rows: list[Value]) -> list[Value]:
    """The columns of eight vectors of eight, by three rounds of shuffles within 128 bits."""
    low, high = (0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15)
    pairs = [f.shuffle(rows[i], rows[i + 1], m) for i in (0, 2, 4, 6) for m in (low, high)]
    first, second = (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15)
    fours = [
        f.shuffle(pairs[i], pairs[i + 2], m) for i in (0, 1, 4, 5) for m in (first, second)
    ]
    left, right = (0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15)
    return [
        *(f.shuffle(fours[i], fours[i + 4], left) for i in range(4)),
        *(f.shuffle(fours[i], fours[i + 4], right) for i in range(4)),
    ]
