"""Rows: kernels whose phases reduce over, and map along, a contiguous inner axis.

Softmax, layer norm, RMS norm, reductions of the last dimensions. Vectors run along the
inner axis of each phase; a row stays in the nearest cache between phases, and expensive
values that two phases need are kept (`keep.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.kernel.description import Kernel
from headrace.kernel.target import LayoutWish
from headrace.targets.cpu.keep import keep_expensive
from headrace.targets.cpu.lanes import inner_choice, naive_cost, outer_choices, schedule_tiles
from headrace.targets.cpu.machine import Machine
from headrace.targets.cpu.simple import SimplePlan, lowered
from headrace.targets.cpu.simple import emit_simple as emit

__all__ = ["emit", "layout_wishes", "match"]


def match(kernel: Kernel, machine: Machine) -> SimplePlan | None:
    """Kernels with inner axes, where vectors along them beat vectors along outer ones."""
    nest = keep_expensive(lowered(kernel, machine))
    choice = inner_choice(nest, machine)
    if all(i is None for i in choice.inner) or choice.cost >= naive_cost(nest):
        return None
    others = outer_choices(nest, machine)
    if others and others[0].cost < choice.cost:
        return None
    return SimplePlan(nest, schedule_tiles(nest, choice, "row"))


def layout_wishes(kernel: Kernel, machine: Machine) -> Mapping[int, LayoutWish] | None:
    """Row-major is what it wants."""
    return None
