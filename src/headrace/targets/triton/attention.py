"""Attention as one launch: a tile of rows meets the keys tile by tile, nothing is kept.

The greatest score so far and the sum of exponentials stand in registers; when the greatest
grows, what was summed before is scaled down (`kernel/softmax_rows.py`). Rows whose scores are
all -inf are no numbers in the end, as in the kernel's meaning. f16 and bf16 factors go to the
tensor cores as they are; fp32 factors are multiplied as `Kernel.precision` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.base.dtypes import F32
from headrace.base.symbols import ONE, ceildiv
from headrace.kernel.description import Axis, Kernel, Load, LoadLocal
from headrace.kernel.lanes import scalar as scalars
from headrace.kernel.lanes.machine import Value
from headrace.kernel.lanes.scalar import Scalar
from headrace.kernel.products import NARROW_FLOATS, flat_size
from headrace.kernel.softmax_rows import (
    GREATEST,
    KEY,
    MIX,
    SCORE,
    TOTAL,
    WIDTH,
    SoftmaxRows,
    Tree,
    as_softmax_rows,
    linearise,
    read_locals,
)
from headrace.targets.triton.naive import TritonSource
from headrace.targets.triton.schedule import power_of_two
from headrace.targets.triton.source import TENSOR_CORE_NAMES, Text
from headrace.targets.triton.tiles import TileLowering, TileWriter, index_type

_WIDEST = 256
"""Elements of a query or a value that registers hold for a tile of rows."""


@dataclass(frozen=True)
class AttentionTiles:
    """Rows and keys of a tile, warps and stages of a program."""

    rows: int
    keys: int
    warps: int
    stages: int


def choose_tiles(found: SoftmaxRows, unknown_rows: int, narrow: bool) -> AttentionTiles:
    """From sizes alone: the same at every budget; measured in docs/measured/h200.md."""
    count = flat_size(found.rows)
    rows = count.value if count.is_constant else unknown_rows
    if not narrow:
        return AttentionTiles(power_of_two(rows, 16, 32), 32, 4, 2)
    if rows <= 16 and found.keys == count:
        # Few keys too: what further stages hold keeps the next launch out, 5 us a layer.
        return AttentionTiles(16, 16, 4, 1)
    widest = max(found.width.value, found.depth.size.value)
    return AttentionTiles(power_of_two(rows, 16, 64), 64, 4, 3 if widest <= 128 else 2)


def is_narrow(kernel: Kernel, found: SoftmaxRows) -> bool:
    """Whether scores are products of 16-bit floats."""
    dtypes = [kernel.operands[x.operand].dtype.name for x in (found.query, found.key)]
    return dtypes[0] == dtypes[1] and dtypes[0] in NARROW_FLOATS


def generate(
    name: str, kernel: Kernel, unknown_rows: int = 64, found: SoftmaxRows | None = None
) -> TritonSource | None:
    """The kernel's Triton source; None where it is no attention that registers hold.

    Args:
        unknown_rows: what a number of rows known only at run time is taken for.
        found: what `as_softmax_rows` says, where that is known.

    Raises:
        HeadraceError HR2401: an operation that lanes lack.
    """
    found = found or as_softmax_rows(kernel)
    if found is None or not all(
        size.is_constant and size.value <= _WIDEST for size in (found.width, found.depth.size)
    ):
        return None
    narrow = is_narrow(kernel, found)
    tiles = choose_tiles(found, unknown_rows, narrow)
    axes = (Axis(KEY, found.keys), Axis(WIDTH, found.width))
    writer = TileWriter(kernel, index_type(kernel, [(a,) for a in axes]))
    _AttentionLowering(kernel, writer, found, tiles, name, narrow).emit()
    return writer.source(
        name,
        kernel,
        workgroups=(
            ceildiv(flat_size(found.rows), tiles.rows) * flat_size(found.batch), ONE, ONE,
        ),
        family="attention",
        warps=tiles.warps,
        stages=tiles.stages,
    )  # fmt: skip


class _AttentionLowering(TileLowering):
    def __init__(
        self,
        kernel: Kernel,
        writer: TileWriter,
        found: SoftmaxRows,
        tiles: AttentionTiles,
        name: str,
        narrow: bool,
    ) -> None:
        super().__init__(kernel, writer)
        self.found = found
        self.tiles = tiles
        self.name = name
        self.narrow = narrow
        self.held: dict[str, Value] = {}
        self.locals = {local.name: local for local in read_locals()}

    def emit(self) -> None:
        """The whole body."""
        writer, found, tiles, narrow = self.writer, self.found, self.tiles, self.narrow
        count = self.indices.value(ceildiv(flat_size(found.rows), tiles.rows))
        along = writer.program(0)
        self._bind(found.batch, along / count)
        row_edge = self._side(found.rows, along % count, tiles.rows, 1)
        depth, width = (
            power_of_two(s.value, 16, _WIDEST) for s in (found.depth.size, found.width)
        )
        depth_axis = found.depth
        query = self._factor(
            found.query, (tiles.rows, depth), row_edge, self._line(depth_axis, depth, 2), narrow
        )
        writer.line(f'greatest = tl.full(({tiles.rows}, 1), float("-inf"), tl.float32)')
        writer.line(f"total = tl.full(({tiles.rows}, 1), 0.0, tl.float32)")
        writer.line(f"mix = tl.full(({tiles.rows}, {width}), 0.0, tl.float32)")
        end: Text = self.indices.value(found.keys).handle
        stop = end.name if end.number is None else str(end.number)
        writer.line(f"for start in range(0, {stop}, {tiles.keys}):")
        writer.indent(1)
        inside = self._line(depth_axis, depth, 1)
        key_edge = self._line(Axis(KEY, found.keys), tiles.keys, 2, "start")
        key = self._factor(found.key, (depth, tiles.keys), inside, key_edge, narrow)
        wide = f', input_precision="{self.kernel.precision}"'
        precision = "" if narrow else wide
        score = writer.define(f"tl.dot({query}, {key}{precision})", block=3)
        weights = self._weights(Value(writer, "f32", score), row_edge, key_edge)
        value_dtype = self.kernel.operands[found.value.operand].dtype.name
        mixes_narrow = value_dtype in NARROW_FLOATS and found.rounded == value_dtype
        if found.rounded:
            core = TENSOR_CORE_NAMES[found.rounded]
            back = "" if mixes_narrow else ".to(tl.float32)"
            weights = writer.define(f"{weights}.to({core}){back}", block=3).name
        key_edge = self._line(Axis(KEY, found.keys), tiles.keys, 1, "start")
        inside = self._line(Axis(WIDTH, found.width), width, 2)
        value = self._factor(found.value, (tiles.keys, width), key_edge, inside, mixes_narrow)
        precision = "" if mixes_narrow else wide
        writer.line(f"mix = tl.dot({weights}, {value}, mix * fade{precision})")
        writer.line("greatest = top")
        writer.indent(-1)
        self._results(width, row_edge)

    def _line(self, axis: Axis, extent: int, bit: int, start: str = "") -> str | None:
        """Binds an axis along a dimension of a tile; where it is inside, if not everywhere."""
        writer = self.writer
        turned = "[:, None]" if bit == 1 else "[None, :]"
        span = f"tl.arange(0, {extent}).to({writer.word}){turned}"
        line = writer.named(f"{start} + {span}" if start else span, bit)
        self._bind_axis(axis, line)
        if axis.size.is_constant and axis.size.value % extent == 0:
            return None
        return line.lt(self.indices.value(axis.size)).handle.name

    def _shape(self, shape: Sequence[int], first: str | None, second: str | None) -> None:
        self.writer.shape = f"({shape[0]}, {shape[1]})"
        self.writer.edges = {b: e for b, e in ((1, first), (2, second)) if e is not None}

    def _factor(
        self, load: Load, shape: tuple[int, int], first: str | None, second: str | None,
        narrow: bool,
    ) -> str:  # fmt: skip
        """A tile of a factor; 0 outside."""
        self._shape(shape, first, second)
        operand = self.kernel.operands[load.operand]
        if narrow:
            offset = self._elements(operand, load.index)[0]
            name = TENSOR_CORE_NAMES[operand.dtype.name]
            return self.writer.load_factor(load.operand, offset, None, name)
        tile = self.writer.whole(self._load(load).value)
        edges = " & ".join(e for e in (first, second) if e is not None)
        return f"tl.where({edges}, {tile}, 0.0)" if edges else tile

    def _load_local(self, operation: LoadLocal) -> Scalar:
        return Scalar(F32, (self.held[operation.local],))

    def _tree(self, tree: Tree) -> Value:
        body, name = linearise(tree)
        return self._body(body)[name].value

    def _weights(self, score: Value, row_edge: str | None, key_edge: str | None) -> str:
        """Exponentials of a tile of scores; `top`, `fade` and `total` as they are with it."""
        writer, found = self.writer, self.found
        self._shape((self.tiles.rows, self.tiles.keys), row_edge, key_edge)
        self.held = {SCORE: score}
        scores = writer.whole(self._tree(found.scores))
        if key_edge is not None:
            low = writer.define(f'tl.where({key_edge}, {scores}, float("-inf"))', block=3)
            scores = low.name
        greater = "tl.maximum(l, r, propagate_nan=tl.PropagateNan.ALL)"
        function = self._function("greater", greater)
        writer.line(f"top = tl.reduce({scores}, 1, {function})[:, None]")
        writer.line("top = tl.maximum(greatest, top, propagate_nan=tl.PropagateNan.ALL)")
        # Where all scores are -inf so far, nothing was summed: any number scales nothing.
        writer.line('base = tl.where(top == float("-inf"), 0.0, top)')
        base = Value(writer, "f32", Text("base", 1))
        writer.line("less = tl.where(greatest == base, 0.0, greatest - base)")
        fade = self._exponential(Value(writer, "f32", Text("less", 1)))
        writer.line(f"fade = {fade.handle.name}")
        less = Value(writer, "f32", Text(scores, 3)) - base
        weights = writer.whole(self._exponential(less))
        # Triton's own `tl.sum` is no function of its interpreter.
        total = f"tl.reduce({weights}, 1, {self._function('sum', 'l + r')})[:, None]"
        writer.line(f"total = total * fade + {total}")
        return weights

    def _function(self, kind: str, result: str) -> str:
        """A function of `l` and `r` beside the kernel."""
        name = f"{self.name}_{kind}"
        self.writer.function(name, ("l", "r"), lambda: self.writer.line(f"return {result}"))
        return name

    def _exponential(self, value: Value) -> Value:
        """Of 16-bit floats the device's own, right to 2 units of f32: the products round its
        results to 16 bits anyway. 2048 causal rows of bf16 take 234 us with it, 446 without."""
        if self.narrow:
            handle = value.handle
            made = self.writer.define(f"tl.exp({handle.name})", block=handle.block)
            return Value(self.writer, "f32", made)
        return scalars.compute("exponential", (Scalar(F32, (value,)),), F32).value

    def _results(self, width: int, row_edge: str | None) -> None:
        writer, found = self.writer, self.found
        inside = self._line(Axis(WIDTH, found.width), width, 2)
        self._shape((self.tiles.rows, width), row_edge, inside)
        hidden = 'greatest == float("-inf")'
        writer.line(f'total = tl.where({hidden}, float("nan"), total)')
        if found.divided:
            writer.line("mix = tl.div_rn(mix, tl.broadcast_to(total, mix.shape))")
        else:
            writer.line(f'mix = tl.where({hidden}, float("nan"), mix)')
        if found.no_nan:
            writer.line("mix = tl.where(total != total, 0.0, mix)")
        self.held = {
            name: Value(writer, "f32", Text(name, 3 if name == MIX else 1))
            for name in (GREATEST, TOTAL, MIX)
        }
        if any(o.access == "rw" for o in self.kernel.operands):
            # Queries that other threads of the program read stand where results go.
            writer.line("tl.debug_barrier()")
        for store, tree in found.stores:
            body, name = linearise(tree)
            values = self._body(body)
            self._write(int(store.operand), store.index, values[name])
