"""Kernels are unscheduled: the naive GPU emitters turn those of whole models into code.

Compiled and validated only; nothing here runs on a device.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from tests.models import builders
from tests.unit.targets.spirv_validator import validate

from headrace.base.bundle import split_code
from headrace.importers.table import load
from headrace.pipeline import Options, compile_to
from headrace.targets.table import target
from headrace.translation import tasks_of, translate

MODELS = {"resnet50": builders.resnet50, "minilm": builders.minilm}


def codes(folder: Path, name: str, spelling: str) -> list[tuple[str, bytes]]:
    """Every kernel of a model as code for one target."""
    make: Callable[[], onnx.ModelProto] = MODELS[name]
    try:
        model = make()
    except ModuleNotFoundError as missing:
        pytest.skip(f"weights not installed: {missing}")
    path = folder / f"{name}.onnx"
    onnx.save(model, path)
    targets = (target(spelling),)
    made = compile_to(load(path), "hal", Options(targets))
    (module,) = made.classes.values()
    tasks = tasks_of(module.ir, targets)
    assert len(tasks) >= 9
    found = translate(tasks, targets)
    return [(t.entry_point, c.data) for t, c in zip(tasks, found, strict=True)]


@pytest.mark.parametrize("name", MODELS)
def test_every_kernel_becomes_valid_spirv(name: str, tmp_path: Path) -> None:
    for entry_point, data in codes(tmp_path, name, "vulkan"):
        assert validate(data, tmp_path) == "", entry_point


@pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="triton is not installed: pip install 'headrace[cuda]'",
)
@pytest.mark.parametrize("name", MODELS)
def test_every_kernel_becomes_a_cubin(name: str, tmp_path: Path) -> None:
    for entry_point, data in codes(tmp_path, name, "cuda:sm_90"):
        assert all(c[:4] == b"\x7fELF" for c in split_code(data)), entry_point
