"""IREE's tests of 2019 and 2020: what their functions printed, and what they checked."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from legacy_suite import cases_of, run_case
from stablehlo_suite import run, unpacked, with_checks

AGES = ("2019-09-26", "2020-04-01", "2020-07-05")
LEAST = 0.95
NOT_DONE = {
    # Its text gives the result one column less than its operands make.
    ("2020-04-01", "conv.mlir", "conv2d_nopadding"),
    ("2020-07-05", "convolution1.mlir", "0"),
    # State that one call leaves for the next.
    ("2020-04-01", "globals.mlir", "get_state"),
    ("2020-04-01", "globals.mlir", "inc"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = unpacked("legacy_xla_hlo", tmp_path_factory.mktemp("legacy"))
    if found is None:
        pytest.skip("the archive of legacy_xla_hlo is not on this machine")
    return found


@pytest.mark.parametrize("age", AGES)
def test_functions_print_what_stands_beside_them(
    age: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = sorted((folder / age).rglob("*.mlir"))
    outcomes = {
        (age, case.file.name, case.name): run_case(case)
        for file in files
        for case in cases_of(file)
    }
    checked = run(with_checks(folder / age))
    outcomes.update({(age, Path(r.file).name, str(r.case)): r.message for r in checked})
    counts = Counter(not reason for reason in outcomes.values())
    with capsys.disabled():
        print(f"\nlegacy_xla_hlo of {age}: {counts[True]} of {len(outcomes)} cases pass")
    wrong = {key: reason for key, reason in outcomes.items() if reason and key not in NOT_DONE}
    assert wrong == {}
    assert counts[True] >= LEAST * len(outcomes)
