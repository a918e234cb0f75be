"""Floats narrower than 32 bits, encoded and decoded with integer operations.

Rounding is to nearest, ties to even, in integers, so it is the same on every device
whatever its float modes. What a format does with infinities, NaN and -0 follows ml_dtypes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.base.dtypes import DType
from headrace.kernel.lanes.machine import BITS, UNSIGNED_OF, MachineType, Value


@dataclass(frozen=True)
class Format:
    """A binary float format.

    Attributes:
        exponent_bits, mantissa_bits, bias: as usual; one sign bit above them.
        special: `ieee` (infinities and NaN in the top exponent), `fn` (only all ones is
            NaN, overflow gives it), `fnuz` (the bits of -0 are NaN, no -0), `finite` (no
            infinity, no NaN; overflow saturates).
    """

    exponent_bits: int
    mantissa_bits: int
    bias: int
    special: Literal["ieee", "fn", "fnuz", "finite"]

    @property
    def bits(self) -> int:
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def sign_bit(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def nan(self) -> int:
        """The NaN that conversion makes (formats that have one)."""
        if self.special == "fnuz":
            return self.sign_bit
        if self.special == "ieee":
            top = (1 << self.exponent_bits) - 1
            return top << self.mantissa_bits | 1 << (self.mantissa_bits - 1)
        return self.sign_bit - 1

    @property
    def largest(self) -> int:
        """The bits of the largest finite value."""
        if self.special == "ieee":
            return (((1 << self.exponent_bits) - 1) << self.mantissa_bits) - 1
        return self.sign_bit - (2 if self.special == "fn" else 1)


FORMATS: dict[str, Format] = {
    "f16": Format(5, 10, 15, "ieee"),
    "bf16": Format(8, 7, 127, "ieee"),
    "f8E5M2": Format(5, 2, 15, "ieee"),
    "f8E4M3": Format(4, 3, 7, "ieee"),
    "f8E3M4": Format(3, 4, 3, "ieee"),
    "f8E4M3FN": Format(4, 3, 7, "fn"),
    "f8E4M3FNUZ": Format(4, 3, 8, "fnuz"),
    "f8E4M3B11FNUZ": Format(4, 3, 11, "fnuz"),
    "f8E5M2FNUZ": Format(5, 2, 16, "fnuz"),
    "f6E2M3FN": Format(2, 3, 1, "finite"),
    "f6E3M2FN": Format(3, 2, 3, "finite"),
    "f4E2M1FN": Format(2, 1, 1, "finite"),
}
"""Per MLIR name; `f8E8M0FNU` (no sign, no mantissa) has functions of its own."""


def decode(dtype: DType, bits: Value) -> Value:
    """The `f32` that the low bits of a `u32` mean in that format; exact."""
    native = bits.machine.native_decode(dtype, bits)
    if native is not None:
        return native
    if dtype.name == "bf16":
        return (bits << 16).bitcast("f32")
    if dtype.name == "f8E8M0FNU":
        return _decode_exponent(bits & 0xFF)
    fmt = FORMATS[dtype.name]
    sign = (bits & fmt.sign_bit) << (32 - fmt.bits)
    rest = bits & (fmt.sign_bit - 1)
    exponent = rest >> fmt.mantissa_bits
    mantissa = rest & ((1 << fmt.mantissa_bits) - 1)
    normal = (rest << (23 - fmt.mantissa_bits)) + ((127 - fmt.bias) << 23)
    # A subnormal is its mantissa as a number, scaled; both steps are exact.
    tiny = mantissa.to("f32") * 2.0 ** (1 - fmt.bias - fmt.mantissa_bits)
    magnitude = exponent.eq(0).select(tiny.bits, normal)
    if fmt.special == "ieee":
        top = exponent.eq((1 << fmt.exponent_bits) - 1)
        infinite = (mantissa << (23 - fmt.mantissa_bits)) | 0x7F800000
        magnitude = top.select(infinite, magnitude)
    result = magnitude | sign
    if fmt.special == "fn":
        return rest.eq(fmt.nan).select(result | 0x7FC00000, result).bitcast("f32")
    if fmt.special == "fnuz":
        whole = bits & ((1 << fmt.bits) - 1)
        return whole.eq(fmt.nan).select(result | 0x7FC00000, result).bitcast("f32")
    return result.bitcast("f32")


def encode(dtype: DType, value: Value) -> Value:
    """The bits (`u32`) of an `f32` or `f64` in that format, rounded to nearest even."""
    native = value.machine.native_encode(dtype, value)
    if native is not None:
        return native
    if dtype.name == "f8E8M0FNU":
        return _encode_exponent(value)
    return _encode(FORMATS[dtype.name], value)


def rounded(dtype: DType, value: Value) -> Value:
    """An `f32` rounded to what the format can hold, still an `f32`."""
    return decode(dtype, encode(dtype, value))


def _encode(fmt: Format, value: Value) -> Value:
    wide: MachineType = UNSIGNED_OF[value.type]
    width = BITS[value.type]
    source_mantissa, source_bias = (23, 127) if width == 32 else (52, 1023)
    bits = value.bits
    magnitude = bits & ((1 << (width - 1)) - 1)
    sign = ((bits >> (width - fmt.bits)) & fmt.sign_bit).to("u32")
    drop = source_mantissa - fmt.mantissa_bits
    exponent = (magnitude >> source_mantissa).to("i32")
    hidden_bit = exponent.gt(0)
    exponent = hidden_bit.select(exponent, 1)
    # How many bits go: more for results below the normal range, at most all of them.
    below = (source_bias - fmt.bias + 1) - exponent
    below = below.gt(0).select(below, 0)
    below = below.gt(fmt.mantissa_bits + 2).select(
        value.machine.constant("i32", fmt.mantissa_bits + 2), below
    )
    fraction = magnitude & ((1 << source_mantissa) - 1)
    hidden = hidden_bit.select(fraction | (1 << source_mantissa), fraction)
    shift = (below + drop).to(wide)
    one = value.machine.constant(wide, 1)
    half_less = (one << (shift - 1)) - 1
    odd = (hidden >> shift) & 1
    kept = ((hidden + half_less + odd) >> shift).to("u32")
    # `kept` holds the hidden bit; adding the exponent less one lets a carry move it up.
    biased = exponent - (source_bias - fmt.bias + 1)
    biased = biased.gt(0).select(biased, 0).to("u32")
    normal = kept + (biased << fmt.mantissa_bits)
    is_nan = magnitude.gt(((1 << (width - 1 - source_mantissa)) - 1) << source_mantissa)
    # Far too large exponents would leave the field: they overflow as a whole.
    huge = exponent.ge(source_bias - fmt.bias + (1 << fmt.exponent_bits))
    over = huge | normal.gt(fmt.largest)
    if fmt.special == "finite":
        result = over.select(value.machine.constant("u32", fmt.largest), normal) | sign
        return is_nan.select(sign ^ fmt.sign_bit, result)
    nan = value.machine.constant("u32", fmt.nan)
    if fmt.special == "ieee":
        infinity = value.machine.constant("u32", fmt.largest + 1)
        result = over.select(infinity, normal)
        return is_nan.select(nan, result) | sign
    if fmt.special == "fn":
        return (is_nan | over).select(nan, normal) | sign
    signed = normal.eq(0).select(normal, normal | sign)
    return (is_nan | over).select(nan, signed)


def _decode_exponent(bits: Value) -> Value:
    normal = bits << 23
    smallest = bits.eq(0).select(bits.machine.constant("u32", 1 << 22), normal)
    return bits.eq(0xFF).select(smallest | 0x7FC00000, smallest).bitcast("f32")


def _encode_exponent(value: Value) -> Value:
    machine = value.machine
    mantissa, bias, width = (23, 127, 32) if value.type == "f32" else (52, 1023, 64)
    bits = value.bits
    exponent = ((bits >> mantissa) & ((1 << (width - 1 - mantissa)) - 1)).to("i32")
    fraction = bits & ((1 << mantissa) - 1)
    target = exponent - (bias - 127)
    # Without a mantissa the last bit is the hidden one, always odd: ties go up.
    up = fraction.ge(1 << (mantissa - 1))
    target = up.select(target + 1, target)
    target = target.lt(0).select(machine.constant("i32", 0), target)
    bad = target.gt(254) | bits.ge(1 << (width - 1)) | bits.eq(0)
    return bad.select(machine.constant("i32", 255), target).to("u32")
