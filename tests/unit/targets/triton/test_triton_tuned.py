"""Schedules of products: what may be tried, that all compute the same, and tables of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sample_kernels import Sample, assert_close
from test_triton_contract import BATCHED, BY_NAME, HALF, MANY_ROWS
from test_triton_naive import needs_interpreter, needs_triton

from headrace.base.errors import HeadraceError
from headrace.code_cache import code_key
from headrace.kernel.description import Kernel
from headrace.kernel.products import as_product
from headrace.targets.tables import NO_TABLE, Table
from headrace.targets.triton import contract
from headrace.targets.triton.descriptors import matrix
from headrace.targets.triton.schedule import MOST_SHARED_BYTES, MULTIPROCESSORS, Tiles
from headrace.targets.triton.target import make
from headrace.targets.triton.tuned import How, tables

TARGET = make("cuda:sm_90").with_table(NO_TABLE)
LARGE = (
    HALF.replace("%d0 = 5", "%d0 = 3000")
    .replace("%d1 = 33", "%d1 = 2048")
    .replace("%r0 = 40", "%r0 = 512")
    .replace("[5, 40]", "[3000, 512]")
    .replace("[40, 33]", "[512, 2048]")
    .replace("[5, 33]", "[3000, 2048]")
)


def kernel_of(text: str) -> Kernel:
    return Sample("a product", text).kernel


def test_a_product_of_known_sizes_is_a_problem() -> None:
    problem = TARGET.problem(kernel_of(LARGE))
    assert problem is not None
    assert problem.key == "contract 3000 by 2048 over 512 batch 1 f16"
    assert problem.chosen not in problem.others and len(problem.others) > 8
    found = as_product(kernel_of(LARGE))
    assert found is not None
    for choice in problem.others:
        assert isinstance(choice, Tiles)
        assert choice.shared_bytes(2) <= MOST_SHARED_BYTES
        assert choice.programs % MULTIPROCESSORS == 0
    assert any(isinstance(c, Tiles) and c.programs for c in problem.others)
    slow = TARGET.problem(kernel_of(MANY_ROWS))
    assert slow is not None and slow.key.endswith(" ieee")
    short = TARGET.problem(replace(kernel_of(MANY_ROWS), precision="tf32"))
    assert short is not None and short.key == slow.key.replace("ieee", "tf32")


def test_what_is_none() -> None:
    assert TARGET.problem(kernel_of(BATCHED)) is None, "sizes are open"
    assert TARGET.problem(BY_NAME["softmax"].kernel) is None


@pytest.mark.parametrize(
    "tiles",
    [
        Tiles(16, 16, 16, programs=3),
        Tiles(32, 16, 16, programs=7),
        Tiles(64, 32, 16, programs=1000),
        Tiles(16, 64, 16, 8, 1),
        Tiles(64, 16, 16, parts=2),
        Tiles(64, 32, 16, parts=4),
    ],
    ids=str,
)
@pytest.mark.parametrize("cut", [None, 2])
@needs_interpreter
@pytest.mark.filterwarnings("ignore")
def test_every_schedule_covers_the_result(tiles: Tiles, cut: int | None) -> None:
    from interpret import run

    sample = Sample("many rows", MANY_ROWS)
    problem = TARGET.problem(sample.kernel)
    assert problem is not None
    table = Table(((problem.key, tiles),))

    def generate(name: str, kernel: Kernel) -> object:
        return contract.generate(name, kernel, how=How(table, True))

    buffers = sample.buffers()
    expected = sample.expected(buffers)
    columns = -(-70 // tiles.columns)
    parts = [None] if cut is None or columns < 3 else [(0, cut), (cut, columns - cut)]
    for part in parts:
        run(sample.kernel, buffers, {}, generate, columns=part)
    assert_close(sample, buffers, expected)


TOKENS = """
kernel(%d0 = 2, %d1 = tokens, %d2 = 70) dims(tokens) {
  ro x : bf16[2, tokens, 40]
  ro constant w : bf16[40, 70] layout [1, 40] offset 0 size 2800
  wo y : bf16[2, tokens, 70]
  local a : f32
  reduce(%r0 = 40) {
    %v0 = load x[%d0, %d1, %r0]
    %v1 = convert(%v0) : f32
    %v2 = load w[%r0, %d2]
    %v3 = convert(%v2) : f32
    %v4 = multiply(%v1, %v3) : f32
    fold %v4 from 0.0 with add into a
  }
  map() {
    %v5 = read a[]
    %v6 = convert(%v5) : bf16
    store %v6 to y[%d0, %d1, %d2]
  }
}
"""


@pytest.mark.parametrize("programs, parts", [(0, 1), (3, 1), (0, 2), (0, 3)])
@needs_interpreter
@pytest.mark.filterwarnings("ignore")
def test_factors_come_by_descriptors(
    programs: int, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from interpret import run

    tiles = Tiles(32, 16, 16, 4, 3, programs, True, parts)
    monkeypatch.setattr(contract, "choose_tiles", lambda *_: tiles)
    # One batch: its tokens are rows of one matrix. Of two, the size between them is not known.
    text = TOKENS.replace("= 2,", "= 1,").replace("[2,", "[1,")
    for given, described in ((text, 2), (TOKENS, 1)):
        sample = Sample("tokens", given, {"tokens": 77}, tolerance=1e-2)
        source = contract.generate("k", sample.kernel, how=How(descriptors=True))
        assert source is not None and len(source.tensor_maps) == described
        assert source.text.count("tl.make_tensor_descriptor") == described
        buffers = sample.buffers()
        expected = sample.expected(buffers)
        run(
            sample.kernel,
            buffers,
            sample.dims,
            lambda name, kernel: contract.generate(name, kernel, how=How(descriptors=True)),
        )
        assert_close(sample, buffers, expected)


def test_what_is_no_matrix_is_loaded_element_by_element() -> None:
    for old, new in (
        ("layout [1, 40] offset 0", "layout [1, 40] offset 4"),  # not aligned
        ("layout [1, 40] offset 0 size 2800", ""),  # columns lie side by side
        ("load w[%r0, %d2]", "load w[(%r0 floordiv 5)*5 + (%r0 mod 5), %d2]"),
    ):
        kernel = kernel_of(TOKENS.replace(old, new))
        found = as_product(kernel)
        assert found is not None
        assert matrix(kernel, found, found.right, found.columns) is None, new


@needs_triton
def test_descriptors_are_parameters_of_the_launch() -> None:
    kernel = kernel_of(
        LARGE.replace("[512, 2048]", "[512, 2048] layout [1, 512] offset 0 size 1048576")
    )
    problem = TARGET.problem(kernel)
    assert problem is not None
    table = Table(((problem.key, Tiles(128, 256, 64, 8, 3, 132, True)),))
    code = TARGET.with_table(table).translate("k", kernel)
    (launch,) = code.specialisations[0].launches
    assert launch.scratch_bytes.value == 0
    assert [
        (m.binding, m.rows.value, m.columns.value, m.stride_bytes, m.box, m.swizzle)
        for m in launch.tensor_maps
    ] == [(0, 3000, 512, 1024, (128, 64), 3), (1, 2048, 512, 1024, (256, 64), 3)]
    assert "cp.async.bulk.tensor" in code.listing
    older = make("cuda:sm_80").with_table(table).translate("k", kernel)
    assert not older.specialisations[0].launches[0].tensor_maps


@needs_triton
@pytest.mark.parametrize(
    ("name", "most_bytes"), [("cuda:sm_80", 163 << 10), ("rocm", 64 << 10)]
)
def test_others_have_less_shared_memory(name: str, most_bytes: int) -> None:
    kernel = kernel_of(LARGE)
    problem = TARGET.problem(kernel)
    assert problem is not None
    large = Tiles(128, 256, 64, 8, 4)
    assert most_bytes < large.shared_bytes(2)
    code = make(name).with_table(Table(((problem.key, large),))).translate("k", kernel)
    (launch,) = code.specialisations[0].launches
    assert 0 < launch.shared_bytes <= most_bytes


@needs_triton
def test_parts_of_a_depth_are_a_cluster() -> None:
    kernel = kernel_of(LARGE)
    problem = TARGET.problem(kernel)
    assert problem is not None
    table = Table(((problem.key, Tiles(128, 128, 64, parts=3)),))
    (launch,) = TARGET.with_table(table).translate("k", kernel).specialisations[0].launches
    assert launch.cluster == 3
    assert [w.value for w in launch.workgroups] == [24, 16, 3]
    assert launch.scratch_bytes.value == 24 * 16 * 2 * 128 * 128 * 4
    older = make("cuda:sm_80").with_table(table).translate("k", kernel)
    (launch,) = older.specialisations[0].launches
    assert launch.cluster == 1 and launch.workgroups[2].value == 1


@needs_triton
def test_a_table_decides_the_code() -> None:
    kernel = kernel_of(LARGE)
    problem = TARGET.problem(kernel)
    assert problem is not None
    choice = Tiles(64, 64, 32, 4, 2, 132)
    other = TARGET.with_table(Table(((problem.key, choice),)))
    changed = other.problem(kernel)
    assert changed is not None and changed.chosen == choice
    assert code_key(kernel, TARGET) != code_key(kernel, other)
    code = other.translate("k", kernel)
    assert "tl.range" in code.listing and "flatten=True" in code.listing
    (launch,) = code.specialisations[0].launches
    assert [w.value for w in launch.workgroups] == [47, 32, 1], "a workgroup for each tile"


@pytest.mark.parametrize(
    "wrong",
    [
        Tiles(48, 64, 32),
        Tiles(64, 64, 8),
        Tiles(256, 256, 128, 8, 4),
        Tiles(64, 64, 32, 3),
        Tiles(64, 64, 32, programs=9, parts=2),
    ],
    ids=str,
)
def test_a_choice_that_does_not_fit_is_refused(wrong: Tiles) -> None:
    kernel = kernel_of(LARGE)
    problem = TARGET.problem(kernel)
    assert problem is not None
    with pytest.raises(HeadraceError, match="HR0115"):
        TARGET.with_table(Table(((problem.key, wrong),))).problem(kernel)


def test_the_cache_folder_comes_before_the_shipped_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path))
    found = tables("cuda", "sm_90")
    assert make("cuda:sm_90").table == found.read(found.shipped)
    own = Table((("contract 1 by 2 over 3 batch 1 f16", Tiles(16, 16, 16)),))
    found.own_path.parent.mkdir()
    found.own_path.write_text(found.text(own, "NVIDIA H200"))
    assert (
        make("cuda:sm_90").table.get("contract 1 by 2 over 3 batch 1 f16") == own.entries[0][1]
    )
    assert make("cuda:sm_80").table.get("contract 1 by 2 over 3 batch 1 f16") is None
    monkeypatch.setenv("HEADRACE_TUNED", "0")
    assert make("cuda:sm_90").table == found.read(found.shipped)


def test_the_shipped_table_holds_what_fits() -> None:
    found = tables("cuda", "sm_90")
    table = found.read(found.shipped)
    for key, choice in table.entries:
        assert key.startswith("contract ") and isinstance(choice, Tiles)
        assert choice.shared_bytes(2) <= MOST_SHARED_BYTES
