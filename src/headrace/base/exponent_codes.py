"""Weights packed without loss: four bits say an exponent, everything else stays as it was.

Trained weights use few exponents. The 16 high bits of a value (all of a bf16, half of an
f32) have a sign, eight bits of exponent and seven of the mantissa. An exponent among 15
consecutive ones from `base` on becomes a code of four bits; code 15 is an *escape*.

Values are packed in blocks, one behind the other, so that a run of whole blocks unpacks
alone. A block of n values is

    n bytes        sign and seven bits of mantissa; of an escape its sign and its number
    2 n bytes      the 16 low bits, f32 only
    n / 2 bytes    codes: of each 32 values, byte i holds that of i (low half) and of 16 + i
    2 e bytes      where in the block its escapes stand, in order; 65535 for none
    2 e bytes      the 16 high bits of each; 0 for none

and zeros up to a multiple of 16. So bf16 takes 0.75 of its bytes and f32 0.875, and what the
escapes take. Reading is exact for every bit pattern, NaNs and zeros of both signs included.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

GROUP = 32
"""Values that share a run of bytes of codes; a block is whole groups."""

ESCAPE = 15
PACKED_DTYPES = ("bf16", "f32")
"""An f16 has five bits of exponent: codes would save a sixteenth."""

MOST_BLOCK = 65535 // GROUP * GROUP
NOWHERE = 65535
"""The position of an escape that is not there."""

MOST_ESCAPES = 128
"""Of a block: their numbers have seven bits."""

MOST_BASE = 254 - ESCAPE
"""Of code 15 too the exponent is then one of a finite number: what reads codes alone takes an
escape for a finite value of its sign."""

_ALIGNMENT_BYTES = 16
_CHUNK_VALUES = 1 << 23


@dataclass(frozen=True)
class ExponentCodes:
    """How one weight is packed.

    Attributes:
        block: values of a block, whole groups of 32.
        base: the exponent of code 0.
        escapes: room for them in each block.
    """

    block: int
    base: int
    escapes: int

    def low_bytes(self, width: int) -> int:
        """Bytes of a block before its codes; `width` is that of a value in bytes, 2 or 4."""
        return self.block * (width - 1)

    def positions_at(self, width: int) -> int:
        """Where in a block the positions of its escapes stand."""
        return self.low_bytes(width) + self.block // 2

    def escapes_at(self, width: int) -> int:
        """Where in a block the high bits of its escapes stand."""
        return self.positions_at(width) + 2 * self.escapes

    def block_bytes(self, width: int) -> int:
        """Bytes of a packed block."""
        size = self.escapes_at(width) + 2 * self.escapes
        return -(-size // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES

    @property
    def is_sound(self) -> bool:
        """Whether the numbers can be: they may come from a file."""
        return (
            0 < self.block <= MOST_BLOCK
            and self.block % GROUP == 0
            and 0 <= self.base <= MOST_BASE
            and 0 <= self.escapes <= MOST_ESCAPES
        )

    def packed_bytes(self, count: int, width: int) -> int:
        """Bytes of `count` values packed."""
        return count // self.block * self.block_bytes(width)


def _high(bits: Any) -> Any:
    """The 16 high bits of unsigned integers of 16 or 32 bits."""
    import numpy as np

    return bits if bits.dtype == np.uint16 else (bits >> 16).astype(np.uint16)


def _bits(array: Any) -> Any:
    """A dense array of bf16 or f32 as flat unsigned integers."""
    import numpy as np

    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint16 if flat.dtype.itemsize == 2 else np.uint32)


def _chunks(count: int, block: int) -> Iterable[tuple[int, int]]:
    step = max(1, _CHUNK_VALUES // block) * block
    for begin in range(0, count, step):
        yield begin, min(begin + step, count)


def histogram(array: Any) -> Any:
    """How often each of the 256 exponents occurs."""
    import numpy as np

    total = np.zeros(256, np.int64)
    bits = _bits(array)
    for begin, end in _chunks(bits.size, 1):
        exponents = (_high(bits[begin:end]) >> 7) & 255
        total += np.bincount(exponents, minlength=256)
    return total


def best_base(counts: Any) -> int:
    """The base of the 15 consecutive exponents that occur most often."""
    import numpy as np

    sums = np.convolve(counts, np.ones(ESCAPE, np.int64), "valid")
    return int(np.argmax(sums[: MOST_BASE + 1]))


def most_escapes(array: Any, base: int, block: int) -> int:
    """The most escapes that a block of an array has."""
    bits, most = _bits(array), 0
    for begin, end in _chunks(bits.size, block):
        _, escaped = _codes(_high(bits[begin:end]), base)
        most = max(most, int(escaped.reshape(-1, block).sum(axis=1).max()))
    return most


def _codes(high: Any, base: int) -> tuple[Any, Any]:
    import numpy as np

    codes = ((high >> 7) & 255).astype(np.uint8) - np.uint8(base)
    return codes, codes >= ESCAPE


def encode(array: Any, codes: ExponentCodes) -> Any:
    """An array of bf16 or f32 of whole blocks, packed: flat bytes.

    Raises:
        ValueError: it has no whole blocks, or a block more escapes than there is room for.
    """
    import numpy as np

    bits = _bits(array)
    width, block = bits.dtype.itemsize, codes.block
    if bits.size % block or block % GROUP:
        raise ValueError(f"{bits.size} values are no whole blocks of {block}")
    packed = np.zeros((bits.size // block, codes.block_bytes(width)), np.uint8)
    for begin, end in _chunks(bits.size, block):
        _encode_blocks(bits[begin:end], codes, packed[begin // block : end // block])
    return packed.reshape(-1)


def _encode_blocks(bits: Any, codes: ExponentCodes, packed: Any) -> None:
    import numpy as np

    block, width = codes.block, bits.dtype.itemsize
    high = _high(bits)
    code, escaped = _codes(high, codes.base)
    low = ((high >> 8) & 128 | high & 127).astype(np.uint8).reshape(-1, block)
    rows, columns = np.nonzero(escaped.reshape(-1, block))
    places = np.full((len(packed), codes.escapes), NOWHERE, np.uint16)
    if rows.size:
        counts = np.bincount(rows, minlength=len(packed))
        if counts.max() > min(codes.escapes, MOST_ESCAPES):
            raise ValueError(f"a block has {counts.max()} escapes, not {codes.escapes}")
        numbers = np.arange(rows.size) - (np.cumsum(counts) - counts)[rows]
        low[rows, columns] = low[rows, columns] & 128 | numbers
        code[escaped] = ESCAPE
        lists = np.zeros((len(packed), codes.escapes), np.uint16)
        lists[rows, numbers] = high.reshape(-1, block)[rows, columns]
        places[rows, numbers] = columns
        at = codes.escapes_at(width)
        packed[:, at : at + 2 * codes.escapes] = lists.view(np.uint8)
    at = codes.positions_at(width)
    packed[:, at : at + 2 * codes.escapes] = places.view(np.uint8)
    packed[:, :block] = low
    if width == 4:
        rest = bits.astype(np.uint16).reshape(-1, block)
        packed[:, block : 3 * block] = rest.view(np.uint8)
    halves = code.reshape(len(packed), block // GROUP, 2, GROUP // 2)
    at = codes.low_bytes(width)
    nibbles = halves[:, :, 0] | (halves[:, :, 1] << 4)
    packed[:, at : at + block // 2] = nibbles.reshape(len(packed), -1)


def decode(packed: Any, codes: ExponentCodes, width: int) -> Any:
    """The values of whole packed blocks as flat unsigned integers of `width` bytes."""
    import numpy as np

    block = codes.block
    rows = np.asarray(packed).reshape(-1, codes.block_bytes(width))
    low = rows[:, :block].astype(np.uint16)
    at = codes.low_bytes(width)
    nibbles = rows[:, at : at + block // 2].reshape(len(rows), block // GROUP, GROUP // 2)
    code = np.stack([nibbles & 15, nibbles >> 4], axis=2).reshape(len(rows), block)
    exponent = (code.astype(np.uint16) + codes.base) & 255
    high = ((low & 128) << 8) | (exponent << 7) | (low & 127)
    escaped = code == ESCAPE
    if escaped.any():
        at = codes.escapes_at(width)
        lists = np.ascontiguousarray(rows[:, at : at + 2 * codes.escapes]).view(np.uint16)
        where, _ = np.nonzero(escaped)
        high[escaped] = lists[where, low[escaped] & 127]
    if width == 2:
        return high.reshape(-1)
    rest = np.ascontiguousarray(rows[:, block : 3 * block]).view(np.uint16)
    return ((high.astype(np.uint32) << 16) | rest).reshape(-1)
