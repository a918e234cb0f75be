"""Products of matrices as tiles: what is one, its values in the interpreter, its cubin."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sample_kernels import SAMPLES, Sample, assert_close
from test_triton_naive import needs_interpreter, needs_triton

from headrace.base.bundle import split_code
from headrace.kernel import products
from headrace.targets.triton import contract
from headrace.targets.triton.schedule import Tiles, choose_tiles, microseconds
from headrace.targets.triton.target import make

BATCHED = """
kernel(%d0 = batch, %d1 = 3, %d2 = seq, %d3 = seq) dims(batch, seq) {
  ro q : f32[batch, seq, 3, 8]
  ro k : f32[batch, seq, 3, 8]
  wo s : f32[batch, 3, seq, seq]
  local a : f32
  reduce(%r0 = 8) {
    %v0 = load q[%d0, %d2, %d1, %r0]
    %v1 = load k[%d0, %d3, %d1, %r0]
    %v2 = multiply(%v0, %v1) : f32
    fold %v2 from 0.0 with add into a
  }
  map() {
    %v3 = read a[]
    %v4 = constant 0.25 : f32
    %v5 = multiply(%v3, %v4) : f32
    store %v5 to s[%d0, %d1, %d2, %d3]
  }
}
"""

HALF = """
kernel(%d0 = 5, %d1 = 33) {
  ro x : f16[5, 40]
  ro w : f16[40, 33]
  ro r : f16[5, 33]
  wo y : f16[5, 33]
  local a : f32
  reduce(%r0 = 40) {
    %v0 = load x[%d0, %r0]
    %v1 = convert(%v0) : f32
    %v2 = load w[%r0, %d1]
    %v3 = convert(%v2) : f32
    %v4 = multiply(%v1, %v3) : f32
    fold %v4 from 0.0 with add into a
  }
  map() {
    %v5 = read a[]
    %v6 = load r[%d0, %d1]
    %v7 = convert(%v6) : f32
    %v8 = add(%v5, %v7) : f32
    %v9 = convert(%v8) : f16
    store %v9 to y[%d0, %d1]
  }
}
"""

TAPS = """
kernel(%d0 = 1, %d1 = 24, %d2 = 5, %d3 = 6) {
  ro x : f16[1, 128, 9, 11] layout [12672, 1, 1408, 128] offset 0 size 12672
  ro constant w : f16[24, 128, 3, 2] layout [768, 1, 256, 128] offset 0 size 18432
  wo y : f16[1, 24, 5, 6] layout [720, 1, 144, 24] offset 0 size 720
  local a : f32
  reduce(%r0 = 128, %r1 = 3, %r2 = 2) {
    %v0 = load x[%d0, %r0, 2*%d2 + %r1 - 1, 2*%d3 + %r2 - 1] bounded [2, 3] otherwise 0.0
    %v1 = load w[%d1, %r0, %r1, %r2]
    %v2 = convert(%v0) : f32
    %v3 = convert(%v1) : f32
    %v4 = multiply(%v2, %v3) : f32
    fold %v4 from 0.0 with add into a
  }
  map() {
    %v5 = read a[]
    %v6 = convert(%v5) : f16
    %v7 = erf(%v6) : f16
    store %v7 to y[%d0, %d1, %d2, %d3]
  }
}
"""

ONE_ALONG = """
kernel(%d0 = 17, %d1 = 24) {
  ro x : f16[17, 5]
  ro w : f16[24]
  wo y : f32[17, 24]
  local a : f32
  reduce(%r0 = 5) {
    %v0 = load x[%d0, %r0]
    %v1 = convert(%v0) : f32
    %v2 = load w[%d1]
    %v3 = convert(%v2) : f32
    %v4 = multiply(%v1, %v3) : f32
    fold %v4 from 0.0 with add into a
  }
  map() {
    %v5 = read a[]
    store %v5 to y[%d0, %d1]
  }
}
"""

BY_NAME = {s.name: s for s in SAMPLES}
OWN = (
    Sample("batched", BATCHED, {"batch": 2, "seq": 19}),
    Sample("half", HALF, tolerance=2e-3),
    Sample("taps", TAPS, tolerance=2e-3),
    Sample("one_along", ONE_ALONG, tolerance=2e-3),
)
PRODUCTS = (
    *(BY_NAME[name] for name in ("matmul", "convolution_bounded", "outer_product")),
    *OWN,
)


@pytest.mark.parametrize("sample", PRODUCTS, ids=lambda s: s.name)
@needs_interpreter
@pytest.mark.filterwarnings("ignore")
def test_values_in_the_interpreter(sample: Sample) -> None:
    from interpret import run

    buffers = sample.buffers()
    expected = sample.expected(buffers)
    run(sample.kernel, buffers, sample.dims, contract.generate)
    assert_close(sample, buffers, expected)


@needs_interpreter
@pytest.mark.filterwarnings("ignore")
def test_what_is_behind_the_depth_meets_no_infinity() -> None:
    """A factor that does not move along the depth is 0 there too: 0 times infinity is none."""
    from interpret import run

    sample = Sample("infinite", ONE_ALONG)
    buffers = sample.buffers()
    buffers[0][:] = 1
    buffers[1][3] = np.inf
    run(sample.kernel, buffers, sample.dims, contract.generate)
    found = buffers[2].reshape(17, 24)
    assert np.isinf(found[:, 3]).all() and np.isfinite(np.delete(found, 3, 1)).all()


@pytest.mark.parametrize("sample", PRODUCTS, ids=lambda s: s.name)
@needs_triton
def test_compiles_to_a_cubin(sample: Sample) -> None:
    code = make("cuda:sm_90").translate("main_dispatch_0", sample.kernel)
    assert all(c[:4] == b"\x7fELF" for c in split_code(code.data))
    (launch,) = code.specialisations[-1].launches
    assert launch.family == "contract"
    assert launch.shared_bytes > 0
    if sample.name == "half":
        assert "mma" in code.listing


@needs_triton
def test_tf32_goes_to_the_tensor_cores() -> None:
    kernel = BY_NAME["matmul"].kernel
    target = make("cuda:sm_90")
    plain = target.translate("main_dispatch_0", kernel).listing
    short = target.translate("main_dispatch_0", replace(kernel, precision="tf32")).listing
    assert "mma" in short and "tf32" in short
    assert "mma" not in plain


def test_what_sums_no_products_is_left_alone() -> None:
    names = {s.name for s in PRODUCTS}
    for sample in SAMPLES:
        if sample.name not in names:
            assert products.as_product(sample.kernel) is None, sample.name


def test_columns_lie_side_by_side_in_the_result() -> None:
    found = products.as_product(BY_NAME["convolution_bounded"].kernel)
    assert found is not None
    names = [[a.name for a in axes] for axes in (found.rows, found.columns, found.batch)]
    assert names == [["%d1"], ["%d0", "%d2", "%d3"], []]
    batched = products.as_product(OWN[0].kernel)
    assert batched is not None
    assert [a.name for a in batched.batch] == ["%d0", "%d1"]
    assert [a.name for a in batched.columns] == ["%d3"]


def test_a_kernel_that_reads_what_other_tiles_write_is_no_product() -> None:
    text = BATCHED.replace("wo s", "rw s").replace(
        "%v1 = load k[%d0, %d3, %d1, %r0]", "%v1 = load s[%d0, %d1, %d3, %r0]"
    )
    assert products.as_product(Sample("no", text).kernel) is None
    text = BATCHED.replace("wo s", "rw s").replace(
        "%v4 = constant 0.25 : f32", "%v4 = load s[%d0, %d1, %d2, %d3]"
    )
    assert products.as_product(Sample("in place", text).kernel) is not None


def test_halves_behind_a_sum_are_rounded_once() -> None:
    source = contract.generate("k", OWN[2].kernel)
    assert source is not None and source.text.count(".to(tl.float16).to(tl.uint16") == 1
    steps = TAPS.replace("erf(%v6)", "floor(%v6)")
    source = contract.generate("k", Sample("steps", steps).kernel)
    assert source is not None and source.text.count(".to(tl.float16).to(tl.uint16") > 1


@needs_triton
def test_taps_of_many_channels_are_read_16_bytes_at_a_time() -> None:
    """A run of depth lies within a tap: neighbours in it are neighbours in memory."""
    code = make("cuda:sm_90").translate("main", OWN[2].kernel)
    assert code.listing.count("cp.async.cg.shared.global") > 1
    assert "ld.global.b16" not in code.listing.partition("wgmma")[0].partition("mma.sync")[0]


def test_small_products_get_small_tiles() -> None:
    found = products.as_product(BY_NAME["matmul"].kernel)
    assert found is not None
    tiles = choose_tiles(found)
    assert (tiles.rows, tiles.columns, tiles.depth) == (16, 16, 32)


MANY_ROWS = """
kernel(%d0 = 330, %d1 = 70) {
  ro x : f32[330, 9]
  ro constant w : f32[9, 70] layout [1, 9] offset 0 size 630
  wo y : f32[330, 70]
  local a : f32
  reduce(%r0 = 9) {
    %v0 = load x[%d0, %r0]
    %v1 = load w[%r0, %d1]
    %v2 = multiply(%v0, %v1) : f32
    fold %v2 from 0.0 with add into a
  }
  map() {
    %v3 = read a[]
    store %v3 to y[%d0, %d1]
  }
}
"""


@pytest.mark.parametrize("cut", [None, 2])
@needs_interpreter
@pytest.mark.filterwarnings("ignore")
def test_tiles_in_groups_of_rows_cover_the_result(cut: int | None) -> None:
    from interpret import run

    sample = Sample("many rows", MANY_ROWS)
    source = contract.generate("k", sample.kernel)
    assert source is not None
    rows, columns, _ = (w.value for w in source.workgroups)
    assert rows > 8 and columns > 2
    buffers = sample.buffers()
    expected = sample.expected(buffers)
    parts = [None] if cut is None else [(0, cut), (cut, columns - cut)]
    for part in parts:
        run(sample.kernel, buffers, {}, contract.generate, columns=part)
    assert_close(sample, buffers, expected)


@pytest.mark.parametrize(
    "rows, columns, tile",
    [
        (4096, 4096, Tiles(128, 128, 64, 4, 3, 264, True)),
        (512, 4096, Tiles(128, 128, 64, 8, 4, 0, True)),
        (128, 11008, Tiles(128, 128, 64, 8, 4, 0, True)),
        (128, 4096, Tiles(64, 128, 64, 4, 4, parts=2)),
        (16, 4096, Tiles(16, 64, 128, 4, 4)),
    ],
)
def test_products_with_a_layers_weight(rows: int, columns: int, tile: Tiles) -> None:
    text = HALF.replace("%d0 = 5", f"%d0 = {rows}").replace("%d1 = 33", f"%d1 = {columns}")
    text = text.replace("%r0 = 40", "%r0 = 4096").replace("[5, 40]", f"[{rows}, 4096]")
    text = text.replace("[40, 33]", f"[4096, {columns}]").replace(
        "[5, 33]", f"[{rows}, {columns}]"
    )
    found = products.as_product(Sample("layer", text).kernel)
    assert found is not None and found.narrow
    assert choose_tiles(found) == tile


def test_the_estimate_is_near_what_was_measured() -> None:
    """Microseconds of an H200, docs/measured/h200.md."""
    for shape, tiles, measured in (
        ((4096, 3072, 768), Tiles(128, 128, 64, 4, 3, 264, True), 30.7),
        ((1818, 2112, 1184), Tiles(128, 128, 64, 4, 3, 0, True), 16.6),
        ((838, 2192, 1552), Tiles(128, 128, 64, 8, 4), 13.5),
        ((193, 808, 3040), Tiles(64, 64, 64, 4, 4, parts=2), 8.3),
        ((317, 2400, 5080), Tiles(128, 128, 64, 8, 4, 0, True, 2), 28.0),
        ((1333, 5192, 2736), Tiles(128, 256, 64, 8, 3, 132, True), 63.0),
        ((270, 1360, 424), Tiles(64, 64, 64, 4, 4), 4.2),
    ):
        assert abs(microseconds(tiles, *shape, 1, 2) / measured - 1) < 0.15, shape
