"""Types, constants and attributes in XLA HLO text of 2019 and 2020."""

from __future__ import annotations

import re
from typing import Any

from headrace.base.dtypes import BY_NAME, DType
from headrace.base.symbols import as_expr, dim
from headrace.importers.hlo.text_cursor import NUMBER, STRING, WORD, Cursor
from headrace.importers.hlo.tree import HloTensorType, HloTupleType, HloType

LEGACY_SYMBOL = re.compile(r'@(?:"[^"]*"|[\w$.-]+)')


def _float_from_bits(bits: int, kind: DType) -> Any:
    import numpy as np

    return np.array([bits], dtype=f"u{kind.size_bytes}").view(kind.numpy_dtype)[0]


def _integer(text: str) -> int:
    """Decimal with leading zeros, or hexadecimal."""
    return int(text, 16) if text.lower().lstrip("-").startswith("0x") else int(text)


def _spread(array: Any, kind: HloTensorType) -> Any:
    """The elements of an attribute; one that stands for all, as often as it stands there."""
    import numpy as np

    return np.broadcast_to(array, tuple(s.value for s in kind.shape))


class ValueReader(Cursor):
    """Recursive descent over what operations hold."""

    def __init__(self, text: str, source: str) -> None:
        super().__init__(text, source)
        self.unknown_sizes = 0
        self.dynamic_types: dict[str, HloTensorType] = {}

    # -- attributes -----------------------------------------------------------------

    def attributes(self) -> dict[str, Any]:
        """Entries up to the closing brace, which is taken."""
        return dict(self.list_of(self.attribute_entry, "}"))

    def attribute_entry(self) -> tuple[str, Any]:
        name = self.match(STRING)
        key = name[1:-1] if name is not None else self.need(WORD, "an attribute name")
        return key, self.attribute() if self.try_("=") else True

    def attribute(self) -> Any:
        if self.text.startswith("dense", self.at):
            return _spread(*self.typed_value())
        if (text := self.match(STRING)) is not None:
            return text[1:-1]
        if self.try_("["):
            return self.list_of(self.attribute, "]")
        if self.try_("{"):
            return self.attributes()
        if (symbol := self.match(LEGACY_SYMBOL)) is not None:
            return symbol
        if self.try_("true"):
            return True
        if self.try_("false"):
            return False
        number = self.match(NUMBER)
        if number is not None:
            kind = self.type_or_element() if self.try_(":") else None
            if number.lower().startswith("0x") and isinstance(kind, DType) and kind.is_float:
                return _float_from_bits(int(number, 16), kind)
            floating = ("." in number or "e" in number.lower()) and not number.startswith("0x")
            return float(number) if floating else int(number, 0)
        return self.type_or_element()

    def typed_value(self) -> tuple[Any, HloTensorType]:
        """`dense<...> : type`, or a bare scalar `1.0 : f32`, with its type."""
        import numpy as np

        if not self.try_("dense"):
            start = self.at
            word = self.match(re.compile(r"true|false")) or self.need(NUMBER, "a value")
            self.expect(":") if self.text.startswith(":", self.at) else None
            kind = BY_NAME["i1"] if word in ("true", "false") and self.at == start else None
            kind = kind or self.type_or_element()
            element = kind if isinstance(kind, DType) else BY_NAME["i1"]
            return self._elements(word, element), HloTensorType(element, ())
        self.expect("<")
        start = self.at
        end = self._end_of_dense()
        body = self.text[start:end].strip()
        self.at = end
        self.expect(">")
        self.expect(":")
        kind = self.type()
        if not isinstance(kind, HloTensorType):
            raise self.fail("a dense value needs a tensor type")
        shape = tuple(s.value for s in kind.shape)
        array = self._elements(body, kind.dtype)
        count = int(np.prod(shape, dtype=np.int64))
        if array.size not in (1, count):
            self.at = start
            raise self.fail(f"{array.size} elements do not fit a type of {count}")
        return (array.reshape(shape) if array.size == count else array.reshape(())), kind

    def _end_of_dense(self) -> int:
        if self.text.startswith('"', self.at):
            return self.text.index('"', self.at + 1) + 1
        end = self.text.find(">", self.at)
        if end < 0:
            raise self.fail("the '>' of this value is missing")
        return end

    def _elements(self, body: str, kind: DType) -> Any:
        import numpy as np

        if body.startswith('"0x'):
            return np.frombuffer(bytes.fromhex(body[3:-1]), dtype=kind.numpy_dtype)
        flat = body.replace("[", " ").replace("]", " ").replace(",", " ").split()
        try:
            if kind.kind == "bool":
                return np.array(
                    [{"true": True, "false": False}.get(t, t not in ("0",)) for t in flat]
                )
            if kind.is_integer:
                return np.array([_integer(t) for t in flat], dtype=object).astype(
                    kind.numpy_dtype
                )
            if any(t[:2].lower() == "0x" for t in flat):
                return np.array(
                    [
                        _float_from_bits(int(t, 16), kind)
                        if t[:2].lower() == "0x"
                        else float(t)
                        for t in flat
                    ],
                    dtype=kind.numpy_dtype,
                )
            return np.array(flat, dtype=np.float64).astype(kind.numpy_dtype)
        except (ValueError, OverflowError) as wrong:
            raise self.fail(f"'{body[:40]}' holds no elements of {kind}") from wrong

    # -- types ------------------------------------------------------------------------

    def function_type(self) -> tuple[list[HloType], list[HloType]]:
        self.expect("(")
        types = self.list_of(self.type, ")")
        self.expect("->")
        results = self.list_of(self.type, ")") if self.try_("(") else [self.type()]
        return types, results

    def type(self) -> HloType:
        kind = self.type_or_element()
        return HloTensorType(kind, ()) if isinstance(kind, DType) else kind

    def type_or_element(self) -> HloType | DType:
        if self.try_("tuple"):
            self.expect("<")
            return HloTupleType(tuple(self.list_of(self.type, ">")))
        if self.try_("!iree.ptr"):  # where a variable stands: nothing but the variable here
            self.expect("<")
            inner = self.type()
            self.expect(">")
            return inner
        if self.try_("tensor") or self.try_("memref") or self.try_("vector"):
            return self.shaped()
        return self.element()

    def shaped(self) -> HloTensorType:
        self.expect("<")
        found = re.compile(r"((?:(?:\d+|\?)\s*x\s*)*)").match(self.text, self.at)
        sizes = found.group(1) if found else ""
        self.at += len(sizes)
        kind = self.element()
        self.expect(">")
        text = f"{''.join(sizes.split())}{kind}"
        known = self.dynamic_types.get(text)
        if known is None:
            shape = tuple(self._size(s.strip()) for s in sizes.split("x") if s.strip())
            known = HloTensorType(kind, shape)
            if "?" in sizes:  # equal text is the same type, as in StableHLO
                self.dynamic_types[text] = known
        return known

    def _size(self, text: str) -> Any:
        if text != "?":
            return as_expr(int(text))
        self.unknown_sizes += 1
        return dim(f"size{self.unknown_sizes - 1}")

    def element(self) -> DType:
        at = self.at
        word = self.need(WORD, "a type")
        if word == "complex":
            self.expect("<")
            inner = self.element()
            self.expect(">")
            word = f"complex<{inner.name}>"
        name = {"index": "i64"}.get(word, word)
        name = name[1:] if name.startswith("si") else name
        if name not in BY_NAME:
            self.at = at
            raise self.fail(f"'{word}' is no element type")
        return BY_NAME[name]
