"""Accuracy and corner cases of every elementwise operation, scalar and vector."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest
from harness import GENERIC, NATIVE, Linked, copied

from headrace.base.dtypes import BY_NAME, dtype
from headrace.kernel.scalars import apply
from headrace.kernel.text import parse_kernel
from headrace.targets.cpu.target import CpuTarget

UNARY = {
    "exponential": mpmath.exp,
    "exponential_minus_one": mpmath.expm1,
    "log": mpmath.log,
    "log_plus_one": mpmath.log1p,
    "logistic": lambda x: 1 / (1 + mpmath.exp(-x)),
    "tanh": mpmath.tanh,
    "erf": mpmath.erf,
    "sine": mpmath.sin,
    "cosine": mpmath.cos,
    "tan": mpmath.tan,
    "cbrt": mpmath.cbrt,
    "sqrt": mpmath.sqrt,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
}
POSITIVE = {"log", "sqrt", "rsqrt"}
# Units in the last place.
LIMIT = {
    "f32": dict.fromkeys(UNARY, 1.0)
    | {"rsqrt": 1.5, "exponential": 2, "logistic": 3, "tanh": 3, "erf": 2.5},
    "f64": dict.fromkeys(UNARY, 2.5) | {"tanh": 4, "tan": 4, "cbrt": 1.0, "logistic": 3},
}


def unary(operation: str, source: str, result: str, target: CpuTarget = NATIVE) -> Linked:
    return Linked(
        parse_kernel(f"""
kernel(%d0 = n) dims(n) {{
  ro x : {source}[n]
  wo y : {result}[n]
  map() {{
    %v0 = load x[%d0]
    %v1 = {operation}(%v0) : {result}
    store %v1 to y[%d0]
  }}
}}
"""),
        target,
    )


def binary(operation: str, source: str, result: str = "", target: CpuTarget = NATIVE) -> Linked:
    result = result or source
    return Linked(
        parse_kernel(f"""
kernel(%d0 = n) dims(n) {{
  ro a : {source}[n]
  ro b : {source}[n]
  wo y : {result}[n]
  map() {{
    %v0 = load a[%d0]
    %v1 = load b[%d0]
    %v2 = {operation}(%v0, %v1) : {result}
    store %v2 to y[%d0]
  }}
}}
"""),
        target,
    )


def run(linked: Linked, *inputs: Any) -> Any:
    size = inputs[0].size
    out = linked.kernel.operands[-1].dtype.numpy_dtype
    buffers = copied([*inputs, np.zeros(size, out)])
    linked(buffers, {"n": size})
    return buffers[-1].copy()


def samples(operation: str, numpy_type: Any) -> Any:
    rng = np.random.default_rng(5)
    wide = 600.0 if numpy_type == np.float64 else 80.0
    values = np.concatenate(
        [
            rng.uniform(-1, 1, 150),
            rng.uniform(-10, 10, 150),
            rng.uniform(-wide, wide, 100),
            np.exp(rng.uniform(-30, 2, 50)),
            -np.exp(rng.uniform(-30, -1, 50)),
        ]
    )
    if operation in POSITIVE:
        values = np.abs(values)
    if operation == "log_plus_one":
        values = np.where(values <= -1, -values, values)
    if operation in ("sine", "cosine", "tan"):
        values = np.concatenate(
            [values, rng.uniform(1e6, 1e20, 60), -np.exp(rng.uniform(18, 80, 60))]
        )
    return values.astype(numpy_type)


def ulps(got: Any, x: Any, reference: Any) -> float:
    worst = 0.0
    with mpmath.workdps(60):
        for g, v in zip(got.tolist(), x.tolist(), strict=True):
            exact = reference(mpmath.mpf(v))
            if isinstance(exact, mpmath.mpc):
                exact = -mpmath.cbrt(-mpmath.mpf(v))
            near = got.dtype.type(float(exact))
            if not np.isfinite(near):
                assert g == near
                continue
            unit = float(np.spacing(np.abs(near)))
            worst = max(worst, abs(float((mpmath.mpf(g) - exact) / unit)))
    return worst


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("operation", sorted(UNARY))
@pytest.mark.parametrize("machine", ["v3", "generic"])
def test_accuracy(operation: str, kind: str, machine: str) -> None:
    x = samples(operation, dtype(kind).numpy_dtype)
    target = NATIVE if machine == "v3" else GENERIC
    got = run(unary(operation, kind, kind, target), x)
    slack = 1.0 if machine == "v3" else 1.6
    worst = ulps(got, x, UNARY[operation])
    assert worst <= LIMIT[kind][operation] * slack


SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    np.inf,
    -np.inf,
    np.nan,
    1e30,
    -1e30,
    1e-40,
    7.0,
]


@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize(
    "operation",
    [
        *sorted(UNARY),
        "abs",
        "ceil",
        "floor",
        "negate",
        "sign",
        "round_nearest_afz",
        "round_nearest_even",
    ],
)
def test_corner_cases(operation: str, kind: str) -> None:
    with np.errstate(all="ignore"):
        x = np.array(SPECIAL * 3).astype(dtype(kind).numpy_dtype)
    wanted = apply(operation, [x], dtype(kind))
    for target in (NATIVE, GENERIC):
        got = run(unary(operation, kind, kind, target), x)
        same_float(got, wanted)


def same_float(got: Any, wanted: Any) -> None:
    wide_got, wide_wanted = got.astype(np.float64), wanted.astype(np.float64)
    tolerance = {2: 2e-2, 4: 1e-6, 8: 1e-14}[got.dtype.itemsize]
    np.testing.assert_allclose(wide_got, wide_wanted, rtol=tolerance, atol=1e-44)
    zero = wide_wanted == 0
    np.testing.assert_array_equal(
        np.signbit(wide_got[zero]) | ~(wide_got[zero] == 0),
        np.signbit(wide_wanted[zero]) | ~(wide_got[zero] == 0),
    )


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize(
    "operation",
    [
        "add",
        "subtract",
        "multiply",
        "divide",
        "power",
        "atan2",
        "remainder",
        "maximum",
        "minimum",
    ],
)
def test_binary_floats(operation: str, kind: str) -> None:
    rng = np.random.default_rng(3)
    edge = np.array([*SPECIAL, 3.0, -3.0, 0.1, 200.0])
    a, b = (m.reshape(-1) for m in np.meshgrid(edge, edge))
    a = np.concatenate([a, rng.uniform(-20, 20, 300), rng.uniform(-1e6, 1e6, 50)])
    b = np.concatenate([b, rng.uniform(-20, 20, 300), rng.uniform(-5, 5, 50)])
    with np.errstate(all="ignore"):
        a, b = a.astype(dtype(kind).numpy_dtype), b.astype(dtype(kind).numpy_dtype)
        wanted = apply(operation, [a, b], dtype(kind))
    for target in (NATIVE, GENERIC):
        got = run(binary(operation, kind, target=target), a, b)
        if operation in ("maximum", "minimum"):  # either zero may win
            got, wanted = got + 0.0, wanted + 0.0
        np.testing.assert_allclose(got, wanted, rtol=2.5e-7 if kind == "f32" else 3e-15)


@pytest.mark.parametrize(
    "kind", ["i8", "ui8", "i16", "i32", "ui32", "i64", "ui64", "i4", "ui4"]
)
@pytest.mark.parametrize(
    "operation",
    [
        *("add", "subtract", "multiply", "divide", "remainder", "power", "maximum", "minimum"),
        *("and", "or", "xor", "shift_left", "shift_right_logical", "shift_right_arithmetic"),
    ],
)
def test_integers(operation: str, kind: str) -> None:
    element = dtype(kind)
    bits, signed = element.bits, element.kind == "signed"
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    edge = sorted(
        {low, low + 1, 0, 1, 2, 3, 5, high, high - 1, bits, bits - 1}
        | ({-1, -2} if signed else set())
    )
    edge = [e for e in edge if low <= e <= high]
    a, b = ([x for x in edge for _ in edge], edge * len(edge))
    pair = [
        np.array(v, dtype=object)
        .astype(np.int64 if signed else np.uint64)
        .astype(element.numpy_dtype)
        for v in (a, b)
    ]
    got = run(binary(operation, kind), *pair)
    if operation.startswith("shift_right"):
        # By Python's integers: kernel/scalars works in bytes, and not on unsigned ones.
        wanted = np.array(
            [shifted(operation, x, y, bits, signed) for x, y in zip(*pair, strict=True)], object
        )
    else:
        wanted = apply(operation, pair, element)
    np.testing.assert_array_equal(got.astype(object), wanted.astype(object))


def shifted(operation: str, x: Any, y: Any, bits: int, signed: bool) -> int:
    mask = (1 << bits) - 1
    value, by = int(x) & mask, int(y) & mask
    if operation == "shift_right_arithmetic" and value >> (bits - 1):
        value -= 1 << bits
    result = (value >> min(by, bits)) & mask
    return result - (1 << bits) if signed and result >> (bits - 1) else result


@pytest.mark.parametrize("kind", ["i8", "ui16", "i32", "i64"])
@pytest.mark.parametrize(
    "operation", ["abs", "sign", "negate", "not", "popcnt", "count_leading_zeros"]
)
def test_unary_integers(operation: str, kind: str) -> None:
    x = np.array([0, 1, 2, 3, 100, 127, -1, -128, -2] * 3).astype(dtype(kind).numpy_dtype)
    wanted = apply(operation, [x], dtype(kind))
    np.testing.assert_array_equal(run(unary(operation, kind, kind), x), wanted)


@pytest.mark.parametrize("direction", ["EQ", "NE", "LT", "LE", "GT", "GE"])
@pytest.mark.parametrize("kind", ["f32", "i32", "ui8", "i1"])
def test_compare(direction: str, kind: str) -> None:
    edge = np.array(SPECIAL if kind == "f32" else [0, 1, 2, 200, 255])
    a, b = (m.reshape(-1).astype(dtype(kind).numpy_dtype) for m in np.meshgrid(edge, edge))
    got = run(binary(f"compare {direction}", kind, "i1"), a, b)
    np.testing.assert_array_equal(got, apply("compare", [a, b], dtype("i1"), direction))


FLOATS = [d.name for d in BY_NAME.values() if d.is_float]

RESULTS = [*FLOATS, "i1", "i8", "ui8", "i32", "ui32", "i64", "i4", "ui4"]


@pytest.mark.parametrize("source", ["f32", "f64", "i32", "ui8", "i1", "bf16", "f16", "i64"])
def test_convert(source: str) -> None:
    """One kernel converts one type to all others."""
    rng = np.random.default_rng(1)
    edge = [300.0, 448.0, 464.0, 480.0, 65504.0, 65519.0, 65520.0, 3e9, -3e9, 2.0**63]
    values = np.concatenate(
        [
            np.array([*SPECIAL, *edge]),
            rng.uniform(-300, 300, 100),
            rng.uniform(-2, 2, 100),
            np.exp(rng.uniform(-20, 0, 40)),
        ]
    )
    outputs = "".join(f"  wo y{n} : {kind}[n]\n" for n, kind in enumerate(RESULTS))
    numbered = list(enumerate(RESULTS, 1))
    body = "".join(f"    %v{n} = convert(%v0) : {kind}\n" for n, kind in numbered)
    body += "".join(f"    store %v{n} to y{n - 1}[%d0]\n" for n, _ in numbered)
    text = f"""
kernel(%d0 = n) dims(n) {{
  ro x : {source}[n]
{outputs}  map() {{
    %v0 = load x[%d0]
{body}  }}
}}
"""
    kernel = parse_kernel(text)
    with np.errstate(all="ignore"):
        if dtype(source).is_integer or source == "i1":
            values = np.nan_to_num(np.clip(values, -(2**30), 2**30))
        x = values.astype(dtype(source).numpy_dtype)
        wanted = [apply("convert", [x], dtype(kind)) for kind in RESULTS]
    for target in (NATIVE, GENERIC):
        zeros = [np.zeros(x.size, dtype(kind).numpy_dtype) for kind in RESULTS]
        buffers = copied([x, *zeros])
        Linked(kernel, target)(buffers, {"n": x.size})
        for got, right, kind in zip(buffers[1:], wanted, RESULTS, strict=True):
            wide = np.float64 if dtype(kind).is_float else np.int64
            np.testing.assert_array_equal(got.astype(wide), right.astype(wide), err_msg=kind)


@pytest.mark.parametrize("kind", FLOATS)
def test_every_narrow_float_reads_back(kind: str) -> None:
    element = dtype(kind)
    if element.bits > 16:
        pytest.skip("not narrow")
    codes = np.arange(1 << element.bits, dtype=np.uint16 if element.bits == 16 else np.uint8)
    x = codes.view(element.numpy_dtype)
    for target in (NATIVE, GENERIC):
        got = run(unary("convert", kind, "f32", target), x)
        np.testing.assert_array_equal(got, x.astype(np.float32))


def test_bitcast() -> None:
    x = np.array([1.0, -0.0, np.inf, 3.5] * 5, np.float32)
    np.testing.assert_array_equal(
        run(unary("bitcast_convert", "f32", "i32"), x), x.view(np.int32)
    )
    h = np.array([1.0, -2.0, 0.1] * 7, np.float16)
    for target in (NATIVE, GENERIC):
        got = run(unary("bitcast_convert", "f16", "ui16", target), h)
        np.testing.assert_array_equal(got, h.view(np.uint16))
