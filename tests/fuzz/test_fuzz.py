"""Grown graphs: what compiled code computes at random budgets and levels, the meaning computes.

A failure prints the smallest graph that still fails, as text. 5,000 graphs when asked, a
sample always.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import fuzzing
import numpy as np
import pytest
from grown_graphs import LOOPS_FROM, STEPS, grow, seeds_of

from headrace.runtime.drivers.table import open_device
from headrace.tensor import verify

SAMPLE = 60
WHOLE = 5_000
PART = 250


@pytest.fixture(scope="module")
def device() -> Iterator[Any]:
    opened = open_device("cpu", threads=2)
    yield opened
    opened.close()


def _run(seeds: range, device: Any) -> None:
    failures = [s for s in seeds if fuzzing.failure(s, seeds_of(s), device) is not None]
    shown = "\n\n".join(fuzzing.reproducer(s, device) or f"graph {s}" for s in failures[:3])
    assert not failures, f"graphs {failures} fail; the smallest:\n{shown}"


@pytest.mark.parametrize("part", range(4))
def test_sampled_graphs_agree_with_their_meaning(part: int, device: Any) -> None:
    size = SAMPLE // 4
    _run(range(part * size, (part + 1) * size), device)


def test_sampled_graphs_with_loops_agree_with_their_meaning(device: Any) -> None:
    _run(range(LOOPS_FROM, LOOPS_FROM + 15), device)


ONCE_WRONG = {
    2146: "f64 results of f32 sums: the harness asked for too much",
    3966: "a transposed read at gathered places was taken for a plain one",
    3820: "a tensor copied into one of another rank was taken for a part of it",
    4422: "f64 to f16 behind a copysign called a function that nothing links",
    10361: "the zero that a loop starts at was no constant to a window's sum beside it",
}


@pytest.mark.parametrize("seed", ONCE_WRONG)
def test_graphs_that_once_failed_agree(seed: int, device: Any) -> None:
    _run(range(seed, seed + 1), device)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(WHOLE // PART))
def test_every_graph_agrees_with_its_meaning(part: int, device: Any) -> None:
    _run(range(part * PART, (part + 1) * PART), device)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_every_graph_with_loops_agrees_with_its_meaning(part: int, device: Any) -> None:
    start = LOOPS_FROM + part * PART
    _run(range(start, start + PART), device)


def test_graphs_are_valid_and_have_every_kind_of_step() -> None:
    names: set[str] = set()
    for seed in range(120):
        grown = grow(seed, seeds_of(seed))
        verify.verify(grown.model)
        names |= {op.name for op in grown.model.ir.walk()}
    assert len(STEPS) > 30
    assert len([n for n in names if n.startswith("tensor.")]) > 55


def test_a_wrong_result_is_found_and_made_small(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one element of every result moved, a graph of one step is left."""
    honest = fuzzing._compiled  # pyright: ignore[reportPrivateUsage]

    def wrong(*arguments: Any) -> list[Any]:
        found = honest(*arguments)
        for array in found:
            if array.dtype == np.float32 and array.size:
                array.reshape(-1)[0] += 100
        return found

    monkeypatch.setattr(fuzzing, "_compiled", wrong)
    seed = next(s for s in range(50) if fuzzing.failure(s, seeds_of(s)[:4], device))
    steps = fuzzing.smallest(seed, seeds_of(seed)[:4], device)
    assert len(steps) == 1
    monkeypatch.setattr(fuzzing, "seeds_of", lambda _: steps)
    text = fuzzing.reproducer(seed, device)
    assert text is not None and "func.func @main" in text and "differ" in text
