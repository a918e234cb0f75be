"""Reads MLIR text of StableHLO: generic form of any dialect, short forms of those known here.

Nothing is executed, and nothing outside of Python reads the text. Names of values follow
MLIR's scopes and come out as `%0`, `%1`, ... in the order of their definitions, so that text
of any form gives the same tree.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from headrace.base.errors import HeadraceError
from headrace.importers.hlo import short_forms
from headrace.importers.hlo.text_attributes import AttributeReader
from headrace.importers.hlo.text_cursor import (
    BLOCK,
    NUMBER,
    STRING,
    SYMBOL,
    VALUE,
    WORD,
)
from headrace.importers.hlo.tree import (
    HloFunction,
    HloModule,
    HloOperation,
    HloRegion,
    HloType,
)

_ALIAS = re.compile(r"[!#][A-Za-z_][\w$]*\s*=")
_LOCATION = re.compile(r'"([^"]*)":(\d+):(\d+)')
_NAMED = re.compile(r'^\s*"([^"]+)"\s*(?:\(|$)')


class UnknownForm(Exception):
    """A short form of a dialect that nothing here reads; holds the error to raise where
    nobody else can."""

    def __init__(self, refused: HeadraceError) -> None:
        super().__init__(str(refused))
        self.refused = refused


def read_text(text: str, source: str, arrays: Sequence[bytes | memoryview] = ()) -> HloModule:
    """The module in a text.

    Args:
        text: of one module, or functions without one around them.
        source: names it in messages.
        arrays: the elements that `dense_resource<__elided__>` stands for, in order.

    Raises:
        HeadraceError HR1001: it is no such text, with line and column.
        UnknownForm: a short form is unknown.
    """
    reader = TextReader(text, source, list(arrays))
    try:
        return reader.module()
    except RecursionError:
        raise reader.fail("the text is nested too deeply") from None


class TextReader(AttributeReader):
    """Recursive descent over the text."""

    def __init__(self, text: str, source: str, arrays: list[bytes | memoryview]) -> None:
        super().__init__(text, source, arrays)
        self._scopes: list[dict[str, list[tuple[str, HloType]]]] = [{}]
        self._names = 0

    # -- modules and functions -----------------------------------------------------------

    def module(self) -> HloModule:
        functions: list[HloFunction] = []
        self._aliases_here()
        if self.try_("module") or self.try_("builtin.module"):
            self.match(SYMBOL)
            if self.try_("attributes"):
                self.expect("{")
                self.attributes()
            self.expect("{")
            self._functions(functions, "}")
            self.location()
        elif self.try_('"builtin.module"'):
            self.expect("(")
            self.expect(")")
            if self.try_("<{"):
                self.attributes()
                self.expect(">")
            self.expect("(")
            self.expect("{")
            if self.match(BLOCK):
                self.expect(":")
            self._functions(functions, "}")
            self.expect(")")
            if self.try_("{"):
                self.attributes()
            self.expect(":")
            self.function_type()
            self.location()
        else:
            self._functions(functions, "")
        self._aliases_here()
        if self.at < self.end:
            raise self.fail("expected the end of the text")
        seen: set[str] = set()
        for function in functions:
            if function.name in seen:
                raise self.fail(f"there are two functions '{function.name}'", 0)
            seen.add(function.name)
        return HloModule(self.source, functions)

    def _aliases_here(self) -> None:
        while self.match(_ALIAS) is not None:
            if self.text.startswith("loc", self.at):
                self.location()
            else:
                self.attribute()

    def _functions(self, found: list[HloFunction], end: str) -> None:
        """Up to the closing mark, which is taken; other operations there have no meaning."""
        while True:
            self._aliases_here()
            if end and self.try_(end):
                return
            if self.at >= self.end:
                if end:
                    raise self.fail("the module's '}' is missing")
                return
            begin = self.at
            if self.try_("func.func") or self.try_("func"):
                found.append(self._function(begin))
            elif self.sees('"func.func"'):
                found.append(self._generic_function(begin))
            elif self.sees("module") or self.sees('"builtin.module"'):
                raise self.fail("a module inside of a module")
            else:
                self.operation()

    def _function(self, begin: int) -> HloFunction:
        public = True
        for word in ("public", "private", "nested"):
            if self.try_(word):
                public = word != "private"
        name = self.need(SYMBOL, "a function name")[1:].strip('"')
        self.expect("(")
        self._scopes.append({})
        given = self.list_of(self._argument, ")")
        results: list[HloType] = []
        if self.try_("->"):
            results = self.list_of(self._result, ")") if self.try_("(") else [self.type()]
        if self.try_("attributes"):
            self.expect("{")
            self.attributes()
        place = f"line {self.line(begin)} '@{name}'"
        arguments = [(n, k) for n, k, _ in given]
        names = [f"arg{n}" for n in range(len(arguments))]
        has_body = self.try_("{")
        body = HloRegion(arguments, self.operations() if has_body else [])
        self._scopes.pop()
        self.location()
        return HloFunction(
            name, body, results, names, [], public, [a for _, _, a in given], place, has_body
        )

    def _argument(self) -> tuple[str, HloType, dict[str, Any]]:
        name = self.match(VALUE)
        if name is not None:
            self.expect(":")
        kind = self.type()
        attributes = self.attributes() if self.try_("{") else {}
        self.location()
        return self.define(name, kind) if name else "", kind, attributes

    def _result(self) -> HloType:
        kind = self.type()
        if self.try_("{"):
            self.attributes()
        return kind

    def _generic_function(self, begin: int) -> HloFunction:
        self.expect('"func.func"')
        self.expect("(")
        self.expect(")")
        attributes: dict[str, Any] = {}
        types: tuple[list[HloType], list[HloType]] | None = None
        inside = self.try_("<{")
        if inside:
            attributes, types = self._function_attributes()
            self.expect(">")
        self.expect("(")
        self._scopes.append({})
        body = self.region()
        self._scopes.pop()
        self.expect(")")
        if self.try_("{"):
            more, given = self._function_attributes()
            attributes.update(more)
            types = given or types
        self.expect(":")
        self.function_type()
        place = self.location() or f"line {self.line(begin)}"
        if types is None or "sym_name" not in attributes:
            raise self.fail("a function without a name or without a type", begin)
        name = str(attributes["sym_name"])
        if [k for _, k in body.arguments] != types[0] and (body.arguments or body.operations):
            raise self.fail("the arguments of the body are not those of the function", begin)
        names = [f"arg{n}" for n in range(len(body.arguments))]
        given_attributes = attributes.get("arg_attrs", [{}] * len(body.arguments))
        return HloFunction(
            name, body, types[1], names, [], attributes.get("sym_visibility") != "private",
            given_attributes, f"{place} '@{name}'", bool(body.operations),
        )  # fmt: skip

    def _function_attributes(self) -> tuple[dict[str, Any], Any]:
        found: dict[str, Any] = {}
        types = None
        while not self.try_("}"):
            key = (self.match(STRING) or self.need(WORD, "an attribute name")).strip('"')
            if key == "function_type":
                self.expect("=")
                types = self.function_type()
            else:
                found[key] = self.attribute() if self.try_("=") else True
            self.try_(",")
        return found, types

    # -- values ----------------------------------------------------------------------------

    def define(self, name: str, kind: HloType) -> str:
        """A new name for a value of one type."""
        return self.define_all(name, [kind])[0]

    def define_all(self, name: str, kinds: Sequence[HloType]) -> list[str]:
        if any(name in scope for scope in self._scopes):
            raise self.fail(f"'{name}' is defined twice")
        made = [f"%{self._names + n}" for n in range(len(kinds))]
        self._names += len(kinds)
        self._scopes[-1][name] = list(zip(made, kinds, strict=True))
        return made

    def fresh(self) -> str:
        """A name for a value that the text does not spell out."""
        self._names += 1
        return f"%{self._names - 1}"

    def operand(self) -> tuple[str, HloType]:
        """A value that is used: its name and its type."""
        begin = self.at
        text = self.need(VALUE, "a value")
        name, _, number = text.partition("#")
        for scope in reversed(self._scopes):
            found = scope.get(name)
            if found is None:
                continue
            index = int(number or 0)
            if index >= len(found):
                raise self.fail(f"'{text}' names none of {len(found)} results", begin)
            return found[index]
        raise self.fail(f"'{text}' is defined nowhere above", begin)

    # -- operations --------------------------------------------------------------------------

    def operations(self) -> list[HloOperation]:
        """Operations up to the closing brace, which is taken."""
        found: list[HloOperation] = []
        while not self.try_("}"):
            if self.at >= self.end:
                raise self.fail("a '}' is missing")
            found.append(self.operation())
        return found

    def region(self, arguments: Sequence[tuple[str, HloType]] = ()) -> HloRegion:
        """A region of one block, in its braces; `arguments` are defined in it already."""
        self.expect("{")
        self._scopes.append({})
        given = list(arguments)
        if self.match(BLOCK) is not None:
            if self.try_("("):
                given = [(n, k) for n, k, _ in self.list_of(self._argument, ")")]
            self.expect(":")
        operations: list[HloOperation] = []
        while not self.try_("}"):
            if self.at >= self.end:
                raise self.fail("a '}' is missing")
            if BLOCK.match(self.text, self.at):
                raise self.fail("a region of several blocks")
            operations.append(self.operation())
        self._scopes.pop()
        return HloRegion(given, operations)

    def short_region(self, arguments: Sequence[tuple[str, HloType]]) -> HloRegion:
        """A region whose arguments stand before it."""
        self._scopes.append({})
        made = [(self.define(name, kind), kind) for name, kind in arguments]
        region = self.region(made)
        self._scopes.pop()
        return region

    def operation(self) -> HloOperation:
        begin = self.at
        names: list[tuple[str, int]] = []
        while (name := self.match(VALUE)) is not None:
            count = int(self.need(NUMBER, "a count")) if self.try_(":") else 1
            names.append((name, count))
            if self.try_("="):
                break
            self.expect(",")
        at = self.at
        quoted = self.match(STRING)
        if quoted is not None:
            made = self._generic(quoted[1:-1], at)
        else:
            made = self._short(self.need(WORD, "an operation"), at)
        made.place = f"line {self.line(begin)} '{made.name}'"
        named = self.location()
        if named is not None:
            made.place = f"{named} '{made.name}'"
        expected = sum(count for _, count in names)
        if names and expected != len(made.result_types):
            raise self.fail(
                f"'{made.name}' has {len(made.result_types)} results, not {expected}", begin
            )
        kinds = iter(made.result_types)
        for name, count in names:
            made.results += self.define_all(name, [next(kinds) for _ in range(count)])
        if not names:
            made.results = [f"%{self._names + n}" for n in range(len(made.result_types))]
            self._names += len(made.result_types)
        return made

    def _generic(self, name: str, at: int) -> HloOperation:
        self.expect("(")
        given = self.list_of(self.operand, ")")
        if self.try_("["):
            raise self.fail("an operation with successors", at)
        attributes: dict[str, Any] = {}
        if self.try_("<{"):
            attributes = self.attributes()
            self.expect(">")
        regions: list[HloRegion] = self.list_of(self.region, ")") if self.try_("(") else []
        if self.try_("{"):
            attributes.update(self.attributes())
        self.expect(":")
        types, result_types = self.function_type()
        self.check_types(given, types, at)
        return HloOperation(
            name, [n for n, _ in given], [], attributes, types, result_types, "", regions
        )

    def check_types(
        self, given: Sequence[tuple[str, HloType]], types: Sequence[HloType], at: int
    ) -> None:
        """Refuses operands that do not have the types that the text gives them."""
        if len(given) != len(types):
            raise self.fail(f"{len(given)} operands have {len(types)} types", at)
        for n, ((_, actual), said) in enumerate(zip(given, types, strict=True)):
            if actual != said:
                raise self.fail(f"operand {n} is a {actual}, not a {said}", at)

    def _short(self, name: str, at: int) -> HloOperation:
        made = short_forms.read(self, name)
        if made is None:
            raise UnknownForm(self.fail(f"the short form of '{name}' cannot be read", at))
        return made

    # -- places ------------------------------------------------------------------------------

    def location(self) -> str | None:
        """Takes `loc(...)`; the user's name, or the line in the user's text."""
        if not self.text.startswith("loc(", self.at):
            return None
        self.at += 3
        body = self.balanced().strip()
        for _ in range(4):
            if not body.startswith("#"):
                break
            place = self.aliases.get(body)
            if place is None:
                return None
            back, self.at = self.at, place
            self.try_("loc")
            body = self.balanced().strip()
            self.at = back
        named = _NAMED.match(body)
        found = _LOCATION.search(body)
        if named is not None:
            return f"'{named.group(1)}'"
        return f"line {found.group(2)}" if found else None
