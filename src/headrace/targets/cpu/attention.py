"""Attention: two products with the folds of a row between them, a workgroup a head's rows.

A workgroup lays the keys and the values of its head out in panels, then takes its rows a
register tile at a time: scores of the tile against all keys into scratch, the phases over
each row there, the product with the values in registers, and the maps of that. Scores
never leave the nearest caches, however long the row. With few rows (a decode step) keys
and values are read once, where they stand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from headrace.base.dtypes import F32
from headrace.base.symbols import ONE, Expr, as_expr, ceildiv, product
from headrace.kernel.description import Axis, Kernel
from headrace.kernel.target import Launch, Specialisation
from headrace.targets.cpu.attention_plan import AttentionPlan, Product, layout_wishes, match
from headrace.targets.cpu.contract_plan import PANEL_COLUMNS
from headrace.targets.cpu.emit import NestEmitter, Schedule, Typed, widths_for
from headrace.targets.cpu.entry import divide, evaluate
from headrace.targets.cpu.halo import emit_halo
from headrace.targets.cpu.ir_text import Module, Value, integer
from headrace.targets.cpu.machine import Machine
from headrace.targets.cpu.nest import NestPhase, Read, axis_ranges, stride
from headrace.targets.cpu.offsets import Context
from headrace.targets.cpu.products import FEW_SUMS, Piece, Strip, Tile, widened, zeros
from headrace.targets.cpu.transpose import transpose_8x8

__all__ = ["emit", "layout_wishes", "match"]

_LINE = PANEL_COLUMNS * 4
"""Bytes of one term of a panel."""


def emit(
    module: Module, symbol: str, kernel: Kernel, schedule: AttentionPlan, machine: Machine
) -> tuple[Specialisation, ...]:
    """One function, one launch: x row blocks (and halo), z batch."""
    emitter = AttentionEmitter(module, symbol, kernel, schedule, machine)
    emitter.emit()
    launch = Launch(symbol, emitter.workgroups(), emitter.scratch_bytes, family="attention")
    return (Specialisation((), (launch,)),)


class AttentionEmitter(NestEmitter):
    """Emits the function; what happens to a row goes through `NestEmitter`."""

    def __init__(
        self, module: Module, symbol: str, kernel: Kernel, plan: AttentionPlan, machine: Machine
    ) -> None:
        order = (*plan.batch, *plan.rows)
        schedule = Schedule("attention", order, 1, plan.inner, 0, 1)
        super().__init__(module, symbol, kernel, plan.nest, schedule, machine)
        self._plan = plan
        self._at: dict[str, Value] = {}
        self._scores_name = str(plan.scores.result.access.place)
        self._mixed_name = str(plan.mix.left.access.place)
        pieces = [(self._scores_name, plan.row_bytes * plan.row_tile)]
        pieces.append((self._mixed_name, plan.row_bytes * plan.row_tile))
        pieces.append(("late", as_expr(max(1, len(plan.late)) * plan.row_tile * 4)))
        if not plan.few:
            pieces += [("keys", plan.keys_bytes), ("values", plan.values_bytes)]
        for name, size in dict(pieces).items():
            start = self._entry.size(self.scratch_bytes)
            self._at[name] = self._f.offset(self._entry.scratch, start)
            self.scratch_bytes = self.scratch_bytes + ceildiv(size, 64) * 64
        self._row_bytes = self._entry.size(plan.row_bytes)

    def workgroups(self) -> tuple[Expr, Expr, Expr]:
        """Row blocks (and behind them a workgroup for each piece of halo), one, batch points."""
        blocks = ceildiv(self._plan.row_count, self._plan.row_block)
        return blocks + len(self._halo), ONE, product(a.size for a in self._plan.batch)

    def emit(self) -> None:
        f = self._f
        blocks = self._entry.size(ceildiv(self._plan.row_count, self._plan.row_block))

        def workgroup(x: Value, _: Value, z: Value) -> None:
            if not self._halo:
                self._block(x, z)
                return

            def halo() -> None:
                piece = f.sub(x, blocks)
                f.branch(
                    f.compare("eq", z, 0),
                    lambda: emit_halo(self._entry, self._halo, piece, self._machine),
                )

            f.branch(f.compare("slt", x, blocks), lambda: self._block(x, z), halo)

        self._entry.tiles_3d(workgroup)
        self._entry.finish()

    def _block(self, x: Value, z: Value) -> None:
        """One workgroup."""
        plan, f = self._plan, self._f
        names = {**self._entry.names, **self._unravel(plan.batch, z)}
        if not plan.few:
            self._lay_out_keys(names)
            self._lay_out_values(names)
        first = f.mul(x, plan.row_block)
        end = f.minimum(f.add(first, plan.row_block), self._entry.size(plan.row_count))
        height, count = plan.row_tile, plan.row_count
        if count.is_constant and count.value <= plan.row_block:
            first, end = integer(0), integer(count.value)
        whole = f.sub(end, f.binary("urem", f.sub(end, first), height))
        if end.constant is not None:
            whole = integer(end.constant - end.constant % height)
        f.loop(first, whole, height, lambda r, _: self._tile_of_rows(r, height, names))
        if count.is_constant:
            rest = count.value % height
            if rest:
                behind = f.compare("slt", whole, end)
                f.branch(behind, lambda: self._tile_of_rows(whole, rest, names))
            return
        f.loop(whole, end, 1, lambda r, _: self._tile_of_rows(r, 1, names))

    def _unravel(self, axes: Sequence[Axis], number: Value) -> dict[str, Value]:
        """Indices of a linear number over axes."""
        f = self._f
        names: dict[str, Value] = {}
        for axis in reversed(axes[1:]):
            size = self._entry.size(axis.size)
            above = divide(f, number, size, quotient=True, positive=True)
            names[axis.name] = f.sub(number, f.mul(above, size))
            number = above
        if axes:
            names[axes[0].name] = number
        return names

    def _pointer(self, read: Read, names: Mapping[str, Value]) -> Value:
        assert isinstance(read.access.place, int)
        base = self._entry.bindings[read.access.place]
        at = evaluate(self._f, read.access.offset, names, self._ranges)
        return self._f.element(base, at, read.dtype.size_bytes)

    # -- panels -------------------------------------------------------------------------

    def _lay_out_keys(self, names: Mapping[str, Value]) -> None:
        """Keys as [panel][term][column]; columns behind the last are as the last."""
        plan, f, scores = self._plan, self._f, self._plan.scores
        depth = scores.term.size
        last = f.sub(self._entry.size(scores.column.size), 1)
        size_bytes = scores.right.dtype.size_bytes
        together = (
            stride(scores.right.access, scores.term.name) == 1
            and depth.is_constant
            and depth.value % 8 == 0
        )

        def start(column: Value) -> Value:
            bound = {**names, scores.term.name: integer(0), scores.column.name: column}
            return self._pointer(scores.right, bound)

        def panel(p: Value, _: list[Value]) -> None:
            target = f.offset(self._at["keys"], f.mul(p, self._entry.size(depth * _LINE)))
            first = f.mul(p, PANEL_COLUMNS)
            starts = [start(f.minimum(f.add(first, n), last)) for n in range(PANEL_COLUMNS)]

            def eight(k: Value, _: list[Value]) -> None:
                place = f.offset(target, f.mul(k, _LINE))
                for begin in range(0, PANEL_COLUMNS, 8):
                    lines = [
                        self._wide(scores.right, f.element(s, k, size_bytes), 8)
                        for s in starts[begin : begin + 8]
                    ]
                    for number, value in enumerate(transpose_8x8(f, lines)):
                        f.store(value, f.offset(place, number * _LINE + begin * 4), 4)

            def one(k: Value, _: list[Value]) -> None:
                place = f.offset(target, f.mul(k, _LINE))
                step = self._bytes_of(scores.right, scores.term)
                for number, begin in enumerate(starts):
                    value = self._wide(scores.right, f.offset(begin, f.mul(k, step)), 1)
                    f.store(value, f.offset(place, number * 4), 4)

            f.loop(0, self._entry.size(depth), 8 if together else 1, eight if together else one)

        f.loop(0, self._entry.size(plan.key_panels), 1, panel)

    def _lay_out_values(self, names: Mapping[str, Value]) -> None:
        """Values as [panel][term][column]; what stands behind the last column is not read."""
        f, mix = self._f, self._plan.mix
        bound = {**names, mix.term.name: integer(0), mix.column.name: integer(0)}
        source = self._pointer(mix.right, bound)
        term, column = (
            self._bytes_of(mix.right, mix.term),
            self._bytes_of(mix.right, mix.column),
        )
        together = stride(mix.right.access, mix.column.name) == 1
        terms = self._entry.size(mix.term.size)

        def panel(p: Value, pieces: Sequence[Piece]) -> None:
            target = f.offset(self._at["values"], f.mul(f.mul(p, terms), _LINE))
            first = f.offset(source, f.mul(f.mul(p, PANEL_COLUMNS), column))

            def line(k: Value, _: list[Value]) -> None:
                begin = f.offset(first, f.mul(k, term))
                place = f.offset(target, f.mul(k, _LINE))
                for piece in pieces:
                    lanes = (
                        [piece.lane]
                        if together
                        else range(piece.lane, piece.lane + piece.width)
                    )
                    width = piece.width if together else 1
                    for lane in lanes:
                        value = self._wide(
                            mix.right, f.offset(begin, f.mul(column, lane)), width
                        )
                        f.store(value, f.offset(place, lane * 4), 4)

            f.loop(0, terms, 1, line)

        self._panels(mix, panel)

    def _wide(self, read: Read, address: Value, width: int) -> Value:
        return widened(self._f, self._machine, read.dtype, address, width)

    def _bytes_of(self, read: Read, axis: Axis) -> Value:
        """Bytes from one point of an axis to the next."""
        return self._entry.size(
            read.access.offset.coefficient(axis.name) * read.dtype.size_bytes
        )

    def _panels(self, of: Product, body: Callable[[Value, Sequence[Piece]], None]) -> None:
        """Whole panels of the columns, then a partial one."""
        f, size, width = self._f, of.column.size, self._machine.width
        vectors = [Piece(0, lane, width) for lane in range(0, PANEL_COLUMNS, width)]
        full = self._entry.size(size // PANEL_COLUMNS)
        f.loop(0, full, 1, lambda p, _: body(p, vectors))
        rest, lane = size.value % PANEL_COLUMNS, 0
        pieces: list[Piece] = []
        for part in widths_for(as_expr(rest), width) if rest else ():
            while rest - lane >= part:
                pieces.append(Piece(0, lane, part))
                lane += part
        if pieces:
            body(full, pieces)

    # -- rows ---------------------------------------------------------------------------

    def _tile_of_rows(self, row: Value, count: int, names: Mapping[str, Value]) -> None:
        plan, f = self._plan, self._f
        rows = [{**names, **self._unravel(plan.rows, f.add(row, n))} for n in range(count)]
        if not plan.few:
            self._score(rows)

        def between(n: Value, _: list[Value]) -> None:
            self._between({**names, **self._unravel(plan.rows, f.add(row, n))}, n)

        f.loop(0, count, 1, between)
        if plan.few:
            panels = plan.width_panels.value
            self._mix_few(rows, panels)
            return
        self._panels(plan.mix, lambda p, pieces: self._mix(rows, p, pieces))

    def _row_at(self, name: str, row: Value) -> Value:
        return self._f.offset(self._at[name], self._f.mul(row, self._row_bytes))

    def _score(self, rows: Sequence[Mapping[str, Value]]) -> None:
        """Scores of a tile of rows against all keys, into scratch."""
        plan, f, scores = self._plan, self._f, self._plan.scores
        lefts = [self._pointer(scores.left, {**r, scores.term.name: integer(0)}) for r in rows]
        depth = self._entry.size(scores.term.size)
        width = self._machine.width
        pieces = [Piece(0, lane, width) for lane in range(0, PANEL_COLUMNS, width)]
        left = Strip(scores.left.dtype, self._bytes_of(scores.left, scores.term))
        tile = Tile(f, self._machine, pieces, left, Strip(F32, integer(_LINE)))

        def panel(p: Value, _: list[Value]) -> None:
            right = f.offset(self._at["keys"], f.mul(f.mul(p, depth), _LINE))
            sums = tile.add(lefts, {0: right}, depth, zeros(len(rows), pieces, scores.start))
            for number, value in enumerate(sums):
                r, piece = divmod(number, len(pieces))
                at = f.add(f.mul(p, _LINE), pieces[piece].lane * 4)
                f.store(value, f.offset(self._row_at(self._scores_name, integer(r)), at), 4)

        f.loop(0, self._entry.size(plan.key_panels), 1, panel)

    def _between(self, names: Mapping[str, Value], row: Value) -> None:
        """The phases over one row."""
        plan = self._plan
        for name in (self._scores_name, self._mixed_name):
            self._arrays[name] = self._row_at(name, row)
        context = self._open(dict(names))
        self._registers = {}
        begin = 0 if plan.few else 1
        for number in range(begin, plan.mix_at):
            phase = plan.nest.phases[number]
            self._ranges.update(axis_ranges(phase.axes))
            self._parallel(context, phase, plan.inner[number], list(phase.parallel))
        for number, name in enumerate(plan.late):
            self._f.store(self._registers[name].value, self._late(number, row), 4)

    def _late(self, number: int, row: Value) -> Value:
        """Where a value of a row waits for the maps at the end."""
        place = self._f.add(row, number * self._plan.row_tile)
        return self._f.element(self._at["late"], place, 4)

    def _mix(
        self, rows: Sequence[Mapping[str, Value]], panel: Value, pieces: Sequence[Piece]
    ) -> None:
        """The product of a tile of rows with a panel of the values, and its maps."""
        f, mix = self._f, self._plan.mix
        terms = self._entry.size(mix.term.size)
        lefts = [self._row_at(self._mixed_name, integer(n)) for n in range(len(rows))]
        right = f.offset(self._at["values"], f.mul(f.mul(panel, terms), _LINE))
        strips = Strip(F32, integer(4)), Strip(F32, integer(_LINE))
        tile = Tile(f, self._machine, pieces, *strips)
        sums = tile.add(lefts, {0: right}, terms, zeros(len(rows), pieces, mix.start))
        self._maps_of(rows, f.mul(panel, PANEL_COLUMNS), pieces, sums)

    def _mix_few(self, rows: Sequence[Mapping[str, Value]], panels: int) -> None:
        """The same with values where they stand: a row of accumulators as wide as it goes."""
        f, mix, width = self._f, self._plan.mix, self._machine.width
        terms = self._entry.size(mix.term.size)
        lefts = [self._row_at(self._mixed_name, integer(n)) for n in range(len(rows))]
        strips = (
            Strip(F32, integer(4)),
            Strip(mix.right.dtype, self._bytes_of(mix.right, mix.term)),
        )
        at_once = max(1, 12 * width // PANEL_COLUMNS // len(rows))
        cut = len(rows) * min(at_once, panels) * PANEL_COLUMNS // width <= FEW_SUMS
        for first in range(0, panels, at_once):
            some = range(min(at_once, panels - first))
            pieces = [
                Piece(q, lane, width) for q in some for lane in range(0, PANEL_COLUMNS, width)
            ]
            rights: dict[int, Value] = {}
            for q in some:
                column = integer((first + q) * PANEL_COLUMNS)
                bound = {**rows[0], mix.term.name: integer(0), mix.column.name: column}
                rights[q] = self._pointer(mix.right, bound)
            tile = Tile(f, self._machine, pieces, *strips, cut=cut)
            sums = tile.add(lefts, rights, terms, zeros(len(rows), pieces, mix.start))
            self._maps_of(rows, integer(first * PANEL_COLUMNS), pieces, sums)

    def _maps_of(
        self,
        rows: Sequence[Mapping[str, Value]],
        column: Value,
        pieces: Sequence[Piece],
        sums: Sequence[Value],
    ) -> None:
        """The maps over finished sums."""
        f, plan = self._f, self._plan
        for n, row in enumerate(rows):
            context = self._open(dict(row))
            self._registers = {
                name: Typed(f.load("float", self._late(number, integer(n)), 4), F32)
                for number, name in enumerate(plan.late)
            }
            for position, piece in enumerate(pieces):
                value = sums[n * len(pieces) + position]
                at = f.add(column, piece.panel * PANEL_COLUMNS + piece.lane)

                for phase in plan.nest.phases[plan.mix_at + 1 :]:
                    self._map_of(context, phase, at, piece.width, value)

    def _map_of(
        self, context: Context, phase: NestPhase, at: Value, width: int, value: Value
    ) -> None:
        (axis,) = phase.parallel
        place = self._plan.mix.result.access.place
        self._given = {
            r.result: Typed(value, F32) for r in phase.reads if r.access.place == place
        }
        self._ranges.update(axis_ranges(phase.axes))
        vector = replace(context, width=width, axis=axis.name if width > 1 else None)
        self._inside(self._bind(vector, axis, at), phase, None)
        self._given = {}
