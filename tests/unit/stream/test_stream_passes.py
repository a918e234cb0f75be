"""What the passes do to the meaning: nothing, at any point of the way."""

from __future__ import annotations

import numpy as np
import pytest
from stream_texts import (
    STREAM_PASSES,
    TWO_LAYERS,
    parsed,
    passed,
    printed,
    two_layers_reference,
)

from headrace.hal import interp as hal_interp
from headrace.hal import verify as hal_verify
from headrace.stream import interp, verify
from headrace.stream.analysis.binding_layout import BindingAccess
from headrace.stream.commands import CopyOp, DispatchOp


@pytest.mark.parametrize("count", [2, 3, 4, 5])
@pytest.mark.parametrize("n", [1, 7])
def test_meaning_is_kept(count: int, n: int) -> None:
    model = passed(parsed(TWO_LAYERS), *STREAM_PASSES[:count])
    verify.verify(model.ir)
    x = np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32)
    got = interp.run(model, {"x": x})
    for name, wanted in two_layers_reference(model, x).items():
        np.testing.assert_allclose(got[name], wanted, rtol=1e-5, atol=1e-5)


def test_meaning_is_kept_in_hal() -> None:
    model = passed(
        parsed(TWO_LAYERS), *STREAM_PASSES, "hal-materialize-interfaces{targets=cpu,cuda}"
    )
    hal_verify.verify(model.ir)
    x = np.ones((3, 4), np.float32)
    for target in (None, "cpu", "cuda"):
        got = hal_interp.run(model, {"x": x}, target=target)
        for name, wanted in two_layers_reference(model, x).items():
            np.testing.assert_allclose(got[name], wanted, rtol=1e-5, atol=1e-5)


def test_only_needed_copies_stay() -> None:
    model = passed(parsed(TWO_LAYERS), *STREAM_PASSES)
    copies = [op for op in model.ir.walk() if isinstance(op, CopyOp)]
    # `flat` is `y` again, `x_too` is an input: both need their own bytes.
    assert len(copies) == 2
    dispatches = [op for op in model.ir.walk() if isinstance(op, DispatchOp)]
    accesses = [[a.data for a in op.accesses.data] for op in dispatches]
    assert accesses == [
        ["ro", "ro", "wo"],
        ["ro", "ro", "wo"],
        ["ro", "rw"],
        ["ro", "ro", "wo"],
    ]


def test_passes_are_deterministic() -> None:
    texts = {printed(passed(parsed(TWO_LAYERS), *STREAM_PASSES)) for _ in range(3)}
    assert len(texts) == 1


@pytest.mark.parametrize(
    ("sites", "suffix"),
    [
        ((), ""),
        (("ro",), "ro"),
        (("wo",), "wo"),
        (("xw",), "xw"),
        (("xw", "xw"), "xw"),
        (("xw", "wo"), "wo"),
        (("wo", "xw"), "wo"),
        (("wo", "xw", "xw"), "wo"),
        (("ro", "wo"), "rw"),
        (("ro", "xw"), "rw"),
        (("rw",), "rw"),
    ],
)
def test_access_is_merged_over_sites(sites: tuple[str, ...], suffix: str) -> None:
    access = BindingAccess()
    for site in sites:
        access = access.merged(site)
    assert access.suffix == suffix
