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
from headrace.base.exponent_codes import MOST_ESCAPES, NOWHERE
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
    is_contiguous,
    slice_rule,
    unconverted,
)
from headrace.kernel.target import SliceRule
from headrace.targets.triton.naive import TritonSource
from headrace.targets.triton.row_schedule import SHORT, Schedule, choose_schedule, inner_axes
from headrace.targets.triton.schedule import power_of_two
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


def multiplies_one_row(kernel: Kernel) -> bool:
    """Whether the kernel is a product of a matrix and a vector: bound by reading."""
    found = as_product(kernel)
    if found is None:
        return False
    return any(
        flat_size(axes).is_constant and flat_size(axes).value == 1
        for axes in (found.rows, found.columns)
    )


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


def escaping_load(kernel: Kernel, phase: Phase) -> Load | None:
    """The load of a packed weight whose blocks are what each row sums over, if there is one.

    Its escapes, few, are then added by themselves: a look at a list for every element takes
    longer than reading the weight.
    """
    reduction, axes = phase.reduction, phase.reduction_axes
    if reduction is None or reduction.combiner.kind != "add" or len(axes) != 1:
        return None
    packed = [
        o
        for o in phase.body
        if isinstance(o, Load) and kernel.operands[o.operand].layout.codes is not None
    ]
    if len(packed) != 1 or packed[0].bounded:
        return None
    (load,), (axis,) = packed, axes
    operand = kernel.operands[load.operand]
    codes = operand.layout.codes
    assert codes is not None
    whole = axis.size.is_constant and axis.size.value == codes.block
    if not codes.escapes or not whole or not is_contiguous(operand, load.index, axis.name):
        return None
    return load


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
            self._runs(phase.parallel, lambda: self._stores(phase), from_first=True)
        else:
            self._stores(phase)
        self.indices.names, self.indices.ranges = outside_names, outside_ranges

    def _stores(self, phase: Phase) -> None:
        values = self._body(phase.body)
        for store in phase.stores:
            self._store(store, values)

    def _runs(
        self, axes: Sequence[Axis], body: Callable[[], None], *, from_first: bool
    ) -> None:
        """`body` for every run of lanes, or every one behind the first."""
        writer, lanes, size = self.writer, self.schedule.lanes, flat_size(axes)
        if size.is_constant and size.value <= lanes:
            if from_first:
                self._run(axes, "0")
                body()
            return
        end: Text = self.indices.value(size).handle
        stop = end.name if end.number is None else str(end.number)
        first = 0 if from_first else lanes
        counter = writer.fresh("run")
        short = size.is_constant and size.value <= SHORT * lanes
        loop = "tl.static_range" if short else "range"
        writer.line(f"for {counter} in {loop}({first}, {stop}, {lanes}):")
        writer.indent(1)
        self._run(axes, counter)
        body()
        writer.indent(-1)

    def _run(self, axes: Sequence[Axis], start: str, lanes: int = 0) -> None:
        """Binds axes to a run of lanes."""
        writer, lanes, size = self.writer, lanes or self.schedule.lanes, flat_size(axes)
        if lanes == 1:
            line = writer.named(f"tl.full((), {start}, {writer.word})", 0)
        else:
            span = f"tl.arange(0, {lanes}).to({writer.word})[None, :]"
            line = writer.named(f"{start} + {span}", 2)
        self._bind(axes, line)
        writer.edges.pop(2, None)
        if not (size.is_constant and size.value % lanes == 0):
            inside = line.lt(self.indices.value(size))
            writer.edges[2] = inside.handle.name

    # -- reductions -----------------------------------------------------------------------

    def _reduce(self, phase: Phase, reduction: Reduction) -> None:
        writer, axes = self.writer, phase.reduction_axes
        load = escaping_load(self.kernel, phase)
        writer.apart = -1 if load is None else load.operand
        self._run(axes, "0")
        first = self._folded(phase, reduction)
        kinds: list[MachineType] = [value.value.type for value in first]
        size = flat_size(axes)
        if not (size.is_constant and size.value >= self.schedule.lanes):
            first = [
                self._neutral_outside(reduction.combiner.kind or "", value, writer.edges[2])
                for value in first
            ]
        dtypes = [value.dtype for value in first]
        cells = [writer.variable(kind) for kind in kinds]
        for cell, value in zip(cells, first, strict=True):
            writer.write(cell, value.value)

        def fold() -> None:
            right = self._folded(phase, reduction)
            left = self._read(dtypes, cells)
            results = self._combine(reduction.combiner, left, right)
            for cell, before, after in zip(cells, left, results, strict=True):
                value = after.value
                if 2 in writer.edges:
                    inside = Value(writer, "bool", Text(writer.edges[2], 2))
                    value = inside.select(value, before.value)
                writer.write(cell, value)

        self._runs(axes, fold, from_first=False)
        folded = self._tree(reduction.combiner, dtypes, kinds, [c.name for c in cells])
        writer.apart = -1
        if load is not None:
            escapes = self._escapes(phase, reduction, load)
            names = [value.value.handle.name for value in escapes]
            rest = self._tree(reduction.combiner, dtypes, kinds, names)
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

    def _folded(self, phase: Phase, reduction: Reduction) -> list[Scalar]:
        """The values of a run that are folded, over the whole tile."""
        values = self._body(phase.body)
        found: list[Scalar] = []
        for name, local in zip(reduction.values, reduction.results, strict=True):
            value = self._value(values, name)
            if self.writer.apart >= 0:
                # Not the weight: 0 times an infinity is none.
                neutral = scalars.literal(self.writer, value.dtype, -0.0)
                escaped = Value(self.writer, "bool", Text(self.writer.escaped, 3))
                value = Scalar(value.dtype, (escaped.select(neutral.value, value.value),))
            whole = Text(self.writer.whole(value.value), 3)
            kept = Value(self.writer, value.value.type, whole)
            found.append(Scalar(self.locals[local].dtype, (kept,)))
        return found

    def _escapes(self, phase: Phase, reduction: Reduction, load: Load) -> list[Scalar]:
        """What the escapes of each row's block add: a tile of as many lanes as there may be."""
        writer, operand = self.writer, self.kernel.operands[load.operand]
        codes = operand.layout.codes
        assert codes is not None
        lanes = power_of_two(codes.escapes, 1, MOST_ESCAPES)
        self._shape(lanes)
        self._run(phase.reduction_axes, "0", 1)
        first: Text = self._elements(operand, load.index)[0].handle
        size = codes.block_bytes(operand.dtype.size_bytes)
        lists = codes.positions_at(operand.dtype.size_bytes)
        block = (
            f"p{load.operand} + ({first.name} // {codes.block}).to(tl.int64) * {size} + {lists}"
        )
        span = f"tl.arange(0, {lanes})[None, :]"
        listed = f"{span} < {codes.escapes}"
        if self.edge is not None:
            listed = f"({listed}) & {self.edge}"
        words = f"({block}).to(tl.pointer_type(tl.uint16), bitcast=True) + {span}"
        place = writer.define(
            f"tl.load({words}, mask={listed}, other={NOWHERE}).to({writer.word})", block=3
        )
        line = Value(writer, writer.index_type, place)
        inside = writer.define(f"{place.name} != {NOWHERE}", block=3)
        self._bind(phase.reduction_axes, line)
        writer.edges[2] = inside.name
        found = self._folded(phase, reduction)
        return [self._neutral_outside("add", value, inside.name) for value in found]

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
