"""Sums of products in registers: the inner loop of contractions and of attention.

A tile is `rows x vectors` accumulators that stay in registers for a whole run of terms.
Each term broadcasts one element a row from the left operand and loads the vectors from the
right one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from headrace.base.dtypes import DType
from headrace.targets.cpu.entry import divide
from headrace.targets.cpu.ir_text import Function, Value, constant, integer, vector_type
from headrace.targets.cpu.machine import Machine
from headrace.targets.cpu.storage import decode, memory_type

UNROLL = 4
"""Terms that are written out."""

_PREFETCH_BYTES = 512
_PARTIAL_TERMS = 64
FEW_SUMS = 8
"""Up to so many accumulators there are registers for totals beside them."""


@dataclass(frozen=True)
class Piece:
    """Columns that one vector holds: from `lane` of panel `panel`, `width` of them."""

    panel: int
    lane: int
    width: int


@dataclass(frozen=True)
class Strip:
    """How the elements of one operand follow each other.

    Attributes:
        dtype: in memory; narrow floats are widened as they are loaded.
        step: bytes from one term to the next.
    """

    dtype: DType
    step: Value


@dataclass(frozen=True)
class Ahead:
    """What is fetched into the second cache meanwhile: the panel that comes next.

    All tiles that pass over a panel share in it, each as much as it has rows.

    Attributes:
        pointer: where the tile's share begins.
        count, rows: the tile's rows and those of all tiles.
    """

    pointer: Value
    count: int
    rows: Value

    def share(self, f: Function, size_bytes: Value, *, up: bool = False) -> Value:
        """The tile's share of so many bytes, rounded down or `up`."""
        whole = f.mul(size_bytes, self.count)
        if up:
            whole = f.sub(f.add(whole, self.rows), 1)
        return divide(f, whole, self.rows, quotient=True, positive=True)

    def moved(self, f: Function, size_bytes: Value) -> Ahead:
        """The same, when the panel is read on by so many bytes."""
        place = f.offset(self.pointer, self.share(f, size_bytes))
        return Ahead(place, self.count, self.rows)


def widened(f: Function, machine: Machine, dtype: DType, address: Value, width: int) -> Value:
    """Elements that stand side by side, as f32."""
    raw = f.load(vector_type(memory_type(dtype, machine), width), address, dtype.size_bytes)
    return decode(f, dtype, raw, machine)


def zeros(
    rows: int, pieces: Sequence[Piece], start: float = 0.0, element: str = "float"
) -> list[Value]:
    """Sums before the first term, row by row."""
    return [constant(vector_type(element, p.width), start) for _ in range(rows) for p in pieces]


_Fetch: TypeAlias = tuple[Value, Value]
"""From where on, and bytes from one term to the next."""


@dataclass(frozen=True)
class Tile:
    """The sums of one register tile.

    Attributes:
        function, machine: where the code goes.
        pieces: the vectors of each row.
        left, right: how elements follow each other.
        ahead: what to fetch meanwhile.
        cut: whether long sums are sums of partial sums, where the machine's sums need not
            be in order. All tiles of a product say the same: an element's rounding must not
            depend on whether a whole tile or the rest of one holds it.
    """

    function: Function
    machine: Machine
    pieces: Sequence[Piece]
    left: Strip
    right: Strip
    ahead: Ahead | None = None
    cut: bool = False

    def add(
        self,
        lefts: Sequence[Value],
        rights: Mapping[int, Value],
        size: Value,
        sums: Sequence[Value],
        *,
        whole_steps: bool = False,
    ) -> list[Value]:
        """The sums with `size` more terms.

        Args:
            lefts: where each row's first element stands.
            rights: the same of each panel.
            sums: before, row by row.
            whole_steps: a size that is not known is a multiple of `UNROLL`.
        """
        f, known, acc = self.function, size.constant, list(sums)

        fetch: _Fetch | None = None
        if self.ahead is not None:
            fetch = self.ahead.pointer, self.ahead.share(f, self.right.step, up=True)

        def steps(k: Value, carried: list[Value], count: int) -> list[Value]:
            return self._steps(lefts, rights, k, count, carried, fetch)

        if known is not None:
            whole = integer(known - known % UNROLL)
        else:
            whole = f.binary("and", size, -UNROLL)
        start = integer(0)
        long = known is not None and known >= 2 * _PARTIAL_TERMS
        if known is not None and long and self.cut and not self.machine.ordered_sums:
            start = integer(known - known % _PARTIAL_TERMS)
            acc = self._partial_sums(start, acc, steps)
        acc = f.loop(start, whole, UNROLL, lambda k, c: steps(k, c, UNROLL), acc)
        if known is not None:
            return steps(whole, acc, known % UNROLL) if known % UNROLL else acc
        if whole_steps:
            return acc
        return f.loop(whole, size, 1, lambda k, c: steps(k, c, 1), acc)

    def _partial_sums(
        self,
        whole: Value,
        acc: list[Value],
        steps: Callable[[Value, list[Value], int], list[Value]],
    ) -> list[Value]:
        """Terms 0 to `whole` as sums of partial sums: a product with few rows adds long
        chains into few registers, whose rounding errors this keeps short (784 terms: at
        most 1.2e-6 from f64 in one chain, 0.7e-6 so)."""
        f = self.function

        def block(first: Value, totals: list[Value]) -> list[Value]:
            zero = [constant(v.type, 0.0) for v in totals]
            end = f.add(first, _PARTIAL_TERMS)
            part = f.loop(first, end, UNROLL, lambda k, c: steps(k, c, UNROLL), zero)
            return [f.add(t, p) for t, p in zip(totals, part, strict=True)]

        return f.loop(0, whole, _PARTIAL_TERMS, block, acc)

    def _steps(
        self,
        lefts: Sequence[Value],
        rights: Mapping[int, Value],
        k: Value,
        count: int,
        acc: list[Value],
        fetch: _Fetch | None,
    ) -> list[Value]:
        """`count` terms of the sums from term `k`."""
        f, pieces = self.function, self.pieces
        a_step, b_step = self.left.step, self.right.step
        a_from, b_from = f.mul(k, a_step), f.mul(k, b_step)
        a_at = [f.offset(p, a_from) for p in lefts]
        b_at = {q: f.offset(p, b_from) for q, p in rights.items()}
        known_b = b_step.constant
        if known_b is not None and known_b <= 256 and count == UNROLL:
            for pointer in b_at.values():
                for line in range(0, known_b * count, 64):
                    f.prefetch(f.offset(pointer, line + _PREFETCH_BYTES))
            if fetch is not None:
                pointer, step = fetch
                f.prefetch(f.offset(pointer, f.mul(k, step)), locality=2)
        size_bytes = self.right.dtype.size_bytes
        for u in range(count):
            vectors = [
                widened(
                    f,
                    self.machine,
                    self.right.dtype,
                    f.offset(b_at[p.panel], f.add(f.mul(b_step, u), p.lane * size_bytes)),
                    p.width,
                )
                for p in pieces
            ]
            for row, pointer in enumerate(a_at):
                address = f.offset(pointer, f.mul(a_step, u))
                wide = {w: self._spread(address, w) for w in sorted({p.width for p in pieces})}
                for position, vector in enumerate(vectors):
                    at = row * len(pieces) + position
                    acc[at] = f.fma(wide[pieces[position].width], vector, acc[at])
        return acc

    def _spread(self, address: Value, width: int) -> Value:
        """An element of the left operand in all lanes; a narrow one is widened there."""
        f, dtype = self.function, self.left.dtype
        raw = f.load(memory_type(dtype, self.machine), address, dtype.size_bytes)
        return decode(f, dtype, f.splat(raw, width), self.machine)
