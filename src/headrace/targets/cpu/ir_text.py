"""A typed builder of textual LLVM IR: one `Module`, its `Function`s, SSA `Value`s.

Text is built directly: it is ten times faster than llvmlite's object model and needs
nothing but the standard library. Every arithmetic method works alike on scalars and on
vectors; an `int` or `float` beside a `Value` is taken as a constant of its type, so::

    function = Function(module, "scale", [("ptr", "x"), ("i64", "n")])
    x, n = function.parameters

    def body(i: Value, carried: list[Value]) -> None:
        address = function.offset(x, function.mul(i, 4))
        value = function.load(vector_type("float", 8), address, 4)
        function.store(function.mul(value, 2.0), address, 4)

    function.loop(0, n, 8, body)
    function.finish()

Integer arithmetic on scalars folds, so that static sizes leave no code behind.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, Union

_VECTOR = re.compile(r"<(\d+) x (\w+)>")
_FLOATS = ("float", "double", "half")


@dataclass(frozen=True)
class Value:
    """An SSA value or a constant: its LLVM type and its text (`%v7`, `42`)."""

    type: str
    text: str

    @property
    def constant(self) -> int | None:
        """The integer it is, where it is a scalar integer constant."""
        if self.text.lstrip("-").isdigit() and self.type[0] == "i":
            return int(self.text)
        return None

    def __str__(self) -> str:
        return f"{self.type} {self.text}"


Number: TypeAlias = Union[Value, int, float]
Body: TypeAlias = Callable[[Value, list[Value]], "Sequence[Value] | None"]


def vector_type(element: str, width: int) -> str:
    """`<width x element>`; the element itself for width 1."""
    return element if width == 1 else f"<{width} x {element}>"


def element_of(type_: str) -> str:
    """The element type of a vector type; a scalar type is its own."""
    found = _VECTOR.fullmatch(type_)
    return found.group(2) if found else type_


def width_of(type_: str) -> int:
    """Lanes of a type; 1 for a scalar."""
    found = _VECTOR.fullmatch(type_)
    return int(found.group(1)) if found else 1


def is_float(type_: str) -> bool:
    """Whether it is a float type or a vector of one."""
    return element_of(type_) in _FLOATS


def bits_of(type_: str) -> int:
    """Bits of one element."""
    element = element_of(type_)
    known = {"float": 32, "double": 64, "half": 16, "ptr": 64}
    return known[element] if element in known else int(element[1:])


def integer_type_of(type_: str) -> str:
    """The integer type of the same width and lanes: `<8 x i32>` for `<8 x float>`."""
    return vector_type(f"i{bits_of(type_)}", width_of(type_))


def mangled(type_: str) -> str:
    """The type as intrinsics spell it: `v8f32`, `i64`."""
    element = {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}.get(
        element_of(type_), element_of(type_)
    )
    width = width_of(type_)
    return element if width == 1 else f"v{width}{element}"


def _float_text(element: str, value: float) -> str:
    if element == "float":
        # A float literal is written as the double of the same value.
        value = _nearest_f32(value)
    elif element == "half":
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _nearest_f32(value: float) -> float:
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def constant(type_: str, value: int | float) -> Value:
    """A constant of a scalar type, or splatted over a vector type."""
    element = element_of(type_)
    if element in _FLOATS:
        text = _float_text(element, float(value))
    elif element == "i1":
        text = "true" if value else "false"
    else:
        text = str(int(value))
    return Value(type_, text if width_of(type_) == 1 else f"splat ({element} {text})")


def integer(value: int) -> Value:
    """An i64 constant."""
    return Value("i64", str(value))


class Module:
    """Functions, declarations and constant tables of one object file."""

    def __init__(self) -> None:
        self._functions: dict[str, str] = {}
        self._declarations: dict[str, str] = {}
        self._tables: dict[str, str] = {}

    def declare(self, name: str, result: str, parameters: Sequence[str]) -> None:
        """Declares an intrinsic once."""
        self._declarations[name] = f"declare {result} @{name}({', '.join(parameters)})"

    def add_function(self, name: str, text: str) -> None:
        self._functions[name] = text

    def has_function(self, name: str) -> bool:
        """Whether a helper function was emitted already."""
        return name in self._functions

    def table(self, name: str, element: str, values: Sequence[int | float]) -> Value:
        """A read-only table, shared by name; returns its address."""
        items = ", ".join(str(constant(element, v)) for v in values)
        self._tables[name] = (
            f"@{name} = internal unnamed_addr constant [{len(values)} x {element}] [{items}], align 64"
        )
        return Value("ptr", f"@{name}")

    def text(self) -> str:
        """The whole module, in the order things were added."""
        parts = [*self._tables.values(), *self._functions.values()]
        parts += self._declarations.values()
        return "\n".join(parts) + "\n"


class Function:
    """Builds one function, instruction by instruction, at the end of its current block.

    Attributes:
        module: where intrinsics are declared and the text goes at `finish`.
        parameters: the arguments as values.
        has_fma: whether `fma` may use the instruction; without it `fma` is a multiply
            and an add (LLVM would call libm's).
        has_round: whether rounding intrinsics are instructions (SSE4.1).
    """

    def __init__(
        self,
        module: Module,
        name: str,
        parameters: Sequence[tuple[str, str]],
        *,
        result: str = "void",
        internal: bool = False,
        has_fma: bool = True,
        has_round: bool = True,
    ) -> None:
        self.module = module
        self.name = name
        self.has_fma = has_fma
        self.has_round = has_round
        self.parameters = [Value(t, f"%{n}") for t, n in parameters]
        listed = ", ".join(f"{t} %{n}" for t, n in parameters)
        linkage = "internal " if internal else ""
        self._head = f"define {linkage}{result} @{name}({listed}) nounwind {{"
        self._lines: list[str] = ["entry:"]
        self._block = "entry"
        self._count = 0

    # -- raw ----------------------------------------------------------------

    def _next(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def emit(self, type_: str, text: str) -> Value:
        """Appends `%new = text`; the result has `type_`."""
        result = Value(type_, "%" + self._next("v"))
        self._lines.append(f"  {result.text} = {text}")
        return result

    def statement(self, text: str) -> None:
        """Appends an instruction without a result."""
        self._lines.append("  " + text)

    def intrinsic(self, name: str, result: str, *arguments: Value) -> Value:
        """Calls an intrinsic by its full name, declaring it."""
        self.module.declare(name, result, [a.type for a in arguments])
        listed = ", ".join(str(a) for a in arguments)
        if result == "void":
            self.statement(f"call void @{name}({listed})")
            return Value("void", "")
        return self.emit(result, f"call {result} @{name}({listed})")

    def call(self, name: str, result: str, *arguments: Value) -> Value:
        """Calls a function of the module."""
        listed = ", ".join(str(a) for a in arguments)
        if result == "void":
            self.statement(f"call void @{name}({listed})")
            return Value("void", "")
        return self.emit(result, f"call {result} @{name}({listed})")

    def finish(self, result: Value | None = None) -> None:
        """Returns from the function and adds it to the module."""
        self.statement("ret void" if result is None else f"ret {result}")
        self.module.add_function(self.name, "\n".join([self._head, *self._lines, "}"]))

    # -- arithmetic ---------------------------------------------------------

    def value(self, number: Number, type_: str = "i64") -> Value:
        """A number as a value of `type_`; a value stays as it is."""
        return number if isinstance(number, Value) else constant(type_, number)

    def _pair(self, left: Number, right: Number) -> tuple[Value, Value]:
        if isinstance(left, Value):
            right = self.value(right, left.type)
        elif isinstance(right, Value):
            left = constant(right.type, left)
        else:
            left, right = self.value(left), self.value(right)
        if left.type != right.type:
            width = max(width_of(left.type), width_of(right.type))
            left, right = self.splat(left, width), self.splat(right, width)
        return left, right

    def add(self, left: Number, right: Number) -> Value:
        """Sum of integers (wrapping) or floats."""
        a, b = self._pair(left, right)
        if is_float(a.type):
            return self.emit(a.type, f"fadd {a.type} {a.text}, {b.text}")
        if a.constant is not None and b.constant is not None and a.type == "i64":
            return integer(a.constant + b.constant)
        if _is_integer(a, 0):
            return b
        if _is_integer(b, 0):
            return a
        return self.emit(a.type, f"add {a.type} {a.text}, {b.text}")

    def sub(self, left: Number, right: Number) -> Value:
        """Difference of integers (wrapping) or floats."""
        a, b = self._pair(left, right)
        if is_float(a.type):
            return self.emit(a.type, f"fsub {a.type} {a.text}, {b.text}")
        if a.constant is not None and b.constant is not None and a.type == "i64":
            return integer(a.constant - b.constant)
        if _is_integer(b, 0):
            return a
        return self.emit(a.type, f"sub {a.type} {a.text}, {b.text}")

    def mul(self, left: Number, right: Number) -> Value:
        """Product of integers (wrapping) or floats."""
        a, b = self._pair(left, right)
        if is_float(a.type):
            return self.emit(a.type, f"fmul {a.type} {a.text}, {b.text}")
        if a.constant is not None and b.constant is not None and a.type == "i64":
            return integer(a.constant * b.constant)
        if _is_integer(a, 1) or _is_integer(b, 0):
            return b
        if _is_integer(b, 1) or _is_integer(a, 0):
            return a
        return self.emit(a.type, f"mul {a.type} {a.text}, {b.text}")

    def div(self, left: Number, right: Number) -> Value:
        """Quotient of floats."""
        a, b = self._pair(left, right)
        return self.emit(a.type, f"fdiv {a.type} {a.text}, {b.text}")

    def neg(self, value: Value) -> Value:
        """Negation of an integer or a float (the sign bit flips)."""
        if is_float(value.type):
            return self.emit(value.type, f"fneg {value}")
        return self.sub(constant(value.type, 0), value)

    def binary(self, instruction: str, left: Number, right: Number) -> Value:
        """Any two-operand instruction: `udiv`, `srem`, `and`, `shl`, `lshr`, ..."""
        a, b = self._pair(left, right)
        return self.emit(a.type, f"{instruction} {a.type} {a.text}, {b.text}")

    def fma(self, left: Value, right: Number, addend: Number) -> Value:
        """`left * right + addend`: one rounding where the CPU has the instruction."""
        a, b = self._pair(left, right)
        c = self.value(addend, a.type)
        if not self.has_fma:
            return self.add(self.mul(a, b), c)
        return self.intrinsic(f"llvm.fma.{mangled(a.type)}", a.type, a, b, c)

    def compare(self, predicate: str, left: Number, right: Number) -> Value:
        """`icmp`/`fcmp`; the predicate is LLVM's (`slt`, `ult`, `eq`, `olt`, `une`, ...)."""
        a, b = self._pair(left, right)
        word = "fcmp" if is_float(a.type) else "icmp"
        result = vector_type("i1", width_of(a.type))
        return self.emit(result, f"{word} {predicate} {a.type} {a.text}, {b.text}")

    def select(self, condition: Value, yes: Number, no: Number) -> Value:
        """`yes` where the condition holds, else `no`; the condition may be a vector."""
        a, b = self._pair(yes, no)
        if width_of(condition.type) > 1 and width_of(a.type) == 1:
            width = width_of(condition.type)
            a, b = self.splat(a, width), self.splat(b, width)
        return self.emit(a.type, f"select {condition}, {a}, {b}")

    def minimum(self, left: Number, right: Number) -> Value:
        """The smaller of two signed integers."""
        return self._extremum("slt", "smin", min, left, right)

    def maximum(self, left: Number, right: Number) -> Value:
        """The larger of two signed integers."""
        return self._extremum("sgt", "smax", max, left, right)

    def _extremum(
        self,
        predicate: str,
        name: str,
        fold: Callable[[int, int], int],
        left: Number,
        right: Number,
    ) -> Value:
        a, b = self._pair(left, right)
        if a.constant is not None and b.constant is not None and a.type == "i64":
            return integer(fold(a.constant, b.constant))
        return self.select(self.compare(predicate, a, b), a, b)

    def cast(self, instruction: str, value: Value, element: str) -> Value:
        """A conversion (`sext`, `zext`, `trunc`, `sitofp`, `fptosi`, ...) to `element`."""
        type_ = vector_type(element, width_of(value.type))
        if type_ == value.type:
            return value
        return self.emit(type_, f"{instruction} {value} to {type_}")

    def bitcast(self, value: Value, type_: str) -> Value:
        """The same bits as another type."""
        return value if type_ == value.type else self.emit(type_, f"bitcast {value} to {type_}")

    # -- vectors ------------------------------------------------------------

    def splat(self, value: Value, width: int) -> Value:
        """A scalar in every lane; a vector stays."""
        if width == 1 or width_of(value.type) > 1:
            return value
        type_ = vector_type(value.type, width)
        if not value.text.startswith("%") and value.type != "ptr":
            return Value(type_, f"splat ({value.type} {value.text})")
        first = self.emit(type_, f"insertelement {type_} poison, {value}, i64 0")
        return self.emit(
            type_,
            f"shufflevector {type_} {first.text}, {type_} poison, <{width} x i32> zeroinitializer",
        )

    def lanes(self, width: int, element: str = "i64") -> Value:
        """The constant vector 0, 1, 2, ...; the scalar 0 for width 1."""
        if width == 1:
            return constant(element, 0)
        items = ", ".join(f"{element} {i}" for i in range(width))
        return Value(vector_type(element, width), f"<{items}>")

    def extract(self, vector: Value, lane: int) -> Value:
        """One lane; a scalar stays."""
        if width_of(vector.type) == 1:
            return vector
        return self.emit(element_of(vector.type), f"extractelement {vector}, i64 {lane}")

    def insert(self, vector: Value, scalar: Value, lane: int) -> Value:
        """The vector with one lane replaced."""
        return self.emit(vector.type, f"insertelement {vector}, {scalar}, i64 {lane}")

    def shuffle(self, left: Value, right: Value | None, lanes: Sequence[int]) -> Value:
        """`shufflevector`: lanes of `left`, then of `right` counted on from its width."""
        type_ = vector_type(element_of(left.type), len(lanes))
        other = right.text if right is not None else "poison"
        mask = ", ".join(f"i32 {i}" for i in lanes)
        result = f"<{len(lanes)} x {element_of(left.type)}>"
        found = self.emit(
            result, f"shufflevector {left}, {left.type} {other}, <{len(lanes)} x i32> <{mask}>"
        )
        return found if len(lanes) > 1 else self.emit(type_, f"extractelement {found}, i64 0")

    # -- memory -------------------------------------------------------------

    def offset(self, pointer: Value, byte_offset: Number) -> Value:
        """A pointer moved by bytes."""
        moved = self.value(byte_offset)
        if moved.constant == 0:
            return pointer
        return self.emit("ptr", f"getelementptr i8, {pointer}, {moved}")

    def element(self, pointer: Value, index: Number, size_bytes: int) -> Value:
        """The address of element `index` of an array of `size_bytes` elements."""
        at = self.value(index)
        if at.constant is not None:
            return self.offset(pointer, at.constant * size_bytes)
        if size_bytes in (1, 2, 4, 8):
            return self.emit("ptr", f"getelementptr i{size_bytes * 8}, {pointer}, {at}")
        return self.offset(pointer, self.mul(at, size_bytes))

    def load(self, type_: str, pointer: Value, align: int) -> Value:
        """Loads a scalar or a vector; `align` in bytes (the element's is always safe)."""
        return self.emit(type_, f"load {type_}, {pointer}, align {align}")

    def store(self, value: Value, pointer: Value, align: int) -> None:
        """Stores a scalar or a vector; `align` in bytes."""
        self.statement(f"store {value}, {pointer}, align {align}")

    def prefetch(self, pointer: Value, *, write: bool = False, locality: int = 3) -> None:
        """Asks for a cache line ahead of its use."""
        self.module.declare("llvm.prefetch.p0", "void", ["ptr", "i32", "i32", "i32"])
        self.statement(
            f"call void @llvm.prefetch.p0({pointer}, i32 {int(write)}, i32 {locality}, i32 1)"
        )

    # -- control ------------------------------------------------------------

    def _label(self, name: str) -> None:
        self._lines.append(f"{name}:")
        self._block = name

    def loop(
        self,
        low: Number,
        high: Number,
        step: Number,
        body: Body,
        initial: Sequence[Value] = (),
        *,
        at_least_once: bool = False,
    ) -> list[Value]:
        """`for i in range(low, high, step)` with carried values.

        Args:
            body: receives the i64 induction value and the carried values; returns the
                next carried values (None where there are none). Called once.
            initial: carried values before the first round.
            at_least_once: the caller knows that the loop runs; saves the first test.

        Returns:
            The carried values after the last round. A loop of one known round leaves
            straight-line code, one of no round nothing.
        """
        first, last, stride = (self.value(n) for n in (low, high, step))
        if None not in (first.constant, last.constant, stride.constant):
            rounds = -(-(_known(last) - _known(first)) // _known(stride))
            if rounds <= 0:
                return list(initial)
            if rounds == 1:
                return list(body(first, list(initial)) or ())
            at_least_once = True
        before = self._block
        head, exit_ = self._next("loop"), self._next("after")
        if at_least_once:
            self.statement(f"br label %{head}")
        else:
            test = self.compare("slt", first, last)
            self.statement(f"br {test}, label %{head}, label %{exit_}")
        self._label(head)
        induction = Value("i64", "%" + self._next("i"))
        following = Value("i64", "%" + self._next("i"))
        carried = [Value(v.type, "%" + self._next("c")) for v in initial]
        phi_line = len(self._lines)
        self._lines.append("")
        returned = list(body(induction, list(carried)) or ())
        if [v.type for v in returned] != [v.type for v in initial]:
            raise AssertionError("a loop body must return one value per carried value")
        latch = self._block
        self.statement(f"{following.text} = add nuw nsw i64 {induction.text}, {stride.text}")
        test = self.compare("slt", following, last)
        self.statement(f"br {test}, label %{head}, label %{exit_}")
        phis = [
            f"  {induction.text} = phi i64 [{first.text}, %{before}], [{following.text}, %{latch}]"
        ]
        for phi, start, end in zip(carried, initial, returned, strict=True):
            phis.append(
                f"  {phi.text} = phi {phi.type} [{start.text}, %{before}], [{end.text}, %{latch}]"
            )
        self._lines[phi_line] = "\n".join(phis)
        self._label(exit_)
        if at_least_once:
            return returned
        return [
            self.emit(s.type, f"phi {s.type} [{s.text}, %{before}], [{e.text}, %{latch}]")
            for s, e in zip(initial, returned, strict=True)
        ]

    def repeat(
        self, goes_on: Callable[[], Value], most: int | None, trip: Callable[[], None]
    ) -> None:
        """Runs `trip` while `goes_on`, asked before each, holds; at most so often."""
        before, head = self._block, self._next("repeat")
        inside, exit_ = self._next("trip"), self._next("after")
        self.statement(f"br label %{head}")
        self._label(head)
        count = Value("i64", "%" + self._next("i"))
        phi_line = len(self._lines)
        self._lines.append("")
        test = goes_on()
        if most is not None:
            test = self.binary("and", test, self.compare("ult", count, most))
        self.statement(f"br {test}, label %{inside}, label %{exit_}")
        self._label(inside)
        trip()
        following = self.add(count, 1)
        phi = f"phi i64 [0, %{before}], [{following.text}, %{self._block}]"
        self._lines[phi_line] = f"  {count.text} = {phi}"
        self.statement(f"br label %{head}")
        self._label(exit_)

    def branch(
        self,
        condition: Value,
        then: Callable[[], Sequence[Value] | None],
        otherwise: Callable[[], Sequence[Value] | None] | None = None,
    ) -> list[Value]:
        """`if`/`else`; both arms return values of the same types, joined by phis."""
        yes, no, join = self._next("then"), self._next("else"), self._next("join")
        target = no if otherwise else join
        self.statement(f"br {condition}, label %{yes}, label %{target}")
        self._label(yes)
        left = list(then() or ())
        left_block = self._block
        self.statement(f"br label %{join}")
        right: list[Value] = []
        right_block = self._block
        if otherwise:
            self._label(no)
            right = list(otherwise() or ())
            right_block = self._block
            self.statement(f"br label %{join}")
        self._label(join)
        return [
            self.emit(
                a.type, f"phi {a.type} [{a.text}, %{left_block}], [{b.text}, %{right_block}]"
            )
            for a, b in zip(left, right, strict=True)
        ]


def _known(value: Value) -> int:
    known = value.constant
    assert known is not None
    return known


def _is_integer(value: Value, number: int) -> bool:
    return value.text in (str(number), f"splat ({element_of(value.type)} {number})")
