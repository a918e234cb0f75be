"""Emission, part one: element offsets, computed no further inside than they must be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headrace.base.dtypes import DType
from headrace.base.symbols import ZERO, Expr, ceildiv
from headrace.kernel.description import Axis, Kernel
from headrace.targets.cpu.entry import Entry, evaluate
from headrace.targets.cpu.halo import halo_pieces
from headrace.targets.cpu.ir_text import Module, Value, integer, width_of
from headrace.targets.cpu.machine import Machine
from headrace.targets.cpu.nest import Nest, axis_ranges
from headrace.targets.cpu.schedule import Schedule
from headrace.targets.cpu.storage import (
    compute_type,
)

Names = dict[str, Value]


@dataclass(frozen=True)
class Context:
    """Where emission stands: bound names, the vector axis, and offsets so far.

    `base` holds, per index expression, the sum of the terms whose names are bound, and
    the terms still open: each level of loops adds its own, so that nothing is computed
    further inside than it must be.
    """

    names: Names
    width: int = 1
    axis: str | None = None
    base: Mapping[Expr, tuple[Value, Expr]] = field(default_factory=dict)


@dataclass
class Typed:
    """An LLVM value and the element type it stands for."""

    value: Value
    dtype: DType


class OffsetEmitter:
    """What every emitter of a nest starts from: the entry, the arrays, the offsets."""

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
        self._given: dict[str, Typed] = {}  # reads that a family has loaded already
        self._arrays: dict[str, Value] = {}
        self.scratch_bytes = ZERO
        self._place_arrays()

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

    def _open(self, names: Names) -> Context:
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

    def _all_names(self, context: Context, env: Mapping[str, Typed], expr: Expr) -> Names:
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
