"""Free memory honours cgroups; slabs are exact."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headrace.base.errors import HeadraceError
from headrace.runtime import cgroups as cgroups_module
from headrace.runtime import memory


@pytest.fixture
def cgroups(tmp_path, monkeypatch):
    """A tree of cgroup files; `/proc/self/cgroup` says what the test wants."""
    root = tmp_path / "cgroup"
    proc = tmp_path / "proc"
    real = Path.read_text

    def read_text(self: Path, *args: object, **kwargs: object) -> str:
        if str(self) == "/proc/self/cgroup":
            return real(proc)
        return real(self)

    monkeypatch.setattr(cgroups_module, "_ROOT", root)
    monkeypatch.setattr(Path, "read_text", read_text)

    def make(line: str, files: dict[str, dict[str, str]]) -> None:
        proc.write_text(line)
        for folder, values in files.items():
            place = root / folder
            place.mkdir(parents=True, exist_ok=True)
            for name, value in values.items():
                (place / name).write_text(value)

    return make


def test_the_tightest_cgroup_above_counts(cgroups):
    cgroups(
        "0::/a/b\n",
        {
            "a": {"memory.max": "1000000", "memory.current": "400000", "memory.stat": ""},
            "a/b": {
                "memory.max": "5000000",
                "memory.current": "100000",
                "memory.stat": "inactive_file 7\n",
            },
        },
    )
    assert memory.free_host_bytes() == 600_000


def test_clean_page_cache_counts_as_free(cgroups):
    cgroups(
        "0::/a\n",
        {
            "a": {
                "memory.max": "1000000",
                "memory.current": "900000",
                "memory.stat": "anon 5\ninactive_file 500000\n",
            }
        },
    )
    assert memory.free_host_bytes() == 600_000


def test_version_one_and_no_limit(cgroups):
    limits = {"memory.limit_in_bytes": "9223372036854771712", "memory.usage_in_bytes": "5"}
    cgroups("4:memory:/x\n3:cpu:/y\n", {"memory": limits, "memory/x": limits})
    assert memory.free_host_bytes() > 100 << 20
    small = {"memory.limit_in_bytes": "3000", "memory.usage_in_bytes": "1000"}
    cgroups("4:memory:/x\n", {"memory/x": small})
    assert memory.free_host_bytes() == 2000


def test_processor_quotas_are_rounded_up(cgroups):
    cgroups(
        "0::/a/b\n",
        {"a": {"cpu.max": "150000 100000"}, "a/b": {"cpu.max": "max 100000"}},
    )
    assert cgroups_module.processor_limits() == [2]
    old = {"cpu.cfs_quota_us": "50000", "cpu.cfs_period_us": "100000"}
    none = {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}
    cgroups("4:cpu,cpuacct:/x/y\n", {"cpu/x": old, "cpu/x/y": none})
    assert cgroups_module.processor_limits() == [1]


def test_a_dropped_slab_is_given_back():
    def mapped(address: int) -> bool:
        with open("/proc/self/maps") as maps:
            return any(line.startswith(f"{address:08x}-") for line in maps)

    slab = memory.Slab(123 << 20)
    address = slab.address
    assert mapped(address)
    del slab
    assert not mapped(address)


def test_a_slab_is_zeroed_aligned_and_given_back():
    slab = memory.Slab(5000)
    assert slab.size_bytes == 8192 and slab.address % 4096 == 0
    import ctypes

    view = np.ctypeslib.as_array((ctypes.c_uint8 * 8192).from_address(slab.address))
    assert not view.any()
    view[:] = 1
    slab.close()
    slab.close()
    assert slab.address == 0
    assert memory.Slab(0).address == 0


def test_a_slab_that_cannot_be_had_is_an_error():
    with pytest.raises(HeadraceError, match="HR3010"):
        memory.Slab(1 << 62)
