"""Sums of products of narrow integers in registers: exact, some terms at a time.

`Terms` is the loop over terms, `IntegerTile` two of them an instruction; four bytes an
instruction are in `byte_products.py`.

i8, u8 and i16 are all i16 once they are widened, and `pmaddwd` multiplies pairs of i16 and
adds the two products in i32: 32 multiply-adds an instruction with AVX2, twice the f32 rate.
Nothing saturates (`pmaddubsw` would), and i32 sums wrap, so the order of the terms does not
matter. Panels stay as f32's are, one row of columns for each term: two rows are interleaved
as they are loaded, which is shared by all rows of the tile. The left operand's rows are
widened once a tile and run, so that a pair of its terms is one broadcast of 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from headrace.base.dtypes import DType
from headrace.targets.cpu.ir_text import Function, Value, constant, integer, vector_type
from headrace.targets.cpu.products import UNROLL, Piece, Strip

_MULTIPLY_PAIRS = {8: "llvm.x86.avx2.pmadd.wd", 4: "llvm.x86.sse2.pmadd.wd"}
"""By the number of sums. Vectors of fewer are multiplied in i32."""

_TERM_BYTES = 2
_PREFETCH_BYTES = 512

_Step: TypeAlias = Callable[[Value, int, Sequence[Value]], list[Value]]


def extended(f: Function, dtype: DType, raw: Value, element: str) -> Value:
    """Integers as wider ones: by their sign where they have one."""
    return f.cast("sext" if dtype.kind == "signed" else "zext", raw, element)


def widen_row(f: Function, strip: Strip, source: Value, target: Value, size: int) -> None:
    """`size` terms of a row to i16, side by side at `target`."""
    dtype = strip.dtype
    side_by_side = strip.step.constant == dtype.size_bytes
    start = 0
    for width in (16, 1) if side_by_side else (1,):
        stop = size - size % width

        def terms(k: Value, _: list[Value], width: int = width) -> None:
            address = f.offset(source, f.mul(k, strip.step))
            raw = f.load(vector_type(f"i{dtype.bits}", width), address, dtype.size_bytes)
            place = f.element(target, k, _TERM_BYTES)
            f.store(extended(f, dtype, raw, "i16"), place, _TERM_BYTES)

        f.loop(start, stop, width, terms)
        start = stop


@dataclass(frozen=True)
class Terms:
    """The loop over the terms of one register tile's sums.

    Attributes:
        function: where the code goes.
        right: how the right operand's elements follow each other.
        at_once: terms that one step takes.
        unrolled: terms that are written out.
        most_bytes: the longest step of the right operand that is fetched ahead.
    """

    function: Function
    right: Strip
    at_once: int
    unrolled: int
    most_bytes: int

    def run(
        self, rights: Mapping[int, Value], size: int, step: _Step, sums: Sequence[Value]
    ) -> list[Value]:
        """The sums with `size` more terms, `step(first term, terms, sums)` by step."""
        f = self.function
        whole = size - size % self.unrolled

        def unrolled(k: Value, carried: list[Value]) -> list[Value]:
            self._prefetch(rights, k)
            for first in range(0, self.unrolled, self.at_once):
                carried = step(f.add(k, first), self.at_once, carried)
            return carried

        acc = f.loop(0, whole, self.unrolled, unrolled, list(sums))
        for first in range(whole, size, self.at_once):
            acc = step(integer(first), min(self.at_once, size - first), acc)
        return acc

    def _prefetch(self, rights: Mapping[int, Value], k: Value) -> None:
        f, step = self.function, self.right.step
        if step.constant is None or step.constant > self.most_bytes:
            return
        for pointer in rights.values():
            start = f.offset(pointer, f.mul(k, step))
            for line in range(0, self.unrolled * step.constant, 64):
                f.prefetch(f.offset(start, _PREFETCH_BYTES + line))


@dataclass(frozen=True)
class IntegerTile:
    """The sums of one register tile.

    Attributes:
        function: where the code goes.
        pieces: the vectors of each row.
        right: how the right operand's elements follow each other. The left operand's are
            i16, side by side.
    """

    function: Function
    pieces: Sequence[Piece]
    right: Strip

    def add(
        self,
        lefts: Sequence[Value],
        rights: Mapping[int, Value],
        size: int,
        sums: Sequence[Value],
    ) -> list[Value]:
        """The sums with `size` more terms; see `products.Tile.add`."""
        terms = Terms(self.function, self.right, 2, UNROLL, 64)
        return terms.run(rights, size, partial(self._pair, lefts, rights), sums)

    def _pair(
        self,
        lefts: Sequence[Value],
        rights: Mapping[int, Value],
        k: Value,
        count: int,
        acc: Sequence[Value],
    ) -> list[Value]:
        """Terms k and k + 1; of one that stands alone (`count` 1) the other is zero."""
        f = self.function
        from_right = f.mul(k, self.right.step)
        vectors = [
            self._right_pair(f.offset(rights[p.panel], from_right), p, count)
            for p in self.pieces
        ]
        made: list[Value] = []
        for row, pointer in enumerate(lefts):
            address = f.element(pointer, k, _TERM_BYTES)
            if count == 2:
                pair = f.load("i32", address, _TERM_BYTES)
            else:
                pair = f.cast("zext", f.load("i16", address, _TERM_BYTES), "i32")
            for position, vector in enumerate(vectors):
                width = self.pieces[position].width
                before = acc[row * len(vectors) + position]
                made.append(f.add(before, self._products(pair, vector, width)))
        return made

    def _right_pair(self, address: Value, piece: Piece, count: int) -> Value:
        """Two rows of columns, interleaved, in i16."""
        f, dtype = self.function, self.right.dtype
        type_ = vector_type(f"i{dtype.bits}", piece.width)
        start = f.offset(address, piece.lane * dtype.size_bytes)
        first = f.load(type_, start, dtype.size_bytes)
        second = constant(type_, 0)
        if count == 2:
            second = f.load(type_, f.offset(start, self.right.step), dtype.size_bytes)
        if piece.width == 1:
            both = vector_type(f"i{dtype.bits}", 2)
            pair = f.insert(f.insert(constant(both, 0), first, 0), second, 1)
        else:
            lanes = [n for c in range(piece.width) for n in (c, c + piece.width)]
            pair = f.shuffle(first, second, lanes)
        return extended(f, dtype, pair, "i16")

    def _products(self, pair: Value, vector: Value, width: int) -> Value:
        """For each column the sum of the pair's two products."""
        f = self.function
        left = f.bitcast(f.splat(pair, width), vector_type("i16", 2 * width))
        if width in _MULTIPLY_PAIRS:
            name = _MULTIPLY_PAIRS[width]
            return f.intrinsic(name, vector_type("i32", width), left, vector)
        both = f.mul(f.cast("sext", left, "i32"), f.cast("sext", vector, "i32"))
        even, odd = (
            f.extract(both, n) if width == 1 else f.shuffle(both, None, range(n, 2 * width, 2))
            for n in (0, 1)
        )
        return f.add(even, odd)
