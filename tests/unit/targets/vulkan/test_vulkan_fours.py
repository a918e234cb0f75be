"""Products in fours of the depth: valid SPIR-V, and on a device what `kernel/interp.py` computes."""

from __future__ import annotations

from pathlib import Path

import pytest
from sample_kernels import SAMPLES as KERNELS
from sample_kernels import Sample, assert_close
from spirv_validator import validate
from vulkan_device import run_code

from headrace.kernel.products import as_product
from headrace.runtime.drivers.vulkan_instance import find_device, missing
from headrace.targets.vulkan import fours, tiles
from headrace.targets.vulkan.target import make
from headrace.targets.vulkan.tiles import Tiles

_REASON = missing()
needs_device = pytest.mark.skipif(bool(_REASON), reason=_REASON or "none")


def linear(rows: int, depth: int, columns: int) -> str:
    """x[rows, depth] . w[columns, depth]^T + b."""
    return f"""
kernel(%d0 = {rows}, %d1 = {columns}) {{
  ro x : f32[{rows}, {depth}]
  ro constant w : f32[{columns}, {depth}]
  ro constant b : f32[{columns}]
  wo y : f32[{rows}, {columns}]
  local a : f32
  reduce(%r0 = {depth}) {{
    %v0 = load x[%d0, %r0]
    %v1 = load w[%d1, %r0]
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


def convolution(side: int, channels: int, outputs: int, window: int, stride: int) -> str:
    """x[1, side, side, channels] under a window with channels last; the input's centre is added."""
    out, pad = -(-side // stride), window // 2
    return f"""
kernel(%d0 = {out}, %d1 = {out}, %d2 = {outputs}) {{
  ro x : f32[{side}, {side}, {channels}]
  ro constant w : f32[{outputs}, {window}, {window}, {channels}]
  wo y : f32[{out}, {out}, {outputs}]
  local a : f32
  reduce(%r0 = {channels}, %r1 = {window}, %r2 = {window}) {{
    %v0 = load x[{stride}*%d0 + %r1 - {pad}, {stride}*%d1 + %r2 - {pad}, %r0] bounded [0, 1] otherwise 0.0
    %v1 = load w[%d2, %r1, %r2, %r0]
    %v2 = multiply(%v0, %v1) : f32
    fold %v2 from 0.0 with add into a
  }}
  map() {{
    %v3 = read a[]
    %v4 = load x[{stride}*%d0, {stride}*%d1, %d2] bounded [2] otherwise 0.0
    %v5 = add(%v3, %v4) : f32
    store %v5 to y[%d0, %d1, %d2]
  }}
}}"""


SAMPLES = (
    Sample("whole pieces", linear(64, 128, 64)),
    Sample("edges everywhere", linear(67, 76, 35), tolerance=4e-6),
    Sample("deep", linear(17, 1028, 19), tolerance=8e-6),
    Sample("3 x 3", convolution(9, 12, 20, 3, 1), tolerance=8e-6),
    Sample("1 x 1 in steps of two", convolution(14, 64, 40, 1, 2), tolerance=8e-6),
)
SHALLOW = (
    Sample("depth no multiple of four", linear(20, 30, 20)),
    Sample("three channels", convolution(9, 3, 20, 3, 1)),
)
SCHEDULES = (
    Tiles(64, 64, 16, 8, 4, 1),
    Tiles(32, 32, 16, 4, 4, 2),
    Tiles(16, 16, 8, 4, 2, 8),
    Tiles(16, 64, 16, 4, 4, 1),
    Tiles(8, 16, 8, 4, 4, 4),
    Tiles(8, 16, 8, 4, 4, 32),
)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)
def test_every_schedule_validates(sample: Sample, schedule: Tiles, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(fours, "choose", lambda found: schedule)
    code = fours.translate("k", sample.kernel)
    assert code is not None and validate(code.data, tmp_path) == ""


@needs_device
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)
def test_every_schedule_computes_what_it_means(
    sample: Sample, schedule: Tiles, tmp_path: Path, monkeypatch
):
    monkeypatch.setattr(fours, "choose", lambda found: schedule)
    monkeypatch.setattr(fours, "SUBGROUP", find_device().subgroup_lanes)
    code = fours.translate("k", sample.kernel)
    assert code is not None
    buffers = sample.buffers()
    found = run_code(sample.kernel, code, buffers, sample.dims, tmp_path)
    assert_close(sample, found, sample.expected(buffers))


@needs_device
@pytest.mark.parametrize("sample", KERNELS, ids=lambda s: s.name)
def test_what_is_taken_computes_what_it_means(sample: Sample, tmp_path: Path):
    code = fours.translate("k", sample.kernel)
    if code is None:
        return
    # A subgroup of this device may be none of the 32 lanes that slices count on.
    if {f"subgroup{fours.SUBGROUP}"} & set(code.features) <= set(find_device().features):
        buffers = sample.buffers()
        found = run_code(sample.kernel, code, buffers, sample.dims, tmp_path)
        assert_close(sample, found, sample.expected(buffers))


@pytest.mark.parametrize("sample", SHALLOW, ids=lambda s: s.name)
def test_what_does_not_lie_in_fours_is_left_to_tiles(sample: Sample):
    assert fours.translate("k", sample.kernel) is None
    assert tiles.translate("k", sample.kernel) is not None


def test_slices_that_are_subgroups_are_for_devices_with_such():
    deep = make("vulkan").translate("k", Sample("", linear(128, 768, 768)).kernel)
    assert set(deep.features) == {"gpu", "subgroup32"}
    assert any(set(v.features) == {"gpu"} for v in deep.others)
    wide = make("vulkan").translate("k", Sample("", linear(784, 128, 512)).kernel)
    assert set(wide.features) == {"gpu"}


@pytest.mark.parametrize("rows", [2, 49, 196, 784, 12544, 300_000])
@pytest.mark.parametrize("columns", [10, 64, 512, 3072])
@pytest.mark.parametrize("depth", [4, 64, 576, 4608])
def test_schedules_fit_a_workgroup(rows: int, columns: int, depth: int):
    found = as_product(Sample("", linear(rows, depth, columns)).kernel)
    assert found is not None
    chosen = fours.choose(found)
    assert chosen.lanes <= 256 and 4 * fours.shared_elements(chosen) <= 48 << 10
    # Lanes that load one piece side by side cover whole rows, and whole columns, of it.
    at_once = chosen.slice_lanes * 4 // chosen.depth
    assert chosen.rows % at_once == chosen.columns % at_once == 0
    assert chosen.slices * chosen.depth <= max(depth, chosen.depth)
