"""What a family of kernels offers the CPU target.

A family is a module (or object) with these members; `target.FAMILIES` lists them in the
order they are tried. `match` must answer None unless it can do exactly this kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from headrace.kernel.description import Kernel
from headrace.kernel.target import LayoutWish, Specialisation
from headrace.targets.cpu.ir_text import Module
from headrace.targets.cpu.machine import Machine


class Family(Protocol):
    """One way to compute a class of kernels."""

    def match(self, kernel: Kernel, machine: Machine) -> Any | None:
        """A schedule for the kernel, or None where the family does not do it."""
        ...

    def emit(
        self, module: Module, symbol: str, kernel: Kernel, schedule: Any, machine: Machine
    ) -> tuple[Specialisation, ...]:
        """Adds the functions to the module; their names start with `symbol`.

        The last specialisation has no conditions.
        """
        ...

    def layout_wishes(
        self, kernel: Kernel, machine: Machine
    ) -> Mapping[int, LayoutWish] | None:
        """Wishes for a kernel with row-major operands; None where it is not the family's."""
        ...
