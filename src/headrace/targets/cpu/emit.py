"""Code for a nest under a schedule: the loops, vectors and tiles of all simple families.

A vector runs either along the last outer axis (all phases then work on `lanes` points
at once; local scalars are vector registers) or, phase by phase, along an inner axis
(rows: local scalars are scalars, partial reductions are vectors until the phase ends).
Width 1 everywhere is the naive schedule. What is equal in all lanes stays scalar.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headrace.base.dtypes import DType
from headrace.base.symbols import ONE, ZERO, Expr, ceildiv, product
from headrace.kernel.description import Axis, Combiner, Compute, Constant, IndexValue, Kernel
from headrace.targets.cpu import elementwise
from headrace.targets.cpu.entry import Entry, divide, evaluate
from headrace.targets.cpu.halo import emit_halo, halo_pieces
from headrace.targets.cpu.ir_text import Module, Value, constant, integer, vector_type, width_of
from headrace.targets.cpu.machine import Machine
from headrace.targets.cpu.nest import Access, Nest, NestPhase, Read, Write, axis_ranges, stride
from headrace.targets.cpu.storage import (
    compute_type,
    decode,
    encode,
    memory_type,
    round_to,
    scalar_constant,
)


@dataclass(frozen=True)
class Schedule:
    """How a nest becomes loops.

    Attributes:
        family: for reports.
        order: the outer axes, outermost first.
        lanes: points of the last outer axis at once; 1 for none.
        inner: per phase, the inner axis that is vectorised and its lanes, or None.
        chunk: points of the last outer axis in a tile; 0 for the whole axis.
        rows: points of all other outer axes together in a tile.
    """

    family: str
    order: tuple[Axis, ...]
    lanes: int
    inner: tuple[tuple[str, int] | None, ...]
    chunk: int
    rows: int


_Names = dict[str, Value]
_UNROLLED = 64


@dataclass(frozen=True)
class Context:
    """Where emission stands: bound names, the vector axis, and offsets so far.

    `base` holds, per index expression, the sum of the terms whose names are bound, and
    the terms still open: each level of loops adds its own, so that nothing is computed
    further inside than it must be.
    """

    names: _Names
    width: int = 1
    axis: str | None = None
    base: Mapping[Expr, tuple[Value, Expr]] = field(default_factory=dict)


@dataclass
class Typed:
    value: Value
    dtype: DType


def widths_for(size: Expr, lanes: int) -> tuple[int, ...]:
    """Vector widths that cover an axis, widest first, as few as do."""
    if lanes == 1:
        return (1,)
    if not size.is_constant:
        return (lanes, 1)
    widths: list[int] = [lanes] if size.value >= lanes else []
    rest = size.value % lanes
    width = lanes // 2
    while rest and width:
        if rest & width:
            widths.append(width)
        width //= 2
    return tuple(widths) or (1,)


class NestEmitter:
    """Emits one function for a nest."""

    def __init__(
        self,
        module: Module,
        symbol: str,
        kernel: Kernel,
        nest: Nest,
        schedule: Schedule,
        machine: Machine,
    ) -> None:
        self._entry = Entry(module, symbol, kernel, machine)
        self._f = self._entry.function
        self._kernel = kernel
        self._nest = nest
        self._schedule = schedule
        self._machine = machine
        self._ranges = {**nest.ranges, **axis_ranges(schedule.order)}
        self._halo = halo_pieces(kernel)
        self._registers: dict[str, Typed] = {}
        self._arrays: dict[str, Value] = {}
        self.scratch_bytes = ZERO
        self._place_arrays()

    # -- tiles ------------------------------------------------------------------

    @property
    def _rest(self) -> tuple[Axis, ...]:
        return self._schedule.order[:-1]

    @property
    def _last(self) -> Axis:
        return self._schedule.order[-1] if self._schedule.order else Axis("%d", ONE)

    def _columns(self) -> Expr:
        chunk = self._schedule.chunk
        return ceildiv(self._last.size, chunk) if chunk else ONE

    def main_tiles(self) -> Expr:
        """Tiles without those of halos."""
        rows = product(a.size for a in self._rest)
        return ceildiv(rows, self._schedule.rows) * self._columns()

    def tiles(self) -> Expr:
        """All tiles of the launch."""
        return self.main_tiles() + len(self._halo)

    def emit(self) -> None:
        """The whole function."""
        f = self._f
        main = self._entry.size(self.main_tiles())

        def tile(x: Value) -> None:
            if not self._halo:
                self._tile(x)
                return
            f.branch(
                f.compare("slt", x, main),
                lambda: self._tile(x),
                lambda: emit_halo(self._entry, self._halo, f.sub(x, main), self._machine),
            )

        self._entry.tiles(tile)
        self._entry.finish()

    def _tile(self, x: Value) -> None:
        f, schedule = self._f, self._schedule
        columns = self._entry.size(self._columns())
        last = self._entry.size(self._last.size)
        row_block, low, high = x, integer(0), last
        if columns.constant != 1:
            row_block = divide(f, x, columns, quotient=True, positive=True)
            column = f.sub(x, f.mul(row_block, columns))
            low = f.mul(column, schedule.chunk)
            high = f.minimum(f.add(low, schedule.chunk), last)
        rows = self._entry.size(product(a.size for a in self._rest))
        if rows.constant == 1:
            self._row({}, low, high)
            return
        first = f.mul(row_block, schedule.rows)
        end = f.minimum(f.add(first, schedule.rows), rows)
        if schedule.rows == 1:
            self._row(self._row_names(first), low, high)
            return
        f.loop(first, end, 1, lambda r, _: self._row(self._row_names(r), low, high))

    def _row_names(self, row: Value) -> _Names:
        """The outer indices, but for the last, of a row number."""
        f = self._f
        names: _Names = {}
        for axis in reversed(self._rest[1:]):
            size = self._entry.size(axis.size)
            above = divide(f, row, size, quotient=True, positive=True)
            names[axis.name] = f.sub(row, f.mul(above, size))
            row = above
        names[self._rest[0].name] = row
        return names

    def _row(self, names: _Names, low: Value, high: Value) -> None:
        f = self._f
        context = self._open({**self._entry.names, **names})
        if not self._schedule.order:
            self._point(context)
            return
        axis = self._last
        # A chunk is a multiple of the lanes, so only the axis' own rest is left over.
        for width in widths_for(axis.size, self._schedule.lanes):
            end = self._whole(low, high, width)

            def points(i: Value, _: list[Value], width: int = width) -> None:
                vector_axis = axis.name if width > 1 else None
                self._point(
                    self._bind(replace(context, width=width, axis=vector_axis), axis, i)
                )

            f.loop(low, end, width, points)
            low = end

    # -- scratch ------------------------------------------------------------------

    def _place_arrays(self) -> None:
        lanes = max(1, self._schedule.lanes)
        for name, array in self._nest.arrays.items():
            size_bytes = max(1, self._array_bits(array.dtype) // 8)
            self._arrays[name] = self._f.offset(
                self._entry.scratch, self._entry.size(self.scratch_bytes)
            )
            used = array.size * (size_bytes * lanes)
            self.scratch_bytes = self.scratch_bytes + ceildiv(used, 64) * 64

    def _array_bits(self, dtype: DType) -> int:
        return 32 if dtype.is_float and dtype.bits < 32 else max(8, dtype.bits)

    def _array_type(self, dtype: DType) -> str:
        """Local arrays hold what is computed: narrow floats stay f32, i1 is a byte."""
        type_ = compute_type(dtype)
        return type_ if type_ in ("float", "double") else f"i{self._array_bits(dtype)}"

    # -- offsets ------------------------------------------------------------------

    def _open(self, names: _Names) -> Context:
        expressions: dict[Expr, tuple[Value, Expr]] = {}
        for phase in self._nest.phases:
            for access in phase.accesses():
                expressions[access.offset] = (integer(0), access.offset)
                for index, _ in access.guards:
                    expressions[index] = (integer(0), index)
        return self._advance(Context(names, base=expressions))

    def _advance(self, context: Context) -> Context:
        """Adds the terms whose names are all bound; constants wait for the end."""
        base: dict[Expr, tuple[Value, Expr]] = {}
        for expr, (value, rest) in context.base.items():
            ready = tuple(
                (m, c)
                for m, c in rest.terms
                if m and all(n in context.names for n in Expr(((m, 1),)).names)
            )
            if ready:
                value = self._f.add(
                    value, evaluate(self._f, Expr(ready), context.names, self._ranges)
                )
                rest = Expr(tuple(t for t in rest.terms if t not in ready))
            base[expr] = (value, rest)
        return replace(context, base=base)

    def _bind(self, context: Context, axis: Axis, value: Value) -> Context:
        return self._advance(replace(context, names={**context.names, axis.name: value}))

    def _varying(self, expr: Expr, context: Context, env: Mapping[str, Typed]) -> bool:
        """Whether an index differs between lanes."""
        if context.width == 1:
            return False
        names = expr.names
        if context.axis in names:
            return True
        return any(width_of(env[n].value.type) > 1 for n in names if n in env)

    def _all_names(self, context: Context, env: Mapping[str, Typed], expr: Expr) -> _Names:
        """Values for evaluating an index; the vector axis as a vector."""
        f = self._f
        names = dict(context.names)
        if context.axis is not None and context.width > 1:
            lane0 = f.splat(names[context.axis], context.width)
            names[context.axis] = f.add(lane0, f.lanes(context.width))
        for name in sorted(expr.names):
            if name in env:
                names[name] = self._as_index(env[name])
        return names

    def _as_index(self, typed: Typed) -> Value:
        signed = typed.dtype.kind == "signed"
        return self._f.cast("sext" if signed else "zext", typed.value, "i64")

    def _index(self, context: Context, env: Mapping[str, Typed], expr: Expr) -> Value:
        """An index: scalar where all lanes agree, else a vector."""
        f = self._f
        if expr in context.base and not self._varying(expr, context, env):
            value, rest = context.base[expr]
            names = self._all_names(replace(context, axis=None), env, rest)
            return f.add(value, evaluate(f, rest, names, self._ranges))
        axis = context.axis if self._varying(expr, context, env) else None
        names = self._all_names(replace(context, axis=axis), env, expr)
        value = evaluate(f, expr, names, self._ranges)
        return f.splat(value, context.width) if axis else value

    # -- phases ------------------------------------------------------------------

    def _point(self, context: Context) -> None:
        self._registers = {}
        for phase, inner in zip(self._nest.phases, self._schedule.inner, strict=True):
            self._ranges.update(axis_ranges(phase.axes))
            self._parallel(context, phase, inner, list(phase.parallel))

    def _parallel(
        self,
        context: Context,
        phase: NestPhase,
        inner: tuple[str, int] | None,
        axes: list[Axis],
    ) -> None:
        if not axes:
            self._inside(context, phase, inner)
            return
        f = self._f
        axis = self._next_axis(axes, inner)
        rest = [a for a in axes if a is not axis]
        size = self._entry.size(axis.size)
        if inner is None or inner[0] != axis.name:
            f.loop(
                0,
                size,
                1,
                lambda i, _: self._parallel(self._bind(context, axis, i), phase, inner, rest),
            )
            return
        low = integer(0)
        for width in widths_for(axis.size, inner[1]):
            end = self._whole(low, size, width)

            def part(i: Value, _: list[Value], width: int = width) -> None:
                vector = axis.name if width > 1 else None
                within = self._bind(replace(context, width=width, axis=vector), axis, i)
                self._parallel(within, phase, None, rest)

            f.loop(low, end, width, part)
            low = end

    def _next_axis(self, axes: list[Axis], inner: tuple[str, int] | None) -> Axis:
        """The next loop: the vector axis comes last."""
        if inner is None:
            return axes[0]
        return next((a for a in axes if a.name != inner[0]), axes[0])

    def _whole(self, low: Value, high: Value, width: int) -> Value:
        """The end of the last whole vector of low..high."""
        if width == 1:
            return high
        f = self._f
        count = divide(f, f.sub(high, low), integer(width), quotient=True, positive=True)
        return f.add(low, f.mul(count, width))

    def _inside(
        self, context: Context, phase: NestPhase, inner: tuple[str, int] | None
    ) -> None:
        if phase.reduction is None:
            env = self._body(context, phase)
            for write in phase.writes:
                self._write(context, env, write, env[write.value])
            return
        reduction = phase.reduction
        dtypes = [w.dtype for w in phase.results]
        axis = next((a for a in phase.reduction_axes if inner and a.name == inner[0]), None)
        if axis is None or inner is None:
            start = [
                self._initial(d, v, context.width)
                for d, v in zip(dtypes, reduction.initial, strict=True)
            ]
            done = self._fold(context, phase, None, (context.width,), start)
        else:
            done = self._fold_row(context, phase, axis, inner, dtypes)
        env: dict[str, Typed] = {}
        for write, value in zip(phase.results, done, strict=True):
            self._write(context, env, write, Typed(value, write.dtype))

    def _initial(self, dtype: DType, value: object, width: int) -> Value:
        assert isinstance(value, (int, float, bool))
        return scalar_constant(dtype, value, width)

    def _fold_row(
        self,
        context: Context,
        phase: NestPhase,
        axis: Axis,
        inner: tuple[str, int],
        dtypes: list[DType],
    ) -> list[Value]:
        """A reduction along a vectorised axis: one partial result per lane and width."""
        assert phase.reduction is not None
        (dtype,) = dtypes
        combiner = phase.reduction.combiner
        widths = widths_for(axis.size, inner[1])
        start = [identity(combiner.kind or "", dtype, width) for width in widths]
        partial = self._fold(context, phase, axis, widths, start)
        total = self._initial(dtype, phase.reduction.initial[0], 1)
        for value in partial:
            folded = self._across(combiner, dtype, value)
            (total,) = self._combine(combiner, dtypes, [total], [folded])
        return [total]

    def _across(self, combiner: Combiner, dtype: DType, value: Value) -> Value:
        """Folds the lanes of a vector."""
        width = width_of(value.type)
        while width > 1:
            width //= 2
            low = self._f.shuffle(value, None, range(width))
            high = self._f.shuffle(value, None, range(width, 2 * width))
            (value,) = self._combine(combiner, [dtype], [low], [high])
        return value

    def _fold(
        self,
        context: Context,
        phase: NestPhase,
        vector: Axis | None,
        widths: tuple[int, ...],
        start: list[Value],
    ) -> list[Value]:
        """Loops over the reduction axes; `start` has the carried values of each width."""
        axes = [a for a in phase.reduction_axes if a is not vector]
        unrolled = vector is None and _is_short(phase)

        def nest(within: Context, left: list[Axis], carried: list[Value]) -> list[Value]:
            if left:
                size = self._entry.size(left[0].size)
                if unrolled:
                    for i in range(left[0].size.value):
                        inner = self._bind(within, left[0], integer(i))
                        carried = nest(inner, left[1:], carried)
                    return carried
                return self._f.loop(
                    0,
                    size,
                    1,
                    lambda i, c: nest(self._bind(within, left[0], i), left[1:], c),
                    carried,
                )
            if vector is None:
                return self._step(within, phase, carried)
            return self._vector_steps(within, phase, vector, widths, carried)

        return nest(context, axes, start)

    def _vector_steps(
        self,
        context: Context,
        phase: NestPhase,
        axis: Axis,
        widths: tuple[int, ...],
        carried: list[Value],
    ) -> list[Value]:
        size = self._entry.size(axis.size)
        low = integer(0)
        done: list[Value] = []
        for width, value in zip(widths, carried, strict=True):
            end = self._whole(low, size, width)

            def part(i: Value, c: list[Value], width: int = width) -> list[Value]:
                vector = axis.name if width > 1 else None
                within = self._bind(replace(context, width=width, axis=vector), axis, i)
                return self._step(within, phase, c)

            done += self._f.loop(low, end, width, part, [value])
            low = end
        return done

    def _step(self, context: Context, phase: NestPhase, carried: list[Value]) -> list[Value]:
        assert phase.reduction is not None
        env = self._body(context, phase)
        for write in phase.writes:
            self._write(context, env, write, env[write.value])
        product_of = _folded_product(phase)
        if product_of is not None:
            left, right = (env[o].value for o in product_of.operands)
            width = width_of(carried[0].type)
            left, right = self._f.splat(left, width), self._f.splat(right, width)
            return [self._f.fma(left, right, carried[0])]
        values = [env[v].value for v in phase.reduction.values]
        dtypes = [w.dtype for w in phase.results]
        return self._combine(phase.reduction.combiner, dtypes, carried, values)

    def _combine(
        self, combiner: Combiner, dtypes: list[DType], left: list[Value], right: list[Value]
    ) -> list[Value]:
        env: dict[str, Typed] = {}
        for name, value, dtype in zip(combiner.left, left, dtypes, strict=True):
            env[name] = Typed(value, dtype)
        for name, value, dtype in zip(combiner.right, right, dtypes, strict=True):
            env[name] = Typed(value, dtype)
        for item in combiner.body:
            env[item.result] = self._scalar_item(env, item, rounded=False)
        return [
            self._f.splat(env[r].value, width_of(v.type))
            for r, v in zip(combiner.results, left, strict=True)
        ]

    # -- bodies ------------------------------------------------------------------

    def _body(self, context: Context, phase: NestPhase) -> dict[str, Typed]:
        env: dict[str, Typed] = {}
        for item in phase.body:
            if isinstance(item, Read):
                env[item.result] = self._read(context, env, item)
            elif isinstance(item, IndexValue):
                env[item.result] = self._index_value(context, env, item)
            else:
                env[item.result] = self._scalar_item(env, item)
        return env

    def _index_value(
        self, context: Context, env: Mapping[str, Typed], item: IndexValue
    ) -> Typed:
        value = self._index(context, env, item.value)
        if item.dtype.is_float:
            value = self._f.cast("sitofp", value, compute_type(item.dtype))
        elif item.dtype.kind == "bool":
            value = self._f.compare("ne", value, 0)
        elif item.dtype.bits < 64:
            value = self._f.cast("trunc", value, compute_type(item.dtype))
        return Typed(value, item.dtype)

    def _scalar_item(
        self, env: Mapping[str, Typed], item: Compute | Constant, *, rounded: bool = True
    ) -> Typed:
        """One operation; a narrow float result is rounded to its type, but in a fold."""
        if isinstance(item, Constant):
            return Typed(scalar_constant(item.dtype, item.value), item.dtype)
        operands = [env[o].value for o in item.operands]
        width = max(width_of(v.type) for v in operands)
        wide = [self._f.splat(v, width) for v in operands]
        dtypes = [env[o].dtype for o in item.operands]
        value = elementwise.emit(
            self._f, self._machine, item.operation, wide, dtypes, item.dtype, item.attribute
        )
        if rounded and item.operation not in elementwise.EXACT:
            value = round_to(self._f, item.dtype, value, self._machine)
        return Typed(value, item.dtype)

    # -- memory ------------------------------------------------------------------

    def _where(self, access: Access, dtype: DType) -> tuple[Value, str, int]:
        """Base address, element type in memory and its bytes."""
        if isinstance(access.place, int):
            base = self._entry.bindings[access.place]
            return base, memory_type(dtype, self._machine), dtype.size_bytes
        return (
            self._arrays[access.place],
            self._array_type(dtype),
            self._array_bits(dtype) // 8,
        )

    def _from_memory(self, access: Access, dtype: DType, raw: Value) -> Value:
        if isinstance(access.place, int):
            return decode(self._f, dtype, raw, self._machine)
        if dtype.kind == "bool":
            return self._f.compare("ne", raw, 0)
        return self._f.cast("trunc", raw, compute_type(dtype)) if dtype.is_integer else raw

    def _to_memory(self, access: Access, dtype: DType, value: Value) -> Value:
        if isinstance(access.place, int):
            return encode(self._f, dtype, value, self._machine)
        return value if dtype.is_float else self._f.cast("zext", value, self._array_type(dtype))

    def _read(self, context: Context, env: Mapping[str, Typed], read: Read) -> Typed:
        access = read.access
        if access.place in self._nest.scalars:
            return self._registers[str(access.place)]
        f = self._f
        condition: Value | None = None
        mask: Value | None = None
        for index, size in access.guards:
            at = self._index(context, env, index)
            inside = f.compare("ult", at, self._entry.size(size))
            if width_of(inside.type) == 1:
                condition = inside if condition is None else f.binary("and", condition, inside)
            else:
                mask = inside if mask is None else f.binary("and", mask, inside)

        def loaded() -> list[Value]:
            raw = self._load(context, env, access, read.dtype, mask)
            value = self._from_memory(access, read.dtype, raw)
            if mask is not None:
                other = self._otherwise(read, context.width)
                value = f.select(mask, f.splat(value, context.width), other)
            return [value]

        if condition is None:
            return Typed(loaded()[0], read.dtype)
        probe = context.width if mask is not None or self._is_wide(context, env, access) else 1
        (value,) = f.branch(condition, loaded, lambda: [self._otherwise(read, probe)])
        return Typed(value, read.dtype)

    def _otherwise(self, read: Read, width: int) -> Value:
        return scalar_constant(read.dtype, read.otherwise or 0, width)

    def _lane_local(self, context: Context, access: Access) -> bool:
        """A local array beside an outer vector: each element holds all lanes."""
        return (
            isinstance(access.place, str)
            and self._schedule.lanes > 1
            and access.place in self._nest.arrays
        )

    def _is_wide(self, context: Context, env: Mapping[str, Typed], access: Access) -> bool:
        if self._lane_local(context, access):
            return context.width > 1
        return self._varying(access.offset, context, env)

    def _contiguous(
        self, context: Context, env: Mapping[str, Typed], access: Access
    ) -> int | None:
        """The constant stride along the vector axis, if that is all that differs."""
        if context.axis is None:
            return None
        through = [n for n in access.offset.names if n in env]
        if any(width_of(env[n].value.type) > 1 for n in through):
            return None
        return stride(access, context.axis)

    def _scalar_offset(
        self, context: Context, env: Mapping[str, Typed], access: Access
    ) -> tuple[Value, int]:
        """The first lane's offset as (value, constant)."""
        f = self._f
        value, rest = context.base[access.offset]
        constant_part = rest.constant_term
        rest = rest - constant_part
        if rest != ZERO:
            names = self._all_names(replace(context, axis=None), env, rest)
            value = f.add(value, evaluate(f, rest, names, self._ranges))
        return value, constant_part

    def _address(self, base: Value, at: tuple[Value, int], size_bytes: int) -> Value:
        moved = self._f.element(base, at[0], size_bytes)
        return self._f.offset(moved, at[1] * size_bytes)

    def _load(
        self,
        context: Context,
        env: Mapping[str, Typed],
        access: Access,
        dtype: DType,
        mask: Value | None,
    ) -> Value:
        f, width = self._f, context.width
        base, element, size_bytes = self._where(access, dtype)
        wide = vector_type(element, width)
        if self._lane_local(context, access):
            value, extra = self._scalar_offset(context, env, access)
            at = (f.mul(value, width), extra * width)
            return f.load(wide, self._address(base, at, size_bytes), size_bytes)
        if not self._varying(access.offset, context, env) and mask is None:
            at = self._scalar_offset(context, env, access)
            return f.load(element, self._address(base, at, size_bytes), size_bytes)
        step = self._contiguous(context, env, access)
        if step == 1:
            address = self._address(base, self._scalar_offset(context, env, access), size_bytes)
            if mask is None:
                return f.load(wide, address, size_bytes)
            return self._masked(wide, address, size_bytes, mask)
        if step is not None and mask is None:
            address = self._address(base, self._scalar_offset(context, env, access), size_bytes)
            return self._strided(wide, address, step * size_bytes, size_bytes)
        offsets = f.splat(self._index(context, env, access.offset), width)
        if mask is not None:
            offsets = f.select(mask, offsets, f.value(0, offsets.type))
        return self._gather(wide, base, offsets, size_bytes, mask)

    def _masked(self, type_: str, address: Value, align: int, mask: Value) -> Value:
        """Loads the lanes of the mask only; the others are zero."""
        f = self._f
        pointer = Value("ptr", f"align {align} {address.text}")
        from_name = type_.strip("<>").replace(" x ", "")
        width = width_of(type_)
        element = from_name[len(str(width)) :]
        short = {"float": "f32", "double": "f64", "half": "f16"}.get(element, element)
        name = f"llvm.masked.load.v{width}{short}.p0"
        f.module.declare(name, type_, ["ptr", mask.type, type_])
        zero = "zeroinitializer"
        return f.emit(type_, f"call {type_} @{name}({pointer}, {mask}, {type_} {zero})")

    def _strided(self, type_: str, address: Value, step_bytes: int, align: int) -> Value:
        f = self._f
        result = Value(type_, "poison")
        element = type_.strip("<>").split(" x ")[1]
        for lane in range(width_of(type_)):
            one = f.load(element, f.offset(address, lane * step_bytes), align)
            result = f.insert(result, one, lane)
        return result

    def _gather(
        self, type_: str, base: Value, offsets: Value, size_bytes: int, mask: Value | None
    ) -> Value:
        """One load per lane; lanes outside the mask are not read."""
        f = self._f
        result = Value(type_, "poison")
        element = type_.strip("<>").split(" x ")[1]
        for lane in range(width_of(type_)):

            def one(lane: int = lane) -> list[Value]:
                address = f.element(base, f.extract(offsets, lane), size_bytes)
                return [f.load(element, address, size_bytes)]

            if mask is None:
                loaded = one()
            else:
                zero = constant(element, 0)
                loaded = f.branch(f.extract(mask, lane), one, lambda z=zero: [z])
            result = f.insert(result, loaded[0], lane)
        return result

    def _write(
        self, context: Context, env: Mapping[str, Typed], write: Write, typed: Typed
    ) -> None:
        f, width, access = self._f, context.width, write.access
        if access.place in self._nest.scalars:
            self._registers[str(access.place)] = Typed(typed.value, write.dtype)
            return
        base, _, size_bytes = self._where(access, write.dtype)
        value = self._to_memory(access, write.dtype, typed.value)
        if self._lane_local(context, access):
            offset, extra = self._scalar_offset(context, env, access)
            at = (f.mul(offset, width), extra * width)
            f.store(f.splat(value, width), self._address(base, at, size_bytes), size_bytes)
            return
        if not self._varying(access.offset, context, env):
            address = self._address(base, self._scalar_offset(context, env, access), size_bytes)
            f.store(f.extract(value, width_of(value.type) - 1), address, size_bytes)
            return
        value = f.splat(value, width)
        step = self._contiguous(context, env, access)
        if step is not None:
            address = self._address(base, self._scalar_offset(context, env, access), size_bytes)
            if step == 1:
                f.store(value, address, size_bytes)
                return
            for lane in range(width):
                place = f.offset(address, lane * step * size_bytes)
                f.store(f.extract(value, lane), place, size_bytes)
            return
        offsets = f.splat(self._index(context, env, access.offset), width)
        for lane in range(width):
            place = f.element(base, f.extract(offsets, lane), size_bytes)
            f.store(f.extract(value, lane), place, size_bytes)


def _is_short(phase: NestPhase) -> bool:
    """Whether all reduction axes together are few enough to write out."""
    total = product(a.size for a in phase.reduction_axes)
    return total.is_constant and 0 < total.value * len(phase.body) <= _UNROLLED


def _folded_product(phase: NestPhase) -> Compute | None:
    """The product of a sum of products: it folds by fused multiply-add."""
    assert phase.reduction is not None
    if phase.reduction.combiner.kind != "add":
        return None
    name = phase.reduction.values[0]
    if any(w.value == name for w in phase.writes):
        return None
    for item in phase.body:
        if isinstance(item, Compute) and item.result == name:
            is_product = item.operation == "multiply" and item.dtype.is_float
            return item if is_product else None
    return None


def identity(kind: str, dtype: DType, width: int = 1) -> Value:
    """The value that changes nothing when combined: `add`, `multiply`, `maximum`, ...

    Raises:
        KeyError: the combiner has no known identity.
    """
    is_max = kind == "maximum"
    if kind in ("maximum", "minimum"):
        if dtype.is_float:
            return scalar_constant(dtype, float("-inf") if is_max else float("inf"), width)
        if dtype.kind == "bool":
            return scalar_constant(dtype, not is_max, width)
        top = (1 << (dtype.bits - (dtype.kind == "signed"))) - 1
        bottom = -(1 << (dtype.bits - 1)) if dtype.kind == "signed" else 0
        return scalar_constant(dtype, bottom if is_max else top, width)
    if kind == "and":
        return scalar_constant(dtype, True if dtype.kind == "bool" else -1, width)
    value: float = {"add": -0.0 if dtype.is_float else 0, "multiply": 1, "or": 0, "xor": 0}[
        kind
    ]
    if dtype.is_float:
        return constant(vector_type(compute_type(dtype), width), value)
    return scalar_constant(dtype, int(value), width)


IDENTITY_KINDS = frozenset(("add", "multiply", "maximum", "minimum", "and", "or", "xor"))
"""Combiners with an identity: reductions that may be cut into lanes."""
