"""The few calls of the CUDA driver that the run time makes, each checked.

Everything here is a thin layer over `cuda.bindings.driver`, loaded on first use: the rest
of the driver sees addresses, handles and nanoseconds only, so that tests can put host
memory and a recorded order in its place.
"""

from __future__ import annotations

import importlib
import itertools
from functools import cached_property
from time import sleep
from typing import Any

from headrace.base.errors import HeadraceError, error
from headrace.runtime.drivers.cuda_account import Account
from headrace.runtime.memory import PAGE_BYTES

_POLL_S = 20e-6

EXTRA = "pip install headrace[cuda]"


def load_bindings() -> Any:
    """The module `cuda.bindings.driver`.

    Raises:
        HeadraceError HR4020: it is not installed.
    """
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ImportError as problem:
        raise error(
            "HR4020",
            "device 'cuda' needs the CUDA bindings for Python, which are not installed",
            notes=str(problem),
            helps=EXTRA,
        ) from None


class CudaCalls:
    """One GPU's driver, its primary context retained.

    Attributes:
        name: of the GPU.
        capability: `(major, minor)`.
        multiprocessors: how many.
        context_bytes: of the device, taken by the context.
        version: of the driver, as in `13.0`.
    """

    def __init__(self, ordinal: int = 0) -> None:
        """Raises HeadraceError HR4020 (no bindings), HR4021 (no such GPU)."""
        self._api = api = load_bindings()
        self._open = False
        self._spare_events: tuple[list[Any], list[Any]] = ([], [])  # plain ones, timed ones
        # A machine without NVIDIA's driver has no library to load.
        try:
            status = api.cuInit(0)[0]
        except Exception as problem:
            raise _no_gpu(str(problem).splitlines()[0]) from None
        if status != api.CUresult.CUDA_SUCCESS:
            raise _no_gpu(self._words(status))
        count = self._call("cuDeviceGetCount")
        if not 0 <= ordinal < count:
            raise _no_gpu(f"there are {count} and number {ordinal} was asked for")
        self._device = self._call("cuDeviceGet", ordinal)
        self.name = self._call("cuDeviceGetName", 128, self._device).split(b"\0")[0].decode()
        version = self._call("cuDriverGetVersion")
        self.version = f"{version // 1000}.{version % 1000 // 10}"
        kind = api.CUdevice_attribute
        self.capability = (
            self._attribute(kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            self._attribute(kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        )
        self.multiprocessors = self._attribute(kind.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
        account = Account(self._call("cuDeviceGetPCIBusId", 32, self._device))
        self._context = self._call("cuDevicePrimaryCtxRetain", self._device)
        self._open = True
        self.enter()
        self.context_bytes = account.taken_bytes()

    def _attribute(self, attribute: Any) -> int:
        return self._call("cuDeviceGetAttribute", attribute, self._device)

    def _words(self, status: Any) -> str:
        text = self._api.cuGetErrorString(status)[1]
        words = text.decode() if isinstance(text, bytes) else str(text)
        return f"{getattr(status, 'name', status)}: {words}"

    def _call(self, name: str, *arguments: Any) -> Any:
        """Calls the driver and returns its one result, or None.

        Raises:
            HeadraceError HR4022: it refuses, in its own words.
        """
        status, *results = getattr(self._api, name)(*arguments)
        if status != self._api.CUresult.CUDA_SUCCESS:
            raise error("HR4022", f"the CUDA driver refuses {name}", notes=self._words(status))
        return results[0] if results else None

    # -- context ----------------------------------------------------------------------

    def enter(self) -> None:
        """Makes the context the calling thread's; every way in begins with it."""
        self._call("cuCtxSetCurrent", self._context)

    def close(self) -> None:
        """Lets the context go; nothing may be called after."""
        if self._open:
            for event in itertools.chain(*self._spare_events):
                self._call("cuEventDestroy", event)
            self._open = False
            self._call("cuDevicePrimaryCtxRelease", self._device)

    @property
    def is_open(self) -> bool:
        """Whether the context is still held."""
        return self._open

    # -- memory -----------------------------------------------------------------------

    def memory(self) -> tuple[int, int]:
        """Bytes free and bytes in all, by the driver's own account."""
        status, free, total = self._api.cuMemGetInfo()
        if status != self._api.CUresult.CUDA_SUCCESS:
            raise error(
                "HR4022", "the CUDA driver refuses cuMemGetInfo", notes=self._words(status)
            )
        return int(free), int(total)

    def allocate(self, size_bytes: int, purpose: str) -> int:
        """The address of device memory; 0 for none.

        Raises:
            HeadraceError HR3013: the device has no room.
        """
        if not size_bytes:
            return 0
        try:
            return int(self._call("cuMemAlloc", size_bytes))
        except HeadraceError as problem:
            raise self._no_room(size_bytes, purpose, problem) from None

    def _no_room(self, size_bytes: int, purpose: str, problem: HeadraceError) -> HeadraceError:
        return error(
            "HR3013",
            f"the device gives no {size_bytes} bytes for {purpose}",
            notes=(*problem.diagnostics[0].notes, f"{self.memory()[0]} bytes are free"),
            helps="lower the weight budget, or free memory on the device",
        )

    def free(self, address: int) -> None:
        """Gives device memory back."""
        if address and self._open:
            self._call("cuMemFree", address)

    @cached_property
    def _placed(self) -> tuple[Any, Any]:
        """What mapped memory is, and that kernels read and write it."""
        api = self._api
        kind, access = api.CUmemAllocationProp(), api.CUmemAccessDesc()
        kind.type = api.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        for place in (kind.location, access.location):
            place.type = api.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
            place.id = int(self._device)
        access.flags = api.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        return kind, access

    @cached_property
    def granule_bytes(self) -> int:
        """What memory behind reserved addresses comes in multiples of."""
        least = self._api.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        return int(self._call("cuMemGetAllocationGranularity", self._placed[0], least))

    def reserve(self, size_bytes: int) -> int:
        """Addresses of the device with no memory behind them."""
        return int(self._call("cuMemAddressReserve", size_bytes, 0, 0, 0))

    def unreserve(self, address: int, size_bytes: int) -> None:
        """Gives reserved addresses back."""
        self._call("cuMemAddressFree", address, size_bytes)

    def back(self, address: int, size_bytes: int, purpose: str) -> None:
        """Puts memory behind reserved addresses, whole granules; kernels wait for `open_to_kernels`.

        Raises:
            HeadraceError HR3013: the device has no room.
        """
        try:
            memory = self._call("cuMemCreate", size_bytes, self._placed[0], 0)
        except HeadraceError as problem:
            raise self._no_room(size_bytes, purpose, problem) from None
        try:
            self._call("cuMemMap", address, size_bytes, 0, memory, 0)
        finally:
            # It lasts as long as it is mapped.
            self._call("cuMemRelease", memory)

    def open_to_kernels(self, address: int, size_bytes: int) -> None:
        """Lets kernels and copies use what neighbouring `back`s have put there."""
        self._call("cuMemSetAccess", address, size_bytes, [self._placed[1]], 1)

    def unback(self, address: int, size_bytes: int) -> None:
        """Takes the memory away that one `back` has put there."""
        if self._open:
            self._call("cuMemUnmap", address, size_bytes)

    def pins_files(self, address: int) -> bool:
        """Whether pages of a file that is mapped here can be pinned: one is, for a moment."""
        try:
            self.pin(address, PAGE_BYTES, only_read=True)
        except HeadraceError:
            return False
        self.unpin(address)
        return True

    def pin(self, address: int, size_bytes: int, only_read: bool = False) -> None:
        """Locks host pages so that the device copies from and reads them.

        Args:
            only_read: the device never writes there; a file's pages take nothing else.

        Raises:
            HeadraceError HR3014: the system does not allow it.
        """
        api = self._api
        flags = api.CU_MEMHOSTREGISTER_PORTABLE | api.CU_MEMHOSTREGISTER_DEVICEMAP
        if only_read:
            flags |= api.CU_MEMHOSTREGISTER_READ_ONLY
        try:
            self._call("cuMemHostRegister", address, size_bytes, flags)
        except HeadraceError as problem:
            raise error(
                "HR3014",
                f"the system lets {size_bytes} bytes of host memory not be pinned",
                notes=problem.diagnostics[0].notes,
                helps=(
                    "raise the weight budget, so that less streams",
                    "or the limit (ulimit -l), or pin less: --host-limit reads the rest from disk",
                ),
            ) from None

    def unpin(self, address: int) -> None:
        """Undoes `pin`."""
        if self._open:
            self._call("cuMemHostUnregister", address)

    # -- code -------------------------------------------------------------------------

    def load(self, cubin: bytes) -> Any:
        """A module of the driver."""
        return self._call("cuModuleLoadData", cubin)

    def unload(self, module: Any) -> None:
        """Gives the code's memory back."""
        if self._open:
            self._call("cuModuleUnload", module)

    def function(self, module: Any, symbol: str) -> Any:
        """A kernel of a module, or None."""
        try:
            function = self._call("cuModuleGetFunction", module, symbol.encode())
        except HeadraceError:
            return None
        # Now: the driver would take memory for it at the first launch.
        self._call("cuFuncLoad", function)
        return function

    def most_threads(self, function: Any) -> int:
        """How many threads a block may have."""
        kind = self._api.CUfunction_attribute
        return self._call(
            "cuFuncGetAttribute", kind.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function
        )

    def blocks_at_once(self, function: Any, threads: int, shared_bytes: int) -> int:
        """How many blocks of a kernel the whole device runs at the same time."""
        name = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
        return self.multiprocessors * self._call(name, function, threads, shared_bytes)

    def allow_shared(self, function: Any, size_bytes: int) -> None:
        """Lets launches of a kernel ask for so much dynamic shared memory."""
        kind = self._api.CUfunction_attribute
        which = kind.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self._call("cuFuncSetAttribute", function, which, size_bytes)

    # -- streams and events -----------------------------------------------------------

    def stream(self) -> Any:
        """A stream that no default stream waits for."""
        return self._call(
            "cuStreamCreate", int(self._api.CUstream_flags.CU_STREAM_NON_BLOCKING)
        )

    def destroy_stream(self, stream: Any) -> None:
        if self._open:
            self._call("cuStreamDestroy", stream)

    def event(self, timed: bool = False) -> Any:
        """An event; only a timed one may be asked for its time, once it has been recorded."""
        spare = self._spare_events[timed]
        if spare:
            return spare.pop()
        kind = self._api.CUevent_flags
        flag = kind.CU_EVENT_DEFAULT if timed else kind.CU_EVENT_DISABLE_TIMING
        return self._call("cuEventCreate", int(flag))

    def release_event(self, event: Any, timed: bool = False) -> None:
        """Gives an event back: it is the next one that is asked for."""
        self._spare_events[timed].append(event)

    def record(self, event: Any, stream: Any) -> None:
        """What has been put on the stream so far; under capture an edge of the graph."""
        self._call("cuEventRecord", event, stream)

    def record_outside(self, event: Any, stream: Any) -> None:
        """Under capture: a node that records the event for the world outside the graph."""
        flag = self._api.CUevent_record_flags.CU_EVENT_RECORD_EXTERNAL
        self._call("cuEventRecordWithFlags", event, stream, int(flag))

    def wait(self, stream: Any, event: Any) -> None:
        """What comes on the stream waits for the event."""
        self._call("cuStreamWaitEvent", stream, event, 0)

    def finish_event(self, event: Any) -> None:
        """Waits on the host."""
        self._call("cuEventSynchronize", event)

    def finish(self, stream: Any) -> None:
        """Waits on the host for all that is on the stream."""
        self._call("cuStreamSynchronize", stream)

    def wait_value(self, stream: Any, address: int, value: int) -> None:
        """What comes on the stream waits until a word of pinned memory is at least `value`."""
        kind = self._api.CUstreamWaitValue_flags
        flag = int(kind.CU_STREAM_WAIT_VALUE_GEQ)
        self._call("cuStreamWaitValue32", stream, address, value, flag)

    def write_value(self, stream: Any, address: int, value: int) -> None:
        """Writes a word of pinned memory after all that is on the stream."""
        kind = self._api.CUstreamWriteValue_flags
        flag = int(kind.CU_STREAM_WRITE_VALUE_DEFAULT)
        self._call("cuStreamWriteValue32", stream, address, value, flag)

    def poll_event(self, event: Any) -> None:
        """Waits on the host, letting threads of ours run meanwhile."""
        self._poll("cuEventQuery", event)

    def poll(self, stream: Any) -> None:
        """Waits for all that is on the stream, letting threads of ours run meanwhile."""
        self._poll("cuStreamQuery", stream)

    def _poll(self, name: str, handle: Any) -> None:
        success, busy = self._api.CUresult.CUDA_SUCCESS, self._api.CUresult.CUDA_ERROR_NOT_READY
        while (status := getattr(self._api, name)(handle)[0]) != success:
            if status != busy:
                raise error(
                    "HR4022", f"the CUDA driver refuses {name}", notes=self._words(status)
                )
            sleep(_POLL_S)

    def elapsed_ns(self, begin: Any, end: Any) -> int:
        """Time between two timed events that have passed; the clock ticks 0.5 us."""
        return int(self._call("cuEventElapsedTime", begin, end) * 1e6)

    # -- work -------------------------------------------------------------------------

    def copy(self, target: int, source: int, size_bytes: int, stream: Any) -> None:
        """Copies between any two places, host or device."""
        self._call("cuMemcpyAsync", target, source, size_bytes, stream)

    def fill(
        self, target: int, size_bytes: int, pattern: int, pattern_bytes: int, stream: Any
    ) -> None:
        """Repeats a little-endian pattern of 1, 2, 4 or 8 bytes."""
        count = size_bytes // pattern_bytes
        value = pattern & ((1 << 8 * pattern_bytes) - 1)
        if pattern_bytes == 8:
            # Two interleaved columns of 4 bytes.
            for half in range(2):
                word = value >> 32 * half & 0xFFFFFFFF
                place = target + 4 * half
                self._call("cuMemsetD2D32Async", place, 8, word, 1, count, stream)
            return
        name = {1: "cuMemsetD8Async", 2: "cuMemsetD16Async", 4: "cuMemsetD32Async"}
        self._call(name[pattern_bytes], target, value, count, stream)

    def launch(
        self,
        function: Any,
        grid: tuple[int, int, int],
        threads: int,
        shared_bytes: int,
        stream: Any,
        parameters: int,
        overlaps: bool = False,
        cluster: int = 1,
    ) -> None:
        """Starts a kernel.

        Args:
            parameters: the address of an array of pointers to values.
            overlaps: it begins while the kernel before it on the stream ends, for which it
                waits by itself ("programmatic dependent launch").
            cluster: so many blocks along z run at once and wait for each other.
        """
        config = self._api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
        config.sharedMemBytes, config.hStream = shared_bytes, stream
        attributes = [self._overlapping] if overlaps else []
        if cluster > 1:
            attributes.append(self._cluster(cluster))
        config.attrs, config.numAttrs = attributes, len(attributes)
        self._call("cuLaunchKernelEx", config, function, parameters, 0)

    @cached_property
    def _overlapping(self) -> Any:
        attribute = self._api.CUlaunchAttribute()
        kinds = self._api.CUlaunchAttributeID
        attribute.id = kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attribute.value.programmaticStreamSerializationAllowed = 1
        return attribute

    def _cluster(self, size: int) -> Any:
        attribute = self._api.CUlaunchAttribute()
        attribute.id = self._api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        dimensions = attribute.value.clusterDim
        dimensions.x, dimensions.y, dimensions.z = 1, 1, size
        return attribute

    # -- graphs -----------------------------------------------------------------------

    def begin_capture(self, stream: Any) -> None:
        """From here on the stream collects what it is given.

        Relaxed: a kernel's code may be loaded at its first launch.
        """
        mode = self._api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self._call("cuStreamBeginCapture", stream, mode)

    def end_capture(self, stream: Any) -> Any:
        """The executable graph of what was collected."""
        graph = self._call("cuStreamEndCapture", stream)
        try:
            return self._call("cuGraphInstantiate", graph, 0)
        finally:
            self._call("cuGraphDestroy", graph)

    def abandon_capture(self, stream: Any) -> None:
        """Ends a capture that failed."""
        status, graph = self._api.cuStreamEndCapture(stream)
        if status == self._api.CUresult.CUDA_SUCCESS and int(graph):
            self._call("cuGraphDestroy", graph)

    def upload_graph(self, graph: Any, stream: Any) -> None:
        """What the first launch of a graph would have to bring to the device."""
        self._call("cuGraphUpload", graph, stream)

    def launch_graph(self, graph: Any, stream: Any) -> None:
        self._call("cuGraphLaunch", graph, stream)

    def destroy_graph(self, graph: Any) -> None:
        if self._open:
            self._call("cuGraphExecDestroy", graph)


def _no_gpu(evidence: str) -> HeadraceError:
    return error(
        "HR4021",
        "there is no NVIDIA GPU for device 'cuda'",
        notes=evidence,
        helps="run on a machine with an NVIDIA GPU and its driver, or with --device cpu",
    )
