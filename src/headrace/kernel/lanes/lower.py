"""Walks a kernel and emits it one lane per outer point, loops for everything else.

This is the whole of a naive emitter but for the machine. Outputs with a halo get it
written by the same lanes: a launch has as many lanes as the larger of the outer domain
and the padded outputs (`lane_count`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from headrace.base.dtypes import DType
from headrace.base.errors import error
from headrace.base.symbols import ONE, Expr, as_expr, bounds, dim, maximum, product
from headrace.kernel.description import (
    Axis,
    Combiner,
    Compute,
    Constant,
    IndexValue,
    Kernel,
    Load,
    LoadLocal,
    Operand,
    Phase,
    Reduction,
    ScalarOperation,
    Store,
)
from headrace.kernel.lanes import scalar as scalars
from headrace.kernel.lanes.indices import UNBOUNDED, Indices
from headrace.kernel.lanes.machine import Machine, MachineType, Value, compute_type, raw_type
from headrace.kernel.lanes.scalar import Scalar
from headrace.kernel.loops import Loop, walk

_NO_LIMIT = (1 << 31) - 1
"""Trips of a loop within another: far more than it is taken for."""


def lane_count(kernel: Kernel) -> Expr:
    """Lanes of the whole launch: outer points, or more where halos are larger."""
    halos = [product(_padded_shape(o)) for o in _halo_operands(kernel)]
    return maximum(kernel.outer_size, *halos)


def _halo_operands(kernel: Kernel) -> list[Operand]:
    return [
        o
        for o in kernel.operands
        if o.access != "ro" and o.layout.has_halo and o.layout.halo_value is not None
    ]


def _padded_shape(operand: Operand) -> list[Expr]:
    layout = operand.layout
    return [
        size + low + high
        for size, low, high in zip(
            operand.shape, layout.halo_low, layout.halo_high, strict=True
        )
    ]


def _index_names(kernel: Kernel) -> frozenset[str]:
    """Every name that an index expression of the kernel mentions."""
    found: set[str] = set()
    for phase in kernel.phases:
        for operation in phase.body:
            if isinstance(operation, (Load, LoadLocal)):
                for expr in operation.index:
                    found |= expr.names
            elif isinstance(operation, IndexValue):
                found |= operation.value.names
        for store in phase.stores:
            for expr in store.index:
                found |= expr.names
    return frozenset(found)


def lower(kernel: Kernel, machine: Machine) -> None:
    """Emits the kernel's whole body into the machine.

    Raises:
        HeadraceError HR2401: an operation the lanes lack.
        HeadraceError HR9401: the kernel names something it does not define.
    """
    Lowering(kernel, machine).run()


class Lowering:
    """Emits a kernel; targets may run parts of it their own way."""

    def __init__(self, kernel: Kernel, machine: Machine) -> None:
        self.kernel = kernel
        self.machine = machine
        self.locals = {local.name: local for local in kernel.locals}
        self.cells: dict[str, tuple[object, ...]] = {}
        self.indices = Indices(machine, kernel.dims)
        self.index_names = _index_names(kernel)

    def run(self) -> None:
        kernel, machine = self.kernel, self.machine
        for local in kernel.locals:
            if not local.shape:
                element = scalars.element_dtype(local.dtype)
                count = 2 if local.dtype.kind == "complex" else 1
                kind = compute_type(element)
                self.cells[local.name] = tuple(machine.variable(kind) for _ in range(count))
        lane = machine.lane()
        points = self.indices.value(kernel.outer_size)
        machine.guarded(lane.lt(points), lambda: self._point(lane))
        for number, operand in enumerate(kernel.operands):
            if operand in _halo_operands(kernel):
                self._halo(number, operand, lane)

    def keep(self, name: str, value: Scalar) -> None:
        """Sets a scalar local, for targets that compute it their own way."""
        self._store_local(name, value, ())

    # -- indices ---------------------------------------------------------------------

    def _bind_axis(self, axis: Axis, value: Value) -> None:
        self.indices.names[axis.name] = value
        found = bounds(axis.size, self.indices.ranges)
        self.indices.ranges[axis.name] = (0, max(found[1] - 1, 0) if found else UNBOUNDED)

    def _coordinates(self, linear: Value, sizes: Sequence[Expr]) -> list[Value]:
        """Row-major coordinates of a linear number below the product of the sizes."""
        found: list[Value] = []
        rest = linear
        outermost = next((n for n, size in enumerate(sizes) if size != ONE), 0)
        for position in range(len(sizes) - 1, -1, -1):
            if position == outermost:
                found.append(rest)
                found += [self.indices.constant(0) for _ in range(position)]
                break
            if sizes[position].is_constant and sizes[position].value == 1:
                found.append(self.indices.constant(0))
                continue
            size = self.indices.value(sizes[position])
            found.append(rest % size)
            rest = rest / size
        return found[::-1]

    def _nest(self, axes: Sequence[Axis], body: Callable[[], None]) -> None:
        if not axes:
            body()
            return
        axis = axes[0]

        def turn(value: Value) -> None:
            self._bind_axis(axis, value)
            self._nest(axes[1:], body)

        self.machine.loop(self.indices.value(axis.size), turn)

    def _row_major(self, shape: Sequence[Expr], index: Sequence[Expr]) -> Expr:
        total = as_expr(0)
        for size, position in zip(shape, index, strict=True):
            total = total * size + position
        return total

    # -- phases --------------------------------------------------------------------------

    def _point(self, lane: Value) -> None:
        outer = self.kernel.outer
        for axis, value in zip(
            outer, self._coordinates(lane, [a.size for a in outer]), strict=True
        ):
            self._bind_axis(axis, value)

        def one(number: int) -> None:
            self._phase(self.kernel.phases[number])
            self.machine.phase_end()

        walk(self.kernel, one, self._go_round)

    def _go_round(self, loop: Loop, trip: Callable[[], None]) -> None:
        most = self.indices.constant(_NO_LIMIT if loop.most is None else loop.most)
        offset = self.indices.value(self.kernel.operands[loop.condition].layout.offset)
        self.machine.repeat(most, loop.condition, offset, trip)

    def _phase(self, phase: Phase) -> None:
        outside_names, outside_ranges = dict(self.indices.names), dict(self.indices.ranges)

        def body() -> None:
            if phase.reduction is not None:
                self._reduce(phase, phase.reduction)
                return
            values = self._body(phase.body)
            for store in phase.stores:
                self._store(store, values)

        self._nest(phase.parallel, body)
        self.indices.names, self.indices.ranges = outside_names, outside_ranges

    def _reduce(self, phase: Phase, reduction: Reduction) -> None:
        machine = self.machine
        carried: list[tuple[DType, tuple[object, ...]]] = []
        for name, initial in zip(reduction.results, reduction.initial, strict=True):
            dtype = self.locals[name].dtype
            start = scalars.literal(machine, dtype, initial)
            cells = tuple(machine.variable(part.type) for part in start.parts)
            for cell, part in zip(cells, start.parts, strict=True):
                machine.write(cell, part)
            carried.append((dtype, cells))

        def fold() -> None:
            values = self._body(phase.body)
            left = [
                Scalar(dtype, tuple(machine.read(c) for c in cells)) for dtype, cells in carried
            ]
            right = [self._value(values, name) for name in reduction.values]
            results = self._combine(reduction.combiner, left, right)
            for (_, cells), result in zip(carried, results, strict=True):
                for cell, part in zip(cells, result.parts, strict=True):
                    machine.write(cell, part)

        self._nest(phase.reduction_axes, fold)
        place = tuple(dim(a.name) for a in phase.parallel)
        for name, (dtype, cells) in zip(reduction.results, carried, strict=True):
            parts = tuple(machine.read(c) for c in cells)
            if scalars.is_narrow_float(dtype):
                parts = (scalars.formats.rounded(dtype, parts[0]),)
            self._store_local(name, Scalar(dtype, parts), place)

    def _combine(
        self, combiner: Combiner, left: Sequence[Scalar], right: Sequence[Scalar]
    ) -> list[Scalar]:
        values: dict[str, Scalar] = dict(zip(combiner.left, left, strict=True))
        values.update(zip(combiner.right, right, strict=True))
        for operation in combiner.body:
            # Partial results of narrow floats stay in f32: rounding each would lose them.
            values[operation.result] = self._scalar(operation, values, keep_wide=True)
        return [self._value(values, name) for name in combiner.results]

    def _body(self, body: Sequence[ScalarOperation]) -> dict[str, Scalar]:
        values: dict[str, Scalar] = {}
        for operation in body:
            result = self._scalar(operation, values)
            values[operation.result] = result
            name = operation.result
            name = name if name.startswith("%") else f"%{name}"
            if name in self.index_names:
                # An integer used as an index (`%v3`): gathers.
                self.indices.names[name] = result.value.to(self.machine.index_type)
                self.indices.ranges.pop(name, None)
        return values

    def _value(self, values: Mapping[str, Scalar], name: str) -> Scalar:
        found = values.get(name)
        if found is None:
            raise error("HR9401", f"a kernel uses the value '{name}' that it does not define")
        return found

    def _scalar(
        self, operation: ScalarOperation, values: Mapping[str, Scalar], keep_wide: bool = False
    ) -> Scalar:
        if isinstance(operation, Load):
            return self._load(operation)
        if isinstance(operation, LoadLocal):
            return self._load_local(operation)
        if isinstance(operation, Constant):
            return scalars.literal(self.machine, operation.dtype, operation.value)
        if isinstance(operation, IndexValue):
            return self._index_value(operation)
        return self._compute(operation, values, keep_wide)

    def _index_value(self, operation: IndexValue) -> Scalar:
        dtype = operation.dtype
        signed = self.machine.constant(self.machine.index_type, 0)
        value = self.indices.value(operation.value) if operation.value.terms else signed
        whole = Scalar(scalars.BY_NAME["i64" if value.type == "i64" else "i32"], (value,))
        return scalars.convert(whole, dtype)

    def _compute(
        self, operation: Compute, values: Mapping[str, Scalar], keep_wide: bool
    ) -> Scalar:
        operands = tuple(self._value(values, name) for name in operation.operands)
        return scalars.compute(
            operation.operation, operands, operation.dtype, operation.attribute, keep_wide
        )

    # -- memory ------------------------------------------------------------------------------

    def _elements(self, operand: Operand, index: tuple[Expr, ...]) -> list[Value]:
        """The element offsets of a logical index: one, or two for a complex element."""
        offset = self.indices.value(operand.layout.element_offset(index))
        if operand.dtype.kind != "complex":
            return [offset]
        first = offset * 2
        return [first, first + 1]

    def _inside(
        self, operand: Operand, index: tuple[Expr, ...], bounded: tuple[int, ...]
    ) -> Value | None:
        """Where an index is inside in the bounded dimensions; None: everywhere."""
        mask: Value | None = None
        for d in bounded:
            position = self.indices.value(index[d])
            inside = position.lt(self.indices.value(operand.shape[d]))
            if not self.indices.is_not_negative(index[d]):
                inside = position.ge(0) & inside
            mask = inside if mask is None else mask & inside
        return mask

    def _load(self, operation: Load) -> Scalar:
        operand = self.kernel.operands[operation.operand]
        mask = self._inside(operand, operation.index, operation.bounded)
        kind = self._raw_type(operand.dtype)
        zero = self.machine.constant(kind, 0)
        raw = tuple(
            self.machine.load(operation.operand, offset, mask, zero)
            for offset in self._elements(operand, operation.index)
        )
        loaded = scalars.decode(operand.dtype, raw)
        otherwise = operation.otherwise
        if mask is None or otherwise is None or str(otherwise) in ("0", "0.0", "False"):
            return loaded
        other = scalars.literal(self.machine, operand.dtype, otherwise)
        pairs = zip(loaded.parts, other.parts, strict=True)
        return Scalar(operand.dtype, tuple(mask.select(x, y) for x, y in pairs))

    def _raw_type(self, dtype: DType) -> MachineType:
        return raw_type(scalars.element_dtype(dtype))

    def _write(self, number: int, index: tuple[Expr, ...], value: Scalar) -> None:
        operand = self.kernel.operands[number]
        raw = scalars.encode(value)
        for offset, part in zip(self._elements(operand, index), raw, strict=True):
            self.machine.store(number, offset, part)

    def _store(self, store: Store, values: Mapping[str, Scalar]) -> None:
        value = self._value(values, store.value)
        if isinstance(store.operand, str):
            self._store_local(store.operand, value, store.index)
            return
        number, operand = store.operand, self.kernel.operands[store.operand]
        inside = self._inside(operand, store.index, store.bounded)
        if inside is None:
            self._write(number, store.index, value)
            return
        self.machine.guarded(inside, lambda: self._write(number, store.index, value))

    def _local_elements(self, name: str, index: tuple[Expr, ...]) -> list[Value]:
        local = self.locals[name]
        offset = self.indices.value(self._row_major(local.shape, index))
        if local.dtype.kind != "complex":
            return [offset]
        first = offset * 2
        return [first, first + 1]

    def _load_local(self, operation: LoadLocal) -> Scalar:
        local = self.locals[operation.local]
        if not local.shape:
            cells = self.cells[operation.local]
            return Scalar(local.dtype, tuple(self.machine.read(c) for c in cells))
        offsets = self._local_elements(operation.local, operation.index)
        parts = tuple(self.machine.load_array(operation.local, o) for o in offsets)
        return Scalar(local.dtype, parts)

    def _store_local(self, name: str, value: Scalar, index: tuple[Expr, ...]) -> None:
        if not self.locals[name].shape:
            for cell, part in zip(self.cells[name], value.parts, strict=True):
                self.machine.write(cell, part)
            return
        for offset, part in zip(self._local_elements(name, index), value.parts, strict=True):
            self.machine.store_array(name, offset, part)

    def _halo(self, number: int, operand: Operand, lane: Value) -> None:
        """Lanes over the padded shape write the halo's value where they are outside."""
        shape = _padded_shape(operand)
        layout = operand.layout

        def write() -> None:
            outside: Value | None = None
            index: list[Expr] = []
            for d, padded in enumerate(self._coordinates(lane, shape)):
                name = f"%halo{d}"
                low = layout.halo_low[d]
                position = padded - low if low else padded
                self.indices.names[name] = position
                self.indices.ranges[name] = (-low, UNBOUNDED)
                index.append(dim(name))
                beyond: Value | None = position.lt(0) if low else None
                if layout.halo_high[d]:
                    behind = position.ge(self.indices.value(operand.shape[d]))
                    beyond = behind if beyond is None else beyond | behind
                if beyond is not None:
                    outside = beyond if outside is None else outside | beyond
            assert outside is not None and layout.halo_value is not None
            value = scalars.literal(self.machine, operand.dtype, layout.halo_value)
            self.machine.guarded(outside, lambda: self._write(number, tuple(index), value))

        self.machine.guarded(lane.lt(self.indices.value(product(shape))), write)
