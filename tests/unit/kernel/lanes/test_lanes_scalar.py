"""Elementwise operations on lanes against the kernel stage's numpy meaning, corners first."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy_machine import NumpyMachine

from headrace.base.dtypes import BY_NAME, I1, DType
from headrace.base.errors import HeadraceError
from headrace.kernel.lanes import complex_numbers, scalar
from headrace.kernel.lanes.machine import raw_type
from headrace.kernel.scalars import apply

FLOATS = ("f32", "f64", "f16", "bf16", "f8E4M3FN", "f8E5M2")
INTEGERS = ("i64", "i32", "i16", "i8", "i4", "ui64", "ui32", "ui16", "ui8", "ui2")
FLOAT_UNARY = (
    "abs", "cbrt", "ceil", "cosine", "erf", "exponential", "exponential_minus_one", "floor",
    "is_finite", "log", "log_plus_one", "logistic", "negate", "round_nearest_afz",
    "round_nearest_even", "rsqrt", "sign", "sine", "sqrt", "tan", "tanh",
)  # fmt: skip
FLOAT_BINARY = (
    "add", "atan2", "divide", "maximum", "minimum", "multiply", "power", "remainder", "subtract",
)  # fmt: skip
INTEGER_UNARY = ("abs", "count_leading_zeros", "negate", "not", "popcnt", "sign")
INTEGER_BINARY = (
    "add", "and", "divide", "maximum", "minimum", "multiply", "or", "power", "remainder",
    "shift_left", "shift_right_arithmetic", "shift_right_logical", "subtract", "xor",
)  # fmt: skip


def corners(dtype: DType) -> Any:
    """Values where operations differ most."""
    if dtype.kind == "bool":
        return np.array([False, True])
    if dtype.is_integer:
        bits = dtype.bits
        low = -(1 << (bits - 1)) if dtype.kind == "signed" else 0
        high = (1 << (bits - (dtype.kind == "signed"))) - 1
        wanted = [low, low + 1, -7, -3, -2, -1, 0, 1, 2, 3, 5, 7, 31, 33, high - 1, high]
        kept = sorted({w for w in wanted if low <= w <= high})
        return np.array(kept, dtype.numpy_dtype)
    rng = np.random.default_rng(1)
    fixed = [
        0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, 3.0, -4.0, 12.0, 1e-3,
        100.0, -100.0, 30000.0, 1e-30, np.inf, -np.inf, np.nan,
    ]  # fmt: skip
    wide = np.concatenate([fixed, rng.uniform(-3, 3, 20)])
    with np.errstate(all="ignore"):
        return wide.astype(dtype.numpy_dtype)


def lanes_of(machine: NumpyMachine, dtype: DType, array: Any) -> scalar.Scalar:
    element = scalar.element_dtype(dtype)
    if dtype.kind == "complex":
        parts = tuple(machine.value(p.copy()) for p in (array.real, array.imag))
        return scalar.Scalar(dtype, parts)
    bits = np.ascontiguousarray(array).view(f"u{element.size_bytes}")
    if element.bits < 32:
        return scalar.decode(dtype, (machine.value(bits.astype(np.uint32)),))
    raw = machine.value(bits.view(f"u{element.size_bytes}")).bitcast(raw_type(element))
    return scalar.decode(dtype, (raw,))


def array_of(result: scalar.Scalar) -> Any:
    dtype = result.dtype
    raw = [part.handle for part in scalar.encode(result)]
    if dtype.kind == "complex":
        return raw[0] + 1j * raw[1]
    if dtype.kind == "bool":
        return raw[0].astype(bool)
    if dtype.bits < 32:
        return raw[0].astype(f"u{dtype.size_bytes}").view(dtype.numpy_dtype)
    return raw[0].view(dtype.numpy_dtype)


def check(
    operation: str, arrays: list[Any], dtypes: list[DType], result: DType, attribute: str = ""
) -> None:
    machine = NumpyMachine(len(arrays[0]))
    operands = tuple(lanes_of(machine, d, a) for d, a in zip(dtypes, arrays, strict=True))
    got = array_of(scalar.compute(operation, operands, result, attribute))
    wanted = apply(operation, arrays, result, attribute)
    if result.is_integer or result.kind == "bool":
        np.testing.assert_array_equal(got, wanted)
        return
    tolerance = {64: 2e-14, 32: 2e-6}.get(scalar.element_dtype(result).bits, 0.0)
    if result.bits < 32:
        # One step of the format: both round the same real number, give or take an f32 ulp.
        tolerance = {"f16": 1e-3, "bf16": 8e-3, "f8E4M3FN": 0.126, "f8E5M2": 0.26}[result.name]
    kind = np.complex128 if result.kind == "complex" else np.float64
    g, w = got.astype(kind), wanted.astype(kind)
    np.testing.assert_allclose(g, w, rtol=tolerance, atol=1e-38, err_msg=operation)
    if result.kind == "float" and operation != "power":
        solid = ~np.isnan(w)
        np.testing.assert_array_equal(np.signbit(g)[solid], np.signbit(w)[solid])


def pairs(dtype: DType) -> list[Any]:
    values = corners(dtype)
    left, right = np.meshgrid(values, values)
    return [left.reshape(-1), right.reshape(-1)]


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("operation", FLOAT_UNARY)
def test_float_unary(operation: str, name: str) -> None:
    dtype = BY_NAME[name]
    check(operation, [corners(dtype)], [dtype], I1 if operation == "is_finite" else dtype)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("operation", FLOAT_BINARY)
def test_float_binary(operation: str, name: str) -> None:
    dtype = BY_NAME[name]
    left, right = pairs(dtype)
    if operation in ("maximum", "minimum"):
        # numpy leaves the order of zeros of different signs open; the lanes do not.
        plain = ~((left == 0) & (right == 0))
        left, right = left[plain], right[plain]
    check(operation, [left, right], [dtype, dtype], dtype)


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("operation", INTEGER_UNARY)
def test_integer_unary(operation: str, name: str) -> None:
    dtype = BY_NAME[name]
    check(operation, [corners(dtype)], [dtype], dtype)


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("operation", INTEGER_BINARY)
def test_integer_binary(operation: str, name: str) -> None:
    dtype = BY_NAME[name]
    if name == "ui64" and operation == "shift_right_arithmetic":
        pytest.skip("numpy refuses to shift i64 by ui64")
    check(operation, pairs(dtype), [dtype, dtype], dtype)


@pytest.mark.parametrize("name", ("f32", "f64", "bf16", "i32", "i8", "ui8", "ui64", "i1"))
@pytest.mark.parametrize("direction", ("EQ", "NE", "LT", "LE", "GT", "GE"))
def test_compare(direction: str, name: str) -> None:
    dtype = BY_NAME[name]
    check("compare", pairs(dtype), [dtype, dtype], I1, direction)


@pytest.mark.parametrize(
    "operation", ("add", "and", "maximum", "minimum", "multiply", "or", "xor")
)
def test_boolean_binary(operation: str) -> None:
    check(operation, pairs(I1), [I1, I1], I1)


@pytest.mark.parametrize(
    ("source", "target"),
    list(
        itertools.permutations(
            ("f32", "f64", "f16", "bf16", "f8E4M3FN", "i64", "i32", "i8", "ui8", "ui32", "i1"),
            2,
        )
    ),
)
def test_convert(source: str, target: str) -> None:
    left, right = BY_NAME[source], BY_NAME[target]
    check("convert", [corners(left)], [left], right)


@pytest.mark.parametrize("source", ("i32", "ui32", "i64", "ui64"))
def test_large_integers_round_once_to_narrow_floats(source: str) -> None:
    dtype, half = BY_NAME[source], BY_NAME["bf16"]
    # Just above the middle of two bfloat16 values: rounding to f32 first would hide it.
    values = np.array([(257 << 20) + 1, (257 << 20), (259 << 20), (259 << 20) - 1])
    values = values.astype(dtype.numpy_dtype)
    machine = NumpyMachine(len(values))
    got = scalar.convert(lanes_of(machine, dtype, values), half)
    exact = [258 << 20, 256 << 20, 260 << 20, 258 << 20]
    np.testing.assert_array_equal(array_of(got).astype(np.float64), exact)


def test_select_clamp_and_bitcast() -> None:
    f32 = BY_NAME["f32"]
    x, y = pairs(f32)
    p = np.resize([True, False, False], len(x))
    check("select", [p, x, y], [I1, f32, f32], f32)
    ordered = ~(np.isnan(x) | np.isnan(y)) & ~((x == 0) | (y == 0))
    x, y = x[ordered], y[ordered]
    check("clamp", [np.minimum(x, 1), y, np.maximum(x, 1)], [f32] * 3, f32)
    check("bitcast_convert", [x], [f32], BY_NAME["i32"])
    check("bitcast_convert", [np.array([1, -1], np.int8)], [BY_NAME["i8"]], BY_NAME["ui8"])


def test_zeros_are_ordered() -> None:
    machine = NumpyMachine(1)
    plus, minus = (machine.constant("f32", v) for v in (0.0, -0.0))
    for left, right in ((plus, minus), (minus, plus)):
        assert not np.signbit(scalar.maximum(left, right).handle[0])
        assert np.signbit(scalar.minimum(left, right).handle[0])


@pytest.mark.parametrize("operation", sorted(complex_numbers.BINARY))
def test_complex_binary(operation: str) -> None:
    dtype = BY_NAME["complex<f64>"]
    rng = np.random.default_rng(2)
    a, b = (rng.normal(size=40) + 1j * rng.normal(size=40) for _ in range(2))
    check(operation, [a, b], [dtype, dtype], dtype)


COMPLEX_REFERENCES = {
    "cbrt": lambda z: z ** (1 / 3),
    "logistic": lambda z: 1 / (1 + np.exp(-z)),
    "rsqrt": lambda z: 1 / np.sqrt(z),
    "sign": lambda z: z / np.abs(z),
    "cosine": np.cos, "exponential": np.exp, "exponential_minus_one": np.expm1,
    "log": np.log, "log_plus_one": np.log1p, "negate": np.negative, "sine": np.sin,
    "sqrt": np.sqrt, "tan": np.tan, "tanh": np.tanh,
}  # fmt: skip


@pytest.mark.parametrize("operation", sorted(complex_numbers.UNARY))
def test_complex_unary(operation: str) -> None:
    dtype = BY_NAME["complex<f64>"]
    rng = np.random.default_rng(3)
    z = rng.normal(size=60) + 1j * rng.normal(size=60)
    z[:20] *= 1e-6
    machine = NumpyMachine(len(z))
    got = array_of(scalar.compute(operation, (lanes_of(machine, dtype, z),), dtype))
    # numpy's complex log1p loses what lies below one unit in the last place of 1.
    atol = 3e-16 if operation == "log_plus_one" else 0.0
    np.testing.assert_allclose(got, COMPLEX_REFERENCES[operation](z), rtol=3e-14, atol=atol)


def test_parts_of_complex_values() -> None:
    dtype, real = BY_NAME["complex<f32>"], BY_NAME["f32"]
    z = np.array([3 + 4j, -1e30 + 1e30j, 0j, complex(np.inf, 1)], np.complex64)
    check("abs", [z], [dtype], real)
    machine = NumpyMachine(4)
    operand = lanes_of(machine, dtype, z)
    for part in ("real", "imag"):
        got = array_of(scalar.compute(part, (operand,), real))
        np.testing.assert_array_equal(got, getattr(z, part))
    finite = scalar.compute("is_finite", (operand,), I1)
    np.testing.assert_array_equal(array_of(finite), [True, True, True, False])
    same = scalar.compute("compare", (operand, operand), I1, "EQ")
    assert array_of(same).all()
    with pytest.raises(HeadraceError, match="HR2401"):
        scalar.compute("floor", (operand,), dtype)


def test_unknown_operations_are_named() -> None:
    machine = NumpyMachine(1)
    value = scalar.literal(machine, BY_NAME["f32"], 1.0)
    with pytest.raises(HeadraceError, match=r"HR2401.*'frobnicate'"):
        scalar.compute("frobnicate", (value,), BY_NAME["f32"])
