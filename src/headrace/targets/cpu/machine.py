"""The CPUs code is made for: LLVM's name, its features, and what they allow."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from headrace.base.errors import error
from headrace.targets.tables import NO_TABLE, Table

_V3 = (
    "avx",
    "avx2",
    "bmi",
    "bmi2",
    "cmov",
    "cx16",
    "cx8",
    "f16c",
    "fma",
    "fxsr",
    "lzcnt",
    "mmx",
    "movbe",
    "popcnt",
    "sse",
    "sse2",
    "sse3",
    "sse4.1",
    "sse4.2",
    "ssse3",
)
_GENERIC = ("cmov", "cx8", "fxsr", "mmx", "sse", "sse2")

_AVX512_VNNI = frozenset({"avx512f", "avx512bw", "avx512vl", "avx512vnni"})
_AVX_VNNI = ("avxvnni",)

TRIPLE = "x86_64-unknown-linux-gnu"
"""The one platform that is emitted."""


@dataclass(frozen=True)
class Machine:
    """A CPU model as code generation sees it.

    Attributes:
        name: what the user writes after `cpu:`.
        llvm_name: LLVM's `-mcpu`.
        llvm_features: LLVM's `-mattr`, beyond what the name implies.
        features: sorted features a CPU must have to run the code.
        vector_bits: the width of the vectors that kernels use.
        byte_features: what kernels that multiply bytes (`byte_products`) ask for beside;
            empty where they cannot.
        byte_variants: the same of CPUs of this model that have more than it says: such
            kernels are made for each of them too, best first.
        ordered_sums: whether every sum is one chain in a set order (`--numerics exact`):
            no Winograd, no partial sums. See `docs/numerics.md`.
        table: measured schedules.
    """

    name: str
    llvm_name: str
    llvm_features: str
    features: tuple[str, ...]
    vector_bits: int
    byte_features: tuple[str, ...] = ()
    byte_variants: tuple[tuple[str, ...], ...] = ()
    ordered_sums: bool = False
    table: Table = NO_TABLE

    @property
    def width(self) -> int:
        """f32 lanes of one vector register: 8 with AVX2, 4 without."""
        return self.vector_bits // 32

    @property
    def registers(self) -> int:
        """Vector registers."""
        return 16

    @property
    def for_bytes(self) -> Machine:
        """The CPU as kernels that multiply bytes see it."""
        flags = ",".join("+" + f for f in self.byte_features)
        features = tuple(sorted({*self.features, *self.byte_features}))
        return replace(self, llvm_features=f"{self.llvm_features},{flags}", features=features)

    @property
    def multiplies_bytes(self) -> bool:
        """Whether some code for it does."""
        return bool(self.byte_features or self.byte_variants)

    @property
    def with_bytes(self) -> tuple[Machine, ...]:
        """The CPUs of `byte_variants`."""
        return tuple(
            replace(self, byte_features=found, byte_variants=()) for found in self.byte_variants
        )

    def has(self, feature: str) -> bool:
        """Whether the code may use that feature (`fma`, `f16c`, `sse4.1`)."""
        return feature in self.features


NAMES = ("native", "x86-64-v3", "generic")
"""What may stand after `cpu:`."""


@cache
def machine(name: str) -> Machine:
    """The CPU of that name.

    Raises:
        HeadraceError HR0xxx: no such CPU, or `native` on another platform.
    """
    if name == "x86-64-v3":
        variants = (tuple(sorted(_AVX512_VNNI)), _AVX_VNNI)
        return Machine(name, "x86-64-v3", "", _V3, 256, byte_variants=variants)
    if name == "generic":
        return Machine(name, "x86-64", "", _GENERIC, 128)
    if name == "native":
        return _native()
    raise error(
        "HR0110",
        f"there is no CPU '{name}'",
        helps="known are " + ", ".join(f"cpu:{n}" for n in NAMES),
    )


def _native() -> Machine:
    """This machine's CPU. AVX-512 is left out but for products of bytes: kernels use 256-bit
    vectors and 16 registers."""
    import platform

    from llvmlite import binding

    if platform.machine() not in ("x86_64", "AMD64"):
        raise error(
            "HR0111",
            f"'cpu:native' needs an x86-64 machine; this is {platform.machine()}",
            helps="write cpu:x86-64-v3 to compile for another machine",
        )
    host = binding.get_host_cpu_features()
    on = tuple(sorted(f for f, has in host.items() if has and not f.startswith("avx512")))
    flags = ",".join(("+" if f in on else "-") + f for f in sorted(host))
    return Machine(
        "native",
        binding.get_host_cpu_name(),
        flags,
        on,
        256 if "avx2" in on and "fma" in on else 128,
        _byte_features(frozenset(f for f, has in host.items() if has)),
    )


def _byte_features(host: frozenset[str]) -> tuple[str, ...]:
    """What this CPU has for products of bytes: AVX-512's VNNI, or that of AVX."""
    if host >= _AVX512_VNNI:
        # Shuffles of bytes across a register; without them a few shuffles more.
        return tuple(sorted(_AVX512_VNNI | ({"avx512vbmi"} & host)))
    return _AVX_VNNI if {"avx2", "fma", "avxvnni"} <= host else ()
