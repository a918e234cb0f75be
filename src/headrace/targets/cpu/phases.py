"""Emission, part three: the phases of a point, their loops, folds and bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from headrace.base.dtypes import DType
from headrace.base.symbols import product
from headrace.kernel.description import Axis, Combiner, Compute, Constant, IndexValue
from headrace.kernel.loops import Loop, walk
from headrace.targets.cpu import elementwise
from headrace.targets.cpu.entry import divide
from headrace.targets.cpu.ir_text import Value, constant, integer, vector_type, width_of
from headrace.targets.cpu.memory import MemoryEmitter
from headrace.targets.cpu.nest import Access, NestPhase, Read, axis_ranges
from headrace.targets.cpu.offsets import Context, Typed
from headrace.targets.cpu.schedule import widths_for
from headrace.targets.cpu.storage import (
    compute_type,
    round_to,
    scalar_constant,
)

_UNROLLED = 80


class PhaseEmitter(MemoryEmitter):
    """All phases for one outer point, or for a vector of them."""

    # -- phases ------------------------------------------------------------------

    def _point(self, context: Context) -> None:
        self._registers = {}

        def one(number: int) -> None:
            phase = self._nest.phases[number]
            self._ranges.update(axis_ranges(phase.axes))
            self._parallel(context, phase, self._schedule.inner[number], list(phase.parallel))

        def loop(loop: Loop, trip: Callable[[], None]) -> None:
            operand = self._kernel.operands[loop.condition]
            place = Access(loop.condition, operand.layout.offset)
            read = Read("", place, operand.dtype)
            self._f.repeat(lambda: self._read(context, {}, read).value, loop.most, trip)

        walk(self._kernel, one, loop)

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
