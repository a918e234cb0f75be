"""What every Vulkan device must be able to run."""

from __future__ import annotations

from headrace.base.errors import error
from headrace.kernel.description import Kernel
from headrace.targets.vulkan.builder import FIRST_WORKGROUP_WORDS

_PUSH_CONSTANT_BYTES = 128
_MAX_ELEMENTS = 2**31 - 1


def check_limits(name: str, kernel: Kernel) -> None:
    """Raises HeadraceError HR2411, HR2412: beyond push constants, or 31-bit offsets."""
    size = 4 * (FIRST_WORKGROUP_WORDS + len(kernel.dims))
    if size > _PUSH_CONSTANT_BYTES:
        raise error(
            "HR2411",
            f"a kernel needs {size} bytes of push constants, Vulkan has {_PUSH_CONSTANT_BYTES}",
            at=name,
            notes=f"it uses {len(kernel.dims)} named dimensions",
            helps="fix some of the dimensions when compiling",
        )
    for operand in kernel.operands:
        elements = operand.layout.size
        if elements.is_constant and elements.value > _MAX_ELEMENTS:
            raise error(
                "HR2412",
                f"operand '{operand.name}' has {elements.value} elements, "
                f"Vulkan's offsets reach {_MAX_ELEMENTS}",
                at=name,
            )
