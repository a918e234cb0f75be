"""The fast families: valid SPIR-V, and on a device what `kernel/interp.py` computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from loop_kernels import LOOPS
from sample_kernels import SAMPLES, Sample, assert_close
from spirv_validator import validate
from vulkan_device import run_code

from headrace.kernel.products import as_product
from headrace.kernel.text import parse_kernel
from headrace.runtime.drivers.vulkan_instance import find_device, missing
from headrace.targets.vulkan import naive, registers, rows, tiles
from headrace.targets.vulkan.disassembler import disassemble
from headrace.targets.vulkan.target import make

_REASON = missing()
needs_device = pytest.mark.skipif(bool(_REASON), reason=_REASON or "none")


def matmul(rows_: int, depth: int, columns: int) -> str:
    """x[rows, depth] . w[depth, columns] + b."""
    return f"""
kernel(%d0 = {rows_}, %d1 = {columns}) {{
  ro x : f32[{rows_}, {depth}]
  ro constant w : f32[{depth}, {columns}]
  ro constant b : f32[{columns}]
  wo y : f32[{rows_}, {columns}]
  local a : f32
  reduce(%r0 = {depth}) {{
    %v0 = load x[%d0, %r0]
    %v1 = load w[%r0, %d1]
    %v2 = multiply(%v0, %v1) : f32
    fold %v2 from 0.0 with add into a
  }}
  map() {{
    %v3 = read a[]
    %v4 = load b[%d1]
    %v5 = add(%v3, %v4) : f32
    store %v5 to y[%d0, %d1]
  }}
}}"""


LONG_INDICES = """
kernel(%d0 = 10) {
  wo y : i1[10]
  wo z : i1[10]
  map() {
    %v0 = index [%d0 - 1] : i64
    %v1 = constant 3 : i64
    %v2 = compare LT(%v0, %v1) : i1
    %v3 = constant 0 : i64
    %v4 = compare GE(%v0, %v3) : i1
    store %v2 to y[%d0]
    store %v4 to z[%d0]
  }
}"""

PRODUCTS = [
    Sample("one large tile", matmul(64, 40, 64)),
    Sample("edges everywhere", matmul(67, 77, 35), tolerance=4e-6),
    Sample("many slices", matmul(17, 1030, 19), tolerance=8e-6),
    Sample("large and sliced", matmul(130, 300, 257), tolerance=8e-6),
    Sample("no depth to speak of", matmul(20, 3, 20)),
]
OWN = [Sample("long indices", LONG_INDICES)]
EVERY = [*SAMPLES, *LOOPS, *PRODUCTS, *OWN]


@pytest.mark.parametrize("sample", EVERY, ids=lambda s: s.name)
def test_every_variant_of_every_kernel_validates(sample: Sample, tmp_path: Path) -> None:
    code = make("vulkan").translate("k", sample.kernel)
    assert code == make("vulkan").translate("k", sample.kernel)
    for variant in (code, *code.others):
        assert validate(variant.data, tmp_path) == ""
        assert variant.features == tuple(sorted(variant.features))
        assert all(o.others == () for o in code.others)
    # The last one asks for no more than the kernel's own types.
    last = (code, *code.others)[-1]
    expected = registers.translate("k", sample.kernel) or naive.translate("k", sample.kernel)
    assert last.data == expected.data and not set(last.features) & {"gpu", "subgroup32"}


def _check(sample: Sample, code, folder: Path) -> None:
    buffers = sample.buffers()
    found = run_code(sample.kernel, code, buffers, sample.dims, folder)
    assert_close(sample, found, sample.expected(buffers))


@needs_device
@pytest.mark.parametrize("sample", [*SAMPLES, *LOOPS, *OWN], ids=lambda s: s.name)
def test_naive_kernels_compute_what_they_mean(sample: Sample, tmp_path: Path) -> None:
    _check(sample, naive.translate("k", sample.kernel), tmp_path)


@needs_device
@pytest.mark.parametrize("sample", EVERY, ids=lambda s: s.name)
def test_tiles_compute_what_they_mean(sample: Sample, tmp_path: Path) -> None:
    code = tiles.translate("k", sample.kernel)
    if code is None:
        found = as_product(sample.kernel)
        assert found is None or sample.name == "integer_dot", "a product was left out"
        return
    _check(sample, code, tmp_path)


@needs_device
@pytest.mark.parametrize("sample", EVERY, ids=lambda s: s.name)
def test_registers_compute_what_they_mean(sample: Sample, tmp_path: Path) -> None:
    code = registers.translate("k", sample.kernel)
    assert (code is None) == (as_product(sample.kernel) is None)
    if code is not None:
        _check(sample, code, tmp_path)


@needs_device
def test_rows_compute_what_they_mean(tmp_path: Path, monkeypatch) -> None:
    """With shuffles too, in subgroups as large as the device has; bit for bit the same."""
    monkeypatch.setattr(rows, "_LEAST_FOLDED", 1)
    monkeypatch.setattr(rows, "_SUBGROUP", find_device().subgroup_lanes)
    taken: list[str] = []
    for sample in EVERY:
        if sample in LOOPS:
            continue  # The target shows no family a kernel with loops.
        code = rows.translate("k", sample.kernel)
        if code is not None:
            found: list[list[bytes]] = []
            for variant in (code, *code.others):
                assert validate(variant.data, tmp_path) == "", sample.name
                _check(sample, variant, tmp_path)
                buffers = sample.buffers()
                after = run_code(sample.kernel, variant, buffers, sample.dims, tmp_path)
                found.append([a.tobytes() for a in after])
            assert all(f == found[0] for f in found), sample.name
            taken.append(sample.name)
    assert {"softmax", "layer_norm", "arg_max", "integer_dot", "sort"} <= set(taken)


LONG_ROW = """
kernel(%d0 = 3) {
  ro x : f32[3, 1000]
  wo y : f32[3, 1000]
  local m : f32
  local s : f32
  reduce(%r0 = 1000) {
    %v0 = load x[%d0, %r0]
    fold %v0 from -inf with maximum into m
  }
  reduce(%r0 = 1000) {
    %v0 = load x[%d0, %r0]
    %v1 = read m[]
    %v2 = subtract(%v0, %v1) : f32
    %v3 = exponential(%v2) : f32
    fold %v3 from 0.5 with add into s
  }
  map(%d1 = 1000) {
    %v0 = load x[%d0, %d1]
    %v1 = read m[]
    %v2 = subtract(%v0, %v1) : f32
    %v3 = exponential(%v2) : f32
    %v4 = read s[]
    %v5 = divide(%v3, %v4) : f32
    store %v5 to y[%d0, %d1]
  }
}"""


@needs_device
def test_a_long_row_starts_from_its_value_once_and_keeps_nan(tmp_path: Path) -> None:
    sample = Sample("long row", LONG_ROW, tolerance=4e-6)
    first = make("vulkan").translate("k", sample.kernel)
    assert set(first.features) >= {"GroupNonUniformShuffle", "gpu", "subgroup32"}
    code = next(v for v in first.others if "subgroup32" not in v.features)
    assert code.specialisations[0].launches[0].family == "row"
    _check(sample, code, tmp_path)
    buffers = sample.buffers()
    buffers[0][1500] = np.nan
    found = run_code(sample.kernel, code, buffers, {}, tmp_path)[1].reshape(3, 1000)
    assert np.isnan(found[1]).all() and not np.isnan(found[[0, 2]]).any()


HALVES = """
kernel(%d0 = {rows}, %d1 = {columns}) {{
  ro x : f16[{rows}, {depth}]
  ro w : f16[{depth}, {columns}]
  wo y : f16[{rows}, {columns}]
  local a : f32
  reduce(%r0 = {depth}) {{
    %v0 = load x[%d0, %r0]
    %v1 = load w[%r0, %d1]
    %v2 = convert(%v0) : f32
    %v3 = convert(%v1) : f32
    %v4 = multiply(%v2, %v3) : f32
    fold %v4 from 0.0 with add into a
  }}
  map() {{
    %v5 = read a[]
    %v6 = constant 0.0 : f32
    %v7 = maximum(%v5, %v6) : f32
    %v8 = convert(%v7) : f16
    store %v8 to y[%d0, %d1]
  }}
}}"""


@pytest.mark.parametrize(
    ("rows_", "depth", "columns", "grid"),
    [
        (4096, 4096, 4096, (32, 32, 1)),
        (128, 768, 3072, (4, 96, 1)),
        (48, 64, 16, (3, 1, 1)),
        (50, 64, 16, None),
        (64, 40, 64, None),
    ],
)
def test_products_of_halves_have_a_variant_of_cooperative_matrices(
    rows_: int, depth: int, columns: int, grid, tmp_path: Path
) -> None:
    kernel = parse_kernel(HALVES.format(rows=rows_, depth=depth, columns=columns))
    code = make("vulkan").translate("k", kernel)
    (launch,) = code.specialisations[0].launches
    if grid is None:
        assert launch.family == "contract"
        return
    assert launch.family == "matrices"
    assert tuple(w.value for w in launch.workgroups) == grid
    assert {"CooperativeMatrixKHR", "VulkanMemoryModel", "subgroup32"} <= set(code.features)
    assert validate(code.data, tmp_path) == ""
    text = disassemble(code.data)
    assert "OpMemoryModel Logical Vulkan" in text and "OpCooperativeMatrixMulAddKHR" in text
    assert "NonPrivatePointer" in text


@needs_device
def test_halves_are_widened_exactly(tmp_path: Path) -> None:
    sample = Sample("halves", HALVES.format(rows=33, depth=40, columns=20), tolerance=1e-3)
    buffers = sample.buffers()
    buffers[0][:40] = np.float16(6e-8)  # the least a half can be
    buffers[1][:20] = np.float16(1024)
    expected = sample.expected(buffers)
    for family in (tiles, registers, naive):
        code = family.translate("k", sample.kernel)
        found = run_code(sample.kernel, code, buffers, {}, tmp_path)
        assert_close(sample, found, expected)
        first, wanted = (a[2][:20].astype(np.float64) for a in (found, expected))
        assert (wanted > 3e-5).any() and np.abs(first - wanted).max() <= 1.2e-7


@needs_device
def test_the_device_of_the_tests_is_none_that_shares_fast_memory() -> None:
    if not find_device().is_cpu:
        pytest.skip("the device here is a GPU")
    assert "gpu" not in find_device().features
