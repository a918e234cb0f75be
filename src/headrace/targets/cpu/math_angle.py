"""Reduction of large angles modulo pi/2 (Payne and Hanek, 1983), per lane.

Where |x| is above 2**27 (2**18 without fma) a few parts of pi/2 do not suffice; the product of x with 192
bits of 2/pi, taken from where they matter, does.
"""

from __future__ import annotations

import math
from functools import cache

from headrace.targets.cpu.ir_text import Function, Value, constant, integer, mangled, width_of

_NAME = "headrace_large_angle"
_WORDS = 24


@cache
def _two_over_pi() -> tuple[int, ...]:
    """64 zero bits, then the fraction bits of 2/pi, in 64-bit words."""
    bits = 64 * (_WORDS + 1)
    one = 1 << (bits + 64)

    def arctan_inverse(n: int) -> int:
        total = term = one // n
        square, k, sign = n * n, 3, -1
        while term:
            term //= square
            total += sign * (term // k)
            k, sign = k + 2, -sign
        return total

    pi = 4 * (4 * arctan_inverse(5) - arctan_inverse(239))  # Machin's formula
    fraction = (2 * one << bits) // pi
    words = [(fraction >> (bits - 64 * (i + 1))) & ((1 << 64) - 1) for i in range(_WORDS - 1)]
    return (0, *words)


def _helper(f: Function) -> None:
    """Emits `{ double r, i64 n } headrace_large_angle(double x)` once."""
    module = f.module
    if module.has_function(_NAME):
        return
    table = module.table(_NAME + "_bits", "i64", _two_over_pi())
    g = Function(module, _NAME, [("double", "x")], result="{ double, i64 }", internal=True)
    (x,) = g.parameters
    bits = g.bitcast(x, "i64")
    exponent = g.binary("and", g.binary("lshr", bits, 52), 0x7FF)
    mantissa = g.binary("and", bits, (1 << 52) - 1)
    mantissa = g.binary("or", mantissa, 1 << 52)
    # Small angles come along in a vector of large ones; their lanes are not used.
    position = g.maximum(g.sub(exponent, 1075 + 2 - 64), 0)
    word = g.binary("lshr", position, 6)
    shift = g.binary("and", position, 63)
    parts = [g.load("i64", g.element(table, g.add(word, i), 8), 8) for i in range(4)]
    p2, p1, p0 = (
        g.intrinsic("llvm.fshl.i64", "i64", parts[i], parts[i + 1], shift) for i in range(3)
    )
    wide = g.cast("zext", mantissa, "i128")
    t0 = g.binary("mul", wide, g.cast("zext", p0, "i128"))
    t1 = g.binary("mul", wide, g.cast("zext", p1, "i128"))
    t1 = g.binary("add", t1, g.binary("lshr", t0, 64))
    t2 = g.binary("mul", mantissa, p2)
    t2 = g.binary("add", t2, g.cast("trunc", g.binary("lshr", t1, 64), "i64"))
    w1, w0 = g.cast("trunc", t1, "i64"), g.cast("trunc", t0, "i64")
    n = g.binary("lshr", t2, 62)
    two = integer(2)
    high = g.intrinsic("llvm.fshl.i64", "i64", t2, w1, two)
    low = g.intrinsic("llvm.fshl.i64", "i64", w1, w0, two)
    negative = g.compare("slt", high, 0)
    n = g.add(n, g.cast("zext", negative, "i64"))
    both = g.binary(
        "or", g.binary("shl", g.cast("zext", high, "i128"), 64), g.cast("zext", low, "i128")
    )
    both = g.select(negative, g.binary("sub", constant("i128", 0), both), both)
    zeros = g.intrinsic("llvm.ctlz.i128", "i128", both, constant("i1", 0))
    top = g.cast("trunc", g.binary("lshr", g.binary("shl", both, zeros), 64), "i64")
    r = g.cast("uitofp", top, "double")
    # r * 2**(-64 - zeros): the exponent is built directly.
    scale = g.sub(1023 - 64, g.cast("trunc", zeros, "i64"))
    r = g.mul(r, g.bitcast(g.binary("shl", scale, 52), "double"))
    r = g.mul(r, math.pi / 2)
    below = g.compare("slt", bits, 0)
    flip = g.binary("xor", negative, below)
    r = g.select(flip, g.neg(r), r)
    n = g.select(below, g.sub(0, n), n)
    pair = g.emit("{ double, i64 }", f"insertvalue {{ double, i64 }} poison, {r}, 0")
    pair = g.emit("{ double, i64 }", f"insertvalue {{ double, i64 }} {pair.text}, {n}, 1")
    g.finish(pair)


def reduce_large(f: Function, x: Value, r: Value, n: Value) -> tuple[Value, Value]:
    """(r, n) with the lanes of large x replaced; infinite lanes hold anything."""
    _helper(f)
    magnitude = f.intrinsic(f"llvm.fabs.{mangled(x.type)}", x.type, x)
    large = f.compare("ogt", magnitude, 2.0**27 if f.has_fma else 2.0**18)
    large = f.binary("and", large, f.compare("olt", magnitude, math.inf))
    width = width_of(x.type)
    any_large = large
    if width > 1:
        any_large = f.compare("ne", f.bitcast(large, f"i{width}"), 0)

    def replace() -> list[Value]:
        new_r, new_n = r, n
        for lane in range(width):
            pair = f.call(_NAME, "{ double, i64 }", f.extract(x, lane))
            lane_r = f.emit("double", f"extractvalue {pair}, 0")
            lane_n = f.emit("i64", f"extractvalue {pair}, 1")
            if width == 1:
                return [lane_r, lane_n]
            new_r = f.insert(new_r, lane_r, lane)
            new_n = f.insert(new_n, lane_n, lane)
        return [f.select(large, new_r, r), f.select(large, new_n, n)]

    replaced = f.branch(any_large, replace, lambda: [r, n])
    return replaced[0], replaced[1]
