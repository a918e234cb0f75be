"""Tables of schedules: files, what fits, and that every alternative computes the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.unit.targets.cpu.harness import NATIVE, Linked
from tests.unit.targets.cpu.test_cpu_contract import convolution, matmul, run, with_wishes
from tests.unit.targets.cpu.test_cpu_window import DEPTHWISE

from headrace.base.errors import HeadraceError
from headrace.code_cache import code_key
from headrace.kernel.text import parse_kernel
from headrace.targets.cpu import tuned
from headrace.targets.cpu.tuned import ContractChoice, WindowChoice, tables
from headrace.targets.tables import NO_TABLE, Table

PLAIN = NATIVE.with_table(NO_TABLE)

LIGHT = (DEPTHWISE.replace("%d1 = h", "%d1 = 5").replace(" dims(h)", "")
         .replace("300, h, 9", "300, 5, 9").replace("3300*h + 6600", "23100")
         .replace("2700*h", "13500"))  # fmt: skip
KERNELS = {
    "rows": with_wishes(matmul(50, 70, 64), PLAIN),
    "few rows": with_wishes(matmul(3, 512, 128), PLAIN),
    "deep": with_wishes(convolution(128, 40, 6, 3, 1), PLAIN),
    "winograd": with_wishes(convolution(32, 64, 18, 3, 1), PLAIN),
    "window": parse_kernel(LIGHT),
}  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_every_alternative_computes_the_same(name: str) -> None:
    kernel = KERNELS[name]
    problem = PLAIN.problem(kernel)
    assert problem is not None and len(problem.others) >= 3
    assert problem.chosen not in problem.others
    codes = set()
    for choice in problem.others:
        target = PLAIN.with_table(Table(((problem.key, choice),)))
        changed = target.problem(kernel)
        assert changed is not None and changed.chosen == choice
        family, _ = run(kernel, target=target, tolerance=3e-4)
        assert family == Linked(kernel, PLAIN).family({})
        codes.add(target.translate("k", kernel).data)
    assert len(codes) > 1


def test_files_hold_tables(tmp_path: Path) -> None:
    table = Table(
        (
            ("contract 1 by 2 over 3 batch 1 f32 f32", ContractChoice(6, 1, True, 0)),
            ("window 5x9 over 3x3 reading f32 f32", WindowChoice(7, 32, True)),
        )
    )
    path = tmp_path / "t.json"
    kept = tables("x86-64-v3")
    path.write_text(kept.text(table, "a processor"))
    assert kept.read(path) == table
    assert kept.read(path, "a processor").digest == table.digest
    assert tables("generic").read(path) == NO_TABLE
    assert kept.read(path, "another") == NO_TABLE
    assert kept.read(tmp_path / "none.json") == NO_TABLE
    path.write_text(path.read_text().replace('"format": 1', '"format": 0'))
    assert kept.read(path) == NO_TABLE


@pytest.mark.parametrize(
    "text",
    ["{", '{"format": 1, "processor": ""}',
     '{"format": 1, "processor": "", "tables": {"x86-64-v3": {"window 1": {"rows": 1}}}}',
     '{"format": 1, "processor": "", "tables": {"x86-64-v3": {"other 1": {}}}}'],
)  # fmt: skip
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(HeadraceError, match="HR0116") as found:
        tables("x86-64-v3").read(path)
    assert str(path) in str(found.value)


def test_a_choice_that_does_not_fit_is_refused() -> None:
    kernel = KERNELS["rows"]
    problem = PLAIN.problem(kernel)
    assert problem is not None
    for wrong in (
        ContractChoice(7, 1, True, 0),
        ContractChoice(6, 0, True, 0),
        ContractChoice(6, 1, True, 66),
        ContractChoice(6_000_000, 1, False, 64),
        WindowChoice(1, 8, False),
    ):
        target = PLAIN.with_table(Table(((problem.key, wrong),)))
        with pytest.raises(HeadraceError, match="HR0115"):
            target.translate("k", kernel)


@pytest.mark.parametrize("change", ["heavy", "wide"])
def test_a_choice_is_of_one_problem_alone(change: str) -> None:
    """An int8 convolution of the sizes of one in f32: what suits this is not asked of that."""
    light = LIGHT
    if change == "heavy":
        tail = "".join(f"    %h{n} = tanh(%h{n - 1}) : f32\n" for n in range(1, 60))
        tail = tail.replace("%h0", "%v3")
        other = light.replace("store %v3", tail.lstrip() + "    store %h59")
    else:
        other = light.replace("f32", "f64")
    problem = PLAIN.problem(parse_kernel(light))
    assert problem is not None
    choice = WindowChoice(7, 128, True)
    target = PLAIN.with_table(Table(((problem.key, choice),)))
    changed = target.problem(parse_kernel(light))
    assert changed is not None and changed.chosen == choice
    kernel = parse_kernel(other)
    assert target.translate("k", kernel).data == PLAIN.translate("k", kernel).data


def test_a_table_is_part_of_what_code_is_kept_under() -> None:
    kernel = KERNELS["rows"]
    other = PLAIN.with_table(Table((("contract 1", ContractChoice(6, 1, True, 0)),)))
    assert code_key(kernel, PLAIN) != code_key(kernel, other)
    assert code_key(kernel, PLAIN) == code_key(kernel, other.with_table(NO_TABLE))


def test_the_shipped_table_can_be_read() -> None:
    found = tables("x86-64-v3").read(Path(tuned.__file__).with_name("tuned.json"))
    assert [key for key, _ in found.entries] == sorted(key for key, _ in found.entries)
    assert np.all([key.split()[0] in tuned._KINDS for key, _ in found.entries])
