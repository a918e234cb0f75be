"""Factors of attention: tiles of queries, keys and values, as memory or a descriptor has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.base.symbols import as_expr, dim
from headrace.kernel.description import Axis, Kernel, Load, Operand
from headrace.kernel.lanes.machine import Value
from headrace.kernel.products import NARROW_FLOATS
from headrace.kernel.softmax_rows import KEY, SoftmaxRows
from headrace.kernel.target import TensorMap
from headrace.targets.triton.descriptors import Rows, rows_along
from headrace.targets.triton.key_runs import Run
from headrace.targets.triton.source import (
    OVERLAPS,
    TENSOR_CORE_NAMES,
    TENSOR_MAP_NAMES,
    Text,
)
from headrace.targets.triton.tiles import TileLowering, TileWriter

START = "%start"
"""The first key of a tile, in index expressions."""


@dataclass(frozen=True)
class AttentionTiles:
    """Rows and keys of a tile, warps and stages of a program."""

    rows: int
    keys: int
    warps: int
    stages: int
    apart: bool = True
    """Whether keys that all rows see have a loop of their own."""
    described: bool = False
    """Whether keys and values come by descriptors where they may."""
    together: bool = False
    """Whether the same tile of rows of all heads comes before the next one."""


class FactorLowering(TileLowering):
    """Loads tiles; `tensor_maps` are the descriptors' parameters once the body is written."""

    def __init__(
        self, kernel: Kernel, writer: TileWriter, found: SoftmaxRows, tiles: AttentionTiles
    ) -> None:
        super().__init__(kernel, writer)
        self.found = found
        self.tiles = tiles
        self.described: dict[Load, tuple[str, Rows]] = {}
        self.tensor_maps: list[tuple[str, str, TensorMap]] = []

    def line(
        self, axis: Axis, extent: int, bit: int, start: str = "", has_edge: bool = True
    ) -> str | None:
        """Binds an axis along a dimension of a tile; where it is inside, if not everywhere."""
        writer = self.writer
        turned = "[:, None]" if bit == 1 else "[None, :]"
        span = f"tl.arange(0, {extent}).to({writer.word}){turned}"
        line = writer.named(f"{start} + {span}" if start else span, bit)
        self._bind_axis(axis, line)
        if not has_edge or (axis.size.is_constant and axis.size.value % extent == 0):
            return None
        return line.lt(self.indices.value(axis.size)).handle.name

    def shape(self, shape: Sequence[int], first: str | None, second: str | None) -> None:
        self.writer.shape = f"({shape[0]}, {shape[1]})"
        self.writer.edges = {b: e for b, e in ((1, first), (2, second)) if e is not None}

    def factor(
        self, load: Load, shape: tuple[int, int], first: str | None, second: str | None,
        narrow: bool, along: tuple[str, str] | None = None, run: Run | None = None,
    ) -> str:  # fmt: skip
        """A tile of a factor; 0 outside. `along`: the axes of a tile of keys."""
        self.shape(shape, first, second)
        operand = self.kernel.operands[load.operand]
        if narrow:
            name = TENSOR_CORE_NAMES[operand.dtype.name]
            described, rows = self.described.get(load, ("", None))
            if rows is not None and run is not None and (rows.ends or not run.has_edge):
                turned = ".T" if along and along[1] == KEY else ""
                row = self.indices.value(rows.row + dim(START)).handle.name
                column = self.indices.value(rows.column).handle.name
                place = f"[({row}).to(tl.int32), ({column}).to(tl.int32)]"
                made = f"{described}.load({place}){turned}"
                return self.writer.define(made, block=3).name
            made = self._steps(operand, load, shape, along) if along else None
            if made is not None:
                return self.writer.load_factor_at(load.operand, *made, name)
            offset = self._elements(operand, load.index)[0]
            return self.writer.load_factor(load.operand, offset, None, name)
        tile = self.writer.whole(self._load(load).value)
        edges = " & ".join(e for e in (first, second) if e is not None)
        return f"tl.where({edges}, {tile}, 0.0)" if edges else tile

    def describe(self, name: str, load: Load, extent: int, width: Axis) -> None:
        """Names the descriptor of keys or values, which Triton's interpreter makes itself."""
        kind = self.kernel.operands[load.operand].dtype.name
        rows = rows_along(self.kernel, load, Axis(KEY, self.found.keys), width.name)
        if rows is None or kind not in NARROW_FLOATS or width.size != as_expr(extent):
            return
        keys, matrix = self.tiles.keys, rows.matrix
        size: Text = self.indices.value(matrix.rows).handle
        place = f"p{load.operand}.to(tl.pointer_type({TENSOR_CORE_NAMES[kind]}), bitcast=True)"
        self.writer.line(f"if {OVERLAPS}:")
        self.writer.line(f"    {name} = {name}_map")
        self.writer.line("else:")
        self.writer.line(
            f"    {name} = tl.make_tensor_descriptor({place}, [{size.name}.to(tl.int32), "
            f"{matrix.stride}], [{matrix.stride}, 1], [{keys}, {extent}])"
        )
        self.described[load] = name, rows
        shape = f"tensordesc<{TENSOR_MAP_NAMES[kind]}[{keys}, {extent}]>"
        self.tensor_maps.append((f"{name}_map", shape, matrix.tensor_map(keys, extent)))

    def _steps(
        self, operand: Operand, load: Load, shape: tuple[int, int], along: tuple[str, str]
    ) -> tuple[Value, str] | None:
        """Where a tile of keys starts, and its elements from there on, in 32 bits."""
        offset = operand.layout.element_offset(load.index)
        if operand.layout.codes is not None or not offset.is_linear_in(along):
            return None
        steps = [offset.coefficient(name) for name in along]
        if not all(s.is_constant for s in steps):
            return None
        numbers = [s.value for s in steps]
        if sum(abs(n) * size for n, size in zip(numbers, shape, strict=True)) >= 1 << 31:
            return None
        start = offset.substitute(dict.fromkeys(along, 0))
        start = start + steps[along.index(KEY)] * dim(START)
        lines = [
            f"tl.arange(0, {size})[{turned}] * {number}"
            for size, turned, number in zip(shape, (":, None", "None, :"), numbers, strict=True)
        ]
        return self.indices.value(start), " + ".join(lines)
