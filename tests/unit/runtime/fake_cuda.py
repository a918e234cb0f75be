"""A CUDA driver in host memory: kernels are the CPU's, work runs in a chosen order.

Work is played when the host waits for it, a graph's like what stands on streams: what each
piece waits for is known, and nothing else. Transfers come either as early or as late as that
allows: a missing edge changes the results.
"""

from __future__ import annotations

import ctypes
import itertools
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.artifact import schema
from headrace.base.errors import error
from headrace.base.symbols import ZERO
from headrace.runtime.drivers.cpu_machine import load_objects
from headrace.runtime.drivers.cuda import CudaDevice
from headrace.runtime.drivers.cuda_link import CudaCode
from headrace.runtime.memory import Slab

CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


@dataclass
class Node:
    """Work: what it waits for by index, and an event that it records for the host."""

    work: Callable[[], None]
    stream: int
    after: set[int]
    is_launch: bool = False
    event: int = 0
    spans: tuple[tuple[int, int], ...] = ()


@dataclass
class Graph:
    nodes: list[Node] = field(default_factory=list)
    # Per stream of the capture: what the next node waits for.
    ends: dict[int, set[int]] = field(default_factory=dict)
    marks: dict[int, set[int]] = field(default_factory=dict)


@dataclass
class Function:
    call: Any
    bindings: int
    constants: int
    takes_scratch: bool


class FakeCalls:
    """Keeps `CudaCalls`' interface.

    Attributes:
        copies_first: how graphs are played.
        total_bytes: of the device.
        held: size by address of device memory; closed: of these, what nothing may use yet.
        pinned: size by address of pinned host memory.
        launches: symbols of kernels put on a stream or into a graph.
        overlapping: how many of them may begin while the one before ends.
        refuse: a symbol whose launch fails.
    """

    name, capability, multiprocessors, version = "fake", (9, 0), 4, "13.0"
    context_bytes = 0

    def __init__(
        self, total_bytes: int = 1 << 30, copies_first: bool = True, takes_files: bool = True
    ) -> None:
        self.total_bytes = total_bytes
        self.copies_first = copies_first
        self.held: dict[int, int] = {}
        self.closed: set[int] = set()
        self.pinned: dict[int, int] = {}
        self.peak_bytes = 0
        self.graph_launches = 0
        self.captures = self.overlapping = 0
        self.copied_bytes = self.brought_bytes = 0
        self.refuse = ""
        self.can_pin = True
        self.takes_files = takes_files
        self.is_open = True
        self.interfaces: dict[str, tuple[int, int, bool]] = {}
        self._slabs: dict[int, Slab] = {}
        self._numbers = itertools.count(1)
        self._clock = itertools.count(1)
        self._times: dict[int, int] = {}
        self._graph: Graph | None = None
        self._live = Graph()  # what stands on streams
        self._left: set[int] = set()  # of it, what has not been played
        self._events: set[int] = set()
        self._kept: list[Any] = []

    # -- context and memory

    def enter(self) -> None:
        assert self.is_open

    def close(self) -> None:
        self.is_open = False

    def memory(self) -> tuple[int, int]:
        return self.total_bytes - sum(self.held.values()), self.total_bytes

    def allocate(self, size_bytes: int, purpose: str) -> int:
        if not size_bytes:
            return 0
        if size_bytes > self.memory()[0]:
            raise error("HR3013", f"the device gives no {size_bytes} bytes for {purpose}")
        slab = Slab(size_bytes)
        ctypes.memset(slab.address, 0xA5, slab.size_bytes)
        self._slabs[slab.address] = slab
        self.held[slab.address] = size_bytes
        self.peak_bytes = max(self.peak_bytes, sum(self.held.values()))
        return slab.address

    def free(self, address: int) -> None:
        if address:
            self._play(set(self._left))
            del self.held[address]
            self._slabs.pop(address).close()

    granule_bytes = 4096

    def reserve(self, size_bytes: int) -> int:
        assert size_bytes > 0, "cuMemAddressReserve refuses to reserve nothing"
        slab = Slab(size_bytes)
        self._slabs[slab.address] = slab
        return slab.address

    def unreserve(self, address: int, size_bytes: int) -> None:
        slab = self._slabs.pop(address)
        assert slab.size_bytes == size_bytes
        assert not any(address <= a < address + size_bytes for a in self.held)
        slab.close()

    def back(self, address: int, size_bytes: int, purpose: str) -> None:
        assert address % self.granule_bytes == 0 == size_bytes % self.granule_bytes
        if size_bytes > self.memory()[0]:
            raise error("HR3013", f"the device gives no {size_bytes} bytes for {purpose}")
        ctypes.memset(address, 0xA5, size_bytes)
        self.held[address] = size_bytes
        self.closed.add(address)
        self.peak_bytes = max(self.peak_bytes, sum(self.held.values()))

    def open_to_kernels(self, address: int, size_bytes: int) -> None:
        end = address + size_bytes
        while address < end:
            self.closed.discard(address)
            address += self.held[address]
        assert address == end, "whole pieces"

    def unback(self, address: int, size_bytes: int) -> None:
        self._untouched(address, size_bytes)
        assert self.held.pop(address) == size_bytes
        self.closed.discard(address)
        ctypes.memset(address, 0x5A, size_bytes)

    def pins_files(self, address: int) -> bool:
        return self.takes_files

    def pin(self, address: int, size_bytes: int, only_read: bool = False) -> None:
        assert only_read == self.takes_files or not only_read
        if not self.can_pin:
            raise error("HR3014", "the system lets the memory not be pinned")
        self.pinned[address] = size_bytes

    def unpin(self, address: int) -> None:
        self._untouched(address, self.pinned.pop(address))

    def _untouched(self, address: int, size_bytes: int) -> None:
        """Nothing that is still to be played copies from or to there."""
        for number in self._left:
            for place, size in self._live.nodes[number].spans:
                assert place + size <= address or address + size_bytes <= place

    # -- code

    def load(self, cubin: bytes) -> Any:
        engine = load_objects([cubin])
        self._kept.append(engine)
        return engine

    def unload(self, module: Any) -> None:
        """Its memory goes with the fake."""

    def function(self, module: Any, symbol: str) -> Any:
        address = module.get_function_address(symbol)
        if not address:
            return None
        bindings, constants, scratch = self.interfaces[symbol]
        made = Function(CALL(address), bindings, constants, scratch)
        made.call.symbol = symbol
        return made

    def most_threads(self, function: Any) -> int:
        return 128

    def blocks_at_once(self, function: Any, threads: int, shared_bytes: int) -> int:
        return 2 * self.multiprocessors

    # -- streams and events

    def stream(self) -> int:
        return next(self._numbers)

    def event(self, timed: bool = False) -> int:
        made = next(self._numbers)
        self._events.add(made)
        return made

    def destroy_stream(self, stream: int) -> None:
        assert self._graph is None

    def release_event(self, event: int, timed: bool = False) -> None:
        self._events.remove(event)
        self._times.pop(event, None)

    @property
    def _now(self) -> Graph:
        return self._live if self._graph is None else self._graph

    def record(self, event: int, stream: int) -> None:
        assert event in self._events
        if self._graph is None:
            self._add(stream, self._timing(event))
            self._live.marks[event] = set(self._live.ends[stream])
        elif stream in self._graph.ends:
            self._graph.marks[event] = set(self._graph.ends[stream])

    def _timing(self, event: int) -> Callable[[], None]:
        def work() -> None:
            self._times[event] = 1000 * next(self._clock)

        return work

    def record_outside(self, event: int, stream: int) -> None:
        assert event in self._events
        assert self._graph is not None, "the driver takes this for a capture only"
        self._add(stream, self._timing(event), event=event)

    def wait(self, stream: int, event: int) -> None:
        graph = self._now
        if event in graph.marks:
            graph.ends.setdefault(stream, set()).update(graph.marks[event])

    def finish_event(self, event: int) -> None:
        assert event in self._events
        self._play(self._before(self._live, self._live.marks.get(event, set())))

    def finish(self, stream: int) -> None:
        assert self._graph is None
        self._play(self._before(self._live, self._live.ends.get(stream, set())))

    def _play(self, wanted: set[int]) -> None:
        """Plays at least this much of what stands on streams."""
        nodes, left = self._live.nodes, self._left
        main = min(self._live.ends, default=0)
        while wanted & left:
            chosen_of = left if self.copies_first else wanted & left
            ready = [n for n in chosen_of if not nodes[n].after & left]
            chosen = min(
                ready, key=lambda n: ((nodes[n].stream != main) != self.copies_first, n)
            )
            left.remove(chosen)
            nodes[chosen].work()

    def elapsed_ns(self, begin: int, end: int) -> int:
        return self._times[end] - self._times[begin]

    def wait_value(self, stream: int, address: int, value: int) -> None:
        self._check(address, 4)

        def work() -> None:
            word = ctypes.c_uint32.from_address(address)
            end = time.monotonic() + 20
            while word.value < value:
                assert time.monotonic() < end, "a transfer waits for bytes that never come"
                time.sleep(1e-5)

        self._add(stream, work)

    def write_value(self, stream: int, address: int, value: int) -> None:
        self._check(address, 4)

        def work() -> None:
            ctypes.c_uint32.from_address(address).value = value

        self._add(stream, work)

    def poll(self, stream: int) -> None:
        self.finish(stream)

    def poll_event(self, event: int) -> None:
        self.finish_event(event)

    # -- work

    def _add(self, stream: int, work: Callable[[], None], **options: Any) -> None:
        graph = self._now
        if graph is self._live:
            graph.ends.setdefault(stream, set())
        assert stream in graph.ends, "work on a stream that is not captured"
        node = Node(work, stream, set(graph.ends[stream]), **options)
        self._put(graph, node)
        graph.ends[stream] = {len(graph.nodes) - 1}

    def _put(self, graph: Graph, node: Node) -> None:
        if graph is self._live:
            if not self._left:
                # Long ago: nobody waits for it any more.
                graph.nodes.clear()
                node.after = set()
                for found in (*graph.ends.values(), *graph.marks.values()):
                    found.clear()
            self._left.add(len(graph.nodes))
        graph.nodes.append(node)

    def _check(self, address: int, size_bytes: int) -> None:
        for table in (self.held, self.pinned):
            at = address
            for start, size in sorted(table.items()):
                # Memory behind neighbouring addresses is one to the device.
                if start <= at < start + size and start not in self.closed:
                    at = start + size
                if at >= address + size_bytes:
                    return
        raise AssertionError(f"bytes at {address:#x} belong to nobody")

    def copy(self, target: int, source: int, size_bytes: int, stream: int) -> None:
        self._check(target, size_bytes)
        self._check(source, size_bytes)

        def work() -> None:
            self.copied_bytes += size_bytes
            if any(start <= source < start + size for start, size in self.pinned.items()):
                self.brought_bytes += size_bytes
            ctypes.memmove(target, source, size_bytes)

        self._add(stream, work, spans=((target, size_bytes), (source, size_bytes)))

    def fill(
        self, target: int, size_bytes: int, pattern: int, pattern_bytes: int, stream: int
    ) -> None:
        self._check(target, size_bytes)
        one = (pattern & ((1 << 8 * pattern_bytes) - 1)).to_bytes(pattern_bytes, "little")
        data = one * (size_bytes // pattern_bytes)
        self._add(stream, lambda: ctypes.memmove(target, data, size_bytes) and None)

    def launch(
        self,
        function: Function,
        grid: tuple[int, int, int],
        threads: int,
        shared_bytes: int,
        stream: int,
        parameters: int,
        overlaps: bool = False,
        cluster: int = 1,
    ) -> None:
        if function.call.symbol == self.refuse:
            raise error("HR4022", "the CUDA driver refuses cuLaunchKernel", notes="because")
        pointers = function.bindings + function.takes_scratch
        count = pointers + 3 + function.constants + 2
        places = (ctypes.c_uint64 * count).from_address(parameters)
        wide = [ctypes.c_uint64.from_address(p).value for p in places[:pointers]]
        words = [ctypes.c_uint32.from_address(p).value for p in places[pointers:-2]]
        own, profile = (ctypes.c_uint64.from_address(p).value for p in places[-2:])
        scratch = wide.pop() if function.takes_scratch else None
        assert own == profile == 0
        block = struct.pack(f"<{len(wide)}Q", *wide) + struct.pack(
            f"<{3 + len(words)}I", *grid, *words
        )
        buffer = ctypes.create_string_buffer(block, len(block) + 8)
        x, y, z = grid
        assert z % cluster == 0

        def work() -> None:
            function.call(ctypes.addressof(buffer), 0, x * y * z, scratch)

        if overlaps:
            # It waits for that launch and nothing else.
            self.overlapping += 1
            assert self._graph is not None, "an event may stand before it"
            (last,) = self._graph.ends[stream]
            assert self._graph.nodes[last].is_launch
        self._add(stream, work, is_launch=True)

    # -- graphs

    def begin_capture(self, stream: int) -> None:
        assert self._graph is None
        self._graph = Graph(ends={stream: set()})

    def end_capture(self, stream: int) -> Graph:
        graph, self._graph = self._graph, None
        assert graph is not None
        unjoined = set(range(len(graph.nodes))) - self._before(graph, graph.ends[stream])
        assert not unjoined, "a capture that is not joined"
        self.captures += 1
        return graph

    def _before(self, graph: Graph, ends: set[int]) -> set[int]:
        found: set[int] = set()
        todo = list(ends)
        while todo:
            node = todo.pop()
            if node not in found:
                found.add(node)
                todo.extend(graph.nodes[node].after)
        return found

    def abandon_capture(self, stream: int) -> None:
        self._graph = None

    def upload_graph(self, graph: Graph, stream: int) -> None:
        assert self._graph is None

    def launch_graph(self, graph: Graph, stream: int) -> None:
        assert self._graph is None
        self.graph_launches += 1
        live = self._live
        begin = set(live.ends.setdefault(stream, set()))
        if not self._left:
            self._put(live, Node(lambda: None, stream, set()))
            begin = {0}
        base = len(live.nodes)
        for node in graph.nodes:
            after = {base + n for n in node.after} or begin
            self._put(live, replace(node, after=after))
            if node.event:
                live.marks[node.event] = {len(live.nodes) - 1}
        live.ends[stream] = begin | set(range(base, len(live.nodes)))

    def destroy_graph(self, graph: Graph) -> None:
        graph.nodes.clear()


class FakeDevice(CudaDevice):
    """A CUDA device over `FakeCalls` that takes programs for the CPU."""

    device_class = "cpu"

    def __init__(self, **options: Any) -> None:
        host_limit = options.pop("host_limit", None)
        self.fake = FakeCalls(**options)
        super().__init__(calls=self.fake, host_limit=host_limit)

    def link(self, program: schema.Program, code: Callable[[int], bytes]) -> CudaCode:
        for executable in program.executables:
            for variant in executable.variants:
                for entry, cases in zip(
                    executable.entry_points, variant.entry_points, strict=True
                ):
                    for launch in (x for case in cases for x in case.launches):
                        interface = (
                            len(entry.bindings),
                            entry.push_constants,
                            launch.scratch_bytes != ZERO,
                        )
                        self.fake.interfaces[launch.symbol] = interface
        executables = tuple(
            replace(e, variants=tuple(_for_cuda(v) for v in e.variants))
            for e in program.executables
        )
        return super().link(replace(program, executables=executables), code)


def _for_cuda(variant: schema.Variant) -> schema.Variant:
    """The variant as code of a GPU whose launches wait for those before them."""
    entry_points = tuple(
        tuple(
            replace(case, launches=tuple(replace(x, overlaps=True) for x in case.launches))
            for case in cases
        )
        for cases in variant.entry_points
    )
    return replace(variant, format="cubin", features=("sm_90",), entry_points=entry_points)
