"""The text form of a kernel: what the IR prints, what tests read, what dedupes kernels.

Softmax over rows, as printed::

    kernel(%d0 = 32) dims(batch) {
      ro x : f32[32, 10]
      wo y : f32[32, 10]
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
        fold %v4 from 0.0 with add into s
      }
      map(%d1 = 10) {
        ...
        store %v9 to y[%d0, %d1]
      }
    }

Phases that go round stand in a loop, which an i1 operand ends::

    kernel() {
      rw i : i32[]
      rw goes_on : i1[]
      while goes_on at_most 1024 likely 10 {
        map() {
          ...
          store %v3 to goes_on[]
        }
      }
    }

Floats print so that they read back bit for bit: Python's shortest decimal form, `inf`,
`-inf`, `nan`, and any other NaN as the 64 bits of a double in hexadecimal. A row-major
layout is not printed. Two kernels compute the same bits when their texts are equal
(`==` is no test: 0.0 equals -0.0).
"""

from __future__ import annotations

from headrace.kernel.text_printer import print_kernel, print_scalar, simple_combiner
from headrace.kernel.text_reader import KernelTextError, parse_kernel, read_kernel

__all__ = [
    "KernelTextError",
    "parse_kernel",
    "print_kernel",
    "print_scalar",
    "read_kernel",
    "simple_combiner",
]
