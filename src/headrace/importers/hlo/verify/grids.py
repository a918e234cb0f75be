"""Rules of quantised types (specification, section "Quantized types")."""

from __future__ import annotations

import re

from headrace.importers.hlo.quantization import parse_grid
from headrace.importers.hlo.tree import HloTensorType
from headrace.importers.hlo.verify.rules import Refused, need

_STORAGE = re.compile(r"[iu]\d+")


def check_grid(kind: HloTensorType) -> None:
    """Refuses a grid whose numbers cannot be.

    Per-axis grids have a scale for each element of their dimension.
    """
    if "{{" in kind.grid or kind.grid.count("{") > 1 or re.search(r":\{", kind.grid):
        return  # blocks of several dimensions: nothing is said of them here
    try:
        grid = parse_grid(kind.grid)
    except (ValueError, KeyError):
        raise Refused(f"'!quant.uniform<{kind.grid}>' cannot be read") from None
    need(kind.dtype.is_float, f"a grid stands for floats, not for {kind.dtype}")
    need(all(s > 0 for s in grid.scales), "a scale is not above 0")
    need(
        all(grid.low <= z <= grid.high for z in grid.zero_points),
        "a zero point is no number of the storage",
    )
    if grid.axis is None:
        return
    need(grid.axis < len(kind.shape), f"dimension {grid.axis} of the grid is not there")
    size = kind.shape[grid.axis]
    need(
        not size.is_constant or size.value == len(grid.scales),
        f"{len(grid.scales)} scales stand for {size} elements",
    )
