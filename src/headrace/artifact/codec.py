"""Frozen dataclasses to JSON values and back, derived from their type hints.

One codec serves every type of `schema.py`: dataclasses become objects with all their
fields, unions of dataclasses carry the class name under `is`, tuples become arrays,
`Expr` and `DType` become their text. Decoding is strict: a missing or unknown field, a
value of the wrong type, a text that is no expression are `CodecError`s that name the
place, so that nothing later has to look at types again.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Callable
from functools import cache
from typing import Any, Literal, Union

from headrace.base.dtypes import BY_NAME, DType
from headrace.base.symbols import Expr, parse_expr

TAG = "is"
MAXIMUM_EXPR_CHARACTERS = 20_000
MAXIMUM_EXPR_TERMS = 4096
_LARGEST_INTEGER = 1 << 62
_EXPR_TOKEN = re.compile(r"[%\w.$:/]+|[-+*(),]")

Decoder = Callable[[Any, str], Any]
Encoder = Callable[[Any], Any]


class CodecError(ValueError):
    """A JSON value does not fit its type.

    Attributes:
        place: where in the JSON, as in `programs[0].functions[1].name`.
        fact: what is wrong there.
    """

    def __init__(self, place: str, fact: str) -> None:
        super().__init__(f"{place or 'the module'}: {fact}")
        self.place = place
        self.fact = fact


def encode(value: Any, kind: Any) -> Any:
    """The JSON value (dicts, lists, str, int, bool, None) of `value`, of type `kind`."""
    return _encoder(kind)(value)


def decode(value: Any, kind: Any) -> Any:
    """The value of type `kind` that a JSON value stands for.

    Raises:
        CodecError: it does not fit.
    """
    return _decoder(kind)(value, "")


@cache
def _fields(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _members(kind: Any) -> tuple[Any, ...]:
    """The alternatives of a union, empty for any other type."""
    origin = typing.get_origin(kind)
    return typing.get_args(kind) if origin in (Union, types.UnionType) else ()


# -- encoding ---------------------------------------------------------------


@cache
def _encoder(kind: Any) -> Encoder:
    if kind in (Expr, DType):
        return str
    if kind in (str, int, bool) or typing.get_origin(kind) is Literal:
        return lambda value: value
    if dataclasses.is_dataclass(kind):
        assert isinstance(kind, type)
        return lambda value: {
            name: _encoder(inner)(getattr(value, name)) for name, inner in _fields(kind).items()
        }
    if typing.get_origin(kind) is tuple:
        return _tuple_encoder(typing.get_args(kind))
    alternatives = _members(kind)
    if type(None) in alternatives:
        (inner,) = (a for a in alternatives if a is not type(None))
        return lambda value: None if value is None else _encoder(inner)(value)
    if alternatives:
        return lambda value: {TAG: type(value).__name__, **_encoder(type(value))(value)}
    raise TypeError(f"the file codec knows no {kind}")


def _tuple_encoder(parts: tuple[Any, ...]) -> Encoder:
    if len(parts) == 2 and parts[1] is Ellipsis:
        return lambda value: [_encoder(parts[0])(item) for item in value]
    return lambda value: [_encoder(part)(item) for part, item in zip(parts, value, strict=True)]


# -- decoding ---------------------------------------------------------------


@cache
def _decoder(kind: Any) -> Decoder:
    if kind is Expr:
        return _decode_expr
    if kind is DType:
        return _decode_dtype
    if kind in (str, int, bool):
        return _scalar_decoder(kind)
    if typing.get_origin(kind) is Literal:
        return _literal_decoder(typing.get_args(kind))
    if dataclasses.is_dataclass(kind):
        assert isinstance(kind, type)
        return _dataclass_decoder(kind)
    if typing.get_origin(kind) is tuple:
        return _tuple_decoder(typing.get_args(kind))
    alternatives = _members(kind)
    if type(None) in alternatives:
        (inner,) = (a for a in alternatives if a is not type(None))
        return lambda value, place: None if value is None else _decoder(inner)(value, place)
    if alternatives:
        return _union_decoder({a.__name__: a for a in alternatives})
    raise TypeError(f"the file codec knows no {kind}")


def _decode_expr(value: Any, place: str) -> Expr:
    if not isinstance(value, str) or len(value) > MAXIMUM_EXPR_CHARACTERS:
        raise CodecError(place, "a size expression should stand here")
    if _most_terms(value) > MAXIMUM_EXPR_TERMS:
        raise CodecError(place, "a size expression grows beyond measure")
    try:
        return parse_expr(value)
    except (ValueError, TypeError, ArithmeticError) as problem:
        raise CodecError(place, str(problem)) from problem


def _most_terms(text: str) -> int:
    """How many terms an expression may have once products of sums are multiplied out.

    Files are not trusted: a short text such as `(a + b)*(a + b)*...` would otherwise
    take as long and as much memory as it likes to normalise.
    """
    total, product, multiplies = 0, 0, False
    outer: list[tuple[int, int, bool]] = []
    for token in _EXPR_TOKEN.findall(text):
        factor = 1
        if token in ("+", "-", ",", "floordiv", "mod"):
            total, product, multiplies = total + product, 0, False
            continue
        if token == "*":
            multiplies = True
            continue
        if token == "(":
            outer.append((total, product, multiplies))
            total, product, multiplies = 0, 0, False
            continue
        if token == ")" and outer:
            factor = total + product
            total, product, multiplies = outer.pop()
        product = product * factor if multiplies and product else product + factor
        multiplies = False
        if product > MAXIMUM_EXPR_TERMS:
            break
    return total + product


def _decode_dtype(value: Any, place: str) -> DType:
    found = BY_NAME.get(value) if isinstance(value, str) else None
    if found is None:
        raise CodecError(place, f"{_shown(value)} is no element type")
    return found


def _scalar_decoder(kind: type) -> Decoder:
    def decode_scalar(value: Any, place: str) -> Any:
        if type(value) is not kind:
            raise CodecError(place, f"{_shown(value)} is no {kind.__name__}")
        if kind is int and abs(value) > _LARGEST_INTEGER:
            raise CodecError(place, "an integer is out of range")
        return value

    return decode_scalar


def _literal_decoder(allowed: tuple[Any, ...]) -> Decoder:
    def decode_literal(value: Any, place: str) -> Any:
        if not isinstance(value, str) or value not in allowed:
            raise CodecError(place, f"{_shown(value)} is none of {', '.join(allowed)}")
        return value

    return decode_literal


def _dataclass_decoder(kind: type) -> Decoder:
    def decode_dataclass(value: Any, place: str) -> Any:
        if not isinstance(value, dict):
            raise CodecError(place, f"{_shown(value)} is no {kind.__name__}")
        fields = _fields(kind)
        return kind(**_decode_fields(value, fields, kind.__name__, place))

    return decode_dataclass


def _decode_fields(
    value: dict[str, Any], fields: dict[str, Any], owner: str, place: str
) -> dict[str, Any]:
    missing = [name for name in fields if name not in value]
    unknown = [name for name in value if name not in fields and name != TAG]
    if missing:
        raise CodecError(place, f"{owner} lacks {', '.join(missing)}")
    if unknown:
        raise CodecError(place, f"{owner} has no {', '.join(map(_shown, unknown))}")
    prefix = f"{place}." if place else ""
    return {
        name: _decoder(inner)(value[name], f"{prefix}{name}") for name, inner in fields.items()
    }


def _tuple_decoder(parts: tuple[Any, ...]) -> Decoder:
    repeated = len(parts) == 2 and parts[1] is Ellipsis

    def decode_tuple(value: Any, place: str) -> Any:
        if not isinstance(value, list):
            raise CodecError(place, f"{_shown(value)} is no list")
        if repeated:
            inner = _decoder(parts[0])
            return tuple(inner(item, f"{place}[{i}]") for i, item in enumerate(value))
        if len(value) != len(parts):
            raise CodecError(place, f"{len(value)} values stand where {len(parts)} belong")
        return tuple(
            _decoder(part)(item, f"{place}[{i}]")
            for i, (part, item) in enumerate(zip(parts, value, strict=True))
        )

    return decode_tuple


def _union_decoder(alternatives: dict[str, Any]) -> Decoder:
    def decode_union(value: Any, place: str) -> Any:
        name = value.get(TAG) if isinstance(value, dict) else None
        kind = alternatives.get(name) if isinstance(name, str) else None
        if kind is None:
            raise CodecError(place, f"{_shown(name)} is none of {', '.join(alternatives)}")
        return _decoder(kind)(value, place)

    return decode_union


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
