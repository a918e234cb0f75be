"""Types in MLIR text."""

from __future__ import annotations

import re
from typing import Any

from headrace.base.dtypes import BY_NAME, DType
from headrace.base.symbols import as_expr, dim
from headrace.importers.hlo.text_cursor import STRING, WORD, Cursor
from headrace.importers.hlo.tree import HloOpaqueType, HloTensorType, HloTupleType, HloType

_PLAIN = re.compile(r"tensor<((?:\d+x)*)([a-z]\w*)>")
_SIZES = re.compile(r"(?:(?:\d+|\?)\s*x\s*)*")
_UNRANKED = re.compile(r"\*\s*x\s*")
_TYPE_ALIAS = re.compile(r"![A-Za-z_][\w$]*(?![\w$.])")
_TYPE_NAME = re.compile(r"![A-Za-z_][\w$.]*")
_ALIASES = re.compile(r"^\s*([!#][A-Za-z_][\w$]*)\s*=\s*", re.MULTILINE)
_BOUNDS = re.compile(r"#stablehlo\.type_extensions<bounds = \[([^\]]*)\]>")
_KNOWN_TYPES = {"stablehlo": ("token", "future")}


class TypeReader(Cursor):
    """Reads types; equal text is the same type, so a `?` in it is one unknown size."""

    def __init__(self, text: str, source: str) -> None:
        super().__init__(text, source)
        self.sizes = 0
        self.known_types: dict[str, HloType] = {}
        self.aliases = {m.group(1): m.end() for m in _ALIASES.finditer(text)}
        """Where in the text the value of each alias stands."""

    def function_type(self) -> tuple[list[HloType], list[HloType]]:
        self.expect("(")
        types = self.list_of(self.type, ")")
        self.expect("->")
        results = self.list_of(self.type, ")") if self.try_("(") else [self.type()]
        return types, results

    def type(self) -> HloType:
        plain = _PLAIN.match(self.text, self.at)
        if plain is None:
            return self._type()
        known = self.known_types.get(plain.group())
        if known is None:
            element = _dtype(plain.group(2))
            if element is None:
                return self._type()
            shape = tuple(as_expr(int(s)) for s in plain.group(1).split("x") if s)
            known = self.known_types[plain.group()] = HloTensorType(element, shape)
        self.at = plain.end()
        self.space()
        return known

    def _type(self) -> HloType:
        begin = self.at
        if self.try_("tuple"):
            self.expect("<")
            return HloTupleType(tuple(self.list_of(self.type, ">")))
        if self.try_("tensor"):
            return self._tensor()
        if self.sees("!"):
            return self._dialect_type()
        if self.sees("("):
            self.function_type()
            return HloOpaqueType(self.text[begin : self.at].strip())
        word = self.need(WORD, "a type")
        if word in ("vector", "memref", "complex") and self.sees("<"):
            inner = self.balanced()
            element = _dtype(f"{word}<{inner.strip()}>")
            return HloTensorType(element, ()) if element else HloOpaqueType(f"{word}<{inner}>")
        element = _dtype(word)
        if element is not None:
            return HloTensorType(element, ())
        if word == "none" or re.fullmatch(r"[su]?i\d+|f\d\w*|tf32|bf16", word):
            return HloOpaqueType(word)
        raise self.fail(f"'{word}' is no type", begin)

    def _dialect_type(self) -> HloType:
        begin = self.at
        name = self.match(_TYPE_ALIAS)
        if name is not None:
            return self.alias_value(name, self.type, begin)
        name = self.need(_TYPE_NAME, "a type")
        inner = f"<{self.balanced()}>" if self.sees("<") else ""
        dialect, _, kind = name[1:].partition(".")
        if dialect in _KNOWN_TYPES and kind not in _KNOWN_TYPES[dialect]:
            raise self.fail(f"'{name}' is no type of {dialect}", begin)
        if kind == "future" and not re.fullmatch(r"<(?:tensor<.*>|!.*|)>", inner):
            raise self.fail(f"'{name}{inner}' holds more than tensors", begin)
        if kind == "future" and re.search(r">\s*,\s*[a-z]\w*\s*(?:,|>$)", inner):
            raise self.fail(f"'{name}{inner}' holds more than tensors", begin)
        return HloOpaqueType(name + inner)

    def alias_value(self, name: str, read: Any, at: int) -> Any:
        """What an alias stands for. Raises HR1001 where nothing of that name is defined."""
        place = self.aliases.get(name)
        if place is None:
            raise self.fail(f"'{name}' is defined nowhere", at)
        back, self.at = self.at, place
        self.space()
        try:
            return read()
        except RecursionError:
            raise self.fail(f"'{name}' stands for itself", at) from None
        finally:
            self.at = back

    def _tensor(self) -> HloType:
        self.expect("<")
        unranked = self.match(_UNRANKED) is not None
        sizes = "".join((self.match(_SIZES) or "").split())
        element, grid, dtype = self._element()
        encoding = self.attribute_text() if self.try_(",") else ""
        if not self.sees(">"):
            raise self.fail("expected '>'")
        text = f"tensor<{'*x' if unranked else sizes}{element}"
        text += f", {encoding}>" if encoding else ">"
        self.try_(">")
        known = self.known_types.get(text)
        if known is not None:
            return known
        if unranked or dtype is None:
            made: HloType = HloOpaqueType(text)
        else:
            shape = tuple(self._size(s) for s in sizes.split("x") if s)
            made = HloTensorType(dtype, shape, grid, encoding)
        self.known_types[text] = made
        return made

    def attribute_text(self) -> str:
        """An attribute as written, aliases replaced."""
        begin = self.at
        if self.sees("#"):
            name = self.need(re.compile(r"#[A-Za-z_][\w$.]*"), "an attribute")
            if self.sees("<"):
                text = f"{name}<{self.balanced()}>"
                return _BOUNDS.sub(r"#stablehlo.bounds<\1>", text)
            if name in self.aliases:
                return self.alias_value(name, self.attribute_text, begin)
            return name
        for mark, end in ("{}", "[]"):
            if self.sees(mark):
                return mark + self.balanced() + end
        return self.match(STRING) or self.need(re.compile(r"[-\w.]+"), "an attribute")

    def _size(self, text: str) -> Any:
        if text != "?":
            return as_expr(int(text))
        self.sizes += 1
        return dim(f"size{self.sizes - 1}")

    def _element(self) -> tuple[str, str, DType | None]:
        """The text, the grid and the dtype of elements; no dtype where nothing computes
        with them."""
        begin = self.at
        if self.sees("!"):
            kind = self._dialect_type()
            if isinstance(kind, HloTensorType):
                return kind.dtype.name, kind.grid, kind.dtype
            text = str(kind)
            if not text.startswith("!quant.uniform<"):
                return text, "", None
            grid = one_spelling(text[len("!quant.uniform<") : -1])
            return f"!quant.uniform<{grid}>", grid, _dtype(expressed_type(grid))
        word = self.need(WORD, "an element type")
        if word == "complex" and self.sees("<"):
            word = f"complex<{self.balanced().strip()}>"
        if word in ("tuple", "tensor"):
            raise self.fail(f"a tensor holds no '{word}'", begin)
        return word, "", _dtype(word)


def _dtype(name: str) -> DType | None:
    return BY_NAME.get({"index": "i64"}.get(name, name))


def expressed_type(grid: str) -> str:
    """`f32` of `i8:f32, 0.5:-3`; empty where the text says none."""
    parts = re.split(r"[:,]", re.sub(r"<[^>]*>", "", grid))
    return parts[1].strip() if len(parts) > 1 else ""


_GRID_NUMBER = re.compile(r"(?<![\w.])\d+\.\d*(?:[eE][-+]?\d+)?")


def one_spelling(grid: str) -> str:
    """A grid with its numbers and spaces as nobody else would write them."""
    same = _GRID_NUMBER.sub(lambda found: repr(float(found.group())), grid)
    return "".join(same.split())
