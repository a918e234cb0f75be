"""The CPU target: tries each family on a kernel, the naive one last."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from headrace.kernel.description import Kernel
from headrace.kernel.target import Code, LayoutWish, LoopPoints, Specialisation
from headrace.targets.cpu import (
    attention,
    contract,
    loop,
    naive,
    row,
    transpose,
    window,
    winograd,
)
from headrace.targets.cpu import map as map_family
from headrace.targets.cpu.choices import contract_problem, window_problem, winograd_problem
from headrace.targets.cpu.compile import compile_ir
from headrace.targets.cpu.contract_plan import ContractPlan
from headrace.targets.cpu.family import Family
from headrace.targets.cpu.ir_text import Module
from headrace.targets.cpu.machine import Machine, machine
from headrace.targets.cpu.simple import SimplePlan
from headrace.targets.cpu.tuned import tables
from headrace.targets.cpu.winograd_plan import TILE_COLUMNS, WinogradPlan
from headrace.targets.tables import Problem, Table, Tables

FAMILIES: tuple[Family, ...] = (
    winograd,
    contract,
    attention,
    transpose,
    map_family,
    row,
    window,
    naive,
)
"""In the order they are tried; the last takes every legal kernel."""


def _families(kernel: Kernel) -> tuple[Family, ...]:
    """What is tried: of loops only their family knows, of phases in a set order only the
    naive one."""
    if kernel.loops:
        return (loop,)
    return (naive,) if any(p.serial for p in kernel.phases) else FAMILIES


def _schedule(kernel: Kernel, machine: Machine) -> tuple[Family, Any]:
    """The first family that takes a kernel, and how."""
    for family in _families(kernel):
        schedule = family.match(kernel, machine)
        if schedule is not None:
            return family, schedule
    raise AssertionError("the naive family takes every kernel")


def _multiplies_bytes(schedule: object) -> bool:
    return isinstance(schedule, ContractPlan) and schedule.in_bytes


@dataclass(frozen=True)
class CpuTarget:
    """`cpu:native`, `cpu:x86-64-v3` or `cpu:generic`."""

    machine: Machine

    @property
    def name(self) -> str:
        return f"cpu:{self.machine.name}"

    @property
    def device_class(self) -> str:
        return "cpu"

    @property
    def packs_weights(self) -> bool:
        """See `Target.packs_weights`."""
        return False

    @property
    def factor_bits(self) -> frozenset[int]:
        """16: `pmaddwd` is in SSE2. 8 where there is VNNI, or may be."""
        return frozenset({16, 8} if self.machine.multiplies_bytes else {16})

    @property
    def fuses_narrow_rows(self) -> bool:
        """Rows of 16-bit floats are no family here: products and a softmax are faster."""
        return False

    @property
    def joins_siblings(self) -> bool:
        """A dispatch costs little here."""
        return False

    @property
    def precisions(self) -> frozenset[str]:
        """See `Target.precisions`."""
        return frozenset({"ieee"})

    @property
    def emplaces_parts(self) -> bool:
        """See `Target.emplaces_parts`."""
        return True

    @property
    def serial_kernels(self) -> int:
        """See `Target.serial_kernels`: a worker starts in 0.6 s (2 cores)."""
        return 12

    @property
    def loop_points(self) -> LoopPoints | None:
        """See `Target.loop_points`. With more work in a trip its parts are better dispatches,
        of the families made for them (benchmarks/loops.py)."""
        return LoopPoints(trip=1 << 13, dispatch=1 << 22)

    def with_numerics(self, numerics: str) -> CpuTarget:
        """See `Target`; `exact` adds in order."""
        return CpuTarget(replace(self.machine, ordered_sums=numerics == "exact"))

    @property
    def table(self) -> Table:
        """See `TunedTarget.table`."""
        return self.machine.table

    @property
    def tables(self) -> Tables:
        """See `TunedTarget.tables`."""
        return tables(self.machine.name)

    def with_table(self, table: Table) -> CpuTarget:
        """See `TunedTarget.with_table`."""
        return CpuTarget(replace(self.machine, table=table))

    def problem(self, kernel: Kernel) -> Problem | None:
        """See `TunedTarget.problem`."""
        for family in _families(kernel):
            schedule = family.match(kernel, self.machine)
            if isinstance(schedule, ContractPlan):
                return contract_problem(schedule)
            if isinstance(schedule, WinogradPlan):
                return winograd_problem(schedule, TILE_COLUMNS)
            if isinstance(schedule, SimplePlan):
                return window_problem(schedule.nest, schedule.schedule)
            if schedule is not None:
                return None
        return None

    def layout_wishes(self, kernel: Kernel) -> Mapping[int, LayoutWish]:
        """The wishes of the first family that has any for this kernel."""
        for family in _families(kernel):
            wishes = family.layout_wishes(kernel, self.machine)
            if wishes is not None:
                return wishes
        return {}

    def translate(self, name: str, kernel: Kernel) -> Code:
        """An ELF object with the kernel's functions; see `entry.py` for their ABI. Products of
        bytes have one for each kind of CPU that may multiply them."""
        plain = self._translate(name, kernel, listing=False)
        made = [
            CpuTarget(machine)._translate(name, kernel, listing=False)
            for machine in self.machine.with_bytes
            if _multiplies_bytes(_schedule(kernel, machine)[1])
        ]
        return replace(made[0], others=(*made[1:], plain)) if made else plain

    def listing(self, name: str, kernel: Kernel) -> str:
        """The assembly of `translate`, for `inspect --disassemble`."""
        return self._translate(name, kernel, listing=True).listing

    def llvm_ir(self, name: str, kernel: Kernel) -> str:
        """The LLVM IR that `translate` compiles, for dumps."""
        return self._emit(name, kernel)[0].text()

    def _emit(
        self, name: str, kernel: Kernel
    ) -> tuple[Module, tuple[Specialisation, ...], Machine]:
        """The kernel's module, its specialisations, and what CPU it is for."""
        symbol = re.sub(r"[^A-Za-z0-9_.]", "_", name)
        family, schedule = _schedule(kernel, self.machine)
        cpu = self.machine.for_bytes if _multiplies_bytes(schedule) else self.machine
        module = Module()
        return module, family.emit(module, symbol, kernel, schedule, cpu), cpu

    def _translate(self, name: str, kernel: Kernel, *, listing: bool) -> Code:
        module, specialisations, cpu = self._emit(name, kernel)
        data, assembly = compile_ir(module.text(), cpu, listing=listing)
        return Code("elf-object", data, specialisations, cpu.features, assembly)


def make(spelling: str) -> CpuTarget:
    """The target a user spells `cpu` or `cpu:NAME`; `cpu` means `cpu:x86-64-v3`.

    Raises:
        HeadraceError HR0110, HR0111: no such CPU, or not on this machine.
    """
    _, _, name = spelling.partition(":")
    found = machine(name or "x86-64-v3")
    return CpuTarget(replace(found, table=tables(found.name).all()))
