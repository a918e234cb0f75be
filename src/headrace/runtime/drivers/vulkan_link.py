"""SPIR-V of one program: variants by the device's features, pipelines made and cached."""

from __future__ import annotations

import ctypes
import hashlib
import os
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from headrace.artifact import schema
from headrace.base.errors import Diagnostic, HeadraceError, Problems, error
from headrace.base.symbols import ZERO
from headrace.plan.cost import Concurrency
from headrace.runtime.cache import read_cached, write_cached
from headrace.runtime.drivers import vulkan_api
from headrace.runtime.drivers.vulkan_calls import VulkanCalls
from headrace.runtime.drivers.vulkan_instance import (
    PhysicalDevice,
    check,
    loader,
    made,
    pointer,
)
from headrace.runtime.drivers.vulkan_lanes import lanes_of, workgroups_at_once

vk: Any = vulkan_api

FIRST_WORKGROUP_WORDS = 3
"""Push constants before the kernel's own: the first workgroup, x, y, z."""

_STORAGE_BUFFER, _COMPUTE_STAGE = 7, 0x20
_MOST_THREADS = 8


@dataclass(frozen=True)
class Kernel:
    """One launch's pipeline.

    Attributes:
        pipeline, layout, set_layout: handles.
        bindings: buffers of its descriptor set, scratch included.
        takes_scratch: whether scratch stands behind the operands.
        slice: binding, axis and bytes per workgroup where the launch may be cut.
    """

    pipeline: int
    layout: int
    set_layout: int
    bindings: int
    takes_scratch: bool
    slice: schema.SliceRule | None


def pick_variants(program: schema.Program, physical: PhysicalDevice) -> tuple[int, ...]:
    """For each executable the first variant whose features the device has.

    Raises:
        HeadraceError HR4002: an executable has none; says which features are missing.
    """
    here = set(physical.features)
    problems = Problems()
    chosen: list[int] = []
    for executable in program.executables:
        spirv = [(i, v) for i, v in enumerate(executable.variants) if v.format == "spirv"]
        fitting = [i for i, v in spirv if here.issuperset(v.features)]
        if fitting:
            chosen.append(fitting[0])
            continue
        lacks = [", ".join(sorted(set(v.features) - here)) for _, v in spirv]
        there = ", ".join(v.target for v in executable.variants)
        problems.add(
            Diagnostic(
                "HR4002",
                f"no compiled variant runs on this Vulkan device, {physical.name}",
                places=(f"executable '{executable.name}'",),
                notes=tuple(dict.fromkeys(f"it lacks {names}" for names in lacks))
                or (f"the module holds code for {there or 'nothing'}",),
                helps=("use another device (--device vulkan:NAME or cpu)",)
                if spirv
                else ("compile with --target vulkan",),
            )
        )
    problems.raise_if_any()
    return tuple(chosen)


class VulkanCode:
    """Executables of one program as pipelines.

    Attributes:
        program: whose they are.
        variants: the chosen variant of each executable.
        concurrency: how slices of a launch run; nothing where the device does not say how
            many multiprocessors it has.
        code_bytes: of the device, taken by making the pipelines.
    """

    def __init__(
        self, calls: VulkanCalls, program: schema.Program, read_code: Callable[[int], bytes]
    ) -> None:
        """Raises HeadraceError HR4002, HR4034 (limits), HR4032 (the driver refuses code)."""
        self.program = program
        self.variants = pick_variants(program, calls.physical)
        slots: dict[tuple[int, str], int] = {}
        self.concurrency = Concurrency(slots, branches=False)
        multiprocessors = calls.physical.multiprocessors
        lanes: dict[str, int] = {}
        self._calls = calls
        self._layouts: dict[tuple[int, int], tuple[int, int]] = {}
        self._modules: dict[int, int] = {}
        self._kernels: dict[tuple[int, str], Kernel] = {}
        # (function that destroys it, handle); also when nobody refers to the code any more.
        self._made: list[tuple[str, int]] = []
        weakref.finalize(self, _destroy, calls, self._made).atexit = False
        used = calls.heap.used_bytes()
        cache = _PipelineCache(calls)
        try:
            wishes: dict[tuple[int, str], tuple[int, schema.Launch, schema.EntryPoint]] = {}
            for number, index in enumerate(self.variants):
                executable = program.executables[number]
                variant = executable.variants[index]
                if variant.code not in self._modules:
                    code = read_code(variant.code)
                    self._modules[variant.code] = self._module(code)
                    lanes.update(lanes_of(code) if multiprocessors else {})
                for point, cases in zip(
                    executable.entry_points, variant.entry_points, strict=True
                ):
                    for launch in (x for case in cases for x in case.launches):
                        key = number, launch.symbol
                        wishes[key] = self._modules[variant.code], launch, point
                        size = lanes.get(launch.symbol, 0)
                        if size and launch.slice is not None:
                            slots[key] = workgroups_at_once(
                                multiprocessors, size, launch.shared_bytes
                            )
            self._make(wishes, cache.handle)
            cache.keep()
        finally:
            cache.close()
            for module in self._modules.values():
                calls.destroy("vkDestroyShaderModule", module)
        self.code_bytes = max(0, calls.heap.used_bytes() - used)

    def _make(self, wishes: dict[Any, Any], cache: int) -> None:
        """All pipelines, several at a time: the driver compiles them now."""
        rows = {
            key: (module, launch, *self._shape(launch, point))
            for key, (module, launch, point) in wishes.items()
        }

        def pipeline(row: tuple[Any, ...]) -> int | HeadraceError:
            module, launch, bindings, push_bytes = row
            layout, _ = self._layouts[bindings, push_bytes]
            try:
                return self._pipeline(module, launch.symbol, layout, cache)
            except HeadraceError as problem:
                return problem

        count = min(_MOST_THREADS, len(os.sched_getaffinity(0)))
        with ThreadPoolExecutor(count) as pool:
            made_ones = list(pool.map(pipeline, rows.values()))
        failure: HeadraceError | None = None
        for (key, (_, launch, bindings, push)), found in zip(
            rows.items(), made_ones, strict=True
        ):
            if isinstance(found, HeadraceError):
                failure = failure or found
                continue
            self._made.append(("vkDestroyPipeline", found))
            layout, set_layout = self._layouts[bindings, push]
            takes_scratch = launch.scratch_bytes != ZERO
            self._kernels[key] = Kernel(
                found, layout, set_layout, bindings, takes_scratch, launch.slice
            )
        if failure is not None:
            self.close()
            raise failure

    def _shape(self, launch: schema.Launch, point: schema.EntryPoint) -> tuple[int, int]:
        """Bindings and push constant bytes; their layout is made on the way."""
        bindings = len(point.bindings) + (launch.scratch_bytes != ZERO)
        push_bytes = 4 * (FIRST_WORKGROUP_WORDS + point.push_constants)
        limits = self._calls.physical.limits
        problems = Problems()
        for what, need, most in (
            ("buffers", bindings, limits.maxPerStageDescriptorStorageBuffers),
            ("bytes of push constants", push_bytes, limits.maxPushConstantsSize),
        ):
            if need > most:
                fact = f"'{launch.symbol}' needs {need} {what}, the device allows {most}"
                problems.add(Diagnostic("HR4034", fact))
        problems.raise_if_any()
        if (bindings, push_bytes) not in self._layouts:
            self._layouts[bindings, push_bytes] = self._layout(bindings, push_bytes)
        return bindings, push_bytes

    def _module(self, data: bytes) -> int:
        code = ctypes.create_string_buffer(data, len(data))
        wish = made(vk.VkShaderModuleCreateInfo, codeSize=len(data), pCode=pointer(code))
        return self._calls.create("vkCreateShaderModule", wish)

    def _layout(self, bindings: int, push_bytes: int) -> tuple[int, int]:
        rows = (vk.VkDescriptorSetLayoutBinding * max(1, bindings))()
        for number, row in enumerate(rows):
            row.binding, row.descriptorType = number, _STORAGE_BUFFER
            row.descriptorCount, row.stageFlags = 1, _COMPUTE_STAGE
        set_layout = self._calls.create(
            "vkCreateDescriptorSetLayout",
            made(
                vk.VkDescriptorSetLayoutCreateInfo,
                bindingCount=bindings,
                pBindings=pointer(rows),
            ),
        )
        sets = ctypes.c_uint64(set_layout)
        push = vk.VkPushConstantRange(stageFlags=_COMPUTE_STAGE, size=push_bytes)
        wish = made(
            vk.VkPipelineLayoutCreateInfo,
            setLayoutCount=1,
            pSetLayouts=pointer(sets),
            pushConstantRangeCount=1,
            pPushConstantRanges=pointer(push),
        )
        layout = self._calls.create("vkCreatePipelineLayout", wish)
        self._made.append(("vkDestroyPipelineLayout", layout))
        self._made.append(("vkDestroyDescriptorSetLayout", set_layout))
        return layout, set_layout

    def _pipeline(self, module: int, symbol: str, layout: int, cache: int) -> int:
        name = ctypes.create_string_buffer(symbol.encode())
        wish = made(vk.VkComputePipelineCreateInfo, layout=layout, basePipelineIndex=-1)
        stage = wish.stage
        stage.sType = vk.VkPipelineShaderStageCreateInfo.STYPE
        stage.stage, stage.module, stage.pName = _COMPUTE_STAGE, module, pointer(name)
        found = ctypes.c_uint64()
        result = loader().vkCreateComputePipelines(
            self._calls.handle, cache, 1, pointer(wish), None, pointer(found)
        )
        try:
            check("vkCreateComputePipelines", result)
        except HeadraceError as problem:
            first = problem.diagnostics[0]
            raise error(
                first.code, first.fact, notes=(f"for '{symbol}'", *first.notes)
            ) from None
        return found.value

    def kernel(self, executable: int, symbol: str) -> Kernel:
        """The pipeline of a launch."""
        return self._kernels[executable, symbol]

    def close(self) -> None:
        """Gives all pipelines back."""
        _destroy(self._calls, self._made)
        self._kernels.clear()
        self._layouts.clear()


def _destroy(calls: VulkanCalls, handles: list[tuple[str, int]]) -> None:
    for function, handle in handles:
        calls.destroy(function, handle)
    handles.clear()


class _PipelineCache:
    """What the driver compiled before, kept on disk for each device and driver."""

    def __init__(self, calls: VulkanCalls) -> None:
        self._calls = calls
        physical = calls.physical
        text = f"{physical.name}\0{physical.driver}"
        self._name = f"vulkan-pipelines-{hashlib.sha256(text.encode()).hexdigest()[:24]}"
        # A driver refuses data of another version of itself, and begins anew.
        self._before = read_cached(self._name) or b""
        data = ctypes.create_string_buffer(self._before, max(1, len(self._before)))
        wish = made(
            vk.VkPipelineCacheCreateInfo,
            initialDataSize=len(self._before),
            pInitialData=pointer(data),
        )
        self.handle = calls.create("vkCreatePipelineCache", wish)

    def keep(self) -> None:
        """Writes it where it has grown."""
        library, device = loader(), self._calls.handle
        size = ctypes.c_size_t()
        library.vkGetPipelineCacheData(device, self.handle, pointer(size), None)
        if size.value <= len(self._before):
            return
        data = ctypes.create_string_buffer(size.value)
        if (
            library.vkGetPipelineCacheData(device, self.handle, pointer(size), pointer(data))
            == 0
        ):
            write_cached(self._name, data.raw[: size.value])

    def close(self) -> None:
        self._calls.destroy("vkDestroyPipelineCache", self.handle)
