"""Every elementwise operation of the tensor stage, on scalars and vectors alike.

Meanings and corner cases are StableHLO's: `maximum` and `minimum` carry NaN on, integer
division by zero gives all ones, shifts by the width or more give zeros (or the sign),
floats convert to integers with saturation. Where StableHLO leaves a choice, XLA's is
taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from headrace.base.dtypes import DType
from headrace.base.errors import error
from headrace.targets.cpu import math_f32, math_f64
from headrace.targets.cpu.ir_text import (
    Function,
    Value,
    constant,
    element_of,
    integer_type_of,
    is_float,
    mangled,
    vector_type,
    width_of,
)
from headrace.targets.cpu.machine import Machine
from headrace.targets.cpu.storage import compute_type, decode, encode, memory_type, round_to

_Unary = Callable[[Function, Value], Value]

_F32: dict[str, _Unary] = {
    "exponential": math_f32.exponential,
    "logistic": math_f32.logistic,
    "tanh": math_f32.tanh,
    "erf": math_f32.erf,
}
_F64: dict[str, _Unary] = {
    "exponential": math_f64.exponential,
    "exponential_minus_one": math_f64.exponential_minus_one,
    "log": math_f64.log,
    "log_plus_one": math_f64.log_plus_one,
    "logistic": math_f64.logistic,
    "tanh": math_f64.tanh,
    "erf": math_f64.erf,
    "sine": math_f64.sine,
    "cosine": math_f64.cosine,
    "tan": math_f64.tan,
    "cbrt": math_f64.cbrt,
}
IN_F32 = frozenset((*_F32, "divide", "sqrt", "rsqrt"))
"""Expensive operations that f32 has code of its own for; others go through f64."""
EXACT = frozenset(
    (
        "abs",
        "bitcast_convert",
        "ceil",
        "clamp",
        "convert",
        "copy",
        "floor",
        "maximum",
        "minimum",
        "negate",
        "remainder",
        "round_nearest_afz",
        "round_nearest_even",
        "select",
        "sign",
    )
)
"""Operations whose result is a value of the operands' float type (or rounds itself)."""
LANE_BY_LANE = frozenset(("remainder",))
"""Operations that vectors do not help."""
EXPENSIVE = frozenset((*_F64, "power", "atan2", "divide", "remainder", "sqrt", "rsqrt"))
"""Operations worth keeping the result of rather than computing again."""


def emit(
    f: Function,
    machine: Machine,
    operation: str,
    operands: list[Value],
    dtypes: list[DType],
    result: DType,
    attribute: str = "",
) -> Value:
    """Code for one operation.

    Args:
        operands: in compute types, all of the same width.
        dtypes: their element types.
        result: the result's element type.
        attribute: compare's direction.

    Raises:
        HeadraceError HR2432: there is no such operation for these types.
    """
    first = dtypes[0]
    if operation == "compare":
        return _compare(f, attribute, operands[0], operands[1], first)
    if operation == "select":
        return f.select(*operands)
    if operation == "copy":
        return operands[0]
    if operation == "convert":
        return convert(f, machine, operands[0], first, result)
    if operation == "bitcast_convert":
        return _bitcast(f, machine, operands[0], first, result)
    if operation == "clamp":
        low, value, high = operands
        return _extremum(f, "minimum", _extremum(f, "maximum", value, low, first), high, first)
    if operation == "is_finite":
        return f.compare("olt", math_f64.absolute(f, operands[0]), math.inf)
    if first.is_float:
        found = _float(f, operation, operands)
    elif first.kind == "bool":
        found = _boolean(f, operation, operands)
    else:
        found = _integer(f, operation, operands, first)
    if found is None:
        raise error("HR2432", f"the cpu target has no code for '{operation}' of {first.name}")
    return found


# -- floats -------------------------------------------------------------------


def _float(f: Function, operation: str, operands: list[Value]) -> Value | None:
    x = operands[0]
    y = operands[1] if len(operands) > 1 else x
    if operation in ("maximum", "minimum"):
        return _float_extremum(f, operation, x, y)
    simple = {"add": f.add, "subtract": f.sub, "multiply": f.mul, "divide": f.div}
    if operation in simple:
        return simple[operation](x, y)
    rounding = {
        "floor": math_f64.floor,
        "ceil": math_f64.ceil,
        "round_nearest_even": math_f64.round_even,
        "abs": math_f64.absolute,
        "sqrt": math_f64.square_root,
        "round_nearest_afz": _round_away,
        "sign": _float_sign,
        "negate": lambda f, x: f.neg(x),
        "rsqrt": lambda f, x: f.div(constant(x.type, 1.0), math_f64.square_root(f, x)),
    }
    if operation in rounding:
        return rounding[operation](f, x)
    single = element_of(x.type) == "float"
    if single and operation in _F32:
        return _F32[operation](f, x)
    function = _F64.get(operation)
    if function is not None:
        return _through_f64(f, single, lambda a: function(f, a[0]), [x])
    if operation == "power":
        return _through_f64(f, single, lambda a: math_f64.power(f, a[0], a[1]), [x, y])
    if operation == "atan2":
        return _through_f64(f, single, lambda a: math_f64.atan2(f, a[0], a[1]), [x, y])
    if operation == "remainder":
        return _through_f64(f, single, lambda a: _float_remainder(f, a[0], a[1]), [x, y])
    return None


def _through_f64(
    f: Function, single: bool, body: Callable[[list[Value]], Value], operands: list[Value]
) -> Value:
    if not single:
        return body(operands)
    return f.cast("fptrunc", body([f.cast("fpext", x, "double") for x in operands]), "float")


def _is_number(value: Value) -> bool:
    """Whether it is a literal, and no NaN (a literal NaN is printed as 0x7FF8...)."""
    return not value.text.startswith("%") and "0x7FF8" not in value.text


def _float_extremum(f: Function, operation: str, x: Value, y: Value) -> Value:
    """NaN where either is. One instruction beside a constant, three elsewhere."""
    predicate = "ogt" if operation == "maximum" else "olt"
    if _is_number(y):
        x, y = y, x
    # `x > y ? x : y` gives y where either is NaN: right unless only x is.
    picked = f.select(f.compare(predicate, x, y), x, y)
    if _is_number(x):
        return picked
    return f.select(f.compare("uno", x, x), x, picked)


def _round_away(f: Function, x: Value) -> Value:
    t = math_f64.truncate(f, x)
    rest = math_f64.absolute(f, f.sub(x, t))
    one = math_f64.copysign(f, constant(x.type, 1.0), x)
    moved = f.select(f.compare("oge", rest, 0.5), f.add(t, one), t)
    return math_f64.copysign(f, moved, x)


def _float_sign(f: Function, x: Value) -> Value:
    one = math_f64.copysign(f, constant(x.type, 1.0), x)
    return f.select(f.compare("une", x, 0.0), f.select(f.compare("uno", x, x), x, one), x)


_FMOD = "headrace_remainder"


def _float_remainder(f: Function, x: Value, y: Value) -> Value:
    """C's fmod, exactly, lane by lane."""
    if not f.module.has_function(_FMOD):
        _emit_remainder(f)
    width = width_of(x.type)
    result = Value(x.type, "poison")
    for lane in range(width):
        one = f.call(_FMOD, "double", f.extract(x, lane), f.extract(y, lane))
        if width == 1:
            return one
        result = f.insert(result, one, lane)
    return result


def _emit_remainder(f: Function) -> None:
    """Long division: the divisor, doubled up to below the rest, is taken off again and again.

    Each subtraction is exact, for the rest is at most twice the doubled divisor.
    """
    g = Function(
        f.module,
        _FMOD,
        [("double", "x"), ("double", "y")],
        result="double",
        internal=True,
        has_fma=f.has_fma,
        has_round=f.has_round,
    )
    x, y = g.parameters
    a, b = math_f64.absolute(g, x), math_f64.absolute(g, y)

    def exponent(v: Value) -> Value:
        bits = g.binary("lshr", g.bitcast(v, "i64"), 52)
        return g.maximum(bits, 1)

    rounds = g.add(g.sub(exponent(a), exponent(b)), 1)
    fine = g.binary("and", g.compare("olt", a, math.inf), g.compare("ogt", b, 0.0))
    rounds = g.select(g.binary("and", fine, g.compare("olt", b, math.inf)), rounds, 0)

    def step(i: Value, carried: list[Value]) -> list[Value]:
        rest = carried[0]
        shift = g.sub(g.sub(rounds, 1), i)
        # b * 2**shift in two factors: neither overflows where b is below the normal ones.
        half = g.binary("lshr", shift, 1)

        def factor(n: Value) -> Value:
            return g.bitcast(g.binary("shl", g.add(n, 1023), 52), "double")

        doubled = g.mul(g.mul(b, factor(half)), factor(g.sub(shift, half)))
        less = g.sub(rest, doubled)
        return [g.select(g.compare("oge", rest, doubled), less, rest)]

    (rest,) = g.loop(0, rounds, 1, step, [a])
    result = math_f64.copysign(g, rest, x)
    wrong = g.binary("or", g.compare("oeq", b, 0.0), g.compare("oeq", a, math.inf))
    wrong = g.binary("or", wrong, g.compare("uno", x, y))
    g.finish(g.select(wrong, math.nan, result))


# -- integers and booleans ------------------------------------------------------


def _integer(f: Function, operation: str, operands: list[Value], dtype: DType) -> Value | None:
    x = operands[0]
    y = operands[1] if len(operands) > 1 else x
    signed = dtype.kind == "signed"
    direct = {
        "add": "add",
        "subtract": "sub",
        "multiply": "mul",
        "and": "and",
        "or": "or",
        "xor": "xor",
    }
    if operation in direct:
        return f.binary(direct[operation], x, y)
    if operation in ("maximum", "minimum"):
        return _extremum(f, operation, x, y, dtype)
    if operation in ("divide", "remainder"):
        return _integer_division(f, operation, x, y, signed)
    if operation in ("shift_left", "shift_right_logical", "shift_right_arithmetic"):
        return _shift(f, operation, x, y, dtype.bits)
    if operation == "negate":
        return f.neg(x)
    if operation == "not":
        return f.binary("xor", x, -1)
    if operation == "abs":
        if not signed:
            return x
        return f.select(f.compare("slt", x, 0), f.neg(x), x)
    if operation == "sign":
        positive = f.select(f.compare("ne", x, 0), f.value(1, x.type), f.value(0, x.type))
        return f.select(f.compare("slt", x, 0), -1, positive) if signed else positive
    if operation == "popcnt":
        return f.intrinsic(f"llvm.ctpop.{mangled(x.type)}", x.type, x)
    if operation == "count_leading_zeros":
        return f.intrinsic(f"llvm.ctlz.{mangled(x.type)}", x.type, x, constant("i1", 0))
    if operation == "power":
        return _integer_power(f, x, y, signed)
    return None


def _boolean(f: Function, operation: str, operands: list[Value]) -> Value | None:
    x = operands[0]
    y = operands[1] if len(operands) > 1 else x
    words = {
        "add": "or",
        "or": "or",
        "maximum": "or",
        "multiply": "and",
        "and": "and",
        "minimum": "and",
        "xor": "xor",
    }
    if operation in words:
        return f.binary(words[operation], x, y)
    if operation == "not":
        return f.binary("xor", x, 1)
    return None


def _extremum(f: Function, operation: str, x: Value, y: Value, dtype: DType) -> Value:
    if dtype.is_float:
        return _float_extremum(f, operation, x, y)
    if dtype.kind == "bool":
        return f.binary("or" if operation == "maximum" else "and", x, y)
    sign = "s" if dtype.kind == "signed" else "u"
    return f.select(f.compare(sign + ("gt" if operation == "maximum" else "lt"), x, y), x, y)


def _integer_division(f: Function, operation: str, x: Value, y: Value, signed: bool) -> Value:
    zero = f.compare("eq", y, 0)
    unsafe = zero
    if signed:
        unsafe = f.binary("or", zero, f.compare("eq", y, -1))
    divisor = f.select(unsafe, f.value(1, y.type), y)
    if operation == "divide":
        result = f.binary("sdiv" if signed else "udiv", x, divisor)
        if signed:
            result = f.select(f.compare("eq", y, -1), f.neg(x), result)
        return f.select(zero, -1, result)
    result = f.binary("srem" if signed else "urem", x, divisor)
    return f.select(zero, x, result)  # by 1 and by -1 the remainder is 0 alike


def _shift(f: Function, operation: str, x: Value, y: Value, bits: int) -> Value:
    over = f.compare("uge", y, bits)
    if operation == "shift_right_arithmetic":
        return f.binary("ashr", x, f.select(over, bits - 1, y))
    word = "shl" if operation == "shift_left" else "lshr"
    return f.select(over, f.value(0, x.type), f.binary(word, x, f.select(over, 0, y)))


def _integer_power(f: Function, x: Value, y: Value, signed: bool) -> Value:
    """By squaring. Negative exponents: 1 and -1 have a power, others give 0."""
    bits = int(element_of(x.type)[1:])
    one = f.value(1, x.type)

    def step(_: Value, carried: list[Value]) -> list[Value]:
        total, base, rest = carried
        odd = f.compare("ne", f.binary("and", rest, 1), 0)
        total = f.select(odd, f.mul(total, base), total)
        return [total, f.mul(base, base), f.binary("lshr", rest, 1)]

    total, _, _ = f.loop(0, bits, 1, step, [one, x, y])
    if not signed:
        return total
    negative = f.compare("slt", y, 0)
    odd = f.compare("ne", f.binary("and", y, 1), 0)
    unit = f.select(odd, x, one)
    is_unit = f.binary("or", f.compare("eq", x, 1), f.compare("eq", x, -1))
    inverse = f.select(is_unit, unit, f.value(0, x.type))
    return f.select(negative, inverse, total)


def _compare(f: Function, direction: str, x: Value, y: Value, dtype: DType) -> Value:
    if is_float(x.type):
        words = {"EQ": "oeq", "NE": "une", "LT": "olt", "LE": "ole", "GT": "ogt", "GE": "oge"}
    else:
        sign = "s" if dtype.kind == "signed" else "u"
        words = {"EQ": "eq", "NE": "ne"}
        words |= {d: sign + d.lower() for d in ("LT", "LE", "GT", "GE")}
    if direction not in words:
        raise error("HR2432", f"there is no compare direction '{direction}'")
    return f.compare(words[direction], x, y)


# -- conversions ------------------------------------------------------------------


def convert(f: Function, machine: Machine, x: Value, source: DType, target: DType) -> Value:
    """`convert`: floats to integers truncate and saturate (NaN gives 0), to i1 is `!= 0`."""
    to = compute_type(target)
    if source == target:
        return x
    if target.kind == "bool":
        return f.compare("une" if source.is_float else "ne", x, 0)
    if target.is_float:
        if source.is_float:
            if to == element_of(x.type):
                return round_to(f, target, x, machine)
            y = f.cast("fpext" if to == "double" else "fptrunc", x, to)
            if target.bits < 32:
                # LLVM rounds the sign of a `copysign` on its own where it sees both
                # roundings, and calls a function for it that no kernel is linked with.
                y = f.intrinsic(f"llvm.arithmetic.fence.{mangled(y.type)}", y.type, y)
        else:
            y = f.cast("sitofp" if source.kind == "signed" else "uitofp", x, to)
        return round_to(f, target, y, machine)
    if source.is_float:
        signed = target.kind == "signed"
        if element_of(x.type) == "float" and (signed or target.bits < 32) and target.bits <= 32:
            return _truncated(f, x, target)
        word = "fptosi" if signed else "fptoui"
        type_ = vector_type(to, width_of(x.type))
        return f.intrinsic(f"llvm.{word}.sat.{mangled(type_)}.{mangled(x.type)}", type_, x)
    if target.bits > (1 if source.kind == "bool" else source.bits):
        return f.cast("sext" if source.kind == "signed" else "zext", x, to)
    return f.cast("trunc", x, to)


def _truncated(f: Function, x: Value, target: DType) -> Value:
    """f32 to integers that i32 holds. LLVM's own saturating conversion (21) takes vectors
    apart: 14 cycles an element where this takes two."""
    bits = target.bits
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1)
    if target.kind != "signed":
        low, high = 0, (1 << bits) - 1
    if low:  # else NaN is no more than it, and becomes it
        x = f.select(f.compare("uno", x, x), 0.0, x)
    if bits < 32:
        # One instruction each, which LLVM does not move behind the conversion as it does a
        # choice; the first gives a number for NaN.
        x = f.intrinsic(f"llvm.maxnum.{mangled(x.type)}", x.type, x, constant(x.type, low))
        x = f.intrinsic(f"llvm.minnum.{mangled(x.type)}", x.type, x, constant(x.type, high))
        wide = f.cast("fptosi", x, "i32")
        return f.cast("trunc", wide, compute_type(target))
    x = f.select(f.compare("ogt", x, float(low)), x, float(low))
    # The largest i32 is no f32: what is larger is told apart.
    fits = f.compare("olt", x, float(high + 1))
    wide = f.cast("fptosi", f.select(fits, x, 0.0), "i32")
    return f.select(fits, wide, high)


def _bitcast(f: Function, machine: Machine, x: Value, source: DType, target: DType) -> Value:
    if source.bits != target.bits:
        raise error(
            "HR2432",
            f"bitcast_convert of {source.name} to {target.name} changes the width",
        )
    raw = encode(f, source, x, machine)
    bits = f.bitcast(raw, integer_type_of(raw.type))
    wanted = vector_type(memory_type(target, machine), width_of(x.type))
    return decode(f, target, f.bitcast(bits, wanted), machine)
