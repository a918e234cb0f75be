"""Elementwise kernels: vectors along the outer axis that most accesses walk through.

All phases are maps without inner axes. Dense operands of one shape have become one
axis, broadcasts are scalars or repeated loads, transposes load or store lane by lane.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.kernel.description import Kernel
from headrace.kernel.target import LayoutWish
from headrace.targets.cpu.lanes import naive_cost, outer_choices, schedule_tiles
from headrace.targets.cpu.machine import Machine
from headrace.targets.cpu.simple import SimplePlan, lowered
from headrace.targets.cpu.simple import emit_simple as emit

__all__ = ["emit", "layout_wishes", "match"]


def match(kernel: Kernel, machine: Machine) -> SimplePlan | None:
    """Kernels of maps over outer axes alone, where a vector pays."""
    nest = lowered(kernel, machine)
    if any(p.axes or p.reduction for p in nest.phases):
        return None
    choices = outer_choices(nest, machine)
    if not choices or choices[0].cost >= naive_cost(nest):
        return None
    return SimplePlan(nest, schedule_tiles(nest, choices[0], "map"))


def layout_wishes(kernel: Kernel, machine: Machine) -> Mapping[int, LayoutWish] | None:
    """Elementwise kernels take what their neighbours wish."""
    return None
