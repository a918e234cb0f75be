"""Text and portable artifacts of the releases since 0.9.0 read as the same module, and what
is written as an artifact reads back as it was. Artifacts are read without jaxlib."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stablehlo_suite import sampled, unpacked

from headrace.base.errors import HeadraceError
from headrace.importers import stablehlo
from headrace.importers.hlo import mlir_service
from headrace.importers.hlo.tree import HloFunction, HloOperation

NOT_SERIALISED = ("chlo.", "!quant.")
"""jaxlib writes neither."""


def _plain(value: Any) -> Any:
    """A tree as values that compare: arrays as bytes, no places."""
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tobytes())
    if isinstance(value, (HloFunction, HloOperation)):
        value = dataclasses.replace(value, place="")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return [type(value).__name__, *(_plain(getattr(value, f.name)) for f in fields)]
    if isinstance(value, dict):
        return sorted((k, _plain(v)) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return repr(value)


def _suite(name: str, factory: pytest.TempPathFactory) -> Path:
    found = unpacked(name, factory.mktemp(name))
    if found is None:
        pytest.skip(f"the archive of {name} is not on this machine")
    return found


@pytest.fixture(scope="module")
def vhlo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _suite("stablehlo_vhlo", tmp_path_factory)


@pytest.fixture(scope="module")
def testdata(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _suite("stablehlo_testdata", tmp_path_factory)


def test_text_and_artifact_are_the_same_module(
    vhlo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mlir_service, "is_installed", lambda: False)
    artifacts = sorted(f for f in vhlo.glob("*.mlir.bc") if not f.name.startswith("invalid"))
    assert len(artifacts) > 30
    differing: list[str] = []
    for artifact in artifacts:
        read = stablehlo.read_tree(artifact.read_bytes(), "module")
        written = stablehlo.read_tree(artifact.with_suffix("").read_text(), "module")
        if _plain(read) != _plain(written):
            differing.append(artifact.name)
    with capsys.disabled():
        same = len(artifacts) - len(differing)
        print(f"\nstablehlo_vhlo: {same} of {len(artifacts)} pairs are the same module")
    assert differing == []


def test_an_artifact_of_a_future_release_is_refused(vhlo: Path) -> None:
    data = (vhlo / "invalid_vhlo_future.mlir.bc").read_bytes()
    with pytest.raises(HeadraceError, match="HR1001") as refused:
        stablehlo.read_tree(data, "future.mlirbc")
    assert "'vhlo.constant_v99' is not known" in str(refused.value)
    assert "StableHLO_v2.0.0" in str(refused.value)


def _differing(files: Sequence[Path]) -> list[str]:
    """Names of files that do not come back from an artifact as they were."""
    pytest.importorskip("jaxlib")
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo as dialect

    from headrace.importers.hlo.mlir_process import new_context

    found: list[str] = []
    for file in files:
        text = file.read_text()
        with new_context():
            module = ir.Module.parse(text)
            version = dialect.get_current_version()
            artifact = dialect.serialize_portable_artifact(module, version)
        back = stablehlo.read_tree(artifact, file.name)
        if _plain(back) != _plain(stablehlo.read_tree(text, file.name)):
            found.append(file.name)
    return found


def _dynamic(testdata: Path) -> list[Path]:
    return sorted((testdata / "dynamic").glob("*.mlir"))


def _static(testdata: Path) -> list[Path]:
    files = sorted(testdata.glob("*.mlir"))
    return [f for f in files if not any(mark in f.read_text() for mark in NOT_SERIALISED)]


def test_sampled_files_come_back_from_an_artifact(testdata: Path) -> None:
    files = sampled(_dynamic(testdata), 40) + sampled(_static(testdata), 20)
    assert len(files) == 60
    assert _differing(files) == []


@pytest.mark.slow
def test_every_file_comes_back_from_an_artifact(
    testdata: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for what, files in (("dynamic", _dynamic(testdata)), ("static", _static(testdata))):
        differing = _differing(files)
        with capsys.disabled():
            same = len(files) - len(differing)
            print(f"\nstablehlo_testdata, {what}: {same} of {len(files)} files round-trip")
        assert differing == []
