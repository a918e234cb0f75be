"""Kernels of every kind that targets must turn into code, with inputs for them.

Written by hand in the kernel's text form. `Sample.buffers` makes seeded inputs in the
operands' layouts, `Sample.expected` what `kernel/interp.py` computes from them.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from headrace.kernel.buffers import pack_operand
from headrace.kernel.description import Kernel, Operand
from headrace.kernel.interp import evaluate
from headrace.kernel.text import parse_kernel


@dataclass(frozen=True)
class Sample:
    """One kernel with its dimensions and the ranges of its inputs.

    Attributes:
        dims: values of the named dimensions for runs.
        ranges: low and high (exclusive for integers) per operand, where the default
            (-2 to 2; integers -100 to 100; of booleans the high one is how often they hold)
            does not fit.
        tolerance: relative to the largest expected magnitude.
    """

    name: str
    text: str
    dims: dict[str, int] = field(default_factory=dict[str, int])
    ranges: dict[str, tuple[float, float]] = field(
        default_factory=dict[str, tuple[float, float]]
    )
    tolerance: float = 2e-6

    @cached_property
    def kernel(self) -> Kernel:
        return parse_kernel(self.text)

    def buffers(self) -> list[Any]:
        """Flat arrays per operand: inputs packed, outputs filled with a pattern."""
        rng = np.random.default_rng(zlib.crc32(self.name.encode()))
        made: list[Any] = []
        for operand in self.kernel.operands:
            shape = tuple(s.evaluate(self.dims) for s in operand.shape)
            values = self._values(rng, operand, shape)
            if operand.access == "wo":
                size = operand.layout.size.evaluate(self.dims)
                made.append(np.ones(size, operand.dtype.numpy_dtype))
            else:
                made.append(pack_operand(values, operand, self.dims))
        return made

    def _values(self, rng: Any, operand: Operand, shape: tuple[int, ...]) -> Any:
        dtype = operand.dtype
        if dtype.kind == "bool":
            return rng.random(shape) < self.ranges.get(operand.name, (0.0, 0.5))[1]
        if dtype.is_integer:
            low, high = self.ranges.get(operand.name, (-100, 100))
            if dtype.kind == "unsigned":
                low = max(low, 0)
            return rng.integers(int(low), int(high), shape).astype(dtype.numpy_dtype)
        low, high = self.ranges.get(operand.name, (-2.0, 2.0))
        values = rng.uniform(low, high, shape)
        if dtype.kind == "complex":
            values = values + 1j * rng.uniform(low, high, shape)
        return values.astype(dtype.numpy_dtype)

    def expected(self, buffers: list[Any]) -> list[Any]:
        """The buffers after the kernel."""
        copies = [b.copy() for b in buffers]
        evaluate(self.kernel, copies, self.dims)
        return copies


def assert_close(sample: Sample, actual: list[Any], expected: list[Any]) -> None:
    """Outputs equal within the sample's tolerance; integers and booleans exactly."""
    for number in sample.kernel.outputs:
        operand = sample.kernel.operands[number]
        # Padding of the last panel of a tiled layout belongs to nobody.
        got, wanted = actual[number], expected[number]
        if operand.dtype.is_integer or operand.dtype.kind == "bool":
            np.testing.assert_array_equal(got, wanted, err_msg=sample.name)
            continue
        wide = np.complex128 if operand.dtype.kind == "complex" else np.float64
        got, wanted = got.astype(wide), wanted.astype(wide)
        finite = np.abs(wanted[np.isfinite(wanted)])
        scale = float(finite.max()) if finite.size else 1.0
        np.testing.assert_allclose(
            got,
            wanted,
            rtol=sample.tolerance,
            atol=sample.tolerance * scale,
            err_msg=sample.name,
        )


MATMUL = """
kernel(%d0 = batch, %d1 = 20) dims(batch) {
  ro x : f32[batch, 24]
  ro constant w : f32[24, 20] layout [16, 384 tile 16 by 1] offset 0 size 768
  ro constant b : f32[20]
  wo y : f32[batch, 20]
  local a : f32
  reduce(%r0 = 24) {
    %v0 = load x[%d0, %r0]
    %v1 = load w[%r0, %d1]
    %v2 = multiply(%v0, %v1) : f32
    fold %v2 from 0.0 with add into a
  }
  map() {
    %v3 = read a[]
    %v4 = load b[%d1]
    %v5 = add(%v3, %v4) : f32
    %v6 = constant 0.0 : f32
    %v7 = maximum(%v5, %v6) : f32
    store %v7 to y[%d0, %d1]
  }
}
"""

CONVOLUTION_BOUNDED = """
kernel(%d0 = 2, %d1 = 4, %d2 = 5, %d3 = 6) {
  ro x : f32[2, 3, 10, 12]
  ro constant w : f32[4, 3, 3, 3]
  ro constant b : f32[4]
  wo y : f32[2, 4, 5, 6]
  local a : f32
  reduce(%r0 = 3, %r1 = 3, %r2 = 3) {
    %v0 = load x[%d0, %r0, 2*%d2 + %r1 - 1, 2*%d3 + %r2 - 1] bounded [2, 3] otherwise 0.0
    %v1 = load w[%d1, %r0, %r1, %r2]
    %v2 = multiply(%v0, %v1) : f32
    fold %v2 from 0.0 with add into a
  }
  map() {
    %v3 = read a[]
    %v4 = load b[%d1]
    %v5 = add(%v3, %v4) : f32
    %v6 = constant 0.0 : f32
    %v7 = maximum(%v5, %v6) : f32
    store %v7 to y[%d0, %d1, %d2, %d3]
  }
}
"""

# NHWC with a halo of 1 on both sides: no bounds, and the output writes a halo of its own.
CONVOLUTION_HALO = """
kernel(%d0 = n, %d1 = 4, %d2 = 6, %d3 = 6) dims(n) {
  ro x : f32[n, 3, 6, 6] layout [192, 1, 24, 3] offset 27 size 192*n halo [0, 0, 1, 1] [0, 0, 1, 1] value 0.0
  ro constant w : f32[4, 3, 3, 3] layout [432 tile 16 by 1, 16, 144, 48] offset 0 size 432
  wo y : f32[n, 4, 6, 6] layout [256, 1, 32, 4] offset 36 size 256*n halo [0, 0, 1, 1] [0, 0, 1, 1] value 0.0
  local a : f32
  reduce(%r0 = 3, %r1 = 3, %r2 = 3) {
    %v0 = load x[%d0, %r0, %d2 + %r1 - 1, %d3 + %r2 - 1]
    %v1 = load w[%d1, %r0, %r1, %r2]
    %v2 = multiply(%v0, %v1) : f32
    fold %v2 from 0.0 with add into a
  }
  map() {
    %v3 = read a[]
    store %v3 to y[%d0, %d1, %d2, %d3]
  }
}
"""

SOFTMAX = """
kernel(%d0 = batch) dims(batch) {
  ro x : f32[batch, 10]
  wo y : f32[batch, 10]
  local m : f32
  local s : f32
  reduce(%r0 = 10) {
    %v0 = load x[%d0, %r0]
    fold %v0 from -inf with maximum into m
  }
  reduce(%r0 = 10) {
    %v1 = load x[%d0, %r0]
    %v2 = read m[]
    %v3 = subtract(%v1, %v2) : f32
    %v4 = exponential(%v3) : f32
    fold %v4 from 0.5 with add into s
  }
  map(%d1 = 10) {
    %v5 = load x[%d0, %d1]
    %v6 = read m[]
    %v7 = subtract(%v5, %v6) : f32
    %v8 = exponential(%v7) : f32
    %v9 = read s[]
    %v10 = divide(%v8, %v9) : f32
    store %v10 to y[%d0, %d1]
  }
}
"""

# The centred row is kept in an array local: small and static, or of symbolic size.
LAYER_NORM = """
kernel(%d0 = 4) {
  ro x : f32[4, 6]
  wo y : f32[4, 6]
  local s : f32
  local c : f32[6]
  local q : f32
  reduce(%r0 = 6) {
    %v0 = load x[%d0, %r0]
    fold %v0 from 0.0 with add into s
  }
  map(%d1 = 6) {
    %v1 = load x[%d0, %d1]
    %v2 = read s[]
    %v3 = constant 6.0 : f32
    %v4 = divide(%v2, %v3) : f32
    %v5 = subtract(%v1, %v4) : f32
    set c[%d1] = %v5
  }
  reduce(%r0 = 6) {
    %v6 = read c[%r0]
    %v7 = multiply(%v6, %v6) : f32
    fold %v7 from 0.0 with add into q
  }
  map(%d1 = 6) {
    %v8 = read c[%d1]
    %v9 = read q[]
    %v10 = constant 6.0 : f32
    %v11 = divide(%v9, %v10) : f32
    %v12 = constant 0.00001 : f32
    %v13 = add(%v11, %v12) : f32
    %v14 = rsqrt(%v13) : f32
    %v15 = multiply(%v8, %v14) : f32
    store %v15 to y[%d0, %d1]
  }
}
"""
LAYER_NORM_SYMBOLIC = (
    LAYER_NORM.replace("kernel(%d0 = 4)", "kernel(%d0 = 4) dims(width)")
    .replace("[4, 6]", "[4, width]")
    .replace("c : f32[6]", "c : f32[width]")
    .replace("(%r0 = 6)", "(%r0 = width)")
    .replace("(%d1 = 6)", "(%d1 = width)")
)

# Attention of one query: scores over keys in an array local, reduced over an inner axis.
ATTENTION = """
kernel(%d0 = 2, %d1 = seq) dims(seq) {
  ro q : f32[2, seq, 8]
  ro k : f32[2, seq, 8]
  ro v : f32[2, seq, 8]
  wo y : f32[2, seq, 8]
  local p : f32[seq]
  local m : f32
  local s : f32
  local o : f32[8]
  reduce(%d2 = seq, %r0 = 8) {
    %v0 = load q[%d0, %d1, %r0]
    %v1 = load k[%d0, %d2, %r0]
    %v2 = multiply(%v0, %v1) : f32
    fold %v2 from 0.0 with add into p
  }
  reduce(%r0 = seq) {
    %v3 = read p[%r0]
    fold %v3 from -inf with maximum into m
  }
  map(%d2 = seq) {
    %v4 = read p[%d2]
    %v5 = read m[]
    %v6 = subtract(%v4, %v5) : f32
    %v7 = exponential(%v6) : f32
    set p[%d2] = %v7
  }
  reduce(%r0 = seq) {
    %v8 = read p[%r0]
    fold %v8 from 0.0 with add into s
  }
  reduce(%d2 = 8, %r0 = seq) {
    %v9 = read p[%r0]
    %v10 = load v[%d0, %r0, %d2]
    %v11 = multiply(%v9, %v10) : f32
    fold %v11 from 0.0 with add into o
  }
  map(%d2 = 8) {
    %v12 = read o[%d2]
    %v13 = read s[]
    %v14 = divide(%v12, %v13) : f32
    store %v14 to y[%d0, %d1, %d2]
  }
}
"""

MAX_POOL = """
kernel(%d0 = n, %d1 = 3, %d2 = 4, %d3 = 4) dims(n) {
  ro x : f32[n, 3, 8, 8]
  wo y : f32[n, 3, 4, 4] layout [108, 1, 18, 3] offset 21 size 108*n halo [0, 0, 1, 1] [0, 0, 1, 1] value -inf
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

GLOBAL_AVERAGE_POOL = """
kernel(%d0 = 2, %d1 = 3) dims(h) {
  ro x : f32[2, 3, h, h]
  wo y : f32[2, 3]
  local a : f32
  reduce(%r0 = h, %r1 = h) {
    %v0 = load x[%d0, %d1, %r0, %r1]
    fold %v0 from 0.0 with add into a
  }
  map() {
    %v1 = read a[]
    %v2 = index [h*h] : i32
    %v3 = convert(%v2) : f32
    %v4 = divide(%v1, %v3) : f32
    store %v4 to y[%d0, %d1]
  }
}
"""

GATHER = """
kernel(%d0 = seq, %d1 = 8) dims(seq) {
  ro ids : i64[seq]
  ro constant table : f32[20, 8]
  wo y : f32[seq, 8]
  map() {
    %v0 = load ids[%d0]
    %v1 = load table[max(min(%v0, 19), 0), %d1]
    store %v1 to y[%d0, %d1]
  }
}
"""

CONCATENATE = """
kernel(%d0 = 3, %d1 = n + 5) dims(n) {
  ro a : f32[3, n]
  ro b : f32[3, 5]
  wo y : f32[3, n + 5]
  map() {
    %v0 = index [%d1] : i32
    %v1 = index [n] : i32
    %v2 = compare LT(%v0, %v1) : i1
    %v3 = load a[%d0, %d1] bounded [1] otherwise 0.0
    %v4 = load b[%d0, %d1 - n] bounded [1] otherwise 0.0
    %v5 = select(%v2, %v3, %v4) : f32
    store %v5 to y[%d0, %d1]
  }
}
"""

ARG_MAX = """
kernel(%d0 = 3) {
  ro x : f32[3, 7]
  wo y : i32[3]
  wo z : f32[3]
  local m : f32
  local i : i32
  reduce(%r0 = 7) {
    %v0 = load x[%d0, %r0]
    %v1 = index [%r0] : i32
    fold %v0, %v1 from -inf, 0 with (%a0, %a1) (%b0, %b1) {
      %c0 = compare GE(%a0, %b0) : i1
      %c1 = select(%c0, %a0, %b0) : f32
      %c2 = select(%c0, %a1, %b1) : i32
    } giving %c1, %c2 into m, i
  }
  map() {
    %v2 = read i[]
    %v3 = read m[]
    store %v2 to y[%d0]
    store %v3 to z[%d0]
  }
}
"""

CASTS = """
kernel(%d0 = 40) {
  ro x : f32[40]
  wo b : bf16[40]
  wo h : f16[40]
  wo i : i8[40]
  wo u : ui8[40]
  wo p : i1[40]
  wo e : f8E4M3FN[40]
  map() {
    %v0 = load x[%d0]
    %v1 = convert(%v0) : bf16
    %v2 = convert(%v0) : f16
    %v3 = convert(%v0) : i8
    %v4 = convert(%v0) : ui8
    %v5 = constant 0.25 : f32
    %v6 = compare GT(%v0, %v5) : i1
    %v7 = convert(%v0) : f8E4M3FN
    store %v1 to b[%d0]
    store %v2 to h[%d0]
    store %v3 to i[%d0]
    store %v4 to u[%d0]
    store %v6 to p[%d0]
    store %v7 to e[%d0]
  }
}
"""

HALF_ARITHMETIC = """
kernel(%d0 = 33) {
  ro x : f16[33]
  ro w : bf16[33]
  wo y : f16[33]
  wo z : bf16[33]
  map() {
    %v0 = load x[%d0]
    %v1 = tanh(%v0) : f16
    %v2 = add(%v1, %v0) : f16
    %v3 = load w[%d0]
    %v4 = exponential(%v3) : bf16
    %v5 = multiply(%v4, %v3) : bf16
    store %v2 to y[%d0]
    store %v5 to z[%d0]
  }
}
"""

INTEGERS = """
kernel(%d0 = 50) {
  ro a : i32[50]
  ro b : i32[50]
  ro c : i8[50]
  ro d : ui8[50]
  wo s : i32[50]
  wo t : i8[50]
  wo u : ui8[50]
  wo v : i32[50]
  map() {
    %v0 = load a[%d0]
    %v1 = load b[%d0]
    %v2 = divide(%v0, %v1) : i32
    %v3 = remainder(%v0, %v1) : i32
    %v4 = multiply(%v0, %v0) : i32
    %v5 = add(%v2, %v3) : i32
    %v6 = xor(%v5, %v4) : i32
    %v7 = load c[%d0]
    %v8 = multiply(%v7, %v7) : i8
    %v9 = negate(%v8) : i8
    %v10 = load d[%d0]
    %v11 = constant 3 : ui8
    %v12 = shift_left(%v10, %v11) : ui8
    %v13 = popcnt(%v12) : ui8
    %v14 = subtract(%v13, %v10) : ui8
    %v15 = shift_right_arithmetic(%v0, %v1) : i32
    %v16 = abs(%v0) : i32
    %v17 = count_leading_zeros(%v16) : i32
    %v18 = sign(%v1) : i32
    %v19 = add(%v17, %v15) : i32
    %v20 = add(%v19, %v18) : i32
    store %v6 to s[%d0]
    store %v9 to t[%d0]
    store %v14 to u[%d0]
    store %v20 to v[%d0]
  }
}
"""

LONG_INTEGERS = """
kernel(%d0 = 30) {
  ro a : i64[30]
  ro b : ui64[30]
  wo y : i64[30]
  wo z : ui64[30]
  wo f : f64[30]
  map() {
    %v0 = load a[%d0]
    %v1 = constant 4294967297 : i64
    %v2 = multiply(%v0, %v1) : i64
    %v3 = load b[%d0]
    %v4 = constant 40 : ui64
    %v5 = shift_left(%v3, %v4) : ui64
    %v6 = convert(%v2) : f64
    %v7 = exponential(%v6) : f64
    %v8 = logistic(%v7) : f64
    store %v2 to y[%d0]
    store %v5 to z[%d0]
    store %v8 to f[%d0]
  }
}
"""

SELECTS = """
kernel(%d0 = 3, %d1 = n) dims(n) {
  ro p : i1[n]
  ro x : f32[3, n]
  ro y : f32[3, n]
  rw z : f32[3, n]
  map() {
    %v0 = load p[%d1]
    %v1 = load x[%d0, %d1]
    %v2 = load y[%d0, %d1]
    %v3 = load z[%d0, %d1]
    %v4 = select(%v0, %v1, %v2) : f32
    %v5 = compare LE(%v4, %v3) : i1
    %v6 = not(%v0) : i1
    %v7 = and(%v5, %v6) : i1
    %v8 = select(%v7, %v3, %v4) : f32
    %v9 = clamp(%v2, %v8, %v1) : f32
    store %v9 to z[%d0, %d1]
  }
}
"""

# Reshape and transpose folded into indices: floordiv and mod, of symbolic sizes too.
RESHAPE = """
kernel(%d0 = 6*n) dims(n) {
  ro x : f32[n, 2, 3]
  wo y : f32[6*n]
  map() {
    %v0 = load x[%d0 mod n, (%d0 floordiv n) floordiv 3, (%d0 floordiv n) mod 3]
    store %v0 to y[%d0]
  }
}
"""

# Negative numerators: floor, not truncation.
FLOOR_INDICES = """
kernel(%d0 = 24) {
  ro x : f32[16]
  wo y : f32[24]
  map() {
    %v0 = load x[(%d0 - 9) floordiv 4 + 3 + (%d0 - 9) mod 5]
    store %v0 to y[%d0]
  }
}
"""

ELEMENTARY = """
kernel(%d0 = 200) {
  ro x : f32[200]
  ro w : f32[200]
  wo y : f32[200]
  wo z : f32[200]
  map() {
    %v0 = load x[%d0]
    %v1 = load w[%d0]
    %v2 = erf(%v0) : f32
    %v3 = tanh(%v0) : f32
    %v4 = sine(%v0) : f32
    %v5 = cosine(%v0) : f32
    %v6 = log(%v1) : f32
    %v7 = log_plus_one(%v1) : f32
    %v8 = power(%v1, %v0) : f32
    %v9 = atan2(%v0, %v1) : f32
    %v10 = cbrt(%v0) : f32
    %v11 = exponential_minus_one(%v0) : f32
    %v12 = logistic(%v0) : f32
    %v13 = round_nearest_even(%v0) : f32
    %v14 = ceil(%v0) : f32
    %v15 = sign(%v0) : f32
    %v16 = remainder(%v0, %v1) : f32
    %v17 = add(%v2, %v3) : f32
    %v18 = add(%v17, %v4) : f32
    %v19 = add(%v18, %v5) : f32
    %v20 = add(%v19, %v6) : f32
    %v21 = add(%v20, %v7) : f32
    %v22 = add(%v21, %v8) : f32
    %v23 = add(%v9, %v10) : f32
    %v24 = add(%v23, %v11) : f32
    %v25 = add(%v24, %v12) : f32
    %v26 = add(%v25, %v13) : f32
    %v27 = add(%v26, %v14) : f32
    %v28 = add(%v27, %v15) : f32
    %v29 = add(%v28, %v16) : f32
    store %v22 to y[%d0]
    store %v29 to z[%d0]
  }
}
"""

SCALAR = """
kernel() {
  ro x : f32[5]
  wo y : f32[]
  local a : f32
  reduce(%r0 = 5) {
    %v0 = load x[%r0]
    fold %v0 from 1.0 with multiply into a
  }
  map() {
    %v1 = read a[]
    store %v1 to y[]
  }
}
"""

INTEGER_DOT = """
kernel(%d0 = 4, %d1 = 5) {
  ro x : ui8[4, 9]
  ro constant w : i8[9, 5]
  wo y : i32[4, 5]
  local a : i32
  reduce(%r0 = 9) {
    %v0 = load x[%d0, %r0]
    %v1 = convert(%v0) : i32
    %v2 = load w[%r0, %d1]
    %v3 = convert(%v2) : i32
    %v4 = multiply(%v1, %v3) : i32
    fold %v4 from 0 with add into a
  }
  map() {
    %v5 = read a[]
    store %v5 to y[%d0, %d1]
  }
}
"""

COMPLEX = """
kernel(%d0 = 9) {
  ro x : complex<f32>[9]
  ro w : complex<f32>[9]
  wo y : complex<f32>[9]
  wo m : f32[9]
  map() {
    %v0 = load x[%d0]
    %v1 = load w[%d0]
    %v2 = multiply(%v0, %v1) : complex<f32>
    %v3 = add(%v2, %v0) : complex<f32>
    %v4 = abs(%v3) : f32
    store %v3 to y[%d0]
    store %v4 to m[%d0]
  }
}
"""

# More array elements than a lane keeps to itself, of types that need care in scratch.
WIDE_LOCALS = """
kernel(%d0 = 3) {
  ro x : f64[3, 600]
  wo y : f64[3, 600]
  local c : f64[600]
  local b : i1[600]
  map(%d1 = 600) {
    %v0 = load x[%d0, %d1]
    %v1 = constant 0.5 : f64
    %v2 = compare GT(%v0, %v1) : i1
    set c[%d1] = %v0
    set b[%d1] = %v2
  }
  map(%d1 = 600) {
    %v3 = read c[599 - %d1]
    %v4 = read b[%d1]
    %v5 = constant 0.0 : f64
    %v6 = select(%v4, %v3, %v5) : f64
    store %v6 to y[%d0, %d1]
  }
}
"""

# Updates that meet, in the order in which they stand; some fall outside.
SCATTER = """
kernel(%d0 = 70) {
  ro x : f32[9, 70]
  ro i : i32[12]
  ro u : f32[12, 70]
  wo y : f32[9, 70]
  map(%d1 = 9) {
    %v0 = load x[%d1, %d0]
    store %v0 to y[%d1, %d0]
  }
  serial(%d1 = 12) {
    %v1 = load i[%d1]
    %v2 = load y[%v1, %d0] bounded [0] otherwise 0.0
    %v3 = load u[%d1, %d0]
    %v4 = subtract(%v3, %v2) : f32
    store %v4 to y[%v1, %d0] bounded [0]
  }
}
"""

# Places counted for each element, then elements put there.
SORT = """
kernel(%d0 = 5) {
  ro x : i32[5, 40]
  wo y : i32[5, 40]
  local rank : i64[40]
  reduce(%d1 = 40, %r0 = 40) {
    %v0 = load x[%d0, %d1]
    %v1 = load x[%d0, %r0]
    %v2 = compare LT(%v1, %v0) : i1
    %v3 = compare EQ(%v1, %v0) : i1
    %v4 = index [%r0] : i64
    %v5 = index [%d1] : i64
    %v6 = compare LT(%v4, %v5) : i1
    %v7 = and(%v3, %v6) : i1
    %v8 = or(%v2, %v7) : i1
    %v9 = convert(%v8) : i64
    fold %v9 from 0 with add into rank
  }
  map(%d1 = 40) {
    %v10 = load x[%d0, %d1]
    %v11 = read rank[%d1]
    store %v10 to y[%d0, %v11]
  }
}
"""

OUTER_PRODUCT = """
kernel(%d0 = 2, %d1 = batch, %d2 = 24) dims(batch) {
  ro k : f32[2, 3, batch]
  ro v : f32[2, 3, 24]
  rw y : f32[2, batch, 24]
  local a : f32
  reduce(%r0 = 1) {
    %v0 = load k[%d0, 1, %d1]
    %v1 = load v[%d0, 1, %d2]
    %v2 = multiply(%v0, %v1) : f32
    fold %v2 from 0.0 with add into a
  }
  map() {
    %v3 = load y[%d0, %d1, %d2]
    %v4 = read a[]
    %v5 = add(%v3, %v4) : f32
    store %v5 to y[%d0, %d1, %d2]
  }
}
"""
"""Its one term stands in no index: padded to a tile's depth it would count more than once."""

SAMPLES: tuple[Sample, ...] = (
    Sample("matmul", MATMUL, {"batch": 7}),
    Sample("convolution_bounded", CONVOLUTION_BOUNDED),
    Sample("convolution_halo", CONVOLUTION_HALO, {"n": 2}),
    Sample("softmax", SOFTMAX, {"batch": 70}),
    Sample("layer_norm", LAYER_NORM),
    Sample("layer_norm_symbolic", LAYER_NORM_SYMBOLIC, {"width": 6}),
    Sample("attention", ATTENTION, {"seq": 5}),
    Sample("max_pool", MAX_POOL, {"n": 2}),
    Sample("global_average_pool", GLOBAL_AVERAGE_POOL, {"h": 5}),
    Sample("gather", GATHER, {"seq": 11}, {"ids": (0, 20)}),
    Sample("concatenate", CONCATENATE, {"n": 4}),
    Sample("arg_max", ARG_MAX),
    Sample("casts", CASTS, ranges={"x": (-300.0, 300.0)}),
    Sample("half_arithmetic", HALF_ARITHMETIC),
    Sample("integers", INTEGERS, ranges={"b": (-5, 6)}),
    Sample("long_integers", LONG_INTEGERS, tolerance=1e-14),
    Sample("selects", SELECTS, {"n": 30}),
    Sample("reshape", RESHAPE, {"n": 5}),
    Sample("floor_indices", FLOOR_INDICES),
    Sample("elementary", ELEMENTARY, ranges={"w": (0.1, 4.0)}),
    Sample("scalar", SCALAR),
    Sample("integer_dot", INTEGER_DOT),
    Sample("complex", COMPLEX),
    Sample("wide_locals", WIDE_LOCALS),
    Sample("scatter", SCATTER, ranges={"i": (-2, 12)}),
    Sample("outer_product", OUTER_PRODUCT, {"batch": 19}),
    Sample("sort", SORT, ranges={"x": (-9, 9)}),
)
