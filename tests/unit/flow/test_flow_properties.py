"""Random programs mean the same after every pass of the flow stage, at both levels."""

from __future__ import annotations

import numpy as np
import pytest
from flow_graphs import random_inputs, random_model

from headrace.flow.executables import dispatches
from headrace.flow.interp import evaluate_function
from headrace.flow.passes.form_dispatches import FormDispatches
from headrace.flow.verify import verify
from headrace.ir.passes import make_pass
from headrace.kernel.target import Target
from headrace.targets.table import target
from headrace.tensor.interp import evaluate_function as evaluate_tensor_function

PASSES = (
    "flow-sink-reshapes",
    "flow-form-dispatches",
    "flow-outline-dispatches",
    "flow-deduplicate-executables",
    "flow-convert-to-kernels",
    "flow-deduplicate-executables",
)


def check(
    seed: int, level: int, steps: int, symbolic: bool, targets: tuple[Target, ...] = ()
) -> int:
    """How many dispatches there are."""
    model = random_model(seed, steps, symbolic)
    model.ir.verify()
    inputs = random_inputs(seed, 3 if symbolic else 2)
    with np.errstate(all="ignore"):
        expected = evaluate_tensor_function(model, inputs)
        for name in PASSES:
            if name == "flow-form-dispatches":
                FormDispatches(level, targets).run(model)
            else:
                make_pass(name).run(model)
            model.ir.verify()
            for wanted, got in zip(expected, evaluate_function(model, inputs), strict=True):
                same(wanted, got, f"seed {seed} level {level} after {name}")
        verify(model.ir)
    return len(dispatches(model.ir))


def same(wanted, got, where):
    assert wanted.shape == got.shape and wanted.dtype == got.dtype, where
    if wanted.dtype != np.float32:
        np.testing.assert_array_equal(wanted, got, where)
        return
    finite = wanted[np.isfinite(wanted)]
    scale = float(np.abs(finite).max()) if finite.size else 1.0
    np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=1e-5 * (1 + scale), err_msg=where)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("level", [0, 2])
def test_static(seed, level):
    check(seed, level, 12, symbolic=False)


@pytest.mark.parametrize("seed", range(40, 70))
def test_symbolic(seed):
    check(seed, 2, 12, symbolic=True)


JOINED = (117, 126, 252, 305, 325, 444, 462, 616, 663, 685, 693)
"""Seeds whose programs have neighbours that read one activation."""


@pytest.mark.parametrize("seed", JOINED)
def test_neighbours_are_one_launch(seed):
    apart = check(seed, 2, 16, seed % 2 == 0)
    together = check(seed, 2, 16, seed % 2 == 0, (target("cuda:sm_90"),))
    assert together < apart
