"""Elementary functions within a few units in the last place; formats bit for bit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy_machine import NumpyMachine

from headrace.base.dtypes import BY_NAME
from headrace.kernel.lanes import elementary, formats
from headrace.kernel.lanes.remainder import remainder

REFERENCES: dict[str, Any] = {
    "acos": math.acos, "acosh": math.acosh, "asin": math.asin, "asinh": math.asinh,
    "atan": math.atan, "atanh": math.atanh, "cbrt": math.cbrt, "cosh": math.cosh,
    "cosine": math.cos, "erf": math.erf, "exponential": math.exp,
    "exponential_minus_one": math.expm1, "log": math.log, "log_plus_one": math.log1p,
    "sine": math.sin, "sinh": math.sinh, "tan": math.tan, "tanh": math.tanh,
}  # fmt: skip


def _arguments(name: str, dtype: Any) -> Any:
    rng = np.random.default_rng(4)
    small = rng.standard_normal(300) * 10.0 ** rng.uniform(-30, 0, 300)
    x = np.concatenate([rng.uniform(-1, 1, 300), rng.uniform(-9, 9, 300), small])
    if name in ("sine", "cosine", "tan"):
        huge = 10.0 ** rng.uniform(0, 38 if dtype == np.float32 else 300, 300)
        x = np.concatenate([x, huge, np.arange(1, 100) * np.pi / 2])
    elif name in ("exponential", "tanh", "sinh", "cosh"):
        x = np.concatenate([x, rng.uniform(-85, 85, 300)])
    elif name == "log":
        x = np.abs(np.concatenate([x, 1 + rng.uniform(-1e-3, 1e-3, 300)]))
    elif name == "log_plus_one":
        x = np.where(x <= -1, -x, x)
    elif name in ("acos", "asin", "atanh"):
        x = np.clip(x, -0.9999, 0.9999)
    elif name == "acosh":
        x = 1 + np.abs(x)
    return x.astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", REFERENCES)
def test_within_four_units_in_the_last_place(name: str, dtype: Any) -> None:
    x = _arguments(name, dtype)
    got = elementary.UNARY[name](NumpyMachine(len(x)).value(x)).handle
    wanted = np.array([REFERENCES[name](float(v)) for v in x])
    with np.errstate(all="ignore"):
        unit = np.spacing(np.abs(wanted).astype(dtype)).astype(np.float64)
        units = np.abs(got.astype(np.float64) - wanted) / unit
    assert got.dtype == dtype
    assert units.max() <= 4, f"{units.max():.1f} units at {x[units.argmax()]!r}"


def test_special_values() -> None:
    inf, nan = math.inf, math.nan
    table = {
        "exponential": ([inf, -inf, nan, 0.0, 89.0, -110.0], [inf, 0.0, nan, 1.0, inf, 0.0]),
        "log": ([0.0, -0.0, -1.0, inf, nan, 1.0], [-inf, -inf, nan, inf, nan, 0.0]),
        "log_plus_one": ([-1.0, -2.0, inf, -0.0], [-inf, nan, inf, -0.0]),
        "tanh": ([inf, -inf, nan, -0.0, 1e-40], [1.0, -1.0, nan, -0.0, 1e-40]),
        "erf": ([inf, -inf, nan, -0.0], [1.0, -1.0, nan, -0.0]),
        "sine": ([inf, nan, -0.0], [nan, nan, -0.0]),
        "cosine": ([-inf, 0.0], [nan, 1.0]),
        "cbrt": ([inf, -inf, -0.0, 27.0], [inf, -inf, -0.0, 3.0]),
        "logistic": ([inf, -inf, nan, 0.0], [1.0, 0.0, nan, 0.5]),
        "round_nearest_even": ([0.5, 1.5, -0.5, -2.5, 0.49999997], [0.0, 2.0, -0.0, -2.0, 0.0]),
        "round_nearest_afz": ([0.5, 1.5, -0.5, -2.5, 0.49999997], [1.0, 2.0, -1.0, -3.0, 0.0]),
    }
    for name, (arguments, wanted) in table.items():
        x = np.array(arguments, np.float32)
        got = elementary.UNARY[name](NumpyMachine(len(x)).value(x)).handle
        expected = np.array(wanted, np.float32)
        np.testing.assert_array_equal(got, expected, err_msg=name)
        solid = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(got)[solid], np.signbit(expected)[solid], name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_power_is_accurate_for_large_exponents(dtype: Any) -> None:
    rng = np.random.default_rng(5)
    x = (1 + rng.uniform(-1e-3, 1e-3, 500)).astype(dtype)
    y = rng.uniform(-4e4, 4e4, 500).astype(dtype)
    machine = NumpyMachine(500)
    got = elementary.power(machine.value(x), machine.value(y)).handle.astype(np.float64)
    wanted = np.array([math.pow(a, b) for a, b in zip(x, y, strict=True)])
    assert (np.abs(got / wanted - 1) < 4 * np.finfo(dtype).eps).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_remainder_is_exact(dtype: Any) -> None:
    rng = np.random.default_rng(6)
    x, y = (
        (rng.standard_normal(400) * 10.0 ** rng.uniform(-37, 37, 400)).astype(dtype)
        for _ in range(2)
    )
    machine = NumpyMachine(400)
    got = remainder(machine.value(x), machine.value(y)).handle
    np.testing.assert_array_equal(got, np.fmod(x, y))


@pytest.mark.parametrize("name", [*formats.FORMATS, "f8E8M0FNU"])
def test_narrow_floats_match_ml_dtypes(name: str) -> None:
    dtype = BY_NAME[name]
    storage = "u1" if dtype.bits <= 8 else "u2"
    every = np.arange(1 << dtype.bits, dtype=np.uint32)
    meant = every.astype(storage).view(dtype.numpy_dtype).astype(np.float32)
    decoded = formats.decode(dtype, NumpyMachine(len(every)).value(every)).handle
    np.testing.assert_array_equal(decoded, meant)

    finite = np.unique(meant[np.isfinite(meant)])
    with np.errstate(all="ignore"):
        middles = ((finite[1:].astype(np.float64) + finite[:-1]) / 2).astype(np.float32)
        rng = np.random.default_rng(7)
        noise = rng.standard_normal(3000) * 2.0 ** rng.integers(-30, 20, 3000)
        x = np.concatenate(
            [finite, middles, np.nextafter(middles, np.inf), np.nextafter(middles, -np.inf),
             noise, [np.inf, -np.inf, np.nan, -0.0, 3e38, 65520.0, 448.0, 464.0, 465.0]]
        ).astype(np.float32)  # fmt: skip
        if name == "f8E8M0FNU":
            x = x[np.abs(x) >= 2.0**-126]  # subnormals are nobody's business here
        wanted = x.astype(dtype.numpy_dtype)
    got = formats.encode(dtype, NumpyMachine(len(x)).value(x)).handle
    actual = got.astype(storage).view(dtype.numpy_dtype).astype(np.float32)
    np.testing.assert_array_equal(actual, wanted.astype(np.float32))


def test_double_rounds_once_to_half() -> None:
    # Above the middle by less than f32 resolves: rounding through f32 would tie to even.
    x = np.array([1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11, 1 + 2.0**-11 - 2.0**-40])
    got = formats.rounded(BY_NAME["f16"], NumpyMachine(3).value(x)).handle
    np.testing.assert_array_equal(got, np.array([1 + 2.0**-10, 1, 1], np.float32))
