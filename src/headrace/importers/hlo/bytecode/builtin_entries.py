"""Attributes and types of MLIR's own dialect in bytecode, by their codes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.importers.hlo.bytecode.shaped import (
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


def read_attribute(cursor: EntryCursor) -> Any:
    """An attribute as Python's value.

    Raises:
        HeadraceError HR1001: it is none that is known, with the byte.
    """
    code = cursor.varint()
    if code == 1:
        return {str(cursor.attribute()): cursor.attribute() for _ in range(cursor.count())}
    if code in _PLACES:
        return place(cursor, code)
    reader = _ATTRIBUTES.get(code)
    if reader is None:
        raise cursor.fail(f"builtin attributes of code {code} are not known", 0)
    return reader(cursor)


def _symbol(cursor: EntryCursor) -> str:
    nested = [cursor.attribute(), *cursor.attributes()]
    return "::".join(map(str, nested))


def _typed_string(cursor: EntryCursor) -> str:
    text = cursor.string()
    cursor.type()
    return text


def _integer(cursor: EntryCursor) -> int | bool:
    kind = cursor.type()
    if not isinstance(kind, HloTensorType) or kind.dtype.is_float:
        raise cursor.fail(f"an integer of the type {kind}")
    if kind.dtype.kind == "bool":
        return bool(cursor.byte() & 1)
    bits = kind.dtype.bits
    value = cursor.integer(bits)
    return value % (1 << bits) if kind.dtype.kind == "unsigned" else value


def _float(cursor: EntryCursor) -> float:
    kind = cursor.type()
    if not isinstance(kind, HloTensorType) or not kind.dtype.is_float:
        raise cursor.fail(f"a float of the type {kind}")
    return float_of_bits(cursor, kind.dtype)


def _array(cursor: EntryCursor) -> list[Any]:
    kind, count = cursor.type(), cursor.varint()
    data = cursor.take(cursor.count())
    if not isinstance(kind, HloTensorType) or kind.dtype.numpy_dtype.itemsize * count != len(
        data
    ):
        raise cursor.fail(f"{len(data)} bytes are no array of {count} of {kind}")
    import numpy as np

    return np.frombuffer(data, kind.dtype.numpy_dtype).tolist()


def _dense(cursor: EntryCursor) -> Any:
    kind = cursor.type()
    return dense(cursor, kind, cursor.take(cursor.count()))


_ATTRIBUTES: dict[int, Any] = {
    0: lambda cursor: cursor.attributes(),
    2: lambda cursor: cursor.string(),
    3: _typed_string,
    4: lambda cursor: cursor.attribute(),
    5: _symbol,
    6: lambda cursor: cursor.type(),
    7: lambda cursor: True,
    8: _integer,
    9: _float,
    17: _array,
    18: _dense,
}
_PLACES = (10, 11, 12, 13, 14, 15, 22)


def place(cursor: EntryCursor, code: int) -> str | None:
    """Where something stands in the user's text: a name, a line, or nothing."""
    if code == 10:  # a callee and its caller
        inner, outer = cursor.attribute(), cursor.attribute()
        return inner or outer
    if code == 11:
        cursor.attribute()
        line = cursor.varint()
        cursor.varint()
        return f"line {line}"
    if code in (12, 13):  # several, with something beside them
        parts = cursor.attributes()
        if code == 13:
            cursor.attribute()
        return next((part for part in parts if part), None)
    if code == 14:
        name = cursor.attribute()
        cursor.attribute()
        return f"'{name}'"
    if code == 22:  # a range, of which the first number is the line
        cursor.attribute()
        numbers = [cursor.varint() for _ in range(cursor.count())]
        return f"line {numbers[0]}" if numbers else None
    return None


def read_type(cursor: EntryCursor) -> Any:
    """A type. Raises as `read_attribute`; types of functions come out as text."""
    code = cursor.varint()
    if code in _ELEMENTS:
        return element(_ELEMENTS[code])
    if code == 0:
        found = cursor.varint()
        bits, sign = found >> 2, ("i", "si", "ui", "")[found & 3]
        return element(f"{sign if sign != 'si' else 'i'}{bits}")
    if code == 2:
        return function_text(cursor.types(), cursor.types())
    if code == 9:
        return element(f"complex<{spelled(cursor.type())}>")
    if code in (13, 14):
        encoding = cursor.attribute() if code == 14 else None
        return tensor(cursor, cursor.signed_list(), cursor.type(), encoding)
    if code == 15:
        return HloTupleType(tuple(cursor.types()))
    if code == 18:
        return HloOpaqueType(f"tensor<*x{spelled(cursor.type())}>")
    raise cursor.fail(f"builtin types of code {code} are not known", 0)


_ELEMENTS = {
    1: "index",
    3: "bf16",
    4: "f16",
    5: "f32",
    6: "f64",
    7: "f80",
    8: "f128",
    12: "none",
}
