"""Targets by name; names nobody knows are refused with the known ones."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from headrace.base.errors import HeadraceError
from headrace.targets.table import chosen_targets, compiled_only, for_device, names, target
from headrace.targets.triton import native


@pytest.mark.parametrize(
    ("spelled", "name", "device_class"),
    [
        ("cpu", "cpu:x86-64-v3", "cpu"),
        ("cpu:generic", "cpu:generic", "cpu"),
        ("cpu:native", "cpu:native", "cpu"),
        ("vulkan", "vulkan:1.3", "vulkan"),
        ("cuda:sm_90", "cuda:sm_90", "cuda"),
    ],
)
def test_targets(spelled: str, name: str, device_class: str) -> None:
    found = target(spelled)
    assert (found.name, found.device_class) == (name, device_class)
    assert pickle.loads(pickle.dumps(found)).name == name


def test_cuda_alone_stands_for_every_architecture() -> None:
    found = chosen_targets(["cuda", "cpu", "cuda:sm_90"], "fast", "ieee")
    assert [t.name for t in found] == ["cuda:sm_80", "cuda:sm_90", "cpu:x86-64-v3"]
    assert [t.name for t in found[:2]] == [f"cuda:{a}" for a in native.CUDA_ARCHITECTURES]


@pytest.mark.parametrize(
    ("capability", "name"),
    [((9, 0), "sm_90"), ((8, 0), "sm_80"), ((8, 6), "sm_80"), ((10, 0), ""), ((7, 5), "")],
)
def test_cuda_native_is_what_the_gpu_runs(
    capability: tuple[int, int], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "_capability", lambda: capability)
    if name:
        assert target("cuda:native").name == for_device("cuda") == f"cuda:{name}"
        (only,) = chosen_targets(["cuda:native", f"cuda:{name}"], "fast", "ieee")
        assert only.name == f"cuda:{name}"
    else:
        with pytest.raises(HeadraceError, match=r"HR0125.*\n.*sm_80, sm_90"):
            target("cuda:native")


def test_cuda_native_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_LIBRARY", "libnothing.so.1")
    with pytest.raises(HeadraceError, match="HR0124"):
        target("cuda:native")
    assert for_device("vulkan") == "vulkan"
    assert for_device("null").startswith("cpu:") and for_device("null:cuda").startswith("cuda")


def test_what_is_compiled_only() -> None:
    assert compiled_only(["cpu", "rocm", "cuda", "rocm:gfx942"]) == ["rocm", "rocm:gfx942"]


@pytest.mark.parametrize("spelled", ["tpu", "CPU", "", ":cpu"])
def test_unknown_targets_list_the_known_ones(spelled: str) -> None:
    with pytest.raises(HeadraceError, match=r"HR0112.*\n.*cpu.*cuda.*vulkan"):
        target(spelled)


def test_unknown_cpu() -> None:
    with pytest.raises(HeadraceError, match=r"HR0110.*'avx9'"):
        target("cpu:avx9")


def test_the_table_loads_no_compiler() -> None:
    code = (
        "import sys; from headrace.targets import table; "
        "assert not {'llvmlite', 'triton', 'xdsl', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert names() == ("cpu", "cuda", "rocm", "vulkan")
