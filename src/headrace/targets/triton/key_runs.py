"""Which tiles of keys a tile of rows meets, and what is known about the scores of each.

Of a mask of places (`kernel/visible_keys.py`) the bounds of all rows are known before the first
product: tiles that no row sees are left out, tiles that all rows see in whole have no mask, and
only those that a bound crosses look at each key's place. 2048 causal rows leave out half.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from headrace.kernel.lanes.machine import Value
from headrace.kernel.softmax_rows import SoftmaxRows, Tree, linearise
from headrace.kernel.visible_keys import Bound, VisibleKeys, visible_keys
from headrace.targets.triton.source import Text
from headrace.targets.triton.tiles import TileLowering

_FAR = 192.0
"""Of a score that is so much less than the greatest, the exponential (of e, or of 2) is 0."""


@dataclass(frozen=True)
class Run:
    """Tiles of keys, one after the other.

    Attributes:
        begin, end: of `range`, where the loop's variable goes.
        scores: the scores of the keys.
        has_edge: the last tile may end behind the last key.
        start: the first key of a tile, where that is not the loop's variable.
        bounds: the first key that each row sees and the one behind its last, where it has
            them and the scores do not know: they are those of keys within.
    """

    begin: str
    end: str
    scores: Tree
    has_edge: bool
    start: str = ""
    bounds: tuple[str, str] = ("", "")


class KeyRuns:
    """The runs of a tile of rows.

    Args:
        lowering: has the rows bound, as the first dimension of tiles.
        name: of the kernel; functions beside it have names of their own.
        at_once: keys of a tile.
        apart: keys that all rows see have a run of their own.
        unit: what scores are multiplied by where they stand in `greatest`.
    """

    def __init__(
        self,
        lowering: TileLowering,
        name: str,
        found: SoftmaxRows,
        at_once: int,
        apart: bool,
        unit: float,
    ) -> None:
        self.lowering = lowering
        self.writer = lowering.writer
        self.name = name
        self.found = found
        self.at_once = at_once
        self.apart = apart
        self.unit = unit
        self.seen = visible_keys(found) if apart else None

    @property
    def last_rows_meet_most(self) -> bool:
        return self.seen is not None and bool(self.seen.last)

    def __iter__(self) -> Iterator[Run]:
        """In order; what is written for a run stands in the source before the next one."""
        found, size = self.found, self.found.keys
        if self.seen is not None:
            yield from self._within(self.seen)
        elif size.is_constant:
            whole = size.value // self.at_once * self.at_once
            if whole:
                yield Run("0", str(whole), found.scores, has_edge=False)
            if whole < size.value:
                yield Run(str(whole), str(size.value), found.scores, has_edge=True)
        else:
            keys = self._value_of_keys()
            whole = self._whole(keys) if self.apart else None
            if whole is not None:
                yield Run("0", _text(whole), found.scores, has_edge=False)
            yield Run(_text(whole) if whole else "0", _text(keys), found.scores, has_edge=True)

    def _within(self, seen: VisibleKeys) -> Iterator[Run]:
        zero, keys = self.lowering.indices.constant(0), self._value_of_keys()
        begin = sure_begin = zero
        end, sure_end = keys, self._whole(keys)
        bounds = ["", _text(keys)]
        if seen.first:
            first = self._bound(seen.first, "greater")
            bounds[0] = _text(first)
            begin = self._whole(_greater(self._over_rows(first, "less"), zero))
            sure_begin = _greater(self._over_rows(first, "greater") + (self.at_once - 1), zero)
            sure_begin = self._whole(sure_begin)
        if seen.last:
            last = self._bound(seen.last, "less") + 1
            bounds[1] = _text(_less(last, keys))
            end = _less(self._over_rows(last, "greater"), keys)
            sure_end = _greater(_less(self._over_rows(last, "less"), keys), zero)
            sure_end = self._whole(sure_end)
        edge = Run("", "", self.found.scores, has_edge=True)
        if seen.whole and math.isinf(seen.hidden):
            edge = replace(edge, scores=seen.scores, bounds=(bounds[0], bounds[1]))
        if seen.first:
            yield replace(edge, begin=_text(begin), end=_text(_less(sure_begin, end)))
        yield Run(_text(sure_begin), _text(sure_end), seen.scores, has_edge=False)
        rest = _greater(sure_begin, sure_end) if seen.first else sure_end
        yield replace(edge, begin=_text(rest), end=_text(end))
        if seen.hidden > -math.inf:
            met = _greater(self._whole(end + (self.at_once - 1)), begin)
            yield self._hidden(seen, begin, met, keys)

    def _hidden(self, seen: VisibleKeys, begin: Value, met: Value, keys: Value) -> Run:
        """What was left out, where a row has no score so great that hidden keys are nothing."""
        writer = self.writer
        hidden = seen.hidden * self.unit
        far = writer.named(f"tl.where(greatest - ({hidden!r}) >= {_FAR}, 1, 0)", 1)
        all_far = self._over_rows(far, "less").ne(0)
        behind = _greater(keys - met, self.lowering.indices.constant(0))
        count = all_far.select(behind * 0, begin + behind)
        start = f"tl.where(tile < {_text(begin)}, tile, tile - {_text(begin)} + {_text(met)})"
        return Run("0", _text(count), self.found.scores, has_edge=True, start=start)

    # -- values ---------------------------------------------------------------------------

    def _value_of_keys(self) -> Value:
        return self.lowering.indices.value(self.found.keys)

    def _whole(self, keys: Value) -> Value:
        """Keys of whole tiles; not of a negative number."""
        return keys / self.at_once * self.at_once

    def _bound(self, bounds: Sequence[Bound], kind: str) -> Value:
        """The tightest bound of each row."""
        values = [self._place(bound) for bound in bounds]
        result = values[0]
        for value in values[1:]:
            result = _less(result, value) if kind == "less" else _greater(result, value)
        return result

    def _place(self, bound: Bound) -> Value:
        place = self.lowering.indices.value(bound.place)
        if bound.tree is None:
            return place
        body, name = linearise(bound.tree)
        value = self.lowering.integer(body, name)
        # Whatever was loaded, sums of it and of places do not wrap.
        most = 1 << (40 if value.type == self.writer.index_type == "i64" else 30)
        value = _less(_greater(value, value.machine.constant(value.type, -most)), most)
        return place + value.to(self.writer.index_type)

    def _over_rows(self, value: Value, kind: str) -> Value:
        """The least or the greatest of a value of rows."""
        text: Text = value.handle
        if not text.block:
            return value
        function = f"{self.name}_{kind}_place"
        if not any(f"def {function}(" in f for f in self.writer.functions):
            operation = {"less": "minimum", "greater": "maximum"}[kind]
            line = f"return tl.{operation}(l, r)"
            self.writer.function(function, ("l", "r"), lambda: self.writer.line(line))
        rows = f"tl.reduce({text.name}, 1, {function})"
        return self.writer.named(f"tl.reduce({rows}, 0, {function})", 0)


def _less(left: Value, right: Value | int) -> Value:
    return left.lt(right).select(left, right)


def _greater(left: Value, right: Value) -> Value:
    return left.gt(right).select(left, right)


def _text(value: Value) -> str:
    text: Text = value.handle
    return text.name if text.number is None else str(text.number)
