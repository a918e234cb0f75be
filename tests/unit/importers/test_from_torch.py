"""PyTorch modules become models: weights, open sizes, the mode they were in, refusals.

CI has no torch (it is large); there the first test alone runs. The others: an environment
with torch and onnxscript, as `make bench` makes it.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace
from headrace.base.errors import HeadraceError

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None or importlib.util.find_spec("onnxscript") is None,
    reason="torch or onnxscript is not installed (the extra headrace[torch])",
)


def test_without_torch_the_error_says_what_to_install(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(HeadraceError, match="HR1003") as refused:
        headrace.from_torch(object())
    assert "headrace[torch]" in str(refused.value)


def _module() -> Any:
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.GELU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Dropout(0.5),
        torch.nn.Linear(8, 5),
    )


@needs_torch
def test_a_module_answers_as_torch_does_and_keeps_its_mode(tmp_path: Path) -> None:
    import torch

    module = _module().train()
    x = torch.randn(2, 3, 16, 16)
    model = headrace.from_torch(module, x, dynamic_shapes=({0: "batch"},))
    assert module.training
    with headrace.load(headrace.compile(model, tmp_path / "m.hrx")) as loaded:
        for batch in (2, 5):
            given = torch.randn(batch, 3, 16, 16)
            with torch.inference_mode():
                expected = module.eval()(given).numpy()
            np.testing.assert_allclose(loaded(given.numpy())[0], expected, atol=1e-5)


@needs_torch
def test_what_torch_cannot_export_is_refused() -> None:
    import torch

    class Odd(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2 if float(x.sum()) > 0 else x

    with pytest.raises(HeadraceError, match="HR1011"):
        headrace.from_torch(Odd(), torch.randn(3))


@needs_torch
def test_a_module_of_two_gibibytes_says_how(monkeypatch: Any) -> None:
    from headrace.importers import torch as importer

    monkeypatch.setattr(importer, "_MOST_BYTES", 1000)
    with pytest.raises(HeadraceError, match="HR1012"):
        headrace.from_torch(_module())
