"""Kernels over rows as tiles: which are, their values in the interpreter, their cubin."""

from __future__ import annotations

import pytest
from sample_kernels import SAMPLES, Sample, assert_close
from test_triton_naive import needs_interpreter, needs_triton

from headrace.base.bundle import split_code
from headrace.kernel.description import Kernel
from headrace.kernel.text import parse_kernel
from headrace.targets.triton import rows
from headrace.targets.triton.row_schedule import choose_schedule, multiplies_one_row
from headrace.targets.triton.target import make
from headrace.targets.triton.variants import in_memory_order

SOFTMAX = """
kernel(%d0 = batch, %d1 = 5) dims(batch, keys) {
  ro x : f32[batch, 5, keys]
  wo y : f32[batch, 5, keys]
  local m : f32
  local s : f32
  reduce(%r0 = keys) {
    %v0 = load x[%d0, %d1, %r0]
    fold %v0 from -inf with maximum into m
  }
  reduce(%r0 = keys) {
    %v0 = load x[%d0, %d1, %r0]
    %v1 = read m[]
    %v2 = subtract(%v0, %v1) : f32
    %v3 = exponential(%v2) : f32
    fold %v3 from 0.0 with add into s
  }
  map(%d2 = keys) {
    %v0 = load x[%d0, %d1, %d2]
    %v1 = read m[]
    %v2 = subtract(%v0, %v1) : f32
    %v3 = exponential(%v2) : f32
    %v4 = read s[]
    %v5 = divide(%v3, %v4) : f32
    store %v5 to y[%d0, %d1, %d2]
  }
}
"""

COLUMNS = """
kernel(%d0 = 70) {
  ro x : f32[45, 70]
  wo y : f32[70]
  local s : f32
  reduce(%r0 = 45) {
    %v0 = load x[%r0, %d0]
    fold %v0 from 0.5 with add into s
  }
  map() {
    %v1 = read s[]
    %v2 = constant 45.0 : f32
    %v3 = divide(%v1, %v2) : f32
    store %v3 to y[%d0]
  }
}
"""

LONG = """
kernel() {
  ro x : i32[9000]
  wo y : i32[]
  local s : i32
  reduce(%r0 = 9000) {
    %v0 = load x[%r0]
    fold %v0 from 3 with minimum into s
  }
  map() {
    %v1 = read s[]
    store %v1 to y[]
  }
}
"""

WINDOWS = """
kernel(%d0 = 2, %d1 = 24, %d2 = 4, %d3 = 5) {
  ro x : f16[2, 24, 8, 9] layout [1728, 1, 216, 24] offset 0 size 3456
  wo y : f16[2, 24, 4, 5] layout [480, 1, 120, 24] offset 0 size 960
  local m : f16
  reduce(%r0 = 3, %r1 = 3) {
    %v0 = load x[%d0, %d1, 2*%d2 + %r0 - 1, 2*%d3 + %r1 - 1] bounded [2, 3] otherwise -inf
    fold %v0 from -inf with maximum into m
  }
  map() {
    %v1 = read m[]
    store %v1 to y[%d0, %d1, %d2, %d3]
  }
}
"""

ONE_ROW = """
kernel(%d0 = 1, %d1 = 70) {
  ro x : f16[1, 300]
  ro w : f16[70, 300]
  wo y : f16[1, 70]
  local a : f32
  reduce(%r0 = 300) {
    %v0 = load x[%d0, %r0]
    %v1 = convert(%v0) : f32
    %v2 = load w[%d1, %r0]
    %v3 = convert(%v2) : f32
    %v4 = multiply(%v1, %v3) : f32
    fold %v4 from 0.0 with add into a
  }
  map() {
    %v5 = read a[]
    %v6 = convert(%v5) : f16
    store %v6 to y[%d0, %d1]
  }
}
"""

OWN = (
    Sample("rows_softmax", SOFTMAX, {"batch": 3, "keys": 300}),
    Sample("rows_columns", COLUMNS),
    Sample("rows_long", LONG),
    Sample("rows_product", ONE_ROW, tolerance=2e-3),
)
FOLDS = tuple(s for s in (*SAMPLES, *OWN) if rows.is_row_kernel(s.kernel))


@pytest.mark.parametrize("sample", FOLDS, ids=lambda s: s.name)
@needs_interpreter
@pytest.mark.filterwarnings("ignore")
def test_values_in_the_interpreter(sample: Sample) -> None:
    from interpret import run

    buffers = sample.buffers()
    expected = sample.expected(buffers)
    run(sample.kernel, buffers, sample.dims, rows.generate)
    assert_close(sample, buffers, expected)


@pytest.mark.parametrize("sample", FOLDS, ids=lambda s: s.name)
@needs_triton
def test_compiles_to_a_cubin(sample: Sample) -> None:
    code = make("cuda:sm_90").translate("main_dispatch_0", sample.kernel)
    assert all(c[:4] == b"\x7fELF" for c in split_code(code.data))
    (launch,) = code.specialisations[-1].launches
    assert launch.family in ("row", "reduce", "contract")


def test_what_is_over_rows() -> None:
    names = {s.name for s in FOLDS}
    assert {s.name for s in OWN} < names
    assert len(names) > len(OWN) + 5, names
    assert multiplies_one_row(OWN[-1].kernel)
    assert not multiplies_one_row(OWN[0].kernel)


def test_tiles_follow_memory() -> None:
    softmax, columns, long, product = (choose_schedule(s.kernel) for s in OWN)
    assert softmax.lanes == 256 and softmax.rows > 1
    assert columns.rows == 32 and columns.lanes == 32
    assert (long.rows, long.lanes) == (1, 2048)
    assert (product.rows, product.lanes) == (1, 512)


MATRIX = """
kernel(%d0 = 4096) {
  ro x : bf16[DEPTH]
  ro constant w : bf16[DEPTH, 4096] layout [1, DEPTH] offset 0 size SIZE
  ro b : f32[4096]
  wo y : f32[4096]
  local a : f32
  reduce(%r0 = DEPTH) {
    %v0 = load x[%r0]
    %v1 = load w[%r0, %d0]
    %v2 = convert(%v0) : f32
    %v3 = convert(%v1) : f32
    %v4 = multiply(%v2, %v3) : f32
    fold %v4 from 0.0 with add into a
  }
  map() {
    %v5 = read a[]
    %v6 = load b[%d0]
    %v7 = add(%v5, %v6) : f32
    store RESULT to y[%d0]
  }
}
"""


@pytest.mark.parametrize(
    ("depth", "result", "expected"),
    [(4096, "%v5", (1, 4096, 8)), (4096, "%v7", (2, 2048, 8)), (11008, "%v7", (2, 1024, 4))],
)
def test_rows_of_a_matrix_keep_all_lanes_busy(
    depth: int, result: str, expected: tuple[int, int, int]
) -> None:
    text = MATRIX.replace("DEPTH", str(depth)).replace("SIZE", str(4096 * depth))
    text = text.replace("RESULT", result)
    if result == "%v5":
        beside = ("    %v6 = load b[%d0]\n", "    %v7 = add(%v5, %v6) : f32\n")
        for line in beside:
            text = text.replace(line, "")
    schedule = choose_schedule(Sample("matrix", text).kernel)
    assert (schedule.rows, schedule.lanes, schedule.warps) == expected


NORM = """
kernel(%d0 = COUNT) {
  ro x : f16[COUNT, 768]
  wo y : f32[COUNT]
  local a : f32
  reduce(%r0 = 768) {
    %v0 = load x[%d0, %r0]
    %v1 = convert(%v0) : f32
    fold %v1 from 0.0 with add into a
  }
  map() {
    %v2 = read a[]
    store %v2 to y[%d0]
  }
}
"""


@pytest.mark.parametrize(("count", "rows", "lanes"), [(128, 1, 1024), (4096, 4, 256)])
def test_many_long_rows_have_a_warp_each(count: int, rows: int, lanes: int) -> None:
    schedule = choose_schedule(Sample("norm", NORM.replace("COUNT", str(count))).kernel)
    assert (schedule.rows, schedule.lanes, schedule.warps) == (rows, lanes, 4)


def windows() -> Kernel:
    return in_memory_order(Sample("windows", WINDOWS).kernel)


def test_lanes_follow_the_layout_of_the_result() -> None:
    assert [a.name for a in windows().outer] == ["%d0", "%d2", "%d3", "%d1"]
    schedule = choose_schedule(windows())
    assert schedule.lanes == 1 and schedule.rows >= 32


@needs_interpreter
@pytest.mark.filterwarnings("ignore")
def test_short_windows_are_folded_in_one_lane() -> None:
    from interpret import run

    sample = Sample("windows", WINDOWS)
    buffers = sample.buffers()
    expected = sample.expected(buffers)
    run(windows(), buffers, sample.dims, rows.generate)
    assert_close(sample, buffers, expected)


def test_a_fold_of_nothing_is_left_to_the_naive_emitter() -> None:
    empty = COLUMNS.replace("%r0 = 45", "%r0 = 0").replace("[45, 70]", "[0, 70]")
    assert not rows.is_row_kernel(Sample("empty", empty).kernel)


ONE_ROW = """
kernel(%d0 = 300) {
  ro x : bf16[1, 4096]
  ro constant w : bf16[4096, 300] layout [1, 4096] offset 0 size 1228800
  wo y : f32[1, 300]
  local a : f32
  reduce(%r0 = 4096) {
    %v0 = load x[0, %r0]
    %v1 = convert(%v0) : f32
    %v2 = load w[%r0, %d0]
    %v3 = convert(%v2) : f32
    %v4 = multiply(%v1, %v3) : f32
    fold %v4 from 0.0 with add into a
  }
  map() {
    %v5 = read a[]
    store %v5 to y[0, %d0]
  }
}"""


@needs_triton
def test_weights_are_read_before_the_wait_for_other_launches() -> None:
    kernel = parse_kernel(ONE_ROW)
    source = rows.generate("k", kernel)
    assert source is not None
    before, wait, after = source.text.partition("gdc_wait()")
    assert wait and "tl.load(p1 " in before and "tl.load(p0 " not in before
    assert "tl.load(p0 " in after
    code = make("cuda:sm_90").translate("k", kernel)
    assert all(x.overlaps for s in code.specialisations for x in s.launches)
    ahead, wait, behind = code.listing.partition("griddepcontrol.wait")
    assert wait and "ld.global" in ahead and "ld.global" in behind
    older = make("cuda:sm_80").translate("k", kernel)
    assert not any(x.overlaps for s in older.specialisations for x in s.launches)
    assert "griddepcontrol" not in older.listing
