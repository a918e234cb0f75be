"""Launches: what kernels are bound to, and how they are recorded."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.runtime.drivers import vulkan_api
from headrace.runtime.drivers.vulkan_calls import VulkanCalls
from headrace.runtime.drivers.vulkan_instance import check, loader, made, pointer
from headrace.runtime.drivers.vulkan_link import Kernel

vk: Any = vulkan_api

_COMPUTE, _COMPUTE_STAGE, _STORAGE_BUFFER = 1, 0x20, 7


@dataclass(frozen=True)
class Range:
    """Bytes that a command touches."""

    buffer: int
    begin: int
    end: int

    def meets(self, other: Range) -> bool:
        same = self.buffer == other.buffer
        return same and self.begin < other.end and other.begin < self.end


def record_launch(
    command: int, kernel: Kernel, descriptor_set: int, words: Any, grid: tuple[int, int, int]
) -> None:
    """Records a launch; `words` is an array of its push constants."""
    library = loader()
    library.vkCmdBindPipeline(command, _COMPUTE, kernel.pipeline)
    sets = ctypes.c_uint64(descriptor_set)
    library.vkCmdBindDescriptorSets(
        command, _COMPUTE, kernel.layout, 0, 1, pointer(sets), 0, None
    )
    library.vkCmdPushConstants(
        command, kernel.layout, _COMPUTE_STAGE, 0, ctypes.sizeof(words), pointer(words)
    )
    library.vkCmdDispatch(command, *grid)


class DescriptorPool:
    """The descriptor sets of one plan; equal ones are one."""

    def __init__(self, calls: VulkanCalls, counts: Sequence[int]) -> None:
        self._calls = calls
        self._known: dict[tuple[int, tuple[Range, ...]], int] = {}
        self._handle = 0
        if not counts:
            return
        size = vk.VkDescriptorPoolSize(
            type=_STORAGE_BUFFER, descriptorCount=max(1, sum(counts))
        )
        wish = made(
            vk.VkDescriptorPoolCreateInfo,
            maxSets=len(counts),
            poolSizeCount=1,
            pPoolSizes=pointer(size),
        )
        self._handle = calls.create("vkCreateDescriptorPool", wish)

    def set(self, layout: int, ranges: Sequence[Range]) -> int:
        key = layout, tuple(ranges)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._new(layout, ranges)
        return found

    def _new(self, layout: int, ranges: Sequence[Range]) -> int:
        library, device = loader(), self._calls.handle
        layouts, found = ctypes.c_uint64(layout), ctypes.c_uint64()
        wish = made(
            vk.VkDescriptorSetAllocateInfo,
            descriptorPool=self._handle,
            descriptorSetCount=1,
            pSetLayouts=pointer(layouts),
        )
        result = library.vkAllocateDescriptorSets(device, pointer(wish), pointer(found))
        check("vkAllocateDescriptorSets", result)
        count = len(ranges)
        infos = (vk.VkDescriptorBufferInfo * count)()
        writes = (vk.VkWriteDescriptorSet * count)()
        step = ctypes.sizeof(vk.VkDescriptorBufferInfo)
        for number, (r, info, write) in enumerate(zip(ranges, infos, writes, strict=True)):
            # Whole words: kernels read narrow elements, and the resource is padded.
            info.buffer, info.offset = r.buffer, r.begin
            info.range = -(-(r.end - r.begin) // 4) * 4
            write.sType = vk.VkWriteDescriptorSet.STYPE
            write.dstSet, write.dstBinding = found.value, number
            write.descriptorCount, write.descriptorType = 1, _STORAGE_BUFFER
            write.pBufferInfo = pointer(infos) + number * step
        library.vkUpdateDescriptorSets(device, count, pointer(writes), 0, None)
        return found.value

    def close(self) -> None:
        if self._handle:
            self._calls.destroy("vkDestroyDescriptorPool", self._handle)
            self._handle = 0
