"""Cubins of one program: a variant for the GPU's architecture, loaded, kernels by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.artifact import schema
from headrace.base.bundle import split_code
from headrace.base.errors import Diagnostic, Problems, error
from headrace.base.symbols import ZERO
from headrace.plan.cost import Concurrency
from headrace.runtime.drivers.cuda_calls import CudaCalls
from headrace.runtime.drivers.cuda_cubin import required_threads

_BETWEEN_STEPS_NS = 200_000
"""From an event that the host waits for to the next graph's begin: a call takes 60 to 95 us more
than its graph (H200), and a graph of some hundred nodes is launched meanwhile."""

_PLAIN_SHARED_BYTES = 48 << 10
"""More must be asked for kernel by kernel."""


@dataclass(frozen=True)
class Kernel:
    """One launch's function.

    Attributes:
        function: the driver's handle.
        threads: of a block.
        shared_bytes: dynamic shared memory of a block.
        takes_scratch: whether a pointer to scratch stands behind the operands.
        slice: binding, axis and bytes per workgroup where the launch may be cut.
        overlaps: it waits by itself for the launch before it.
        cluster: how many of its blocks along z run at once.
        tensor_maps: its last parameters.
    """

    function: Any
    threads: int
    shared_bytes: int
    takes_scratch: bool
    slice: schema.SliceRule | None
    overlaps: bool
    cluster: int
    tensor_maps: tuple[schema.TensorMap, ...]


def runs_on(features: tuple[str, ...], capability: tuple[int, int]) -> bool:
    """Whether code of these architectures runs: the same major number, none newer.

    A name with a letter behind it (`sm_90a`) runs on that very architecture alone.
    """
    for feature in features:
        digits = feature.removeprefix("sm_")
        number = digits.rstrip("af")
        if digits == feature or not number.isdecimal():
            return False
        major, minor = divmod(int(number), 10)
        if major != capability[0] or minor > capability[1]:
            return False
        if number != digits and minor != capability[1]:
            return False
    return True


def pick_variants(
    program: schema.Program, capability: tuple[int, int], gpu: str
) -> tuple[int, ...]:
    """For each executable the index of the variant for the newest fitting architecture.

    Raises:
        HeadraceError HR4002: an executable has none.
    """
    problems = Problems()
    chosen: list[int] = []
    here = f"sm_{capability[0]}{capability[1]}"
    for executable in program.executables:
        fitting = [
            index
            for index, variant in enumerate(executable.variants)
            if variant.format == "cubin" and runs_on(variant.features, capability)
        ]
        if fitting:
            chosen.append(max(fitting, key=lambda i: (executable.variants[i].features, -i)))
            continue
        there = ", ".join(v.target for v in executable.variants)
        problems.add(
            Diagnostic(
                "HR4002",
                f"no compiled variant runs on this GPU, {gpu} ({here})",
                places=(f"executable '{executable.name}'",),
                notes=(f"the module holds code for {there or 'nothing'}",),
                helps=(f"compile with --target cuda:{here}",),
            )
        )
    problems.raise_if_any()
    return tuple(chosen)


def _pieces(code: bytes, executable: str) -> list[bytes]:
    try:
        return split_code(code)
    except ValueError as damage:
        raise error(
            "HR4003", f"the code of executable '{executable}' is damaged: {damage}"
        ) from None


class CudaCode:
    """Executables of one program, loaded.

    Attributes:
        program: whose they are.
        variants: the chosen variant of each executable.
        code_bytes: of the device, taken by loading.
        concurrency: see `api.Code.concurrency`.
    """

    def __init__(
        self, calls: CudaCalls, program: schema.Program, read_code: Callable[[int], bytes]
    ) -> None:
        """Raises HeadraceError HR4002, HR4003 (a kernel the code lacks), HR4022."""
        self.program = program
        self.variants = pick_variants(program, calls.capability, calls.name)
        self._calls = calls
        self._modules: dict[int, tuple[Any, ...]] = {}
        self._kernels: dict[tuple[int, str], Kernel] = {}
        self._threads: dict[str, int] = {}
        slots: dict[tuple[int, str], int] = {}
        self._slots = slots
        self.concurrency = Concurrency(
            slots, steps_end_whole=True, between_steps_ns=_BETWEEN_STEPS_NS
        )
        free = calls.memory()[0]
        problems = Problems()
        for number, index in enumerate(self.variants):
            variant = program.executables[number].variants[index]
            if variant.code not in self._modules:
                cubins = _pieces(read_code(variant.code), program.executables[number].name)
                self._modules[variant.code] = tuple(calls.load(cubin) for cubin in cubins)
                for cubin in cubins:
                    self._threads.update(required_threads(cubin))
            modules = self._modules[variant.code]
            for entry_point in variant.entry_points:
                for launch in (x for case in entry_point for x in case.launches):
                    self._add(number, modules, launch, problems)
        problems.raise_if_any()
        self.code_bytes = max(0, free - calls.memory()[0])

    def _add(
        self,
        executable: int,
        modules: tuple[Any, ...],
        launch: schema.Launch,
        found: Problems,
    ) -> None:
        key = executable, launch.symbol
        if key in self._kernels:
            return
        lookups = (self._calls.function(module, launch.symbol) for module in modules)
        function = next((f for f in lookups if f is not None), None)
        if function is None:
            fact = f"the module's code does not define '{launch.symbol}'"
            found.add(Diagnostic("HR4003", fact))
            return
        if launch.shared_bytes > _PLAIN_SHARED_BYTES:
            self._calls.allow_shared(function, launch.shared_bytes)
        threads = self._threads.get(launch.symbol) or self._calls.most_threads(function)
        if launch.slice is not None:
            shared = launch.shared_bytes
            self._slots[key] = self._calls.blocks_at_once(function, threads, shared)
        self._kernels[key] = Kernel(
            function,
            threads,
            launch.shared_bytes,
            launch.scratch_bytes != ZERO,
            launch.slice,
            launch.overlaps,
            launch.cluster,
            launch.tensor_maps,
        )

    def kernel(self, executable: int, symbol: str) -> Kernel:
        """The function of a launch."""
        return self._kernels[executable, symbol]

    def close(self) -> None:
        """Unloads everything."""
        for modules in self._modules.values():
            for module in modules:
                self._calls.unload(module)
        self._modules.clear()
        self._kernels.clear()
