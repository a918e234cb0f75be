"""Whether every model gives onnxruntime's answers, from its ONNX and its StableHLO file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import headrace
from models import Arrays, Model

TOLERANCE = 1e-4
"""Largest error allowed, of the largest value of an output."""
SENSITIVITY = 100 * TOLERANCE
"""Two inputs' answers must lie so far apart: else a constant would pass."""


@dataclass(frozen=True)
class Agreement:
    """How an output compares: parts of its largest value.

    Attributes:
        output: its name.
        error: between ours and the peer's, for the worse of two inputs.
        difference: between the peer's answers to the two inputs.
    """

    output: str
    error: float
    difference: float

    @property
    def holds(self) -> bool:
        return self.error <= TOLERANCE and self.difference >= SENSITIVITY


def answers(model: Model, compiled: Path, suffix: str, inputs: list[Arrays]) -> list[list[Any]]:
    """Ours, of each input, in the form that the ONNX file gives."""
    found: list[list[Any]] = []
    with headrace.load(compiled, weight_budget="max", threads=2) as module:
        for given in inputs:
            stablehlo = suffix == ".mlir"
            arrays = model.stablehlo_inputs(given) if stablehlo else given
            outputs = [np.array(output) for output in module(*arrays.values())]
            found.append([model.from_stablehlo(o) if stablehlo else o for o in outputs])
    return found


def agreements(model: Model, ours: list[list[Any]], theirs: list[list[Any]]) -> list[Agreement]:
    found: list[Agreement] = []
    for number, name in enumerate(model.outputs):
        mine = [np.float64(answer[number]) for answer in ours]
        peers = [np.float64(answer[number]) for answer in theirs]
        largest = max(float(np.abs(p).max()) for p in peers)
        for m, p in zip(mine, peers, strict=True):
            if m.shape != p.shape:
                raise SystemExit(f"{model.name}: {name} is {m.shape}, should be {p.shape}")
        errors = [np.abs(m - p).max() / largest for m, p in zip(mine, peers, strict=True)]
        worst = float("inf") if any(np.isnan(e) for e in errors) else float(max(errors))
        found.append(Agreement(name, worst, float(np.abs(peers[0] - peers[1]).max() / largest)))
    return found
