"""How far two tensors differ, and how far they may."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.base.dtypes import DType
from headrace.kernel.description import Compute, Kernel, Phase

TOLERANCES = {"f64": 1e-9, "f32": 1e-4, "f16": 1e-2, "bf16": 3e-2}
"""Allowed error as a part of the largest magnitude: sums are folded in another order."""

_NARROW_FLOAT = 0.3
"""The same for floats of 8 bits and less: one step of theirs."""


@dataclass(frozen=True)
class Difference:
    """Two tensors that should be alike.

    Attributes:
        max_abs_error: inf where a NaN or an infinity stands on one side only.
        allowed: how much was allowed.
        index: of the worst element.
        expected, actual: its values, as text.
    """

    max_abs_error: float
    allowed: float
    index: tuple[int, ...] = ()
    expected: str = ""
    actual: str = ""

    @property
    def is_wrong(self) -> bool:
        return self.max_abs_error > self.allowed

    @property
    def data(self) -> dict[str, Any]:
        """As JSON; an infinite error is a string, as JSON has no infinity."""
        finite = np.isfinite(self.max_abs_error)
        return {
            "max_abs_error": self.max_abs_error if finite else "inf",
            "allowed": self.allowed,
            "index": list(self.index),
            "expected": self.expected,
            "actual": self.actual,
        }


def _tolerance_of(dtype: DType) -> float:
    """Allowed error of elements of this type, as a part of the largest magnitude."""
    if dtype.is_integer or dtype.kind == "bool":
        return 0.0
    base = dtype.name.removeprefix("complex<").removesuffix(">")
    return TOLERANCES.get(base, _NARROW_FLOAT)


def difference(
    expected: Any, actual: Any, dtype: DType, tolerance: float | None = None
) -> Difference:
    """The largest error of `actual`, of the same shape as `expected`.

    Integers and booleans must be equal unless a tolerance is given. NaN equals NaN.
    """
    share = _tolerance_of(dtype) if tolerance is None else tolerance
    if expected.size == 0:
        return Difference(0.0, 0.0)
    wide = np.complex128 if dtype.kind == "complex" else np.float64
    left, right = np.asarray(expected).astype(wide), np.asarray(actual).astype(wide)
    alike = (left == right) | (np.isnan(left) & np.isnan(right))
    with np.errstate(invalid="ignore", over="ignore"):
        errors = np.where(alike, 0.0, np.abs(left - right))
    errors = np.where(np.isnan(errors), np.inf, errors)
    finite = np.abs(left[np.isfinite(left)])
    allowed = share * float(finite.max()) if finite.size else 0.0
    place = tuple(int(i) for i in np.unravel_index(int(errors.argmax()), errors.shape))
    return Difference(
        float(errors[place]), allowed, place, str(expected[place]), str(actual[place])
    )


@dataclass(frozen=True)
class Judge:
    """How far elements may differ.

    Attributes:
        tolerance: what the user gave, for all.
        coarsest: of the types computed in: an f32 made of sums that were rounded to bf16
            on their way is as exact as those.
    """

    tolerance: float | None
    coarsest: float

    def difference(self, expected: Any, actual: Any, dtype: DType) -> Difference:
        """Of two tensors of one shape; integers must be equal unless the user said more."""
        own = _tolerance_of(dtype)
        given = (
            self.tolerance if self.tolerance is not None or not own else max(own, self.coarsest)
        )
        return difference(expected, actual, dtype, given)


def coarsest_of(kernels: Iterable[Kernel]) -> float:
    """The largest tolerance of the types that the kernels write and compute in."""
    return max(
        (
            _tolerance_of(dtype)
            for kernel in kernels
            for dtype in (
                *(kernel.operands[index].dtype for index in kernel.outputs),
                *(made.dtype for phase in kernel.phases for made in _computed(phase)),
            )
        ),
        default=0.0,
    )


def _computed(phase: Phase) -> Iterator[Compute]:
    combined = phase.reduction.combiner.body if phase.reduction is not None else ()
    return (op for op in (*phase.body, *combined) if isinstance(op, Compute))
