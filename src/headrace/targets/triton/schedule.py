"""How products of matrices are cut into tiles; `kernel/products.py` says what one is.

See `contract.py`, which writes them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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

MOST_PARTS = 4
"""Of a depth: the last program of a cluster adds what all others have left."""

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
    found: Product, unknown_rows: int = _UNKNOWN_SIZE, precision: str = "ieee"
) -> Tiles:
    """Tiles from sizes alone: the same at every budget.

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
        if rows >= _LEAST_ROWS:
            return _weight_tiles(rows, columns, depth, batch, factor_bytes(found))
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


def _few_row_tiles(rows: int, columns: int, batch: int) -> Tiles:
    """Halves by a weight, as measured on an H200 (docs/measured/h200.md): each program must
    have much of the weight under way."""
    high = power_of_two(rows, 16, 64)
    if columns // 64 * batch >= _LEAST_PROGRAMS:
        return Tiles(high, 64, 64, stages=4)
    return Tiles(high, 64, 128, stages=4)


_LEAST_ROWS, _WIDE, _DEEP = 33, 256, 256
"""From these on a product on tensor cores is one of a layer with its weight, and large."""

LARGE_TILES: tuple[Tiles, ...] = (
    Tiles(128, 128, 64, 4, 3),
    Tiles(128, 256, 64, 8, 3),
    Tiles(128, 128, 64, 8, 4),
    Tiles(256, 128, 64, 8, 3),
    Tiles(64, 256, 64, 4, 4),
    Tiles(64, 128, 64, 4, 4),
    Tiles(64, 128, 128, 4, 3),
    Tiles(128, 64, 64, 4, 4),
    Tiles(128, 64, 128, 4, 3),
    Tiles(64, 64, 64, 4, 4),
    Tiles(64, 64, 128, 4, 4),
    Tiles(64, 32, 128, 4, 4),
)
"""For factors of 16 bits; of 32 bits they go half as deep."""


def _weight_tiles(rows: int, columns: int, depth: int, batch: int, width_bytes: int) -> Tiles:
    """Those that are the fastest by `microseconds`."""
    tried: list[Tiles] = []
    for tiles in LARGE_TILES:
        if width_bytes == 4:
            tiles = tiles.half_as_deep
        if tiles.rows >= 2 * rows or tiles.columns >= 2 * columns:
            continue
        count = -(-rows // tiles.rows) * -(-columns // tiles.columns)
        at_once = MULTIPROCESSORS * tiles.programs_at_once(width_bytes)
        if batch == 1 and count > at_once:
            tiles = tiles.going_through(at_once)
        tried.append(tiles)
        if batch == 1 and width_bytes == 2:
            tried.append(replace(tiles, descriptors=True))
    return min(tried, key=lambda t: microseconds(t, rows, columns, depth, batch, width_bytes))


_BYTES_EACH = 108e3
"""Into the shared memory of one multiprocessor, in a microsecond."""

_NEW_BYTES_EACH = 37e3
"""Of those from memory, where all multiprocessors read at once."""

_OPERATIONS_EACH = (5.1e6, 6.1e6)
"""Of 16-bit factors on one multiprocessor in a microsecond: threads that copy, descriptors."""

_LAUNCH = (1.6, 3.3)
"""Until factors are on their way, and after the last tile; with descriptors to be made."""

_ROUND = 0.02
"""Of waiting in every round over the depth."""

_STORED_EACH = 25e3
"""Bytes of results in a microsecond."""


def microseconds(
    tiles: Tiles, rows: int, columns: int, depth: int, batch: int, width_bytes: int
) -> float:
    """What a product takes on an H200, roughly (docs/measured/h200.md): for comparing tiles.

    The multiprocessor with the most tiles decides. A tile is bound by its bytes, by those of
    them that no other tile has brought, or by its operations; storing hides behind other programs of the multiprocessor, or behind the next
    tile.
    """
    high, wide = -(-rows // tiles.rows), -(-columns // tiles.columns)
    most = -(-high * wide * batch // MULTIPROCESSORS)
    rate = _OPERATIONS_EACH[tiles.descriptors] * 2 / width_bytes
    together = min(most, tiles.programs_at_once(width_bytes))
    if tiles.rows * tiles.columns >= 128 * 128 and tiles.warps * together < 8:
        # Four warps cannot keep the tensor cores of a multiprocessor busy.
        rate *= 0.7
    area = tiles.rows * tiles.columns
    bytes_in = (tiles.rows + tiles.columns) * tiles.depth * width_bytes
    new = (tiles.rows / wide + tiles.columns / high) * tiles.depth * width_bytes
    one = max(bytes_in / _BYTES_EACH, new / _NEW_BYTES_EACH, 2 * area * tiles.depth / rate)
    rounds = -(-depth // tiles.depth)
    filling = bytes_in * min(tiles.stages - 1, rounds) / _BYTES_EACH
    storing = area * 2 / _STORED_EACH * (0.3 if together > 1 or tiles.programs else 1)
    launch = _LAUNCH[tiles.descriptors] + filling
    return launch + most * (rounds * (one + _ROUND / together) + storing)


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
