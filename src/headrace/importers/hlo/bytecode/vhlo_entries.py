"""Attributes and types of VHLO, the versioned copy of StableHLO, by their codes
(`stablehlo/dialect/VhloBytecode.cpp`: codes never change, and new ones are added)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.base.dtypes import BY_NAME
from headrace.importers.hlo.bytecode.shaped import (
    UNKNOWN_SIZE,
    dense,
    element,
    float_of_bits,
    function_text,
    spelled,
    tensor,
)
from headrace.importers.hlo.tree import HloOpaqueType, HloTensorType, HloTupleType

if TYPE_CHECKING:
    from headrace.importers.hlo.bytecode.entries import EntryCursor

_WORDS: dict[int, tuple[str, ...]] = {
    3: ("EQ", "NE", "GE", "GT", "LE", "LT"),
    4: ("NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"),
    7: ("FFT", "IFFT", "RFFT", "IRFFT"),
    11: ("DEFAULT", "HIGH", "HIGHEST"),
    12: ("DEFAULT", "THREE_FRY", "PHILOX"),
    13: ("", "UNIFORM", "NORMAL"),
    16: ("TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"),
    19: ("DEFAULT", "HIGHEST", "TOLERANCE"),
}
"""Enumerations by the code of their attribute."""


def read_attribute(cursor: EntryCursor) -> Any:
    """An attribute as Python's value.

    Raises:
        HeadraceError HR1001: it is none that is known, with the byte.
    """
    code = cursor.varint()
    words = _WORDS.get(code)
    if words is not None:
        number = cursor.varint()
        if number >= len(words) or not words[number]:
            raise cursor.fail(f"{number} is no value of the enumeration {code}", 0)
        return words[number]
    reader = _ATTRIBUTES.get(code)
    if reader is None:
        raise cursor.fail(f"VHLO attributes of code {code} are not known", 0)
    return reader(cursor)


def _dictionary(cursor: EntryCursor) -> dict[str, Any]:
    return {str(cursor.attribute()): cursor.attribute() for _ in range(cursor.count())}


def _float(cursor: EntryCursor) -> float:
    kind = cursor.type()
    if not isinstance(kind, HloTensorType) or not kind.dtype.is_float:
        raise cursor.fail(f"a float of the type {kind}")
    return float_of_bits(cursor, kind.dtype)


def _integer(cursor: EntryCursor) -> int:
    kind = cursor.type()
    if not isinstance(kind, HloTensorType) or not kind.dtype.is_integer:
        raise cursor.fail(f"an integer of the type {kind}")
    bits = kind.dtype.bits
    value = cursor.integer(bits)
    return value % (1 << bits) if kind.dtype.kind == "unsigned" else value


def _alias(cursor: EntryCursor) -> dict[str, Any]:
    return {
        "output_tuple_indices": cursor.signed_list(),
        "operand_index": cursor.signed(),
        "operand_tuple_indices": cursor.signed_list(),
    }


def _dense(cursor: EntryCursor) -> Any:
    kind = cursor.type()
    return dense(cursor, kind, cursor.take(cursor.count()))


def _bounds(cursor: EntryCursor) -> str:
    words = ("?" if n == UNKNOWN_SIZE else str(n) for n in cursor.signed_list())
    return f"#stablehlo.bounds<{', '.join(words)}>"


def _accuracy(cursor: EntryCursor) -> str:
    f64 = BY_NAME["f64"]
    absolute, relative = float_of_bits(cursor, f64), float_of_bits(cursor, f64)
    units, mode = cursor.signed(), cursor.attribute()
    return (
        f"#stablehlo.result_accuracy<atol = {absolute!r}, rtol = {relative!r}, "
        f"ulps = {units}, mode = #stablehlo.result_accuracy_mode<{mode}>>"
    )


def _axis(cursor: EntryCursor) -> str:
    name = cursor.attribute()
    part = f", sub_axis_info = {cursor.attribute()}" if cursor.varint() else ""
    return f'#stablehlo.axis_ref<name = "{name}"{part}>'


def _mesh_axes(cursor: EntryCursor) -> str:
    mesh, axes = cursor.attribute(), cursor.attribute()
    names = ", ".join(map(str, axes)) if isinstance(axes, list) else str(axes)
    return f"#stablehlo.replica_group_mesh_axes<mesh = @{mesh}, axes = [{names}]>"


_ATTRIBUTES: dict[int, Any] = {
    1: lambda cursor: cursor.attributes(),
    2: lambda cursor: cursor.varint() == 1,
    5: lambda cursor: cursor.varint(),
    6: _dictionary,
    8: _float,
    9: _integer,
    10: _alias,
    14: lambda cursor: cursor.string(),
    15: _dense,
    17: lambda cursor: cursor.type(),
    18: _bounds,
    20: _accuracy,
    21: lambda cursor: f"({cursor.signed()}){cursor.signed()}",
    22: _axis,
    23: _mesh_axes,
}


def read_type(cursor: EntryCursor) -> Any:
    """A type. Raises as `read_attribute`; types of functions are pairs of lists."""
    code = cursor.varint()
    if code in _ELEMENTS:
        return element(_ELEMENTS[code])
    reader = _TYPES.get(code)
    if reader is None:
        raise cursor.fail(f"VHLO types of code {code} are not known", 0)
    return reader(cursor)


@dataclass(frozen=True)
class FunctionType:
    """Types of the inputs and results of a function."""

    inputs: list[Any]
    results: list[Any]

    def __str__(self) -> str:
        return function_text(self.inputs, self.results)


def _tensor(cursor: EntryCursor) -> Any:
    return tensor(cursor, cursor.signed_list(), cursor.type(), None)


def _encoded_tensor(cursor: EntryCursor) -> Any:
    encoding = cursor.attribute()
    return tensor(cursor, cursor.signed_list(), cursor.type(), encoding)


def _buffer(cursor: EntryCursor) -> Any:
    sizes = "".join(f"{'?' if n == UNKNOWN_SIZE else n}x" for n in cursor.signed_list())
    return HloOpaqueType(f"memref<{sizes}{spelled(cursor.type())}>")


def _stored(
    cursor: EntryCursor, flags: int, kind: Any, least: int, greatest: int
) -> tuple[str, str]:
    """The stored type of a grid, and its range where that is not the whole."""
    if not isinstance(kind, HloTensorType) or not kind.dtype.is_integer:
        raise cursor.fail(f"a grid is stored as {kind}")
    bits = kind.dtype.bits
    signed = bool(flags & 1)
    whole = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    ranged = "" if whole == (least, greatest) else f"<{least}:{greatest}>"
    return f"{'i' if signed else 'u'}{bits}", ranged


def _step(scale: float, zero: int) -> str:
    return f"{scale!r}:{zero}" if zero else repr(scale)


def _quantised(cursor: EntryCursor) -> Any:
    flags, stored, expressed = cursor.varint(), cursor.type(), cursor.type()
    scale, zero = float_of_bits(cursor, BY_NAME["f64"]), cursor.signed()
    name, ranged = _stored(cursor, flags, stored, cursor.signed(), cursor.signed())
    grid = f"{name}{ranged}:{spelled(expressed)},{_step(scale, zero)}"
    return HloOpaqueType(f"!quant.uniform<{grid}>")


def _quantised_per_axis(cursor: EntryCursor) -> Any:
    flags, stored, expressed = cursor.varint(), cursor.type(), cursor.type()
    axis = cursor.varint()
    name, ranged = _stored(cursor, flags, stored, cursor.signed(), cursor.signed())
    scales = [float_of_bits(cursor, BY_NAME["f64"]) for _ in range(cursor.count())]
    zeros = cursor.signed_list()
    if len(scales) != len(zeros):
        raise cursor.fail(f"a grid of {len(scales)} scales and {len(zeros)} zero points")
    steps = ",".join(map(_step, scales, zeros))
    grid = f"{name}{ranged}:{spelled(expressed)}:{axis},{{{steps}}}"
    return HloOpaqueType(f"!quant.uniform<{grid}>")


_ELEMENTS = {
    0: "i1", 2: "bf16", 3: "f16", 4: "f32", 5: "f64", 6: "f8E4M3FN", 7: "f8E5M2", 9: "index",
    10: "i4", 11: "i8", 12: "i16", 13: "i32", 14: "i64", 15: "ui4", 16: "ui8", 17: "ui16",
    18: "ui32", 19: "ui64", 22: "!stablehlo.token", 26: "!shape.witness", 27: "f8E4M3FNUZ",
    28: "f8E5M2FNUZ", 29: "f8E4M3B11FNUZ", 31: "i2", 32: "ui2", 33: "none", 34: "tf32",
    35: "f8E4M3", 36: "f8E3M4", 37: "f4E2M1FN", 38: "f6E2M3FN", 39: "f6E3M2FN", 40: "f8E8M0FNU",
}  # fmt: skip
_TYPES: dict[int, Any] = {
    1: lambda cursor: element(f"complex<{spelled(cursor.type())}>"),
    8: lambda cursor: FunctionType(cursor.types(), cursor.types()),
    20: _tensor,
    21: _encoded_tensor,
    23: lambda cursor: HloTupleType(tuple(cursor.types())),
    24: _quantised,
    25: lambda cursor: HloOpaqueType(f"tensor<*x{spelled(cursor.type())}>"),
    30: _quantised_per_axis,
    41: _buffer,
    42: lambda cursor: HloOpaqueType(
        f"!stablehlo.future<{', '.join(map(str, cursor.types()))}>"
    ),
}
