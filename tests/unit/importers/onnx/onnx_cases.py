"""Cases of one node each: their models, with static sizes or every size symbolic."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx_graphs import model_of, symbolic_shapes

_DRAW = np.random.default_rng(3)
_START = _DRAW.bit_generator.state


def draw_again() -> None:
    """Draws from the beginning. Every module of cases begins with it, so that its numbers are
    the same whichever modules were collected before."""
    _DRAW.bit_generator.state = _START


def floats(*shape: int) -> Any:
    return _DRAW.standard_normal(shape).astype(np.float32)


def positive(*shape: int) -> Any:
    return _DRAW.uniform(0.2, 3.0, shape).astype(np.float32)


def integers(*shape: int, low: int = 0, high: int = 10) -> Any:
    return _DRAW.integers(low, high, shape).astype(np.int64)


@dataclass(frozen=True)
class Case:
    """One node: data inputs are symbolic, weights are constants, None one left out."""

    kind: str
    inputs: tuple[Any, ...]
    weights: tuple[Any, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    opset: int = 21
    outputs: int = 1
    note: str = ""
    domain: str = ""

    @property
    def name(self) -> str:
        text = "_".join(f"{k}={v}" for k, v in self.attributes.items())
        parts = [self.kind, self.note, text.replace(" ", ""), f"opset{self.opset}"]
        return "-".join(p for p in parts if p)


def image(channels: int = 4, height: int = 7, width: int = 9) -> Any:
    return floats(2, channels, height, width)


def proto_of(case: Case, symbolic: bool) -> tuple[Any, dict[str, Any]]:
    inputs = {f"x{n}": a for n, a in enumerate(case.inputs)}
    weights = {f"w{n}": a for n, a in enumerate(case.weights) if a is not None}
    outputs = [f"y{n}" for n in range(case.outputs)]
    names = [f"w{n}" if f"w{n}" in weights else "" for n in range(len(case.weights))]
    node = helper.make_node(
        case.kind, [*inputs, *names], outputs, domain=case.domain, **case.attributes
    )
    shapes = symbolic_shapes(inputs) if symbolic else None
    proto = model_of([node], inputs, outputs, weights=weights, opset=case.opset, shapes=shapes)
    return proto, inputs


def unique(cases: list[Case]) -> list[Any]:
    seen: dict[str, int] = {}
    params: list[Any] = []
    for case in cases:
        seen[case.name] = seen.get(case.name, 0) + 1
        end = f"-{seen[case.name]}" if seen[case.name] > 1 else ""
        params.append(pytest.param(case, id=case.name + end))
    return params
