"""Every pass keeps the meaning of random models, their locations and their validity."""

from __future__ import annotations

import numpy as np
import pytest
from random_graphs import random_model

from headrace.ir.locations import places
from headrace.ir.passes import make_pass, stage_passes
from headrace.ir.text import print_module, verify_module
from headrace.tensor.interp import run
from headrace.tensor.verify import verify

_PASSES = sorted(stage_passes("tensor"))
_PIPELINE = (
    "tensor-elide-copies",
    "tensor-canonicalize",
    "tensor-eliminate-common-subexpressions",
    "tensor-propagate-transposes",
    "tensor-canonicalize",
    "tensor-fold-batch-norm",
    "tensor-fold-constants",
    "tensor-canonicalize",
    "tensor-fold-constants",
    "tensor-eliminate-common-subexpressions",
    "tensor-eliminate-dead-code",
)


def _check(seed: int, passes: tuple[str, ...]) -> None:
    model, inputs = random_model(seed)
    before = run(model, inputs)
    for name in passes:
        make_pass(name).run(model)
        verify_module(model.ir)
        verify(model)
        after = run(model, inputs)
        for output, value in before.items():
            scale = max(1.0, float(np.abs(value).max(initial=0.0)))
            np.testing.assert_allclose(
                after[output], value, rtol=1e-4, atol=1e-5 * scale, err_msg=f"{name}, {seed}"
            )
    for function in model.ir.ops:
        for operation in function.regions[0].blocks[0].ops:
            if operation.name.startswith("tensor."):
                assert places(operation) == ("node 'test'",), (
                    f"'{operation.name}' lost its place"
                )


@pytest.mark.parametrize("name", _PASSES)
def test_a_pass_keeps_the_meaning(name: str) -> None:
    for seed in range(12):
        _check(seed, (name,))


@pytest.mark.parametrize("seed", range(100, 125))
def test_the_pipeline_keeps_the_meaning(seed: int) -> None:
    _check(seed, _PIPELINE)


def test_the_pipeline_is_deterministic() -> None:
    texts: list[str] = []
    for _ in range(2):
        model, _inputs = random_model(7, steps=30)
        for name in _PIPELINE:
            make_pass(name).run(model)
        sources = [f"{n} {s.digest}" for n, s in model.parameters.items()]
        texts.append(print_module(model.ir, locations=True) + "\n".join(sources))
    assert texts[0] == texts[1]
