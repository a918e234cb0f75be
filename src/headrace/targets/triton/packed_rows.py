"""Rows of a packed weight that are summed over, a block each: what one token multiplies.

See `base/exponent_codes.py`. A run of bytes of codes gives two terms, the elements of their
low halves and those of their high halves, so shifts are the same for all lanes and no place
is divided by the size of a block. Codes alone are looked at: what escapes counts there with
exponent 15 above the base, finite and of its sign. The few escapes of a row are mended after
that: what they are is added, what they counted for taken away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from headrace.base.exponent_codes import ESCAPE, MOST_ESCAPES, NOWHERE
from headrace.kernel.description import Kernel, Load, Operand, Phase
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
    ) -> None:
        """Writes where blocks begin, and reads their lists of escapes.

        Args:
            number: of the packed operand.
            first: offset of each row's first element.
            edge: where a row is inside, if not all are.
            bind: makes the axis that is summed over stand for positions in a block.
        """
        codes = operand.layout.codes
        assert codes is not None
        self._writer, self._number, self._edge, self._bind = writer, number, edge, bind
        self._codes, self._width = codes, operand.dtype.size_bytes
        block = (
            f"({first.name} // {codes.block}).to(tl.int64) * {codes.block_bytes(self._width)}"
        )
        self._block = writer.define(f"p{number} + {block}", block=first.block).name
        self.escape_lanes = power_of_two(codes.escapes, 1, MOST_ESCAPES) if codes.escapes else 0
        if self.escape_lanes:
            span = self._span = f"tl.arange(0, {self.escape_lanes})[None, :]"
            words = self._words(codes.positions_at(self._width))
            listed = f"{span} < {codes.escapes}"
            if edge is not None:
                listed = f"({listed}) & {edge}"
            listed = writer.define(listed, block=3).name
            place = f"tl.load({words} + {span}, mask={listed}, other={NOWHERE})"
            self._places = writer.define(f"{place}.to({writer.word})", block=3)
            high = f"tl.load({words} + {codes.escapes} + {span}, mask={listed}, other=0)"
            self._escaped = writer.define(f"{high}.to(tl.uint32)", block=3).name

    def _words(self, at: int) -> str:
        return f"({self._block} + {at}).to(tl.pointer_type(tl.uint16), bitcast=True)"

    def halves(
        self, start: str, lanes: int, whole: bool
    ) -> list[Callable[[Fold], list[Scalar]]]:
        """Reads a run of `lanes` elements from `start`; what is folded of each half of them.

        The tile has half as many lanes. `whole`: all of the run is inside.
        """
        writer, codes, width = self._writer, self._codes, self._width
        first = str(int(start) // 2) if start.isdecimal() else f"{start} // 2"
        lanes //= 2
        span = f"tl.arange(0, {lanes}).to({writer.word})[None, :]"
        byte = writer.define(f"{first} + {span}", block=2).name
        writer.edges.pop(2, None)
        if not whole:
            inside = writer.define(f"{byte} < {codes.block // 2}", block=2)
            writer.edges[2] = inside.name
        active = " & ".join(name for _, name in sorted(writer.edges.items()))
        suffix = f", mask={active}, other=0" if active else ""

        def load(place: str) -> str:
            return writer.define(f"tl.load({place}{suffix})", block=3).name

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
