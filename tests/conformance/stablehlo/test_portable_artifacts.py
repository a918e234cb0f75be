"""Text and portable artifacts of the releases since 0.9.0 read as the same module."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stablehlo_suite import unpacked

from headrace.base.errors import HeadraceError

pytest.importorskip("jaxlib")

from headrace.importers import stablehlo
from headrace.importers.hlo.tree import HloFunction, HloOperation

RELEASES = [f"0_{n}_0" for n in range(9, 20)] + [f"1_{n}_0" for n in range(16)]


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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = unpacked("stablehlo_vhlo", tmp_path_factory.mktemp("vhlo"))
    if found is None:
        pytest.skip("the archive of stablehlo_vhlo is not on this machine")
    return found


@pytest.mark.parametrize("release", RELEASES[::3])
def test_text_and_artifact_are_the_same_module(release: str, folder: Path) -> None:
    artifact = folder / f"stablehlo_legalize_to_vhlo.{release}.mlir.bc"
    if not artifact.is_file():
        pytest.skip("no artifact of that release")
    text = artifact.with_suffix("")
    read = stablehlo.read_tree(artifact.read_bytes(), "module")
    assert len(read.functions) > 100
    written = stablehlo.read_tree(text.read_text(), "module")
    assert _plain(read) == _plain(written)


def test_an_artifact_of_a_future_release_is_refused(folder: Path) -> None:
    data = (folder / "invalid_vhlo_future.mlir.bc").read_bytes()
    with pytest.raises(HeadraceError, match="HR1001"):
        stablehlo.read_tree(data, "future.mlirbc")
