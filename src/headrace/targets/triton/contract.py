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

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from headrace.base.dtypes import DType
from headrace.base.symbols import ZERO, Expr, ceildiv, product
from headrace.kernel.classify import contraction
from headrace.kernel.description import (
    Axis,
    Compute,
    IndexValue,
    Kernel,
    Load,
    LoadLocal,
    Phase,
    ScalarOperation,
)
from headrace.kernel.lanes import scalar as scalars
from headrace.kernel.lanes.lower import Lowering
from headrace.kernel.lanes.machine import MachineType, Value, compute_type, raw_type
from headrace.kernel.lanes.scalar import Scalar, element_dtype
from headrace.targets.triton.naive import TritonSource
from headrace.targets.triton.source import (
    FIRST_WORKGROUP,
    TRITON_NAMES,
    Cell,
    SourceWriter,
    Text,
    literal,
    pointer_type,
)

_LEAST_PROGRAMS = 264
"""Two for each multiprocessor of the largest GPUs; smaller tiles are chosen until then."""

_UNKNOWN_SIZE = 64
"""What a size that is only known at run time is taken for."""

_SHORT_INDICES = 1 << 30
"""Below this offsets are computed in 32 bits."""

_TENSOR_CORE_NAMES = {"f16": "tl.float16", "bf16": "tl.bfloat16"}


@dataclass(frozen=True)
class Tiles:
    """The schedule: rows, columns and depth of a tile, warps and stages of a program."""

    rows: int
    columns: int
    depth: int
    warps: int = 4
    stages: int = 3


@dataclass(frozen=True)
class Product:
    """A kernel seen as a product of matrices.

    Attributes:
        left, right: names in the body of the two factors.
        rows, columns, batch, depth: axes; the first three are the outer ones.
        narrow: the type both factors come from, where tensor cores take it.
    """

    left: str
    right: str
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    batch: tuple[Axis, ...]
    depth: tuple[Axis, ...]
    narrow: str


# -- what can be one ------------------------------------------------------------------


def as_product(kernel: Kernel) -> Product | None:
    """The kernel as a product of matrices, or None where it is none that we tile."""
    if not kernel.phases or not _plain(kernel):
        return None
    first, *rest = kernel.phases
    factors = contraction(first)
    if factors is None or any(p.reduction is not None for p in rest):
        return None
    values = {o.result: o for o in first.body}
    cones = [_cone(values, f) for f in factors]
    if any(isinstance(o, LoadLocal) for cone in cones for o in cone):
        return None
    names = [_index_names(cone) for cone in cones]
    outer = [a.name for a in kernel.outer]
    if outer:
        # Columns are what lies side by side in the result.
        used = [a for a in reversed(outer) if (a in names[0]) != (a in names[1])]
        if used and used[0] in names[0]:
            factors, names, cones = factors[::-1], names[::-1], cones[::-1]
    left, right = names
    rows = tuple(a for a in kernel.outer if a.name in left and a.name not in right)
    columns = tuple(a for a in kernel.outer if a.name in right and a.name not in left)
    batch = tuple(a for a in kernel.outer if (a.name in left) == (a.name in right))
    sources = [_source_dtype(values, f, kernel) for f in factors]
    narrow = sources[0] if sources[0] == sources[1] else ""
    return Product(
        factors[0],
        factors[1],
        rows,
        columns,
        batch,
        first.reduction_axes,
        narrow if narrow in _TENSOR_CORE_NAMES else "",
    )


def _plain(kernel: Kernel) -> bool:
    """Scalars summed in fp32, then maps that write what nobody of the kernel reads after."""
    first = kernel.phases[0]
    if first.reduction is None or first.parallel:
        return False
    (result, *more), locals_ = first.reduction.results, {x.name: x for x in kernel.locals}
    if more or any(local.shape for local in kernel.locals):
        return False
    dtype = locals_[result].dtype
    if dtype.kind != "float" or compute_type(dtype) != "f32":
        return False
    written = {
        s.operand for p in kernel.phases for s in p.stores if not isinstance(s.operand, str)
    }
    for number, phase in enumerate(kernel.phases):
        if phase.parallel or phase.serial or (number and phase.reduction_axes):
            return False
        for operation in phase.body:
            if isinstance(operation, Load) and operation.operand in written:
                # The sum must not read what other tiles write; nor a map another map's
                # elements. In place, a map reads the element that it then writes.
                in_place = kernel.operands[operation.operand].access == "rw" and any(
                    s.operand == operation.operand and s.index == operation.index
                    for s in phase.stores
                )
                if not number or not in_place:
                    return False
    return all(
        o.access == "ro" or (not o.layout.has_halo and o.dtype.kind != "complex")
        for o in kernel.operands
    )


def _cone(values: dict[str, ScalarOperation], name: str) -> list[ScalarOperation]:
    """The operations a value hangs on, in order, itself last."""
    needed: set[str] = set()
    todo = [name]
    while todo:
        current = todo.pop()
        if current in needed or current not in values:
            continue
        needed.add(current)
        operation = values[current]
        if isinstance(operation, Compute):
            todo.extend(operation.operands)
        todo.extend(_expression_names([operation]) & values.keys())
    return [o for o in values.values() if o.result in needed]


def _expression_names(operations: Iterable[ScalarOperation]) -> set[str]:
    found: set[str] = set()
    for operation in operations:
        if isinstance(operation, (Load, LoadLocal)):
            for expr in operation.index:
                found |= expr.names
        elif isinstance(operation, IndexValue):
            found |= operation.value.names
    return found


def _index_names(cone: Sequence[ScalarOperation]) -> set[str]:
    """Axes that a factor uses."""
    return _expression_names(cone)


def _unconverted(values: dict[str, ScalarOperation], name: str) -> ScalarOperation:
    """What a value is before conversions."""
    operation = values[name]
    while isinstance(operation, Compute) and operation.operation == "convert":
        operation = values[operation.operands[0]]
    return operation


def _source_dtype(values: dict[str, ScalarOperation], name: str, kernel: Kernel) -> str:
    """The element type of the load that a factor is, conversions aside; empty for others.

    A conversion on the way that loses bits (through a narrower type) counts as another.
    """
    operation = values[name]
    dtypes: list[DType] = []
    while isinstance(operation, Compute) and operation.operation == "convert":
        dtypes.append(operation.dtype)
        operation = values[operation.operands[0]]
    if not isinstance(operation, Load) or operation.otherwise not in (None, 0, 0.0):
        return ""
    source = kernel.operands[operation.operand].dtype
    wide = all(d == source or d.name in ("f32", "f64") for d in dtypes)
    return source.name if wide else ""


# -- schedule -------------------------------------------------------------------------


def _size(axes: Sequence[Axis]) -> Expr:
    return product(a.size for a in axes)


def _known(size: Expr) -> int:
    return size.value if size.is_constant else _UNKNOWN_SIZE


def _power(value: int, least: int, most: int) -> int:
    """The least power of two that is not below `value`, within limits."""
    found = least
    while found < min(value, most):
        found *= 2
    return found


def choose_tiles(found: Product) -> Tiles:
    """Tiles from sizes alone: the same at every budget.

    Measured on an H200 (docs/measured/h200.md): down to 16 x 16 pays where few programs are
    left; more depth, stages or warps than these do not.
    """
    rows, columns = _known(_size(found.rows)), _known(_size(found.columns))
    batch, depth = _known(_size(found.batch)), _known(_size(found.depth))
    most = 128 if found.narrow else 64
    high, wide = _power(rows, 16, most), _power(columns, 16, most)

    def programs() -> int:
        return -(-rows // high) * -(-columns // wide) * batch

    while programs() < _LEAST_PROGRAMS and high * wide > 16 * 16:
        if high >= wide:
            high //= 2
        else:
            wide //= 2
    deep = _power(depth, 16, 64 if found.narrow else 32)
    return Tiles(high, wide, deep, warps=8 if high * wide >= 128 * 128 else 4)


# -- emission -------------------------------------------------------------------------


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
        name = _TENSOR_CORE_NAMES.get(dtype.name)
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
        row_tiles = ceildiv(_size(found.rows), tiles.rows)
        column_tiles = ceildiv(_size(found.columns), tiles.columns)
        group = Value(writer, writer.index_type, writer.group)
        row, column, batch = self._split(group, row_tiles, column_tiles)
        self._bind(found.batch, batch)
        row_edge = self._side(found.rows, row, tiles.rows, 1)
        column_edge = self._side(found.columns, column, tiles.columns, 2)
        whole = f"({tiles.rows}, {tiles.columns})"
        writer.line(f"sums = tl.full({whole}, 0.0, tl.float32)")
        depth: Text = self.indices.value(_size(found.depth)).handle
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
        size = _size(axes)
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
        size = _size(found.depth)
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
            tile = self._narrow(_unconverted(values, name))
        else:
            tile = writer.whole(self._body(_cone(values, name))[name].parts[0])
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
        name = _TENSOR_CORE_NAMES[self.found.narrow]
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
    sizes += [_size(axes) for axes in (found.rows, found.columns, found.batch, found.depth)]
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
    programs = ceildiv(_size(found.rows), tiles.rows) * ceildiv(
        _size(found.columns), tiles.columns
    )
    return TritonSource(
        name,
        text,
        tuple(signature),
        programs * _size(found.batch),
        ZERO,
        "contract",
        tiles.warps,
        tiles.stages,
    )
