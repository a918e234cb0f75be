"""Element types: how they stand in memory and what they are computed in.

f16, bf16 and the narrower floats are stored narrow and computed in f32; a `convert`
rounds. Integers are computed in LLVM integers of their own width (sub-byte ones stand
in a byte each); i1 is a byte of 0 or 1.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from headrace.base.dtypes import DType
from headrace.base.errors import error
from headrace.kernel.description import Scalar
from headrace.targets.cpu.ir_text import (
    Function,
    Value,
    constant,
    is_float,
    vector_type,
    width_of,
)
from headrace.targets.cpu.machine import Machine


def check_supported(dtype: DType) -> None:
    """Raises HeadraceError HR2431 for a type the CPU target has no code for."""
    if dtype.kind == "complex":
        raise error(
            "HR2431",
            f"the cpu target has no code for {dtype.name} elements",
            helps="split the tensor into its real and imaginary part",
        )


def compute_type(dtype: DType) -> str:
    """LLVM's type that values of `dtype` are computed in."""
    check_supported(dtype)
    if dtype.kind == "bool":
        return "i1"
    if dtype.is_float:
        return "double" if dtype.bits == 64 else "float"
    return f"i{dtype.bits}"


def memory_type(dtype: DType, machine: Machine) -> str:
    """LLVM's type of an element in memory."""
    if dtype.name == "f16":
        return "half" if machine.has("f16c") else "i16"
    if dtype.is_float and dtype.bits < 32:
        return "i16" if dtype.bits == 16 else "i8"
    if dtype.kind == "bool" or dtype.bits < 8:
        return "i8"
    return compute_type(dtype)


def scalar_constant(dtype: DType, value: Scalar, width: int = 1) -> Value:
    """A constant as it is computed with: narrow floats are rounded to their type first."""
    type_ = vector_type(compute_type(dtype), width)
    if isinstance(value, complex):
        raise error("HR2431", "the cpu target has no code for complex elements")
    if dtype.kind == "bool":
        return constant(type_, bool(value))
    if dtype.is_float:
        if dtype.bits < 32:
            import numpy as np

            return constant(
                type_, float(np.asarray(value, np.float64).astype(dtype.numpy_dtype))
            )
        return constant(type_, float(value))
    wrapped = int(value) & ((1 << dtype.bits) - 1)
    return constant(
        type_, wrapped - (1 << dtype.bits) if wrapped >> (dtype.bits - 1) else wrapped
    )


def decode(f: Function, dtype: DType, raw: Value, machine: Machine) -> Value:
    """Elements as they stand in memory, to what they are computed in."""
    if dtype.kind == "bool":
        return f.compare("ne", raw, 0)
    if dtype.is_integer:
        return f.cast("trunc", raw, f"i{dtype.bits}")
    if dtype.bits >= 32:
        return raw
    if dtype.name == "bf16":
        return _as_float(f, f.binary("shl", f.cast("zext", raw, "i32"), 16))
    if dtype.name == "f16":
        return f.cast("fpext", raw, "float") if machine.has("f16c") else _decode_f16(f, raw)
    return _decode_table(f, dtype, raw)


def encode(f: Function, dtype: DType, value: Value, machine: Machine) -> Value:
    """What is computed, to elements as they stand in memory (rounded to nearest even)."""
    if dtype.kind == "bool":
        return f.cast("zext", value, "i8")
    if dtype.is_integer:
        if dtype.bits >= 8:
            return value
        return f.cast("sext" if dtype.kind == "signed" else "zext", value, "i8")
    if dtype.bits >= 32:
        return value
    if dtype.name == "bf16":
        return _encode_bf16(f, value)
    if dtype.name == "f16":
        if machine.has("f16c"):
            return f.cast("fptrunc", value, "half")
        return _encode_f16(f, value)
    return _encode_small(f, dtype, value)


def round_to(f: Function, dtype: DType, value: Value, machine: Machine) -> Value:
    """An f32 value rounded to a narrower float type, still in f32."""
    if not dtype.is_float or dtype.bits >= 32:
        return value
    return decode(f, dtype, encode(f, dtype, value, machine), machine)


# -- conversions by bits --------------------------------------------------------


def _as_bits(f: Function, value: Value) -> Value:
    return f.bitcast(value, vector_type("i32", width_of(value.type)))


def _as_float(f: Function, bits: Value) -> Value:
    return f.bitcast(bits, vector_type("float", width_of(bits.type)))


def _encode_bf16(f: Function, value: Value) -> Value:
    bits = _as_bits(f, value)
    odd = f.binary("and", f.binary("lshr", bits, 16), 1)
    rounded = f.binary("lshr", f.add(f.add(bits, 0x7FFF), odd), 16)
    quiet = f.binary("or", f.binary("lshr", bits, 16), 0x40)
    return f.cast("trunc", f.select(f.compare("uno", value, value), quiet, rounded), "i16")


def _decode_f16(f: Function, raw: Value) -> Value:
    bits = f.cast("zext", raw, "i32")
    sign = f.binary("shl", f.binary("and", bits, 0x8000), 16)
    rest = f.binary("shl", f.binary("and", bits, 0x7FFF), 13)
    # The multiplication moves the bias, and makes small numbers normal.
    scaled = _as_bits(f, f.mul(_as_float(f, rest), 2.0**112))
    special = f.compare("uge", f.binary("and", bits, 0x7FFF), 0x7C00)
    scaled = f.select(special, f.binary("or", rest, 0x7F800000), scaled)
    return _as_float(f, f.binary("or", scaled, sign))


def _encode_f16(f: Function, value: Value) -> Value:
    return f.cast("trunc", _encode_bits(f, value, 5, 10, 15, 0x7C00, 0x7C00, 0x7E00), "i16")


def _encode_bits(
    f: Function,
    value: Value,
    exponent_bits: int,
    mantissa_bits: int,
    bias: int,
    over: int,
    infinite: int,
    nan: int,
) -> Value:
    """f32 to sign, exponent and mantissa bits, as i32.

    `over`, `infinite` and `nan` are the codes (without sign) of a finite value too
    large, of infinity and of NaN.
    """
    all_bits = _as_bits(f, value)
    bits = f.binary("and", all_bits, 0x7FFFFFFF)
    sign = f.binary("lshr", all_bits, 31)
    drop = 23 - mantissa_bits
    odd = f.binary("and", f.binary("lshr", bits, drop), 1)
    rounded = f.add(f.add(bits, (1 << (drop - 1)) - 1), odd)
    normal = f.sub(f.binary("lshr", rounded, drop), (127 - bias) << mantissa_bits)
    # Below the normal numbers an addition rounds at the right place.
    magic = constant(value.type, 2.0 ** (1 - bias - mantissa_bits + 23))
    small = f.sub(_as_bits(f, f.add(_as_float(f, bits), magic)), _as_bits(f, magic))
    border = (127 + 1 - bias) << 23
    code = f.select(f.compare("ult", bits, border), small, normal)
    code = f.select(
        f.compare("uge", code, _first_over(exponent_bits, mantissa_bits, over)), over, code
    )
    code = f.select(f.compare("uge", bits, 0x7F800000), infinite, code)
    code = f.select(f.compare("ugt", bits, 0x7F800000), nan, code)
    return f.binary("or", code, f.binary("shl", sign, exponent_bits + mantissa_bits))


def _first_over(exponent_bits: int, mantissa_bits: int, over: int) -> int:
    """The least code that is too large: infinity's where the type has one."""
    return min(over, 1 << (exponent_bits + mantissa_bits))


def _codes(dtype: DType) -> Any:
    """The f32 value of each of the codes of a narrow float."""
    import numpy as np

    codes = np.arange(1 << dtype.bits, dtype=np.uint8).view(dtype.numpy_dtype)
    return codes.astype(np.float32)


def _decode_table(f: Function, dtype: DType, raw: Value) -> Value:
    table = f.module.table(f"headrace_{dtype.name}", "float", [float(v) for v in _codes(dtype)])
    width = width_of(raw.type)
    index = f.cast("zext", raw, "i64")
    if dtype.bits < 8:
        index = f.binary("and", index, (1 << dtype.bits) - 1)
    result = Value(vector_type("float", width), "poison")
    for lane in range(width):
        loaded = f.load("float", f.element(table, f.extract(index, lane), 4), 4)
        if width == 1:
            return loaded
        result = f.insert(result, loaded, lane)
    return result


def _encode_small(f: Function, dtype: DType, value: Value) -> Value:
    """f32 to an 8, 6 or 4-bit float by searching the borders between its values.

    Borders are half-way points; at one the even code is taken. A binary search takes at
    most 9 steps whatever the format is.
    """
    if not is_float(value.type):
        raise AssertionError("only floats are encoded as narrow floats")
    name = f"headrace_to_{dtype.name}"
    if not f.module.has_function(name):
        _emit_search(f, dtype, name)
    width = width_of(value.type)
    result = Value(vector_type("i8", width), "poison")
    for lane in range(width):
        code = f.call(name, "i8", f.extract(value, lane))
        if width == 1:
            return code
        result = f.insert(result, code, lane)
    return result


def _emit_search(f: Function, dtype: DType, name: str) -> None:
    import numpy as np

    def code(value: float) -> int:
        with np.errstate(all="ignore"):
            wide = np.asarray(value, np.float32).astype(dtype.numpy_dtype)
        return int(wide.view(np.uint8))

    values = _codes(dtype)
    has_sign = code(-1.0) != code(float("nan")) and float(values[code(-1.0)]) == -1.0
    finite = sorted(
        (float(v), i)
        for i, v in enumerate(values)
        if np.isfinite(v) and v >= 0 and not np.signbit(v)
    )
    # Of +0 and -0 only +0 is in the list. Borders are decided by the reference encoder.
    borders: list[float] = []
    for (low, low_code), (high, _) in pairwise(finite):
        middle = np.float32((low + high) / 2)
        stays = code(float(middle)) == low_code
        borders.append(float(np.nextafter(middle, np.float32(np.inf)) if stays else middle))

    def first(bits_low: int, bits_high: int, wanted: int) -> float:
        """The least f32, by bits, that has the code; found by bisection."""
        while bits_high - bits_low > 1:
            middle_bits = (bits_low + bits_high) // 2
            if code(float(np.uint32(middle_bits).view(np.float32))) == wanted:
                bits_high = middle_bits
            else:
                bits_low = middle_bits
        return float(np.uint32(bits_high).view(np.float32))

    codes = [c for _, c in finite]
    if code(0.0) != codes[0]:  # a type without a zero
        least = int(np.float32(finite[0][0]).view(np.uint32))
        borders.insert(0, first(0, least, codes[0]))
        codes.insert(0, code(0.0))
    over = code(float(np.finfo(np.float32).max))
    if over != codes[-1]:
        greatest = int(np.float32(finite[-1][0]).view(np.uint32))
        borders.append(first(greatest, 0x7F7FFFFF, over))
        codes.append(over)
    steps = (len(codes) - 1).bit_length()
    size = 1 << steps
    borders += [float("inf")] * (size - len(borders))
    codes += [codes[-1]] * (size - len(codes))
    border_table = f.module.table(name + "_borders", "float", borders)
    code_table = f.module.table(name + "_codes", "i8", codes)
    g = Function(f.module, name, [("float", "x")], result="i8", internal=True)
    (x,) = g.parameters
    magnitude = g.intrinsic("llvm.fabs.f32", "float", x)
    index: Value = constant("i64", 0)
    for step in range(steps - 1, -1, -1):
        tried = g.add(index, 1 << step)
        border = g.load("float", g.element(border_table, g.sub(tried, 1), 4), 4)
        index = g.select(g.compare("oge", magnitude, border), tried, index)
    result = g.load("i8", g.element(code_table, index, 1), 1)
    result = g.select(g.compare("oeq", magnitude, float("inf")), code(float("inf")), result)
    bits = g.bitcast(x, "i32")
    negative = g.compare("slt", bits, 0)
    if has_sign:
        sign_bit = 1 << (dtype.bits - 1)
        zero_code, minus_zero = code(0.0), code(-0.0)
        flipped = g.binary("or", result, sign_bit)
        if minus_zero == zero_code:  # no negative zero: small negatives become 0
            flipped = g.select(g.compare("eq", result, zero_code), result, flipped)
    else:
        flipped = constant("i8", code(-1.0))
    result = g.select(negative, flipped, result)
    result = g.select(g.compare("oeq", x, float("-inf")), code(float("-inf")), result)
    result = g.select(g.compare("uno", x, x), code(float("nan")), result)
    g.finish(result)
