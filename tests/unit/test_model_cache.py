"""Compiled models kept on disk: used while nothing has changed, and never when damaged."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, external_data_helper, helper, numpy_helper

from headrace import api, model_cache
from headrace.artifact.pool import HUGE_PAGE_BYTES


def write_model(path: Path, value: float = 1.0, external: bool = False) -> Path:
    weight = numpy_helper.from_array(np.full((8, 8), value, np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("batch", 8))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ("batch", 8))],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    if external:
        external_data_helper.convert_model_to_external_data(
            model, location="weights.bin", size_threshold=0
        )
    onnx.save(model, path)
    return path


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HEADRACE_MODEL_CACHE", "1")
    return tmp_path / "cache" / "models"


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Grows with every compilation that really happens."""
    found: list[Any] = []
    real = api.compile_parts

    def counting(model: Any, **options: Any) -> api.Compiled:
        found.append(model)
        return real(model, **options)

    monkeypatch.setattr(api, "compile_parts", counting)
    return found


def test_an_unchanged_model_is_compiled_once(
    tmp_path: Path, cache: Path, compilations: list[Any]
) -> None:
    model = write_model(tmp_path / "m.onnx")
    first = api.compile(model, tmp_path / "a.hrx").read_bytes()
    second = api.compile(model, tmp_path / "b.hrx").read_bytes()
    assert first == second
    assert len(compilations) == 1
    assert [p.read_bytes() for p in cache.iterdir()] == [first]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.hrx", "b.hrx", "cache", "m.onnx"]
    # The entry is no link to what the user has.
    (tmp_path / "a.hrx").write_bytes(b"")
    assert api.compile(model, tmp_path / "c.hrx").read_bytes() == first
    assert api.compile_cached(model, "cpu").read_bytes() == first
    assert len(compilations) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"level": 0},
        {"targets": ("cpu:generic",)},
        {"dims": {"batch": 2}},
        {"numerics": "exact"},
    ],
    ids=["level", "target", "dims", "numerics"],
)
def test_what_was_asked_for_counts(
    tmp_path: Path, compilations: list[Any], options: dict[str, Any]
) -> None:
    model = write_model(tmp_path / "m.onnx")
    api.compile(model, tmp_path / "a.hrx")
    api.compile(model, tmp_path / "b.hrx", **options)
    api.compile(model, tmp_path / "c.hrx", **options)
    assert len(compilations) == 2


def test_what_is_in_the_model_counts(tmp_path: Path, compilations: list[Any]) -> None:
    for value in (1.0, 2.0):
        model = write_model(tmp_path / "m.onnx", value)
        api.compile(model, tmp_path / "a.hrx")
    write_model(tmp_path / "m.onnx", external=True)
    (tmp_path / "weights.bin").write_bytes(np.full(64, 3.0, np.float32).tobytes())
    api.compile(tmp_path / "m.onnx", tmp_path / "a.hrx")
    api.compile(tmp_path / "m.onnx", tmp_path / "a.hrx")
    assert len(compilations) == 3
    (tmp_path / "weights.bin").write_bytes(np.full(64, 4.0, np.float32).tobytes())
    os.utime(tmp_path / "weights.bin", ns=(1, 1))
    api.compile(tmp_path / "m.onnx", tmp_path / "a.hrx")
    assert len(compilations) == 4
    with api.load(tmp_path / "a.hrx") as module:
        assert module(np.ones((1, 8), np.float32))[0][0, 0] == 32


def test_headrace_itself_counts(
    tmp_path: Path, compilations: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_model(tmp_path / "m.onnx")
    api.compile(model, tmp_path / "a.hrx")
    for name, value in (("_package_digest", "x"), ("_versions", ()), ("_processor", "y")):
        monkeypatch.setattr(model_cache, name, lambda value=value: value)
        api.compile(model, tmp_path / "a.hrx")

    assert len(compilations) == 4


def test_damage_is_seen(tmp_path: Path, cache: Path, compilations: list[Any]) -> None:
    model = write_model(tmp_path / "m.onnx")
    whole = api.compile(model, tmp_path / "a.hrx").read_bytes()
    (entry,) = cache.iterdir()
    weights = whole[:4096] + bytes([whole[4096] ^ 1]) + whole[4097:]
    for number, data in enumerate((b"", whole[:-1], weights)):
        entry.write_bytes(data)
        assert api.compile(model, tmp_path / "b.hrx").read_bytes() == whole
        assert entry.read_bytes() == whole
        entry.write_bytes(data)
        assert api.compile_cached(model, "cpu").read_bytes() == whole
        assert len(compilations) == 3 + 2 * number


def test_who_wants_to_see_passes_sees_them(tmp_path: Path, compilations: list[Any]) -> None:
    model = write_model(tmp_path / "m.onnx")
    seen: list[str] = []
    for _ in range(2):
        shown = api.Inspection(frozenset({"tensor"}), None, seen.append)
        api.compile(model, tmp_path / "a.hrx", inspection=shown)
    assert len(compilations) == 2
    assert len(seen) == 2
    api.compile(model, tmp_path / "a.hrx", inspection=api.Inspection())
    api.compile(model, tmp_path / "a.hrx", inspection=api.Inspection())
    assert len(compilations) == 3


def test_the_oldest_make_room(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 0
    for number in range(4):
        model = write_model(tmp_path / f"m{number}.onnx", number + 1.0)
        size = api.compile(model, tmp_path / "a.hrx").stat().st_size
        for age, path in enumerate(sorted(cache.iterdir())):
            os.utime(path, ns=(age + 1, age + 1))
        if number == 2:
            monkeypatch.setattr(model_cache, "TOTAL_BYTES", 2 * size + 100)
    assert [p.name.partition("-")[0] for p in sorted(cache.iterdir())] == ["m2", "m3"]
    monkeypatch.setattr(model_cache, "MAXIMUM_BYTES", size - 1000)
    api.compile(write_model(tmp_path / "large.onnx"), tmp_path / "a.hrx")
    assert not list(cache.glob("large*"))


def test_without_the_cache(
    tmp_path: Path, cache: Path, compilations: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_model(tmp_path / "m.onnx")
    monkeypatch.setenv("HEADRACE_MODEL_CACHE", "0")
    for _ in range(2):
        api.compile(model, tmp_path / "a.hrx")
    assert not cache.exists()
    monkeypatch.setenv("HEADRACE_MODEL_CACHE", "1")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "file"))
    for _ in range(2):
        api.compile(model, tmp_path / "a.hrx")
    assert len(compilations) == 4


def test_copies_are_written_in_whole_huge_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    class Recorder(io.FileIO):
        def write(self, data: Any) -> int:
            sizes.append(len(data))
            return super().write(data)

    source, target = tmp_path / "a.hrx", tmp_path / "b.hrx"
    with source.open("wb") as file:
        file.truncate(2 * model_cache.COPIED_BYTES)
        file.seek(0, os.SEEK_END)
        file.write(b"end")
    monkeypatch.setattr(os, "fdopen", Recorder)
    model_cache.keep(source, target)
    assert sizes == [4 * HUGE_PAGE_BYTES, 4 * HUGE_PAGE_BYTES, 3]
    assert target.read_bytes() == source.read_bytes()
