"""Tiles of a packed weight whose blocks lie along the depth of a product, for `tl.dot`.

See `base/exponent_codes.py`. Four bytes of signs and mantissas are one word, eight codes
another, so that a shift and a mask make two bf16 at once: 6 instructions a value for all that
a tile does, 24 where each was unpacked by itself. The escapes of a block stand in order. About
half of all tiles have none and are done; in the others the next one of each block is put in its
place until none is left there.
"""

from __future__ import annotations

from headrace.base.exponent_codes import GROUP, NOWHERE
from headrace.base.symbols import ONE
from headrace.kernel.description import Kernel, Load, Operand
from headrace.kernel.products import Product, is_contiguous, unconverted
from headrace.targets.triton.packed_rows import two_values
from headrace.targets.triton.source import TENSOR_CORE_NAMES, Text
from headrace.targets.triton.tiles import TileWriter


def packed_factor(kernel: Kernel, found: Product, factor: str, depth: int) -> Load | None:
    """The load of a factor whose blocks are what a product sums over, if it is one.

    Args:
        depth: of a tile.
    """
    values = {o.result: o for o in kernel.phases[0].body}
    load = unconverted(values, factor)
    if not isinstance(load, Load) or load.bounded or not found.loaded or depth % GROUP:
        return None
    operand = kernel.operands[load.operand]
    codes, axes = operand.layout.codes, [a for a in found.depth if a.size != ONE]
    if codes is None or len(axes) != 1:
        return None
    (axis,) = axes
    whole = axis.size.is_constant and axis.size.value == codes.block
    return load if whole and is_contiguous(operand, load.index, axis.name) else None


class PackedTile:
    """The blocks of a tile, one for each of its columns (of a left factor, rows).

    Made before the loop over the depth.
    """

    def __init__(
        self,
        writer: TileWriter,
        number: int,
        operand: Operand,
        first: Text,
        bit: int,
        edge: str | None,
        extent: int,
        depth: int,
    ) -> None:
        """Writes where blocks begin, and finds the first escape of each.

        Args:
            number: of the packed operand.
            first: offset of each block's first element.
            bit: the dimension along which `first` and `edge` run.
            edge: where a block is inside, if not all are.
            extent, depth: blocks of a tile, and values of each.
        """
        codes = operand.layout.codes
        assert codes is not None
        self._writer, self._codes, self._width = writer, codes, operand.dtype.size_bytes
        self._extent, self._depth = extent, depth
        self._name = TENSOR_CORE_NAMES.get(operand.dtype.name, "tl.float32")
        line = f"({extent}, 1)" if bit == 1 else f"(1, {extent})"
        flat = f"tl.reshape(tl.broadcast_to({first.name}, {line}), ({extent},))"
        block = f"({flat} // {codes.block}).to(tl.int64) * {codes.block_bytes(self._width)}"
        self._block = self._define(f"p{number} + {block}")
        self._edge = self._define(f"tl.reshape({edge}, ({extent},))") if edge else ""
        # Sixteen codes are one run of four words, for the low halves and the high ones.
        self._word = self._define(f"tl.arange(0, {depth // 4})[None, :]")
        place = f"{self._word} // 8 * 4 + {self._word} % 4"
        self._kept = self._define(f"{self._pointers(0, 32)}[:, None] + {self._word}")
        at = codes.low_bytes(self._width)
        self._pairs = self._define(f"{self._pointers(at, 32)}[:, None] + ({place})")
        self._shift = self._define(f"({self._word} // 4 % 2 * 4).to(tl.uint32)")
        if codes.escapes:
            at = codes.positions_at(self._width)
            self._lists = self._define(self._pointers(at, 16))
            self._next, self._at = writer.fresh("escape"), writer.fresh("place")
            self._nearest, self._nearer = writer.fresh("nearest"), writer.fresh("nearer")
            # Triton's own `tl.min` is no function of its interpreter.
            body = "return tl.minimum(l, r)"
            writer.function(self._nearer, ("l", "r"), lambda: writer.line(body))
            writer.line(f"{self._next} = tl.full(({extent},), 0, tl.int32)")
            self._find()

    def _define(self, text: str) -> str:
        return self._writer.define(text, block=3).name

    def _pointers(self, at: int, bits: int) -> str:
        kind = f"tl.pointer_type(tl.uint{bits})"
        return f"({self._block} + {at}).to({kind}, bitcast=True)"

    def _find(self) -> None:
        """Where the next escape of each block stands, and the nearest of these."""
        listed = f"{self._next} < {self._codes.escapes}"
        if self._edge:
            listed = f"({listed}) & {self._edge}"
        place = f"tl.load({self._lists} + {self._next}, mask={listed}, other={NOWHERE})"
        self._writer.line(f"{self._at} = {place}.to(tl.int32)")
        self._writer.line(f"{self._nearest} = tl.reduce({self._at}, 0, {self._nearer})")

    def _load(self, place: str, step: int) -> str:
        """Words (or values) of the tile, `step` values each; 0 outside."""
        masks = [f"{self._edge}[:, None]"] if self._edge else []
        if self._codes.block % self._depth:
            span = f"tl.arange(0, {self._depth // step})[None, :]"
            masks.append(f"(depth // {step} + {span} < {self._codes.block // step})")
        shape = f"({self._extent}, {self._depth // step})"
        masked = f", mask=tl.broadcast_to({' & '.join(masks)}, {shape}), other=0"
        return self._define(f"tl.load({place}{masked if masks else ''})")

    def tile(self) -> str:
        """The tile at `depth`: blocks by values, as floats."""
        writer, codes = self._writer, self._codes
        kept = self._load(f"{self._kept} + depth // 4", 4)
        code = self._load(f"{self._pairs} + depth // 8", 4)
        code = self._define(f"{code} >> {self._shift}")
        even, odd = (self._define(text) for text in two_values(kept, code, codes.base))
        pairs = f"({even} & 0xFFFF) | ({odd} << 16), ({even} >> 16) | ({odd} & 0xFFFF0000)"
        half = self._depth // 2
        words = writer.fresh("words")
        writer.line(f"{words} = tl.reshape(tl.join({pairs}), ({self._extent}, {half}))")
        if codes.escapes:
            self._mend(words)
        whole = f"tl.reshape(tl.join({words} & 0xFFFF, {words} >> 16), ({self._extent}, {self._depth}))"
        if self._width == 4:
            rest = f"{self._pointers(codes.block, 16)}[:, None] + depth"
            span = f"tl.arange(0, {self._depth})[None, :]"
            rest = self._load(f"{rest} + {span}", 1)
            whole = f"(({whole} << 16) | {rest}.to(tl.uint32))"
        else:
            whole = f"{whole}.to(tl.uint16)"
        return self._define(f"{whole}.to({self._name}, bitcast=True)")

    def _mend(self, words: str) -> None:
        writer, codes, end = self._writer, self._codes, f"depth + {self._depth}"
        if codes.block % self._depth:
            # What is nowhere must stay outside.
            end = f"tl.minimum({end}, {codes.block})"
        # The loop alone would keep Triton from loading tiles ahead.
        writer.line(f"if {self._nearest} < {end}:")
        writer.indent(1)
        writer.line(f"while {self._nearest} < {end}:")
        writer.indent(1)
        there = self._define(f"{self._at} < {end}")
        place = f"{self._lists} + {codes.escapes} + {self._next}"
        value = self._define(f"tl.load({place}, mask={there}, other=0).to(tl.uint32)")
        up = self._define(f"(({self._at} & 1) * 16).to(tl.uint32)")
        word = f"(({self._at} - depth) >> 1)[:, None]"
        span = f"tl.arange(0, {self._depth // 2})[None, :]"
        changed = f"({words} & (0xFFFF0000 >> {up})[:, None]) | ({value} << {up})[:, None]"
        writer.line(f"{words} = tl.where({word} == {span}, {changed}, {words})")
        writer.line(f"{self._next} += {there}.to(tl.int32)")
        self._find()
        writer.indent(-2)
