"""How a test's `check.*` compares two tensors: exactly, by units in the last place, nearly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST_ULP = 3
"""`expect_close` without `max_ulp_difference`."""
NEAR = 1e-3
"""`expect_almost_eq` without `tolerance`, absolute."""
NEAR_EQ = 1e-4
"""`check.eq` of floats, absolute."""


def difference(
    kind: str, actual: Any, expected: Any, attributes: Mapping[str, Any]
) -> str | None:
    """What is wrong with `actual`, in one line; None where the check holds.

    Args:
        kind: `eq`, `expect_eq`, `expect_close` or `expect_almost_eq`.
        actual, expected: numpy arrays.
        attributes: `tolerance`, `min_ulp_difference`, `max_ulp_difference`.
    """
    import numpy as np

    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return (
            f"{actual.dtype}{list(actual.shape)} computed, "
            f"{expected.dtype}{list(expected.shape)} expected"
        )
    if actual.dtype.kind == "c":
        parts = ((actual.real, expected.real), (actual.imag, expected.imag))
        good = np.logical_and(*(_holds(kind, a, e, attributes) for a, e in parts))
    else:
        good = _holds(kind, actual, expected, attributes)
    if bool(np.all(good)):
        return None
    wrong = np.argwhere(~np.atleast_1d(good))
    at = tuple(int(i) for i in wrong[0])
    found, wanted = np.atleast_1d(actual)[at], np.atleast_1d(expected)[at]
    place = list(at) if actual.ndim else []
    return f"{len(wrong)} of {actual.size} elements differ; {place}: {found!s}, not {wanted!s}"


def _holds(kind: str, actual: Any, expected: Any, attributes: Mapping[str, Any]) -> Any:
    import numpy as np

    floating = actual.dtype.kind in "fV" and actual.dtype.names is None
    if not floating or _is_small_integer(actual.dtype):
        return np.equal(actual, expected)
    both_nan = np.isnan(actual.astype(np.float64)) & np.isnan(expected.astype(np.float64))
    if kind == "expect_eq":
        return both_nan | np.equal(actual, expected)
    if kind == "expect_close":
        least = int(attributes.get("min_ulp_difference", 0))
        most = int(attributes.get("max_ulp_difference", MOST_ULP))
        steps = ulp_distance(actual, expected)
        return both_nan | ((steps >= least) & (steps <= most))
    default = NEAR_EQ if kind == "eq" else NEAR
    tolerance = float(attributes.get("tolerance", default))
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        return both_nan | (a == e) | (np.abs(a - e) <= tolerance)


def _is_small_integer(dtype: Any) -> bool:
    return dtype.name in ("int4", "uint4", "int2", "uint2", "int1", "uint1")


def ulp_distance(left: Any, right: Any) -> Any:
    """How many values of the type lie from one to the other; huge beside a lone NaN.

    Zeros of both signs are the same value.
    """
    import numpy as np

    a, b = _ordered(left), _ordered(right)
    # In float64: enough to tell a handful of steps from many, and it cannot wrap.
    far = np.abs(a.astype(np.float64) - b.astype(np.float64))
    with np.errstate(over="ignore"):
        near = np.abs(a - b)
    steps = np.where(far < 2.0**52, near, np.int64(2**62))
    lone = np.isnan(left.astype(np.float64)) != np.isnan(right.astype(np.float64))
    return np.where(lone, np.int64(2**62), steps)


def _ordered(values: Any) -> Any:
    """The bits of floats as integers that grow with the value."""
    import numpy as np

    width = values.dtype.itemsize
    bits = np.ascontiguousarray(values).view(f"i{width}").reshape(values.shape)
    least = np.int64(-(1 << (8 * width - 1)))
    wide = bits.astype(np.int64)
    return np.where(wide < 0, least - wide, wide)
