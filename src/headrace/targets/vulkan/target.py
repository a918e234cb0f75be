"""The target `vulkan`: SPIR-V for Vulkan 1.3 compute queues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.base.errors import error
from headrace.kernel.description import Kernel
from headrace.kernel.target import Code, LayoutWish
from headrace.targets.vulkan import naive


@dataclass(frozen=True)
class VulkanTarget:
    """`vulkan` or `vulkan:1.3`; keeps the `Target` protocol.

    `Code.features` lists the SPIR-V capabilities a module needs beside `Shader`
    (`Int64`, `Float64`, `StorageBuffer8BitAccess`, `StorageBuffer16BitAccess`).
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

    def layout_wishes(self, kernel: Kernel) -> Mapping[int, LayoutWish]:
        """None: a lane per point reads any layout equally well."""
        return {}

    def translate(self, name: str, kernel: Kernel) -> Code:
        return naive.translate(name, kernel)


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
