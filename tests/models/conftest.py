"""Whole models, built once a session and compiled once a target."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

import headrace


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, Path]]:
    """Saves a model and compiles it, once per name: (path of .onnx, path of .hrx)."""
    made: dict[str, tuple[Path, Path]] = {}
    folder = tmp_path_factory.mktemp("models")

    def build(name: str, make: Callable[[], onnx.ModelProto]) -> tuple[Path, Path]:
        if name not in made:
            source = folder / f"{name}.onnx"
            onnx.save(make(), source)
            made[name] = source, headrace.compile(source, folder / f"{name}.hrx")
        return made[name]

    return build
