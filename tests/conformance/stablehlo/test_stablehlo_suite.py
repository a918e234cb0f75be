"""StableHLO's own tests, compiled for the CPU: a sample always, everything when asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from stablehlo_suite import run, sampled, summary, unpacked, with_checks

from headrace.checking import CaseResult

ANOTHER_SUM = {
    # Expected values summed or composed in f32 in another order, off by 4 units of the last
    # place where terms cancel.
    "conv_general_dilated_float32_2_3_9_float32_12_1_3.mlir",
    "cosh_float32_20_20_chlo.mlir",
}


SAMPLED = (
    "scatter",
    "sort",
    "fft",
    "case",
    "quantized_ops",
    "all_reduce",
    "send_recv",
    "infeed",
)


@pytest.fixture(scope="session")
def suites(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stablehlo")


def _suite(name: str, folder: Path) -> Path:
    found = unpacked(name, folder)
    if found is None:
        pytest.skip(f"the archive of {name} is not on this machine")
    return found


def _wrong(results: list[CaseResult]) -> list[str]:
    return [
        f"{Path(r.file).name} case {r.case}: {r.status}: {r.message[:200]}"
        for r in results
        if r.status in ("fail", "error") and Path(r.file).name not in ANOTHER_SUM
    ]


def _report(capsys: pytest.CaptureFixture[str], what: str, results: list[CaseResult]) -> None:
    with capsys.disabled():
        print(f"\n{what}: {summary(results)}")


def test_sampled_files_pass(suites: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = sampled(with_checks(_suite("stablehlo_testdata", suites)), 60)
    results = run(files)
    _report(capsys, "stablehlo_testdata, sampled", results)
    assert not _wrong(results)
    assert sum(r.status == "pass" for r in results) >= 0.9 * len(results)
    assert all(r.interpreted == 0 for r in results)


def test_sampled_interpreter_tests_pass(
    suites: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _suite("stablehlo_interpret", suites)
    files = [folder / f"{n}.mlir" for n in SAMPLED]
    results = run(files)
    _report(capsys, "stablehlo_interpret, some files", results)
    assert [r.status for r in results] == ["pass"] * len(results)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("stablehlo_testdata", 0.98), ("stablehlo_interpret", 0.95)])  # fmt: skip
def test_the_whole_suite(
    name: str, least: float, suites: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = run(with_checks(_suite(name, suites)))
    _report(capsys, f"{name}, whole", results)
    assert sum(r.status == "pass" for r in results) >= least * len(results)
