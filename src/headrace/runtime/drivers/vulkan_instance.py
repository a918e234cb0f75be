"""The Vulkan loader, its instance, and the physical devices with what they can do.

Headless: no surface and no window system is touched. Everything here is the standard
library's ctypes over `vulkan_api.py`.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any

from headrace.base.errors import HeadraceError, error
from headrace.runtime.drivers import vulkan_api

vk: Any = vulkan_api

VERSION_1_3 = (1 << 22) | (3 << 12)
DEVICE_LOCAL, HOST_VISIBLE, HOST_COHERENT, HOST_CACHED = 1, 2, 4, 8
"""Properties of memory types."""

_CPU_TYPE = 4
_TYPE_ORDER = {2: 0, 1: 1, 3: 2, 4: 3}
"""Discrete before integrated before virtual before a CPU's."""

_MEMORY_BUDGET = b"VK_EXT_memory_budget"
_MULTIPROCESSORS = b"VK_NV_shader_sm_builtins"
_COOPERATIVE_MATRIX = b"VK_KHR_cooperative_matrix"
_SUBGROUP_SCOPE = 3
_FLOAT16, _FLOAT32 = 0, 1

_INSTALL = "on Debian: apt-get install libvulkan1, and the device's driver (mesa-vulkan-drivers has a CPU's)"


def made(kind: Any, **fields: Any) -> Any:
    """A structure with its type filled in."""
    structure = kind(**fields)
    if hasattr(kind, "STYPE"):
        structure.sType = kind.STYPE
    return structure


def pointer(structure: Any) -> int:
    """The address of a structure or array; the caller keeps it alive."""
    return ctypes.addressof(structure)


def words(result: int) -> str:
    """A result as Vulkan names it."""
    return vk.RESULTS.get(result, f"VkResult {result}")


def check(name: str, result: int) -> None:
    """Raises HeadraceError HR4032 where a call failed."""
    if result < 0:
        raise error("HR4032", f"the Vulkan driver refuses {name}", notes=words(result))


@cache
def loader() -> Any:
    """The loader's library with its functions declared.

    Raises:
        HeadraceError HR4030: it is not installed.
    """
    try:
        library = ctypes.CDLL("libvulkan.so.1")
        for name, (result, parameters) in vk.FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, parameters
    except (OSError, AttributeError) as problem:
        raise error(
            "HR4030",
            "device 'vulkan' needs the Vulkan loader, version 1.3, which is not installed",
            notes=str(problem),
            helps=_INSTALL,
        ) from None
    return library


@dataclass(frozen=True)
class PhysicalDevice:
    """A device before it is opened.

    Attributes:
        handle: the instance's.
        name: as its maker calls it.
        driver: its driver and version.
        is_cpu: whether it computes on the host's processor.
        features: what variants may ask for: SPIR-V capabilities and our own names.
        lacking: of what every module needs, what it lacks.
        subgroup_lanes: lanes that run together.
        limits: `VkPhysicalDeviceLimits`.
        families: flags, queues and timestamp bits of each queue family.
        memory_types: property flags and heap of each.
        device_heaps: heaps of the device's own memory.
        multiprocessors: how many it has, where its driver says so; else 0.
        has_budget: whether the driver says what is free.
        has_matrices: whether `VK_KHR_cooperative_matrix` is there.
    """

    handle: int
    name: str
    driver: str
    is_cpu: bool
    features: tuple[str, ...]
    lacking: tuple[str, ...]
    subgroup_lanes: int
    limits: Any
    families: tuple[tuple[int, int, int], ...]
    memory_types: tuple[tuple[int, int], ...]
    device_heaps: tuple[int, ...]
    multiprocessors: int
    has_budget: bool
    has_matrices: bool

    @property
    def is_unified(self) -> bool:
        """Whether the host reaches all of the device's memory."""
        return all(
            flags & HOST_VISIBLE for flags, _ in self.memory_types if flags & DEVICE_LOCAL
        )


class Instance:
    """One instance of the loader: made once a process, since drivers start threads."""

    def __init__(self) -> None:
        library = loader()
        application = made(vk.VkApplicationInfo, apiVersion=VERSION_1_3)
        wish = made(vk.VkInstanceCreateInfo, pApplicationInfo=pointer(application))
        handle = ctypes.c_void_p()
        result = library.vkCreateInstance(pointer(wish), None, pointer(handle))
        if result < 0:
            raise _no_device(f"the loader finds no driver ({words(result)})")
        self.handle = handle.value

    def devices(self) -> list[PhysicalDevice]:
        """Every physical device, the best first: not in an order the loader may change."""
        library = loader()
        count = ctypes.c_uint32()
        check(
            "vkEnumeratePhysicalDevices",
            library.vkEnumeratePhysicalDevices(self.handle, pointer(count), None),
        )
        handles = (ctypes.c_void_p * count.value)()
        check(
            "vkEnumeratePhysicalDevices",
            library.vkEnumeratePhysicalDevices(self.handle, pointer(count), pointer(handles)),
        )
        found = [self._describe(h) for h in handles if h is not None]
        return [d for _, d in sorted(found, key=lambda pair: (pair[0], pair[1].name))]

    def _describe(self, handle: int) -> tuple[int, PhysicalDevice]:
        library = loader()
        core12 = made(vk.VkPhysicalDeviceVulkan12Properties)
        core11 = made(vk.VkPhysicalDeviceVulkan11Properties, pNext=pointer(core12))
        properties = made(vk.VkPhysicalDeviceProperties2, pNext=pointer(core11))
        library.vkGetPhysicalDeviceProperties2(handle, pointer(properties))
        plain = properties.properties
        extensions = _extensions(handle)
        features, lacking = self._features(handle, plain, core11, extensions)
        count = ctypes.c_uint32()
        library.vkGetPhysicalDeviceQueueFamilyProperties(handle, pointer(count), None)
        families = (vk.VkQueueFamilyProperties * count.value)()
        library.vkGetPhysicalDeviceQueueFamilyProperties(
            handle, pointer(count), pointer(families)
        )
        memory = made(vk.VkPhysicalDeviceMemoryProperties2)
        library.vkGetPhysicalDeviceMemoryProperties2(handle, pointer(memory))
        told = memory.memoryProperties
        types = tuple(
            (t.propertyFlags, t.heapIndex) for t in told.memoryTypes[: told.memoryTypeCount]
        )
        heaps = tuple(i for i in range(told.memoryHeapCount) if told.memoryHeaps[i].flags & 1)
        return _TYPE_ORDER.get(plain.deviceType, 4), PhysicalDevice(
            handle,
            plain.deviceName.decode("utf-8", "replace"),
            f"vulkan {_version(plain.apiVersion)}, {core12.driverName.decode()} "
            f"{core12.driverInfo.decode()}",
            plain.deviceType == _CPU_TYPE,
            features,
            lacking,
            core11.subgroupSize,
            plain.limits,
            tuple((f.queueFlags, f.queueCount, f.timestampValidBits) for f in families),
            types,
            heaps,
            _multiprocessors(handle) if _MULTIPROCESSORS in extensions else 0,
            _MEMORY_BUDGET in extensions,
            "CooperativeMatrixKHR" in features,
        )

    def _features(
        self, handle: int, plain: Any, core11: Any, extensions: set[bytes]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What variants may ask for, and what every module needs and is not there."""
        chain = FeatureChain()
        loader().vkGetPhysicalDeviceFeatures2(handle, pointer(chain.head))
        if plain.apiVersion < VERSION_1_3:
            return (), (f"Vulkan 1.3 (it has {_version(plain.apiVersion)})",)
        table = {
            "Float64": chain.head.features.shaderFloat64,
            "Int64": chain.head.features.shaderInt64,
            "Float16": chain.core12.shaderFloat16,
            "Int8": chain.core12.shaderInt8,
            "Int16": chain.head.features.shaderInt16,
            "StorageBuffer16BitAccess": chain.core11.storageBuffer16BitAccess,
            "StorageBuffer8BitAccess": chain.core12.storageBuffer8BitAccess,
            "VulkanMemoryModel": chain.core12.vulkanMemoryModel,
        }
        found = [name for name, there in table.items() if there]
        operations = core11.subgroupSupportedOperations
        if core11.subgroupSupportedStages & 0x20:
            bits = {"GroupNonUniform": 0x1, "GroupNonUniformArithmetic": 0x4}
            bits["GroupNonUniformShuffle"] = 0x10
            found += [name for name, bit in bits.items() if operations & bit]
        found.append(f"subgroup{core11.subgroupSize}")
        if plain.deviceType != _CPU_TYPE:
            found.append("gpu")
        if self._multiplies_matrices(handle, extensions):
            found.append("CooperativeMatrixKHR")
        needed = {
            "timelineSemaphore": chain.core12.timelineSemaphore,
            "synchronization2": chain.core13.synchronization2,
            "maintenance4": chain.core13.maintenance4,
        }
        return tuple(sorted(found)), tuple(name for name, there in needed.items() if not there)

    def _multiplies_matrices(self, handle: int, extensions: set[bytes]) -> bool:
        """Whether 16 x 16 x 16 products of f16 summed in f32 are there, by subgroups."""
        if _COOPERATIVE_MATRIX not in extensions:
            return False
        name = ctypes.create_string_buffer(vk.EXTENSION_FUNCTIONS[0].encode())
        address = loader().vkGetInstanceProcAddr(self.handle, pointer(name))
        if not address:
            return False
        kind = ctypes.CFUNCTYPE(
            ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
        )
        ask = kind(address)
        count = ctypes.c_uint32()
        if ask(handle, pointer(count), None) < 0:
            return False
        rows = (vk.VkCooperativeMatrixPropertiesKHR * count.value)()
        for row in rows:
            row.sType = vk.VkCooperativeMatrixPropertiesKHR.STYPE
        ask(handle, pointer(count), pointer(rows))
        wanted = (16, 16, 16, _FLOAT16, _FLOAT16, _FLOAT32, _FLOAT32, _SUBGROUP_SCOPE)
        return any(
            (r.MSize, r.NSize, r.KSize, r.AType, r.BType, r.CType, r.ResultType, r.scope)
            == wanted
            for r in rows
        )


class FeatureChain:
    """The structures of core features, linked; `head` begins the chain."""

    def __init__(self) -> None:
        self.core13 = made(vk.VkPhysicalDeviceVulkan13Features)
        self.core12 = made(vk.VkPhysicalDeviceVulkan12Features, pNext=pointer(self.core13))
        self.core11 = made(vk.VkPhysicalDeviceVulkan11Features, pNext=pointer(self.core12))
        self.head = made(vk.VkPhysicalDeviceFeatures2, pNext=pointer(self.core11))


@cache
def instance() -> Instance:
    """The process's instance.

    Raises:
        HeadraceError HR4030, HR4031: no loader, no driver.
    """
    return Instance()


def find_device(wanted: str = "") -> PhysicalDevice:
    """The best device, or the best whose name holds `wanted`, in any case.

    Raises:
        HeadraceError HR4030 (no loader), HR4031 (no device; lists those there),
            HR4033 (it lacks what every module needs).
    """
    devices = instance().devices()
    fitting = [d for d in devices if wanted.lower() in d.name.lower()]
    if not fitting:
        names = ", ".join(f"'{d.name}'" for d in devices)
        raise _no_device(
            f"none is called '{wanted}'; there are {names}" if devices else "there is none"
        )
    usable = [d for d in fitting if not d.lacking]
    if usable:
        return usable[0]
    raise error(
        "HR4033",
        f"the Vulkan device '{fitting[0].name}' lacks what headrace needs",
        notes=tuple(f"it has no {name}" for name in fitting[0].lacking),
        helps="use a newer driver, or another device: --device vulkan:NAME",
    )


def missing() -> str:
    """Why no Vulkan device can be opened here; empty where one can."""
    try:
        find_device()
    except HeadraceError as problem:
        first = problem.diagnostics[0]
        return "; ".join((first.fact, *first.notes))
    return ""


def _extensions(handle: int) -> set[bytes]:
    library = loader()
    count = ctypes.c_uint32()
    library.vkEnumerateDeviceExtensionProperties(handle, None, pointer(count), None)
    rows = (vk.VkExtensionProperties * count.value)()
    library.vkEnumerateDeviceExtensionProperties(handle, None, pointer(count), pointer(rows))
    return {row.extensionName for row in rows}


def _multiprocessors(handle: int) -> int:
    told = made(vk.VkPhysicalDeviceShaderSMBuiltinsPropertiesNV)
    properties = made(vk.VkPhysicalDeviceProperties2, pNext=pointer(told))
    loader().vkGetPhysicalDeviceProperties2(handle, pointer(properties))
    return told.shaderSMCount


def _version(number: int) -> str:
    return f"{number >> 22}.{number >> 12 & 0x3FF}.{number & 0xFFF}"


def _no_device(fact: str) -> HeadraceError:
    return error(
        "HR4031",
        "device 'vulkan' finds no Vulkan device",
        notes=fact,
        helps=(_INSTALL, "see `vulkaninfo --summary`, and VK_DRIVER_FILES"),
    )
