"""The target `vulkan`: SPIR-V for Vulkan 1.3 compute queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.base.errors import error
from headrace.kernel import products
from headrace.kernel.description import Kernel
from headrace.kernel.target import Code, LayoutWish, LoopPoints, without_exact_numerics
from headrace.targets.vulkan import fours, matrices, naive, registers, rows, tiles

FAMILIES = (matrices, fours, tiles, rows, registers)
"""In the order of preference; the naive emitter takes every legal kernel."""


@dataclass(frozen=True)
class VulkanTarget:
    """`vulkan` or `vulkan:1.3`; keeps the `Target` protocol.

    `Code.features` lists the SPIR-V capabilities a module needs beside `Shader`
    (`Int64`, `Float64`, `StorageBuffer8BitAccess`, `StorageBuffer16BitAccess`), and our own
    names: `gpu`, a device whose shared memory is faster than its caches; `subgroup32`, one
    whose lanes run in thirty-twos.
    A launch pushes three words of its first workgroup (x, y, z), then the kernel's
    dimensions; scratch, where it has any, is the binding behind the operands'.
    """

    version: str = "1.3"

    @property
    def name(self) -> str:
        return f"vulkan:{self.version}"

    @property
    def device_class(self) -> str:
        return "vulkan"

    @property
    def packs_weights(self) -> bool:
        """See `Target.packs_weights`."""
        return False

    @property
    def factor_bits(self) -> frozenset[int]:
        """None: products of integers are not told apart."""
        return frozenset()

    @property
    def fuses_narrow_rows(self) -> bool:
        """Rows of 16-bit floats are no family here."""
        return False

    @property
    def joins_siblings(self) -> bool:
        """Not measured yet."""
        return False

    @property
    def precisions(self) -> frozenset[str]:
        """See `Target.precisions`."""
        return frozenset({"ieee"})

    @property
    def emplaces_parts(self) -> bool:
        """Not measured yet."""
        return False

    @property
    def serial_kernels(self) -> int:
        """See `Target.serial_kernels`: a worker starts in 0.6 s (2 cores)."""
        return 12

    @property
    def loop_points(self) -> LoopPoints:
        """See `Target.loop_points`. One lane runs them all: on an H200 a recurrence of 16 (306
        points a trip) takes a sixth of its dispatches' time, one of 64 (4,290) twice it.
        lavapipe ends every loop after 65,535 rounds of all loops of a lane together, and says
        nothing."""
        return LoopPoints(trip=1 << 9, dispatch=1 << 13)

    def with_numerics(self, numerics: str) -> VulkanTarget:
        """See `Target`; there is `fast` only."""
        without_exact_numerics(self.name, numerics)
        return self

    def layout_wishes(self, kernel: Kernel) -> Mapping[int, LayoutWish]:
        """Weights by columns, images with channels last; the same for all variants."""
        return products.layout_wishes(kernel)

    def translate(self, name: str, kernel: Kernel) -> Code:
        """See `Target.translate`: a variant of each family that knows the kernel."""
        plain = not kernel.loops and not any(p.serial for p in kernel.phases)
        families = FAMILIES if plain else ()
        made = [family.translate(name, kernel) for family in (*families, naive)]
        first, *others = _reachable(
            [variant for code in made if code is not None for variant in (code, *code.others)]
        )
        return replace(first, others=tuple(others))


def _reachable(codes: Sequence[Code]) -> list[Code]:
    """Without those that no device takes: one before them asks for no more than they do."""
    found: list[Code] = []
    for code in codes:
        if not any(set(before.features) <= set(code.features) for before in found):
            found.append(replace(code, others=()))
    return found


def make(spelling: str) -> VulkanTarget:
    """The target a user spells `vulkan` or `vulkan:1.3`.

    Raises:
        HeadraceError HR0112: another version.
    """
    _, _, version = spelling.partition(":")
    if version not in ("", "1.3"):
        raise error(
            "HR0112",
            f"target '{spelling}' is not known",
            helps="Vulkan targets are spelled vulkan or vulkan:1.3",
        )
    return VulkanTarget()
