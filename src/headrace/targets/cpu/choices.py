"""What may be tuned of a schedule, and the alternatives that are worth a try.

For each plan: the problem it solves (a key of `tuned.Table`), the plan with another choice,
and some choices near the rule's. Every alternative leaves the slices that a streamed weight
is cut into about as small as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.base.dtypes import F32
from headrace.base.symbols import Expr
from headrace.kernel.description import Axis
from headrace.targets.cpu.products import UNROLL
from headrace.targets.cpu.schedule import Schedule
from headrace.targets.cpu.tuned import ContractChoice, WindowChoice, WinogradChoice
from headrace.targets.tables import Choice, Problem, sizes_text, unfit

if TYPE_CHECKING:
    from headrace.targets.cpu.contract_plan import ContractPlan
    from headrace.targets.cpu.nest import Nest
    from headrace.targets.cpu.winograd_plan import WinogradPlan

_MOST_SCRATCH_BYTES = 1 << 20
_MOST_SLICE_BYTES = 1 << 20


def _sizes(axes: Sequence[Axis]) -> list[int] | None:
    found = [a.size for a in axes]
    return [s.value for s in found] if all(s.is_constant for s in found) else None


def _value(size: Expr) -> int:
    return size.value if size.is_constant else 0


def _others(chosen: Choice, tried: Sequence[Choice]) -> tuple[Choice, ...]:
    return tuple(c for c in dict.fromkeys(tried) if c != chosen)


# -- contractions -------------------------------------------------------------------


def contract_key(plan: ContractPlan) -> str | None:
    """The problem of a `ContractPlan`; None where sizes are open."""
    parts = [_sizes(axes) for axes in (plan.rows, (plan.column,), plan.sums, plan.batch)]
    if any(p is None for p in parts):
        return None
    rows, column, sums, batch = (sizes_text(p) for p in parts if p is not None)
    kinds = f"{plan.left.dtype.name} {plan.right.dtype.name}"
    packed = " packed" if plan.packed else ""
    return f"contract {rows} by {column} over {sums} batch {batch} {kinds}{packed}"


def with_contract_choice(plan: ContractPlan, choice: Choice | None, key: str) -> ContractPlan:
    """The plan cut as a choice says.

    Raises:
        HeadraceError HR0115: it does not fit.
    """
    if choice is None:
        return plan
    if not isinstance(choice, ContractChoice) or not _fits_contract(plan, choice):
        raise unfit(key)
    return replace(
        plan,
        row_block=choice.row_block,
        column_block=choice.column_block,
        rows_outside=choice.rows_outside,
        depth_block=choice.depth_block,
    )


def _fits_contract(plan: ContractPlan, choice: ContractChoice) -> bool:
    if not choice.row_block or choice.row_block % plan.row_tile:
        return False
    if not choice.column_block or choice.column_block % plan.panels:
        return False
    inner = _value(plan.sums[-1].size)
    depth = choice.depth_block
    if depth and (
        plan.sum_dtype != F32
        or plan.batch
        or plan.packed
        or plan.panels > 1
        or len(plan.sums) > 2
        or depth % UNROLL
        or inner % UNROLL
        or depth > inner
    ):
        return False
    if plan.packed and not choice.rows_outside:
        return False
    made = replace(
        plan, row_block=choice.row_block, column_block=choice.column_block, depth_block=depth
    )
    return made.scratch_bytes <= _MOST_SCRATCH_BYTES


def contract_problem(plan: ContractPlan) -> Problem | None:
    """The problem of a plan, with what may be tried."""
    key = contract_key(plan)
    if key is None:
        return None
    chosen = ContractChoice(
        plan.row_block, plan.column_block, plan.rows_outside, plan.depth_block
    )
    height, width = plan.row_tile, plan.panels
    rows = max(height, -(-plan.row_count.value // height) * height)
    columns = max(width, -(-plan.panel_count.value // width) * width)
    tried: list[ContractChoice] = []
    for factor in (2, 4):
        more, less = min(rows, chosen.row_block * factor), chosen.row_block // factor
        tried.append(replace(chosen, row_block=more))
        tried.append(replace(chosen, row_block=max(height, less // height * height)))
        wide, narrow = min(columns, chosen.column_block * factor), chosen.column_block // factor
        tried.append(replace(chosen, column_block=wide))
        tried.append(replace(chosen, column_block=max(width, narrow // width * width)))
    if not chosen.depth_block:
        tried.append(replace(chosen, rows_outside=not chosen.rows_outside))
    inner = _value(plan.sums[-1].size)
    for parts in (1, 2, 3, 4):
        part = -(-inner // parts // UNROLL) * UNROLL
        if 128 <= part <= 1024:
            tried.append(replace(chosen, depth_block=part))
    panel_bytes = 4 * plan.tile
    for axis in plan.sums:
        panel_bytes *= axis.size.value
    most = max(_MOST_SLICE_BYTES, chosen.column_block * panel_bytes)
    fitting = [
        c for c in tried if _fits_contract(plan, c) and c.column_block * panel_bytes <= most
    ]
    return Problem(key, chosen, _others(chosen, fitting))


# -- Winograd -----------------------------------------------------------------------


def winograd_key(plan: WinogradPlan) -> str | None:
    """The problem of a `WinogradPlan`; None where the number of images is open."""
    if plan.batch is not None and not plan.batch.size.is_constant:
        return None
    images = 1 if plan.batch is None else plan.batch.size.value
    pixels = sizes_text((plan.y.size.value, plan.x.size.value))
    return f"winograd {pixels} batch {images} from {plan.channels} to {plan.column.size.value}"


def with_winograd_choice(plan: WinogradPlan, choice: Choice | None, key: str) -> WinogradPlan:
    """The plan cut as a choice says.

    Raises:
        HeadraceError HR0115: it does not fit.
    """
    if choice is None:
        return plan
    if not isinstance(choice, WinogradChoice) or not choice.block or not choice.panels:
        raise unfit(key)
    made = replace(plan, block=choice.block, panels=choice.panels)
    if made.scratch_bytes > _MOST_SCRATCH_BYTES:
        raise unfit(key)
    return made


def winograd_problem(plan: WinogradPlan, columns: int) -> Problem | None:
    """The problem of a plan, with what may be tried; `columns` of a panel."""
    key = winograd_key(plan)
    if key is None:
        return None
    chosen = WinogradChoice(plan.block, plan.panels)
    panels = -(-plan.column.size.value // columns)
    step = 16 * plan.channels * columns * 4
    most = max(_MOST_SLICE_BYTES, chosen.panels * step)
    tried: list[Choice] = []
    for block in dict.fromkeys((chosen.block, 6, 12, 18, 24, 36, chosen.block * 2)):
        for width in dict.fromkeys((chosen.panels, 2, 4, 8, panels)):
            made = WinogradChoice(min(block, plan.tiles), min(width, panels))
            fits = replace(plan, block=made.block).scratch_bytes <= _MOST_SCRATCH_BYTES // 2
            if fits and made.panels * step <= most:
                tried.append(made)
    # One number at a time is enough to see which way to go.
    near = [
        c
        for c in tried
        if isinstance(c, WinogradChoice)
        and (c.block == chosen.block or c.panels == chosen.panels)
    ]
    return Problem(key, chosen, _others(chosen, near))


# -- windows ------------------------------------------------------------------------


def window_key(nest: Nest, schedule: Schedule) -> str | None:
    """The problem of a pool or depthwise convolution.

    None where sizes are open, and where there is nothing to choose: a heavy body is cut
    along its channels, not along pixels.
    """
    outer = _sizes(schedule.order)
    inner = [_sizes(p.axes) for p in nest.phases if p.axes]
    if schedule.family != "window" or outer is None or any(i is None for i in inner):
        return None
    if schedule.chunk or schedule.lanes < 2:
        return None
    taps = " and ".join(sizes_text(i) for i in inner if i is not None)
    reads = [r.dtype.name for p in nest.phases for r in p.reads]
    return f"window {sizes_text(outer)} over {taps} reading {' '.join(reads)}"


def with_window_choice(schedule: Schedule, choice: Choice | None, key: str) -> Schedule:
    """The schedule with a choice's numbers.

    Raises:
        HeadraceError HR0115: it does not fit.
    """
    if choice is None:
        return schedule
    if not isinstance(choice, WindowChoice) or not choice.rows:
        raise unfit(key)
    if not 0 < choice.lanes <= schedule.lanes * 4 or choice.lanes & (choice.lanes - 1):
        raise unfit(key)
    return replace(schedule, rows=choice.rows, lanes=choice.lanes, turned=choice.turned)


def window_problem(nest: Nest, schedule: Schedule) -> Problem | None:
    """The problem of a schedule, with what may be tried."""
    key = window_key(nest, schedule)
    if key is None:
        return None
    chosen = WindowChoice(schedule.rows, schedule.lanes, schedule.turned)
    total = 1
    for axis in schedule.order[:-1]:
        total *= axis.size.value
    tried = [replace(chosen, turned=not chosen.turned)] if chosen.rows > 1 else []
    counts = (chosen.rows * 2, chosen.rows * 4, chosen.rows // 2)
    tried += [replace(chosen, rows=max(1, min(rows, total))) for rows in counts]
    tried += [WindowChoice(r, chosen.lanes, True) for r in (7, 14, 28) if r <= total]
    widths = (chosen.lanes // 2, chosen.lanes * 2)
    longest = schedule.order[-1].size.value
    tried += [replace(chosen, lanes=lanes) for lanes in widths if 8 <= lanes <= longest]
    return Problem(key, chosen, _others(chosen, tried))
