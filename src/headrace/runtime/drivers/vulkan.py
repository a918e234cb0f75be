"""The Vulkan driver: own memory, a queue of commands, one of copies, recorded steps."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter_ns
from typing import Any

from headrace.artifact import schema
from headrace.base.knobs import GPU_SYNCHRONOUS, HIDE_DEVICE_MEMORY
from headrace.plan.budget import parse_size
from headrace.plan.model import Plan
from headrace.plan.profile import Profile, two_digits
from headrace.runtime.drivers.api import DeviceProperties
from headrace.runtime.drivers.vulkan_calls import VulkanCalls
from headrace.runtime.drivers.vulkan_heap import Buffer
from headrace.runtime.drivers.vulkan_instance import find_device
from headrace.runtime.drivers.vulkan_link import VulkanCode
from headrace.runtime.drivers.vulkan_state import VulkanState
from headrace.runtime.drivers.vulkan_step import VulkanStep
from headrace.runtime.drivers.vulkan_streamer import stream_ns, streaming_code
from headrace.runtime.drivers.vulkan_weights import VulkanWeights
from headrace.runtime.memory import free_host_bytes
from headrace.runtime.weights.mapping import PoolMapping

_LAUNCH_NS = 2_500
_OPERATIONS_PER_S, _CPU_OPERATIONS_PER_S = 1e12, 1e9
"""Default rates, until a calibration measures the kernels."""

_SMALL_BYTES, _LARGE_BYTES, _SAMPLES = 64 << 10, 64 << 20, 7
_ROW_BYTES = 2 << 20
"""Of a plan's usual transfers, whose rate is that of the link."""

_SPARE_BYTES = 256
_USUAL_LINK_BYTES_PER_S = 4.8e10
"""Taken for the transfers' rate where the profile was kept from before."""


class VulkanDevice:
    """One Vulkan device.

    Attributes:
        calls: its queues and calls.
        lock: held by every step and every change of weights: one step runs at a time.
        condition: host memory that conditions are read through.
        spare: what stands for empty operands.
        stream_code: the kernels that weights stream by, where two queues run side by side.
        stream_bytes_per_s: their rate.
        context_bytes: see `api.Device.context_bytes`.
    """

    name = "vulkan"
    device_class = "vulkan"

    def __init__(self, wanted: str = "") -> None:
        """Opens the best device, or the one whose name holds `wanted`.

        Raises:
            HeadraceError HR4030..HR4033: no loader, no device, it lacks something.
        """
        self.calls = VulkanCalls(find_device(wanted))
        self.lock = threading.RLock()
        heap = self.calls.heap
        self.condition = heap.buffer(_SPARE_BYTES, "readback", "conditions")
        self.spare = heap.buffer(_SPARE_BYTES, "device", "empty operands")
        self.stream_code = streaming_code(self.calls)
        self.stream_bytes_per_s = _USUAL_LINK_BYTES_PER_S
        self.context_bytes = heap.used_bytes()
        self._codes: weakref.WeakSet[VulkanCode] = weakref.WeakSet()

    @property
    def synchronous(self) -> bool:
        """Whether each command is waited for, so that an error is that command's."""
        return GPU_SYNCHRONOUS.enabled

    @property
    def properties(self) -> DeviceProperties:
        """See `api.DeviceProperties`; a launch has one scratch, so one worker."""
        physical = self.calls.physical
        return DeviceProperties(physical.name, physical.driver, 1, physical.features, False)

    def free_bytes(self) -> int:
        """See `api.Device.free_bytes`: by the driver's account, less what is hidden."""
        free = self.calls.heap.free_bytes()
        if self.calls.physical.is_unified:
            free = min(free, free_host_bytes())
        if HIDE_DEVICE_MEMORY.text:
            free -= parse_size(HIDE_DEVICE_MEMORY.text, of=HIDE_DEVICE_MEMORY.name)
        return max(0, free)

    def link(self, program: schema.Program, code: Callable[[int], bytes]) -> VulkanCode:
        """See `api.Device.link`."""
        linked = VulkanCode(self.calls, program, code)
        self._codes.add(linked)
        return linked

    def open_weights(self, artifact: Any) -> VulkanWeights:
        """See `api.Device.open_weights`."""
        return VulkanWeights(self, PoolMapping(artifact), artifact.module)

    def open_state(self, variables: Mapping[str, int]) -> VulkanState:
        """See `api.Device.open_state`."""
        calls = self.calls
        with self.lock:
            state = VulkanState(calls, variables)
            buffer = state.variables_buffer
            if buffer.handle:
                command = calls.begin()
                calls.fill(command, buffer.handle)
                calls.end(command)
                calls.run(command)
                calls.free_command(command)
            return state

    def prepare(
        self,
        function: schema.EntryFunction,
        plan: Plan,
        code: VulkanCode,
        weights: VulkanWeights,
        state: VulkanState,
    ) -> VulkanStep:
        """See `api.Device.prepare`."""
        with self.lock:
            return VulkanStep(self, function, plan, code, weights, state)

    def finish(self) -> None:
        """Waits for everything on both queues."""
        self.calls.finish()

    def measure(self, artifact: Any) -> Profile:
        """See `api.Device.measure`: times copies from the host's memory and on the device."""
        with self.lock:
            rate, overhead, memory = self._measure_copies()
        is_cpu = self.calls.physical.is_cpu
        return Profile(
            device=f"{self.properties.name}, {self.properties.driver}",
            link_bytes_per_s=two_digits(rate),
            fetch_overhead_ns=int(two_digits(overhead)),
            launch_overhead_ns=_LAUNCH_NS,
            operations_per_s=_CPU_OPERATIONS_PER_S if is_cpu else _OPERATIONS_PER_S,
            memory_bytes_per_s=two_digits(memory),
            contention=1.0 if is_cpu else 0.0,  # a copy engine or few workgroups move weights
        )

    def _measure_copies(self) -> tuple[float, float, float]:
        """Link bytes per second, nanoseconds beside, and bytes per second on the device."""
        heap = self.calls.heap
        source = heap.buffer(_LARGE_BYTES, "upload", "measuring")
        target = heap.buffer(2 * _LARGE_BYTES, "device", "measuring")
        try:
            ctypes.memset(source.address, 1, _LARGE_BYTES)
            if self.stream_code is not None:
                rate, overhead = self._measure_streams(source, target)
                self.stream_bytes_per_s = two_digits(rate)
            else:
                small = self._copy_ns((target.handle, 0), (source.handle, 0), _SMALL_BYTES)
                large = self._copy_ns((target.handle, 0), (source.handle, 0), _LARGE_BYTES)
                rate = (_LARGE_BYTES - _SMALL_BYTES) * 1e9 / max(1, large - small)
                overhead = max(0.0, small - _SMALL_BYTES * 1e9 / rate)
            second = target.handle, _LARGE_BYTES
            inside = self._copy_ns(second, (target.handle, 0), _LARGE_BYTES, copies=False)
            beside = self._copy_ns(second, (target.handle, 0), _SMALL_BYTES, copies=False)
        finally:
            heap.free(source)
            heap.free(target)
        moved = 2 * (_LARGE_BYTES - _SMALL_BYTES)
        return rate, overhead, moved * 1e9 / max(1, inside - beside)

    def _measure_streams(self, source: Buffer, target: Buffer) -> tuple[float, float]:
        """Bytes per second by the kernel, and nanoseconds of a transfer beside its bytes."""
        assert self.stream_code is not None
        addresses = self.calls.address(source), self.calls.address(target)
        code, count = self.stream_code, _LARGE_BYTES // _ROW_BYTES
        few = stream_ns(self.calls, code, addresses, 1, _SMALL_BYTES, _SAMPLES)
        many = stream_ns(self.calls, code, addresses, count, _SMALL_BYTES, _SAMPLES)
        large = stream_ns(self.calls, code, addresses, count, _ROW_BYTES, _SAMPLES)
        rate = count * (_ROW_BYTES - _SMALL_BYTES) * 1e9 / max(1, large - many)
        return rate, max(0.0, (many - few) / (count - 1) - _SMALL_BYTES * 1e9 / rate)

    def _copy_ns(
        self,
        target: tuple[int, int],
        source: tuple[int, int],
        size_bytes: int,
        copies: bool = True,
    ) -> int:
        calls = self.calls
        command = calls.begin(copies)
        calls.copy(command, target, source, size_bytes)
        calls.end(command)
        found: list[int] = []
        for _ in range(_SAMPLES):
            start = perf_counter_ns()
            calls.run(command, copies)
            found.append(perf_counter_ns() - start)
        calls.free_command(command, copies)
        return int(median(found))

    def close(self) -> None:
        """Gives everything back."""
        if not self.calls.is_open:
            return
        with self.lock:
            self.finish()
            for code in tuple(self._codes):
                code.close()
            self._codes.clear()
            if self.stream_code is not None:
                self.stream_code.close()
            self.calls.heap.free(self.condition)
            self.calls.heap.free(self.spare)
            self.calls.close()
