"""Kernels are unscheduled: the GPU targets turn those of whole models into code, and so do
their naive emitters alone, which the targets fall back to.

Compiled and validated only; nothing here runs on a device.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path

import onnx
import pytest
from tests.models import builders
from tests.unit.targets.spirv_validator import validate

from headrace.base.bundle import split_code
from headrace.importers.table import load
from headrace.pipeline import Options, compile_to
from headrace.targets.table import target
from headrace.targets.triton import naive as triton_naive
from headrace.targets.triton.compile import compile_source
from headrace.targets.vulkan import naive as vulkan_naive
from headrace.translation import Task, tasks_of, translate

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="triton is not installed: pip install 'headrace[cuda]'",
)

MODELS = {"resnet50": builders.resnet50, "minilm": builders.minilm}


def tasks(folder: Path, name: str, spelling: str) -> Sequence[Task]:
    """Every kernel of a model, to be translated for one target."""
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
    found = tasks_of(module.ir, targets)
    assert len(found) >= 9
    return found


def codes(folder: Path, name: str, spelling: str) -> list[tuple[str, bytes]]:
    """Every kernel of a model as code for one target."""
    made = tasks(folder, name, spelling)
    found = translate(made, (target(spelling),))
    return [(t.entry_point, c.data) for t, c in zip(made, found, strict=True)]


@pytest.mark.parametrize("name", MODELS)
def test_every_kernel_becomes_valid_spirv(name: str, tmp_path: Path) -> None:
    for entry_point, data in codes(tmp_path, name, "vulkan"):
        assert validate(data, tmp_path) == "", entry_point


@pytest.mark.parametrize("name", MODELS)
def test_the_naive_emitter_alone_makes_valid_spirv(name: str, tmp_path: Path) -> None:
    for task in tasks(tmp_path, name, "vulkan"):
        code = vulkan_naive.translate(task.entry_point, task.kernel)
        assert validate(code.data, tmp_path) == "", task.entry_point


@needs_triton
@pytest.mark.parametrize("name", MODELS)
def test_every_kernel_becomes_a_cubin(name: str, tmp_path: Path) -> None:
    for entry_point, data in codes(tmp_path, name, "cuda:sm_90"):
        assert all(c[:4] == b"\x7fELF" for c in split_code(data)), entry_point


@needs_triton
@pytest.mark.parametrize("name", MODELS)
def test_the_naive_emitter_alone_makes_cubins(name: str, tmp_path: Path) -> None:
    for task in tasks(tmp_path, name, "cuda:sm_90"):
        source = triton_naive.generate(f"k_{task.entry_point}", task.kernel)
        assert compile_source(source, "cuda", 90, 32).data[:4] == b"\x7fELF", task.entry_point
