"""The CPU driver: weights in place, kernels linked from ELF objects, one machine."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import struct
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from importlib import import_module
from operator import index
from statistics import median
from threading import get_ident
from typing import Any

from headrace.artifact import schema
from headrace.base.errors import error
from headrace.plan.model import Fetch, Plan, PlannedBranch, PlannedJump
from headrace.plan.profile import Profile, two_digits
from headrace.runtime.arrays import ALIGNMENT_BYTES
from headrace.runtime.cgroups import processor_limits
from headrace.runtime.drivers import cpu_machine_layout as layout
from headrace.runtime.drivers.api import DeviceProperties, Span, StepTimes
from headrace.runtime.drivers.cpu_commands import (
    Bases,
    CommandBuilder,
    Memory,
    build_step,
)
from headrace.runtime.drivers.cpu_fetches import Fetching
from headrace.runtime.drivers.cpu_link import CpuCode, host_features, host_name
from headrace.runtime.drivers.cpu_machine import RunContext, llvm, machine
from headrace.runtime.drivers.cpu_machine_layout import Context
from headrace.runtime.drivers.cpu_trace import CpuTrace
from headrace.runtime.drivers.cpu_weights import CpuWeights
from headrace.runtime.memory import PAGE_BYTES, Slab, free_host_bytes, page_aligned
from headrace.runtime.weights.mapping import PoolMapping

MAXIMUM_THREADS = 1024
_HEAD_BYTES, _SAMPLES = 1 << 17, 8
_RATE_WITHOUT_WEIGHTS = 1e10
_LAUNCH_NS = 500
_OPERATIONS_PER_S = 2e10
"""Default rates of one thread, until a calibration measures the kernels themselves."""

_MAIN_THREAD = threading.main_thread().ident
_CATCH = int(Context.CATCH)
_FINISHED, _UNALIGNED = int(layout.STATUS_FINISHED), int(layout.STATUS_UNALIGNED)
_BRIEF_NS = 1_000_000
"""A step that is predicted shorter ends before Ctrl-C, which takes 0.8 us to provide for."""
_INTERRUPT = int(signal.SIGINT)
_copy = ctypes.memmove
_handler_of: Callable[[int], Any] = import_module("_signal").getsignal
"""`signal.getsignal` without turning handlers into enum members: 0.1 instead of 4 us."""


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


class CpuState:
    """One session's slab and variables.

    Attributes:
        generation: grows when the slab moves; steps prepared before are then stale.
        variables: address by name.
    """

    def __init__(self, variables: Mapping[str, int]) -> None:
        self.generation = 0
        self._slab = Slab(0)
        self._staging = Slab(0)
        self._variables = Slab(sum(_aligned(size) for size in variables.values()))
        self.variables: dict[str, int] = {}
        at = self._variables.address
        for name, size in variables.items():
            self.variables[name] = at
            at += _aligned(size)

    def reserve(self, plan: Plan, exact: bool = False) -> None:
        """Makes room for `plan`; with `exact`, no more than that is kept."""
        have, need = self._slab.size_bytes, page_aligned(plan.slab_bytes)
        if have == need or (have > need and not exact):
            return
        self.generation += 1
        # First out, then in: both together must not pass the limit.
        self._slab.close()
        self._staging.close()
        self._slab = Slab(need)

    def stage(self, size_bytes: int) -> int:
        """The address of a staging buffer of at least that size."""
        if self._staging.size_bytes < size_bytes:
            self._staging.close()
            self._staging = Slab(size_bytes)
        return self._staging.address

    @property
    def slab_address(self) -> int:
        return self._slab.address

    @property
    def held_bytes(self) -> int:
        """See `api.State.held_bytes`."""
        return sum(s.size_bytes for s in (self._slab, self._staging, self._variables))

    @property
    def staging_bytes(self) -> int:
        """See `api.State.staging_bytes`."""
        return self._staging.size_bytes

    def close(self) -> None:
        for slab in (self._slab, self._staging, self._variables):
            slab.close()
        self.generation += 1


class CpuStep:
    """A plan as machine commands on one session's state."""

    def __init__(
        self,
        device: CpuDevice,
        function: schema.EntryFunction,
        plan: Plan,
        code: CpuCode,
        weights: CpuWeights,
        state: CpuState,
    ) -> None:
        self._machine = device.machine
        self._plan = plan
        self._weights = weights
        self._state = state
        self._generation = state.generation
        buffers = len(function.inputs) + len(function.outputs)
        self._externals = Memory(bytes(8 * max(1, buffers)))
        self._addresses: Any = (ctypes.c_uint64 * max(1, buffers)).from_address(
            self._externals.address
        )
        self._arrays: Any = (ctypes.c_uint64 * max(1, buffers))()
        self._pack = struct.Struct(f"{buffers}Q").pack_into
        self._records: Any = (ctypes.c_uint64 * (2 * max(1, len(plan.commands))))()
        self._fetch_records: Any = (ctypes.c_uint64 * (2 * max(1, len(plan.fetches))))()
        self._steps = 0
        # Kernels ask for no more of external arrays than that elements are aligned.
        widths = (p.dtype.size_bytes for p in (*function.inputs, *function.outputs))
        self._unaligned = max(widths, default=1) - 1
        self._staged: list[tuple[int, int, int]] = []
        self._staged_bytes = 0
        self._brief = plan.prediction.step_ns < _BRIEF_NS and not any(
            isinstance(c, (PlannedBranch, PlannedJump)) for c in plan.commands
        )
        self._context = RunContext(device.threads)
        self._context_address = self._context.address
        self._words = words = self._context.words
        words[Context.EXTERNALS] = self._externals.address
        words[Context.ARRAYS] = ctypes.addressof(self._arrays)
        words[Context.ARRAY_COUNT] = buffers
        words[Context.UNALIGNED] = self._unaligned
        mapping = weights.mapping
        self._identity: Any = (ctypes.c_uint64 * 3)(*mapping.identity)
        words[Context.DESCRIPTOR] = mapping.descriptor
        words[Context.IDENTITY] = ctypes.addressof(self._identity)
        if mapping.address:
            words[Context.POOL_BEGIN] = mapping.address
            words[Context.POOL_END] = mapping.address + page_aligned(mapping.size_bytes)
        words[Context.FETCH_RECORDS] = ctypes.addressof(self._fetch_records)
        variables = tuple(
            state.variables[r.name] for r in function.resources if r.lifetime == "variable"
        )
        self._build = partial(
            build_step,
            plan,
            Bases(state.slab_address, weights.mapping.address, variables),
            device.threads,
            code.address,
            device.machine.kernels,
            self._context.address,
        )
        self._commands, self._kept = self._build()
        self._trace: CpuTrace | None = None

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """See `api.Step.run`. Arrays whose elements are aligned are used in place, others copied."""
        self._pack(self._arrays, 0, *map(id, inputs), *map(id, outputs))
        if not self._run(self._machine.call):
            self._run_staged(inputs, outputs)

    def _run_staged(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Copies what is not aligned into and out of the session's staging buffer.

        The machine has noted where the arrays stand.
        """
        # A step's arrays always have the same sizes: their places are found once.
        if not self._staged:
            self._place((*inputs, *outputs))
        addresses, given = self._addresses, len(inputs)
        base = self._state.stage(self._staged_bytes)
        back: list[tuple[int, int, int]] = []
        for number, offset, size in self._staged:
            address = addresses[number]
            if address & self._unaligned:
                addresses[number] = place = base + offset
                if number < given:
                    _copy(place, address, size)
                else:
                    back.append((address, place, size))
        self._run(self._machine.run)
        for address, at, size in back:
            _copy(address, at, size)

    def _place(self, arrays: Sequence[Any]) -> None:
        """Gives every array a place of its own in the staging buffer."""
        for number, array in enumerate(arrays):
            self._staged.append((number, self._staged_bytes, array.nbytes))
            self._staged_bytes += _aligned(array.nbytes)

    def _run(self, enter: Callable[[int, int], int]) -> bool:
        """Runs the commands; False where the arrays of a call are not aligned."""
        if self._generation != self._state.generation:
            raise error("HR9303", "a step is run on a slab that has moved")
        words, weights = self._words, self._weights
        finished = False
        with self._machine.lock:
            if not self._brief:
                # A handler of the program's own decides itself what Ctrl-C does.
                words[_CATCH] = (
                    get_ident() == _MAIN_THREAD
                    and _handler_of(_INTERRUPT) is signal.default_int_handler
                )
            weights.begin_step(self._plan)
            try:
                status = enter(self._commands, self._context_address)
                finished = status in (_FINISHED, _UNALIGNED)
            finally:
                weights.end_step(finished)
            if not finished:
                self._raise(status)
            if status == _UNALIGNED:
                return False
            self._steps += 1
        return True

    def _raise(self, status: int) -> None:
        if status == layout.STATUS_INTERRUPTED:
            raise KeyboardInterrupt
        words = self._words
        mapping = self._weights.mapping
        if status == layout.STATUS_FILE_CHANGED:
            raise mapping.read_failure(errno.ESTALE, 0)
        offset = words[Context.FAILED_ADDRESS] - mapping.address
        raise mapping.read_failure(words[Context.ERROR_NUMBER], offset)

    def record(self, on: bool) -> None:
        """See `api.Step.record`. Launches are timed alone: no weights come beside them."""
        if self._plan.fetches:
            self._commands, self._kept = self._build(beside=not on)
        self._context.words[Context.RECORDS] = ctypes.addressof(self._records) if on else 0

    def trace(self, on: bool) -> None:
        """See `api.Step.trace`."""
        self._trace = (
            CpuTrace(len(self._plan.commands), len(self._plan.fetches)) if on else None
        )
        self._words[Context.TRACE] = 0 if self._trace is None else self._trace.address

    def take_spans(self) -> tuple[Span, ...]:
        """See `api.Step.take_spans`."""
        with self._machine.lock:
            return () if self._trace is None else self._trace.take()

    def take_times(self) -> StepTimes:
        """See `api.Step.take_times`."""
        words = self._context.words
        with self._machine.lock:
            recording = words[Context.RECORDS] != 0
            fetch_ns = list(self._fetch_records)[0 : 2 * len(self._plan.fetches) : 2]
            times = StepTimes(
                self._steps,
                sum(fetch_ns),
                fetch_ns,
                _means(self._records, len(self._plan.commands)) if recording else [],
            )
            self._steps = 0
            for table in (self._records, self._fetch_records):
                ctypes.memset(table, 0, ctypes.sizeof(table))
        return times


def _means(records: Any, count: int) -> list[int]:
    pairs = list(records)[: 2 * count]
    return [ns // max(1, n) for ns, n in zip(pairs[::2], pairs[1::2], strict=True)]


class CpuDevice:
    """This host's processor.

    Attributes:
        threads: how many share a dispatch, the calling one included.
        machine: the command machine of the process.
    """

    name = "cpu"
    device_class = "cpu"
    context_bytes = 0

    def __init__(self, threads: int | None = None) -> None:
        """`threads` None means the processors this process may use (affinity, cgroups).

        Raises:
            HeadraceError HR4011: not Linux on x86-64; HR4012: no such number of threads.
        """
        if sys.platform != "linux" or platform.machine() != "x86_64":
            raise error(
                "HR4011",
                f"the cpu driver does not run on {sys.platform} {platform.machine()}",
                helps="use Linux on x86-64",
            )
        if threads is None:
            threads = min(len(os.sched_getaffinity(0)), *processor_limits(), MAXIMUM_THREADS)
        try:
            count = 0 if isinstance(threads, bool) else index(threads)
        except TypeError:
            count = 0
        if not 1 <= count <= MAXIMUM_THREADS:
            raise error(
                "HR4012", f"threads={threads!r} is no number between 1 and {MAXIMUM_THREADS}"
            )
        self.threads = count
        self.machine = machine()

    @property
    def properties(self) -> DeviceProperties:
        """See `api.DeviceProperties`."""
        version = ".".join(map(str, llvm().llvm_version_info))
        return DeviceProperties(
            host_name(), f"llvm {version}", self.threads, tuple(sorted(host_features())), True
        )

    def free_bytes(self) -> int:
        """See `api.Device.free_bytes`."""
        return free_host_bytes()

    def link(self, program: schema.Program, code: Callable[[int], bytes]) -> CpuCode:
        """See `api.Device.link`."""
        return CpuCode(program, code)

    def open_weights(self, artifact: Any) -> CpuWeights:
        """See `api.Device.open_weights`."""
        return CpuWeights(self.machine, PoolMapping(artifact), artifact.module)

    def open_state(self, variables: Mapping[str, int]) -> CpuState:
        """See `api.Device.open_state`."""
        return CpuState(variables)

    def prepare(
        self,
        function: schema.EntryFunction,
        plan: Plan,
        code: CpuCode,
        weights: CpuWeights,
        state: CpuState,
    ) -> CpuStep:
        """See `api.Device.prepare`."""
        self.machine.want_threads(self.threads)
        return CpuStep(self, function, plan, code, weights, state)

    def measure(self, artifact: Any) -> Profile:
        """See `api.Device.measure`: populates and drops parts of the pool."""
        rate, overhead = self._measure_fetches(artifact)
        properties = self.properties
        return Profile(
            device=f"{properties.name}, {properties.driver}, {self.threads} threads",
            link_bytes_per_s=two_digits(rate),
            fetch_overhead_ns=int(two_digits(overhead)),
            launch_overhead_ns=_LAUNCH_NS,
            operations_per_s=_OPERATIONS_PER_S * self.threads,
            # A thread that brings weights does not compute.
            contention=1.0 / self.threads,
        )

    def _measure_fetches(self, artifact: Any) -> tuple[float, float]:
        """Bytes per second, and nanoseconds beside, of populating and dropping.

        The samples are segments all over the pool, and their heads: how they lie on large
        pages decides the rate. The first round fills the page cache, the second counts.
        """
        segments = artifact.module.segments
        chosen = segments[:: max(1, len(segments) // _SAMPLES)][:_SAMPLES]
        heads = [min(_HEAD_BYTES, s.size_bytes // 2 // PAGE_BYTES * PAGE_BYTES) for s in chosen]
        if not any(heads):
            return _RATE_WITHOUT_WEIGHTS, 0.0
        self.machine.want_threads(self.threads)
        quick = slow = 0
        with closing(PoolMapping(artifact)) as mapping:
            mapping.cut_at(
                [p for s in chosen for p in (s.offset_bytes, s.offset_bytes + s.size_bytes)]
            )
            for _ in range(2):
                quick = slow = 0
                for segment, head in zip(chosen, heads, strict=True):
                    at, size = segment.offset_bytes, segment.size_bytes
                    quick += int(median(self._fetch_ns(mapping, at, head) for _ in range(3)))
                    slow += int(median(self._fetch_ns(mapping, at, size) for _ in range(3)))
        small, large = sum(heads), sum(s.size_bytes for s in chosen)
        rate = (large - small) * 1e9 / max(slow - quick, 1)
        return rate, max(0.0, (quick - small * 1e9 / rate) / len(chosen))

    def _fetch_ns(self, mapping: PoolMapping, offset_bytes: int, size_bytes: int) -> int:
        """Nanoseconds to populate and drop a part of the pool, as a step does it."""
        context = RunContext(self.threads)
        record = (ctypes.c_uint64 * 2)()
        context.words[Context.FETCH_RECORDS] = ctypes.addressof(record)
        builder = CommandBuilder(Bases(0, mapping.address, ()), self.threads)
        fetch = Fetch(0, offset_bytes, size_bytes, 0, 0, 0, -1)
        fetching = Fetching(
            builder, self.machine.kernels, (fetch,), (), mapping.address, context.address
        )
        fetching.need((0,))
        fetching.release((0,))
        fetching.drop_all()
        commands, kept = builder.finish()
        with self.machine.lock:
            status = self.machine.run(commands, context.address)
        del kept
        if status != layout.STATUS_FINISHED:
            raise mapping.read_failure(context.words[Context.ERROR_NUMBER], offset_bytes)
        return record[0]

    def close(self) -> None:
        """The machine belongs to the process; nothing is held for a device alone."""
