"""What generators of tiles share: a writer of values over two-dimensional tiles.

A tile has rows along its first dimension and lanes or columns along its second. A value
that is the same along a dimension has one entry there and spreads where it must.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.base.symbols import ZERO, Expr
from headrace.kernel.description import Axis, Kernel, Operand, ScalarOperation
from headrace.kernel.lanes.indices import Indices
from headrace.kernel.lanes.lower import Lowering
from headrace.kernel.lanes.machine import MachineType, Value
from headrace.kernel.lanes.scalar import element_dtype
from headrace.kernel.products import flat_size
from headrace.kernel.target import SliceRule, TensorMap
from headrace.targets.triton.naive import TritonSource
from headrace.targets.triton.source import (
    FIRST_WORKGROUP,
    IMPORTS,
    TRITON_NAMES,
    Cell,
    SourceWriter,
    Text,
    literal,
    packed_operands,
    pointee_type,
)

_SHORT_INDICES = 1 << 30
"""Below this offsets are computed in 32 bits."""


class TileWriter(SourceWriter):
    """A writer of values over tiles: bit 1 is the first dimension, bit 2 the second.

    The last operands, `kept`, are no bindings: they stand in scratch.

    Attributes:
        shape: of a whole tile now.
        edges: where a row or column (by bit) is inside; absent where all are.
        functions: what the kernel calls, as text.
        given: elements of operands that a generator has read itself.
        beside_packed: the other loads are spread over the whole tile: beside bytes a vector
            would have a layout of its own, and go through shared memory.
    """

    def __init__(
        self, kernel: Kernel, index: MachineType, kept: Sequence[Operand] = ()
    ) -> None:
        super().__init__([element_dtype(o.dtype) for o in kernel.operands], kernel.dims, index)
        self.codes = packed_operands(kernel)
        self._bound = len(kernel.operands) - len(kept)
        self._scratch_bytes = self._place_in_scratch(Indices(self, kernel.dims), kept)
        self.edges: dict[int, str] = {}
        self.functions: list[str] = []
        self.given: dict[int, Text] = {}
        self.beside_packed = False
        self._guards: list[Text] = []

    def constant(self, type: MachineType, value: bool | int | float) -> Value:
        """One value for the program: it spreads where it meets a tile."""
        text = literal(type, value)
        made = self._define(f"tl.full((), {text}, {TRITON_NAMES[type]})", block=0)
        number = int(value) if type == self.index_type else None
        return Value(self, type, Text(made.name, 0, number))

    def sum(self, terms: Sequence[Value]) -> Value:
        """Those along each dimension by themselves: only the last sum is of a whole tile."""
        groups: dict[int, list[Value]] = {}
        for term in terms:
            groups.setdefault(term.handle.block, []).append(term)
        add = super().sum
        return add([add(groups[bits]) for bits in sorted(groups)])

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
        if bits != text.block or (self.beside_packed and bits == 2):
            place = f"p{binding} + {self.whole(offset)}"
            bits = 3
        names = [name for bit, name in sorted(self.edges.items()) if bits & bit]
        names += [mask.name for mask in masks]
        mask_text = " & ".join(names)
        if len(names) > 1 and bits == 3:
            mask_text = f"tl.broadcast_to({mask_text}, {self.shape})"
        return place, bits, mask_text

    def load(self, binding: int, offset: Value, mask: Value | None, otherwise: Value) -> Value:
        if binding in self.given:
            there = self.given[binding]
            return self.loaded(binding, there.name, there.block, mask, otherwise)
        masks = [*self._guards, *([mask.handle] if mask is not None else [])]
        place, bits, active = self._place(binding, offset, masks)
        loaded = f"tl.load({place}, mask={active}, other=0)" if active else f"tl.load({place})"
        if binding in self.codes:
            loaded = self.unpacked(binding, place.partition(" + ")[2], active)
        return self.loaded(binding, loaded, bits, mask, otherwise)

    def load_ahead(self, binding: int, offset: Value) -> None:
        """Loads elements that the next `load` of the operand will give."""
        place, bits, active = self._place(binding, offset, ())
        suffix = f", mask={active}, other=0" if active else ""
        self.given[binding] = self._define(f"tl.load({place}{suffix})", block=bits)

    def load_factor_at(self, binding: int, start: Value, tile: str, name: str) -> str:
        """Like `load_factor`, of elements `tile` behind one place: what is the same in every
        round of a loop stands apart from what is not, and in 32 bits."""
        edges = [edge for _, edge in sorted(self.edges.items())]
        active = " & ".join(edges)
        if len(edges) > 1:
            active = f"tl.broadcast_to({active}, {self.shape})"
        suffix = f", mask={active}, other=0.0" if active else ""
        place = f"p{binding} + {start.handle.name} + ({tile})"
        pointers = f"({place}).to(tl.pointer_type({name}), bitcast=True)"
        return self._define(f"tl.load({pointers}{suffix})", block=3).name

    def load_factor(self, binding: int, offset: Value, mask: Value | None, name: str) -> str:
        """A tile of floats as they are, 0 outside: they go to the tensor cores untouched."""
        masks = [*self._guards, *([mask.handle] if mask is not None else [])]
        place, bits, active = self._place(binding, offset, masks)
        if binding in self.codes:
            bits_of = self.unpacked(binding, place.partition(" + ")[2], active)
            return self.whole(
                Value(
                    self, "f32", self._define(f"{bits_of}.to({name}, bitcast=True)", block=bits)
                )
            )
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

    # -- the parts of a product ---------------------------------------------------------

    def line(self, text: str) -> None:
        self._line(text)

    def fresh(self, prefix: str) -> str:
        """A name that nothing has."""
        self._count += 1
        return f"{prefix}{self._count - 1}"

    def program(self, axis: int) -> Value:
        """This program's number along x, y or z of the whole launch."""
        first = FIRST_WORKGROUP[axis]
        return self.named(f"tl.program_id({axis}).to({self.word}) + {first}", 0)

    def define(self, expression: str, *, block: int) -> Text:
        return self._define(expression, block=block)

    def function(self, name: str, parameters: Sequence[str], body: Callable[[], None]) -> None:
        """Writes a function beside the kernel; `body` writes its lines and its return."""
        outside = self._lines, self._depth
        self._lines, self._depth = [], 1
        body()
        text = f"@triton.jit\ndef {name}({', '.join(parameters)}):\n{self.body()}\n\n"
        self.functions.append(text)
        self._lines, self._depth = outside

    def named(self, expression: str, block: int) -> Value:
        return Value(self, self.index_type, self._define(expression, block=block))

    def indent(self, by: int) -> None:
        self._depth += by

    @property
    def word(self) -> str:
        return TRITON_NAMES[self.index_type]

    def _place_in_scratch(self, indices: Indices, kept: Sequence[Operand]) -> Expr:
        """Pointers of operands that stand in scratch, one behind the other; bytes in all."""
        total = ZERO
        for number, operand in enumerate(kept):
            words: Text = indices.value(total // 4).handle
            kind = pointee_type(element_dtype(operand.dtype))
            place = f"(scratch + {words.name}).to(tl.pointer_type({kind}), bitcast=True)"
            self._line(f"p{self._bound + number} = {place}")
            size = operand.layout.size * operand.dtype.size_bytes
            total = total + (size + 63) // 64 * 64
        return total

    def keep(self, size_bytes: Expr) -> None:
        """Gives the launch scratch, for a kernel that keeps no operands there."""
        self._scratch_bytes = size_bytes

    def source(
        self,
        name: str,
        kernel: Kernel,
        workgroups: tuple[Expr, Expr, Expr],
        family: str,
        warps: int,
        stages: int,
        slice: SliceRule | None = None,
        tensor_maps: Sequence[tuple[str, str, TensorMap]] = (),
        cluster: int = 1,
    ) -> TritonSource:
        """What was written, as a function `name` with the parameters of `naive.py`.

        Args:
            tensor_maps: the name of a parameter, Triton's type of it, and what it is.
        """
        signature = [(f"p{i}", self.pointer(i)) for i in range(self._bound)]
        if self._scratch_bytes != ZERO:
            signature.append(("scratch", "*u32"))
        signature += [(word, "i32") for word in FIRST_WORKGROUP]
        signature += [(f"dim{i}", "i32") for i in range(len(kernel.dims))]
        signature += [(parameter, kind) for parameter, kind, _ in tensor_maps]
        parameters = ", ".join(parameter for parameter, _ in signature)
        comments = [
            f"p{i}: {o.access} {o.name!a}" for i, o in enumerate(kernel.operands[: self._bound])
        ]
        comments += [f"dim{i}: {dim!a}" for i, dim in enumerate(kernel.dims)]
        # Names are the user's: quoted, they cannot leave their comment.
        text = (
            IMPORTS
            + "".join(self.functions)
            + f"@triton.jit\ndef {name}({parameters}):\n"
            + "".join(f"    # {comment}\n" for comment in comments)
            + self.whole_body()
        )
        return TritonSource(
            name,
            text,
            tuple(signature),
            workgroups,
            self._scratch_bytes,
            family,
            warps,
            stages,
            slice,
            tuple(tensor_map for _, _, tensor_map in tensor_maps),
            cluster,
        )


class TileLowering(Lowering):
    """Lowering whose outer axes are spread over the dimensions of a tile."""

    def __init__(self, kernel: Kernel, writer: TileWriter) -> None:
        super().__init__(kernel, writer)
        self.writer = writer

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

    def integer(self, body: Sequence[ScalarOperation], name: str) -> Value:
        """An integer that a body computes."""
        return self._body(body)[name].value


def index_type(kernel: Kernel, groups: Sequence[Sequence[Axis]]) -> MachineType:
    """32 bits where nothing can pass them: operands, and `groups` of axes flattened."""
    sizes = [o.layout.size for o in kernel.operands]
    sizes += [flat_size(axes) for axes in (kernel.outer, *groups)]
    short = all(s.is_constant and s.value < _SHORT_INDICES for s in sizes)
    return "i32" if short else "i64"
