"""Memory of a Vulkan device: buffers in blocks that are allocated together.

A device allows few allocations (4,096 on many), so small buffers share blocks; large ones
have their own, which goes back as soon as they do.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any, Literal

from headrace.base.errors import error
from headrace.runtime.drivers import vulkan_api
from headrace.runtime.drivers.vulkan_instance import (
    DEVICE_LOCAL,
    HOST_CACHED,
    HOST_COHERENT,
    HOST_VISIBLE,
    PhysicalDevice,
    check,
    loader,
    made,
    pointer,
    words,
)

vk: Any = vulkan_api

Kind = Literal["device", "upload", "readback", "near"]
"""`device` memory; host memory the device reads, or writes; `near`: the device's own memory
that the host writes (`upload` where there is none)."""

_SHARED_BLOCK_BYTES = 16 << 20
_SMALL_BYTES = 2 << 20
"""Up to here buffers share blocks."""

_USAGE = 0x1 | 0x2 | 0x20 | 0x20000
"""Source and target of transfers, storage buffer, known by its address."""

_BY_ADDRESS = 0x2

_WISHES: dict[str, tuple[int, ...]] = {
    "device": (DEVICE_LOCAL, 0),
    "upload": (HOST_VISIBLE | HOST_COHERENT,),
    "readback": (HOST_VISIBLE | HOST_COHERENT | HOST_CACHED, HOST_VISIBLE | HOST_COHERENT),
    "near": (DEVICE_LOCAL | HOST_VISIBLE | HOST_COHERENT, HOST_VISIBLE | HOST_COHERENT),
}
_AVOIDED = {"upload": DEVICE_LOCAL, "readback": DEVICE_LOCAL, "device": HOST_VISIBLE, "near": 0}
"""Properties of memory that is kept for others, where there is a choice."""


@dataclass(eq=False)
class _Block:
    """One allocation of the driver; `free` holds `(offset, size)` in order."""

    memory: int
    size_bytes: int
    address: int
    free: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])


@dataclass(eq=False)
class Buffer:
    """A buffer with memory behind it.

    Attributes:
        handle: 0 for an empty one.
        size_bytes: as asked for.
        address: of the host's view; 0 where it has none.
    """

    handle: int
    size_bytes: int
    address: int
    block: _Block | None = None
    offset_bytes: int = 0
    taken_bytes: int = 0
    memory_type: int = -1


class Heap:
    """Buffers of one device.

    Attributes:
        allocations: how many the driver holds for us.
    """

    def __init__(
        self, device: int, physical: PhysicalDevice, families: tuple[int, ...]
    ) -> None:
        self._device = device
        self._physical = physical
        self._families = (ctypes.c_uint32 * len(families))(*families)
        self._shared: dict[int, list[_Block]] = {}
        self.allocations = 0

    def buffer(self, size_bytes: int, kind: Kind, purpose: str) -> Buffer:
        """A buffer; an empty one has no handle.

        Raises:
            HeadraceError HR3013: no room on the device; HR3014: none of the host's.
        """
        if not size_bytes:
            return Buffer(0, 0, 0)
        library = loader()
        wish = made(vk.VkBufferCreateInfo, size=-(-size_bytes // 4) * 4, usage=_USAGE)
        if len(self._families) > 1:
            wish.sharingMode = 1
            wish.queueFamilyIndexCount = len(self._families)
            wish.pQueueFamilyIndices = pointer(self._families)
        handle = ctypes.c_uint64()
        result = library.vkCreateBuffer(self._device, pointer(wish), None, pointer(handle))
        if result < 0:
            raise self._no_room(size_bytes, kind, purpose, result)
        needs = vk.VkMemoryRequirements()
        library.vkGetBufferMemoryRequirements(self._device, handle.value, pointer(needs))
        result = -2
        for memory_type in self._types(needs.memoryTypeBits, kind):
            block, offset, result = self._place(memory_type, needs.size, needs.alignment)
            if block is not None:
                check("vkBindBufferMemory", library.vkBindBufferMemory(
                    self._device, handle.value, block.memory, offset))  # fmt: skip
                address = block.address + offset if block.address else 0
                return Buffer(
                    handle.value, size_bytes, address, block, offset, needs.size, memory_type
                )
        library.vkDestroyBuffer(self._device, handle.value, None)
        raise self._no_room(size_bytes, kind, purpose, result)

    @property
    def has_near(self) -> bool:
        """Whether the host reaches the device's own memory."""
        wish = _WISHES["near"][0]
        return any(flags & wish == wish for flags, _ in self._physical.memory_types)

    def _types(self, bits: int, kind: Kind) -> list[int]:
        """Memory types that serve, the best first."""
        types = self._physical.memory_types
        found: list[int] = []
        for wish in _WISHES[kind]:
            fitting = [
                i
                for i, (flags, _) in enumerate(types)
                if bits >> i & 1 and flags & wish == wish
            ]
            avoided = _AVOIDED[kind]
            found += sorted(fitting, key=lambda i: bool(types[i][0] & avoided))
        return list(dict.fromkeys(found))

    def _place(
        self, memory_type: int, size: int, alignment: int
    ) -> tuple[_Block | None, int, int]:
        if size > _SMALL_BYTES:
            block, result = self._allocate(memory_type, size)
            return block, 0, result
        for block in self._shared.setdefault(memory_type, []):
            offset = _take(block, size, alignment)
            if offset is not None:
                return block, offset, 0
        block, result = self._allocate(memory_type, _SHARED_BLOCK_BYTES)
        if block is None:
            block, result = self._allocate(memory_type, size)
            return block, 0, result
        block.free.append((0, _SHARED_BLOCK_BYTES))
        self._shared[memory_type].append(block)
        return block, _take(block, size, alignment) or 0, 0

    def _allocate(self, memory_type: int, size: int) -> tuple[_Block | None, int]:
        library = loader()
        flags = made(vk.VkMemoryAllocateFlagsInfo, flags=_BY_ADDRESS)
        wish = made(
            vk.VkMemoryAllocateInfo,
            pNext=pointer(flags),
            allocationSize=size,
            memoryTypeIndex=memory_type,
        )
        memory = ctypes.c_uint64()
        result = library.vkAllocateMemory(self._device, pointer(wish), None, pointer(memory))
        if result < 0:
            return None, result
        self.allocations += 1
        address = ctypes.c_void_p()
        if self._physical.memory_types[memory_type][0] & HOST_VISIBLE:
            result = library.vkMapMemory(
                self._device, memory.value, 0, size, 0, pointer(address)
            )
            check("vkMapMemory", result)
        return _Block(memory.value, size, address.value or 0), 0

    def _no_room(self, size_bytes: int, kind: Kind, purpose: str, result: int) -> Exception:
        if kind in ("upload", "readback"):
            return error(
                "HR3014",
                f"the driver gives no {size_bytes} bytes of host memory for {purpose}",
                notes=words(result),
                helps="raise the weight budget, so that less streams",
            )
        return error(
            "HR3013",
            f"the device gives no {size_bytes} bytes for {purpose}",
            notes=(words(result), f"{self.free_bytes()} bytes are free"),
            helps="lower the weight budget, or free memory on the device",
        )

    def free(self, buffer: Buffer) -> None:
        """Gives a buffer back; nothing on the device may use it any more."""
        block, buffer.block = buffer.block, None
        if block is None:
            return
        loader().vkDestroyBuffer(self._device, buffer.handle, None)
        buffer.handle = buffer.address = buffer.size_bytes = 0
        shared = self._shared.get(buffer.memory_type, [])
        if block in shared:
            _give(block, buffer.offset_bytes, buffer.taken_bytes)
            if block.free != [(0, block.size_bytes)]:
                return
            shared.remove(block)
        loader().vkFreeMemory(self._device, block.memory, None)
        self.allocations -= 1

    def free_bytes(self) -> int:
        """What the device's own heaps have left: by the driver's account where it gives one."""
        memory, told = self._account()
        heaps = self._physical.device_heaps
        if self._physical.has_budget:
            return max((told.heapBudget[h] - told.heapUsage[h] for h in heaps), default=0)
        sizes = memory.memoryProperties.memoryHeaps
        held = sum(b.size_bytes for blocks in self._shared.values() for b in blocks)
        return max((sizes[h].size for h in heaps), default=0) - held

    def used_bytes(self) -> int:
        """What this process holds of the device's own heaps; 0 where the driver says nothing,
        and where the heaps are the host's memory."""
        physical = self._physical
        if not physical.has_budget or physical.is_unified:
            return 0
        return sum(self._account()[1].heapUsage[h] for h in physical.device_heaps)

    def _account(self) -> tuple[Any, Any]:
        told = made(vk.VkPhysicalDeviceMemoryBudgetPropertiesEXT)
        memory = made(vk.VkPhysicalDeviceMemoryProperties2)
        if self._physical.has_budget:
            memory.pNext = pointer(told)
        loader().vkGetPhysicalDeviceMemoryProperties2(self._physical.handle, pointer(memory))
        return memory, told


def _take(block: _Block, size: int, alignment: int) -> int | None:
    """The first free place of a block."""
    for number, (begin, length) in enumerate(block.free):
        offset = -(-begin // alignment) * alignment
        if offset + size > begin + length:
            continue
        rest = [(begin, offset - begin), (offset + size, begin + length - offset - size)]
        block.free[number : number + 1] = [r for r in rest if r[1]]
        return offset
    return None


def _give(block: _Block, offset: int, size: int) -> None:
    """Makes a place free again and joins it with free neighbours."""
    joined: list[tuple[int, int]] = []
    for begin, length in sorted([*block.free, (offset, size)]):
        if joined and joined[-1][0] + joined[-1][1] == begin:
            joined[-1] = (joined[-1][0], joined[-1][1] + length)
        else:
            joined.append((begin, length))
    block.free[:] = joined
