"""Sums of products of bytes in registers: four terms an instruction, where the CPU has VNNI.

`vpdpbusd` multiplies four unsigned by four signed bytes and adds the products to an i32: twice
what `pmaddwd` does, without an addition of its own, and nothing saturates. One operand has to be
unsigned and the other signed. Where both are the same, the left one's bytes get 128 added (a flip
of the highest bit), and the sums are too large by 128 times the sum of the right operand's column:
one more sum for each vector of columns, of the right operand with bytes of 128 alone, is taken
from all rows at the end. Panels stay as they are, a row of columns for each term: four rows are
transposed as they are loaded, which is shared by all rows of the tile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from headrace.targets.cpu.integer_products import Terms, extended
from headrace.targets.cpu.ir_text import (
    Function,
    Value,
    constant,
    vector_type,
    width_of,
)
from headrace.targets.cpu.products import Piece, Strip, zeros

_DOT_PRODUCTS = {8: "llvm.x86.avx512.vpdpbusd.256", 4: "llvm.x86.avx512.vpdpbusd.128"}
"""By the number of sums; also the names of AVX-VNNI's. Vectors of fewer are multiplied in i32."""

_TERMS = 4
_UNROLL = 16
_PANEL_BYTES = 16
_HIGH_BYTE, _HIGH_BITS = -0x80, -0x7F7F7F80
"""0x80 in a byte and in each of four."""


@dataclass(frozen=True)
class ByteTile:
    """The sums of one register tile.

    Attributes:
        function: where the code goes.
        pieces: the vectors of each row.
        left, right: i8 or u8. The left operand's elements stand side by side.
    """

    function: Function
    pieces: Sequence[Piece]
    left: Strip
    right: Strip

    @property
    def _flips(self) -> bool:
        return self.left.dtype == self.right.dtype

    def add(
        self,
        lefts: Sequence[Value],
        rights: Mapping[int, Value],
        size: int,
        sums: Sequence[Value],
    ) -> list[Value]:
        """The sums with `size` more terms; see `products.Tile.add`."""
        f, count = self.function, len(sums)
        before = list(sums)
        if self._flips:
            before += zeros(1, self.pieces, 0, "i32")
        terms = Terms(f, self.right, _TERMS, _UNROLL, _PANEL_BYTES)
        acc = terms.run(rights, size, partial(self._terms, lefts, rights), before)
        over = acc[count:]
        if not over:
            return acc
        return [f.sub(total, over[n % len(over)]) for n, total in enumerate(acc[:count])]

    def _terms(
        self,
        lefts: Sequence[Value],
        rights: Mapping[int, Value],
        k: Value,
        count: int,
        acc: Sequence[Value],
    ) -> list[Value]:
        """Terms k to k + count; those that lack of four are zero on the right."""
        f = self.function
        below = f.mul(k, self.right.step)
        vectors = [
            self._columns(f.offset(rights[p.panel], below), p, count) for p in self.pieces
        ]
        made: list[Value] = []
        for row, pointer in enumerate(lefts):
            word = self._word(f.offset(pointer, k), count)
            for position, vector in enumerate(vectors):
                before = acc[row * len(vectors) + position]
                made.append(self._dot(before, word, vector, flips=self._flips))
        for before, vector in zip(acc[len(made) :], vectors, strict=False):
            made.append(self._dot(before, constant("i32", _HIGH_BITS), vector, flips=False))
        return made

    def _word(self, address: Value, count: int) -> Value:
        """The left operand's bytes of `count` terms."""
        f = self.function
        if count == _TERMS:
            return f.load("i32", address, 1)
        word = constant("i32", 0)
        for n in range(count):
            byte = f.cast("zext", f.load("i8", f.offset(address, n), 1), "i32")
            word = f.binary("or", word, f.binary("shl", byte, 8 * n))
        return word

    def _columns(self, address: Value, piece: Piece, count: int) -> Value:
        """For each column of a piece its `count` terms side by side."""
        f, width = self.function, piece.width
        if count == _TERMS and width == 8 and self.right.step.constant == _PANEL_BYTES:
            two_rows = vector_type("i8", 2 * _PANEL_BYTES)
            first = f.load(two_rows, address, 1)
            second = f.load(two_rows, f.offset(address, 2 * _PANEL_BYTES), 1)
            lanes = [
                r * _PANEL_BYTES + piece.lane + c for c in range(width) for r in range(_TERMS)
            ]
            return f.shuffle(first, second, lanes)
        type_ = vector_type("i8", width)
        start = f.offset(address, piece.lane)
        rows = [
            f.load(type_, f.offset(start, f.mul(self.right.step, r)), 1)
            if r < count
            else constant(type_, 0)
            for r in range(_TERMS)
        ]
        if width == 1:
            column = constant(vector_type("i8", _TERMS), 0)
            for n, row in enumerate(rows):
                column = f.insert(column, row, n)
            return column
        first, second = (f.shuffle(rows[n], rows[n + 1], range(2 * width)) for n in (0, 2))
        lanes = [r * width + c for c in range(width) for r in range(_TERMS)]
        return f.shuffle(first, second, lanes)

    def _dot(self, before: Value, word: Value, vector: Value, *, flips: bool) -> Value:
        """`before` and for each column the sum of its four products with the word's bytes."""
        f = self.function
        width = width_of(vector.type) // _TERMS
        left = f.bitcast(f.splat(word, width), vector.type)
        if flips:
            # As bytes: LLVM would flip words in a general register, from where spreading is slow.
            left = f.binary("xor", left, constant(left.type, _HIGH_BYTE))
        unsigned = self.right.dtype.kind == "unsigned"
        if width in _DOT_PRODUCTS:
            operands = (vector, left) if unsigned else (left, vector)
            return f.intrinsic(
                _DOT_PRODUCTS[width], vector_type("i32", width), before, *operands
            )
        # The left operand's bytes have the other sign.
        wide = f.cast("sext" if unsigned else "zext", left, "i32")
        products = f.mul(wide, extended(f, self.right.dtype, vector, "i32"))
        for n in range(_TERMS):
            before = f.add(
                before,
                f.extract(products, n)
                if width == 1
                else f.shuffle(products, None, range(n, _TERMS * width, _TERMS)),
            )
        return before
