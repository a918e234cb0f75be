"""Says where a plan streams weights although all of them have room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.plan.budget import format_bytes
from headrace.plan.model import Plan

if TYPE_CHECKING:
    from headrace.runtime.module import Module


def needless_streaming(module: Module, plan: Plan) -> tuple[str, ...]:
    """A word of what is free where weights stream that would fit; nothing otherwise.

    A CPU uses weights where the file is mapped: streaming costs little there and goes unsaid.
    """
    device = module.device
    if not plan.fetches or device.properties.weights_in_place:
        return ()
    free = device.free_bytes() + module.weights.held_bytes
    limit, values = module.memory_limit, module.held_bytes
    if limit is not None:
        free = min(free, limit - device.context_bytes - module.code.code_bytes - values)
    # Before the first step no slab is there yet.
    free -= max(0, plan.slab_bytes - values)
    if free < plan.stored_bytes:
        return ()
    return (
        "weights stream although all of them would fit: "
        f"{format_bytes(free)} are free for {format_bytes(plan.stored_bytes)}; "
        "weight_budget = 'max' keeps them",
    )
