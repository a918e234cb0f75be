"""Attributes in MLIR text as Python values.

Dense elements become arrays of their full shape (one element that stands for all is a view
of it), enumerations their last word, dimension numbers dictionaries, dialect attributes
that nothing here reads their text.
"""

from __future__ import annotations

import re
from typing import Any

from headrace.importers.hlo.dense import parse_elements
from headrace.importers.hlo.text_cursor import NUMBER, STRING, SYMBOL, WORD
from headrace.importers.hlo.text_types import TypeReader
from headrace.importers.hlo.tree import HloTensorType, HloType

_DIALECT = re.compile(r"#[A-Za-z_][\w$.]*")
_TYPE_START = re.compile(r"tensor\b|tuple\b|vector\b|memref\b|complex\b|!|\(|none\b|index\b|[su]?i\d+\b|f\d\w*\b|bf16\b|tf32\b")  # fmt: skip
_RESOURCES = re.compile(r'(\w+)\s*:\s*"0x([0-9A-Fa-f]*)"')
_KEY = re.compile(r"(raw\s+)?[a-z_]\w*\s*=")
_ENUMERATION = re.compile(r"[a-z_]\w*\s+([\w.]+)")
_CONVOLUTION = re.compile(r"\[([^\]]*)\]\s*x\s*\[([^\]]*)\]\s*->\s*\[([^\]]*)\]")


class AttributeReader(TypeReader):
    """Reads attributes.

    Args:
        arrays: what `dense_resource<__elided__>` stands for, in order; for text whose
            printer left large arrays out and hands them over apart.
    """

    def __init__(self, text: str, source: str, arrays: list[bytes | memoryview]) -> None:
        super().__init__(text, source)
        self._arrays = iter(arrays)
        tail = text.rfind("{-#")
        self._resources = dict(_RESOURCES.findall(text, tail)) if tail >= 0 else {}
        self.end = tail if tail >= 0 else len(text)

    def attributes(self) -> dict[str, Any]:
        """Entries up to the closing brace, which is taken."""
        found: dict[str, Any] = {}
        for key, value in self.list_of(self._entry, "}"):
            if key in found:
                raise self.fail(f"the attribute '{key}' is given twice")
            found[key] = value
        return found

    def _entry(self) -> tuple[str, Any]:
        name = self.match(STRING)
        key = name[1:-1] if name is not None else self.need(WORD, "an attribute name")
        return key, self.attribute() if self.try_("=") else True

    def attribute(self) -> Any:
        if self.sees("dense<") or self.sees("dense_resource<"):
            return self.dense()[0]
        if self.sees("#"):
            return self._dialect_attribute()
        text = self.match(STRING)
        if text is not None:
            if self.try_(":"):
                self.type()
            return _unescaped(text[1:-1])
        if self.try_("["):
            return self.list_of(self.attribute, "]")
        if self.try_("{"):
            return self.attributes()
        symbol = self.match(SYMBOL)
        if symbol is not None:
            return symbol[1:].strip('"')
        for word, value in _WORDS.items():
            if self.try_(word):
                return value
        if self.sees("array<"):
            return self._array()
        number = self.match(NUMBER)
        if number is not None:
            return self._number(number)
        if _TYPE_START.match(self.text, self.at):
            begin = self.at
            kind = self.type()
            if self.sees("->"):
                self.at = begin
                self.function_type()
                return self.text[begin : self.at].strip()
            return kind
        begin = self.at
        word = self.need(WORD, "an attribute")
        if self.sees("<"):
            self.balanced()
        return self.text[begin : self.at].strip() if self.at > begin else word

    def _number(self, number: str) -> Any:
        kind = self.type() if self.try_(":") else None
        floating = isinstance(kind, HloTensorType) and kind.dtype.is_float
        hexadecimal = number.lower().lstrip("-").startswith("0x")
        if hexadecimal and floating:
            assert isinstance(kind, HloTensorType)
            return float(parse_elements(number, kind.dtype)[0])
        if hexadecimal:
            return int(number, 16)
        if floating or "." in number or "e" in number.lower():
            return float(number)
        return int(number)

    def _array(self) -> list[Any]:
        self.expect("array")
        body = self.balanced()
        kind, _, items = body.partition(":")
        words = [item.strip() for item in items.split(",") if item.strip()]
        if kind.strip() == "i1":
            return [word in ("true", "1") for word in words]
        try:
            return [float(w) if kind.strip().startswith("f") else int(w, 0) for w in words]
        except ValueError as wrong:
            raise self.fail(f"'{body[:40]}' is no array of {kind}") from wrong

    def _dialect_attribute(self) -> Any:
        begin = self.at
        name = self.need(_DIALECT, "an attribute")
        if not self.sees("<"):
            if name in self.aliases:
                return self.alias_value(name, self.attribute, begin)
            if "." not in name:
                raise self.fail(f"'{name}' is defined nowhere", begin)
            return name
        body_at = self.at + 1
        body = self.balanced()
        if name in ("#stablehlo", "#chlo"):
            enumeration = _ENUMERATION.fullmatch(body.strip())
            return enumeration.group(1) if enumeration else body.strip()
        if name not in _WITH_FIELDS:
            return f"{name}<{_one_line(body)}>"
        if name == "#stablehlo.conv" and not body.strip().startswith("raw"):
            return self._convolution(body, body_at)
        if _KEY.match(body.strip()) or not body.strip():
            lists = _WITH_FIELDS[name]
            found: dict[str, Any] = {key: [] for key in lists}
            if name in ("#stablehlo.gather", "#stablehlo.scatter"):
                found["index_vector_dim"] = 0
            allowed = (*lists, "index_vector_dim") if lists else ()
            return {**found, **self._fields(body_at, allowed)}
        return f"{name}<{body}>"

    def _fields(self, at: int, allowed: tuple[str, ...]) -> dict[str, Any]:
        """`a = [0], b = 1` up to the `>` that closes it; no other names than those allowed,
        where there are any."""
        back, self.at = self.at, at
        self.space()
        self.try_("raw")
        found: dict[str, Any] = {}
        while not self.try_(">"):
            begin = self.at
            key, value = self._field()
            if key in found:
                raise self.fail(f"'{key}' stands twice", begin)
            if allowed and key not in allowed:
                raise self.fail(f"'{key}' is none of {', '.join(allowed)}", begin)
            found[key] = value
            if not self.try_(",") and not self.sees(">"):
                raise self.fail("expected ',' or '>'")
        self.at = back
        return found

    def _field(self) -> tuple[str, Any]:
        key = self.need(WORD, "a field")
        self.expect("=")
        return _FIELD_NAMES.get(key, key), self.attribute()

    def convolution_numbers(self) -> dict[str, Any]:
        """`[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]` at this place."""
        begin = self.at
        found = self.need(_CONVOLUTION, "the dimensions of a convolution")
        return self._convolution(found, begin)

    def _convolution(self, body: str, at: int) -> dict[str, Any]:
        found = _CONVOLUTION.fullmatch(body.strip())
        if found is None:
            raise self.fail("expected the dimensions of a convolution", at)
        numbers: dict[str, Any] = {}
        for group, letters, stem in (
            (1, {"b": "batch", "f": "feature"}, "input"),
            (2, {"i": "input_feature", "o": "output_feature"}, "kernel"),
            (3, {"b": "batch", "f": "feature"}, "output"),
        ):
            words = [w.strip() for w in found.group(group).split(",")]
            spatial: dict[int, int] = {}
            for place, word in enumerate(words):
                key = f"{stem}_{letters[word]}_dimension" if word in letters else ""
                if word == "?":
                    continue
                if key and key not in numbers:
                    numbers[key] = place
                elif word.isdigit() and int(word) not in spatial:
                    spatial[int(word)] = place
                else:
                    raise self.fail(f"'{word}' is no dimension, or stands twice", at)
            if sorted(spatial) != list(range(len(spatial))):
                raise self.fail("spatial dimensions do not count from 0", at)
            for letter in letters.values():
                if f"{stem}_{letter}_dimension" not in numbers:
                    raise self.fail(f"the {stem} has no {letter} dimension", at)
            numbers[f"{stem}_spatial_dimensions"] = [spatial[n] for n in sorted(spatial)]
        return numbers

    def dense(self) -> tuple[Any, HloType]:
        """`dense<...> : type` as an array of its shape, with the type."""
        import numpy as np

        begin = self.at
        resource = self.try_("dense_resource")
        if not resource:
            self.expect("dense")
        body_at = self.at + 1
        body = self._dense_body()
        self.expect(":")
        kind = self.type()
        if not isinstance(kind, HloTensorType):
            return f"dense<{body}>", kind
        if resource:
            body = self._resource(body.strip(), begin)
        shape = tuple(s.value if s.is_constant else -1 for s in kind.shape)
        if -1 in shape:
            raise self.fail("a constant has a size that is not known", begin)
        count = int(np.prod(shape, dtype=np.int64))
        try:
            array = parse_elements(body, kind.dtype, count)
        except (ValueError, OverflowError, IndexError) as wrong:
            raise self.fail(f"this holds no elements of {kind.dtype}", body_at) from wrong
        if array.size == count:
            return array.reshape(shape), kind
        if array.size != 1:
            raise self.fail(f"{array.size} elements do not fit a type of {count}", body_at)
        return np.broadcast_to(array.reshape(()), shape), kind

    def _dense_body(self) -> str | bytes:
        if self.text.startswith('<"', self.at):
            end = self.text.find('">', self.at)
            if end < 0:
                raise self.fail("a string is not closed")
            body = self.text[self.at + 1 : end + 1]
            self.at = end + 2
            self.space()
            return body
        end = self.text.find(">", self.at)
        if not self.sees("<") or end < 0:
            raise self.fail("expected a constant in '<' and '>'")
        body = self.text[self.at + 1 : end]
        self.at = end + 1
        self.space()
        return body

    def _resource(self, name: Any, at: int) -> Any:
        if name == "__elided__":
            array = next(self._arrays, None)
            if array is None:
                raise self.fail("the printer left the elements of this constant out", at)
            return array
        if name not in self._resources:
            raise self.fail(f"there is no resource '{name}'", at)
        # The first four bytes say the alignment of the others.
        return bytes.fromhex(self._resources[name])[4:]


_WITH_FIELDS: dict[str, tuple[str, ...]] = {
    "#stablehlo.conv": (),
    "#stablehlo.dot": (
        "lhs_batching_dimensions", "rhs_batching_dimensions", "lhs_contracting_dimensions",
        "rhs_contracting_dimensions",
    ),
    "#stablehlo.gather": (
        "offset_dims", "collapsed_slice_dims", "operand_batching_dims",
        "start_indices_batching_dims", "start_index_map",
    ),
    "#stablehlo.scatter": (
        "update_window_dims", "inserted_window_dims", "input_batching_dims",
        "scatter_indices_batching_dims", "scattered_dims_to_operand_dims",
    ),
    "#stablehlo.channel_handle": (),
    "#stablehlo.output_operand_alias": (),
    "#stablehlo.dot_algorithm": (),
    "#chlo.ragged_dot": (
        "lhs_batching_dimensions", "rhs_batching_dimensions", "lhs_contracting_dimensions",
        "rhs_contracting_dimensions", "lhs_ragged_dimensions", "rhs_group_dimensions",
    ),
}  # fmt: skip
"""Attributes that are read as dictionaries, with their lists: empty where not given."""
_WORDS = {"true": True, "false": False, "unit": True}
_FIELD_NAMES = {"scatter_dims_to_operand_dims": "scattered_dims_to_operand_dims"}
"""As jaxlib's objects call it."""


def _one_line(body: str) -> str:
    """Text of an attribute whatever lines it was written in."""
    words = " ".join(body.split())
    return re.sub(r"(?<=[\[(<]) | (?=[\])>])", "", words)


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    return re.sub(r"\\([0-9A-Fa-f]{2}|.)", _character, text)


def _character(found: re.Match[str]) -> str:
    code = found.group(1)
    if len(code) == 2:
        return chr(int(code, 16))
    return {"n": "\n", "t": "\t"}.get(code, code)
