"""Reads `xla_hlo` text of 2019 and 2020 (seed 1's listings) into the tensor stage.

The text is MLIR of its age: `func @main(...) attributes {...} {`, generic operations
`"xla_hlo.dot"(%a, %b) {...} : (...) -> ...`, the short forms `xla_hlo.add %a, %b : type`
and `addf %a, %b : type`, `constant {name = "c"} dense<...> : type`, regions in `( { ... } )`.
Parsed by hand: no parser of today reads it, and a decimal constant of 100,000 elements has
to take milliseconds, not seconds. Reading executes nothing.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.base.dtypes import BY_NAME
from headrace.base.errors import error
from headrace.importers.hlo.blocks import HloBlock, NotStructured, as_one_block
from headrace.importers.hlo.convert import convert_module
from headrace.importers.hlo.legacy_values import LEGACY_SYMBOL, ValueReader
from headrace.importers.hlo.text_cursor import BLOCK, NUMBER, STRING, VALUE, WORD
from headrace.importers.hlo.tree import (
    HloFunction,
    HloModule,
    HloOperation,
    HloRegion,
    HloTensorType,
    HloType,
)
from headrace.importers.options import ImportOptions
from headrace.ir.model import Model

_CONSTANTS = ("constant", "unfoldable_constant", "dynamic_shape_constant")
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


def _calling(
    attributes: dict[str, Any], key: str, results: list[str], types: list[HloType]
) -> HloRegion:
    """A region that calls the function which an attribute names."""
    stem = f"{results[0]}.{key}" if results else f"%{key}"
    names = [f"{stem}.{n}" for n in range(len(types))]
    yields: list[HloType] = [HloTensorType(BY_NAME["i1"], ())] if key == "cond" else types
    made = [f"{stem}.made.{n}" for n in range(len(yields))]
    callee = {"callee": str(attributes.get(key, "")).lstrip("@")}
    call = HloOperation("std.call", names, made, callee, types, yields, "")
    end = HloOperation("std.return", made, [], {}, yields, [], "")
    return HloRegion(list(zip(names, types, strict=True)), [call, end])


class _Parser(ValueReader):
    """Recursive descent over the text."""

    def __init__(self, text: str, source: str) -> None:
        super().__init__(text, source)
        self.variables: dict[str, tuple[Any, HloTensorType]] = {}
        self.exported: set[str] = set()

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
            if self.try_("flow.variable"):
                self.variable()
            else:
                functions.append(self.function())
        if self.at < len(self.text):
            raise self.fail("expected the end of the file")
        if not functions:
            raise self.fail("there is no function")
        if self.exported:  # the others are called by those
            functions = [replace(f, public=f.name in self.exported) for f in functions]
        return HloModule(self.source, functions)

    def variable(self) -> None:
        """A weight of the module; one that changes would be state between calls."""
        begin = self.at
        name = self.need(LEGACY_SYMBOL, "a variable")[1:].strip('"')
        if self.try_("mutable"):
            raise self.fail(f"'@{name}' may change: no state is kept between calls", begin)
        self.variables[name] = self.typed_value()
        if self.try_("attributes"):
            self.expect("{")
            self.attributes()

    def function(self) -> HloFunction:
        self.expect("func")
        private = self.try_("private")
        name = self.need(LEGACY_SYMBOL, "a function name")[1:].strip('"')
        self.expect("(")
        arguments = [(n, k) for n, k in self.list_of(self.argument, ")")]
        results: list[HloType] = []
        if self.try_("->"):
            results = self.list_of(self.result_type, ")") if self.try_("(") else [self.type()]
        if self.try_("attributes"):
            self.expect("{")
            if "iree.module.export" in self.attributes():
                self.exported.add(name)
        self.expect("{")
        begin = self.at
        try:
            operations = as_one_block(self.blocks(arguments), results)
        except NotStructured as wrong:
            raise self.fail(str(wrong), begin) from wrong
        body = HloRegion(arguments, operations)
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

    def blocks(self, arguments: list[tuple[str, HloType]]) -> list[HloBlock]:
        """The blocks of a function up to its closing brace, which is taken."""
        found = [HloBlock("", arguments, [])]
        while not self.try_("}"):
            if self.at >= len(self.text):
                raise self.fail("a '}' is missing")
            label = self.match(BLOCK)
            if label is None:
                found[-1].operations.append(self.operation())
                continue
            taken = self.list_of(self.argument, ")") if self.try_("(") else []
            self.expect(":")
            found.append(HloBlock(label, taken, []))
        if len(found) > 1 and not all(block.operations for block in found):
            raise self.fail("a block is empty")
        return found

    def target(self) -> tuple[str, list[str]]:
        """A block that may follow, and the values handed to it."""
        label = self.need(BLOCK, "a block")
        values: list[str] = []
        if self.try_("("):
            values.append(self.need(VALUE, "a value"))
            while self.try_(","):
                values.append(self.need(VALUE, "a value"))
            self.expect(":")
            self.list_of(self.type, ")")
        return label, values

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
        if self.match(BLOCK) is not None:
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
        if name == "xla_hlo.while" and not regions:  # of 2019: it names functions
            regions = [_calling(attributes, n, results, types) for n in ("cond", "body")]
        return HloOperation(
            name, operands, results, attributes, types, result_types, place, regions
        )

    def short(self, name: str, results: list[str], place: str) -> HloOperation:
        bare = name.rpartition(".")[2]
        if bare in _CONSTANTS:
            attributes = self.attributes() if self.try_("{") else {}
            value, kind = self.typed_value()
            attributes["value"] = value
            if bare == "dynamic_shape_constant":  # its shape is known here all the same
                self.expect("->")
                self.type()
            return HloOperation(name, [], results, attributes, [], [kind], place)
        if bare in ("br", "cond_br"):
            condition = [self.need(VALUE, "a condition")] if bare == "cond_br" else []
            targets: list[tuple[str, list[str]]] = []
            while not condition or self.try_(","):
                targets.append(self.target())
                if not condition:
                    break
            if len(targets) != 1 + len(condition):
                raise self.fail(f"'{name}' names {len(targets)} blocks")
            return HloOperation(name, condition, results, {"targets": targets}, [], [], place)
        if name in ("flow.variable.load", "flow.variable.address"):
            begin = self.at
            symbol = self.need(LEGACY_SYMBOL, "a variable")[1:].strip('"')
            self.expect(":")
            kind = self.type()
            if self.variables.get(symbol, (None, None))[1] != kind:
                raise self.fail(f"there is no variable '@{symbol}' of {kind} above", begin)
            value = self.variables[symbol][0]
            return HloOperation(
                "std.constant", [], results, {"value": value}, [], [kind], place
            )
        attributes: dict[str, Any] = {}
        if _SHORT_COMPARE.fullmatch(name):
            attributes["predicate"] = self.need(STRING, "a predicate")[1:-1]
            self.expect(",")
        if bare == "call":
            attributes["callee"] = self.need(LEGACY_SYMBOL, "a function")[1:].strip('"')
        wrapped = self.try_("(")
        operands: list[str] = []
        while True:
            if self.text.startswith("dense", self.at):  # what a check compares with
                attributes["value"] = self.typed_value()[0]
            elif (value := self.match(VALUE)) is not None:
                operands.append(value)
                if self.try_("["):  # the indices of an element
                    operands += self.list_of(lambda: self.need(VALUE, "an index"), "]")
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
            result_types: list[HloType] = types if bare == "return" else types[:1]
            if bare == "extract_element" and isinstance(types[0], HloTensorType):
                result_types = [HloTensorType(types[0].dtype, ())]
            if self.try_("->") or self.try_("to"):
                result_types = [self.type()]
        return HloOperation(name, operands, results, attributes, types, result_types, place)
