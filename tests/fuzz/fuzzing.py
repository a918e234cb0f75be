"""Runs grown graphs through the meaning and through compiled code, and makes failures small."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from grown_graphs import Grown, grow, seeds_of

from headrace import api
from headrace.ir.text import print_module
from headrace.runtime.module import load_module
from headrace.tensor.interp import evaluate_function

_MARKS = {
    n: rf"[x<]{m}\b"
    for n, m in (
        ("float64", "f64"),
        ("float32", "f32"),
        ("float16", "f16"),
        ("bfloat16", "bf16"),
    )
}
BUDGETS = ("max", "min", "between")
TOLERANCE = {"float64": 1e-9, "float32": 2e-4, "float16": 2e-2, "bfloat16": 1e-1}
"""Of the largest element, where the meaning itself does not move more."""
WOBBLES = 3
"""How often the meaning is asked again with inputs moved by a rounding."""


def failure(seed: int, steps: Sequence[int], device: Any) -> str | None:
    """What is wrong with a graph, in one line; None where both agree."""
    try:
        grown = grow(seed, steps)
    except (ValueError, ArithmeticError) as wrong:
        return f"growing: {wrong}"
    with np.errstate(all="ignore"):
        wanted = evaluate_function(grown.model, grown.inputs)
    rng = np.random.default_rng([seed, 2])
    levels = (2, 0) if rng.random() < 0.25 else (2,)
    budget = str(rng.choice(BUDGETS))
    for level in levels:
        try:
            found = _compiled(seed, steps, grown, level, budget, device)
        except Exception as wrong:
            lines = str(wrong).splitlines() or [""]
            return f"-O{level} {budget}: {type(wrong).__name__}: {lines[0]}"
        for n, (a, b) in enumerate(zip(found, wanted, strict=True)):
            reason = _difference(grown, n, a, b)
            if reason is not None:
                return f"-O{level} {budget}: result {n}: {reason}"
    return None


def _compiled(
    seed: int, steps: Sequence[int], grown: Grown, level: int, budget: str, device: Any
) -> list[Any]:
    model = grow(seed, steps).model  # compiling takes a model apart
    with tempfile.TemporaryDirectory(prefix="headrace-fuzz-", dir="/dev/shm") as folder:
        path = api.compile(model, Path(folder) / "g.hrx", level=level, jobs=1)
        at_load = "min" if budget == "between" else budget
        with load_module(path, device, weight_budget=at_load) as module:
            if budget == "between":
                least, most = module.minimum_weight_budget, module.stored_bytes
                module.weight_budget = max(least, (least + most) // 2)
            names = [info.name for info in module.inputs_of(None)]
            outputs = module(**dict(zip(names, grown.inputs, strict=True)))
            return [np.array(a) for a in dict(outputs.items()).values()]


def _difference(grown: Grown, number: int, found: Any, wanted: Any) -> str | None:
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"{found.dtype}{list(found.shape)} computed, {wanted.dtype}{list(wanted.shape)} meant"
    if found.dtype.name not in TOLERANCE:
        wrong = found != wanted
        return _told(wrong, found, wanted) if np.any(wrong) else None
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    allowed = _allowed(grown, b)
    wrong = _wrong(a, b, allowed)
    if not np.any(wrong):
        return None
    wrong = _wrong(a, b, allowed + 16 * _movement(grown, number, b))
    return _told(wrong, found, wanted) if np.any(wrong) else None


def _allowed(grown: Grown, b: Any) -> Any:
    """By the coarsest floats of the graph: a result in wider ones may come from them."""
    text = str(grown.model.ir)
    coarsest = max(t for name, t in TOLERANCE.items() if re.search(_MARKS[name], text))
    finite = np.abs(b[np.isfinite(b)])
    scale = max(1.0, float(finite.max())) if finite.size else 1.0
    return np.full(b.shape, coarsest * scale)


def _wrong(a: Any, b: Any, allowed: Any) -> Any:
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        near = np.abs(a - b) <= allowed
    # What overflows in one order of a sum need not in another.
    large = (np.abs(a) > 3e4) | ~np.isfinite(a)
    edge = large & ((np.abs(b) > 3e4) | ~np.isfinite(b)) & ~(np.isfinite(a) & np.isfinite(b))
    return ~(same | near | edge)


def _movement(grown: Grown, number: int, b: Any) -> Any:
    """How far the meaning's own result moves with inputs a rounding away: what is ill
    conditioned says nothing."""
    moved = np.zeros(b.shape)
    rng = np.random.default_rng(7)
    coarse = max((np.finfo(np.float32).eps, *(_eps(t) for t in _types(grown))))
    for _ in range(WOBBLES):
        inputs = [
            (x * (1 + coarse * rng.uniform(-1, 1, x.shape))).astype(x.dtype)
            if x.dtype.name in TOLERANCE else x
            for x in grown.inputs
        ]  # fmt: skip
        with np.errstate(all="ignore"):
            other = evaluate_function(grown.model, inputs)[number].astype(np.float64)
            step = np.abs(other - b)
        moved = np.maximum(moved, np.where(np.isfinite(step), step, np.inf))
    return moved


def _types(grown: Grown) -> list[str]:
    text = str(grown.model.ir)
    return [name for name in ("float16", "bfloat16") if re.search(_MARKS[name], text)]


def _eps(name: str) -> float:
    return {"float16": 2.0**-10, "bfloat16": 2.0**-7}[name]


def _told(wrong: Any, found: Any, wanted: Any) -> str:
    at = tuple(int(i) for i in np.argwhere(np.atleast_1d(wrong))[0])
    a, b = np.atleast_1d(found)[at], np.atleast_1d(wanted)[at]
    return f"{int(np.sum(wrong))} of {found.size} differ; {list(at)}: {a!s}, not {b!s}"


# -- making a failure small --------------------------------------------------------------------


def smallest(seed: int, steps: Sequence[int], device: Any) -> list[int]:
    """The steps of a failing graph without which it no longer fails."""
    kept = list(steps)
    size = max(1, len(kept) // 2)
    while size:
        begin = 0
        while begin < len(kept):
            fewer = kept[:begin] + kept[begin + size :]
            if fewer and failure(seed, fewer, device) is not None:
                kept = fewer
            else:
                begin += size
        size //= 2
    return kept


def reproducer(seed: int, device: Any) -> str | None:
    """The text of a smallest graph that fails, with how to run it; None where it does not."""
    steps = seeds_of(seed)
    if failure(seed, steps, device) is None:
        return None
    steps = smallest(seed, steps, device)
    reason = failure(seed, steps, device)
    grown = grow(seed, steps)
    return (
        f"graph {seed}: {reason}\n  failure({seed}, {steps}, device), sizes {grown.dims}\n"
        f"{print_module(grown.model.ir)}"
    )
