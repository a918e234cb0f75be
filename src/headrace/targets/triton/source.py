"""Triton source text as a lane machine: a program is a block of lanes.

Every value is either one scalar for the whole program (loop counters, sizes) or a block
of `LANES` values. Guards become masks of loads and stores; loops have the same trip count
for all lanes anyway.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.base.dtypes import DType
from headrace.base.exponent_codes import ExponentCodes
from headrace.kernel.description import Kernel
from headrace.kernel.lanes.machine import BITS, Machine, MachineType, Value, raw_type

LANES = 128
IMPORTS = "import triton\nimport triton.language as tl\n\n\n"
OVERLAPS = "OVERLAPS"
"""What `compile.py` defines for the text: whether launches of the target may overlap."""

LET_NEXT_BEGIN = f"    if {OVERLAPS}:\n        gdc_launch_dependents()\n"
WAIT_FOR_OTHERS = f"if {OVERLAPS}:\n{{indent}}    gdc_wait()"
WAIT_FOR_CLUSTER = (
    f"if {OVERLAPS}: tl.inline_asm_elementwise("
    '"barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned; '
    'mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)'
)
"""Programs of a cluster wait for each other, and see what each has written. Where launches
overlap there are clusters; elsewhere programs run one after another."""
FIRST_WORKGROUP = ("first_x", "first_y", "first_z")

TRITON_NAMES: dict[MachineType, str] = {
    "bool": "tl.int1", "i32": "tl.int32", "u32": "tl.uint32", "i64": "tl.int64",
    "u64": "tl.uint64", "f32": "tl.float32", "f64": "tl.float64",
}  # fmt: skip
_POINTERS: dict[MachineType, str] = {
    "i32": "*i32", "u32": "*u32", "i64": "*i64", "u64": "*u64", "f32": "*fp32", "f64": "*fp64",
}  # fmt: skip
TENSOR_CORE_NAMES = {"f16": "tl.float16", "bf16": "tl.bfloat16"}
TENSOR_MAP_NAMES = {"f16": "fp16", "bf16": "bf16"}
_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "div": "//", "rem": "%", "and": "&", "or": "|",
    "xor": "^", "shl": "<<", "shr": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=",
    "gt": ">", "ge": ">=",
}  # fmt: skip
_FUNCTIONS = {"erf": "tl.erf", "exponential": "tl.exp"}
"""The device's own: GELU of 4096 x 3072 halves took 92 us with ours, twice the product."""
_SIGN_BIT = {"f32": ("tl.uint32", 1 << 31), "f64": ("tl.uint64", 1 << 63)}


def pointer_type(dtype: DType) -> str:
    """Triton's type of a pointer to an operand's elements: narrow ones are bit patterns."""
    if dtype.size_bytes < 4:
        return f"*u{dtype.size_bytes * 8}"
    return _POINTERS[raw_type(dtype)]


def pointee_type(dtype: DType) -> str:
    """The same as Triton spells it inside a function."""
    if dtype.size_bytes < 4:
        return f"tl.uint{dtype.size_bytes * 8}"
    return TRITON_NAMES[raw_type(dtype)]


@dataclass(frozen=True)
class Text:
    """A name in the source.

    Attributes:
        block: it holds a value per lane, not one for the program; of tiles one bit for each
            dimension along which it has more than one value.
        number: what it is where that is known: trip counts stand in the loop itself.
    """

    name: str
    block: int
    number: int | None = None


@dataclass(frozen=True)
class Cell:
    """A mutable variable of each lane."""

    name: str
    type: MachineType


class SourceWriter(Machine):
    """Writes the body of one Triton function."""

    index_type: MachineType = "i64"

    def __init__(
        self, buffers: Sequence[DType], dims: Sequence[str], index: MachineType = "i64"
    ) -> None:
        self.index_type = index
        self.shape = f"({LANES},)"
        self.buffers = list(buffers)
        self.codes: dict[int, ExponentCodes] = {}
        # Of bits of a bf16 that a generator has unpacked itself, the f32 that they are.
        self._wide: dict[str, str] = {}
        self._lines: list[str] = []
        self._depth = 1
        self._count = 0
        self._masks: list[Text] = []
        self._dims: dict[str, Value] = {}
        self.orders_memory = False
        self._has_waited = False
        self.lets_next_begin_first = False
        for number, name in enumerate(dims):
            text = self._define(f"dim{number}.to({TRITON_NAMES[index]})", block=False)
            self._dims[name] = Value(self, index, text)
        word = TRITON_NAMES[index]
        self.group = self._define(f"tl.program_id(0).to({word}) + first_x", block=False)

    # -- text -------------------------------------------------------------------------

    def _line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    def _define(self, expression: str, *, block: int) -> Text:
        name = f"v{self._count}"
        self._count += 1
        self._line(f"{name} = {expression}")
        return Text(name, block)

    def body(self) -> str:
        return "\n".join(self._lines) + "\n"

    def wait_for_others(self) -> None:
        """What follows may read what launches before this one write, and write what they read."""
        self._has_waited = True
        self._line(WAIT_FOR_OTHERS.format(indent="    " * self._depth))

    def whole_body(self) -> str:
        """The body of the kernel, which waits for the launches before it and, at its end, lets
        the next one begin.

        The next launch's programs are there when this one's last ones end: each does nothing
        that hangs on others before its own wait, so it is ready, with constants under way, at
        the moment the results are there. Let in earlier they crowd where there is room first
        (ResNet-50 in tf32, batch 1: 583 us, 448 now, on an H200), but where a launch is bound
        by memory to its last program (`lets_next_begin_first`).
        """
        wait = "" if self._has_waited else f"    {WAIT_FOR_OTHERS.format(indent='    ')}\n"
        if self.lets_next_begin_first:
            return LET_NEXT_BEGIN + wait + self.body()
        return wait + self.body() + LET_NEXT_BEGIN

    def _block_of(self, value: Value) -> str:
        """The value's name as a block."""
        text: Text = value.handle
        if text.block:
            return text.name
        kind = TRITON_NAMES[value.type]
        return self._define(f"tl.full({self.shape}, {text.name}, {kind})", block=True).name

    # -- values -------------------------------------------------------------------------

    def constant(self, type: MachineType, value: bool | int | float) -> Value:
        text = literal(type, value)
        # Sizes and counters stay one for the program, all else is a block.
        block = type != self.index_type
        shape = self.shape if block else "()"
        made = self._define(f"tl.full({shape}, {text}, {TRITON_NAMES[type]})", block=block)
        return Value(self, type, made if block else Text(made.name, False, int(value)))

    def apply(self, operation: str, type: MachineType, *operands: Value) -> Value:
        texts: list[Text] = [o.handle for o in operands]
        names = [t.name for t in texts]
        kind, target = operands[-1].type, TRITON_NAMES[type]
        block = 0
        for text in texts:
            block |= text.block
        if operation == "select":
            expression = f"tl.where({', '.join(names)})"
        elif operation == "div" and kind == "f32":
            expression = f"tl.div_rn({names[0]}, {names[1]})"
        elif operation == "div" and kind == "f64":
            expression = f"{names[0]} / {names[1]}"
        elif operation in _OPERATORS:
            expression = f"{names[0]} {_OPERATORS[operation]} {names[1]}"
        elif operation == "neg":
            return self._negated(operands[0])
        elif operation == "not":
            expression = f"{names[0]} == 0" if kind == "bool" else f"~{names[0]}"
        elif operation == "convert":
            expression = f"{names[0]}.to({target})"
        elif operation == "bitcast":
            expression = f"{names[0]}.to({target}, bitcast=True)"
        elif operation == "sqrt":
            function = "tl.sqrt_rn" if kind == "f32" else "tl.sqrt"
            expression = f"{function}({names[0]})"
        else:
            expression = f"tl.floor({names[0]})"
        return Value(self, type, self._define(expression, block=block))

    def _negated(self, value: Value) -> Value:
        """Triton subtracts from 0, which loses the sign of a zero: the bit is turned."""
        if not value.is_float:
            return self.constant(value.type, 0) - value
        return (value.bits ^ _SIGN_BIT[value.type][1]).bitcast(value.type)

    def lane(self) -> Value:
        lane = f"{self.group.name} * {LANES} + tl.arange(0, {LANES})"
        return Value(self, self.index_type, self._define(lane, block=True))

    def dimension(self, name: str) -> Value:
        return self._dims[name]

    def variable(self, type: MachineType) -> Cell:
        name = f"c{self._count}"
        self._count += 1
        self._line(f"{name} = tl.full({self.shape}, 0, {TRITON_NAMES[type]})")
        return Cell(name, type)

    def read(self, variable: Any) -> Value:
        cell: Cell = variable
        # A copy: the cell changes while the value that was read must not.
        return Value(self, cell.type, self._define(cell.name, block=True))

    def write(self, variable: Any, value: Value) -> None:
        self._line(f"{variable.name} = {self._block_of(value)}")

    # -- control -----------------------------------------------------------------------------

    def loop(self, count: Value, body: Callable[[Value], None]) -> None:
        name = f"i{self._count}"
        self._count += 1
        text: Text = count.handle
        end = text.name if text.number is None else str(text.number)
        self._line(f"for {name} in range(0, {end}):")
        self._depth += 1
        kind = TRITON_NAMES[self.index_type]
        counter = self._define(f"tl.full((), {name}, {kind})", block=False)
        body(Value(self, self.index_type, counter))
        self._depth -= 1

    def guarded(self, mask: Value, body: Callable[[], None]) -> None:
        text = Text(self._block_of(mask), block=True)
        if self._masks:
            text = self._define(f"{self._masks[-1].name} & {text.name}", block=True)
        self._masks.append(text)
        body()
        self._masks.pop()

    # -- memory ------------------------------------------------------------------------------

    def _mask(self, mask: Value | None) -> str:
        names = [self._masks[-1].name] if self._masks else []
        if mask is not None:
            names.append(self._block_of(mask))
        return " & ".join(names)

    def load(self, binding: int, offset: Value, mask: Value | None, otherwise: Value) -> Value:
        place = f"p{binding} + {self._block_of(offset)}"
        active = self._mask(mask)
        suffix = f", mask={active}, other=0" if active else ""
        loaded = f"tl.load({place}{suffix})"
        if binding in self.codes:
            loaded = self.unpacked(binding, self._block_of(offset), active)
        return self.loaded(binding, loaded, 1, mask, otherwise)

    def loaded(
        self, binding: int, text: str, bits: int, mask: Value | None, otherwise: Value
    ) -> Value:
        """The bits that a load has given, or what stands for them outside the mask."""
        dtype = self.buffers[binding]
        wide = self._wide.get(text)
        if dtype.size_bytes < 4:
            text += ".to(tl.uint32)"
        value = Value(self, raw_type(dtype), self._define(text, block=bits))
        if wide is not None and mask is None:
            self._wide[value.handle.name] = wide
        return value if mask is None else mask.select(value, otherwise)

    def unpacked(self, binding: int, offset: str, active: str) -> str:
        """Bits of elements of a packed weight; `offset` counts elements, `active` masks.

        See `base/exponent_codes.py`. What is at an offset is a run of bytes in each part of
        a block for 16 neighbours, so that Triton reads them at once.
        """
        codes, width = self.codes[binding], self.buffers[binding].size_bytes
        size, low = codes.block_bytes(width), codes.low_bytes(width)
        suffix = f", mask={active}, other=0" if active else ""

        def named(text: str) -> str:
            return self._define(text, block=True).name

        # Unsigned: a signed remainder takes twice as many instructions.
        place = named(f"({offset}).to(tl.u{TRITON_NAMES[self.index_type][3:]})")
        block = named(f"p{binding} + ({place} // {codes.block}).to(tl.int64) * {size}")
        within = named(f"{place} % {codes.block}")
        kept = named(f"tl.load({block} + {within}{suffix}).to(tl.uint32)")
        place = f"{block} + {low} + {within} // 32 * 16 + {within} % 16"
        pair = named(f"tl.load({place}{suffix}).to(tl.uint32)")
        shift = named(f"({within} // 16 % 2 * 4).to(tl.uint32)")
        code = named(f"({pair} >> {shift}) & 15")
        escaped = named(f"{code} == 15") if codes.escapes else ""
        exponent = f"{code} + {codes.base}"
        high = named(f"(({kept} & 128) << 8) | (({exponent}) << 7) | ({kept} & 127)")
        if escaped:
            words = f"({block} + {codes.escapes_at(width)}).to(tl.pointer_type(tl.uint16), bitcast=True)"
            listed = f"tl.load({words} + ({kept} & 127), mask={escaped}, other=0).to(tl.uint32)"
            high = named(f"tl.where({escaped}, {listed}, {high})")
        if width == 4:
            words = f"({block} + {codes.block}).to(tl.pointer_type(tl.uint16), bitcast=True)"
            rest = named(f"tl.load({words} + {within}{suffix}).to(tl.uint32)")
            high = named(f"({high} << 16) | {rest}")
        elif width == 2:
            high = named(f"{high}.to(tl.uint16)")
        if active:
            high = named(f"tl.where({active}, {high}, 0)")
        return f"{high}.to(tl.float32, bitcast=True)" if width == 4 else high

    def of_f32_bits(self, binding: int, bits: str) -> str:
        """Elements of a bf16 or f32 operand, as a load gives them, from the f32s they are."""
        wide = f"{bits}.to(tl.float32, bitcast=True)"
        if self.buffers[binding].size_bytes == 4:
            return wide
        high = self._define(f"({bits} >> 16).to(tl.uint16)", block=True).name
        self._wide[high] = wide
        return high

    def pointer(self, binding: int) -> str:
        """Triton's type of the pointer to an operand."""
        return "*u8" if binding in self.codes else pointer_type(self.buffers[binding])

    def store(self, binding: int, offset: Value, value: Value) -> None:
        dtype = self.buffers[binding]
        stored = self._block_of(value)
        if dtype.size_bytes < 4:
            stored += f".to(tl.uint{dtype.size_bytes * 8})"
        active = self._mask(None)
        suffix = f", mask={active}" if active else ""
        self._line(f"tl.store(p{binding} + {self._block_of(offset)}, {stored}{suffix})")

    def load_array(self, name: str, offset: Value) -> Value:
        raise AssertionError("array locals stand in scratch")

    def store_array(self, name: str, offset: Value, value: Value) -> None:
        raise AssertionError("array locals stand in scratch")

    def phase_end(self) -> None:
        # The compiler may give a load and a store of the same lane to different threads.
        if self.orders_memory:
            self._line("tl.debug_barrier()")

    # -- narrow floats -------------------------------------------------------------------------

    def native_decode(self, dtype: DType, bits: Value) -> Value | None:
        name = TENSOR_CORE_NAMES.get(dtype.name)
        if name is None:
            return None
        text: Text = bits.handle
        if text.name in self._wide:
            return Value(self, "f32", self._define(self._wide[text.name], block=text.block))
        narrow = f"{text.name}.to(tl.uint16).to({name}, bitcast=True).to(tl.float32)"
        return Value(self, "f32", self._define(narrow, block=text.block))

    def native_encode(self, dtype: DType, value: Value) -> Value | None:
        """One instruction; in integers it took longer than the product before it."""
        name = TENSOR_CORE_NAMES.get(dtype.name)
        if name is None or value.type != "f32":
            return None
        text: Text = value.handle
        bits = f"{text.name}.to({name}).to(tl.uint16, bitcast=True).to(tl.uint32)"
        return Value(self, "u32", self._define(bits, block=text.block))

    def native_function(self, operation: str, value: Value) -> Value | None:
        name, text = _FUNCTIONS.get(operation), value.handle
        if operation == "logistic":
            expression = f"1.0 / (1.0 + tl.exp(-{text.name}))"
        elif name is not None:
            expression = f"{name}({text.name})"
        else:
            return None
        return Value(self, "f32", self._define(expression, block=text.block))

    def native_extreme(self, operation: str, left: Value, right: Value) -> Value | None:
        if left.type != "f32":
            return None
        first, second = left.handle, right.handle
        names = f"{first.name}, {second.name}, propagate_nan=tl.PropagateNan.ALL"
        block = first.block | second.block
        return Value(self, "f32", self._define(f"tl.{operation}({names})", block=block))


def packed_operands(kernel: Kernel) -> dict[int, ExponentCodes]:
    """Codes of each operand that is a packed weight."""
    layouts = enumerate(o.layout for o in kernel.operands)
    return {number: layout.codes for number, layout in layouts if layout.codes is not None}


def literal(type: MachineType, value: bool | int | float) -> str:
    """A number as Python text: infinities and NaN by name, integers in the type's range."""
    if type == "bool":
        return str(bool(value))
    if type in ("f32", "f64"):
        number = float(value)
        if math.isnan(number):
            return 'float("nan")'
        if type == "f32" and abs(number) >= 2.0**128:
            number = math.copysign(math.inf, number)
        return f'float("{number}")' if math.isinf(number) else repr(number)
    number = int(value) & ((1 << BITS[type]) - 1)
    if type[0] == "i" and number >> (BITS[type] - 1):
        number -= 1 << BITS[type]
    return str(number)
