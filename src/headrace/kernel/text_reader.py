"""Reads a kernel; the form is described in `text.py`."""

from __future__ import annotations

import json
import re
import struct
from functools import lru_cache
from typing import get_args

from headrace.base.dtypes import BY_NAME, DType
from headrace.base.exponent_codes import ExponentCodes
from headrace.base.symbols import ZERO, Expr, parse_expr
from headrace.kernel.description import (
    Axis,
    Combiner,
    Compute,
    Constant,
    DimensionLayout,
    IndexValue,
    Kernel,
    Layout,
    Load,
    LoadLocal,
    Local,
    Operand,
    Phase,
    Precision,
    Reduction,
    Scalar,
    ScalarOperation,
    Store,
    ordered_layout,
)
from headrace.kernel.loops import Loop
from headrace.kernel.text_printer import simple_combiner

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
      | (?P<string>"(?:[^"\\]|\\.)*")
      | (?P<number>-?(?:0x[0-9A-Fa-f]+|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)|-(?:inf|nan)\b)
      | (?P<word>[%A-Za-z_$][\w.$:/]*)
      | (?P<mark>.)""",
    re.VERBOSE,
)


class KernelTextError(ValueError):
    """The text is no kernel; `offset` is where in the text."""

    def __init__(self, fact: str, offset: int) -> None:
        super().__init__(fact)
        self.offset = offset


class _Reader:
    """A cursor over the tokens of a text."""

    def __init__(self, text: str, start: int = 0) -> None:
        self.text = text
        self.at = start
        self._skip_space()

    def _match(self) -> re.Match[str] | None:
        return _TOKEN.match(self.text, self.at)

    def _skip_space(self) -> None:
        while (match := self._match()) is not None and match.lastgroup == "space":
            self.at = match.end()

    def peek(self) -> str:
        match = self._match()
        return match.group() if match else ""

    def take(self) -> str:
        match = self._match()
        if match is None:
            raise self.wrong("more text")
        self.at = match.end()
        self._skip_space()
        return match.group()

    def wrong(self, wanted: str) -> KernelTextError:
        found = self.peek() or "the end"
        return KernelTextError(f"expected {wanted}, found '{found}'", self.at)

    def accept(self, token: str) -> bool:
        if self.peek() != token:
            return False
        self.take()
        return True

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise self.wrong(f"'{token}'")

    def word(self, wanted: str = "a name") -> str:
        match = self._match()
        if match is None or match.lastgroup not in ("word", "string"):
            raise self.wrong(wanted)
        text = self.take()
        return json.loads(text) if text.startswith('"') else text

    def dtype(self) -> DType:
        start = self.at
        name = self.take()
        if name == "complex":
            self.expect("<")
            name = f"complex<{self.take()}>"
            self.expect(">")
        if name not in BY_NAME:
            raise KernelTextError(f"'{name}' is no element type", start)
        return BY_NAME[name]

    def scalar(self) -> Scalar:
        token = self.peek()
        if token in ("true", "false"):
            self.take()
            return token == "true"
        if token == "complex":
            self.take()
            self.expect("(")
            real = self.scalar()
            self.expect(",")
            imaginary = self.scalar()
            self.expect(")")
            return _complex(real, imaginary)
        try:
            value = _parse_number(token)
        except ValueError:
            raise self.wrong("a number") from None
        self.take()
        return value

    def integer(self) -> int:
        value = self.scalar()
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong("an integer")
        return value

    def expr(self, stops: tuple[str, ...] = (",", "]", ")")) -> Expr:
        """An expression up to one of `stops` outside of its parentheses."""
        start, depth = self.at, 0
        end = start
        while self.peek() and (depth or self.peek() not in stops):
            depth += {"(": 1, ")": -1}.get(self.peek(), 0)
            match = self._match()
            assert match is not None
            end = match.end()
            self.take()
        try:
            return _expr(self.text[start:end])
        except ValueError as wrong:
            raise KernelTextError(str(wrong), start) from None

    def exprs(self) -> tuple[Expr, ...]:
        self.expect("[")
        found: list[Expr] = []
        while not self.accept("]"):
            found.append(self.expr())
            self.accept(",")
        return tuple(found)

    def integers(self) -> tuple[int, ...]:
        self.expect("[")
        found: list[int] = []
        while not self.accept("]"):
            found.append(self.integer())
            self.accept(",")
        return tuple(found)

    def words(self) -> tuple[str, ...]:
        """Names separated by commas."""
        found = [self.word()]
        while self.accept(","):
            found.append(self.word())
        return tuple(found)


@lru_cache(maxsize=1 << 12)
def _expr(text: str) -> Expr:
    return parse_expr(text)


def _complex(real: Scalar, imaginary: Scalar) -> complex:
    if isinstance(real, complex) or isinstance(imaginary, complex):
        raise ValueError("a complex number has real parts")
    return complex(real, imaginary)


def _parse_number(token: str) -> Scalar:
    if token.startswith("0x"):
        return struct.unpack("<d", struct.pack("<Q", int(token, 16)))[0]
    if re.fullmatch(r"-?\d+", token):
        return int(token)
    return float(token)


def parse_kernel(text: str) -> Kernel:
    """Reads the text form.

    Raises:
        KernelTextError: the text is no kernel; says what was expected and where.
    """
    kernel, end = read_kernel(text, 0)
    reader = _Reader(text, end)
    if reader.peek():
        raise reader.wrong("the end")
    return kernel


def read_kernel(text: str, start: int) -> tuple[Kernel, int]:
    """Reads a kernel that begins at `start`; also gives the offset behind it."""
    reader = _Reader(text, start)
    reader.expect("kernel")
    outer = _read_axes(reader)
    dims: tuple[str, ...] = ()
    if reader.accept("dims"):
        reader.expect("(")
        dims = reader.words()
        reader.expect(")")
    precision = "ieee"
    if reader.accept("precision"):
        reader.expect("(")
        precision = reader.word("a precision")
        if precision not in get_args(Precision):
            raise reader.wrong("ieee or tf32")
        reader.expect(")")
    reader.expect("{")
    operands: list[Operand] = []
    while reader.peek() in ("ro", "wo", "rw"):
        operands.append(_read_operand(reader))
    locals_: list[Local] = []
    while reader.accept("local"):
        name = reader.word()
        reader.expect(":")
        dtype = reader.dtype()
        shape = reader.exprs() if reader.peek() == "[" else ()
        locals_.append(Local(name, dtype, shape))
    body = _BodyReader(reader, operands, locals_)
    phases: list[Phase] = []
    loops: list[Loop] = []
    _read_phases(body, phases, loops)
    if reader.peek() != "}":
        raise reader.wrong("'}'")
    # Not `expect`: what follows the kernel is not ours to tokenise.
    end = reader.at + 1
    made = Kernel(
        outer,
        tuple(operands),
        tuple(locals_),
        tuple(phases),
        dims,
        precision,  # pyright: ignore[reportArgumentType]
        tuple(loops),
    )
    return made, end


def _read_phases(body: _BodyReader, phases: list[Phase], loops: list[Loop]) -> None:
    reader = body.reader
    while reader.peek() in ("map", "reduce", "serial", "while"):
        if not reader.accept("while"):
            phases.append(body.phase())
            continue
        first, place = len(phases), len(loops)
        condition = body.operand()
        most = reader.integer() if reader.accept("at_most") else None
        reader.expect("likely")
        likely = reader.integer()
        reader.expect("{")
        _read_phases(body, phases, loops)
        reader.expect("}")
        loops.insert(place, Loop(first, len(phases), condition, most, likely))


def _read_axes(reader: _Reader) -> tuple[Axis, ...]:
    reader.expect("(")
    axes: list[Axis] = []
    while not reader.accept(")"):
        name = reader.word("an axis")
        reader.expect("=")
        axes.append(Axis(name, reader.expr()))
        reader.accept(",")
    return tuple(axes)


def _read_operand(reader: _Reader) -> Operand:
    access = reader.take()
    assert access in ("ro", "wo", "rw")
    constant = reader.accept("constant")
    name = reader.word()
    reader.expect(":")
    dtype, shape = reader.dtype(), reader.exprs()
    layout = ordered_layout(shape)
    if reader.accept("layout"):
        layout = _read_layout(reader)
    return Operand(name, dtype, shape, access, layout, constant)  # pyright: ignore[reportArgumentType]


_LAYOUT_STOPS = (
    "ro",
    "wo",
    "rw",
    "local",
    "map",
    "reduce",
    "serial",
    "while",
    "halo",
    "value",
    "transform",
    "codes",
    "size",
    "}",
)


def _read_layout(reader: _Reader) -> Layout:
    reader.expect("[")
    dimensions: list[DimensionLayout] = []
    while not reader.accept("]"):
        stride = reader.expr((",", "]", "tile"))
        tile, tile_stride = 1, ZERO
        if reader.accept("tile"):
            tile = reader.integer()
            reader.expect("by")
            tile_stride = reader.expr()
        dimensions.append(DimensionLayout(stride, tile, tile_stride))
        reader.accept(",")
    reader.expect("offset")
    offset = reader.expr(_LAYOUT_STOPS)
    reader.expect("size")
    size = reader.expr(_LAYOUT_STOPS)
    low = high = (0,) * len(dimensions)
    if reader.accept("halo"):
        low, high = reader.integers(), reader.integers()
    value = reader.scalar() if reader.accept("value") else None
    transform = reader.word() if reader.accept("transform") else ""
    codes = None
    if reader.accept("codes"):
        codes = ExponentCodes(reader.integer(), reader.integer(), reader.integer())
    return Layout(tuple(dimensions), offset, size, low, high, value, transform, codes)


class _BodyReader:
    """Reads phases; names of operands and locals are known."""

    def __init__(self, reader: _Reader, operands: list[Operand], locals_: list[Local]) -> None:
        self.reader = reader
        self.operands = {o.name: n for n, o in enumerate(operands)}
        self.locals = {local.name: local.dtype for local in locals_}

    def operand(self) -> int:
        start, name = self.reader.at, self.reader.word()
        if name not in self.operands:
            raise KernelTextError(f"there is no operand '{name}'", start)
        return self.operands[name]

    def _local(self) -> str:
        start, name = self.reader.at, self.reader.word()
        if name not in self.locals:
            raise KernelTextError(f"there is no local '{name}'", start)
        return name

    def phase(self) -> Phase:
        reader = self.reader
        word = reader.take()
        is_reduction = word == "reduce"
        axes = _read_axes(reader)
        reader.expect("{")
        body: list[ScalarOperation] = []
        while reader.peek().startswith("%"):
            body.append(self.operation())
        reduction: Reduction | None = None
        stores: list[Store] = []
        if is_reduction:
            reader.expect("fold")
            reduction = self.reduction()
        while not is_reduction and reader.peek() in ("store", "set"):
            stores.append(self.store())
        reader.expect("}")
        return Phase(
            tuple(a for a in axes if not a.name.startswith("%r")),
            tuple(a for a in axes if a.name.startswith("%r")),
            tuple(body),
            reduction,
            tuple(stores),
            word == "serial",
        )

    def store(self) -> Store:
        reader = self.reader
        if reader.take() == "set":
            local, index = self._local(), reader.exprs()
            reader.expect("=")
            return Store(reader.word(), local, index)
        value = reader.word()
        reader.expect("to")
        operand, index = self.operand(), reader.exprs()
        bounded = reader.integers() if reader.accept("bounded") else ()
        return Store(value, operand, index, bounded)

    def operation(self) -> ScalarOperation:
        reader = self.reader
        result = reader.word()
        reader.expect("=")
        kind = reader.word("an operation")
        if kind == "load":
            operand, index = self.operand(), reader.exprs()
            bounded = reader.integers() if reader.accept("bounded") else ()
            otherwise = reader.scalar() if reader.accept("otherwise") else None
            return Load(result, operand, index, bounded, otherwise)
        if kind == "read":
            return LoadLocal(result, self._local(), reader.exprs())
        if kind == "constant":
            value = reader.scalar()
            reader.expect(":")
            return Constant(result, reader.dtype(), value)
        if kind == "index":
            value = reader.exprs()[0]
            reader.expect(":")
            return IndexValue(result, reader.dtype(), value)
        attribute = "" if reader.peek() == "(" else reader.word()
        reader.expect("(")
        arguments = reader.words()
        reader.expect(")")
        reader.expect(":")
        return Compute(result, kind, arguments, reader.dtype(), attribute)

    def reduction(self) -> Reduction:
        reader = self.reader
        values = reader.words()
        reader.expect("from")
        initial = [reader.scalar()]
        while reader.accept(","):
            initial.append(reader.scalar())
        reader.expect("with")
        combiner = self.combiner() if reader.peek() == "(" else None
        kind = "" if combiner else reader.word("a combiner")
        reader.expect("into")
        results = [self._local()]
        while reader.accept(","):
            results.append(self._local())
        if combiner is None:
            combiner = simple_combiner(kind, self.locals[results[0]])
        return Reduction(values, tuple(initial), combiner, tuple(results))

    def combiner(self) -> Combiner:
        reader = self.reader
        sides: list[tuple[str, ...]] = []
        for _ in range(2):
            reader.expect("(")
            sides.append(reader.words())
            reader.expect(")")
        reader.expect("{")
        body: list[Compute | Constant] = []
        while reader.peek().startswith("%"):
            operation = self.operation()
            if not isinstance(operation, (Compute, Constant)):
                raise reader.wrong("only computations in a combiner")
            body.append(operation)
        reader.expect("}")
        reader.expect("giving")
        return Combiner(sides[0], sides[1], tuple(body), reader.words())
