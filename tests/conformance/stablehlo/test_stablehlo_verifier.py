"""StableHLO's negative tests: what its own verifier refuses, ours refuses, with a place; what
it takes, ours takes. No jaxlib in it: the text is read here."""

from __future__ import annotations

from collections import Counter

import pytest
from stablehlo_suite import unpacked

from headrace.base.errors import HeadraceError
from headrace.importers import stablehlo
from headrace.importers.hlo import mlir_service
from headrace.importers.hlo.check_text import split_cases
from headrace.importers.hlo.text_reader import UnknownForm, read_text
from headrace.importers.hlo.verify.module import verify_module

LEAST_REFUSED = 0.95
LEAST_REFUSED_WITH_JAXLIB = 0.96
LEAST_ACCEPTED = 0.98


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, bool]]:
    """Text of each case, and whether it is valid."""
    folder = unpacked("stablehlo_tests_misc", tmp_path_factory.mktemp("misc"))
    if folder is None:
        pytest.skip("the archive of stablehlo_tests_misc is not on this machine")
    found: list[tuple[str, bool]] = []
    for file in sorted(folder.rglob("*.mlir")):
        texts = split_cases(file.read_text(errors="replace"))
        found += [(text, "expected-error" not in text) for text in texts]
    return found


def _own(case: str) -> str:
    try:
        verify_module(read_text(case, "case.mlir"))
    except UnknownForm:
        return "unread"
    except HeadraceError as refused:
        assert all(d.code in ("HR1001", "HR1102") for d in refused.diagnostics)
        assert all("case.mlir" in d.places[0] for d in refused.diagnostics)
        return "refused"
    return "accepted"


def _with_jaxlib(case: str, own: str) -> str:
    if own == "refused":
        return own
    try:
        stablehlo.read_tree(case, "case.mlir")
        mlir_service.generic_text(case.encode(), "case.mlir")
    except HeadraceError:
        return "refused"
    return "accepted"


def test_what_is_forbidden_is_refused_and_nothing_else(
    cases: list[tuple[str, bool]], capsys: pytest.CaptureFixture[str]
) -> None:
    counts = Counter((valid, _own(case)) for case, valid in cases)
    negative = sum(n for (valid, _), n in counts.items() if not valid)
    positive = len(cases) - negative
    refused, accepted = counts[False, "refused"], counts[True, "accepted"]
    with capsys.disabled():
        print(
            f"\nverifier: {refused} of {negative} invalid cases refused "
            f"({100 * refused / negative:.1f} %), {accepted} of {positive} valid ones "
            f"accepted ({100 * accepted / positive:.1f} %)"
        )
    assert refused >= LEAST_REFUSED * negative
    assert accepted >= LEAST_ACCEPTED * positive


@pytest.mark.slow
def test_with_jaxlib_more_is_refused(
    cases: list[tuple[str, bool]], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("jaxlib")
    negative = [case for case, valid in cases if not valid]
    counts = Counter(_with_jaxlib(case, _own(case)) for case in negative)
    with capsys.disabled():
        print(f"\nverifier and jaxlib: {counts['refused']} of {len(negative)} refused")
    assert counts["refused"] >= LEAST_REFUSED_WITH_JAXLIB * len(negative)


@pytest.mark.parametrize("release", ["0_9_0", "1_0_0", "1_10_0", "1_20_0"])
def test_text_of_every_release_is_accepted(
    release: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = unpacked("stablehlo_vhlo", tmp_path_factory.mktemp("vhlo"))
    if folder is None:
        pytest.skip("the archive of stablehlo_vhlo is not on this machine")
    text = (folder / f"stablehlo_legalize_to_vhlo.{release}.mlir").read_text()
    verify_module(read_text(text, "case.mlir"))
