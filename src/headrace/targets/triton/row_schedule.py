"""How kernels over rows are cut into tiles; see `rows.py`, which writes them."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.base.symbols import ONE, Expr
from headrace.kernel.description import Axis, Kernel, Load, Phase
from headrace.kernel.products import as_product, flat_size, is_contiguous
from headrace.targets.triton.packed_rows import packed_load
from headrace.targets.triton.schedule import power_of_two

_UNKNOWN_SIZE = 256
"""What a size that is only known at run time is taken for."""

_LEAST_PROGRAMS = 264
"""Two for each multiprocessor of the largest GPUs; fewer rows a tile are chosen until then."""

_WARP_LANES = 256
"""Of a warp that has a row by itself: 16 bytes of halves a thread."""

_MOST_LANES = 2048
_TILE = 1024
"""Elements of a tile, where rows and lanes are enough."""

_SIDE_BY_SIDE = 32
"""Rows of a tile where neighbouring rows, not lanes, are neighbours in memory."""

SHORT = 16
"""Up to so many elements of a fold lie in one lane, one after the other: windows."""


_ROW_BYTES, _TILE_BYTES = 4096, 8192
"""Of a run of a row, and of all rows, of a tile of plain weights, where a matrix is multiplied by a vector.
Measured on an H200 (docs/measured/h200.md)."""

_PACKED_VALUES = 1024
"""Of a row of a tile of packed weights. Runs written out would be read all at once, and take
more registers than there are."""

_MANY_PACKED_ROWS = 8192
"""With fewer, two rows a tile and runs of twice the length: 4096 rows of 11008 take 22.3 us, 28.1 with
four; 12288 of 4096 take 22.0, and 20.7 with four (H200)."""


@dataclass(frozen=True)
class Schedule:
    """Rows and lanes of a tile, warps of a program; up to so many runs are written out."""

    rows: int
    lanes: int
    warps: int
    unrolled: int = SHORT


def inner_axes(phase: Phase) -> tuple[Axis, ...]:
    """What a phase runs along inside of a row: reduction axes, or the axes of a map."""
    return phase.reduction_axes if phase.reduction is not None else phase.parallel


def multiplies_one_row(kernel: Kernel) -> bool:
    """Whether the kernel is a product of a matrix and a vector: bound by reading."""
    found = as_product(kernel)
    if found is None:
        return False
    return any(
        flat_size(axes).is_constant and flat_size(axes).value == 1
        for axes in (found.rows, found.columns)
    )


def _one_row_schedule(kernel: Kernel) -> Schedule | None:
    """Where a matrix is multiplied by a vector and its rows are runs of memory.

    Of a run each thread has 32 bytes of a plain weight, or 64 values of a packed one.
    """
    phase = kernel.phases[0]
    load = _matrix_of(kernel, phase) if multiplies_one_row(kernel) else None
    points, depth = kernel.outer_size, flat_size(phase.reduction_axes)
    if load is None or not (points.is_constant and depth.is_constant):
        return None
    width = kernel.operands[load.operand].dtype.size_bytes
    if packed_load(kernel, phase) is not None:
        most = _PACKED_VALUES * (2 if points.value < _MANY_PACKED_ROWS else 1)
        lanes = power_of_two(depth.value, 32, most)
        rows, each, most_runs = 4 * _PACKED_VALUES // lanes, 2048, 1
    else:
        each, most_runs = 1024 // width, SHORT
        # A row of one run is read before the wait. What reads more behind the sums waits for
        # memory again, two rows at once.
        whole = depth.value * width <= _TILE_BYTES and not _reads_behind_sums(kernel)
        lanes = power_of_two(depth.value, 32, (_TILE_BYTES if whole else _ROW_BYTES) // width)
        rows = _TILE_BYTES // width // lanes
        if depth.value > lanes and 16 * (-depth.value % lanes) > depth.value:
            # Of the last run too many lanes would have nothing to do.
            lanes //= 2
    while rows > 1 and points.value < rows * _LEAST_PROGRAMS:
        rows //= 2
    warps = power_of_two(rows * lanes // each, 1, 8)
    return Schedule(rows, lanes, warps, most_runs)


def _reads_behind_sums(kernel: Kernel) -> bool:
    return any(isinstance(o, Load) for phase in kernel.phases[1:] for o in phase.body)


def _matrix_of(kernel: Kernel, phase: Phase) -> Load | None:
    """The factor that every point of the outer domain reads a run of its own of."""
    loads = [o for o in phase.body if isinstance(o, Load)]
    used = {a.name for a in kernel.outer if a.size != ONE}
    matrices = [o for o in loads if any(i.names & used for i in o.index)]
    if len(matrices) != 1 or matrices[0].bounded:
        return None
    (load,) = matrices
    last = phase.reduction_axes[-1].name
    return load if is_contiguous(kernel.operands[load.operand], load.index, last) else None


def choose_schedule(kernel: Kernel) -> Schedule:
    """From sizes and layouts alone: the same at every budget."""
    one_row = _one_row_schedule(kernel)
    if one_row is not None:
        return one_row
    sizes = [flat_size(inner_axes(p)) for p in kernel.phases if inner_axes(p)]
    lengths = [s.value if s.is_constant else _UNKNOWN_SIZE for s in sizes]
    size = kernel.outer_size
    points = size.value if size.is_constant else _LEAST_PROGRAMS * _UNKNOWN_SIZE
    lanes = power_of_two(max(lengths), 1, _MOST_LANES)
    if _rows_side_by_side(kernel) and max(lengths) <= SHORT:
        rows, lanes = power_of_two(points, 1, _TILE), 1
        while rows > _SIDE_BY_SIDE and -(-points // rows) < _LEAST_PROGRAMS:
            rows //= 2
    elif _rows_side_by_side(kernel):
        rows = power_of_two(points, 1, _SIDE_BY_SIDE)
        lanes = min(lanes, _TILE // rows)
    else:
        rows = power_of_two(points, 1, max(_TILE // lanes, 1))
        while rows > 1 and -(-points // rows) < _LEAST_PROGRAMS:
            rows //= 2
    for phase, length in zip((p for p in kernel.phases if inner_axes(p)), lengths, strict=True):
        if phase.reduction is not None and phase.reduction.combiner.kind is None:
            # Nothing is neutral: every lane of the first run must be inside.
            while lanes > max(length, 1):
                lanes //= 2
    packed = any(o.layout.codes is not None for o in kernel.operands)
    if rows == 1 and _WARP_LANES < lanes <= 8 * _WARP_LANES and _fills(size):
        # Four rows, of a warp each: no warp waits for another.
        return Schedule(4, _WARP_LANES, 4)
    # Bytes of packed weights are read 16 at a time by each thread.
    warps = power_of_two(rows * lanes // (512 if packed else 256), 1, 8)
    return Schedule(rows, lanes, warps)


def _fills(size: Expr) -> bool:
    """Whether so many rows fill the largest GPUs four at a time."""
    return size.is_constant and size.value >= 4 * 2 * _LEAST_PROGRAMS


def _rows_side_by_side(kernel: Kernel) -> bool:
    """Whether most loads of a lane's neighbours lie further apart than those of a row's."""
    votes = 0
    for phase in kernel.phases:
        axes = inner_axes(phase)
        for operation in phase.body:
            if not isinstance(operation, Load) or not axes or not kernel.outer:
                continue
            operand = kernel.operands[operation.operand]
            along = is_contiguous(operand, operation.index, axes[-1].name)
            across = is_contiguous(operand, operation.index, kernel.outer[-1].name)
            votes += across - along
    return votes > 0
