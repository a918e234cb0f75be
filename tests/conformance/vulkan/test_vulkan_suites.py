"""Public tests on a Vulkan device: 300 of StableHLO and 300 of ONNX, the same everywhere.

The lists are committed: the first 300 by the hash of the name. A few run always, all of them
when asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import scoreboard
import stablehlo_suite

from headrace.checking import CaseResult
from headrace.runtime.drivers.vulkan_instance import missing

_REASON = missing()
pytestmark = pytest.mark.skipif(bool(_REASON), reason=_REASON or "none")

HERE = Path(__file__).parent
LEAST = 0.85


def listed(name: str) -> list[str]:
    """A committed list."""
    return (HERE / f"{name}.txt").read_text().split()


def _files(names: Sequence[str], folder: Path) -> list[Path]:
    suite = stablehlo_suite.unpacked("stablehlo_testdata", folder)
    if suite is None:
        pytest.skip("the archive of stablehlo_testdata is not on this machine")
    return [suite / name for name in names]


def _stablehlo(names: Sequence[str], folder: Path, capsys, what: str) -> list[CaseResult]:
    pytest.importorskip("jaxlib")
    results = stablehlo_suite.run(_files(names, folder), target="vulkan")
    with capsys.disabled():
        print(f"\nstablehlo_testdata on vulkan, {what}: {stablehlo_suite.summary(results)}")
    assert all(r.interpreted == 0 for r in results)
    bad = [r for r in results if r.status in ("fail", "error")]
    for result in bad:
        print(f"{Path(result.file).name} case {result.case}: {result.message[:300]}")
    return results


def _onnx(names: Sequence[str], capsys, what: str) -> list[scoreboard.Result]:
    results = scoreboard.run_tests(names, device="VULKAN")
    with capsys.disabled():
        print(f"\nonnx.backend.test on vulkan, {what}: {scoreboard.summary(results)}")
    assert not scoreboard.wrongly_interpreted(results)
    for result in results:
        if not result.passed:
            print(f"{result.name}: {result.kind}: {result.reason[:300]}")
    return results


def test_the_lists_are_the_first_by_the_hash_of_the_name(tmp_path: Path) -> None:
    names = [n for n in sorted(scoreboard.load_tests()) if n in scoreboard.operators()]
    assert listed("onnx_node") == scoreboard.sampled(names, 300)
    suite = stablehlo_suite.unpacked("stablehlo_testdata", tmp_path)
    if suite is not None:
        files = stablehlo_suite.sampled(stablehlo_suite.with_checks(suite), 300)
        assert listed("stablehlo_testdata") == [str(f.relative_to(suite)) for f in files]


def test_some_stablehlo_files_pass(tmp_path: Path, capsys) -> None:
    results = _stablehlo(listed("stablehlo_testdata")[::10], tmp_path, capsys, "some")
    assert sum(r.status == "pass" for r in results) >= LEAST * len(results)


def test_some_onnx_tests_pass(capsys) -> None:
    results = _onnx(listed("onnx_node")[::8], capsys, "some")
    assert sum(r.compiled for r in results) >= LEAST * len(results)


@pytest.mark.slow
def test_300_stablehlo_files(tmp_path: Path, capsys) -> None:
    results = _stablehlo(listed("stablehlo_testdata"), tmp_path, capsys, "300 files")
    assert sum(r.status == "pass" for r in results) >= LEAST * len(results)


@pytest.mark.slow
def test_300_onnx_tests(capsys) -> None:
    results = _onnx(listed("onnx_node"), capsys, "300 tests")
    assert sum(r.compiled for r in results) >= LEAST * len(results)
