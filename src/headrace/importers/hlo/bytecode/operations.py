"""The operations of a portable artifact as a tree of StableHLO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.base.errors import HeadraceError, error
from headrace.importers.hlo.bytecode.byte_cursor import ByteCursor
from headrace.importers.hlo.bytecode.container import Container
from headrace.importers.hlo.bytecode.entries import Entries
from headrace.importers.hlo.bytecode.vhlo_entries import FunctionType
from headrace.importers.hlo.bytecode.vhlo_operations import PROPERTIES, as_stablehlo
from headrace.importers.hlo.tree import (
    HloFunction,
    HloModule,
    HloOperation,
    HloRegion,
    HloType,
)

DEEPEST = 64
"""Regions within regions."""

_ATTRIBUTES, _RESULTS, _OPERANDS, _SUCCESSORS = 1, 2, 4, 8
_REGIONS, _USE_ORDERS, _PROPERTIES = 16, 32, 64
"""Bits that say what an operation holds."""

_Values = list[tuple[str, HloType] | None]


def read_artifact(file: Container, source: str) -> HloModule:
    """The module in a portable artifact of StableHLO.

    Args:
        file: its container.
        source: names it in messages.

    Raises:
        HeadraceError HR1001: it holds what no release up to 1.21 writes, with the byte.
    """
    try:
        return _Reader(file, source).module()
    except HeadraceError as refused:
        found = refused.diagnostics[0]
        notes = [*found.notes, f"the file was written by {file.producer[:80]}"]
        raise error(found.code, found.fact, at=found.places, notes=notes) from None


@dataclass
class _Scope:
    """Values of a region: those of the regions around it stand before them in the list.

    Attributes:
        values: name and type by number; None before the definition.
        next: the number of the next definition.
        end: the number behind the last.
    """

    values: _Values
    next: int
    end: int


@dataclass(frozen=True)
class _Head:
    """What stands of an operation before its regions, as numbers.

    Attributes:
        name: with dialect and version.
        begin: where it stands.
        first: the number of its first result.
    """

    name: str
    begin: int
    place: int
    attributes: int | None
    properties: int | None
    results: list[int]
    operands: list[int]
    first: int
    has_regions: bool


class _Reader:
    """Walks the operations.

    Args:
        file: their container.
        source: names it in messages.
    """

    def __init__(self, file: Container, source: str) -> None:
        self.file = file
        self.source = source
        self.entries = Entries(file, source)
        self._names = 0
        self._depth = 0

    def module(self) -> HloModule:
        cursor = self.file.operations
        if cursor.varint() != 1 << 1:
            raise cursor.fail("expected one module without arguments", 0)
        scope = _Scope([], 0, 0)
        head = self._head(cursor, scope)
        if head.name != "builtin.module":
            raise cursor.fail(f"expected a module, not '{head.name}'", head.begin)
        count, inner, values = self._regions(cursor, head, scope)
        functions = [f for _ in range(count) for f in self._functions(inner, values)]
        seen: set[str] = set()
        for function in functions:
            if function.name in seen:
                raise cursor.fail(f"there are two functions '{function.name}'", head.begin)
            seen.add(function.name)
        return HloModule(self.source, functions)

    # -- functions ---------------------------------------------------------------------

    def _functions(self, cursor: ByteCursor, values: _Values) -> list[HloFunction]:
        scope = self._enter(cursor, values)
        found: list[HloFunction] = []
        count, _ = self._block(cursor, scope) if scope is not None else (0, [])
        for _ in range(count):
            assert scope is not None
            head = self._head(cursor, scope)
            if head.name == "vhlo.func_v1":
                found.append(self._function(cursor, head, scope))
            elif head.name.startswith("vhlo."):
                raise cursor.fail(f"'{head.name}' outside of a function", head.begin)
            elif head.has_regions:
                raise cursor.fail(f"the operation '{head.name}' is not known", head.begin)
            # Others mean nothing here: meshes of shardings, for one.
        return found

    def _function(self, cursor: ByteCursor, head: _Head, scope: _Scope) -> HloFunction:
        attributes = self._attributes(cursor, head)
        kind, name = attributes.get("function_type"), attributes.get("sym_name")
        if not isinstance(kind, FunctionType) or not isinstance(name, str):
            raise cursor.fail("a function without a name or without a type", head.begin)
        place = self.entries.place(cursor, head.place)
        place = place or f"byte {cursor.base + head.begin}"
        bodies = self._bodies(cursor, head, scope)
        if len(bodies) != 1:
            raise cursor.fail(f"a function of {len(bodies)} bodies", head.begin)
        body = bodies[0]
        has_body = bool(body.operations)
        if has_body and [k for _, k in body.arguments] != kind.inputs:
            raise cursor.fail("the arguments of a body are not its function's", head.begin)
        if not has_body:
            body = HloRegion([("", k) for k in kind.inputs], [])
        for operation in body.operations:
            if operation.name == "stablehlo.return":
                operation.name = "func.return"
                operation.place = operation.place.replace("stablehlo.return", "func.return")
        given = attributes.get("arg_attrs")
        if not isinstance(given, list) or len(given) != len(body.arguments):
            given = [{} for _ in body.arguments]
        return HloFunction(
            name, body, kind.results, [f"arg{n}" for n in range(len(body.arguments))], [],
            attributes.get("sym_visibility") != "private",
            [dict(one) if isinstance(one, dict) else {} for one in given],
            f"{place} '@{name}'", has_body,
        )  # fmt: skip

    # -- regions -----------------------------------------------------------------------

    def _regions(
        self, cursor: ByteCursor, head: _Head, scope: _Scope
    ) -> tuple[int, ByteCursor, _Values]:
        """How many regions an operation has, where they stand, and the values they see."""
        if not head.has_regions:
            return 0, cursor, scope.values
        found = cursor.varint()
        count, isolated = found >> 1, found & 1
        if count > cursor.left:
            raise cursor.fail(f"{count} regions do not fit", head.begin)
        if isolated and self.file.version >= 2:
            return count, cursor.section()[1], []
        return count, cursor, [] if isolated else scope.values

    def _bodies(self, cursor: ByteCursor, head: _Head, scope: _Scope) -> list[HloRegion]:
        count, inner, values = self._regions(cursor, head, scope)
        return [self._region(inner, values) for _ in range(count)]

    def _enter(self, cursor: ByteCursor, values: _Values) -> _Scope | None:
        """The scope of a region that begins here; None where it is empty."""
        blocks = cursor.varint()
        if blocks == 0:
            return None
        if blocks > 1:
            raise cursor.fail("a region of several blocks")
        first, count = len(values), cursor.count()
        values += [None] * count
        return _Scope(values, first, first + count)

    def _region(self, cursor: ByteCursor, values: _Values) -> HloRegion:
        self._depth += 1
        if self._depth > DEEPEST:
            raise cursor.fail(f"regions stand {DEEPEST} deep in one another")
        first = len(values)
        scope = self._enter(cursor, values)
        made = HloRegion([], [])
        if scope is not None:
            count, made.arguments = self._block(cursor, scope)
            made.operations = [self._operation(cursor, scope) for _ in range(count)]
        del values[first:]
        self._depth -= 1
        return made

    def _block(
        self, cursor: ByteCursor, scope: _Scope
    ) -> tuple[int, list[tuple[str, HloType]]]:
        """The number of operations of a block, and its arguments, defined."""
        found = cursor.varint()
        count = found >> 1
        if count > cursor.left:
            raise cursor.fail(f"{count} operations do not fit")
        arguments: list[tuple[str, HloType]] = []
        if not found & 1:
            return count, arguments
        for _ in range(cursor.count()):
            number, has_place = cursor.varint(), 1
            if self.file.version >= 4:
                number, has_place = number >> 1, number & 1
            if has_place:
                cursor.varint()
            kind = self.entries.type(cursor, number)
            name = self._define(scope, self._number(cursor, scope, 1), kind)
            arguments.append((name, kind))
        if self.file.version >= 3 and cursor.byte():
            _skip_use_orders(cursor, len(arguments))
        return count, arguments

    def _number(self, cursor: ByteCursor, scope: _Scope, count: int) -> int:
        """The number of the next definition; `count` are taken."""
        if scope.next + count > scope.end:
            raise cursor.fail("a region defines more values than it says")
        scope.next += count
        return scope.next - count

    def _define(self, scope: _Scope, number: int, kind: Any) -> str:
        name = f"%{self._names}"
        self._names += 1
        scope.values[number] = (name, kind)
        return name

    # -- operations --------------------------------------------------------------------

    def _operation(self, cursor: ByteCursor, scope: _Scope) -> HloOperation:
        head = self._head(cursor, scope)
        name, attributes = as_stablehlo(head.name, self._attributes(cursor, head))
        operands: list[str] = []
        types: list[HloType] = []
        for number in head.operands:
            value = scope.values[number] if number < len(scope.values) else None
            if value is None:
                raise cursor.fail(f"'{head.name}' uses what is not defined yet", head.begin)
            operands.append(value[0])
            types.append(value[1])
        regions = self._bodies(cursor, head, scope)
        kinds = [self.entries.type(cursor, number) for number in head.results]
        results = [self._define(scope, head.first + n, k) for n, k in enumerate(kinds)]
        place = self.entries.place(cursor, head.place)
        place = f"{place or f'byte {cursor.base + head.begin}'} '{name}'"
        return HloOperation(name, operands, results, attributes, types, kinds, place, regions)

    def _head(self, cursor: ByteCursor, scope: _Scope) -> _Head:
        begin = cursor.at
        number, mask, place = cursor.varint(), cursor.byte(), cursor.varint()
        names = self.file.operation_names
        if number >= len(names):
            raise cursor.fail(f"there is no operation {number} among {len(names)}", begin)
        attributes = cursor.varint() if mask & _ATTRIBUTES else None
        properties = cursor.varint() if mask & _PROPERTIES else None
        results = _numbers(cursor) if mask & _RESULTS else []
        operands = _numbers(cursor) if mask & _OPERANDS else []
        if mask & _SUCCESSORS:
            raise cursor.fail(f"'{names[number]}' has successors", begin)
        if mask & _USE_ORDERS:
            _skip_use_orders(cursor, len(results))
        first = self._number(cursor, scope, len(results))
        return _Head(
            names[number], begin, place, attributes, properties, results, operands, first,
            bool(mask & _REGIONS),
        )  # fmt: skip

    def _attributes(self, cursor: ByteCursor, head: _Head) -> dict[str, Any]:
        known = PROPERTIES.get(head.name)
        if known is None:
            raise cursor.fail(f"the operation '{head.name}' is not known", head.begin)
        found: dict[str, Any] = {}
        if head.attributes is not None:
            given = self.entries.attribute(cursor, head.attributes)
            if not isinstance(given, dict):
                raise cursor.fail(f"attributes of '{head.name}' are no dictionary", head.begin)
            found.update(given)
        if head.properties is None:
            return found
        if head.properties >= len(self.file.properties):
            raise cursor.fail(f"there are no properties {head.properties}", head.begin)
        # Operations share entries: each reads from the beginning.
        stored = self.file.properties[head.properties]
        inner = ByteCursor(stored.data, stored.source, stored.base)
        for name in known:
            found[name] = self.entries.attribute(inner, inner.varint())
        if inner.left:
            raise inner.fail(f"'{head.name}' has properties that are not known")
        return found


def _numbers(cursor: ByteCursor) -> list[int]:
    return [cursor.varint() for _ in range(cursor.count())]


def _skip_use_orders(cursor: ByteCursor, values: int) -> None:
    """In which order values are used: nothing depends on it."""
    for _ in range(cursor.count() if values > 1 else 1):
        if values > 1:
            cursor.varint()
        found = cursor.varint() >> 1
        if found > cursor.left:
            raise cursor.fail(f"{found} uses do not fit")
        for _ in range(found):
            cursor.varint()
