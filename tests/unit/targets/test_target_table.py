"""Targets by name; names nobody knows are refused with the known ones."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from headrace.base.errors import HeadraceError
from headrace.targets.table import names, target


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
