"""What precision `tf32` means: factors of products keep ten bits of their mantissas.

Tensor cores multiply f32 so. A product of two such factors has 22 bits and is exact in f32,
and sums are f32 ones; so a sum of `n` products differs from the IEEE one by at most
`TF32_TOLERANCE` times the sum of the products' magnitudes, beside the rounding of the sum
itself. Here factors are rounded to the nearest, ties to even; a device may cut the other bits
off instead, which the tolerance allows for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.base.dtypes import F32
from headrace.kernel.classify import contraction
from headrace.kernel.description import Kernel

TF32_TOLERANCE = 2.0**-9
"""Of each product: two factors that are cut lose less than 2^-10 of themselves each."""

_DROPPED_BITS = 13


def shortened(array: Any) -> Any:
    """An array of f32 rounded to ten bits of mantissa; infinities, NaN and other types stay."""
    if array.dtype != np.float32:
        return array
    bits = array.view(np.uint32)
    even = (bits >> _DROPPED_BITS) & 1
    rounded = (bits + even + np.uint32((1 << _DROPPED_BITS - 1) - 1)) & np.uint32(
        0xFFFFFFFF << _DROPPED_BITS & 0xFFFFFFFF
    )
    return np.where(np.isfinite(array), rounded.view(np.float32), array)


def sums_products(kernel: Kernel) -> bool:
    """Whether a precision says anything of this kernel: it sums products in f32."""
    dtypes = {local.name: local.dtype for local in kernel.locals}
    return any(
        phase.reduction is not None
        and contraction(phase) is not None
        and dtypes[phase.reduction.results[0]] == F32
        for phase in kernel.phases
    )
