"""Reads `xla_hlo` text of 2019 and 2020 (seed 1's listings) into the tensor stage.

The text is MLIR of its age: `func @main(...) attributes {...} {`, generic operations
`"xla_hlo.dot"(%a, %b) {...} : (...) -> ...`, the short forms `xla_hlo.add %a, %b : type`
and `addf %a, %b : type`, `constant {name = "c"} dense<...> : type`, regions in `( { ... } )`.
Parsed by hand: no parser of today reads it, and a decimal constant of 100,000 elements has
to take milliseconds, not seconds. Reading executes nothing.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from headrace.base.dtypes import BY_NAME, DType
from headrace.base.errors import error
from headrace.base.symbols import as_expr, dim
from headrace.importers.hlo.convert import convert_module
from headrace.importers.hlo.text_cursor import NUMBER, STRING, VALUE, WORD, Cursor
from headrace.importers.hlo.tree import (
    HloFunction,
    HloModule,
    HloOperation,
    HloRegion,
    HloTensorType,
    HloTupleType,
    HloType,
)
from headrace.importers.options import ImportOptions
from headrace.ir.model import Model

_SYMBOL = re.compile(r'@(?:"[^"]*"|[\w$.-]+)')
_SHORT_COMPARE = re.compile(r"(?:std\.)?cmp[if]")


def load(path: Path, options: ImportOptions | None = None) -> Model:
    """The model in a text file.

    Args:
        path: of the `.mlir` file.
        options: none are known; importers share the signature.

    Raises:
        HeadraceError HR1001: the text cannot be read, with line and column; HR1101:
            operations that are not supported, all at once; HR1102: a malformed one.
    """
    del options
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as wrong:
        raise error(
            "HR1001", "the file is no UTF-8 text", at=f"{path.name}: byte {wrong.start}"
        ) from wrong
    return load_text(text, path.name)


def load_text(text: str, source: str) -> Model:
    """The model in a string; `source` names it in messages. Raises as `load`."""
    module = _Parser(text, source).module()
    return convert_module(module, Path(source).stem)


def read_checked(case: str, source: str) -> HloModule:
    """A test with `check.*` operations as a neutral tree. Raises HR1001 as `load`."""
    return _Parser(case, source).module()


def _float_from_bits(bits: int, kind: DType) -> Any:
    import numpy as np

    return np.array([bits], dtype=f"u{kind.size_bytes}").view(kind.numpy_dtype)[0]


def _integer(text: str) -> int:
    """Decimal with leading zeros, or hexadecimal."""
    return int(text, 16) if text.lower().lstrip("-").startswith("0x") else int(text)


class _Parser(Cursor):
    """Recursive descent over the text."""

    def __init__(self, text: str, source: str) -> None:
        super().__init__(text, source)
        self.unknown_sizes = 0

    # -- structure ----------------------------------------------------------------

    def module(self) -> HloModule:
        functions: list[HloFunction] = []
        inside = self.try_("module")
        if inside:
            if self.try_("attributes"):
                self.expect("{")
                self.attributes()
            self.expect("{")
        while True:
            if inside and self.try_("}"):
                break
            if self.at >= len(self.text):
                if inside:
                    raise self.fail("the module's '}' is missing")
                break
            functions.append(self.function())
        if self.at < len(self.text):
            raise self.fail("expected the end of the file")
        if not functions:
            raise self.fail("there is no function")
        return HloModule(self.source, functions)

    def function(self) -> HloFunction:
        self.expect("func")
        private = self.try_("private")
        name = self.need(_SYMBOL, "a function name")[1:].strip('"')
        self.expect("(")
        arguments = [(n, k) for n, k in self.list_of(self.argument, ")")]
        results: list[HloType] = []
        if self.try_("->"):
            results = self.list_of(self.result_type, ")") if self.try_("(") else [self.type()]
        if self.try_("attributes"):
            self.expect("{")
            self.attributes()
        self.expect("{")
        body = HloRegion(arguments, self.operations())
        names = [n[1:] for n, _ in arguments]
        return HloFunction(name, body, results, names, [], public=not private)

    def argument(self) -> tuple[str, HloType]:
        name = self.need(VALUE, "an argument")
        self.expect(":")
        kind = self.type()
        if self.try_("{"):
            self.attributes()
        return name, kind

    def result_type(self) -> HloType:
        kind = self.type()
        if self.try_("{"):
            self.attributes()
        return kind

    def operations(self) -> list[HloOperation]:
        """Operations up to the closing brace, which is taken."""
        found: list[HloOperation] = []
        while not self.try_("}"):
            if self.at >= len(self.text):
                raise self.fail("a '}' is missing")
            found.append(self.operation())
        return found

    def region(self) -> HloRegion:
        self.expect("{")
        arguments: list[tuple[str, HloType]] = []
        if self.match(re.compile(r"\^[\w$.-]+")) is not None:
            if self.try_("("):
                arguments = self.list_of(self.argument, ")")
            self.expect(":")
        return HloRegion(arguments, self.operations())

    # -- operations -----------------------------------------------------------------

    def operation(self) -> HloOperation:
        start = self.at
        results: list[str] = []
        while (name := self.match(VALUE)) is not None:
            if self.try_(":"):
                count = int(self.need(NUMBER, "a count"))
                results += [f"{name}#{n}" for n in range(count)]
            else:
                results.append(name)
            if self.try_("="):
                break
            self.expect(",")
        place = f"line {self.line(start)}"
        quoted = self.match(STRING)
        made = (
            self.generic(quoted[1:-1], results, place)
            if quoted is not None
            else self.short(self.need(WORD, "an operation"), results, place)
        )
        user_name = made.attributes.get("name")
        if isinstance(user_name, str) and user_name:
            made.place = f"operation '{user_name}' ({place})"
        return made

    def generic(self, name: str, results: list[str], place: str) -> HloOperation:
        self.expect("(")
        operands = self.list_of(lambda: self.need(VALUE, "an operand"), ")")
        regions: list[HloRegion] = []
        if self.try_("("):
            regions = self.list_of(self.region, ")")
        attributes = self.attributes() if self.try_("{") else {}
        self.expect(":")
        types, result_types = self.function_type()
        return HloOperation(
            name, operands, results, attributes, types, result_types, place, regions
        )

    def short(self, name: str, results: list[str], place: str) -> HloOperation:
        bare = name.rpartition(".")[2]
        if bare in ("constant", "unfoldable_constant"):
            attributes = self.attributes() if self.try_("{") else {}
            value, kind = self.typed_value()
            attributes["value"] = value
            return HloOperation(name, [], results, attributes, [], [kind], place)
        attributes: dict[str, Any] = {}
        if _SHORT_COMPARE.fullmatch(name):
            attributes["predicate"] = self.need(STRING, "a predicate")[1:-1]
            self.expect(",")
        if bare == "call":
            attributes["callee"] = self.need(_SYMBOL, "a function")[1:].strip('"')
        wrapped = self.try_("(")
        operands: list[str] = []
        while True:
            if self.text.startswith("dense", self.at):  # what a check compares with
                attributes["value"] = self.typed_value()[0]
            elif (value := self.match(VALUE)) is not None:
                operands.append(value)
            else:
                break
            if not self.try_(","):
                break
        if wrapped:
            self.expect(")")
        if self.try_("{"):
            attributes.update(self.attributes())
        if not self.try_(":"):
            return HloOperation(name, operands, results, attributes, [], [], place)
        if self.text.startswith("(", self.at):
            types, result_types = self.function_type()
        else:
            types = [self.type()]
            while self.try_(","):
                types.append(self.type())
            # `xla_hlo.add %a, %b : T` names one type for operands and result.
            result_types = types if bare == "return" else types[:1]
            if self.try_("->") or self.try_("to"):
                result_types = [self.type()]
        return HloOperation(name, operands, results, attributes, types, result_types, place)

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
            return self.typed_value()[0]
        if (text := self.match(STRING)) is not None:
            return text[1:-1]
        if self.try_("["):
            return self.list_of(self.attribute, "]")
        if self.try_("{"):
            return self.attributes()
        if (symbol := self.match(_SYMBOL)) is not None:
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
        if self.try_("tensor") or self.try_("memref") or self.try_("vector"):
            return self.shaped()
        return self.element()

    def shaped(self) -> HloTensorType:
        self.expect("<")
        found = re.compile(r"((?:(?:\d+|\?)\s*x\s*)*)").match(self.text, self.at)
        sizes = found.group(1) if found else ""
        self.at += len(sizes)
        shape = tuple(self._size(s.strip()) for s in sizes.split("x") if s.strip())
        kind = self.element()
        self.expect(">")
        return HloTensorType(kind, shape)

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
