"""Linking ELF objects of CPU kernels: variants by host features, one engine for all."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from headrace.artifact import schema
from headrace.base.errors import Diagnostic, Problems
from headrace.plan.cost import Concurrency
from headrace.runtime.drivers.cpu_machine import llvm, load_objects

_ALIASES = {
    "sse3": "pni",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "lzcnt": "abm",
    "bmi": "bmi1",
}
"""LLVM's feature names that /proc/cpuinfo spells otherwise."""


@cache
def host_features() -> frozenset[str]:
    """The flags of the first processor in /proc/cpuinfo, LLVM's names added.

    What LLVM itself finds counts too: `cpu:native` is made from that, and Linux lists some
    of it under other names or not at all (`crc32`, `64bit`, `shstk`).
    """
    flags: set[str] = set()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "flags":
            flags.update(value.split())
            break
    # Linux writes avx512_vnni and avx_vnni where LLVM writes avx512vnni and avxvnni.
    flags |= {f.replace("_", "") for f in flags if f.startswith(("avx", "amx"))}
    flags |= {llvm for llvm, linux in _ALIASES.items() if linux in flags}
    # "lahf_lm" and "cx16" stand for what LLVM calls sahf and cx16.
    if "lahf_lm" in flags:
        flags.add("sahf")
    flags |= {name for name, has in llvm().get_host_cpu_features().items() if has}
    return frozenset(flags)


@cache
def host_name() -> str:
    """The processor's name in /proc/cpuinfo."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return "x86-64"


def pick_variants(program: schema.Program, features: frozenset[str]) -> tuple[int, ...]:
    """For each executable the index of the first variant whose features are all there.

    Writers list variants from the most demanding to the least.

    Raises:
        HeadraceError HR4002: an executable has none; names the missing features.
    """
    problems = Problems()
    chosen: list[int] = []
    for executable in program.executables:
        objects = [v for v in executable.variants if v.format == "elf-object"]
        fitting = [
            index
            for index, variant in enumerate(executable.variants)
            if variant.format == "elf-object" and features.issuperset(variant.features)
        ]
        if fitting:
            chosen.append(fitting[0])
            continue
        notes = tuple(
            f"{v.target} needs {', '.join(sorted(set(v.features) - features))}" for v in objects
        )
        problems.add(
            Diagnostic(
                "HR4002",
                "no compiled variant runs on this processor",
                places=(f"executable '{executable.name}'",),
                notes=notes or ("the module holds no code for this device",),
                helps=("compile with --target cpu on this host, or with cpu:x86-64-v2",),
            )
        )
    problems.raise_if_any()
    return tuple(chosen)


class CpuCode:
    """Executables of one program, linked: addresses by executable and symbol.

    Attributes:
        variants: the chosen variant of each executable.
        concurrency: none: slices run one after another.
        code_bytes: none is counted: it is the process's own.
    """

    code_bytes = 0

    def __init__(self, program: schema.Program, read_code: Callable[[int], bytes]) -> None:
        """Raises HeadraceError HR4002, HR4003 (a symbol the code does not define)."""
        self.variants = pick_variants(program, host_features())
        self.concurrency = Concurrency()
        chosen = [
            executable.variants[index]
            for executable, index in zip(program.executables, self.variants, strict=True)
        ]
        codes = sorted({variant.code for variant in chosen})
        self._engine: Any = load_objects([read_code(index) for index in codes])
        self._addresses: dict[tuple[int, str], int] = {}
        problems = Problems()
        for number, variant in enumerate(chosen):
            for entry_point in variant.entry_points:
                for specialisation in entry_point:
                    for launch in specialisation.launches:
                        self._add(number, launch.symbol, problems)
        problems.raise_if_any()

    def _add(self, executable: int, symbol: str, problems: Problems) -> None:
        key = (executable, symbol)
        if key in self._addresses:
            return
        address = self._engine.get_function_address(symbol)
        self._addresses[key] = address
        if not address:
            problems.add(Diagnostic("HR4003", f"the module's code does not define '{symbol}'"))

    def address(self, executable: int, symbol: str) -> int:
        """Where a launch's function stands."""
        return self._addresses[executable, symbol]
