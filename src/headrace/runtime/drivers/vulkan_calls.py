"""One opened Vulkan device: queues, command buffers, semaphores, queries; calls checked."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

from headrace.runtime.drivers import vulkan_api
from headrace.runtime.drivers.vulkan_heap import Buffer, Heap
from headrace.runtime.drivers.vulkan_instance import (
    FeatureChain,
    PhysicalDevice,
    check,
    loader,
    made,
    pointer,
)

vk: Any = vulkan_api

_GRAPHICS, _COMPUTE, _TRANSFER = 1, 2, 4
_RESETTABLE, _SIMULTANEOUS = 2, 4
_WHOLE_SIZE = 0xFFFFFFFFFFFFFFFF
_ALL_STAGES = 0x10000
_COMPUTE_STAGE, _TRANSFER_STAGES, _HOST_STAGE = 0x800, 0x1000, 0x4000
_MEMORY_READ, _MEMORY_WRITE = 0x8000, 0x10000
_STORAGE_READ, _STORAGE_WRITE, _HOST_READ = 1 << 33, 1 << 34, 0x2000
_SPIN_NS = 10_000_000
"""A GPU's step is asked for so long before the thread sleeps. Waking takes 20 us, and more the longer
it slept: steps of 1 to 3 ms took 0.13 to 0.5 ms beside the device's own time (H200's host)."""

_WAIT_NS = 200_000_000
"""One sleep, so that Ctrl-C is seen."""

_WANTED_FEATURES = {
    "head": ("shaderFloat64", "shaderInt64", "shaderInt16"),
    "core11": ("storageBuffer16BitAccess",),
    "core12": ("shaderFloat16", "shaderInt8", "storageBuffer8BitAccess", "timelineSemaphore",
               "vulkanMemoryModel", "bufferDeviceAddress"),
    "core13": ("synchronization2", "maintenance4"),
}  # fmt: skip


@dataclass(eq=False)
class Timeline:
    """A timeline semaphore and the last value that was promised."""

    handle: int
    value: int = 0


class Submission:
    """One batch of a queue, its structures made once; waits and signals change each time.

    Attributes:
        info: `VkSubmitInfo2`.
        waits, signal: whose `value` is set before each submit.
    """

    def __init__(self, command: int, waits: Sequence[Timeline], signal: Timeline) -> None:
        self._command = made(vk.VkCommandBufferSubmitInfo, commandBuffer=command)
        self.waits = (vk.VkSemaphoreSubmitInfo * max(1, len(waits)))()
        for wait, timeline in zip(self.waits, waits, strict=False):
            wait.sType = vk.VkSemaphoreSubmitInfo.STYPE
            wait.semaphore, wait.stageMask = timeline.handle, _ALL_STAGES
        self.signal = made(
            vk.VkSemaphoreSubmitInfo, semaphore=signal.handle, stageMask=_ALL_STAGES
        )
        self.info = made(
            vk.VkSubmitInfo2,
            waitSemaphoreInfoCount=len(waits),
            pWaitSemaphoreInfos=pointer(self.waits),
            commandBufferInfoCount=1,
            pCommandBufferInfos=pointer(self._command),
            signalSemaphoreInfoCount=1,
            pSignalSemaphoreInfos=pointer(self.signal),
        )


class VulkanCalls:
    """A logical device with a queue of commands and one of copies.

    Attributes:
        physical: what it is.
        handle: the device's.
        heap: its memory.
        queue, copy_queue: handles; equal where the device has one queue only.
        computed, copied: timelines of the two.
        copies_by_kernels: whether kernels may run on the queue of copies, beside the other's.
    """

    def __init__(self, physical: PhysicalDevice) -> None:
        """Raises HeadraceError HR4032: the driver refuses."""
        self.physical = physical
        self._library = loader()
        self.family, self.copy_family, copy_index = _families(physical)
        flags = physical.families[self.copy_family][0]
        self.copies_by_kernels = self.copy_family != self.family and bool(flags & _COMPUTE)
        self.handle = self._create()
        self.queue = self._queue(self.family, 0)
        self.copy_queue = self._queue(self.copy_family, copy_index)
        families = tuple(sorted({self.family, self.copy_family}))
        self.heap = Heap(self.handle, physical, families)
        self._pools = {f: self._command_pool(f) for f in families}
        self.computed = self.timeline()
        self.copied = self.timeline()
        self._counter = ctypes.c_uint64()
        self._wait_semaphore = ctypes.c_uint64()
        self._wait_value = ctypes.c_uint64()
        self._wait = made(
            vk.VkSemaphoreWaitInfo,
            semaphoreCount=1,
            pSemaphores=pointer(self._wait_semaphore),
            pValues=pointer(self._wait_value),
        )
        self._barrier = made(vk.VkMemoryBarrier2)
        self._dependency = made(
            vk.VkDependencyInfo, memoryBarrierCount=1, pMemoryBarriers=pointer(self._barrier)
        )

    # -- device -----------------------------------------------------------------------

    def _create(self) -> int:
        physical = self.physical
        there, wanted = FeatureChain(), FeatureChain()
        self._library.vkGetPhysicalDeviceFeatures2(physical.handle, pointer(there.head))
        for part, names in _WANTED_FEATURES.items():
            source, target = getattr(there, part), getattr(wanted, part)
            if part == "head":
                source, target = source.features, target.features
            for name in names:
                setattr(target, name, getattr(source, name))
        extensions: list[bytes] = []
        matrices = made(vk.VkPhysicalDeviceCooperativeMatrixFeaturesKHR, cooperativeMatrix=1)
        if physical.has_matrices:
            extensions.append(b"VK_KHR_cooperative_matrix")
            wanted.core13.pNext = pointer(matrices)
        if physical.has_budget:
            extensions.append(b"VK_EXT_memory_budget")
        priorities = (ctypes.c_float * 2)(1.0, 1.0)
        counts = {self.family: 1}
        same = self.copy_family == self.family
        counts[self.copy_family] = 2 if same and physical.families[self.family][1] > 1 else 1
        queues = (vk.VkDeviceQueueCreateInfo * len(counts))()
        for queue, (family, count) in zip(queues, counts.items(), strict=True):
            queue.sType = vk.VkDeviceQueueCreateInfo.STYPE
            queue.queueFamilyIndex, queue.queueCount = family, count
            queue.pQueuePriorities = pointer(priorities)
        names = (ctypes.c_char_p * max(1, len(extensions)))(*extensions)
        wish = made(
            vk.VkDeviceCreateInfo,
            pNext=pointer(wanted.head),
            queueCreateInfoCount=len(counts),
            pQueueCreateInfos=pointer(queues),
            enabledExtensionCount=len(extensions),
            ppEnabledExtensionNames=pointer(names),
        )
        return self._handle("vkCreateDevice", physical.handle, wish, ctypes.c_void_p)

    def _handle(self, name: str, owner: int, wish: Any, kind: Any = ctypes.c_uint64) -> int:
        """What a `vkCreate...` makes."""
        found = kind()
        create = getattr(self._library, name)
        check(name, create(owner, pointer(wish), None, pointer(found)))
        return found.value

    def create(self, name: str, wish: Any) -> int:
        """An object of this device, by the name of the function that makes it."""
        return self._handle(name, self.handle, wish)

    def destroy(self, name: str, handle: int) -> None:
        """Gives an object of this device back, where the device is still there."""
        if self.handle:
            getattr(self._library, name)(self.handle, handle, None)

    def _queue(self, family: int, index: int) -> int:
        queue = ctypes.c_void_p()
        self._library.vkGetDeviceQueue(self.handle, family, index, pointer(queue))
        return queue.value or 0

    @property
    def is_open(self) -> bool:
        """Whether the device is still there."""
        return bool(self.handle)

    def close(self) -> None:
        """Gives the device back; nothing may be called after."""
        if not self.handle:
            return
        for timeline in (self.computed, self.copied):
            self.destroy("vkDestroySemaphore", timeline.handle)
        for pool in self._pools.values():
            self.destroy("vkDestroyCommandPool", pool)
        self._library.vkDestroyDevice(self.handle, None)
        self.handle = 0

    # -- timelines --------------------------------------------------------------------

    def timeline(self) -> Timeline:
        """A semaphore that counts from 0."""
        kind = made(vk.VkSemaphoreTypeCreateInfo, semaphoreType=1)
        wish = made(vk.VkSemaphoreCreateInfo, pNext=pointer(kind))
        return Timeline(self.create("vkCreateSemaphore", wish))

    def wait(self, timeline: Timeline, value: int) -> None:
        """Returns once a timeline has come to a value.

        Raises:
            HeadraceError HR4032: the device is lost.
        """
        library, counter = self._library, self._counter
        if not self.physical.is_cpu:
            place, ask, until = pointer(counter), library.vkGetSemaphoreCounterValue, 0
            while True:
                check("vkGetSemaphoreCounterValue", ask(self.handle, timeline.handle, place))
                if counter.value >= value:
                    return
                now = perf_counter_ns()
                until = until or now + _SPIN_NS
                if now > until:
                    break
        self._wait_semaphore.value, self._wait_value.value = timeline.handle, value
        while True:
            result = library.vkWaitSemaphores(self.handle, pointer(self._wait), _WAIT_NS)
            check("vkWaitSemaphores", result)
            if result == 0:
                return

    def finish(self) -> None:
        """Waits for everything on both queues."""
        check("vkDeviceWaitIdle", self._library.vkDeviceWaitIdle(self.handle))

    def submit(self, queue: int, infos: Any, count: int) -> None:
        """Puts an array of `VkSubmitInfo2` on a queue."""
        check("vkQueueSubmit2", self._library.vkQueueSubmit2(queue, count, pointer(infos), 0))

    def start(self, command: int, copies: bool = False) -> int:
        """Submits one command buffer; the value its queue's timeline then comes to."""
        timeline = self.copied if copies else self.computed
        submission = Submission(command, (), timeline)
        timeline.value += 1
        submission.signal.value = timeline.value
        self.submit(self.copy_queue if copies else self.queue, submission.info, 1)
        return timeline.value

    def run(self, command: int, copies: bool = False) -> None:
        """Submits one command buffer and waits for it."""
        value = self.start(command, copies)
        self.wait(self.copied if copies else self.computed, value)

    # -- command buffers --------------------------------------------------------------

    def _command_pool(self, family: int) -> int:
        wish = made(vk.VkCommandPoolCreateInfo, flags=_RESETTABLE, queueFamilyIndex=family)
        return self.create("vkCreateCommandPool", wish)

    def begin(self, copies: bool = False) -> int:
        """A command buffer that takes commands, for the queue of copies or of commands."""
        pool = self._pools[self.copy_family if copies else self.family]
        wish = made(vk.VkCommandBufferAllocateInfo, commandPool=pool, commandBufferCount=1)
        command = ctypes.c_void_p()
        check("vkAllocateCommandBuffers", self._library.vkAllocateCommandBuffers(
            self.handle, pointer(wish), pointer(command)))  # fmt: skip
        # A transfer at a step's end may still be under way when the next step issues it.
        start = made(vk.VkCommandBufferBeginInfo, flags=_SIMULTANEOUS if copies else 0)
        check(
            "vkBeginCommandBuffer",
            self._library.vkBeginCommandBuffer(command.value, pointer(start)),
        )
        return command.value or 0

    def end(self, command: int) -> None:
        """It may be submitted now."""
        check("vkEndCommandBuffer", self._library.vkEndCommandBuffer(command))

    def free_command(self, command: int, copies: bool = False) -> None:
        """Gives a command buffer back that has run."""
        if self.handle:
            pool = self._pools[self.copy_family if copies else self.family]
            handle = ctypes.c_void_p(command)
            self._library.vkFreeCommandBuffers(self.handle, pool, 1, pointer(handle))

    def copy(
        self, command: int, target: tuple[int, int], source: tuple[int, int], size_bytes: int
    ) -> None:
        """Records a copy between `(buffer, offset)`s."""
        region = vk.VkBufferCopy(srcOffset=source[1], dstOffset=target[1], size=size_bytes)
        self._library.vkCmdCopyBuffer(command, source[0], target[0], 1, pointer(region))

    def fill(
        self,
        command: int,
        buffer: int,
        offset_bytes: int = 0,
        size_bytes: int = _WHOLE_SIZE,
        word: int = 0,
    ) -> None:
        """Records a word into a buffer, or into whole words of it."""
        self._library.vkCmdFillBuffer(command, buffer, offset_bytes, size_bytes, word)

    def address(self, buffer: Buffer) -> int:
        """Where a buffer stands for the device's kernels."""
        wish = made(vk.VkBufferDeviceAddressInfo, buffer=buffer.handle)
        return self._library.vkGetBufferDeviceAddress(self.handle, pointer(wish))

    def barrier(self, command: int, among_kernels: bool = False) -> None:
        """Records: what came before is seen by what comes after, in kernels and copies.

        Args:
            among_kernels: nothing is copied or filled on either side.
        """
        if among_kernels:
            barrier = self._barrier
            barrier.srcStageMask = barrier.dstStageMask = _COMPUTE_STAGE
            barrier.srcAccessMask = _STORAGE_WRITE
            barrier.dstAccessMask = _STORAGE_READ | _STORAGE_WRITE
            self._library.vkCmdPipelineBarrier2(command, pointer(self._dependency))
            return
        stages = _COMPUTE_STAGE | _TRANSFER_STAGES
        self._record_barrier(command, _MEMORY_WRITE, stages, _MEMORY_READ | _MEMORY_WRITE)

    def barrier_for_host(self, command: int) -> None:
        """Records: what came before is seen by the host once it has waited."""
        self._record_barrier(command, _MEMORY_WRITE, _HOST_STAGE, _HOST_READ)

    def _record_barrier(self, command: int, before: int, stages: int, after: int) -> None:
        barrier = self._barrier
        barrier.srcStageMask = _COMPUTE_STAGE | _TRANSFER_STAGES
        barrier.srcAccessMask = before
        barrier.dstStageMask, barrier.dstAccessMask = stages, after
        self._library.vkCmdPipelineBarrier2(command, pointer(self._dependency))

    # -- timestamps -------------------------------------------------------------------

    @property
    def has_timestamps(self) -> bool:
        """Whether the queue of commands tells the time."""
        return bool(self.physical.families[self.family][2])

    def queries(self, count: int) -> int:
        """A pool of timestamps."""
        wish = made(vk.VkQueryPoolCreateInfo, queryType=2, queryCount=count)
        return self.create("vkCreateQueryPool", wish)

    def reset_queries(self, command: int, pool: int, count: int) -> None:
        """Records that all of them are unknown."""
        self._library.vkCmdResetQueryPool(command, pool, 0, count)

    def stamp(self, command: int, pool: int, number: int) -> None:
        """Records the time at which everything before is done."""
        self._library.vkCmdWriteTimestamp2(command, _ALL_STAGES, pool, number)

    def times_ns(self, pool: int, count: int) -> list[int]:
        """Timestamps of finished commands."""
        found = (ctypes.c_uint64 * count)()
        result = self._library.vkGetQueryPoolResults(
            self.handle, pool, 0, count, 8 * count, pointer(found), 8, 0x1 | 0x2
        )
        check("vkGetQueryPoolResults", result)
        period = self.physical.limits.timestampPeriod
        mask = (1 << self.physical.families[self.family][2]) - 1
        return [int((t & mask) * period) for t in found]


def _families(physical: PhysicalDevice) -> tuple[int, int, int]:
    """Family of the queue of commands, of the queue of copies, and the latter's index.

    Commands go where kernels run, if it can be beside graphics; copies to a family of
    kernels without graphics (an H200 runs kernels of two families at the same time, those
    of two queues of one family one after the other), else to one that only copies, else to a
    second queue of the first, else to the same queue.
    """
    flags = [f for f, _, _ in physical.families]
    computes = [i for i, f in enumerate(flags) if f & _COMPUTE]
    family = computes[0]
    beside = [i for i in computes[1:] if not flags[i] & _GRAPHICS]
    if beside:
        return family, beside[0], 0
    copies = [
        i for i, f in enumerate(flags) if f & _TRANSFER and not f & (_GRAPHICS | _COMPUTE)
    ]
    if copies:
        return family, copies[0], 0
    if physical.families[family][1] > 1:
        return family, family, 1
    return family, family, 0
