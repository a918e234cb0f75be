"""Where inputs and outputs of a Vulkan step pass: near the kernels, over the link, or copied."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.runtime.drivers.vulkan_heap import Buffer, Heap
from headrace.runtime.drivers.vulkan_instance import DEVICE_LOCAL, HOST_COHERENT, HOST_VISIBLE
from headrace.runtime.drivers.vulkan_state import VulkanState


class _Heap:
    """Notes what kind of memory is asked for."""

    def __init__(self, has_near: bool) -> None:
        self.has_near = has_near
        self.kinds: list[str] = []

    def buffer(self, size_bytes: int, kind: str, purpose: str) -> Buffer:
        self.kinds.append(kind)
        return Buffer(len(self.kinds), size_bytes, 1 << 20)

    def free(self, buffer: Buffer) -> None:
        buffer.handle = 0


def _stage(has_near: bool, inputs: int, outputs: int) -> tuple[list[str], Any, Any]:
    heap = _Heap(has_near)
    calls: Any = SimpleNamespace(heap=heap, physical=SimpleNamespace(is_unified=False))
    state = VulkanState(calls, {})
    heap.kinds.clear()
    (first,), (second,) = state.stage([inputs], [outputs])
    return heap.kinds, first, second


@pytest.mark.parametrize("size", [4096, 602_112, 4 << 20])
def test_the_host_writes_inputs_where_kernels_read_them(size):
    kinds, first, _ = _stage(True, size, 4096)
    assert kinds == ["near", "readback"]
    assert first.host == first.device


def test_large_inputs_and_outputs_are_copied():
    kinds, first, second = _stage(True, 5 << 20, 602_112)
    assert kinds == ["upload", "device", "readback", "device"]
    assert first.host != first.device and second.host != second.device


def test_without_memory_that_the_host_reaches_only_small_inputs_pass_over_the_link():
    assert _stage(False, 4096, 4096)[0][0] == "near"  # the heap takes the host's for it
    kinds, first, _ = _stage(False, 602_112, 4096)
    assert kinds[:2] == ["upload", "device"] and first.host != first.device


def test_a_heap_says_whether_the_host_reaches_the_devices_memory():
    host = HOST_VISIBLE | HOST_COHERENT
    for flags, wanted in ((DEVICE_LOCAL | host, True), (DEVICE_LOCAL, False)):
        physical: Any = SimpleNamespace(memory_types=[(host, 0), (flags, 1)])
        assert Heap(0, physical, (0,)).has_near is wanted
