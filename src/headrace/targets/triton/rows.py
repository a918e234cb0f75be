"""Reductions, softmax, norms and products with one row as Triton kernels: rows by lanes.

A program holds a tile: some points of the outer domain are its rows, a run of a phase's own
axes (reduction axes, or the inner axes of a map), flattened, its lanes. A reduction folds
runs lane by lane, then the lanes in a tree, then folds in the value it starts from, once; what it
gives is one value a row, which later phases read from registers. Rows that lie side by side
in memory are many in a tile, lanes that do are; loads are coalesced either way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from headrace.base.dtypes import DType
from headrace.base.symbols import ONE, Expr, ceildiv
from headrace.kernel.description import (
    Axis,
    Combiner,
    Kernel,
    Load,
    LoadLocal,
    Operand,
    Phase,
    Reduction,
)
from headrace.kernel.description import Scalar as Number
from headrace.kernel.lanes import scalar as scalars
from headrace.kernel.lanes.machine import MachineType, Value
from headrace.kernel.lanes.scalar import Scalar
from headrace.kernel.products import (
    as_product,
    flat_size,
    slice_rule,
    unconverted,
)
from headrace.kernel.target import SliceRule
from headrace.targets.triton.naive import TritonSource
from headrace.targets.triton.packed_rows import PackedRow, names_of, packed_load, read_in_words
from headrace.targets.triton.row_schedule import (
    Schedule,
    choose_schedule,
    inner_axes,
    multiplies_one_row,
)
from headrace.targets.triton.source import Text
from headrace.targets.triton.tiles import TileLowering, TileWriter, index_type


def is_row_kernel(kernel: Kernel) -> bool:
    """Whether the kernel folds, or maps inner axes, and is none that needs other means.

    Left to the naive emitter: array locals, maps whose points run in turn, halos to write,
    complex numbers, folds of nothing, and carried values without a neutral element over unknown
    sizes.
    """
    if not any(p.reduction is not None or p.parallel for p in kernel.phases):
        return False
    if any(x.shape or x.dtype.kind == "complex" for x in kernel.locals):
        return False
    if any(
        o.dtype.kind == "complex" or (o.access != "ro" and o.layout.has_halo)
        for o in kernel.operands
    ):
        return False
    return all(_can_run(kernel, phase) for phase in kernel.phases)


def _can_run(kernel: Kernel, phase: Phase) -> bool:
    if phase.serial:
        return False
    if phase.reduction is None:
        return not (phase.parallel and any(isinstance(s.operand, str) for s in phase.stores))
    size = flat_size(phase.reduction_axes)
    if phase.parallel or (size.is_constant and size.value == 0):
        return False
    return size.is_constant or phase.reduction.combiner.kind is not None


def generate(name: str, kernel: Kernel, kept: Sequence[Operand] = ()) -> TritonSource | None:
    """The kernel's Triton source; None where it is no kernel over rows.

    Args:
        kept: the last operands, which stand in scratch.

    Raises:
        HeadraceError HR2401: an operation that lanes lack.
    """
    if not is_row_kernel(kernel):
        return None
    schedule = choose_schedule(kernel)
    inner = [inner_axes(phase) for phase in kernel.phases]
    writer = TileWriter(kernel, index_type(kernel, inner), kept)
    writer.lets_next_begin_first = multiplies_one_row(kernel)
    _RowLowering(kernel, writer, schedule, name).emit()
    folds = sum(p.reduction is not None for p in kernel.phases)
    return writer.source(
        name,
        kernel,
        workgroups=(ceildiv(kernel.outer_size, schedule.rows), ONE, ONE),
        family="row" if folds > 1 or any(p.parallel for p in kernel.phases) else "reduce",
        warps=schedule.warps,
        stages=3,
        slice=_slice_rule(kernel, schedule),
    )


def _slice_rule(kernel: Kernel, schedule: Schedule) -> SliceRule | None:
    """Rows of tiles are cut where each reads its own run of a weight."""
    found = as_product(kernel)
    if found is None or found.batch:
        return None
    values = {o.result: o for o in kernel.phases[0].body}
    for factor in (found.left, found.right):
        load = unconverted(values, factor)
        if isinstance(load, Load):
            rule = slice_rule(kernel, load, kernel.outer, schedule.rows, 0)
            if rule is not None:
                return rule
    return None


def _weights_of(kernel: Kernel, phase: Phase) -> list[Load]:
    """Loads of weights that hang on nothing else: they need not wait for other launches."""
    axes = (*kernel.outer, *phase.reduction_axes)
    return [o for o in _lone_loads(kernel, phase, axes) if kernel.operands[o.operand].constant]


def _mapped_loads(kernel: Kernel) -> list[Load]:
    """What a product with one row needs beside its sums (a residual, a gate).

    Read while the sums are formed: behind them a program would wait for memory once more.
    """
    if not multiplies_one_row(kernel):
        return []
    # By phases before: read there, or written, so that what stands there changes.
    before: set[int | str] = {o.operand for o in kernel.phases[0].body if isinstance(o, Load)}
    found: dict[int, Load] = {}
    for phase in kernel.phases[1:]:
        for load in _lone_loads(kernel, phase, kernel.outer):
            if load.operand not in before:
                found[load.operand] = load
        before |= {o.operand for o in phase.body if isinstance(o, Load)}
        before |= {s.operand for s in phase.stores}
    reread = [o.operand for p in kernel.phases for o in p.body if isinstance(o, Load)]
    return [load for number, load in found.items() if reread.count(number) == 1]


def _lone_loads(kernel: Kernel, phase: Phase, axes: Sequence[Axis]) -> list[Load]:
    """Loads at places that hang on axes alone, of operands that are loaded once there."""
    loads = [o for o in phase.body if isinstance(o, Load)]
    names = {a.name for a in axes} | set(kernel.dims)
    return [
        o
        for o in loads
        if kernel.operands[o.operand].layout.codes is None
        and kernel.operands[o.operand].dtype.kind != "complex"
        and not o.bounded
        and all(i.names <= names for i in o.index)
        and sum(other.operand == o.operand for other in loads) == 1
    ]


# -- text -----------------------------------------------------------------------------


class _RowLowering(TileLowering):
    def __init__(
        self, kernel: Kernel, writer: TileWriter, schedule: Schedule, name: str
    ) -> None:
        super().__init__(kernel, writer)
        self.schedule = schedule
        self.name = name
        self.kept: dict[str, Scalar] = {}
        self.edge: str | None = None

    def emit(self) -> None:
        """The whole body."""
        writer = self.writer
        group = writer.program(0)
        self.edge = self._side(self.kernel.outer, group, self.schedule.rows, 1)
        ordered = any(o.access == "rw" for o in self.kernel.operands) or _reads_own_writes(
            self.kernel
        )
        for number, phase in enumerate(self.kernel.phases):
            if number and ordered:
                # What other threads of the program wrote is read, or written again.
                writer.line("tl.debug_barrier()")
            self._phase(phase)

    def _shape(self, lanes: int) -> None:
        self.writer.shape = f"({self.schedule.rows}, {lanes})"
        self.writer.edges = {} if self.edge is None else {1: self.edge}

    def _phase(self, phase: Phase) -> None:
        outside_names, outside_ranges = dict(self.indices.names), dict(self.indices.ranges)
        self._shape(self.schedule.lanes if inner_axes(phase) else 1)
        if phase.reduction is not None:
            self._reduce(phase, phase.reduction)
        elif phase.parallel:
            self._runs(phase.parallel, lambda: self._stores(phase))
        else:
            self._stores(phase)
        self.indices.names, self.indices.ranges = outside_names, outside_ranges

    def _stores(self, phase: Phase) -> None:
        values = self._body(phase.body)
        for store in phase.stores:
            self._store(store, values)

    def _runs(self, axes: Sequence[Axis], body: Callable[[], None]) -> None:
        """`body` for every run of lanes."""
        writer, lanes, size = self.writer, self.schedule.lanes, flat_size(axes)
        if size.is_constant and size.value <= lanes:
            self._run(axes, "0")
            body()
            return
        end: Text = self.indices.value(size).handle
        stop = end.name if end.number is None else str(end.number)
        counter = writer.fresh("run")
        self._loop(size, f"for {counter} in", f"(0, {stop}, {lanes})")
        writer.indent(1)
        self._run(axes, counter)
        body()
        writer.indent(-1)

    def _loop(self, size: Expr, head: str, span: str) -> None:
        """The head of a loop over runs; of few runs the compiler writes it out."""
        runs = self.schedule.unrolled
        short = size.is_constant and size.value <= runs * self.schedule.lanes
        loop = "tl.static_range" if short else "range"
        self.writer.line(f"{head} {loop}{span}:")

    def _is_whole_first(self, axes: Sequence[Axis]) -> bool:
        size = flat_size(axes)
        return size.is_constant and size.value >= self.schedule.lanes

    def _run(self, axes: Sequence[Axis], start: str, whole: bool = False) -> None:
        """Binds axes to a run of lanes; `whole`: all of them are inside."""
        writer, lanes, size = self.writer, self.schedule.lanes, flat_size(axes)
        if lanes == 1:
            line = writer.named(f"tl.full((), {start}, {writer.word})", 0)
        else:
            span = f"tl.arange(0, {lanes}).to({writer.word})[None, :]"
            line = writer.named(f"{start} + {span}", 2)
        self._bind(axes, line)
        writer.edges.pop(2, None)
        if whole or (size.is_constant and size.value % lanes == 0):
            return
        inside = line.lt(self.indices.value(size))
        writer.edges[2] = inside.handle.name

    # -- reductions -----------------------------------------------------------------------

    def _reduce(self, phase: Phase, reduction: Reduction) -> None:
        writer, axes = self.writer, phase.reduction_axes
        load = packed_load(self.kernel, phase)
        packed = None if load is None else self._packed_row(phase, load)
        if packed is not None:
            self._shape(self.schedule.lanes // packed.values)
        first, *others = self._terms(phase, reduction, packed)
        kinds: list[MachineType] = [value.value.type for value in first]
        dtypes = [value.dtype for value in first]
        if 2 in writer.edges:
            first = [
                self._neutral_outside(reduction.combiner.kind or "", value, writer.edges[2])
                for value in first
            ]
        cells = [writer.variable(kind) for kind in kinds]
        for cell, value in zip(cells, first, strict=True):
            writer.write(cell, value.value)

        def fold(right: list[Scalar]) -> None:
            left = self._read(dtypes, cells)
            results = self._combine(reduction.combiner, left, right)
            for cell, before, after in zip(cells, left, results, strict=True):
                value = after.value
                if 2 in writer.edges:
                    inside = Value(writer, "bool", Text(writer.edges[2], 2))
                    value = inside.select(value, before.value)
                writer.write(cell, value)

        def fold_run(start: str, whole: bool) -> None:
            for right in self._terms(phase, reduction, packed, start, whole):
                fold(right)

        for right in others:
            fold(right)
        self._further_runs(axes, fold_run)
        folded = self._tree(reduction.combiner, dtypes, kinds, [c.name for c in cells])
        if packed is not None and packed.escape_lanes:
            self._shape(packed.escape_lanes)
            mended = [
                self._neutral_outside("add", value, writer.edges[2])
                for value in packed.escapes(lambda: self._folded(phase, reduction))
            ]
            rest = self._tree(reduction.combiner, dtypes, kinds, names_of(mended))
            folded = self._combine(reduction.combiner, folded, rest)
            self._shape(1)
        starts = [
            scalars.literal(writer, dtype, initial)
            for dtype, initial in zip(dtypes, reduction.initial, strict=True)
        ]
        results = self._combine(reduction.combiner, starts, folded)
        for local, dtype, result in zip(reduction.results, dtypes, results, strict=True):
            value = result.value
            if scalars.is_narrow_float(dtype):
                value = scalars.formats.rounded(dtype, value)
            self.kept[local] = Scalar(dtype, (value,))

    def _terms(
        self,
        phase: Phase,
        reduction: Reduction,
        packed: PackedRow | None,
        start: str = "",
        whole: bool = False,
    ) -> list[list[Scalar]]:
        """What is folded of a run of lanes: of packed weights once for each part of their words.

        What stands there before the launch (weights) is read before the wait for others.

        Args:
            start: of the run; empty for the first.
            whole: all of a further run is inside.
        """
        first = not start
        waits = first and phase is self.kernel.phases[0]
        whole = whole if start else self._is_whole_first(phase.reduction_axes)
        start = start or "0"
        writer = self.writer
        if packed is not None:
            terms = packed.terms(start, self.schedule.lanes, whole)
            if first:
                packed.read_lists()
            if waits:
                writer.wait_for_others()
                self._load_ahead(_mapped_loads(self.kernel))
            return [term(lambda: self._folded(phase, reduction)) for term in terms]
        self._run(phase.reduction_axes, start, whole)
        weights = _weights_of(self.kernel, phase) if waits else ()
        self._load_ahead(weights)
        if weights:
            writer.wait_for_others()
            self._load_ahead(_mapped_loads(self.kernel))
        found = self._folded(phase, reduction)
        for load in weights:
            del writer.given[load.operand]
        return [found]

    def _load_ahead(self, loads: Sequence[Load]) -> None:
        for load in loads:
            operand = self.kernel.operands[load.operand]
            self.writer.load_ahead(load.operand, self._elements(operand, load.index)[0])

    def _packed_row(self, phase: Phase, load: Load) -> PackedRow:
        writer, operand = self.writer, self.kernel.operands[load.operand]
        axes = phase.reduction_axes
        self._bind(axes, self.indices.constant(0))
        first: Text = self._elements(operand, load.index)[0].handle
        if first.block != 1:
            spread = f"tl.broadcast_to({first.name}, ({self.schedule.rows}, 1))"
            first = writer.define(spread, block=1)
        beside, edge = read_in_words(self.kernel, phase, load), self.edge

        def bind(line: Value) -> None:
            self._bind(axes, line)

        return PackedRow(writer, load.operand, operand, first, edge, bind, beside)

    def _folded(self, phase: Phase, reduction: Reduction) -> list[Scalar]:
        """The values of a run that are folded, over the whole tile."""
        values = self._body(phase.body)
        found: list[Scalar] = []
        for name, local in zip(reduction.values, reduction.results, strict=True):
            value = self._value(values, name).value
            kept = Value(self.writer, value.type, Text(self.writer.whole(value), 3))
            found.append(Scalar(self.locals[local].dtype, (kept,)))
        return found

    def _further_runs(self, axes: Sequence[Axis], body: Callable[[str, bool], None]) -> None:
        """`body` for every run of lanes behind the first, with whether all of it is inside."""
        writer, lanes, size = self.writer, self.schedule.lanes, flat_size(axes)
        if not size.is_constant:
            end: Text = self.indices.value(size).handle
            self._loop(size, "for run in", f"({lanes}, {end.name}, {lanes})")
            writer.indent(1)
            body("run", False)
            writer.indent(-1)
            return
        whole = size.value // lanes * lanes
        if whole // lanes <= self.schedule.unrolled:
            for start in range(lanes, whole, lanes):
                body(str(start), True)
        elif whole > lanes:
            self._loop(size, "for run in", f"({lanes}, {whole}, {lanes})")
            writer.indent(1)
            body("run", True)
            writer.indent(-1)
        if lanes <= whole < size.value:
            body(str(whole), False)

    def _read(self, dtypes: Sequence[DType], cells: Sequence[object]) -> list[Scalar]:
        return [
            Scalar(dtype, (self.writer.read(cell),))  # pyright: ignore[reportArgumentType]
            for dtype, cell in zip(dtypes, cells, strict=True)
        ]

    def _neutral_outside(self, kind: str, value: Scalar, edge: str) -> Scalar:
        neutral = scalars.literal(self.writer, value.dtype, neutral_element(kind, value.dtype))
        inside = Value(self.writer, "bool", Text(edge, 2))
        return Scalar(value.dtype, (inside.select(value.value, neutral.value),))

    def _tree(
        self,
        combiner: Combiner,
        dtypes: Sequence[DType],
        kinds: Sequence[MachineType],
        names: Sequence[str],
    ) -> list[Scalar]:
        """Folds the lanes of each row: `tl.reduce` with the combiner as a function."""
        writer = self.writer
        if self.schedule.lanes == 1:
            return [
                Scalar(dtype, (Value(writer, kind, Text(name, 1)),))
                for dtype, kind, name in zip(dtypes, kinds, names, strict=True)
            ]
        # Triton folds no booleans.
        carried: list[MachineType] = ["i32" if kind == "bool" else kind for kind in kinds]
        inputs = [
            f"{name}.to(tl.int32)" if kind == "bool" else name
            for name, kind in zip(names, kinds, strict=True)
        ]
        function = f"{self.name}_combine{len(writer.functions)}"
        parameters = [f"{side}{i}" for side in ("l", "r") for i in range(len(names))]

        def body() -> None:
            half = len(names)
            sides = [
                [
                    Scalar(dtype, (Value(writer, carry, Text(name, 0)).to(kind),))
                    for name, dtype, carry, kind in zip(
                        part, dtypes, carried, kinds, strict=True
                    )
                ]
                for part in (parameters[:half], parameters[half:])
            ]
            results = self._combine(combiner, *sides)
            texts = [
                result.value.to(carry).handle.name
                for result, carry in zip(results, carried, strict=True)
            ]
            writer.line(f"return {', '.join(texts)}")

        writer.function(function, parameters, body)
        folded = [writer.fresh("fold") for _ in names]
        argument = inputs[0] if len(inputs) == 1 else f"({', '.join(inputs)})"
        writer.line(f"{', '.join(folded)} = tl.reduce({argument}, 1, {function})")
        found: list[Scalar] = []
        for name, dtype, carry, kind in zip(folded, dtypes, carried, kinds, strict=True):
            column = writer.define(f"{name}[:, None]", block=1)
            found.append(Scalar(dtype, (Value(writer, carry, column).to(kind),)))
        return found

    # -- locals ---------------------------------------------------------------------------

    def _load_local(self, operation: LoadLocal) -> Scalar:
        return self.kept[operation.local]

    def _store_local(self, name: str, value: Scalar, index: tuple[Expr, ...]) -> None:
        self.kept[name] = value


def _reads_own_writes(kernel: Kernel) -> bool:
    written = {s.operand for p in kernel.phases for s in p.stores}
    return any(
        isinstance(o, Load) and o.operand in written for p in kernel.phases for o in p.body
    )


def neutral_element(kind: str, dtype: DType) -> Number:
    """What a named combiner leaves as it is.

    Raises:
        KeyError: no such combiner.
    """
    if dtype.kind == "bool":
        return {"and": True, "minimum": True, "multiply": True}.get(kind, False)
    if dtype.is_float:
        return {"add": -0.0, "multiply": 1.0, "maximum": -math.inf, "minimum": math.inf}[kind]
    signed = dtype.kind == "signed"
    least = -(1 << (dtype.bits - 1)) if signed else 0
    most = (1 << (dtype.bits - signed)) - 1
    return {
        "add": 0, "multiply": 1, "maximum": least, "minimum": most,
        "and": -1 if signed else most, "or": 0, "xor": 0,
    }[kind]  # fmt: skip
