"""Schedules of products that were measured, and the alternatives that are worth a try.

See `targets/tables.py`. A product of known sizes is a problem; one whose rows are known only at
run time is scheduled by rule, function by function (`variants.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.base.symbols import ONE
from headrace.kernel.description import Axis, Kernel
from headrace.kernel.products import Product, flat_size
from headrace.targets.tables import NO_TABLE, Problem, Table, Tables, sizes_text, unfit
from headrace.targets.triton.schedule import (
    MOST_PARTS,
    MOST_SHARED_BYTES,
    Tiles,
    candidates,
    factor_bytes,
    is_fast,
    power_of_two,
)


@dataclass(frozen=True)
class How:
    """What decides the schedule of a product beside the kernel.

    Attributes:
        table: schedules that were measured.
        descriptors: the architecture brings tiles by descriptors (`descriptors.py`), and has
            clusters of programs.
        shared_bytes: that one program may have.
    """

    table: Table = NO_TABLE
    descriptors: bool = False
    shared_bytes: int = MOST_SHARED_BYTES


PLAIN = How()

_SHIPPED = Path(__file__).with_name("tuned.json")


def tables(kind: str, architecture: str) -> Tables:
    """The tables of a GPU's architecture; code is made for any GPU that has it."""
    return Tables(_SHIPPED, {"contract": Tiles}, kind, architecture)


def product_key(kernel: Kernel, found: Product) -> str | None:
    """The problem that a product is; None where sizes are open."""
    parts = [_sizes(axes) for axes in (found.rows, found.columns, found.depth, found.batch)]
    if any(p is None for p in parts):
        return None
    rows, columns, depth, batch = (sizes_text(p) for p in parts if p is not None)
    kind = found.narrow or kernel.precision
    packed = " packed" if any(o.layout.codes is not None for o in kernel.operands) else ""
    return f"contract {rows} by {columns} over {depth} batch {batch} {kind}{packed}"


def _sizes(axes: Sequence[Axis]) -> list[int] | None:
    sizes = [a.size for a in axes]
    return [s.value for s in sizes] if all(s.is_constant for s in sizes) else None


def tuned_tiles(kernel: Kernel, found: Product, table: Table) -> Tiles | None:
    """What a table has for a product; None for nothing.

    Raises:
        HeadraceError HR0115: a program cannot have them.
    """
    key = product_key(kernel, found)
    choice = table.get(key) if key is not None else None
    if key is None or choice is None:
        return None
    if not isinstance(choice, Tiles) or not _fits(found, choice, factor_bytes(found)):
        raise unfit(key)
    return choice


def _fits(found: Product, tiles: Tiles, width_bytes: int) -> bool:
    extents = (tiles.rows, tiles.columns, tiles.depth)
    if not all(16 <= e <= 256 and not e & (e - 1) for e in extents):
        return False
    if tiles.warps not in (1, 2, 4, 8, 16) or not 1 <= tiles.stages <= 8:
        return False
    if not 1 <= tiles.parts <= MOST_PARTS or (tiles.programs and tiles.parts > 1):
        return False
    if (tiles.programs or tiles.parts > 1) and any(a.size != ONE for a in found.batch):
        return False
    return tiles.shared_bytes(width_bytes) <= MOST_SHARED_BYTES


_MOST_TRIED = 16
"""Of a product on tensor cores: each takes a round of all kernels, about a second."""

_SLOW: tuple[Tiles, ...] = (
    Tiles(64, 64, 32),
    Tiles(64, 64, 16),
    Tiles(128, 64, 16, 8),
    Tiles(64, 32, 32),
    Tiles(32, 64, 32),
    Tiles(32, 32, 32),
    Tiles(16, 64, 32),
    Tiles(64, 16, 32),
    Tiles(32, 16, 32),
    Tiles(16, 32, 32),
    Tiles(16, 16, 32),
    Tiles(16, 16, 64),
)
"""For IEEE arithmetic."""


def product_problem(kernel: Kernel, found: Product, chosen: Tiles) -> Problem | None:
    """The problem of a product, with what may be tried."""
    key = product_key(kernel, found)
    if key is None:
        return None
    rows, columns, depth = (
        flat_size(axes).value for axes in (found.rows, found.columns, found.depth)
    )
    width_bytes = factor_bytes(found)
    if is_fast(kernel, found):
        batch = flat_size(found.batch).value
        described = batch == 1 and width_bytes == 2
        tried = candidates(rows, columns, depth, batch, width_bytes, described)[:_MOST_TRIED]
    else:
        tried = [
            tiles
            for tiles in _SLOW
            if tiles.rows <= power_of_two(rows, 16, 256)
            and tiles.columns <= power_of_two(columns, 16, 256)
            and tiles.depth <= power_of_two(depth, 16, 256)
        ]
    return Problem(key, chosen, tuple(t for t in tried if t != chosen))
