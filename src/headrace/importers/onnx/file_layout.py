"""Where the large weights of an ONNX file stand in it, and the model without their bytes.

Parsing a protobuf copies every byte of it, and reading a tensor copies them again. So the
wire format (https://protobuf.dev/programming-guides/encoding) is walked as far as the
graph's initializers, whose raw data is left where it is. Nothing here refuses a file: what
cannot be walked is left for the parser, which says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_GRAPH, _INITIALIZER, _RAW_DATA, _DATA_LOCATION = 7, 5, 9, 14
"""Fields of ModelProto, GraphProto, TensorProto and TensorProto."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_VARINT_BYTES = 10

LEAST_BYTES = 64 << 10
"""Smaller weights are parsed: their values may decide shapes."""

Place = tuple[int, int]
"""Offset of the first byte in the file, and bytes."""


@dataclass(frozen=True)
class LightModel:
    """A model file without the bytes of its large weights.

    Attributes:
        data: a ModelProto whose initializers in `places` have no `raw_data`.
        places: where that stands, by the initializer's number.
    """

    data: bytes | memoryview
    places: Mapping[int, Place]


def light_model(data: memoryview) -> LightModel:
    """The model in the bytes of a file; all of them, and no places, where they are no model
    whose one graph can be walked."""
    try:
        return _light(data)
    except _Unreadable:
        return LightModel(data, {})


class _Unreadable(Exception):
    """The bytes do not follow the wire format, or merge two graphs."""


@dataclass(frozen=True)
class _Field:
    """`number`, and where the field begins, its value begins, and both end."""

    number: int
    begin: int
    value: int
    end: int
    is_bytes: bool


def _varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """A number, and where it ends."""
    found = 0
    for n in range(_VARINT_BYTES):
        if at + n >= end:
            break
        byte = data[at + n]
        found |= (byte & 0x7F) << 7 * n
        if byte < 0x80:
            return found, at + n + 1
    raise _Unreadable


def _fields(data: memoryview, at: int, end: int) -> Iterator[_Field]:
    while at < end:
        begin = at
        tag, at = _varint(data, at, end)
        kind = tag & 7
        value = at
        if kind == _VARINT:
            _, at = _varint(data, at, end)
        elif kind == _BYTES:
            size, value = _varint(data, at, end)
            at = value + size
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            raise _Unreadable
        if at > end:
            raise _Unreadable
        yield _Field(tag >> 3, begin, value, at, kind == _BYTES)


def _encoded(number: int) -> bytes:
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _message(number: int, parts: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """A field that holds a message."""
    size = sum(len(part) for part in parts)
    return [_encoded(number << 3 | _BYTES) + _encoded(size), *parts]


def _light(data: memoryview) -> LightModel:
    fields = list(_fields(data, 0, len(data)))
    graphs = [f for f in fields if f.number == _GRAPH and f.is_bytes]
    if len(graphs) != 1:
        raise _Unreadable
    (graph,) = graphs
    inner, places = _light_graph(data, graph.value, graph.end)
    if not places:
        return LightModel(data, {})
    parts = [data[: graph.begin], *_message(_GRAPH, inner), data[graph.end :]]
    return LightModel(b"".join(parts), places)


def _light_graph(
    data: memoryview, begin: int, end: int
) -> tuple[list[bytes | memoryview], dict[int, Place]]:
    parts: list[bytes | memoryview] = []
    places: dict[int, Place] = {}
    number, kept = 0, begin
    for field in _fields(data, begin, end):
        if field.number != _INITIALIZER or not field.is_bytes:
            continue
        raw = _raw_data(data, field)
        if raw is not None:
            tensor = [data[field.value : raw.begin], data[raw.end : field.end]]
            parts += [data[kept : field.begin], *_message(_INITIALIZER, tensor)]
            kept = field.end
            places[number] = (raw.value, raw.end - raw.value)
        number += 1
    parts.append(data[kept:end])
    return parts, places


def _raw_data(data: memoryview, tensor: _Field) -> _Field | None:
    """The bytes of a large tensor that are its only data; None for other tensors."""
    if tensor.end - tensor.value < LEAST_BYTES:
        return None
    fields = list(_fields(data, tensor.value, tensor.end))
    found = [f for f in fields if f.number == _RAW_DATA and f.is_bytes]
    if len(found) != 1 or any(f.number == _DATA_LOCATION for f in fields):
        return None
    (raw,) = found
    return raw if raw.end - raw.value >= LEAST_BYTES else None
