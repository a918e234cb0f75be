"""How products of matrices are cut into tiles; `kernel/products.py` says what one is.

See `contract.py`, which writes them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from headrace.base.symbols import ONE, Expr
from headrace.kernel.description import Kernel
from headrace.kernel.products import Product, flat_size
from headrace.targets.tables import Choice

_LEAST_PROGRAMS = 264
"""Two for each multiprocessor of the largest GPUs; smaller tiles are chosen until then."""

_UNKNOWN_SIZE = 64
"""What a size that is only known at run time is taken for."""


MULTIPROCESSORS = 132
"""Of an H200; on a GPU with fewer, programs that go through all tiles wait for each other."""

MOST_SHARED_BYTES = 227 << 10
"""Of a program's shared memory on sm_90."""


@dataclass(frozen=True)
class Tiles(Choice):
    """The schedule of a product.

    Attributes:
        rows, columns, depth: of a tile.
        warps: of a program.
        stages: how many depths of factors are under way.
        programs: how many go through all tiles, the others of a launch end at once; 0 where
            each has one tile. Only without a batch.
        descriptors: factors that are matrices come by descriptors where the architecture has
            them (`descriptors.py`).
        parts: of the depth. The programs of a tile are a cluster: each sums one part, the last
            adds what the others leave in scratch, in order. Only without `programs`, and
            without a batch.
    """

    rows: int
    columns: int
    depth: int
    warps: int = 4
    stages: int = 3
    programs: int = 0
    descriptors: bool = False
    parts: int = 1

    def shared_bytes(self, factor_bytes: int) -> int:
        """What the factors under way take; going through tiles, a piece of the tile that is
        being stored as well."""
        piece = (8 << 10) if self.warps <= 4 else (32 << 10)
        held = min(2 * self.rows * self.columns, piece) if self.programs else 0
        deep = (self.rows + self.columns) * self.depth * factor_bytes
        return self.stages * deep + held

    def within(self, most_bytes: int, factor_bytes: int) -> Tiles:
        """The same tile with fewer stages, then less depth, until it takes no more shared memory."""
        made = self
        while made.shared_bytes(factor_bytes) > most_bytes and made.stages > 2:
            made = replace(made, stages=made.stages - 1)
        while made.shared_bytes(factor_bytes) > most_bytes and made.depth > 16:
            made = replace(made, depth=made.depth // 2)
        return made

    def programs_at_once(self, factor_bytes: int) -> int:
        """How many a multiprocessor has room for: 2048 threads, their registers, the memory."""
        shared = MOST_SHARED_BYTES // self.going_through(1).shared_bytes(factor_bytes)
        registers = (1 << 16) // (self.warps * 32 * 32 + self.rows * self.columns)
        return max(1, min(shared, registers, 64 // self.warps))

    def going_through(self, programs: int) -> Tiles:
        """The same tiles, but so many programs go through all of them."""
        return replace(self, programs=programs)

    @property
    def half_as_deep(self) -> Tiles:
        """For factors twice as wide."""
        return replace(self, depth=max(16, self.depth // 2))


def is_fast(kernel: Kernel, found: Product) -> bool:
    """Whether a product goes to tensor cores."""
    return bool(found.narrow) or kernel.precision != "ieee"


def factor_bytes(found: Product) -> int:
    """Of an element of a factor in shared memory."""
    return 2 if found.narrow else 4


def _known(size: Expr) -> int:
    return size.value if size.is_constant else _UNKNOWN_SIZE


def power_of_two(value: int, least: int, most: int) -> int:
    """The least power of two that is not below `value`, within limits."""
    found = least
    while found < min(value, most):
        found *= 2
    return found


def choose_tiles(
    found: Product,
    unknown_rows: int = _UNKNOWN_SIZE,
    precision: str = "ieee",
    described: bool = True,
) -> Tiles:
    """Tiles from sizes alone: the same at every budget.

    Args:
        unknown_rows: what a number of rows known only at run time is taken for.
        precision: `Kernel.precision`.
        described: both factors may come by descriptors.

    Measured on an H200 (docs/measured/h200.md): down to 16 x 16 pays where few programs are
    left; more depth, stages or warps than these do not.
    """
    row_count = flat_size(found.rows)
    rows = row_count.value if row_count.is_constant else unknown_rows
    columns = _known(flat_size(found.columns))
    batch, depth = _known(flat_size(found.batch)), _known(flat_size(found.depth))
    fast = bool(found.narrow) or precision != "ieee"
    one_axis = len([axis for axis in found.depth if axis.size != ONE]) < 2
    if fast and columns >= _WIDE and depth >= _DEEP and one_axis:
        if rows >= _LEAST_ROWS and (row_count.is_constant or rows >= _MANY_ROWS):
            width_bytes = factor_bytes(found)
            described = described and batch == 1 and width_bytes == 2
            return candidates(rows, columns, depth, batch, width_bytes, described)[0]
        tiles = _few_row_tiles(rows, columns, batch)
        return tiles if found.narrow else tiles.half_as_deep
    if fast and row_count.is_constant:
        tiles = _layer_tiles(rows, columns, batch, depth)
        return tiles if found.narrow else tiles.half_as_deep
    most = 128 if fast else 64
    high, wide = power_of_two(rows, 16, most), power_of_two(columns, 16, most)

    def programs() -> int:
        return -(-rows // high) * -(-columns // wide) * batch

    while programs() < _LEAST_PROGRAMS and high * wide > 16 * 16:
        if high >= wide:
            high //= 2
        else:
            wide //= 2
    deep = power_of_two(depth, 16, 64 if found.narrow else 32)
    return Tiles(high, wide, deep, warps=8 if high * wide >= 128 * 128 else 4)


def packed_tiles(
    found: Product, unknown_rows: int = _UNKNOWN_SIZE, precision: str = "ieee"
) -> Tiles:
    """Tiles where a weight is unpacked on its way (`packed_tiles.py`).

    That takes as long for 16 rows as for 256, so all rows that there may be are in one tile, and
    columns are few enough that many programs unpack. No descriptors, and no depth in parts.
    """
    row_count = flat_size(found.rows)
    rows = row_count.value if row_count.is_constant else unknown_rows
    columns, depth = _known(flat_size(found.columns)), _known(flat_size(found.depth))
    fast = bool(found.narrow) or precision != "ieee"
    if not fast or columns < _WIDE or depth < _DEEP:
        tiles = choose_tiles(found, unknown_rows, precision, described=False)
        return replace(tiles, programs=0, descriptors=False, parts=1)
    if rows > _MOST_ROWS_AT_ONCE:
        tiles = Tiles(256, 128, 64, warps=8)
    elif rows > 64 and columns >= 64 * MULTIPROCESSORS:
        # 83 us for 12288 columns of 4096 and 128 rows; in tiles of 32 columns 108 (H200).
        tiles = Tiles(128, 64, 64)
    elif rows > 64:
        # 38 us for 4096 columns; in tiles of 64 columns 61.
        tiles = Tiles(128, 32, 128, warps=8)
    else:
        tiles = Tiles(power_of_two(rows, 16, 64), 32, 128)
    return tiles if found.narrow else tiles.half_as_deep


_MOST_ROWS_AT_ONCE = 256
"""Of packed products that are bound by reading: with more they are by arithmetic."""


def _few_row_tiles(rows: int, columns: int, batch: int) -> Tiles:
    """Halves by a weight, as measured on an H200 (docs/measured/h200.md): each program must
    have much of the weight under way."""
    high = power_of_two(rows, 16, 64)
    if columns // 64 * -(-rows // high) * batch >= _LEAST_PROGRAMS:
        return Tiles(high, 64, 64, stages=4)
    return Tiles(high, 64, 128, stages=4)


_LEAST_ROWS, _WIDE, _DEEP = 33, 256, 256
"""From these on a product on tensor cores is one of a layer with its weight, and large."""

_MANY_ROWS = 257
"""Below, a number of rows that is open is one of a decoder: bound by reading weights."""

_TENSOR_CORE_TILES: tuple[Tiles, ...] = (
    Tiles(128, 256, 64, 8, 3),
    Tiles(256, 128, 64, 8, 3),
    Tiles(128, 128, 64, 8, 4),
    Tiles(128, 128, 64, 4, 3),
    Tiles(64, 256, 64, 8, 4),
    Tiles(64, 128, 64, 4, 4),
    Tiles(64, 64, 64, 4, 4),
    Tiles(64, 32, 64, 4, 6),
    Tiles(32, 64, 128, 4, 4),
    Tiles(16, 64, 128, 4, 4),
    Tiles(16, 128, 128, 4, 3),
)
"""For factors of 16 bits; of 32 bits they go half as deep. The best of the first eight took
1.6 % more than the best of 26 kinds, in the middle of 78 products."""

MOST_PARTS = 4
"""Of a depth: the last program of a cluster adds what all others have left."""

_DESCRIBED_AREA = 64 * 128
"""Of a tile from which on descriptors were measured."""

_LEAST_ROUNDS = 3
"""Over the depth, of a part of it."""


def candidates(
    rows: int, columns: int, depth: int, batch: int, width_bytes: int, described: bool = True
) -> list[Tiles]:
    """What may suit a product on tensor cores, the fastest by `microseconds` first.

    Args:
        described: both factors may come by descriptors.
    """
    found: list[Tiles] = []
    for tiles in _TENSOR_CORE_TILES:
        if width_bytes == 4:
            tiles = tiles.half_as_deep
        if tiles.rows > power_of_two(rows, 64, 256) or tiles.rows < min(64, rows):
            continue
        if tiles.columns > power_of_two(columns, 16, 256):
            continue
        if tiles.depth > power_of_two(depth, 16, 256):
            continue
        count = -(-rows // tiles.rows) * -(-columns // tiles.columns)
        at_once = MULTIPROCESSORS * tiles.programs_at_once(width_bytes)
        rounds = -(-depth // tiles.depth)
        ways = [tiles]
        if described and tiles.rows * tiles.columns >= _DESCRIBED_AREA:
            ways.append(replace(tiles, descriptors=True))
        for way in ways:
            found.append(way)
            if batch > 1:
                continue
            if count > at_once:
                found.append(way.going_through(at_once))
            found += [
                replace(way, parts=parts)
                for parts in range(2, MOST_PARTS + 1)
                if count * parts <= 2 * MULTIPROCESSORS and rounds >= _LEAST_ROUNDS * parts
            ]
    fitting = [t for t in found if t.shared_bytes(width_bytes) <= MOST_SHARED_BYTES]
    return sorted(
        fitting, key=lambda t: microseconds(t, rows, columns, depth, batch, width_bytes)
    )


_BYTES_EACH = 110e3
"""Into the shared memory of one multiprocessor, in a microsecond."""

_OPERATIONS_EACH = 6.7e6
"""Of 16-bit factors on one multiprocessor in a microsecond."""

_LAUNCH, _LATENCY = 0.77, 0.65
"""Of a launch, and until factors are there."""

_COLD_LATENCY, _COLD_BYTES = 1.1, 24e6
"""The same of a weight that is too large for the cache."""

_COPYING = 0.058, 0.65
"""Of a round without descriptors: waiting, and how much of it no other program hides."""

_STORED_EACH = 34e3
"""Bytes of results in a microsecond."""

_NEXT_TILE = 2.6
"""How many times what a tile takes beside its rounds is felt between two of them."""

_CLUSTER, _PARTS_EACH = 0.34, 24e3
"""Waiting for the others of a cluster; bytes of partial sums in a microsecond."""

_LINE_BYTES, _SECTOR_BYTES = 128, 32


def microseconds(
    tiles: Tiles, rows: int, columns: int, depth: int, batch: int, width_bytes: int
) -> float:
    """What a product takes on an H200, roughly (docs/measured/h200.md): for comparing tiles.

    The multiprocessor with the most tiles decides, and mostly the bytes that come into it:
    rows of factors that do not begin at a line, or even a sector, of the cache cost more of
    them. Fitted to 1,700 times of 78 products, of which the logarithm is off by an eighth.
    """
    r, c = tiles.rows, tiles.columns
    count = -(-rows // r) * -(-columns // c) * batch * tiles.parts
    most = -(-count // MULTIPROCESSORS)
    together = min(most, tiles.programs_at_once(width_bytes))
    rate = _OPERATIONS_EACH * 2 / width_bytes
    if r * c >= 128 * 128 and tiles.warps * together < 8:
        # Four warps cannot keep the tensor cores of a multiprocessor busy.
        rate *= 0.65
    askew = 1.0
    if depth * width_bytes % _SECTOR_BYTES:
        askew = 1.75 if tiles.descriptors else 2.1
    elif depth * width_bytes % _LINE_BYTES:
        askew = 1.21
    bytes_in = (r + c) * tiles.depth * width_bytes * askew
    waiting, felt = (0.0, 0.0) if tiles.descriptors else _COPYING
    rounds = ceil(depth / tiles.depth / tiles.parts)
    alone = max(2 * r * c * tiles.depth / rate, bytes_in / _BYTES_EACH)
    ahead = max(1, min(tiles.stages - 1, rounds))
    cold = columns * depth * width_bytes > _COLD_BYTES
    latency = (_COLD_LATENCY if cold else _LATENCY) / ahead / together
    one = max(alone + felt * waiting, (alone + waiting) / together, latency)
    storing = 2 * r * c / _STORED_EACH
    if tiles.programs:
        beside = storing + (most - 1) * _NEXT_TILE * storing / together
    else:
        waves = -(-most // together)
        beside = storing * together**0.5
        beside += (waves - 1) * _NEXT_TILE * (_LATENCY + storing)
    if tiles.parts > 1:
        beside += _CLUSTER + 4 * r * c * tiles.parts * together / _PARTS_EACH
    return _LAUNCH + _LATENCY + most * rounds * one + beside


def _layer_tiles(rows: int, columns: int, batch: int, depth: int) -> Tiles:
    """Convolutions, and products with few columns or little depth, of known sizes.

    Of 1,900 measurements of the layers of ResNet-50 and BERT-base (batch 1 and 32,
    benchmarks/gpu_tiles.py) these come within 4 % of the best tile of each, all together.
    """

    def programs(high: int, wide: int) -> int:
        return -(-rows // high) * -(-columns // wide) * batch

    large = programs(128, 128)
    if rows > 64 and columns >= 128 and depth > 64 and large >= 0.7 * MULTIPROCESSORS:
        if MULTIPROCESSORS < large < 1.5 * MULTIPROCESSORS and depth <= 1024:
            # Whole tiles would leave half of the GPU idle in the second wave.
            return Tiles(64, 128, 64)
        return Tiles(128, 128, 64, warps=8)
    if (
        rows > 64
        and columns < 128
        and depth > 64
        and programs(128, 64) >= 0.7 * MULTIPROCESSORS
    ):
        return Tiles(128, 64, 64)
    high, wide = power_of_two(rows, 16, 64), power_of_two(columns, 16, 64)
    while wide > 16 and programs(high, wide) < 0.5 * MULTIPROCESSORS:
        wide //= 2
    return Tiles(high, wide, power_of_two(depth, 16, 128 if depth >= 512 else 64))
