"""Reductions, softmax, norms, attention and products with a vector: a row by a workgroup.

A workgroup has one point of the outer domain, or some neighbours, and several lanes for
each. A reduction's lanes fold every so-manieth element, then their results in a tree through
shared memory, then the value it starts from, once; every lane reads what comes out. Where
subgroups are known, the last levels of the tree are shuffles: the same sums in the same
order, so the same bits. Inner axes of other phases are spread over the lanes, and arrays over inner axes are shared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from headrace.base.symbols import ONE, Expr, ceildiv, minimum, product
from headrace.kernel.description import Kernel, Load, Local, Phase, Reduction, Store
from headrace.kernel.lanes import scalar as scalars
from headrace.kernel.lanes.indices import Indices
from headrace.kernel.lanes.lower import Lowering
from headrace.kernel.lanes.machine import MachineType, Value, compute_type
from headrace.kernel.lanes.scalar import Scalar, element_dtype
from headrace.kernel.products import as_product, flat_size, is_contiguous
from headrace.kernel.target import Code, Launch, SliceRule, Specialisation
from headrace.targets.vulkan.limits import check_limits
from headrace.targets.vulkan.shared import SharedArray
from headrace.targets.vulkan.slices import SlicedShader, column_slices

FEATURE = "gpu"

_SUBGROUP = 32
"""Lanes of a subgroup, where shuffles are used."""

_LEAST_FOLDED = 32
"""Below this a lane folds a row alone: the tree would cost more."""

_SIDE_BY_SIDE = 32
"""Points of a workgroup where neighbouring points, not elements, are neighbours in memory."""

_MOST_LANES = 256
_SHARED_BYTES = 24 << 10
_UNKNOWN_SIZE = 256
_WORKGROUPS_X = 65535


@dataclass(frozen=True)
class Schedule:
    """Points of a workgroup, and lanes for each."""

    points: int
    lanes: int


# -- what can be one ------------------------------------------------------------------


def choose_schedule(kernel: Kernel) -> Schedule | None:
    """The schedule from sizes alone; None where this is no kernel over rows."""
    if not _can_run(kernel):
        return None
    sizes = [_known(_inner(phase)) for phase in kernel.phases]
    if max(sizes) < _LEAST_FOLDED:
        return None
    largest = max(sizes)
    if _points_are_neighbours(kernel):
        return Schedule(_SIDE_BY_SIDE, 8)
    lanes = 32
    while lanes < min(largest // 2, _MOST_LANES):
        lanes *= 2
    return Schedule(1, lanes)


def _can_run(kernel: Kernel) -> bool:
    if not any(p.reduction is not None or p.parallel for p in kernel.phases):
        return False
    if any(p.serial for p in kernel.phases):
        return False
    if any(x.dtype.kind == "complex" for x in (*kernel.locals, *kernel.operands)):
        return False
    if any(o.access != "ro" and o.layout.has_halo for o in kernel.operands):
        return False
    arrays = [x for x in kernel.locals if x.shape]
    sizes = [product(x.shape) for x in arrays]
    return (
        all(s.is_constant for s in sizes) and sum(4 * s.value for s in sizes) <= _SHARED_BYTES
    )


def _known(size: Expr) -> int:
    return size.value if size.is_constant else _UNKNOWN_SIZE


def _inner(phase: Phase) -> Expr:
    """Points of a phase for one outer point that lanes share."""
    return flat_size(phase.parallel) if phase.parallel else flat_size(phase.reduction_axes)


def _points_are_neighbours(kernel: Kernel) -> bool:
    """Whether the largest operand is read side by side along the last outer axis only."""
    folds = [p for p in kernel.phases if p.reduction is not None]
    if len(folds) != 1 or any(p.parallel for p in kernel.phases) or not kernel.outer:
        return False
    (phase,) = folds
    last = next((a for a in reversed(kernel.outer) if a.size != ONE), None)
    loads = [o for o in phase.body if isinstance(o, Load)]
    if last is None or not loads or _known(kernel.outer_size) < _SIDE_BY_SIDE:
        return False
    widest = max(loads, key=lambda o: _known(kernel.operands[o.operand].layout.size))
    operand = kernel.operands[widest.operand]
    along = [a.name for a in phase.reduction_axes if a.size != ONE]
    if any(is_contiguous(operand, widest.index, name) for name in along):
        return False
    return is_contiguous(operand, widest.index, last.name)


def _slice_rule(kernel: Kernel, schedule: Schedule) -> SliceRule | None:
    """The cut of a product with one row: workgroups count columns of the weight along x."""
    found = as_product(kernel)
    if found is None or any(a.size != ONE for a in (*found.batch, *found.rows)):
        return None
    if workgroups(kernel, schedule)[1] != ONE:
        return None
    return column_slices(kernel, found, schedule.points, 0)


# -- code -----------------------------------------------------------------------------


class _Shader(SlicedShader):
    """A shader whose array locals are shared by the workgroup."""

    def __init__(self, name: str, kernel: Kernel, lanes: int, rule: SliceRule | None) -> None:
        stores = [s for p in kernel.phases for s in p.stores]
        written = sorted({s.operand for s in stores if isinstance(s.operand, int)})
        read = {o.operand for p in kernel.phases for o in p.body if isinstance(o, Load)}
        super().__init__(name, kernel, lanes, rule, coherent=[n for n in written if n in read])
        self._shared = {
            local.name: SharedArray(self, _kind(local), product(local.shape).value)
            for local in kernel.locals
            if local.shape
        }

    def load_array(self, name: str, offset: Value) -> Value:
        return self._shared[name].load(offset)

    def store_array(self, name: str, offset: Value, value: Value) -> None:
        self._shared[name].store(offset, value)

    def phase_end(self) -> None:
        """What one lane wrote the others read."""
        self.barrier()


def _kind(local: Local) -> MachineType:
    return compute_type(element_dtype(local.dtype))


class _RowLowering(Lowering):
    def __init__(
        self, kernel: Kernel, shader: _Shader, schedule: Schedule, shuffles: bool
    ) -> None:
        super().__init__(kernel, shader)
        self._shuffles = shuffles
        self.shader = shader
        self.schedule = schedule
        self._trees: dict[tuple[MachineType, int], SharedArray] = {}

    def emit(self) -> None:
        """The whole body."""
        shader, schedule, kernel = self.shader, self.schedule, self.kernel
        for local in kernel.locals:
            if not local.shape:
                self.cells[local.name] = (shader.variable(_kind(local)),)
        x, y, _ = workgroups(kernel, schedule)
        group_x, group_y, _ = shader.workgroup()
        group = group_x
        if y != ONE:
            group = group_y * Indices(shader, kernel.dims).value(x) + group_x
        local = shader.local_index()
        self._column = local % schedule.points
        self._lane = local / schedule.points if schedule.points > 1 else local
        point = group * schedule.points + self._column
        count = self.indices.value(kernel.outer_size)
        # Lanes behind the end do the last point again: all must come to the barriers.
        self._is_point = point.lt(count)
        point = self._is_point.select(point, count - 1)
        sizes = [a.size for a in kernel.outer]
        for axis, value in zip(kernel.outer, self._coordinates(point, sizes), strict=True):
            self._bind_axis(axis, value)
        for number, phase in enumerate(kernel.phases):
            self._row_phase(phase)
            if number + 1 < len(kernel.phases):
                shader.phase_end()

    def _row_phase(self, phase: Phase) -> None:
        names, ranges = dict(self.indices.names), dict(self.indices.ranges)
        if phase.parallel:
            self._spread(phase)
        elif phase.reduction is not None:
            self._fold_together(phase, phase.reduction)
        else:
            self._map(phase)
        self.indices.names, self.indices.ranges = names, ranges

    def _map(self, phase: Phase) -> None:
        """Locals are every lane's own; operands are written by the first."""
        values = self._body(phase.body)
        own = [s for s in phase.stores if isinstance(s.operand, str)]
        arrays = [s for s in own if self.locals[str(s.operand)].shape]
        for store in own:
            if store not in arrays:
                self._store(store, values)
        rest = [s for s in phase.stores if s not in own or s in arrays]
        if rest:
            self._guarded_stores(self._lane.lt(1), rest, values)

    def _guarded_stores(
        self, mask: Value, stores: Sequence[Store], values: dict[str, Scalar]
    ) -> None:
        def write() -> None:
            for store in stores:
                self._store(store, values)

        self.shader.guarded(mask & self._is_point, write)

    def _each(self, size: Expr, body: Callable[[Value], None]) -> None:
        """`body` for every so-manieth number below `size`, guarded."""
        count = self.indices.value(size)
        lanes = self.schedule.lanes

        def turn(number: Value) -> None:
            at = number * lanes + self._lane
            self.shader.guarded(at.lt(count), lambda: body(at))

        self.shader.loop(self.indices.value(ceildiv(size, lanes)), turn)

    def _bind(self, axes: Sequence[object], at: Value) -> None:
        sizes = [a.size for a in axes]  # type: ignore[attr-defined]
        for axis, value in zip(axes, self._coordinates(at, sizes), strict=True):
            self._bind_axis(axis, value)  # type: ignore[arg-type]

    def _spread(self, phase: Phase) -> None:
        """Inner parallel axes over the lanes; what is folded there one lane folds alone."""

        def one(at: Value) -> None:
            self._bind(phase.parallel, at)
            if phase.reduction is not None:
                self._reduce(phase, phase.reduction)
                return
            values = self._body(phase.body)
            shared = [s for s in phase.stores if isinstance(s.operand, str)]
            for store in shared:
                self._store(store, values)
            rest = [s for s in phase.stores if s not in shared]
            if rest:
                self._guarded_stores(self._is_point, rest, values)

        self._each(flat_size(phase.parallel), one)

    # -- folding ----------------------------------------------------------------------

    def _fold_together(self, phase: Phase, reduction: Reduction) -> None:
        shader, schedule = self.shader, self.schedule
        size = flat_size(phase.reduction_axes)
        count = self.indices.value(size)
        dtypes = [self.locals[name].dtype for name in reduction.results]
        cells = [shader.variable(compute_type(element_dtype(d))) for d in dtypes]
        starts = [
            scalars.literal(shader, dtype, initial).parts[0]
            for dtype, initial in zip(dtypes, reduction.initial, strict=True)
        ]
        for cell, start in zip(cells, starts, strict=True):
            shader.write(cell, start)

        def read() -> list[Scalar]:
            pairs = zip(dtypes, cells, strict=True)
            return [Scalar(dtype, (shader.read(cell),)) for dtype, cell in pairs]

        def write(found: Sequence[Scalar]) -> None:
            for cell, value in zip(cells, found, strict=True):
                shader.write(cell, value.parts[0])

        def values(at: Value) -> list[Scalar]:
            self._bind(phase.reduction_axes, at)
            body = self._body(phase.body)
            return [self._value(body, name) for name in reduction.values]

        shader.guarded(self._lane.lt(count), lambda: write(values(self._lane)))

        def turn(number: Value) -> None:
            at = (number + 1) * schedule.lanes + self._lane
            shader.guarded(
                at.lt(count),
                lambda: write(self._combine(reduction.combiner, read(), values(at))),
            )

        more = ceildiv(size, schedule.lanes) - 1
        if not (more.is_constant and more.value <= 0):
            shader.loop(self.indices.value(more), turn)
        self._tree(reduction, count, read, write, dtypes)
        total = [
            Scalar(dtype, (shared.load(self._column),))
            for dtype, shared in zip(dtypes, self._shared(dtypes), strict=True)
        ]
        first = [Scalar(d, (s,)) for d, s in zip(dtypes, starts, strict=True)]
        folded = self._combine(reduction.combiner, first, total)
        some = count.gt(0)
        for name, dtype, one, start in zip(
            reduction.results, dtypes, folded, starts, strict=True
        ):
            result = some.select(one.parts[0], start)
            if scalars.is_narrow_float(dtype):
                result = scalars.formats.rounded(dtype, result)
            self._store_result(name, Scalar(dtype, (result,)))

    def _store_result(self, name: str, value: Scalar) -> None:
        if not self.locals[name].shape:
            self._store_local(name, value, ())
            return
        self.shader.guarded(self._lane.lt(1), lambda: self._store_local(name, value, ()))

    def _shared(self, dtypes: Sequence[object]) -> list[SharedArray]:
        """A place for each lane and carried value; the same for every reduction."""
        found: list[SharedArray] = []
        seen: dict[MachineType, int] = {}
        for dtype in dtypes:
            kind = compute_type(element_dtype(dtype))  # type: ignore[arg-type]
            number = seen.get(kind, 0)
            seen[kind] = number + 1
            key = kind, number
            if key not in self._trees:
                lanes = self.schedule.points * self.schedule.lanes
                self._trees[key] = SharedArray(self.shader, kind, lanes)
            found.append(self._trees[key])
        return found

    def _tree(
        self,
        reduction: Reduction,
        count: Value,
        read: Callable[[], list[Scalar]],
        write: Callable[[Sequence[Scalar]], None],
        dtypes: Sequence[object],
    ) -> None:
        """Halves the lanes that have a value until the first has the result."""
        shader, schedule = self.shader, self.schedule
        shared = self._shared(dtypes)
        place = self._lane * schedule.points + self._column
        shader.barrier()  # what an earlier reduction left there has been read

        def put() -> None:
            for array, value in zip(shared, read(), strict=True):
                array.store(place, value.parts[0])

        put()
        half = schedule.lanes // 2
        while half >= (_SUBGROUP if self._shuffles else 1):
            shader.barrier()

            def combine(distance: int = half) -> None:
                there = place + distance * schedule.points
                others = [
                    Scalar(v.dtype, (array.load(there),))
                    for array, v in zip(shared, read(), strict=True)
                ]
                write(self._combine(reduction.combiner, read(), others))
                put()

            with_value = (self._lane + half).lt(count)
            shader.guarded(self._lane.lt(half) & with_value, combine)
            half //= 2
        if self._shuffles:
            self._shuffle_down(reduction, half, count, read, write)
            shader.guarded(self._lane.lt(1), put)
        shader.barrier()

    def _shuffle_down(
        self,
        reduction: Reduction,
        half: int,
        count: Value,
        read: Callable[[], list[Scalar]],
        write: Callable[[Sequence[Scalar]], None],
    ) -> None:
        """The levels inside of the first subgroup; what other lanes get nobody reads."""
        shader = self.shader
        while half:
            mine = read()
            others = [Scalar(v.dtype, (shader.shuffled(v.parts[0], half),)) for v in mine]
            both = self._combine(reduction.combiner, mine, others)
            with_value = (self._lane + half).lt(count)
            pairs = zip(both, mine, strict=True)
            write(
                [
                    Scalar(b.dtype, (with_value.select(b.parts[0], m.parts[0]),))
                    for b, m in pairs
                ]
            )
            half //= 2


def workgroups(kernel: Kernel, schedule: Schedule) -> tuple[Expr, Expr, Expr]:
    """x, y, z counts of a launch."""
    groups = ceildiv(kernel.outer_size, schedule.points)
    if groups.is_constant and groups.value <= _WORKGROUPS_X:
        return groups, ONE, ONE
    return minimum(groups, _WORKGROUPS_X), ceildiv(groups, _WORKGROUPS_X), ONE


def translate(name: str, kernel: Kernel) -> Code | None:
    """The kernel with a workgroup for some rows; None where it has none to share.

    Raises:
        HeadraceError HR2401, HR2411, HR2412: as the naive emitter.
    """
    schedule = choose_schedule(kernel)
    if schedule is None:
        return None
    check_limits(name, kernel)
    plain = _translate(name, kernel, schedule, shuffles=False)
    folds = any(p.reduction is not None and not p.parallel for p in kernel.phases)
    if not folds or schedule.points > 1:
        return plain
    return replace(_translate(name, kernel, schedule, shuffles=True), others=(plain,))


def _translate(name: str, kernel: Kernel, schedule: Schedule, shuffles: bool) -> Code:
    rule = _slice_rule(kernel, schedule)
    shader = _Shader(name, kernel, schedule.points * schedule.lanes, rule)
    shader.native_halves = True
    _RowLowering(kernel, shader, schedule, shuffles).emit()
    data = shader.finish()
    named = {FEATURE, f"subgroup{_SUBGROUP}"} if shuffles else {FEATURE}
    launch = Launch(name, workgroups(kernel, schedule), slice=rule, family="row")
    return Code(
        format="spirv",
        data=data,
        specialisations=(Specialisation((), (launch,)),),
        features=tuple(sorted({*shader.features, *named})),
    )
