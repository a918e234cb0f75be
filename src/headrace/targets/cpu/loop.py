"""Kernels whose phases go round: one tile, vectors along the inner axes of each phase."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.kernel.description import Kernel
from headrace.kernel.target import LayoutWish
from headrace.targets.cpu.lanes import inner_choice, schedule_tiles
from headrace.targets.cpu.machine import Machine
from headrace.targets.cpu.simple import SimplePlan, lowered
from headrace.targets.cpu.simple import emit_simple as emit

__all__ = ["emit", "layout_wishes", "match"]


def match(kernel: Kernel, machine: Machine) -> SimplePlan | None:
    """Kernels with loops."""
    if not kernel.loops:
        return None
    nest = lowered(kernel, machine)
    return SimplePlan(nest, schedule_tiles(nest, inner_choice(nest, machine), "loop"))


def layout_wishes(kernel: Kernel, machine: Machine) -> Mapping[int, LayoutWish] | None:
    """Made when layouts are decided already."""
    return None
