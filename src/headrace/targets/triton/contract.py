"""Contractions and convolutions as Triton kernels: tiles, `tl.dot`, maps before and after.

A kernel that sums products of two factors over its reduction axes is a product of matrices
whatever its indices look like. The outer axes that only the left factor uses, flattened, are
its rows; those that only the right one uses its columns; what both use is a batch; the
reduction axes, flattened, are the depth. A convolution is the same with an index that mixes
columns and depth: its patches are never written down (implicit GEMM). A tile of each factor
is computed from whatever the phase's body says (loads, conversions, dequantisation), and the
maps after the sum run on the tile of sums.

fp32 factors are multiplied in IEEE fp32; factors that come from fp16 or bf16 go to the
tensor cores as they are and are summed in fp32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.base.dtypes import DType
from headrace.base.symbols import ZERO, Expr, ceildiv
from headrace.kernel.description import (
    Axis,
    Kernel,
    Load,
    Phase,
    ScalarOperation,
)
from headrace.kernel.lanes import scalar as scalars
from headrace.kernel.lanes.lower import Lowering
from headrace.kernel.lanes.machine import MachineType, Value, compute_type, raw_type
from headrace.kernel.lanes.scalar import Scalar, element_dtype
from headrace.targets.triton.naive import TritonSource
from headrace.targets.triton.products import (
    TENSOR_CORE_NAMES,
    Product,
    Tiles,
    as_product,
    choose_tiles,
    cone_of,
    flat_size,
    unconverted,
)
from headrace.targets.triton.source import (
    FIRST_WORKGROUP,
    TRITON_NAMES,
    Cell,
    SourceWriter,
    Text,
    literal,
    pointer_type,
)

_SHORT_INDICES = 1 << 30
"""Below this offsets are computed in 32 bits."""


class _TileWriter(SourceWriter):
    """A writer of values over tiles: bit 1 is the first dimension, bit 2 the second.

    Attributes:
        shape: of a whole tile now.
        edges: where a row or column (by bit) is inside; absent where all are.
    """

    def __init__(self, kernel: Kernel, index: MachineType) -> None:
        super().__init__([element_dtype(o.dtype) for o in kernel.operands], kernel.dims, index)
        self.edges: dict[int, str] = {}
        self._guards: list[Text] = []

    def constant(self, type: MachineType, value: bool | int | float) -> Value:
        """One value for the program: it spreads where it meets a tile."""
        text = literal(type, value)
        made = self._define(f"tl.full((), {text}, {TRITON_NAMES[type]})", block=0)
        number = int(value) if type == self.index_type else None
        return Value(self, type, Text(made.name, 0, number))

    def whole(self, value: Value) -> str:
        """The value over the whole tile."""
        text: Text = value.handle
        if text.block == 3:
            return text.name
        spread = f"tl.broadcast_to({text.name}, {self.shape})"
        return self._define(spread, block=3).name

    def _block_of(self, value: Value) -> str:
        return self.whole(value)

    def write(self, variable: Cell, value: Value) -> None:
        self._line(f"{variable.name} = {self.whole(value)}")

    def read(self, variable: Cell) -> Value:
        return Value(self, variable.type, self._define(variable.name, block=3))

    def guarded(self, mask: Value, body: Callable[[], None]) -> None:
        self._guards.append(mask.handle)
        body()
        self._guards.pop()

    def _place(
        self, binding: int, offset: Value, masks: Sequence[Text]
    ) -> tuple[str, int, str]:
        """Pointers, their bits and the mask of an access."""
        text: Text = offset.handle
        bits = text.block
        for mask in masks:
            bits |= mask.block
        place = f"p{binding} + {text.name}"
        if bits != text.block:
            place = f"p{binding} + {self.whole(offset)}"
            bits = 3
        names = [name for bit, name in sorted(self.edges.items()) if bits & bit]
        names += [mask.name for mask in masks]
        mask_text = " & ".join(names)
        if len(names) > 1 and bits == 3:
            mask_text = f"tl.broadcast_to({mask_text}, {self.shape})"
        return place, bits, mask_text

    def load(self, binding: int, offset: Value, mask: Value | None, otherwise: Value) -> Value:
        dtype = self.buffers[binding]
        masks = [*self._guards, *([mask.handle] if mask is not None else [])]
        place, bits, active = self._place(binding, offset, masks)
        loaded = f"tl.load({place}, mask={active}, other=0)" if active else f"tl.load({place})"
        if dtype.size_bytes < 4:
            loaded += ".to(tl.uint32)"
        value = Value(self, raw_type(dtype), self._define(loaded, block=bits))
        return value if mask is None else mask.select(value, otherwise)

    def load_narrow(self, binding: int, offset: Value, mask: Value | None, name: str) -> str:
        """A tile of 16-bit floats as they are: they go to the tensor cores untouched."""
        masks = [*self._guards, *([mask.handle] if mask is not None else [])]
        place, bits, active = self._place(binding, offset, masks)
        pointers = f"({place}).to(tl.pointer_type({name}), bitcast=True)"
        suffix = f", mask={active}, other=0.0" if active else ""
        text = self._define(f"tl.load({pointers}{suffix})", block=bits)
        return self.whole(Value(self, "f32", text))

    def store(self, binding: int, offset: Value, value: Value) -> None:
        dtype = self.buffers[binding]
        place = f"p{binding} + {self.whole(offset)}"
        stored = self.whole(value)
        if dtype.size_bytes < 4:
            stored += f".to(tl.uint{dtype.size_bytes * 8})"
        names = [name for _, name in sorted(self.edges.items())]
        names += [guard.name for guard in self._guards]
        suffix = ""
        if names:
            suffix = f", mask=tl.broadcast_to({' & '.join(names)}, {self.shape})"
        self._line(f"tl.store({place}, {stored}{suffix})")

    def native_decode(self, dtype: DType, bits: Value) -> Value | None:
        name = TENSOR_CORE_NAMES.get(dtype.name)
        if name is None:
            return None
        text: Text = bits.handle
        narrow = f"{text.name}.to(tl.uint16).to({name}, bitcast=True).to(tl.float32)"
        return Value(self, "f32", self._define(narrow, block=text.block))

    # -- the parts of a product ---------------------------------------------------------

    def line(self, text: str) -> None:
        self._line(text)

    def named(self, expression: str, block: int) -> Value:
        return Value(self, self.index_type, self._define(expression, block=block))

    def indent(self, by: int) -> None:
        self._depth += by

    @property
    def word(self) -> str:
        return TRITON_NAMES[self.index_type]


class _ContractLowering(Lowering):
    def __init__(self, kernel: Kernel, writer: _TileWriter, found: Product, tiles: Tiles):
        super().__init__(kernel, writer)
        self.writer = writer
        self.found = found
        self.tiles = tiles

    def emit(self) -> None:
        """The whole body."""
        writer, found, tiles = self.writer, self.found, self.tiles
        kernel = self.kernel
        first = kernel.phases[0]
        row_tiles = ceildiv(flat_size(found.rows), tiles.rows)
        column_tiles = ceildiv(flat_size(found.columns), tiles.columns)
        group = Value(writer, writer.index_type, writer.group)
        row, column, batch = self._split(group, row_tiles, column_tiles)
        self._bind(found.batch, batch)
        row_edge = self._side(found.rows, row, tiles.rows, 1)
        column_edge = self._side(found.columns, column, tiles.columns, 2)
        whole = f"({tiles.rows}, {tiles.columns})"
        writer.line(f"sums = tl.full({whole}, 0.0, tl.float32)")
        depth: Text = self.indices.value(flat_size(found.depth)).handle
        end = depth.name if depth.number is None else str(depth.number)
        writer.line(f"for depth in range(0, {end}, {tiles.depth}):")
        writer.indent(1)
        left = self._factor(first, found.left, row_edge, 1)
        right = self._factor(first, found.right, column_edge, 2)
        precision = "" if found.narrow else ', input_precision="ieee"'
        writer.line(f"sums = tl.dot({left}, {right}, sums{precision})")
        writer.indent(-1)
        writer.shape = whole
        writer.edges = {
            bit: edge for bit, edge in ((1, row_edge), (2, column_edge)) if edge is not None
        }
        for local in kernel.locals:
            kind = compute_type(element_dtype(local.dtype))
            self.cells[local.name] = (writer.variable(kind),)
        self._keep_sum(first)
        for phase in kernel.phases[1:]:
            self._phase(phase)

    def _split(self, group: Value, rows: Expr, columns: Expr) -> tuple[Value, Value, Value]:
        """Rows are fastest: neighbours in time read the same columns."""
        row_count, column_count = self.indices.value(rows), self.indices.value(columns)
        rest = group / row_count
        return group % row_count, rest % column_count, rest / column_count

    def _bind(self, axes: Sequence[Axis], linear: Value) -> None:
        sizes = [a.size for a in axes]
        for axis, value in zip(axes, self._coordinates(linear, sizes), strict=True):
            self._bind_axis(axis, value)

    def _side(self, axes: Sequence[Axis], tile: Value, extent: int, bit: int) -> str | None:
        """Binds the axes of a tile's rows or columns; where they are inside, if not all."""
        writer = self.writer
        turned = "[:, None]" if bit == 1 else "[None, :]"
        span = f"tl.arange(0, {extent}).to({writer.word}){turned}"
        line = writer.named(f"{tile.handle.name} * {extent} + {span}", bit)
        self._bind(axes, line)
        size = flat_size(axes)
        if size.is_constant and size.value % extent == 0:
            return None
        return line.lt(self.indices.value(size)).handle.name

    def _factor(self, phase: Phase, name: str, edge: str | None, bit: int) -> str:
        """A tile of a factor, as `tl.dot` takes it; its outer dimension is `bit`."""
        writer, tiles, found = self.writer, self.tiles, self.found
        outside_names, outside_ranges = dict(self.indices.names), dict(self.indices.ranges)
        along = 3 - bit
        turned = "[:, None]" if along == 1 else "[None, :]"
        span = f"tl.arange(0, {tiles.depth}){turned}"
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
        if found.narrow:
            tile = self._narrow(unconverted(values, name))
        else:
            tile = writer.whole(self._body(cone_of(values, name))[name].parts[0])
            if rest is not None:
                # What is computed from masked elements need not be 0.
                tile = f"tl.where({rest}, {tile}, 0.0)"
        self.indices.names, self.indices.ranges = outside_names, outside_ranges
        return tile

    def _narrow(self, operation: ScalarOperation) -> str:
        assert isinstance(operation, Load)
        operand = self.kernel.operands[operation.operand]
        mask = self._inside(operand, operation.index, operation.bounded)
        offset = self._elements(operand, operation.index)[0]
        name = TENSOR_CORE_NAMES[self.found.narrow]
        return self.writer.load_narrow(operation.operand, offset, mask, name)

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


def _index_type(kernel: Kernel, found: Product) -> MachineType:
    """32 bits where nothing can pass them."""
    sizes = [o.layout.size for o in kernel.operands]
    sizes += [flat_size(axes) for axes in (found.rows, found.columns, found.batch, found.depth)]
    short = all(s.is_constant and s.value < _SHORT_INDICES for s in sizes)
    return "i32" if short else "i64"


def generate(name: str, kernel: Kernel) -> TritonSource | None:
    """The kernel's Triton source; None where it is no product of matrices.

    Raises:
        HeadraceError HR2401: an operation that lanes lack.
    """
    found = as_product(kernel)
    if found is None:
        return None
    tiles = choose_tiles(found)
    writer = _TileWriter(kernel, _index_type(kernel, found))
    _ContractLowering(kernel, writer, found, tiles).emit()
    signature = [(f"p{i}", pointer_type(b)) for i, b in enumerate(writer.buffers)]
    signature += [(word, "i32") for word in FIRST_WORKGROUP]
    signature += [(f"dim{i}", "i32") for i in range(len(kernel.dims))]
    parameters = ", ".join(parameter for parameter, _ in signature)
    comments = [f"p{i}: {o.access} {o.name!a}" for i, o in enumerate(kernel.operands)]
    comments += [f"dim{i}: {dim!a}" for i, dim in enumerate(kernel.dims)]
    # Names are the user's: quoted, they cannot leave their comment.
    text = (
        "import triton\nimport triton.language as tl\n\n\n"
        f"@triton.jit\ndef {name}({parameters}):\n"
        + "".join(f"    # {comment}\n" for comment in comments)
        + writer.body()
    )
    programs = ceildiv(flat_size(found.rows), tiles.rows) * ceildiv(
        flat_size(found.columns), tiles.columns
    )
    return TritonSource(
        name,
        text,
        tuple(signature),
        programs * flat_size(found.batch),
        ZERO,
        "contract",
        tiles.warps,
        tiles.stages,
    )
