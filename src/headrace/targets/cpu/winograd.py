"""3 x 3 convolutions of stride 1 by Winograd's F(2x2, 3x3): 16 products for 36.

A tile is 2 x 2 output pixels of all channels. A workgroup transforms the 4 x 4 patches of
a block of tiles into its scratch (`B' d B`, 16 matrices of tiles x channels), multiplies
each with its matrix of the transformed weights, 16 output channels at a time, and brings
the sums back (`A' m A`) right into the maps of the epilogue. Weights are transformed when
the model is compiled (`Layout.transform`). Relative error about 3e-7, as the direct sum's;
1.7 to 1.84 times its speed (`notes/cpu_codegen.md`). The weights grow 16/9.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.base.dtypes import F32
from headrace.base.symbols import ONE, Expr, as_expr, ceildiv
from headrace.kernel.description import Kernel
from headrace.kernel.target import Launch, SliceRule, Specialisation
from headrace.targets.cpu.emit import NestEmitter, Schedule, Typed
from headrace.targets.cpu.entry import divide
from headrace.targets.cpu.halo import emit_halo
from headrace.targets.cpu.ir_text import (
    Function,
    Module,
    Value,
    constant,
    integer,
    vector_type,
)
from headrace.targets.cpu.machine import Machine
from headrace.targets.cpu.winograd_plan import TILE_COLUMNS, WinogradPlan, layout_wishes, match

_UNROLL = 4
_PREFETCH_BYTES = 512

__all__ = ["emit", "layout_wishes", "match"]


def emit(
    module: Module, symbol: str, kernel: Kernel, schedule: WinogradPlan, machine: Machine
) -> tuple[Specialisation, ...]:
    """One function: x blocks of tiles, y blocks of output channels, z images."""
    emitter = WinogradEmitter(module, symbol, kernel, schedule, machine)
    emitter.emit()
    step = schedule.panels * 16 * schedule.channels * TILE_COLUMNS * 4
    launch = Launch(
        symbol,
        emitter.workgroups(),
        as_expr(schedule.scratch_bytes),
        SliceRule(schedule.weight.operand, 1, as_expr(step)),
        "winograd",
    )
    return (Specialisation((), (launch,)),)


class WinogradEmitter(NestEmitter):
    """Emits the function; the maps after the sum go through `NestEmitter`."""

    def __init__(
        self, module: Module, symbol: str, kernel: Kernel, plan: WinogradPlan, machine: Machine
    ) -> None:
        batch = () if plan.batch is None else (plan.batch,)
        order = (*batch, plan.y, plan.x, plan.column)
        none = (None,) * len(plan.nest.phases)
        schedule = Schedule("winograd", order, machine.width, none, 0, 1)
        super().__init__(module, symbol, kernel, plan.nest, schedule, machine)
        self._plan = plan
        self._vector = vector_type("float", machine.width)
        reduction = kernel.phases[0].reduction
        assert reduction is not None
        self._sum_name = reduction.results[0]

    def workgroups(self) -> tuple[Expr, Expr, Expr]:
        """Blocks of tiles (and behind them the pieces of halo), of channels, images."""
        plan = self._plan
        batch = ONE if plan.batch is None else plan.batch.size
        panels = plan.column.size.value // TILE_COLUMNS
        return (
            as_expr(-(-plan.tiles // plan.block) + len(self._halo)),
            ceildiv(as_expr(panels), plan.panels),
            batch,
        )

    def emit(self) -> None:
        f, plan = self._f, self._plan
        blocks = -(-plan.tiles // plan.block)

        def workgroup(x: Value, y: Value, z: Value) -> None:
            if not self._halo:
                self._block(x, y, z)
                return

            def halo() -> None:
                f.branch(
                    f.compare("eq", f.binary("or", y, z), 0),
                    lambda: emit_halo(self._entry, self._halo, f.sub(x, blocks), self._machine),
                )

            f.branch(f.compare("slt", x, blocks), lambda: self._block(x, y, z), halo)

        self._entry.tiles_3d(workgroup)
        self._entry.finish()

    def _block(self, x: Value, y: Value, z: Value) -> None:
        f, plan = self._f, self._plan
        first = f.mul(x, plan.block)
        last = plan.tiles % plan.block
        count: Value = integer(plan.block)
        if last:
            count = f.minimum(f.sub(plan.tiles, first), plan.block)
        low = f.mul(y, plan.panels)
        high = f.minimum(f.add(low, plan.panels), plan.column.size.value // TILE_COLUMNS)

        self._transform(first, count, z)

        def panel(p: Value, _: list[Value]) -> None:
            if last:
                f.branch(
                    f.compare("eq", count, plan.block),
                    lambda: self._products(p, plan.block),
                    lambda: self._products(p, last),
                )
            else:
                self._products(p, plan.block)
            self._back(p, first, count, z)

        f.loop(low, high, 1, panel)

    @property
    def _sums(self) -> Value:
        return self._f.offset(self._entry.scratch, 16 * self._plan.matrix_bytes)

    # -- image to matrices ------------------------------------------------------------

    def _tile_at(self, number: Value) -> tuple[Value, Value]:
        """The first row and column of output of a tile."""
        f = self._f
        across = integer(self._plan.tiles_x)
        ty = divide(f, number, across, quotient=True, positive=True)
        tx = f.sub(number, f.mul(ty, across))
        return f.mul(ty, 2), f.mul(tx, 2)

    def _transform(self, first: Value, count: Value, z: Value) -> None:
        f, plan = self._f, self._plan
        operand = self._kernel.operands[plan.image.operand]
        strides = [self._entry.size(d.stride * 4) for d in operand.layout.dimensions]
        base = f.offset(
            self._entry.bindings[plan.image.operand],
            f.add(self._entry.size(self._image_offset() * 4), f.mul(z, strides[0])),
        )
        width = self._machine.width

        def tile(t: Value, _: list[Value]) -> None:
            y, x = self._tile_at(f.add(first, t))
            lines = [self._positions(f.sub(y, plan.low[0]), 2, strides[2])]
            lines.append(self._positions(f.sub(x, plan.low[1]), 3, strides[3]))
            target = f.offset(self._entry.scratch, f.mul(t, plan.channels * 4))

            def channels(c: Value, _: list[Value]) -> None:
                pixel = f.offset(base, f.mul(c, strides[1]))
                patch = [
                    [self._pixel(pixel, row, column, strides[1]) for column in lines[1]]
                    for row in lines[0]
                ]
                columns = [_forward(f, [patch[i][j] for i in range(4)]) for j in range(4)]
                for i in range(4):
                    for j, value in enumerate(_forward(f, [columns[j][i] for j in range(4)])):
                        place = f.offset(target, (4 * i + j) * plan.matrix_bytes)
                        f.store(value, f.element(place, c, 4), 4)

            f.loop(0, plan.channels, width, channels)

        f.loop(0, count, 1, tile)

    def _image_offset(self) -> Expr:
        """Elements before pixel 0; an image that is a slice begins at a later channel."""
        image = self._plan.image
        layout = self._kernel.operands[image.operand].layout
        first = image.index[1].substitute(dict.fromkeys(image.index[1].names, 0))
        return layout.offset + first * layout.dimensions[1].stride

    def _positions(
        self, start: Value, dimension: int, stride: Value
    ) -> list[tuple[Value, Value | None]]:
        """Byte offsets of 4 rows (or columns), each with whether it is in the image.

        The last patch of an odd size reaches one further than the window does; what it
        reads there decides only pixels that nobody stores.
        """
        f, plan = self._f, self._plan
        operand = self._kernel.operands[plan.image.operand]
        size = operand.shape[dimension].value
        odd = (plan.y, plan.x)[dimension - 2].size.value % 2
        found: list[tuple[Value, Value | None]] = []
        for i in range(4):
            at = f.add(start, i)
            inside: Value | None = None
            if dimension in plan.image.bounded:
                inside = f.compare("ult", at, size)
                at = f.select(inside, at, 0)
            elif odd and i == 3:
                at = f.minimum(at, size - 1 + operand.layout.halo_high[dimension])
            found.append((f.mul(at, stride), inside))
        return found

    def _pixel(
        self,
        start: Value,
        row: tuple[Value, Value | None],
        column: tuple[Value, Value | None],
        channel_stride: Value,
    ) -> Value:
        """Some channels of a pixel; zero outside the image."""
        f, width = self._f, self._machine.width
        address = f.offset(start, f.add(row[0], column[0]))
        if channel_stride.constant == 4:
            value = f.load(self._vector, address, 4)
        else:
            value = Value(self._vector, "poison")
            for lane in range(width):
                at = f.offset(address, f.mul(channel_stride, lane))
                value = f.insert(value, f.load("float", at, 4), lane)
        for inside in (row[1], column[1]):
            if inside is not None:
                value = f.select(f.splat(inside, width), value, 0.0)
        return value

    # -- products ----------------------------------------------------------------------

    def _products(self, panel: Value, tiles: int) -> None:
        """The 16 matrices of `tiles` tiles by those of a panel of weights."""
        f, plan = self._f, self._plan
        width = self._machine.width
        vectors = TILE_COLUMNS // width
        matrix_bytes = plan.channels * TILE_COLUMNS * 4
        weights = f.offset(
            self._entry.bindings[plan.weight.operand], f.mul(panel, 16 * matrix_bytes)
        )

        def matrix(n: Value, _: list[Value]) -> None:
            left = f.offset(self._entry.scratch, f.mul(n, plan.matrix_bytes))
            right = f.offset(weights, f.mul(n, matrix_bytes))
            result = f.offset(self._sums, f.mul(n, plan.block * TILE_COLUMNS * 4))

            def rows(r: Value, height: int) -> None:
                at = f.offset(left, f.mul(r, plan.channels * 4))
                base = f.offset(result, f.mul(r, TILE_COLUMNS * 4))
                places = [f.offset(base, n * width * 4) for n in range(height * vectors)]
                done = self._tile_sums(at, right, height, vectors)
                for place, value in zip(places, done, strict=True):
                    f.store(value, place, 4)

            begin = 0
            for height, times in _heights(tiles, 12 // vectors):
                end = begin + height * times
                f.loop(begin, end, height, lambda r, _, h=height: rows(r, h))
                begin = end

        f.loop(0, 16, 1, matrix)

    def _tile_sums(self, left: Value, right: Value, height: int, vectors: int) -> list[Value]:
        """Sums over all channels of `height` rows by a panel, in registers."""
        f, plan, width = self._f, self._plan, self._machine.width

        def steps(k: Value, carried: list[Value]) -> list[Value]:
            sums = list(carried)
            a = f.element(left, k, 4)
            b = f.offset(right, f.mul(k, TILE_COLUMNS * 4))
            for line in range(0, _UNROLL * TILE_COLUMNS * 4, 64):
                f.prefetch(f.offset(b, line + _PREFETCH_BYTES))
            for u in range(_UNROLL):
                wide = [
                    f.load(self._vector, f.offset(b, (u * TILE_COLUMNS + v * width) * 4), 4)
                    for v in range(vectors)
                ]
                for row in range(height):
                    scalar = f.load("float", f.offset(a, (row * plan.channels + u) * 4), 4)
                    for v, vector in enumerate(wide):
                        at = row * vectors + v
                        sums[at] = f.fma(f.splat(scalar, width), vector, sums[at])
            return sums

        start = [constant(self._vector, 0.0)] * (height * vectors)
        return f.loop(0, plan.channels, _UNROLL, steps, start)

    # -- back ---------------------------------------------------------------------------

    def _back(self, panel: Value, first: Value, count: Value, z: Value) -> None:
        """Sums to pixels, and the maps over them."""
        f, plan, width = self._f, self._plan, self._machine.width

        def tile(t: Value, _: list[Value]) -> None:
            y, x = self._tile_at(f.add(first, t))
            at = f.offset(self._sums, f.mul(t, TILE_COLUMNS * 4))
            for lane in range(0, TILE_COLUMNS, width):
                matrix = [
                    [
                        f.load(
                            self._vector,
                            f.offset(at, ((4 * i + j) * plan.block * TILE_COLUMNS + lane) * 4),
                            4,
                        )
                        for i in range(4)
                    ]
                    for j in range(4)
                ]
                columns = [_backward(f, column) for column in matrix]
                channel = self._column_of(panel, lane)
                for i in range(2):
                    pixels = _backward(f, [columns[j][i] for j in range(4)])
                    for j, value in enumerate(pixels):
                        self._stored((y, i), (x, j), z, channel, value)

        f.loop(0, count, 1, tile)

    def _column_of(self, panel: Value, lane: int) -> Value:
        return self._f.add(self._f.mul(panel, TILE_COLUMNS), lane)

    def _stored(
        self,
        y: tuple[Value, int],
        x: tuple[Value, int],
        z: Value,
        column: Value,
        value: Value,
    ) -> None:
        """The maps at a pixel of a tile, if it is one: odd sizes end within a tile."""
        f, plan = self._f, self._plan
        inside: Value | None = None
        for (first, more), axis in ((y, plan.y), (x, plan.x)):
            if more and axis.size.value % 2:
                fits = f.compare("slt", f.add(first, more), axis.size.value)
                inside = fits if inside is None else f.binary("and", inside, fits)
        at = [f.add(first, more) for first, more in (y, x)]
        if inside is None:
            self._pixel_maps(at[0], at[1], z, column, value)
            return
        f.branch(inside, lambda: self._pixel_maps(at[0], at[1], z, column, value))

    def _pixel_maps(self, y: Value, x: Value, z: Value, column: Value, value: Value) -> None:
        plan = self._plan
        names = {**self._entry.names, plan.y.name: y, plan.x.name: x}
        if plan.batch is not None:
            names[plan.batch.name] = z
        context = replace(self._open(names), width=self._machine.width, axis=plan.column.name)
        bound = self._bind(context, plan.column, column)
        self._registers = {self._sum_name: Typed(value, F32)}
        for phase in self._nest.phases:
            self._inside(bound, phase, None)


def _forward(f: Function, d: Sequence[Value]) -> list[Value]:
    """`B' d` of 4 values."""
    return [f.sub(d[0], d[2]), f.add(d[1], d[2]), f.sub(d[2], d[1]), f.sub(d[1], d[3])]


def _backward(f: Function, m: Sequence[Value]) -> list[Value]:
    """`A' m` of 4 values."""
    return [f.add(f.add(m[0], m[1]), m[2]), f.sub(f.sub(m[1], m[2]), m[3])]


def _heights(rows: int, most: int) -> list[tuple[int, int]]:
    """(height, how many) of row tiles that are as alike as can be."""
    tiles = -(-rows // most)
    low, more = divmod(rows, tiles)
    return [(h, n) for h, n in ((low + 1, more), (low, tiles - more)) if n]
