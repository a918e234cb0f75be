"""3 x 3 convolutions of stride 1 by Winograd's F(2x2, 3x3): 16 products for 36.

A tile is 2 x 2 output pixels of all channels. A workgroup transforms the 4 x 4 patches of
a block of tiles into its scratch (`B' d B`, 16 matrices of tiles x channels), multiplies
each with its matrix of the transformed weights, 16 output channels at a time, and brings
the sums back (`A' m A`) right into the maps of the epilogue. Weights are transformed when
the model is compiled (`Layout.transform`). Relative error about 3e-7, as the direct sum's;
1.7 to 1.84 times its speed (`notes/cpu_codegen.md`). The weights grow 16/9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.base.dtypes import F32
from headrace.base.errors import error
from headrace.base.symbols import ONE, Expr, as_expr, ceildiv, dim
from headrace.kernel.description import Axis, Compute, Kernel, Load
from headrace.kernel.target import Launch, LayoutWish, SliceRule, Specialisation
from headrace.targets.cpu import contract_wishes
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
from headrace.targets.cpu.nest import Nest, lower

TRANSFORM = "winograd"

_TILE = 16
"""Output channels of a panel of weights."""

_LEAST_CHANNELS = 32
_LEAST_PIXELS = 196
_MOST_WEIGHTS = 256 * 256
"""Larger weights are read from memory once a step: 16/9 of the bytes costs more."""

_COLUMNS = 64
"""Output channels of a workgroup, about: the patches are transformed again for the next."""

_BLOCK_BYTES = 224 << 10
"""Scratch of a workgroup, about."""

_MOST_TILES = 32
_UNROLL = 4
_PREFETCH_BYTES = 512
_PITCH_BYTES = 192
"""Between the 16 matrices, so that they do not fall on the same lines of the cache."""


@dataclass(frozen=True)
class WinogradPlan:
    """A convolution and how it is cut.

    Attributes:
        image, weight: the two loads of the sum.
        nest: the maps after it.
        batch: the axis of images, None where there is one.
        column, y, x: the axes of output channels and pixels.
        low: rows and columns of padding before the image.
        channels: of the image.
        block: tiles of a workgroup.
        panels: panels of weights of a workgroup.
    """

    image: Load
    weight: Load
    nest: Nest
    batch: Axis | None
    column: Axis
    y: Axis
    x: Axis
    low: tuple[int, int]
    channels: int
    block: int
    panels: int

    @property
    def tiles_x(self) -> int:
        return self.x.size.value // 2

    @property
    def tiles(self) -> int:
        return self.y.size.value // 2 * self.tiles_x

    @property
    def matrix_bytes(self) -> int:
        """Of one of the 16 matrices of a block."""
        return self.block * self.channels * 4 + _PITCH_BYTES

    @property
    def scratch_bytes(self) -> int:
        return 16 * (self.matrix_bytes + self.block * _TILE * 4)


def layout_wishes(kernel: Kernel, machine: Machine) -> Mapping[int, LayoutWish] | None:
    """The wishes of a direct convolution, but for transformed weights, where it pays."""
    plan = _plan(kernel)
    if plan is None or not _pays(plan):
        return None
    wishes = contract_wishes.layout_wishes(kernel, machine)
    if wishes is None:
        return None
    wish = LayoutWish((2, 3, 1), panel=(0, _TILE), strict=True, transform=TRANSFORM)
    return {**wishes, plan.weight.operand: wish}


def _pays(plan: WinogradPlan) -> bool:
    outputs = plan.column.size.value
    return (
        min(outputs, plan.channels) >= _LEAST_CHANNELS
        and outputs * plan.channels <= _MOST_WEIGHTS
        and 4 * plan.tiles >= _LEAST_PIXELS
    )


def match(kernel: Kernel, machine: Machine) -> WinogradPlan | None:
    """Convolutions whose weights were transformed.

    Raises:
        HeadraceDefect HR9434: transformed weights in a kernel that this cannot do.
    """
    transformed = [n for n, o in enumerate(kernel.operands) if o.layout.transform]
    if not transformed:
        return None
    plan = _plan(kernel)
    if plan is None or transformed != [plan.weight.operand]:
        names = ", ".join(kernel.operands[n].name for n in transformed)
        raise error("HR9434", f"transformed weights {names} in no convolution of 3 x 3")
    return plan


def _plan(kernel: Kernel) -> WinogradPlan | None:
    if not kernel.phases or (
        kernel.dims and any(not a.size.is_constant for a in kernel.outer[1:])
    ):
        return None
    first, *rest = kernel.phases
    reduction = first.reduction
    if reduction is None or reduction.combiner.kind != "add" or first.parallel:
        return None
    if any(p.parallel or p.reduction_axes or p.serial for p in rest):
        return None
    loads = [i for i in first.body if isinstance(i, Load)]
    if len(loads) != 2 or len(first.body) != 3:
        return None
    last = first.body[-1]
    if not isinstance(last, Compute):
        return None
    if last.operation != "multiply" or set(last.operands) != {i.result for i in loads}:
        return None
    if reduction.initial != (0.0,) or any(
        kernel.operands[i.operand].dtype != F32 or len(i.index) != 4 for i in loads
    ):
        return None
    for image, weight in (loads, loads[::-1]):
        plan = _of_loads(kernel, image, weight)
        if plan is not None:
            return plan
    return None


def _of_loads(kernel: Kernel, image: Load, weight: Load) -> WinogradPlan | None:
    sizes = {a.name: a for a in (*kernel.outer, *kernel.phases[0].reduction_axes)}
    found = [next((a for a in sizes.values() if i == dim(a.name)), None) for i in weight.index]
    if weight.bounded or not kernel.operands[weight.operand].constant or None in found:
        return None
    column, channel, ky, kx = (a for a in found if a is not None)
    if column not in kernel.outer or {channel, ky, kx} != set(kernel.phases[0].reduction_axes):
        return None
    if ky.size != as_expr(3) or kx.size != as_expr(3):
        return None
    if not (image.index[1] - dim(channel.name)).is_constant:
        return None
    if (image.bounded and image.otherwise != 0) or set(image.bounded) - {2, 3}:
        return None
    axes: list[Axis] = []
    low: list[int] = []
    for index, kernel_axis in ((image.index[2], ky), (image.index[3], kx)):
        slid = index - dim(kernel_axis.name)
        names = slid.names
        axis = sizes.get(next(iter(names), "")) if len(names) == 1 else None
        if axis is None or axis not in kernel.outer:
            return None
        offset = slid - dim(axis.name)
        if not offset.is_constant or not 0 <= -offset.value <= 2:
            return None
        if not axis.size.is_constant or axis.size.value % 2 or not axis.size.value:
            return None
        axes.append(axis)
        low.append(-offset.value)
    others = [a for a in kernel.outer if a not in (column, *axes)]
    batch = others[0] if others else None
    if len(others) > 1 or len({column.name, *(a.name for a in axes)}) != 3:
        return None
    if image.index[0] != (as_expr(0) if batch is None else dim(batch.name)):
        return None
    static = (column.size, channel.size, *kernel.operands[image.operand].shape[2:])
    if any(not s.is_constant for s in static):
        return None
    if column.size.value % _TILE or channel.size.value % 8:
        return None
    epilogue = lower(replace(kernel, phases=kernel.phases[1:]), merge=False)
    y, x = axes
    plan = WinogradPlan(
        image=image,
        weight=weight,
        nest=epilogue,
        batch=batch,
        column=column,
        y=y,
        x=x,
        low=(low[0], low[1]),
        channels=channel.size.value,
        block=0,
        panels=0,
    )
    panels = column.size.value // _TILE
    groups = max(1, round(column.size.value / _COLUMNS))
    return replace(plan, block=_block(plan), panels=-(-panels // groups))


def _block(plan: WinogradPlan) -> int:
    """Tiles of a workgroup: their matrices fit L2, and there are enough workgroups."""
    fits = max(6, _BLOCK_BYTES // (16 * (plan.channels + _TILE) * 4))
    most = max(6, min(fits, _MOST_TILES, -(-plan.tiles // 4)))
    pieces = -(-plan.tiles // most)
    exact = [n for n in range(pieces, pieces * 3 // 2) if plan.tiles % n == 0]
    return -(-plan.tiles // (exact[0] if exact else pieces))


def emit(
    module: Module, symbol: str, kernel: Kernel, schedule: WinogradPlan, machine: Machine
) -> tuple[Specialisation, ...]:
    """One function: x blocks of tiles, y blocks of output channels, z images."""
    emitter = WinogradEmitter(module, symbol, kernel, schedule, machine)
    emitter.emit()
    step = schedule.panels * 16 * schedule.channels * _TILE * 4
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
        panels = plan.column.size.value // _TILE
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
        self._transform(first, count, z)
        panels = plan.column.size.value // _TILE
        low = f.mul(y, plan.panels)
        high = f.minimum(f.add(low, plan.panels), panels)

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
                start = f.offset(base, f.mul(c, strides[1]))
                patch = [
                    [self._pixel(start, row, column, strides[1]) for column in lines[1]]
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
        """Byte offsets of 4 rows (or columns), each with whether it is in the image."""
        f, plan = self._f, self._plan
        found: list[tuple[Value, Value | None]] = []
        for i in range(4):
            at = f.add(start, i)
            inside: Value | None = None
            if dimension in plan.image.bounded:
                size = self._kernel.operands[plan.image.operand].shape[dimension].value
                inside = f.compare("ult", at, size)
                at = f.select(inside, at, 0)
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
        vectors = _TILE // width
        depth_bytes = plan.channels * _TILE * 4
        weights = f.offset(
            self._entry.bindings[plan.weight.operand], f.mul(panel, 16 * depth_bytes)
        )
        sums = f.offset(self._entry.scratch, 16 * plan.matrix_bytes)

        def matrix(n: Value, _: list[Value]) -> None:
            left = f.offset(self._entry.scratch, f.mul(n, plan.matrix_bytes))
            right = f.offset(weights, f.mul(n, depth_bytes))
            result = f.offset(sums, f.mul(n, plan.block * _TILE * 4))

            def rows(r: Value, height: int) -> None:
                at = f.offset(left, f.mul(r, plan.channels * 4))
                done = self._tile_sums(at, right, height, vectors)
                for number, value in enumerate(done):
                    row, vector = divmod(number, vectors)
                    place = f.offset(result, f.mul(f.add(r, row), _TILE * 4))
                    f.store(value, f.offset(place, vector * width * 4), 4)

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
            b = f.offset(right, f.mul(k, _TILE * 4))
            for line in range(0, _UNROLL * _TILE * 4, 64):
                f.prefetch(f.offset(b, line + _PREFETCH_BYTES))
            for u in range(_UNROLL):
                wide = [
                    f.load(self._vector, f.offset(b, (u * _TILE + v * width) * 4), 4)
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
        sums = f.offset(self._entry.scratch, 16 * plan.matrix_bytes)

        def tile(t: Value, _: list[Value]) -> None:
            y, x = self._tile_at(f.add(first, t))
            at = f.offset(sums, f.mul(t, _TILE * 4))
            for lane in range(0, _TILE, width):
                matrix = [
                    [
                        f.load(
                            self._vector,
                            f.offset(at, ((4 * i + j) * plan.block * _TILE + lane) * 4),
                            4,
                        )
                        for i in range(4)
                    ]
                    for j in range(4)
                ]
                columns = [_backward(f, column) for column in matrix]
                for i in range(2):
                    pixels = _backward(f, [columns[j][i] for j in range(4)])
                    for j, value in enumerate(pixels):
                        self._pixel_maps(
                            f.add(y, i), f.add(x, j), z, self._column_of(panel, lane), value
                        )

        f.loop(0, count, 1, tile)

    def _column_of(self, panel: Value, lane: int) -> Value:
        return self._f.add(self._f.mul(panel, _TILE), lane)

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
