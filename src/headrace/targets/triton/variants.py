"""The functions of one entry point: one for all sizes, or by how many rows a product has.

Where the rows are known only at run time, one row (bound by reading the weight), few and
many want different tiles. Conditions look at dimensions alone, so results have the same
bits at every budget.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.base.symbols import ONE
from headrace.kernel.description import Axis, Kernel
from headrace.kernel.products import as_product, flat_size
from headrace.kernel.target import Condition
from headrace.targets.triton import contract, naive, rows
from headrace.targets.triton.naive import TritonSource

_FEW_ROWS = 64
_MANY_ROWS = 4096


@dataclass(frozen=True)
class Variant:
    """A function and when it is taken: all conditions hold."""

    conditions: tuple[Condition, ...]
    source: TritonSource


def variants(name: str, kernel: Kernel) -> list[Variant]:
    """In the order they are tried; the last has no conditions.

    Raises:
        HeadraceError HR2401: an operation that lanes lack.
    """
    found = as_product(kernel)
    size = ONE if found is None else flat_size(found.rows)
    if found is None or size.is_constant:
        return [Variant((), _only(name, kernel))]
    many = contract.generate(name, kernel, _MANY_ROWS)
    few = contract.generate(f"{name}_few", kernel, _FEW_ROWS)
    if few is None or many is None:
        return [Variant((), _only(name, kernel))]
    names = {a.name for a in found.rows}
    outer = tuple(Axis(a.name, ONE) if a.name in names else a for a in kernel.outer)
    one = _only(f"{name}_one", replace(kernel, outer=outer))
    return [
        Variant((Condition(size, maximum=1),), one),
        Variant((Condition(size, maximum=_FEW_ROWS),), few),
        Variant((), many),
    ]


def _only(name: str, kernel: Kernel) -> TritonSource:
    """The first family that takes the kernel; the naive emitter takes any."""
    if not rows.multiplies_one_row(kernel):
        tiled = contract.generate(name, kernel)
        if tiled is not None:
            return tiled
    return rows.generate(name, kernel) or naive.generate(name, kernel)
