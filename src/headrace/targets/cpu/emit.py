"""Code for a nest under a schedule: the loops, vectors and tiles of all simple families.

A vector runs either along the last outer axis (all phases then work on `lanes` points
at once; local scalars are vector registers) or, phase by phase, along an inner axis
(rows: local scalars are scalars, partial reductions are vectors until the phase ends).
Width 1 everywhere is the naive schedule. What is equal in all lanes stays scalar.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.base.symbols import ONE, Expr, ceildiv, product
from headrace.kernel.description import Axis
from headrace.targets.cpu.entry import divide
from headrace.targets.cpu.halo import emit_halo
from headrace.targets.cpu.ir_text import Value, integer
from headrace.targets.cpu.offsets import Context, Names, Typed
from headrace.targets.cpu.phases import IDENTITY_KINDS, PhaseEmitter
from headrace.targets.cpu.schedule import Schedule, widths_for

__all__ = ["IDENTITY_KINDS", "Context", "NestEmitter", "Schedule", "Typed", "widths_for"]


class NestEmitter(PhaseEmitter):
    """Emits one function for a nest."""

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
            self._row({a.name: integer(0) for a in self._rest}, low, high)
            return
        first = f.mul(row_block, schedule.rows)
        end = f.minimum(f.add(first, schedule.rows), rows)
        if schedule.rows == 1:
            self._row(self._row_names(first), low, high)
            return
        if schedule.turned:
            self._turned(first, end, low, high)
            return
        f.loop(first, end, 1, lambda r, _: self._row(self._row_names(r), low, high))

    def _turned(self, first: Value, end: Value, low: Value, high: Value) -> None:
        """All rows for one vector of the last axis, then the next: windows that overlap
        and the weights of those channels stay in the nearest cache."""
        f, axis = self._f, self._last
        for width in widths_for(axis.size, self._schedule.lanes):
            stop = self._whole(low, high, width)

            def points(i: Value, _: list[Value], width: int = width) -> None:
                vector = axis.name if width > 1 else None

                def point(r: Value, _: list[Value]) -> None:
                    context = self._open({**self._entry.names, **self._row_names(r)})
                    self._point(self._bind(replace(context, width=width, axis=vector), axis, i))

                f.loop(first, end, 1, point)

            f.loop(low, stop, width, points)
            low = stop

    def _row_names(self, row: Value) -> Names:
        """The outer indices, but for the last, of a row number."""
        f = self._f
        names: Names = {}
        for axis in reversed(self._rest[1:]):
            size = self._entry.size(axis.size)
            above = divide(f, row, size, quotient=True, positive=True)
            names[axis.name] = f.sub(row, f.mul(above, size))
            row = above
        names[self._rest[0].name] = row
        return names

    def _row(self, names: Names, low: Value, high: Value) -> None:
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
