"""The CUDA driver: own memory, one stream of commands, one of copies, graphs per plan."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from headrace.artifact import schema
from headrace.base.knobs import GPU_SYNCHRONOUS, HIDE_DEVICE_MEMORY
from headrace.plan.budget import parse_size
from headrace.plan.model import Plan
from headrace.plan.profile import Profile, two_digits
from headrace.runtime.drivers.api import DeviceProperties
from headrace.runtime.drivers.cuda_calls import CudaCalls
from headrace.runtime.drivers.cuda_link import CudaCode
from headrace.runtime.drivers.cuda_memory import CudaState, PinnedBuffer
from headrace.runtime.drivers.cuda_step import CudaStep
from headrace.runtime.drivers.cuda_weights import CudaWeights
from headrace.runtime.memory import PAGE_BYTES
from headrace.runtime.weights.mapping import PoolMapping

_LAUNCH_NS = 2_000
_OPERATIONS_PER_S = 1e12
"""Default rates of a GPU's naive kernels, until a calibration measures them."""

_SIDES = 4
_SMALL_BYTES, _LARGE_BYTES, _PARTS, _SAMPLES = 64 << 10, 32 << 20, 16, 5


class CudaDevice:
    """One NVIDIA GPU.

    Attributes:
        calls: its driver.
        lock: held by every step and every change of weights: one step runs at a time.
        stream, copy_stream: commands, and transfers of weights.
        side_streams: for slices that run beside the first of their launch.
        host_limit_bytes: of pinned memory for weights; None for no limit.
        condition: address of a byte of pinned memory that conditions are read through.
        context_bytes: see `api.Device.context_bytes`: context and streams.
    """

    name = "cuda"
    device_class = "cuda"

    def __init__(
        self, ordinal: int = 0, calls: Any = None, host_limit: int | str | None = None
    ) -> None:
        """Opens GPU number `ordinal`; `calls` stands in for the driver in tests.

        Args:
            host_limit: bytes or a size: the most host memory that weights of a module are
                pinned in; what streams beyond it is read from the disk at each step.

        Raises:
            HeadraceError HR3201: the limit is no size.
            HeadraceError HR4020, HR4021: no bindings, no GPU.
        """
        # First: an error must leave no context behind.
        self.host_limit_bytes = (
            None if host_limit is None else parse_size(host_limit, of="host limit")
        )
        self.calls: CudaCalls = calls if calls is not None else CudaCalls(ordinal)
        self.lock = threading.RLock()
        free = self.calls.memory()[0]
        self.stream: Any = self.calls.stream()
        self.copy_stream: Any = self.calls.stream()
        self.side_streams: tuple[Any, ...] = tuple(self.calls.stream() for _ in range(_SIDES))
        taken = max(0, free - self.calls.memory()[0])
        self.context_bytes = self.calls.context_bytes + taken
        self._byte = PinnedBuffer(self.calls, PAGE_BYTES)
        self.condition = self._byte.address
        self._codes: list[CudaCode] = []

    @property
    def synchronous(self) -> bool:
        """Whether each command is waited for, so that an error is that command's."""
        return GPU_SYNCHRONOUS.enabled

    @property
    def properties(self) -> DeviceProperties:
        """See `api.DeviceProperties`; a launch has one scratch, so one worker."""
        major, minor = self.calls.capability
        return DeviceProperties(
            self.calls.name, f"cuda {self.calls.version}", 1, (f"sm_{major}{minor}",), False
        )

    def free_bytes(self) -> int:
        """See `api.Device.free_bytes`: by the driver's account, less what is hidden."""
        self.calls.enter()
        free = self.calls.memory()[0]
        if HIDE_DEVICE_MEMORY.text:
            free -= parse_size(HIDE_DEVICE_MEMORY.text, of=HIDE_DEVICE_MEMORY.name)
        return max(0, free)

    def link(self, program: schema.Program, code: Callable[[int], bytes]) -> CudaCode:
        """See `api.Device.link`."""
        self.calls.enter()
        linked = CudaCode(self.calls, program, code)
        self._codes.append(linked)
        return linked

    def unlink(self, code: CudaCode) -> None:
        """Unloads the code of a module that is closed; nothing of it may still run."""
        with self.lock:
            if self.calls.is_open:
                self.calls.enter()
                self.finish()
                code.close()
            self._codes.remove(code)

    def open_weights(self, artifact: Any) -> CudaWeights:
        """See `api.Device.open_weights`."""
        self.calls.enter()
        return CudaWeights(self, PoolMapping(artifact), artifact.module)

    def open_state(self, variables: Mapping[str, int]) -> CudaState:
        """See `api.Device.open_state`."""
        self.calls.enter()
        state = CudaState(self.calls, variables)
        state.clear_variables(self.stream)
        return state

    def prepare(
        self,
        function: schema.EntryFunction,
        plan: Plan,
        code: CudaCode,
        weights: CudaWeights,
        state: CudaState,
    ) -> CudaStep:
        """See `api.Device.prepare`."""
        with self.lock:
            self.calls.enter()
            return CudaStep(self, function, plan, code, weights, state)

    def finish(self) -> None:
        """Waits for everything on both streams."""
        self.calls.finish(self.stream)
        self.calls.finish(self.copy_stream)

    def measure(self, artifact: Any) -> Profile:
        """See `api.Device.measure`: times copies from pinned memory and on the device."""
        with self.lock:
            self.calls.enter()
            rate, overhead, memory = self._measure_copies()
        return Profile(
            device=f"{self.properties.name}, {self.properties.driver}",
            link_bytes_per_s=two_digits(rate),
            fetch_overhead_ns=int(two_digits(overhead)),
            launch_overhead_ns=_LAUNCH_NS,
            operations_per_s=_OPERATIONS_PER_S,
            memory_bytes_per_s=two_digits(memory),
            contention=0.0,  # a copy engine moves weights
        )

    def _measure_copies(self) -> tuple[float, float, float]:
        """Link bytes per second, nanoseconds beside, and bytes per second on the device."""
        calls = self.calls
        buffer = PinnedBuffer(calls, _LARGE_BYTES)
        target = 0
        try:
            ctypes.memset(buffer.address, 1, _LARGE_BYTES)
            target = calls.allocate(2 * _LARGE_BYTES, "measuring")
            small = self._copy_ns(target, buffer.address, _SMALL_BYTES)
            large = self._copy_ns(target, buffer.address, _LARGE_BYTES)
            parts = self._copy_ns(target, buffer.address, _LARGE_BYTES, _PARTS)
            inside = self._copy_ns(target + _LARGE_BYTES, target, _LARGE_BYTES)
        finally:
            calls.free(target)
            buffer.close()
        rate = (_LARGE_BYTES - _SMALL_BYTES) * 1e9 / max(1, large - small)
        # One copy alone starts slowly; in a step they stand in a row.
        overhead = max(0, parts - large) / (_PARTS - 1)
        return rate, overhead, 2 * _LARGE_BYTES * 1e9 / max(1, inside)

    def _copy_ns(self, target: int, source: int, size_bytes: int, parts: int = 1) -> int:
        """Median time of bringing so many bytes, in parts one after another."""
        calls, stream = self.calls, self.copy_stream
        part = size_bytes // parts
        before, after = calls.event(True), calls.event(True)
        found: list[int] = []
        for _ in range(_SAMPLES):
            calls.record(before, stream)
            for begin in range(0, size_bytes, part):
                calls.copy(target + begin, source + begin, part, stream)
            calls.record(after, stream)
            calls.finish(stream)
            found.append(calls.elapsed_ns(before, after))
        calls.release_event(before, timed=True)
        calls.release_event(after, timed=True)
        return int(median(found))

    def close(self) -> None:
        """Gives streams, code and context back."""
        if not self.calls.is_open:
            return
        with self.lock:
            self.calls.enter()
            self.finish()
            for code in self._codes:
                code.close()
            self._codes.clear()
            self._byte.close()
            self.calls.destroy_stream(self.stream)
            for stream in (self.copy_stream, *self.side_streams):
                self.calls.destroy_stream(stream)
            self.calls.close()
