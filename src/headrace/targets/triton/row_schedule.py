"""How kernels over rows are cut into tiles; see `rows.py`, which writes them."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.kernel.description import Axis, Kernel, Load, Phase
from headrace.kernel.products import flat_size, is_contiguous
from headrace.targets.triton.schedule import power_of_two

_UNKNOWN_SIZE = 256
"""What a size that is only known at run time is taken for."""

_LEAST_PROGRAMS = 264
"""Two for each multiprocessor of the largest GPUs; fewer rows a tile are chosen until then."""

_MOST_LANES = 2048
_TILE = 1024
"""Elements of a tile, where rows and lanes are enough."""

_SIDE_BY_SIDE = 32
"""Rows of a tile where neighbouring rows, not lanes, are neighbours in memory."""

SHORT = 16
"""Up to so many elements of a fold lie in one lane, one after the other: windows."""


@dataclass(frozen=True)
class Schedule:
    """Rows and lanes of a tile, warps of a program."""

    rows: int
    lanes: int
    warps: int


def inner_axes(phase: Phase) -> tuple[Axis, ...]:
    """What a phase runs along inside of a row: reduction axes, or the axes of a map."""
    return phase.reduction_axes if phase.reduction is not None else phase.parallel


def choose_schedule(kernel: Kernel) -> Schedule:
    """From sizes and layouts alone: the same at every budget."""
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
    # Bytes of packed weights are read 16 at a time by each thread.
    warps = power_of_two(rows * lanes // (512 if packed else 256), 1, 8)
    return Schedule(rows, lanes, warps)


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
