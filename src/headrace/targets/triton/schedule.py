"""How products of matrices are cut into tiles; `kernel/products.py` says what one is.

See `contract.py`, which writes them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.base.symbols import Expr
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
    """

    rows: int
    columns: int
    depth: int
    warps: int = 4
    stages: int = 3
    programs: int = 0

    def shared_bytes(self, factor_bytes: int) -> int:
        """What the factors under way take; going through tiles, a half-stored tile as well."""
        held = self.rows * self.columns if self.programs else 0
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


def choose_tiles(found: Product, unknown_rows: int = _UNKNOWN_SIZE) -> Tiles:
    """Tiles from sizes alone: the same at every budget.

    Measured on an H200 (docs/measured/h200.md): down to 16 x 16 pays where few programs are
    left; more depth, stages or warps than these do not.
    """
    row_count = flat_size(found.rows)
    rows = row_count.value if row_count.is_constant else unknown_rows
    columns = _known(flat_size(found.columns))
    batch, depth = _known(flat_size(found.batch)), _known(flat_size(found.depth))
    if found.narrow and columns >= _WIDE and depth >= _DEEP:
        return _weight_tiles(rows, columns, batch)
    most = 128 if found.narrow else 64
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


_WIDE, _DEEP = 1024, 512
"""From these on a product of halves is one of a layer with its weight."""


def _weight_tiles(rows: int, columns: int, batch: int) -> Tiles:
    """Halves on tensor cores, as measured on an H200 (docs/measured/h200.md)."""

    def programs(high: int, wide: int) -> int:
        return -(-rows // high) * -(-columns // wide) * batch

    if rows > 64:
        if programs(128, 256) >= _LEAST_PROGRAMS:
            return Tiles(128, 256, 64, warps=8)
        if programs(128, 128) >= _LEAST_PROGRAMS:
            return Tiles(128, 128, 64)
    high = power_of_two(rows, 16, 64)
    if programs(high, 64) >= _LEAST_PROGRAMS:
        return Tiles(high, 64, 64, stages=4)
    # Few programs: each must have much of the weight under way.
    wide = 32 if high == 64 and programs(high, 64) < _LEAST_PROGRAMS // 2 else 64
    return Tiles(high, wide, 128, stages=4)
