"""Contractions and convolutions as Triton kernels: tiles, `tl.dot`, maps before and after.

A kernel that sums products of two factors over its reduction axes is a product of matrices
whatever its indices look like. The outer axes that only the left factor uses, flattened, are
its rows; those that only the right one uses its columns; what both use is a batch; the
reduction axes, flattened, are the depth. A convolution is the same with an index that mixes
columns and depth: its patches are never written down (implicit GEMM). A tile of each factor
is computed from whatever the phase's body says (loads, conversions, dequantisation), and the
maps after the sum run on the tile of sums.

fp32 factors are multiplied as `Kernel.precision` says; factors that come from fp16 or bf16 go to the
tensor cores as they are and are summed in fp32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headrace.base.symbols import ONE, Expr, as_expr, ceildiv
from headrace.kernel.description import (
    Compute,
    Kernel,
    Load,
    Operand,
    Phase,
    ScalarOperation,
)
from headrace.kernel.lanes import scalar as scalars
from headrace.kernel.lanes.machine import Value, compute_type
from headrace.kernel.lanes.scalar import Scalar, element_dtype
from headrace.kernel.products import (
    NARROW_FLOATS,
    Product,
    as_product,
    cone_of,
    flat_size,
    slice_rule,
    unconverted,
)
from headrace.kernel.target import SliceRule, TensorMap
from headrace.targets.triton.descriptors import Matrix, matrix
from headrace.targets.triton.erf import erf
from headrace.targets.triton.naive import TritonSource
from headrace.targets.triton.packed_tiles import PackedTile, packed_factor
from headrace.targets.triton.schedule import Tiles, choose_tiles, factor_bytes, packed_tiles
from headrace.targets.triton.source import (
    OVERLAPS,
    TENSOR_CORE_NAMES,
    TENSOR_MAP_NAMES,
    WAIT_FOR_CLUSTER,
    Text,
)
from headrace.targets.triton.tiles import TileLowering, TileWriter, index_type
from headrace.targets.triton.tuned import PLAIN, How, tuned_tiles

_GROUP = 8
"""Rows of tiles that a wave of programs goes through together."""

_MOST_PROGRAMS_ALONG_Y = 65535
"""CUDA's limit; along x there is none to speak of."""


class _ContractLowering(TileLowering):
    def __init__(
        self,
        kernel: Kernel,
        writer: TileWriter,
        found: Product,
        tiles: Tiles,
        matrices: Mapping[str, Matrix],
    ) -> None:
        super().__init__(kernel, writer)
        self.found = found
        self.tiles = tiles
        self.matrices = matrices
        self.row_tiles = ceildiv(flat_size(found.rows), tiles.rows)
        self.smooth = False
        self._start: Value = self.indices.constant(0)

    def emit(self) -> None:
        """The whole body: one tile, or a loop over tiles."""
        writer, row_tiles, tiles = self.writer, self.row_tiles, self.tiles
        for name, given in self.matrices.items():
            self._describe(name, given)
        if not tiles.programs:
            self._tile(*self._place(row_tiles))
            return
        count = self.indices.value(row_tiles)
        width = writer.named(f"tl.num_programs(1).to({writer.word})", 0)
        total = count * width
        number = self._number(count)
        number = number.lt(tiles.programs).select(number, total)
        # The loops become one: a tile's factors are on their way while the tile before is
        # stored.
        ends = f"{number.handle.name}, {total.handle.name}, {tiles.programs}"
        writer.line(f"for tile in tl.range({ends}, flatten=True):")
        writer.indent(1)
        tile = writer.named(f"tl.full((), tile, {writer.word})", 0)
        self._tile(*self._in_groups(tile, count, width))
        writer.indent(-1)

    def _tile(self, row: Value, column: Value, batch: Value) -> None:
        """One tile of results."""
        writer, found, tiles = self.writer, self.found, self.tiles
        kernel = self.kernel
        first = kernel.phases[0]
        self._bind(found.batch, batch)
        row_edge = self._side(found.rows, row, tiles.rows, 1)
        column_edge = self._side(found.columns, column, tiles.columns, 2)
        whole = f"({tiles.rows}, {tiles.columns})"
        writer.line(f"sums = tl.full({whole}, 0.0, tl.float32)")
        begin, end = self._depths()
        left_packed = self._packed(found.left, row_edge, 1)
        right_packed = self._packed(found.right, column_edge, 2)
        if (left_packed or right_packed) and not tiles.programs:
            # Lists of escapes stand there before the launches that this one waits for end.
            writer.wait_for_others()
        writer.line(f"for depth in range({begin}, {end}, {tiles.depth}):")
        writer.indent(1)
        self._taps()
        if found.left in self.matrices:
            left = self._described(found.left, row, tiles.rows)
        elif left_packed is not None:
            left = left_packed.tile()
        else:
            left = self._factor(first, found.left, row_edge, 1)
        if found.right in self.matrices:
            right = self._described(found.right, column, tiles.columns) + ".T"
        elif right_packed is not None:
            right = right_packed.tile() + ".T"
        else:
            right = self._factor(first, found.right, column_edge, 2)
        precision = "" if found.narrow else f', input_precision="{kernel.precision}"'
        writer.line(f"sums = tl.dot({left}, {right}, sums{precision})")
        writer.indent(-1)
        writer.shape = whole
        writer.edges = {
            bit: edge for bit, edge in ((1, row_edge), (2, column_edge)) if edge is not None
        }
        if tiles.parts > 1:
            self._add_parts(row, column)
        for local in kernel.locals:
            kind = compute_type(element_dtype(local.dtype))
            self.cells[local.name] = (writer.variable(kind),)
        self._keep_sum(first)
        self.smooth = is_smooth(kernel)
        for phase in kernel.phases[1:]:
            self._phase(phase)
        if tiles.parts > 1:
            writer.indent(-1)

    def _depths(self) -> tuple[str, str]:
        """Where the depth of this program begins and ends."""
        size, tiles, writer = flat_size(self.found.depth), self.tiles, self.writer
        if tiles.parts == 1:
            depth: Text = self.indices.value(size).handle
            return "0", depth.name if depth.number is None else str(depth.number)
        part = writer.program(2).handle.name
        rounds = self.indices.value(ceildiv(size, tiles.depth)).handle.name
        begin, end = (
            writer.named(f"({part} + {more}) * {rounds} // {tiles.parts} * {tiles.depth}", 0)
            for more in range(2)
        )
        return begin.handle.name, end.handle.name

    def _add_parts(self, row: Value, column: Value) -> None:
        """The sums of all parts in the last of them, which does what follows.

        What a program writes others of its cluster see behind the barrier; they read past
        the caches of their own multiprocessors.
        """
        writer, tiles = self.writer, self.tiles
        last, area = tiles.parts - 1, tiles.rows * tiles.columns
        tile = column * self.indices.value(self.row_tiles) + row
        own = f"tl.arange(0, {tiles.rows})[:, None] * {tiles.columns}"
        own += f" + tl.arange(0, {tiles.columns})[None, :]"
        place = writer.define(
            "scratch.to(tl.pointer_type(tl.float32), bitcast=True)"
            f" + {tile.handle.name} * {last * area} + ({own})",
            block=3,
        )
        part = writer.program(2).handle.name
        writer.line(f"if {part} < {last}:")
        writer.line(f"    tl.store({place.name} + {part} * {area}, sums)")
        writer.line(WAIT_FOR_CLUSTER)
        writer.line(f"if {part} == {last}:")
        writer.indent(1)
        for number in range(last):
            shift = f"{place.name} + {number * area}"
            writer.line(f'sums += tl.load({shift}, cache_modifier=".cg")')

    def _place(self, row_tiles: Expr) -> tuple[Value, Value, Value]:
        """Which tile a program computes; neighbours in time share rows and columns.

        Rows run fastest, in groups where there are many: a wave of programs then reads few
        of both. A launch that is cut along its columns is grouped by those it has.
        """
        writer = self.writer
        along, count = writer.program(0), self.indices.value(row_tiles)
        if any(a.size != ONE for a in self.found.batch) or (
            row_tiles.is_constant and row_tiles.value <= _GROUP
        ):
            return along % count, writer.program(1), along / count
        width = writer.named(f"tl.num_programs(1).to({writer.word})", 0)
        return self._in_groups(self._number(count), count, width)

    def _number(self, count: Value) -> Value:
        """Which program of a launch this is; `count` run along x."""
        writer = self.writer
        first = writer.named(f"tl.program_id(1).to({writer.word})", 0)
        return first * count + writer.program(0)

    def _in_groups(
        self, number: Value, count: Value, width: Value
    ) -> tuple[Value, Value, Value]:
        """Where a tile stands, of `count` rows of tiles and the `width` columns of a launch."""
        start = self.writer.named(f"first_y.to({self.writer.word})", 0)
        area = width * _GROUP
        top = number / area * _GROUP
        rest, left = number % area, count - top
        rows = left.lt(_GROUP).select(left, _GROUP)
        return top + rest % rows, rest / rows + start, self.indices.constant(0)

    def _describe(self, name: str, given: Matrix) -> None:
        """Names the descriptor of a factor, `left` or `right`. Triton's interpreter, which has
        no driver to make it, makes it."""
        writer, tiles = self.writer, self.tiles
        side, extent = ("left", tiles.rows) if name == self.found.left else (
            "right", tiles.columns
        )  # fmt: skip
        kind = TENSOR_CORE_NAMES[self.found.narrow]
        sizes = [self.indices.value(size).handle for size in (given.rows, given.depth)]
        shape = ", ".join(
            f"{text.name}.to(tl.int32)" if text.number is None else str(text.number)
            for text in sizes
        )
        place = f"(p{given.operand} + {given.offset}).to(tl.pointer_type({kind}), bitcast=True)"
        writer.line(f"if {OVERLAPS}:")
        writer.line(f"    {side} = {side}_map")
        writer.line("else:")
        writer.line(
            f"    {side} = tl.make_tensor_descriptor({place}, [{shape}], [{given.stride}, 1], "
            f"[{extent}, {tiles.depth}])"
        )

    def _described(self, name: str, tile: Value, extent: int) -> str:
        """The tile of a factor that comes by its descriptor; its depth runs along it."""
        side = "left" if name == self.found.left else "right"
        first = f"({tile.handle.name} * {extent}).to(tl.int32)"
        return self.writer.define(f"{side}.load([{first}, depth])", block=3).name

    def _runs_inside(self) -> bool:
        """Whether a run of depth lies within the last depth axis: the others are then one
        for the program, as the taps of a convolution over many channels."""
        *others, last = self.found.depth
        size = last.size
        return bool(others) and size.is_constant and size.value % self.tiles.depth == 0

    def _taps(self) -> None:
        """Binds the depth axes that a run of depth does not move along."""
        if not self._runs_inside():
            return
        *others, last = self.found.depth
        start = self.writer.named(f"tl.full((), depth, {self.writer.word})", 0)
        tap = start / last.size.value
        self._bind(others, tap)
        # Not a remainder: of one of scalars Triton 3.6 knows no divisor, and loads apart.
        self._start = start - tap * last.size.value

    def _packed(self, name: str, edge: str | None, bit: int) -> PackedTile | None:
        """A factor that is unpacked words at a time, if it can be."""
        writer, tiles, found = self.writer, self.tiles, self.found
        load = packed_factor(self.kernel, found, name, tiles.depth)
        if load is None:
            return None
        outside_names, outside_ranges = dict(self.indices.names), dict(self.indices.ranges)
        self._bind(found.depth, self.indices.constant(0))
        operand = self.kernel.operands[load.operand]
        first: Text = self._elements(operand, load.index)[0].handle
        self.indices.names, self.indices.ranges = outside_names, outside_ranges
        extent = tiles.rows if bit == 1 else tiles.columns
        return PackedTile(writer, load.operand, operand, first, bit, edge, extent, tiles.depth)

    def _factor(self, phase: Phase, name: str, edge: str | None, bit: int) -> str:
        """A tile of a factor, as `tl.dot` takes it; its outer dimension is `bit`."""
        writer, tiles, found = self.writer, self.tiles, self.found
        outside_names, outside_ranges = dict(self.indices.names), dict(self.indices.ranges)
        along = 3 - bit
        turned = "[:, None]" if along == 1 else "[None, :]"
        span = f"tl.arange(0, {tiles.depth}){turned}"
        if self._runs_inside():
            line = writer.named(f"{self._start.handle.name} + {span}.to({writer.word})", along)
            self._bind_axis(found.depth[-1], line)
        else:
            line = writer.named(f"depth + {span}.to({writer.word})", along)
            self._bind(found.depth, line)
        size = flat_size(found.depth)
        rest = None
        if not (size.is_constant and size.value % tiles.depth == 0):
            rest = line.lt(self.indices.value(size)).handle.name
        extent = tiles.rows if bit == 1 else tiles.columns
        writer.shape = (
            f"({extent}, {tiles.depth})" if bit == 1 else f"({tiles.depth}, {extent})"
        )
        writer.edges = {b: e for b, e in ((bit, edge), (along, rest)) if e is not None}
        values = {o.result: o for o in phase.body}
        if found.loaded:
            tile = self._loaded(unconverted(values, name), rest, along)
        else:
            tile = writer.whole(self._body(cone_of(values, name))[name].parts[0])
            if rest is not None:
                # What is computed from masked elements need not be 0.
                tile = f"tl.where({rest}, {tile}, 0.0)"
        self.indices.names, self.indices.ranges = outside_names, outside_ranges
        return tile

    def _loaded(self, operation: ScalarOperation, rest: str | None, along: int) -> str:
        """A tile as it is in memory: Triton copies it there by itself, ahead of its use."""
        assert isinstance(operation, Load)
        operand = self.kernel.operands[operation.operand]
        mask = self._inside(operand, operation.index, operation.bounded)
        offset = self._elements(operand, operation.index)[0]
        name = TENSOR_CORE_NAMES.get(self.found.loaded, "tl.float32")
        tile = self.writer.load_factor(operation.operand, offset, mask, name)
        if rest is None or offset.handle.block & along:
            return tile
        # The same at every depth, and so not masked behind it (an outer product's one term).
        return f"tl.where({rest}, {tile}, 0.0)"

    def _compute(
        self, operation: Compute, values: Mapping[str, Scalar], keep_wide: bool
    ) -> Scalar:
        """Behind the sum 16-bit floats keep the bits of f32 until they are stored: rounding each
        took GELU of 4096 x 3072 halves as long as a fifth of the product."""
        if self.smooth and operation.dtype.name in NARROW_FLOATS:
            operand = self._value(values, operation.operands[0])
            if operation.operation == "erf" and operand.value.type == "f32":
                return Scalar(operation.dtype, (erf(self.writer, operand.value),))
            if operation.operation != "convert":
                keep_wide = True
            elif operand.dtype.name in ("f32", *NARROW_FLOATS):
                return Scalar(operation.dtype, operand.parts)
        return super()._compute(operation, values, keep_wide)

    def _keep_sum(self, phase: Phase) -> None:
        """The sums as the local that the maps after read."""
        reduction = phase.reduction
        assert reduction is not None
        dtype = self.locals[reduction.results[0]].dtype
        sums = Value(self.writer, "f32", Text("sums", 3))
        initial = reduction.initial[0]
        if str(initial) not in ("0", "0.0", "-0.0"):
            sums = sums + scalars.literal(self.machine, dtype, initial).parts[0]
        if scalars.is_narrow_float(dtype):
            sums = scalars.formats.rounded(dtype, sums)
        self._store_local(reduction.results[0], Scalar(dtype, (sums,)), ())


_JUMPS = (
    "compare", "floor", "ceil", "round_nearest_afz", "round_nearest_even", "sign", "is_finite",
    "bitcast_convert", "remainder", "select",
)  # fmt: skip


def is_smooth(kernel: Kernel) -> bool:
    """Whether what follows the sum computes floats only, and jumps nowhere: there a last bit more
    or less stays a last bit."""
    floats = ("f32", *NARROW_FLOATS)
    return all(
        operation.operation not in _JUMPS and operation.dtype.name in floats
        for phase in kernel.phases[1:]
        for operation in phase.body
        if isinstance(operation, Compute)
    )


def generate(
    name: str,
    kernel: Kernel,
    unknown_rows: int = 64,
    kept: Sequence[Operand] = (),
    how: How = PLAIN,
    tiles: Tiles | None = None,
) -> TritonSource | None:
    """The kernel's Triton source; None where it is no product of matrices.

    Args:
        unknown_rows: what a number of rows known only at run time is taken for.
        kept: the last operands, which stand in scratch.
        how: what decides schedules beside the kernel.
        tiles: instead of those that the sizes give.

    Raises:
        HeadraceError HR2401: an operation that lanes lack; HR0115: the table has a schedule
            that this product cannot have.
    """
    found = as_product(kernel)
    if found is None:
        return None
    matrices: dict[str, Matrix] = {}
    if how.descriptors and not kept:
        for factor, axes in ((found.left, found.rows), (found.right, found.columns)):
            given = matrix(kernel, found, factor, axes)
            if given is not None:
                matrices[factor] = given
    tiles = tiles or tuned_tiles(kernel, found, how.table)
    if tiles is None:
        if any(o.layout.codes is not None for o in kernel.operands):
            tiles = packed_tiles(found, unknown_rows, kernel.precision)
        else:
            tiles = choose_tiles(found, unknown_rows, kernel.precision, len(matrices) == 2)
        if not how.descriptors:
            # Older architectures have less shared memory than a second tile under way needs.
            tiles = replace(tiles, programs=0, descriptors=False, parts=1)
    if not how.descriptors:
        tiles = tiles.within(how.shared_bytes, factor_bytes(found))
    if kept or not how.descriptors:
        tiles = replace(tiles, parts=1)
    if not tiles.descriptors:
        matrices = {}
    column_tiles = ceildiv(flat_size(found.columns), tiles.columns)
    if column_tiles.is_constant and column_tiles.value > _MOST_PROGRAMS_ALONG_Y:
        return None
    writer = TileWriter(kernel, index_type(kernel, (found.batch, found.depth)), kept)
    row_tiles = ceildiv(flat_size(found.rows), tiles.rows) * flat_size(found.batch)
    workgroups = (row_tiles, column_tiles, as_expr(tiles.parts))
    area = tiles.rows * tiles.columns * (tiles.parts - 1)
    if area:
        writer.keep(row_tiles * column_tiles * area * 4)
    _ContractLowering(kernel, writer, found, tiles, matrices).emit()
    return writer.source(
        name,
        kernel,
        workgroups=workgroups,
        family="contract",
        warps=tiles.warps,
        stages=tiles.stages,
        slice=_slice_rule(kernel, found, tiles),
        tensor_maps=[
            _tensor_map(found, factor, given, tiles) for factor, given in matrices.items()
        ],
        cluster=tiles.parts,
    )


def _tensor_map(
    found: Product, factor: str, given: Matrix, tiles: Tiles
) -> tuple[str, str, TensorMap]:
    """The parameter that describes a factor, its type and what it is."""
    side, extent = ("left", tiles.rows) if factor == found.left else ("right", tiles.columns)
    kind = TENSOR_MAP_NAMES[found.narrow]
    return (
        f"{side}_map",
        f"tensordesc<{kind}[{extent}, {tiles.depth}]>",
        given.tensor_map(extent, tiles.depth),
    )


def _slice_rule(kernel: Kernel, found: Product, tiles: Tiles) -> SliceRule | None:
    """Columns of tiles are cut where each reads its own run of a weight."""
    values = {o.result: o for o in kernel.phases[0].body}
    load = unconverted(values, found.right)
    if not isinstance(load, Load) or any(a.size != ONE for a in found.batch):
        return None
    return slice_rule(kernel, load, found.columns, tiles.columns, 1)
