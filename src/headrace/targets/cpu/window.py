"""Reductions with vectors along an outer axis: pooling, depthwise convolution, sums.

Max and average pooling and depthwise convolution over NHWC run `lanes` channels at
once, with the window's loops inside; so do global pooling and reductions over leading
dimensions. Windows that stick out read a halo, or are guarded where there is none.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.base.symbols import Expr, dim
from headrace.kernel.description import Kernel, Load, Phase, Scalar
from headrace.kernel.target import LayoutWish
from headrace.targets.cpu.choices import window_key, with_window_choice
from headrace.targets.cpu.keep import keep_expensive
from headrace.targets.cpu.lanes import naive_cost, outer_choices, schedule_tiles
from headrace.targets.cpu.machine import Machine
from headrace.targets.cpu.simple import SimplePlan, lowered
from headrace.targets.cpu.simple import emit_simple as emit

__all__ = ["emit", "layout_wishes", "match"]


def match(kernel: Kernel, machine: Machine) -> SimplePlan | None:
    """Kernels with inner axes, where vectors along an outer axis pay."""
    nest = keep_expensive(lowered(kernel, machine))
    if not any(p.axes for p in nest.phases):
        return None
    choices = outer_choices(nest, machine)
    if not choices or choices[0].cost >= naive_cost(nest):
        return None
    windows = any(_window_loads(p) for p in kernel.phases)
    schedule = schedule_tiles(nest, choices[0], "window" if windows else "reduce")
    key = window_key(nest, schedule) or ""
    return SimplePlan(nest, with_window_choice(schedule, machine.table.get(key), key))


def _window_loads(phase: Phase) -> list[Load]:
    """Loads with an index that adds an outer axis and a reduction axis."""
    reduction = {a.name for a in phase.reduction_axes}
    return [
        item
        for item in phase.body
        if isinstance(item, Load) and any(_slides(i, reduction) for i in item.index)
    ]


def _slides(index: Expr, reduction: set[str]) -> bool:
    return bool(index.names & reduction) and any(n.startswith("%d") for n in index.names)


def _channel(kernel: Kernel) -> str | None:
    """The outer axis that is an index by itself in every windowed load and store."""
    found: str | None = None
    for phase in kernel.phases:
        for load in _window_loads(phase):
            reduction = {a.name for a in phase.reduction_axes}
            alone = [
                axis.name
                for d, index in enumerate(load.index)
                for axis in kernel.outer
                if index == dim(axis.name) and d > 0
            ]
            sliding = [d for d, i in enumerate(load.index) if _slides(i, reduction)]
            if len(alone) != 1 or not sliding or (found is not None and found != alone[0]):
                return None
            found = alone[0]
    return found


def layout_wishes(kernel: Kernel, machine: Machine) -> Mapping[int, LayoutWish] | None:
    """NHWC for windows over NCHW, with a halo where a window sticks out by a constant."""
    channel = _channel(kernel)
    if channel is None:
        return _global_wishes(kernel)
    wishes: dict[int, LayoutWish] = {}
    for phase in kernel.phases:
        for item in phase.body:
            if isinstance(item, Load):
                wish = _wish(kernel, phase, item, channel)
                if wish is not None:
                    wishes[item.operand] = wish
        for store in phase.stores:
            if isinstance(store.operand, int):
                order = _channel_last(store.index, channel)
                if order is not None:
                    wishes[store.operand] = LayoutWish(order)
    return wishes


def _channel_last(index: tuple[Expr, ...], channel: str) -> tuple[int, ...] | None:
    places = [d for d, i in enumerate(index) if i == dim(channel)]
    if len(places) != 1:
        return None
    return (*(d for d in range(len(index)) if d != places[0]), places[0])


def _wish(kernel: Kernel, phase: Phase, load: Load, channel: str) -> LayoutWish | None:
    order = _channel_last(load.index, channel)
    if order is None:
        return None
    low, high = [0] * len(order), [0] * len(order)
    for d in load.bounded:
        sizes = {a.name: a.size for a in (*kernel.outer, *phase.reduction_axes)}
        first = load.index[d].substitute({n: 0 for n in sizes})
        last = load.index[d].substitute({n: s - 1 for n, s in sizes.items()})
        over = last - kernel.operands[load.operand].shape[d] + 1
        if not (first.is_constant and over.is_constant):
            return LayoutWish(order)
        low[d], high[d] = max(0, -first.value), max(0, over.value)
    if not any(low) and not any(high):
        return LayoutWish(order)
    value: Scalar = 0 if load.otherwise is None else load.otherwise
    return LayoutWish(order, tuple(low), tuple(high), value)


def _global_wishes(kernel: Kernel) -> Mapping[int, LayoutWish] | None:
    """Channels last where the spatial dimensions behind a channel are all reduced."""
    if len(kernel.phases) == 0 or kernel.phases[0].reduction is None:
        return None
    phase = kernel.phases[0]
    reduction = {a.name for a in phase.reduction_axes}
    wishes: dict[int, LayoutWish] = {}
    for item in phase.body:
        if not isinstance(item, Load) or len(item.index) < 4 or item.bounded:
            continue
        spatial = [d for d, i in enumerate(item.index) if i.names and i.names <= reduction]
        outer = [d for d in range(len(item.index)) if d not in spatial]
        if len(outer) == 2 and outer == [0, 1] and len(spatial) == len(item.index) - 2:
            wishes[item.operand] = LayoutWish((0, *spatial, 1))
    return wishes or None
