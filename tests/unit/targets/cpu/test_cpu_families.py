"""Which family takes which kernel, that each is right at awkward sizes, and its wishes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness import GENERIC, NATIVE, Linked, copied
from sample_kernels import LAYER_NORM_SYMBOLIC, MAX_POOL, SOFTMAX
from test_cpu_math import UNARY

from headrace.kernel.buffers import pack_operand
from headrace.kernel.description import Kernel
from headrace.kernel.interp import evaluate
from headrace.kernel.text import parse_kernel
from headrace.targets.cpu.ir_text import constant
from headrace.targets.cpu.target import CpuTarget

GELU = """
kernel(%d0 = n, %d1 = m) dims(n, m) {
  ro x : f32[n, m]
  ro b : f32[m]
  wo y : f32[n, m]
  map() {
    %v0 = load x[%d0, %d1]
    %v1 = load b[%d1]
    %v2 = add(%v0, %v1) : f32
    %v3 = constant 0.7071067811865476 : f32
    %v4 = multiply(%v2, %v3) : f32
    %v5 = erf(%v4) : f32
    %v6 = constant 1.0 : f32
    %v7 = add(%v5, %v6) : f32
    %v8 = multiply(%v2, %v7) : f32
    store %v8 to y[%d0, %d1]
  }
}
"""
RESIDUAL = """
kernel(%d0 = 2, %d1 = n, %d2 = 7, %d3 = 7) dims(n) {
  ro x : f16[2, n, 7, 7]
  rw y : f16[2, n, 7, 7]
  map() {
    %v0 = load x[%d0, %d1, %d2, %d3]
    %v1 = load y[%d0, %d1, %d2, %d3]
    %v2 = add(%v0, %v1) : f16
    store %v2 to y[%d0, %d1, %d2, %d3]
  }
}
"""
TRANSPOSE = """
kernel(%d0 = 2, %d1 = n, %d2 = m) dims(n, m) {
  ro x : f32[2, m, n]
  ro r : f32[2, n, m]
  wo y : f32[2, n, m]
  map() {
    %v0 = load x[%d0, %d2, %d1]
    %v1 = load r[%d0, %d1, %d2]
    %v2 = subtract(%v0, %v1) : f32
    store %v2 to y[%d0, %d1, %d2]
  }
}
"""
DEPTHWISE = """
kernel(%d0 = 1, %d1 = 12, %d2 = 5, %d3 = 6) {
  ro x : f32[1, 12, 10, 11] layout [1872, 1, 156, 12] offset 168 size 1872 halo [0, 0, 1, 1] [0, 0, 1, 1] value 0.0
  ro constant w : f32[12, 1, 3, 3] layout [1, 1, 36, 12] offset 0 size 108
  wo y : f32[1, 12, 5, 6] layout [672, 1, 96, 12] offset 108 size 672 halo [0, 0, 1, 1] [0, 0, 1, 1] value 0.25
  local a : f32
  reduce(%r0 = 3, %r1 = 3) {
    %v0 = load x[%d0, %d1, 2*%d2 + %r0 - 1, 2*%d3 + %r1 - 1]
    %v1 = load w[%d1, 0, %r0, %r1]
    %v2 = multiply(%v0, %v1) : f32
    fold %v2 from 0.0 with add into a
  }
  map() {
    %v3 = read a[]
    store %v3 to y[%d0, %d1, %d2, %d3]
  }
}
"""
NCHW_POOL = """
kernel(%d0 = 1, %d1 = 16, %d2 = 4, %d3 = 4) {
  ro x : f32[1, 16, 8, 8]
  wo y : f32[1, 16, 4, 4]
  local a : f32
  reduce(%r0 = 3, %r1 = 3) {
    %v0 = load x[%d0, %d1, 2*%d2 + %r0 - 1, 2*%d3 + %r1 - 1] bounded [2, 3] otherwise -inf
    fold %v0 from -inf with maximum into a
  }
  map() {
    %v1 = read a[]
    store %v1 to y[%d0, %d1, %d2, %d3]
  }
}
"""
GLOBAL = """
kernel(%d0 = 2, %d1 = 40) {
  ro x : f32[2, 40, 5, 5]
  wo y : f32[2, 40]
  local a : f32
  reduce(%r0 = 5, %r1 = 5) {
    %v0 = load x[%d0, %d1, %r0, %r1]
    fold %v0 from 0.0 with add into a
  }
  map() {
    %v1 = read a[]
    store %v1 to y[%d0, %d1]
  }
}
"""
COLUMN_SUM = """
kernel(%d0 = m) dims(n, m) {
  ro x : f32[n, m]
  wo y : f32[m]
  local a : f32
  reduce(%r0 = n) {
    %v0 = load x[%r0, %d0]
    fold %v0 from 0.5 with add into a
  }
  map() {
    %v1 = read a[]
    store %v1 to y[%d0]
  }
}
"""
REVERSE = """
kernel(%d0 = 3, %d1 = n) dims(n) {
  ro x : f32[3, n]
  wo y : f32[3, n]
  map() {
    %v0 = load x[%d0, n - 1 - %d1]
    store %v0 to y[%d0, %d1]
  }
}
"""
PAD = """
kernel(%d0 = 3, %d1 = n + 9) dims(n) {
  ro x : i8[3, n]
  wo y : i8[3, n + 9]
  map() {
    %v0 = load x[%d0, %d1 - 4] bounded [1] otherwise 7
    store %v0 to y[%d0, %d1]
  }
}
"""
SCATTER = """
kernel(%d0 = n) dims(n) {
  ro i : i32[n]
  ro x : f32[n]
  rw y : f32[n]
  map() {
    %v0 = load i[%d0]
    %v1 = load x[%d0]
    store %v1 to y[%v0]
  }
}
"""


def check(
    text: str | Kernel,
    dims: dict[str, int],
    family: str | None,
    target: CpuTarget = NATIVE,
    inputs: dict[str, Any] | None = None,
) -> None:
    kernel = parse_kernel(text) if isinstance(text, str) else text
    rng = np.random.default_rng(0)
    buffers: list[Any] = []
    for operand in kernel.operands:
        shape = [s.evaluate(dims) for s in operand.shape]
        values = (inputs or {}).get(operand.name)
        if values is None:
            values = rng.uniform(-2, 2, shape)
            if operand.dtype.is_integer:
                values = values * 20
        dense = np.asarray(values).astype(operand.dtype.numpy_dtype)
        buffers.append(pack_operand(dense, operand, dims))
        if operand.access == "wo":
            buffers[-1][...] = 99
    expected = [b.copy() for b in buffers]
    evaluate(kernel, expected, dims)
    linked = Linked(kernel, target)
    assert family in (None, linked.family(dims))
    whole = copied(buffers)
    linked(whole, dims)
    for n in kernel.outputs:
        np.testing.assert_allclose(
            whole[n].astype(np.float64), expected[n].astype(np.float64), rtol=3e-6, atol=3e-6
        )
    # Bits do not depend on how tiles are shared out.
    shared = copied(buffers)
    linked(shared, dims, parts=7)
    for n in kernel.outputs:
        assert whole[n].tobytes() == shared[n].tobytes()


@pytest.mark.parametrize("target", [NATIVE, GENERIC], ids=["v3", "generic"])
@pytest.mark.parametrize("size", [(0, 5), (1, 1), (3, 7), (2, 16), (5, 33), (2, 9000)])
def test_gelu(size: tuple[int, int], target: CpuTarget) -> None:
    check(GELU, {"n": size[0], "m": size[1]}, "map", target)


@pytest.mark.parametrize("n", [1, 3, 40])
def test_residual_in_place(n: int) -> None:
    check(RESIDUAL, {"n": n}, "map")


@pytest.mark.parametrize("target", [NATIVE, GENERIC], ids=["v3", "generic"])
@pytest.mark.parametrize("size", [(1, 1), (8, 8), (7, 9), (64, 65), (100, 130), (3, 200)])
def test_transpose(size: tuple[int, int], target: CpuTarget) -> None:
    check(TRANSPOSE, {"n": size[0], "m": size[1]}, "transpose", target)


@pytest.mark.parametrize("kind", ["i8", "f16", "bf16", "f64", "i1", "i64"])
def test_transpose_of_every_width(kind: str) -> None:
    text = TRANSPOSE.replace("f32", kind).replace(
        "subtract", "xor" if kind == "i1" else "subtract"
    )
    check(text, {"n": 20, "m": 17}, "transpose")


@pytest.mark.parametrize("target", [NATIVE, GENERIC], ids=["v3", "generic"])
@pytest.mark.parametrize("width", [1, 4, 8, 15, 16, 17, 100, 1000])
def test_rows(width: int, target: CpuTarget) -> None:
    family = "row" if width >= 16 or (target is GENERIC and width > 1) else None
    check(SOFTMAX.replace("10", str(width)), {"batch": 3}, family, target)


@pytest.mark.parametrize("width", [1, 15, 16, 17, 300])
def test_rows_of_symbolic_width(width: int) -> None:
    check(LAYER_NORM_SYMBOLIC, {"width": width}, "row")


def test_exponentials_of_a_softmax_are_computed_once() -> None:
    kernel = parse_kernel(SOFTMAX.replace("10", "160"))
    (launch,) = NATIVE.translate("k", kernel).specialisations[-1].launches
    assert launch.scratch_bytes.evaluate({}) == 640  # the row is kept
    first = float_text(0.00139336504)  # of the exponential's polynomial
    ir = NATIVE.llvm_ir("k", kernel)
    assert 0 < sum(first in line for line in ir.splitlines()) <= 1


def float_text(value: float) -> str:
    return constant("float", value).text


@pytest.mark.parametrize("target", [NATIVE, GENERIC], ids=["v3", "generic"])
def test_depthwise(target: CpuTarget) -> None:
    check(DEPTHWISE, {}, "window", target)


def test_pools() -> None:
    check(MAX_POOL, {"n": 3}, "window")
    check(NCHW_POOL, {}, "window")
    check(GLOBAL, {}, "row")


@pytest.mark.parametrize("size", [(0, 3), (1, 40), (9, 5), (20, 77)])
def test_column_sum_starts_at_its_initial_value(size: tuple[int, int]) -> None:
    check(COLUMN_SUM, {"n": size[0], "m": size[1]}, "reduce")


@pytest.mark.parametrize("n", [1, 5, 40])
def test_reverse_and_pad(n: int) -> None:
    check(REVERSE, {"n": n}, "map")
    check(PAD, {"n": n}, "map")


def test_scatter() -> None:
    order = np.random.default_rng(1).permutation(50)
    check(SCATTER, {"n": 50}, "naive", inputs={"i": order})


def test_nan_goes_through_maxima_of_every_width() -> None:
    for width in (5, 16, 40):
        kernel = parse_kernel(SOFTMAX.replace("10", str(width)))
        for place in (0, width - 1):
            x = np.zeros((2, width), np.float32)
            x[1, place] = np.nan
            buffers = copied([x.reshape(-1), np.ones(2 * width, np.float32)])
            Linked(kernel)(buffers, {"batch": 2})
            y = buffers[1].reshape(2, width)
            assert np.isfinite(y[0]).all() and np.isnan(y[1]).all()


def test_pooling_wishes_for_channels_last_with_a_halo() -> None:
    wishes = NATIVE.layout_wishes(parse_kernel(NCHW_POOL))
    assert wishes[0].order == (0, 2, 3, 1)
    assert wishes[0].halo_low == (0, 0, 1, 1) and wishes[0].halo_high == (0, 0, 0, 0)
    assert wishes[0].halo_value == -np.inf
    assert wishes[1].order == (0, 2, 3, 1)


def test_global_pooling_wishes_for_channels_last() -> None:
    assert NATIVE.layout_wishes(parse_kernel(GLOBAL))[0].order == (0, 2, 3, 1)


def test_the_same_kernel_gives_the_same_bytes() -> None:
    for text in (GELU, SOFTMAX, DEPTHWISE, TRANSPOSE):
        kernel = parse_kernel(text)
        assert NATIVE.translate("a$1", kernel) == NATIVE.translate("a$1", kernel)


def test_features_are_what_the_machine_needs() -> None:
    kernel = parse_kernel(GELU)
    assert {"avx2", "fma", "f16c"} <= set(NATIVE.translate("k", kernel).features)
    assert "avx" not in GENERIC.translate("k", kernel).features


@pytest.mark.parametrize("target", [NATIVE, GENERIC], ids=["v3", "generic"])
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_no_code_calls_out_of_its_object(kind: str, target: CpuTarget) -> None:
    """Nothing but memset and memcpy may be left to link."""
    unary = [*sorted(UNARY), "floor", "ceil", "round_nearest_afz", "round_nearest_even"]
    lines = [f"    %v{n + 1} = {o}(%v{n}) : {kind}" for n, o in enumerate(unary)]
    last = len(unary)
    for operation in ("power", "atan2", "remainder"):
        lines.append(f"    %v{last + 1} = {operation}(%v{last}, %v0) : {kind}")
        last += 1
    for result in ("f16", "i64", "ui64", kind):
        lines.append(f"    %v{last + 1} = convert(%v{last}) : {result}")
        last += 1
    body = "\n".join(lines)
    text = f"""
kernel(%d0 = n) dims(n) {{
  ro x : {kind}[n]
  wo y : {kind}[n]
  map() {{
    %v0 = load x[%d0]
{body}
    store %v{last} to y[%d0]
  }}
}}
"""
    data = target.translate("k", parse_kernel(text)).data
    assert undefined(data) <= {"memset", "memcpy"}


def undefined(data: bytes) -> set[str]:
    """Undefined symbols of a 64-bit little-endian ELF object."""
    import struct

    (section_offset,) = struct.unpack_from("<Q", data, 40)
    size, count, _ = struct.unpack_from("<3H", data, 58)
    found: set[str] = set()
    for n in range(count):
        at = section_offset + n * size
        kind, _, _, offset, length, link = struct.unpack_from("<IQQQQI", data, at + 4)
        if kind != 2:  # SHT_SYMTAB
            continue
        (strings,) = struct.unpack_from("<Q", data, section_offset + link * size + 24)
        for symbol in range(offset + 24, offset + length, 24):
            name, _, _, section = struct.unpack_from("<IBBH", data, symbol)
            if section == 0:
                end = data.index(b"\0", strings + name)
                found.add(data[strings + name : end].decode())
    return found


COMPLEX = """
kernel(%d0 = n) dims(n) {
  ro x : complex<f64>[n, 5]
  ro w : complex<f64>[n, 5]
  ro r : f64[n, 5]
  wo s : complex<f64>[n]
  wo y : complex<f64>[n, 5]
  wo m : f64[n, 5]
  wo e : i1[n, 5]
  local a : complex<f64>
  reduce(%r0 = 5) {
    %v0 = load x[%d0, %r0]
    %v1 = load w[%d0, %r0]
    %v2 = multiply(%v0, %v1) : complex<f64>
    fold %v2 from complex(0.5, -1.0) with add into a
  }
  map(%d1 = 5) {
    %v3 = load x[%d0, %d1]
    %v4 = load w[%d0, %d1]
    %v5 = divide(%v3, %v4) : complex<f64>
    %v6 = sqrt(%v5) : complex<f64>
    %v7 = exponential(%v6) : complex<f64>
    %v8 = log(%v7) : complex<f64>
    %v9 = load r[%d0, %d1]
    %v10 = convert(%v9) : complex<f64>
    %v11 = subtract(%v8, %v10) : complex<f64>
    %v12 = compare EQ(%v3, %v10) : i1
    %v13 = select(%v12, %v3, %v11) : complex<f64>
    %v14 = abs(%v13) : f64
    store %v13 to y[%d0, %d1]
    store %v14 to m[%d0, %d1]
    store %v12 to e[%d0, %d1]
  }
  map() {
    %v15 = read a[]
    store %v15 to s[%d0]
  }
}
"""


@pytest.mark.parametrize("n", [1, 9, 40])
def test_complex(n: int) -> None:
    kernel = parse_kernel(COMPLEX)
    rng = np.random.default_rng(n)
    buffers: list[Any] = []
    for operand in kernel.operands:
        shape = [s.evaluate({"n": n}) for s in operand.shape]
        values = rng.uniform(-2, 2, shape)
        if operand.dtype.kind == "complex":
            values = values + 1j * rng.uniform(-2, 2, shape)
        buffers.append(values.astype(operand.dtype.numpy_dtype).reshape(-1))
    expected = [b.copy() for b in buffers]
    evaluate(kernel, expected, {"n": n})
    actual = copied(buffers)
    Linked(kernel)(actual, {"n": n})
    for got, wanted in zip(actual, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-13, atol=1e-13)
