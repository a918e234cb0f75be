"""Writes `runtime/drivers/vulkan_api.py` from the Vulkan registry (Debian's `libvulkan-dev`).

    python tools/generate_vulkan_binding.py /usr/share/vulkan/registry/vk.xml

Only the functions listed here are kept, with the structures and constants they need. The
result is plain ctypes: the run time needs nothing but Python's standard library.
"""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import Any

FUNCTIONS = """
vkCreateInstance vkDestroyInstance vkEnumerateInstanceVersion vkEnumeratePhysicalDevices
vkGetPhysicalDeviceProperties2 vkGetPhysicalDeviceFeatures2
vkGetPhysicalDeviceQueueFamilyProperties vkGetPhysicalDeviceMemoryProperties2
vkEnumerateDeviceExtensionProperties vkGetInstanceProcAddr vkCreateDevice vkDestroyDevice
vkGetDeviceQueue vkDeviceWaitIdle vkAllocateMemory vkFreeMemory vkMapMemory vkCreateBuffer
vkDestroyBuffer vkBindBufferMemory vkGetBufferMemoryRequirements vkCreateShaderModule
vkDestroyShaderModule vkCreatePipelineCache vkDestroyPipelineCache vkGetPipelineCacheData
vkCreateComputePipelines vkDestroyPipeline vkCreatePipelineLayout vkDestroyPipelineLayout
vkCreateDescriptorSetLayout vkDestroyDescriptorSetLayout vkCreateDescriptorPool
vkDestroyDescriptorPool vkAllocateDescriptorSets vkUpdateDescriptorSets vkCreateCommandPool
vkDestroyCommandPool vkAllocateCommandBuffers vkFreeCommandBuffers vkBeginCommandBuffer
vkEndCommandBuffer vkResetCommandBuffer vkCmdBindPipeline vkCmdBindDescriptorSets
vkCmdPushConstants vkCmdDispatch vkCmdCopyBuffer vkCmdFillBuffer vkCmdPipelineBarrier2
vkCmdWriteTimestamp2 vkCmdResetQueryPool vkCreateQueryPool vkDestroyQueryPool
vkGetQueryPoolResults vkQueueSubmit2 vkCreateSemaphore vkDestroySemaphore vkWaitSemaphores
vkGetSemaphoreCounterValue vkGetBufferDeviceAddress
"""

EXTENSION_FUNCTIONS = ["vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"]
"""Found through `vkGetInstanceProcAddr`; called with pointers and numbers as they are."""

STRUCTURES = """
VkApplicationInfo VkInstanceCreateInfo VkDeviceCreateInfo VkDeviceQueueCreateInfo
VkPhysicalDeviceProperties2 VkPhysicalDeviceVulkan11Properties
VkPhysicalDeviceVulkan12Properties VkPhysicalDeviceFeatures2 VkPhysicalDeviceVulkan11Features
VkPhysicalDeviceVulkan12Features VkPhysicalDeviceVulkan13Features
VkPhysicalDeviceMemoryBudgetPropertiesEXT VkPhysicalDeviceShaderSMBuiltinsPropertiesNV
VkExtensionProperties VkMemoryAllocateInfo
VkBufferCreateInfo VkShaderModuleCreateInfo VkPipelineCacheCreateInfo
VkComputePipelineCreateInfo VkPipelineShaderStageRequiredSubgroupSizeCreateInfo
VkPipelineLayoutCreateInfo VkPushConstantRange VkDescriptorSetLayoutCreateInfo
VkDescriptorSetLayoutBinding VkDescriptorPoolCreateInfo VkDescriptorPoolSize
VkDescriptorSetAllocateInfo VkDescriptorBufferInfo VkWriteDescriptorSet
VkCommandPoolCreateInfo VkCommandBufferAllocateInfo VkCommandBufferBeginInfo VkBufferCopy
VkMemoryBarrier2 VkDependencyInfo VkQueryPoolCreateInfo VkSubmitInfo2
VkCommandBufferSubmitInfo VkSemaphoreSubmitInfo VkSemaphoreCreateInfo
VkSemaphoreTypeCreateInfo VkSemaphoreWaitInfo VkPhysicalDeviceMemoryProperties2
VkMemoryRequirements VkQueueFamilyProperties VkMemoryAllocateFlagsInfo VkBufferDeviceAddressInfo
"""

OWN_STRUCTURES = '''
# VK_KHR_cooperative_matrix came after the registry that Debian 12 ships (1.3.239).
class VkPhysicalDeviceCooperativeMatrixFeaturesKHR(Structure):
    """Which of the extension's features are there, or are wanted."""

    STYPE = 1000506000
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("cooperativeMatrix", c_uint32), ("cooperativeMatrixRobustBufferAccess", c_uint32)]


class VkCooperativeMatrixPropertiesKHR(Structure):
    """One size and type of product that the device has."""

    STYPE = 1000506001
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("MSize", c_uint32), ("NSize", c_uint32), ("KSize", c_uint32), ("AType", c_int32), ("BType", c_int32), ("CType", c_int32), ("ResultType", c_int32), ("saturatingAccumulation", c_uint32), ("scope", c_int32)]
'''

_BASE = {
    "uint32_t": "c_uint32", "int32_t": "c_int32", "uint64_t": "c_uint64",
    "int64_t": "c_int64", "uint8_t": "c_uint8", "uint16_t": "c_uint16", "int": "c_int",
    "size_t": "c_size_t", "float": "c_float", "double": "c_double", "char": "c_char",
    "VkBool32": "c_uint32", "VkFlags": "c_uint32", "VkFlags64": "c_uint64",
    "VkDeviceSize": "c_uint64", "VkDeviceAddress": "c_uint64", "VkSampleMask": "c_uint32",
}  # fmt: skip


class Registry:
    """The registry's types, commands and constants by name."""

    def __init__(self, path: Path) -> None:
        root = xml.parse(path).getroot()
        self.types: dict[str, Any] = {}
        self.aliases: dict[str, str] = {}
        for entry in root.find("types") or ():
            name = entry.get("name") or entry.findtext("name") or ""
            if entry.get("alias"):
                self.aliases[name] = entry.get("alias") or ""
            else:
                self.types[name] = entry
        self.commands = {
            c.findtext("proto/name"): c for c in root.iter("command") if c.find("proto")
        }
        self.constants: dict[str, int] = {}
        for group in root.findall("enums"):
            for entry in group.findall("enum"):
                if entry.get("value") or entry.get("bitpos"):
                    self._constant(entry, 0)
        for group in root.findall("feature") + root.findall("extensions/extension"):
            for entry in group.iter("enum"):
                if entry.get("extends"):
                    self._constant(entry, int(group.get("number") or 0)
                                   if group.tag == "extension" else 0)  # fmt: skip
        self.structures: dict[str, str] = {}

    def _constant(self, entry: Any, extension: int) -> None:
        name = entry.get("name")
        if entry.get("offset"):
            number = int(entry.get("extnumber") or extension)
            value = 1000000000 + (number - 1) * 1000 + int(entry.get("offset"))
            self.constants[name] = -value if entry.get("dir") else value
        elif entry.get("bitpos"):
            self.constants[name] = 1 << int(entry.get("bitpos"))
        elif re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)U?", entry.get("value") or ""):
            self.constants[name] = int(entry.get("value").rstrip("U"), 0)

    def ctype(self, name: str) -> str:
        """The ctypes name of a type by value; structures are collected on the way."""
        name = self.aliases.get(name, name)
        if name in _BASE:
            return _BASE[name]
        entry = self.types.get(name)
        category = entry.get("category") if entry is not None else None
        if category == "enum":
            return "c_uint64" if "FlagBits2" in name else "c_int32"
        if category == "bitmask":
            return "c_uint64" if entry.findtext("type") == "VkFlags64" else "c_uint32"
        if category == "handle":
            dispatchable = entry.findtext("type") == "VK_DEFINE_HANDLE"
            return "c_void_p" if dispatchable else "c_uint64"
        if category == "struct":
            self.structure(name)
            return name
        return "c_void_p"

    def _member(self, member: Any) -> tuple[str, str]:
        kind, name = member.find("type"), member.find("name")
        tail = (name.tail or "") + "".join(
            (e.text or "") + (e.tail or "") for e in member.findall("enum")
        )
        text = "c_void_p" if "*" in (kind.tail or "") else self.ctype(kind.text)
        for extent in re.findall(r"\[(\w+)\]", tail):
            count = int(extent) if extent.isdigit() else self.constants[extent]
            text = f"{text} * {count}"
        return name.text, text

    def structure(self, name: str) -> None:
        """Adds the text of a structure, behind those it holds."""
        if name in self.structures:
            return
        entry = self.types[name]
        members = [
            m
            for m in entry.findall("member")
            if m.get("api") in (None, "vulkan", "vulkan,vulkansc")
        ]
        fields = [self._member(m) for m in members]
        kind = next((m.get("values") for m in members if m.get("values")), None)
        lines = [f"class {name}(Structure):", f'    """`{name}` as the registry has it."""']
        if kind:
            lines.append(f"    STYPE = {self.constants[kind]}")
        lines.append("    _fields_ = [" + ", ".join(f'("{n}", {t})' for n, t in fields) + "]")
        self.structures[name] = "\n".join(lines)

    def function(self, name: str) -> str:
        """The row of a function: its result and parameters."""
        command = self.commands[name]
        result = command.findtext("proto/type")
        parameters = [
            self._member(p)[1]
            for p in command.findall("param")
            if p.get("api") in (None, "vulkan")
        ]
        text = "None" if result == "void" else self.ctype(result)
        return f'    "{name}": ({text}, ({"".join(p + ", " for p in parameters).rstrip()})),'


def generate(path: Path) -> str:
    """The module's text."""
    registry = Registry(path)
    for name in STRUCTURES.split():
        registry.structure(name)
    rows = [registry.function(name) for name in FUNCTIONS.split()]
    results = {
        value: name
        for name, value in sorted(registry.constants.items(), reverse=True)
        if name.startswith("VK_ERROR_") and not name.endswith(("_KHR", "_EXT", "_NV"))
    }
    lines = [
        '"""Vulkan structures and functions for ctypes; written by tools/generate_vulkan_binding.py."""',
        "",
        "# fmt: off",
        "# ruff: noqa: I001",
        "from __future__ import annotations",
        "",
        "from ctypes import (",
        *(
            f"    {t},"
            for t in sorted(
                (
                    "Structure",
                    *set(_BASE.values()) - {"c_int64", "c_double", "c_uint16", "c_int"},
                    "c_void_p",
                )
            )
        ),
        ")",
        "from typing import Any",
        "",
        "",
        "\n\n\n".join(registry.structures.values()),
        "",
        OWN_STRUCTURES,
        "",
        "FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {",
        *rows,
        "}",
        '"""Result and parameters of each function of the loader."""',
        "",
        f"EXTENSION_FUNCTIONS = {tuple(EXTENSION_FUNCTIONS)!r}".replace("'", '"'),
        "",
        "RESULTS: dict[int, str] = {",
        *(f'    {value}: "{name}",' for value, name in sorted(results.items(), reverse=True)),
        "}",
        '"""Names of the results that are errors."""',
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    target = Path(__file__).parent.parent / "src/headrace/runtime/drivers/vulkan_api.py"
    target.write_text(generate(Path(sys.argv[1])))
