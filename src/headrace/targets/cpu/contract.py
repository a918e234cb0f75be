"""Products and convolutions: register tiles over packed weights.

One sum of products per outer point, then maps over its result (bias, activation,
residual). The outer axes part into *columns* (one axis, contiguous in the right operand:
vectors), *rows* (not in the right operand) and *batch* (the rest). A tile is `rows x
vectors` accumulators that stay in registers for the whole sum; each step broadcasts one
element a row from the left operand and loads the vectors from the right.

A convolution is the same thing (implicit GEMM): on padded NHWC the kernel's width and the
input channels are one contiguous run, and a row's start is computed, not looked up, so
any stride, halo or size is the same code. Measured in `notes/cpu_codegen.md`: 93-98 % of
the FMA peak at 6 x 16 with AVX2; packing the left operand gains nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from headrace.base.dtypes import F32, I32
from headrace.base.symbols import Expr, as_expr, ceildiv, dim, product
from headrace.kernel.description import Axis, Kernel
from headrace.kernel.target import Launch, SliceRule, Specialisation
from headrace.targets.cpu.byte_products import ByteTile
from headrace.targets.cpu.contract_plan import ContractPlan, match
from headrace.targets.cpu.contract_wishes import layout_wishes
from headrace.targets.cpu.emit import NestEmitter, Schedule, Typed, widths_for
from headrace.targets.cpu.entry import divide, evaluate
from headrace.targets.cpu.halo import emit_halo
from headrace.targets.cpu.integer_products import IntegerTile, widen_row
from headrace.targets.cpu.ir_text import Module, Value, constant, integer, vector_type
from headrace.targets.cpu.machine import Machine
from headrace.targets.cpu.nest import Read
from headrace.targets.cpu.offsets import Context
from headrace.targets.cpu.products import UNROLL, Ahead, Piece, Strip, Tile, widened, zeros
from headrace.targets.cpu.storage import compute_type
from headrace.targets.cpu.transpose import transpose_8x8

__all__ = ["emit", "layout_wishes", "match"]


def emit(
    module: Module, symbol: str, kernel: Kernel, schedule: ContractPlan, machine: Machine
) -> tuple[Specialisation, ...]:
    """One function, one launch: x row blocks, y column blocks, z batch."""
    emitter = ContractEmitter(module, symbol, kernel, schedule, machine)
    emitter.emit()
    launch = Launch(
        symbol,
        emitter.workgroups(),
        as_expr(schedule.scratch_bytes),
        _slice_rule(kernel, schedule),
        "convolution" if len(schedule.sums) > 1 else "contract",
    )
    return (Specialisation((), (launch,)),)


def _slice_rule(kernel: Kernel, plan: ContractPlan) -> SliceRule | None:
    """Cut along columns, where a column block is a run of the weight's panels."""
    operand = plan.right.access.place
    assert isinstance(operand, int)
    weight = kernel.operands[operand]
    if not weight.constant:
        return None
    panel = plan.right.access.offset.substitute({plan.column.name: dim("%p") * plan.tile})
    if not panel.is_linear_in(["%p"]):
        return None
    stride = panel.coefficient("%p")
    # A panel is all of its columns: of every term and every batch point.
    if stride * plan.panel_count != weight.layout.size:
        return None
    return SliceRule(operand, 1, stride * (plan.column_block * weight.dtype.size_bytes))


_RowBody: TypeAlias = Callable[[Value, int], None]
_ColumnBody: TypeAlias = Callable[[Value, Sequence[Piece]], None]


class ContractEmitter(NestEmitter):
    """Emits the function; the maps after the sum go through `NestEmitter`."""

    def __init__(
        self, module: Module, symbol: str, kernel: Kernel, plan: ContractPlan, machine: Machine
    ) -> None:
        epilogue = replace(plan.nest, phases=plan.nest.phases[1:])
        order = (*plan.batch, *plan.rows, plan.column)
        none = (None,) * len(epilogue.phases)
        schedule = Schedule("contract", order, machine.width, none, 0, 1)
        super().__init__(module, symbol, kernel, epilogue, schedule, machine)
        self._plan = plan
        first = plan.nest.phases[0]
        assert first.reduction is not None
        self._sum_name = str(first.results[0].access.place)
        start = first.reduction.initial[0]
        assert isinstance(start, (int, float))
        self._start = float(start)
        self._low = integer(0)  # the first panel in scratch, of packed plans

    # -- grid ---------------------------------------------------------------------

    def workgroups(self) -> tuple[Expr, Expr, Expr]:
        """Row blocks (and behind them a workgroup for each piece of halo), column blocks,
        batch points."""
        plan = self._plan
        return (
            ceildiv(plan.row_count, plan.row_block) + len(self._halo),
            ceildiv(plan.panel_count, plan.column_block),
            product(a.size for a in plan.batch),
        )

    def emit(self) -> None:
        f = self._f
        row_blocks = self._entry.size(ceildiv(self._plan.row_count, self._plan.row_block))

        def workgroup(x: Value, y: Value, z: Value) -> None:
            if not self._halo:
                self._block(x, y, z)
                return

            def halo() -> None:
                at_origin = f.compare("eq", f.binary("or", y, z), 0)
                piece = f.sub(x, row_blocks)
                f.branch(
                    at_origin,
                    lambda: emit_halo(self._entry, self._halo, piece, self._machine),
                )

            f.branch(f.compare("slt", x, row_blocks), lambda: self._block(x, y, z), halo)

        self._entry.tiles_3d(workgroup)
        self._entry.finish()

    def _block(self, x: Value, y: Value, z: Value) -> None:
        """One workgroup: its rows by its columns."""
        plan, f = self._plan, self._f
        names = {**self._entry.names, **self._unravel(plan.batch, z)}
        rows = self._entry.size(plan.row_count)
        first = f.mul(x, plan.row_block)
        end = f.minimum(f.add(first, plan.row_block), rows)
        self._row_range = first, end
        panels = self._entry.size(plan.panel_count)
        low = f.mul(y, plan.column_block)
        high = f.minimum(f.add(low, plan.column_block), panels)
        if plan.packed:
            self._pack(low, high, names)
        if plan.depth_block:
            self._deep_block(first, end, low, high, names)
        elif plan.rows_outside:
            self._row_tiles(first, end, lambda r, n: self._column_tiles(low, high, r, n, names))
        else:
            self._column_loop(
                low,
                high,
                lambda p, pieces: self._row_tiles(
                    first,
                    end,
                    lambda r, n: self._register_tile_at(
                        self._rows_from(r, n), p, pieces, names, r
                    ),
                ),
            )

    def _pack(self, low: Value, high: Value, names: Mapping[str, Value]) -> None:
        """The right operand's columns of panels low..high into scratch, as panels.

        Columns behind the last are read as the last: nobody looks at their sums.
        """
        plan, f = self._plan, self._f
        (axis,) = plan.sums
        last = f.sub(self._entry.size(plan.column.size), 1)
        offset = plan.right.access.offset
        size_bytes = plan.right.dtype.size_bytes
        self._low = low

        def panel(p: Value, _: list[Value]) -> None:
            target = f.offset(self._entry.scratch, f.mul(f.sub(p, low), self._panel_bytes))
            starts: list[Value] = []
            for lane in range(plan.tile):
                column = f.minimum(f.add(f.mul(p, plan.tile), lane), last)
                bound = {**names, axis.name: integer(0), plan.column.name: column}
                starts.append(self._pointer(plan.right, offset, bound))

            def terms(k: Value, _: list[Value]) -> None:
                place = f.offset(target, f.mul(k, plan.tile * 4))
                for begin in range(0, plan.tile, 8):
                    rows = [
                        widened(
                            f, self._machine, plan.right.dtype, f.element(s, k, size_bytes), 8
                        )
                        for s in starts[begin : begin + 8]
                    ]
                    for number, value in enumerate(transpose_8x8(f, rows)):
                        f.store(value, f.offset(place, (number * plan.tile + begin) * 4), 4)

            f.loop(0, axis.size.value, 8, terms)

        f.loop(low, high, 1, panel)

    @property
    def _panel_bytes(self) -> int:
        return self._plan.sums[0].size.value * self._plan.tile * 4

    def _packed_starts(
        self, panel: Value, panels: Sequence[int], terms: Mapping[str, Value]
    ) -> dict[int, Value]:
        plan, f = self._plan, self._f
        inside = f.mul(terms[plan.sums[0].name], plan.tile * 4)
        if self._single is not None:
            lane = f.sub(self._single, f.mul(panel, plan.tile))
            inside = f.add(inside, f.mul(lane, 4))
        base = f.offset(self._entry.scratch, inside)
        return {
            q: f.offset(base, f.mul(f.sub(f.add(panel, q), self._low), self._panel_bytes))
            for q in panels
        }

    def _deep_block(
        self, first: Value, end: Value, low: Value, high: Value, names: Mapping[str, Value]
    ) -> None:
        """Part by part of the sum; partial sums of all tiles wait in scratch."""
        plan, f = self._plan, self._f
        scratch = self._entry.scratch
        wide = vector_type("float", self._machine.width)

        def clear(at: Value, _: list[Value]) -> None:
            f.store(constant(wide, self._start), f.offset(scratch, at), 32)

        f.loop(0, plan.block_bytes, self._machine.width * 4, clear)

        def place(row: Value, panel: Value) -> Value:
            number = f.add(f.mul(f.sub(panel, low), plan.row_block), f.sub(row, first))
            return f.offset(scratch, f.mul(number, plan.tile * 4))

        def part(starts: Mapping[str, Value], size: Value) -> None:
            def tile(r: Value, count: int, p: Value, pieces: Sequence[Piece]) -> None:
                partial = place(r, p)
                before = self._partial(partial, count, pieces)
                rows = self._rows_from(r, count)
                left, right = self._starts(rows, p, pieces, names, starts)
                ahead = self._ahead(right, size, r, count)
                sums = self._run(plan.sums[-1], size, left, right, pieces, before, ahead)
                self._keep_partial(partial, count, pieces, sums)

            self._column_loop(
                low,
                high,
                lambda p, pieces: self._row_tiles(
                    first, end, lambda r, n: tile(r, n, p, pieces)
                ),
            )

        self._parts(part)

        def finish(r: Value, count: int, p: Value, pieces: Sequence[Piece]) -> None:
            sums = self._partial(place(r, p), count, pieces)
            self._tile_maps(self._rows_from(r, count), p, pieces, names, sums)

        self._column_loop(
            low,
            high,
            lambda p, pieces: self._row_tiles(first, end, lambda r, n: finish(r, n, p, pieces)),
        )

    def _parts(self, body: Callable[[Mapping[str, Value], Value], None]) -> None:
        """Calls `body(first term of each sum, terms)` for every part, in order."""
        plan, f = self._plan, self._f
        inner = plan.sums[-1]
        length, size = plan.depth_block, inner.size.value

        def within(outside: Mapping[str, Value]) -> None:
            if length >= size:
                body({**outside, inner.name: integer(0)}, integer(size))
                return

            def one(k: Value, _: list[Value]) -> None:
                count = integer(length)
                if size % length:
                    count = f.minimum(f.sub(size, k), length)
                body({**outside, inner.name: k}, count)

            f.loop(0, size, length, one)

        if len(plan.sums) == 1:
            within({})
        else:
            outer = plan.sums[0]
            f.loop(0, outer.size.value, 1, lambda i, _: within({outer.name: i}))

    def _partial(self, at: Value, rows: int, pieces: Sequence[Piece]) -> list[Value]:
        """The partial sums of a tile of one panel."""
        f, tile = self._f, self._plan.tile
        return [
            f.load(vector_type("float", p.width), f.offset(at, (r * tile + p.lane) * 4), 4)
            for r in range(rows)
            for p in pieces
        ]

    def _keep_partial(
        self, at: Value, rows: int, pieces: Sequence[Piece], sums: Sequence[Value]
    ) -> None:
        f, tile = self._f, self._plan.tile
        for number, value in enumerate(sums):
            row, piece = divmod(number, len(pieces))
            f.store(value, f.offset(at, (row * tile + pieces[piece].lane) * 4), 4)

    def _column_tiles(
        self, low: Value, high: Value, row: Value, count: int, names: Mapping[str, Value]
    ) -> None:
        rows = self._rows_from(row, count)
        self._column_loop(
            low, high, lambda p, pieces: self._register_tile_at(rows, p, pieces, names)
        )

    def _row_tiles(self, first: Value, end: Value, body: _RowBody) -> None:
        """Tiles of full height, then the rest."""
        plan, f = self._plan, self._f
        height = plan.row_tile
        total = plan.row_count
        if total.is_constant and total.value <= plan.row_block:
            self._static_rows(total.value, body)
            return
        whole = f.sub(end, f.binary("urem", f.sub(end, first), height))

        def full(r: Value, _: list[Value]) -> None:
            body(r, height)

        f.loop(first, whole, height, full)
        if total.is_constant:
            rest = total.value % height
            if rest:
                f.branch(f.compare("slt", whole, end), lambda: body(whole, rest))
            return
        start = whole
        for part in (3, 1) if height > 3 else (1,):
            stop = f.sub(end, f.binary("urem", f.sub(end, start), part)) if part > 1 else end

            def partial(r: Value, _: list[Value], part: int = part) -> None:
                body(r, part)

            f.loop(start, stop, part, partial)
            start = stop

    def _static_rows(self, total: int, body: _RowBody) -> None:
        """A known number of rows: shorter tiles rather than one very short (its sums would
        wait for themselves: 49 rows are 4 x 6 and 5 x 5)."""
        f, height = self._f, self._plan.row_tile
        tall, rest = divmod(total, height)
        short = 0
        if 0 < rest < height - 2:
            tiles = -(-total // height)
            lacking = tiles * height - total
            if lacking <= tiles:
                tall, short, rest = tiles - lacking, lacking, 0
        f.loop(0, tall * height, height, lambda r, _: body(r, height))
        if short:
            begin, step = tall * height, height - 1
            f.loop(begin, begin + short * step, step, lambda r, _: body(r, step))
        if rest:
            body(integer(total - rest), rest)

    def _column_loop(self, low: Value, high: Value, body: _ColumnBody) -> None:
        """Panels of a block: several at once, then one by one, then a partial one."""
        plan, f = self._plan, self._f
        size = plan.column.size
        width = self._machine.width
        vectors = [Piece(0, lane, width) for lane in range(0, plan.tile, width)]
        full = self._entry.size(size // plan.tile)
        end = f.minimum(high, full)
        start = low
        if plan.panels > 1:
            many = [replace(v, panel=q) for q in range(plan.panels) for v in vectors]
            count = f.binary("udiv", f.maximum(f.sub(end, low), 0), plan.panels)
            stop = f.add(low, f.mul(count, plan.panels))
            f.loop(low, stop, plan.panels, lambda p, _: body(p, many))
            start = stop
        f.loop(start, end, 1, lambda p, _: body(p, vectors))
        if size.is_constant:
            rest = size.value % plan.tile
            if rest:
                pieces: list[Piece] = []
                lane = 0
                for part in widths_for(as_expr(rest), width):
                    while rest - lane >= part:
                        pieces.append(Piece(0, lane, part))
                        lane += part
                f.branch(f.compare("slt", full, high), lambda: body(full, pieces))
            return

        def single(c: Value, _: list[Value]) -> None:
            self._single = c
            body(full, [Piece(0, 0, 1)])
            self._single = None

        def tail() -> None:
            columns = self._entry.size(size)
            f.loop(f.mul(full, plan.tile), columns, 1, single)

        f.branch(f.compare("slt", full, high), tail)

    _single: Value | None = None
    """The column, where columns go one by one (the rest of a dynamic number of them)."""

    # -- rows ----------------------------------------------------------------------

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

    def _rows_from(self, row: Value, count: int) -> list[dict[str, Value]]:
        """Indices of `count` rows from `row`: one division, then steps with a carry."""
        f, axes = self._f, self._plan.rows
        names = self._unravel(axes, row)
        found = [names]
        for _ in range(count - 1):
            following: dict[str, Value] = {}
            carry: Value | None = None
            for axis in reversed(axes):
                value = names[axis.name]
                if carry is None:
                    value = f.add(value, 1)
                else:
                    value = f.add(value, f.cast("zext", carry, "i64"))
                if axis is not axes[0]:
                    over = f.compare("eq", value, self._entry.size(axis.size))
                    value = f.select(over, 0, value)
                    carry = over
                following[axis.name] = value
            names = following
            found.append(names)
        return found

    # -- the tile ---------------------------------------------------------------------

    def _register_tile_at(
        self,
        rows: list[dict[str, Value]],
        panel: Value,
        pieces: Sequence[Piece],
        names: Mapping[str, Value],
        first: Value | None = None,
    ) -> None:
        """Sums of `rows` x `pieces`, then the maps over them.

        `first` is the number of the first row where the tiles after it read the same panel.
        """
        none = {s.name: integer(0) for s in self._plan.sums}
        left, right = self._starts(rows, panel, pieces, names, none)
        element = compute_type(self._plan.sum_dtype)
        start = zeros(len(rows), pieces, self._start, element)
        ahead: Ahead | None = None
        if first is not None:
            depth = self._entry.size(product(a.size for a in self._plan.sums))
            ahead = self._ahead(right, depth, first, len(rows))
        sums = self._sum(left, right, pieces, start, ahead)
        self._tile_maps(rows, panel, pieces, names, sums)

    def _ahead(
        self, right: Mapping[int, Value], terms: Value, first: Value, count: int
    ) -> Ahead | None:
        """The share of the tile of `count` rows from `first` in fetching the next panel.

        Weights that do not stay in the caches from step to step come from memory while
        the panel before them is multiplied (128 rows of BERT-base: 10 % less time).
        """
        plan, f = self._plan, self._f
        begin, end = self._row_range
        rows = f.sub(end, begin)
        if plan.packed or (rows.constant is not None and rows.constant <= plan.row_tile):
            return None
        offset = plan.right.access.offset
        panel = offset.substitute({plan.column.name: dim("%p") * plan.tile})
        if not panel.is_linear_in(["%p"]):
            return None
        size_bytes = plan.right.dtype.size_bytes
        following = f.offset(right[0], self._entry.size(panel.coefficient("%p") * size_bytes))
        all_tiles = Ahead(following, 1, f.maximum(rows, 1))
        before = f.mul(f.sub(first, begin), f.mul(terms, plan.tile * size_bytes))
        return replace(all_tiles.moved(f, before), count=count)

    def _starts(
        self,
        rows: list[dict[str, Value]],
        panel: Value,
        pieces: Sequence[Piece],
        names: Mapping[str, Value],
        terms: Mapping[str, Value],
    ) -> tuple[list[Value], dict[int, Value]]:
        """Where the left operand of each row and each panel begin, from term `terms` on."""
        plan, f = self._plan, self._f
        a, b = plan.left.access.offset, plan.right.access.offset
        left = [self._pointer(plan.left, a, {**names, **terms, **row}) for row in rows]
        panels = sorted({p.panel for p in pieces})
        if plan.packed:
            return left, self._packed_starts(panel, panels, terms)
        if self._single is None:
            b = b.substitute({plan.column.name: dim("%p") * plan.tile})
            bound = {q: {"%p": f.add(panel, q)} for q in panels}
        else:
            bound = {q: {plan.column.name: self._column(panel, q)} for q in panels}
        right = {
            q: self._pointer(plan.right, b, {**names, **terms, **bound[q]}) for q in panels
        }
        return left, right

    def _tile_maps(
        self,
        rows: list[dict[str, Value]],
        panel: Value,
        pieces: Sequence[Piece],
        names: Mapping[str, Value],
        sums: Sequence[Value],
    ) -> None:
        """The maps over the finished sums of a tile."""
        columns = {p.panel: self._column(panel, p.panel) for p in pieces}
        for number, row in enumerate(rows):
            context = self._open({**names, **row})
            for position, piece in enumerate(pieces):
                value = sums[number * len(pieces) + position]
                at = self._f.add(columns[piece.panel], piece.lane)
                self._registers = {self._sum_name: Typed(value, self._plan.sum_dtype)}
                self._maps(context, at, piece.width)

    def _column(self, panel: Value, number: int) -> Value:
        """The first column of a panel."""
        if self._single is not None:
            return self._single
        return self._f.mul(self._f.add(panel, number), self._plan.tile)

    def _pointer(self, read: Read, offset: Expr, names: Mapping[str, Value]) -> Value:
        assert isinstance(read.access.place, int)
        base = self._entry.bindings[read.access.place]
        at = evaluate(self._f, offset, names, self._ranges)
        return self._f.element(base, at, read.dtype.size_bytes)

    def _widen(self, lefts: Sequence[Value], left: Strip, size: Value) -> list[Value]:
        """A run of each row into scratch, as f32 or i16; returns where they stand now."""
        plan, f = self._plan, self._f
        # Parts of a sum are multiples of what is unrolled, whole sums of 8.
        lanes = 8 if size.constant is not None and size.constant % 8 == 0 else UNROLL
        base = f.offset(self._entry.scratch, plan.block_bytes)
        rows = [f.offset(base, r * plan.widened_bytes) for r in range(len(lefts))]
        if plan.sum_dtype == I32:
            assert size.constant is not None
            for source, target in zip(lefts, rows, strict=True):
                widen_row(f, left, source, target, size.constant)
            return rows
        size_bytes = plan.left.dtype.size_bytes

        def some(k: Value, _: list[Value]) -> None:
            for source, target in zip(lefts, rows, strict=True):
                place = f.element(source, k, size_bytes)
                value = widened(f, self._machine, plan.left.dtype, place, lanes)
                f.store(value, f.element(target, k, 4), 4)

        f.loop(0, size, lanes, some)
        return rows

    def _sum(
        self,
        left: list[Value],
        right: dict[int, Value],
        pieces: Sequence[Piece],
        start: list[Value],
        ahead: Ahead | None,
    ) -> list[Value]:
        """Loops over the sums, the innermost unrolled."""
        plan, f = self._plan, self._f
        a, b = plan.left.access.offset, plan.right.access.offset
        a_bytes, b_bytes = plan.left.dtype.size_bytes, plan.right.dtype.size_bytes

        def nest(
            axes: Sequence[Axis],
            lefts: list[Value],
            rights: dict[int, Value],
            acc: list[Value],
            ahead: Ahead | None,
        ) -> list[Value]:
            axis, rest = axes[0], axes[1:]
            size = self._entry.size(axis.size)
            if rest:
                a_step = self._entry.size(a.coefficient(axis.name) * a_bytes)
                b_step = self._entry.size(b.coefficient(axis.name) * b_bytes)

                def outer(i: Value, carried: list[Value]) -> list[Value]:
                    a_at, b_at = f.mul(i, a_step), f.mul(i, b_step)
                    moved = {q: f.offset(p, b_at) for q, p in rights.items()}
                    then = None if ahead is None else ahead.moved(f, b_at)
                    return nest(rest, [f.offset(p, a_at) for p in lefts], moved, carried, then)

                return f.loop(0, size, 1, outer, acc)

            return self._run(axis, size, lefts, rights, pieces, acc, ahead)

        return nest(plan.sums, left, right, start, ahead)

    def _run(
        self,
        axis: Axis,
        size: Value,
        lefts: list[Value],
        rights: dict[int, Value],
        pieces: Sequence[Piece],
        acc: list[Value],
        ahead: Ahead | None,
    ) -> list[Value]:
        """`size` terms along the innermost sum."""
        plan, f = self._plan, self._f
        left, right = (
            Strip(
                r.dtype,
                self._entry.size(r.access.offset.coefficient(axis.name) * r.dtype.size_bytes),
            )
            for r in (plan.left, plan.right)
        )
        if plan.packed:  # Panels were widened when they were laid out.
            right = Strip(F32, integer(plan.tile * 4))
        if plan.widened_bytes:
            lefts, left = self._widen(lefts, left, size), Strip(F32, integer(4))
        if plan.sum_dtype == I32:
            assert size.constant is not None
            if plan.in_bytes:
                return ByteTile(f, pieces, left, right).add(lefts, rights, size.constant, acc)
            return IntegerTile(f, pieces, right).add(lefts, rights, size.constant, acc)
        cut = plan.has_few_sums(self._machine.width)
        tile = Tile(f, self._machine, pieces, left, right, ahead, cut)
        return tile.add(lefts, rights, size, acc, whole_steps=bool(plan.depth_block))

    def _maps(self, context: Context, column: Value, width: int) -> None:
        """The maps at one row and one vector of columns."""
        axis = self._plan.column
        vector = replace(context, width=width, axis=axis.name if width > 1 else None)
        bound = self._bind(vector, axis, column)
        for phase in self._nest.phases:
            self._inside(bound, phase, None)
