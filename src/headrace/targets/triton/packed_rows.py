"""Rows of a packed weight that are summed over, a block each: what one token multiplies.

See `base/exponent_codes.py`. A run of bytes of codes gives two terms, the elements of their
low halves and those of their high halves, so shifts are the same for all lanes and no place
is divided by the size of a block. Beside vectors of bf16 a word of codes and two of kept bytes
give eight terms, two values for each shift and mask: 7 instructions a value with the product
itself, 10 in bytes. Codes alone are looked at: what escapes counts there with
exponent 15 above the base, finite and of its sign. The few escapes of a row are mended after
that: what they are is added, what they counted for taken away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from headrace.base.exponent_codes import ESCAPE, MOST_ESCAPES, NOWHERE
from headrace.base.symbols import ONE, ZERO, Expr
from headrace.kernel.description import Kernel, Load, Operand, Phase
from headrace.kernel.lanes.indices import Indices
from headrace.kernel.lanes.machine import Value
from headrace.kernel.lanes.scalar import Scalar
from headrace.kernel.products import is_contiguous
from headrace.targets.triton.schedule import power_of_two
from headrace.targets.triton.source import Text
from headrace.targets.triton.tiles import TileWriter

Fold: TypeAlias = Callable[[], "list[Scalar]"]
"""Evaluates the values that a phase folds, over the tile."""


def packed_load(kernel: Kernel, phase: Phase) -> Load | None:
    """The load of a packed weight whose blocks are what each row sums over, if there is one."""
    reduction, axes = phase.reduction, phase.reduction_axes
    if reduction is None or reduction.combiner.kind != "add" or len(axes) != 1:
        return None
    packed = [
        o
        for o in phase.body
        if isinstance(o, Load) and kernel.operands[o.operand].layout.codes is not None
    ]
    if len(packed) != 1 or packed[0].bounded:
        return None
    (load,), (axis,) = packed, axes
    operand = kernel.operands[load.operand]
    codes = operand.layout.codes
    assert codes is not None
    whole = axis.size.is_constant and axis.size.value == codes.block
    return load if whole and is_contiguous(operand, load.index, axis.name) else None


def read_in_words(kernel: Kernel, phase: Phase, packed: Load) -> dict[int, Expr] | None:
    """Where to read what stands beside a packed weight of bf16 four elements at a time: the first
    element by operand. None where not all can be read so."""
    (axis,) = phase.reduction_axes
    if kernel.operands[packed.operand].dtype.size_bytes != 2:
        return None
    origin = {a.name: 0 for a in kernel.outer if a.size == ONE} | {axis.name: 0}
    loads = [o for o in phase.body if isinstance(o, Load)]
    found: dict[int, Expr] = {}
    for load in loads:
        if load is packed or not any(axis.name in i.names for i in load.index):
            continue
        operand = kernel.operands[load.operand]
        first = operand.layout.element_offset(load.index).substitute(origin)
        plain = operand.layout.codes is None and not load.bounded
        alone = sum(o.operand == load.operand for o in loads) == 1
        along = is_contiguous(operand, load.index, axis.name)
        if not (plain and alone and along and operand.dtype.name == "bf16"):
            return None
        if not first.names <= set(kernel.dims) or first % 4 != ZERO:
            return None
        found[load.operand] = first
    return found


def two_values(kept: str, code: str, base: int, half: int = 0) -> tuple[str, str]:
    """Values 0 and 2, then 1 and 3, of a word of kept bytes, each two as bf16 in a word.

    Args:
        code: a word whose bytes have their codes in this half.
    """
    base = base << 23 | base << 7
    texts: list[str] = []
    for odd in range(2):
        up = 7 - 8 * odd - 4 * half
        moved = f"{code} << {up}" if up > 0 else f"{code} >> {-up}"
        exponents = f"(({moved}) & 0x7800780) + {base}"
        rest, sign = (f"({kept} >> 8)", kept) if odd else (kept, f"({kept} << 8)")
        texts.append(f"({rest} & 0x7F007F) | ({exponents}) | ({sign} & 0x80008000)")
    return texts[0], texts[1]


def _f32_bits(word: str, high: int) -> str:
    """The f32 that half a word is as bf16."""
    return f"{word} & 0xFFFF0000" if high else f"{word} << 16"


class PackedRow:
    """The block of each row of a tile.

    Made where it is written that escapes are read; nothing of it waits for other launches.
    """

    def __init__(
        self,
        writer: TileWriter,
        number: int,
        operand: Operand,
        first: Text,
        edge: str | None,
        bind: Callable[[Value], None],
        beside: Mapping[int, Expr] | None,
    ) -> None:
        """Writes where blocks begin.

        Args:
            number: of the packed operand.
            first: offset of each row's first element.
            edge: where a row is inside, if not all are.
            bind: makes the axis that is summed over stand for positions in a block.
            beside: `read_in_words`.
        """
        codes = operand.layout.codes
        assert codes is not None
        self._writer, self._number, self._edge, self._bind = writer, number, edge, bind
        self._codes, self._width = codes, operand.dtype.size_bytes
        self._beside: dict[int, str] | None = None
        if beside is not None:
            indices = Indices(
                writer, sorted({name for e in beside.values() for name in e.names})
            )
            self._beside = {n: indices.value(e).handle.name for n, e in beside.items()}
        block = (
            f"({first.name} // {codes.block}).to(tl.int64) * {codes.block_bytes(self._width)}"
        )
        self._block = writer.define(f"p{number} + {block}", block=first.block).name
        self.escape_lanes = power_of_two(codes.escapes, 1, MOST_ESCAPES) if codes.escapes else 0

    @property
    def values(self) -> int:
        """Of a run that each lane of a tile has."""
        return 2 if self._beside is None else 8

    def read_lists(self) -> None:
        """Reads the lists of escapes: behind the first run, which would wait for them."""
        if not self.escape_lanes:
            return
        writer, codes = self._writer, self._codes
        span = self._span = f"tl.arange(0, {self.escape_lanes})[None, :]"
        words = self._words(codes.positions_at(self._width))
        listed = f"{span} < {codes.escapes}"
        if self._edge is not None:
            listed = f"({listed}) & {self._edge}"
        listed = writer.define(listed, block=3).name
        place = f"tl.load({words} + {span}, mask={listed}, other={NOWHERE})"
        self._places = writer.define(f"{place}.to({writer.word})", block=3)
        high = f"tl.load({words} + {codes.escapes} + {span}, mask={listed}, other=0)"
        self._escaped = writer.define(f"{high}.to(tl.uint32)", block=3).name

    def _words(self, at: int, bits: int = 16) -> str:
        return f"({self._block} + {at}).to(tl.pointer_type(tl.uint{bits}), bitcast=True)"

    def terms(
        self, start: str, lanes: int, whole: bool
    ) -> list[Callable[[Fold], list[Scalar]]]:
        """Reads a run of `lanes` elements from `start`; what is folded of each part of them.

        The tile has a lane for `values` of them. `whole`: all of the run is inside.
        """
        writer, values = self._writer, self.values
        first = str(int(start) // values) if start.isdecimal() else f"{start} // {values}"
        span = f"tl.arange(0, {lanes // values}).to({writer.word})[None, :]"
        line = writer.define(f"{first} + {span}", block=2).name
        writer.edges.pop(2, None)
        if not whole:
            inside = writer.define(f"{line} < {self._codes.block // values}", block=2)
            writer.edges[2] = inside.name
        active = " & ".join(name for _, name in sorted(writer.edges.items()))
        suffix = f", mask={active}, other=0" if active else ""

        def load(place: str) -> str:
            return writer.define(f"tl.load({place}{suffix})", block=3).name

        return self._in_words(line, load) if values == 8 else self._in_bytes(line, load)

    def _in_words(
        self, line: str, load: Callable[[str], str]
    ) -> list[Callable[[Fold], list[Scalar]]]:
        """Terms of a word of codes and two of kept bytes; what is beside them in 64 bits."""
        writer, codes = self._writer, self._codes
        pairs = load(f"{self._words(codes.low_bytes(2), 32)} + {line}")
        found: list[Callable[[Fold], list[Scalar]]] = []
        for half in range(2):
            place = f"{line} // 4 * 8 + {line} % 4 + {4 * half}"
            at = writer.define(place, block=2).name
            kept = load(f"{self._words(0, 32)} + {at}")
            both = [
                writer.define(text, block=3).name
                for text in two_values(kept, pairs, codes.base, half)
            ]
            found += self._term_of_word(at, both, load)
        return found

    def _term_of_word(
        self, at: str, both: Sequence[str], load: Callable[[str], str]
    ) -> list[Callable[[Fold], list[Scalar]]]:
        """The terms of four values.

        Args:
            at: which word of kept bytes.
            both: values 0 and 2, and 1 and 3, as halves of a word.
        """
        writer, beside = self._writer, self._beside or {}
        words: dict[int, list[str]] = {}

        def read() -> None:
            # Not before the wait for others.
            place = writer.define(f"tl.broadcast_to({at}, {writer.shape})", block=3).name
            for number, first in beside.items():
                pointers = f"(p{number} + {first}).to(tl.pointer_type(tl.uint64), bitcast=True)"
                four = load(f"{pointers} + {place}")
                words[number] = [
                    writer.define(f"({four} >> {shift}).to(tl.uint32)", block=3).name
                    for shift in (0, 32)
                ]

        def term(value: int) -> Callable[[Fold], list[Scalar]]:
            def found(fold: Fold) -> list[Scalar]:
                if not value:
                    read()
                for number, (low, high) in words.items():
                    half = _f32_bits(high if value > 1 else low, value % 2)
                    bits = writer.define(half, block=3).name
                    writer.given[number] = Text(writer.of_f32_bits(number, bits), 3)
                bits = _f32_bits(both[value % 2], value // 2)
                folded = self._term(writer.named(f"{at} * 4 + {value}", 2), bits)(fold)
                for number in words:
                    del writer.given[number]
                return folded

            return found

        return [term(value) for value in range(4)]

    def _in_bytes(
        self, byte: str, load: Callable[[str], str]
    ) -> list[Callable[[Fold], list[Scalar]]]:
        """Terms of the low halves of a run of bytes of codes, and of the high ones."""
        writer, codes, width = self._writer, self._codes, self._width
        pair = load(f"{self._block} + {codes.low_bytes(width)} + {byte}")
        terms: list[Callable[[Fold], list[Scalar]]] = []
        for half in range(2):
            place = f"{byte} // 16 * 32 + {byte} % 16 + {16 * half}"
            within = writer.named(place, 2)
            at = within.handle.name
            kept = load(f"{self._block} + {at}")
            # The sign spreads over the exponent, which is cut away.
            signed = (
                f"{kept}.to(tl.int8, bitcast=True).to(tl.int32).to(tl.uint32, bitcast=True)"
            )
            code = f"({pair}.to(tl.uint32) << {23 - 4 * half}) & 0x7800000"
            bits = f"(({signed} << 16) & 0x807F0000) + ({code}) + {codes.base << 23}"
            if width == 4:
                rest = load(f"{self._words(codes.block)} + {at}")
                bits = f"({bits}) | {rest}.to(tl.uint32)"
            terms.append(self._term(within, bits))
        return terms

    def _term(self, within: Value, bits: str) -> Callable[[Fold], list[Scalar]]:
        def term(fold: Fold) -> list[Scalar]:
            writer, number = self._writer, self._number
            self._bind(within)
            whole = writer.define(bits, block=3).name
            writer.given[number] = Text(writer.of_f32_bits(number, whole), 3)
            writer.beside_packed = True
            found = fold()
            del writer.given[number]
            writer.beside_packed = False
            return found

        return term

    def escapes(self, fold: Fold) -> list[Scalar]:
        """What mends each escape: its term less the one that its code gave.

        Where that was infinite or no number the other factor is, and the sum is of the
        right sign already: there the term itself is added.
        """
        writer, codes, places = self._writer, self._codes, self._places
        inside = writer.define(f"{places.name} != {NOWHERE}", block=3).name
        writer.edges[2] = inside
        rest = ""
        if self._width == 4:
            low = f"{self._words(codes.block)} + {places.name}"
            rest = f" | tl.load({low}, mask={inside}, other=0).to(tl.uint32)"
        counted = f"(({self._escaped} & 0x8000) << 16) + ({self._span} << 16)"
        counted = f"({counted} + {codes.base + ESCAPE << 23}){rest}"
        both: list[list[Scalar]] = []
        for text in (f"({self._escaped} << 16){rest}", counted):
            line = Value(writer, writer.index_type, places)
            both.append(self._term(line, text)(fold))
        return [_mended(*pair) for pair in zip(*both, strict=True)]


def _mended(term: Scalar, counted: Scalar) -> Scalar:
    value, before = term.value, counted.value
    finite = (before - before).eq(0)
    return Scalar(term.dtype, (finite.select(value - before, value),))


def names_of(terms: Sequence[Scalar]) -> list[str]:
    """The names of tiles in the source."""
    return [term.value.handle.name for term in terms]
