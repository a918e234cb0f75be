"""Which weights are stored packed, and with which codes (`base/exponent_codes.py`).

Decided by a weight's values, for all weights that one kernel reads together, so that equal
layers keep one kernel: the exponents that get codes are those that occur most in all of them
(looked at in a part of their rows), the room for escapes is the most that any block needs.
A weight that would not save enough stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from xdsl.ir import SSAValue

from headrace.base.errors import error
from headrace.base.exponent_codes import (
    GROUP,
    MOST_BLOCK,
    MOST_ESCAPES,
    PACKED_DTYPES,
    ExponentCodes,
    best_base,
    histogram,
    most_escapes,
)
from headrace.base.parameters import Source
from headrace.flow.layouts.sites import Site, Value
from headrace.ir.model import Model
from headrace.kernel.description import Layout, Operand
from headrace.kernel.target import Target
from headrace.tensor.interp import evaluate_source

MODES = ("auto", "all", "none")
_LEAST_BYTES = {"auto": 1 << 20, "all": 1}
_MOST_SHARE = {"auto": 0.92, "all": 0.999}
_LEAST_BLOCK = 256
_SAMPLED = 16
"""One row in so many is looked at for the exponents that occur most."""


def check_mode(mode: str, targets: Sequence[Target]) -> None:
    """Whether weights can be packed so for all of these targets.

    Raises:
        HeadraceError HR2298: there is no such mode; HR2299: `all` for targets that cannot.
    """
    if mode not in MODES:
        known = ", ".join(MODES)
        raise error("HR2298", f"there is no way '{mode}' to pack", helps=f"one of: {known}")
    unable = [t.name for t in targets if not t.packs_weights]
    if mode == "all" and unable:
        raise error(
            "HR2299",
            f"kernels for {', '.join(unable)} read no packed weights",
            notes="'auto' packs for those targets that can, and nothing for the others",
            helps="compile with --pack auto, or for cuda alone",
        )


@dataclass(frozen=True)
class _Candidate:
    source: Source
    layout: Layout
    block: int
    size_bytes: int


def block_of(operand: Operand, layout: Layout) -> int:
    """Elements of a row: what stands at one index of the outermost dimension; 0 for none."""
    if layout.has_halo or layout.transform or not layout.size.is_constant:
        return 0
    strides: list[tuple[int, int]] = []
    for dimension, size in zip(layout.dimensions, operand.shape, strict=True):
        if dimension.tile != 1 or not (dimension.stride.is_constant and size.is_constant):
            return 0
        if size.value > 1:
            strides.append((dimension.stride.value, size.value))
    if not strides:
        return 0
    block, rows = max(strides)
    if block * rows != layout.size.value or block % GROUP:
        return 0
    return block if _LEAST_BLOCK <= block <= MOST_BLOCK else 0


def with_codes(
    model: Model,
    mode: str,
    sites: Sequence[Site],
    values: Mapping[SSAValue, Value],
    layouts: Mapping[tuple[Site, int], Layout],
) -> dict[tuple[Site, int], Layout]:
    """Layouts of weights that are packed, by reader.

    Args:
        mode: `auto` or `all`.
        layouts: of every weight at every reader that wishes it (`LayoutWish.packs`).
    """
    groups: dict[tuple[object, int], list[tuple[Site, int]]] = {}
    for site, number in layouts:
        # With a second reader the plain weight would be stored too.
        if len(values[site.values[number]].readers) == 1:
            groups.setdefault((site.dispatch.entry_point, number), []).append((site, number))
    found: dict[tuple[Site, int], Layout] = {}
    for members in groups.values():
        candidates = {m: _candidate(model, values, m, layouts[m], mode) for m in members}
        packable = {m: c for m, c in candidates.items() if c is not None}
        for member, codes in _decide(packable, mode).items():
            found[member] = replace(layouts[member], codes=codes)
    return found


def _candidate(
    model: Model,
    values: Mapping[SSAValue, Value],
    member: tuple[Site, int],
    layout: Layout,
    mode: str,
) -> _Candidate | None:
    site, number = member
    operand, value = site.kernel.operands[number], values[site.values[number]]
    block = block_of(operand, layout)
    if not block or value.parameter is None or operand.dtype.name not in PACKED_DTYPES:
        return None
    size_bytes = layout.size.value * operand.dtype.size_bytes
    if size_bytes < _LEAST_BYTES[mode]:
        return None
    name = value.parameter.parameter.root_reference.data
    return _Candidate(model.parameters[name], layout, block, size_bytes)


def _decide(
    candidates: Mapping[tuple[Site, int], _Candidate], mode: str
) -> dict[tuple[Site, int], ExponentCodes]:
    from headrace.flow.layouts.parameters import packed

    counts = np.zeros(256, np.int64)
    for candidate in candidates.values():
        counts += histogram(_sample(evaluate_source(candidate.source)))
    base = best_base(counts)
    needed: dict[tuple[Site, int], int] = {}
    for member, candidate in candidates.items():
        site, number = member
        operand, source = site.kernel.operands[number], candidate.source
        shape = tuple(s.value for s in operand.shape)
        laid_out = packed(source, operand.dtype, shape, candidate.layout)
        escapes = most_escapes(evaluate_source(laid_out), base, candidate.block)
        codes = ExponentCodes(candidate.block, base, escapes)
        width = operand.dtype.size_bytes
        size = codes.packed_bytes(candidate.layout.size.value, width)
        if escapes <= MOST_ESCAPES and size <= _MOST_SHARE[mode] * candidate.size_bytes:
            needed[member] = escapes
    most = max(needed.values(), default=0)
    return {member: ExponentCodes(candidates[member].block, base, most) for member in needed}


def _sample(array: np.ndarray) -> np.ndarray:
    rows = array.reshape(-1, array.shape[-1]) if array.ndim > 1 else array
    return rows[:: max(1, min(_SAMPLED, len(rows) // _SAMPLED))]
