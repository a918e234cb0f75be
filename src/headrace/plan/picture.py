"""Draws a plan: memory over the commands of a step, and step time over budgets.

matplotlib loads when the first picture is drawn.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from headrace.base.errors import error
from headrace.plan.model import Plan, PlannedDispatch, Prediction

_VALUES, _SCRATCH, _RESIDENT, _RING = "#4c78a8", "#9ecae9", "#54a24b", "#f58518"
_MOST_NAMED = 12


def draw_plan(
    plan: Plan, path: str | os.PathLike[str], names: Sequence[str] = (), title: str = ""
) -> None:
    """Draws where everything stands over the commands of a step, as a PNG.

    Above, every byte the plan takes: resident weights, the ring with the fetch that holds
    each place from its issue to its release, and the slab. Below, the same for the slab
    alone: every value and scratch at its place.

    Args:
        names: of the function's resources; the largest values carry theirs.

    Raises:
        HeadraceError HR3401: the file cannot be written.
    """
    figure, (whole, slab) = _figure(2)
    _draw_whole(whole, plan)
    _draw_slab(slab, plan, names)
    p = plan.prediction
    sizes = ", ".join(f"{name}={size}" for name, size in plan.dims)
    figure.suptitle(
        f"{title + ': ' if title else ''}weight budget {_mb(plan.budget_bytes)} of "
        f"{_mb(plan.stored_bytes)}{f' ({sizes})' if sizes else ''}\n"
        f"peak {_mb(p.peak_bytes)}, brought per step {_mb(p.streamed_bytes)}, predicted step "
        f"{_ms(p.step_ns)} (computing {_ms(p.compute_ns)}, waiting {_ms(p.stall_ns)})",
        fontsize=11,
    )
    _save(figure, path)


def draw_curve(
    points: Sequence[tuple[int, Prediction]],
    path: str | os.PathLike[str],
    title: str = "",
    measured: Sequence[tuple[int, int]] = (),
) -> None:
    """Draws predicted step time and bytes brought over weight budgets, as a PNG.

    Args:
        points: (budget in bytes, its prediction), by budget.
        measured: (budget in bytes, step in ns), drawn as dots.

    Raises:
        HeadraceError HR3401: the file cannot be written.
    """
    figure, (axes,) = _figure(1)
    budgets = [budget / 1e6 for budget, _ in points]
    axes.plot(budgets, [p.step_ns / 1e6 for _, p in points], color=_VALUES, lw=2, label="step")
    axes.plot(
        budgets,
        [p.compute_ns / 1e6 for _, p in points],
        color=_RESIDENT,
        ls="--",
        label="computing alone",
    )
    if measured:
        axes.plot(
            [b / 1e6 for b, _ in measured],
            [ns / 1e6 for _, ns in measured],
            "o",
            color="black",
            label="measured",
        )
    axes.set_xlabel("weight budget (MB)")
    axes.set_ylabel("step (ms)")
    axes.set_ylim(bottom=0)
    other = axes.twinx()
    streamed = [p.streamed_bytes / 1e6 for _, p in points]
    other.fill_between(budgets, streamed, color=_RING, alpha=0.25, step="post")
    other.set_ylabel("weights brought per step (MB)")
    other.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(loc="upper right")
    figure.suptitle(title or "Predicted step over weight budget", fontsize=11)
    _save(figure, path)


def _figure(rows: int) -> tuple[Any, tuple[Any, ...]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.2 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, 1, sharex=rows > 1, squeeze=False)
    return figure, tuple(axes[:, 0])


def _save(figure: Any, path: str | os.PathLike[str]) -> None:
    try:
        # No date in the file: the same plan gives the same picture.
        figure.savefig(path, format="png", dpi=110, metadata={"Software": None})
    except OSError as problem:
        raise error(
            "HR3401",
            "the picture cannot be written",
            at=os.fspath(path),
            notes=problem.strerror or str(problem),
        ) from problem


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB"


def _ms(time_ns: int) -> str:
    return f"{time_ns / 1e6:.2f} ms"


def _boxes(axes: Any, boxes: Sequence[tuple[float, float, float, float]], color: str) -> None:
    """Draws (first command, last command, offset in MB, size in MB) in one go."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    patches = [
        Rectangle((first, offset), last - first, size) for first, last, offset, size in boxes
    ]
    axes.add_collection(
        PatchCollection(patches, facecolor=color, edgecolor="white", linewidth=0.4)
    )


def _draw_whole(axes: Any, plan: Plan) -> None:
    count = max(1, len(plan.commands))
    ring = plan.ring_bytes / 1e6
    slab = plan.slab_bytes / 1e6
    total = plan.prediction.peak_bytes / 1e6
    resident = max(0.0, total - ring - slab)
    _boxes(axes, [(0, count, 0, resident)], _RESIDENT)
    flights: list[tuple[float, float, float, float]] = []
    for fetch in plan.fetches:
        place = resident + fetch.ring_offset_bytes / 1e6
        size = fetch.size_bytes / 1e6
        flights.append((fetch.issue_after + 1, fetch.released_after + 1, place, size))
        if fetch.issue_after < 0 and fetch.previous_issue_after >= 0:
            flights.append((fetch.previous_issue_after + 1, count, place, size))
    _boxes(axes, flights, _RING)
    for fetch in plan.fetches:
        place = resident + (fetch.ring_offset_bytes + fetch.size_bytes / 2) / 1e6
        axes.plot(
            [fetch.needed_by, fetch.released_after + 1], [place, place], color="black", lw=0.8
        )
    values = [
        (
            p.first_command,
            p.last_command + 1,
            resident + ring + p.offset_bytes / 1e6,
            p.size_bytes / 1e6,
        )
        for p in plan.placements
    ]
    _boxes(axes, values, _VALUES)
    axes.axhline(total, color="black", lw=0.8, ls=":")
    axes.set_xlim(0, count)
    axes.set_ylim(0, total * 1.15 or 1)
    axes.set_ylabel("memory (MB)")
    _legend(
        axes,
        [
            (_RESIDENT, f"weights that stay {resident:.1f} MB"),
            (_RING, f"ring {ring:.1f} MB (line: while read)"),
            (_VALUES, f"slab {slab:.1f} MB"),
        ],
    )


def _draw_slab(axes: Any, plan: Plan, names: Sequence[str]) -> None:
    boxes = [
        (p.first_command, p.last_command + 1, p.offset_bytes / 1e6, p.size_bytes / 1e6)
        for p in plan.placements
    ]
    _boxes(axes, boxes, _VALUES)
    _boxes(axes, _scratch_boxes(plan), _SCRATCH)
    largest = sorted(plan.placements, key=lambda p: (-p.size_bytes, p.resource))[:_MOST_NAMED]
    for p in largest if names else ():
        axes.text(
            (p.first_command + p.last_command + 1) / 2,
            (p.offset_bytes + p.size_bytes / 2) / 1e6,
            names[p.resource][-24:],
            ha="center",
            va="center",
            fontsize=6,
            clip_on=True,
        )
    axes.set_ylim(0, plan.slab_bytes * 1.15 / 1e6 or 1)
    axes.set_xlabel("command of the step")
    axes.set_ylabel("slab (MB)")
    _legend(axes, [(_VALUES, "values between launches"), (_SCRATCH, "scratch")])


def _scratch_boxes(plan: Plan) -> list[tuple[float, float, float, float]]:
    """The scratch of each launch; workers' copies stand side by side."""
    most = max(
        (c.scratch_bytes for c in plan.commands if isinstance(c, PlannedDispatch)), default=0
    )
    workers = plan.scratch_bytes // most if most else 1
    return [
        (
            index,
            index + 1,
            command.scratch_offset_bytes / 1e6,
            command.scratch_bytes * workers / 1e6,
        )
        for index, command in enumerate(plan.commands)
        if isinstance(command, PlannedDispatch) and command.scratch_bytes
    ]


def _legend(axes: Any, entries: Sequence[tuple[str, str]]) -> None:
    from matplotlib.patches import Patch

    axes.legend(
        handles=[Patch(facecolor=color, label=label) for color, label in entries],
        loc="upper right",
        ncols=len(entries),
        fontsize=8,
    )
