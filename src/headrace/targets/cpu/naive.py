"""The family that does every legal kernel: one point at a time, no vectors."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.kernel.description import Kernel
from headrace.kernel.target import LayoutWish
from headrace.targets.cpu.lanes import Choice, naive_cost, schedule_tiles
from headrace.targets.cpu.machine import Machine
from headrace.targets.cpu.simple import SimplePlan, lowered
from headrace.targets.cpu.simple import emit_simple as emit

__all__ = ["emit", "layout_wishes", "match"]


def match(kernel: Kernel, machine: Machine) -> SimplePlan:
    """Loops over outer points, inner axes and reductions; always possible."""
    nest = lowered(kernel, machine)
    choice = Choice(naive_cost(nest), 1, None, (None,) * len(nest.phases))
    return SimplePlan(nest, schedule_tiles(nest, choice, "naive"))


def layout_wishes(kernel: Kernel, machine: Machine) -> Mapping[int, LayoutWish]:
    """Any layout is as good as another."""
    return {}
