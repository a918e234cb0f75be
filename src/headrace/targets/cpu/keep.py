"""Keeps expensive values of one phase for a later one, in the worker's scratch.

A softmax computes e**(x - m) for its sum and again for its result; keeping the row is
far cheaper. Only values that are certainly equal are kept: the same operations on the
same elements, with nothing written to their operands or locals in between.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from headrace.base.symbols import Expr, dim
from headrace.kernel.description import Compute, Constant, IndexValue
from headrace.targets.cpu.elementwise import EXPENSIVE
from headrace.targets.cpu.nest import Access, Array, Item, Nest, NestPhase, Read, Write

_Key: TypeAlias = tuple[object, ...]
_CHEAP = frozenset(("divide", "sqrt", "rsqrt"))
_LIMIT_BYTES = 1 << 18
_COMMON = dim("%k")


def keep_expensive(nest: Nest) -> Nest:
    """The nest with repeated expensive values read back instead of computed again."""
    phases = list(nest.phases)
    arrays = dict(nest.arrays)
    for later in range(1, len(phases)):
        for earlier in range(later):
            _keep(phases, earlier, later, arrays)
    return replace(nest, phases=tuple(phases), arrays=arrays)


def _keep(phases: list[NestPhase], earlier: int, later: int, arrays: dict[str, Array]) -> None:
    first, second = phases[earlier], phases[later]
    if len(first.axes) != 1 or len(second.axes) != 1:
        return
    size = first.axes[0].size
    if size != second.axes[0].size or (size.is_constant and size.value * 8 > _LIMIT_BYTES):
        return
    changed = {w.access.place for p in phases[earlier:later] for w in (*p.writes, *p.results)}
    numbers: dict[_Key, int] = {}
    known = {key: name for name, key in _keys(first, changed, numbers).items()}
    wanted = _keys(second, changed, numbers)
    for item in second.body:
        key = wanted.get(item.result)
        if not isinstance(item, Compute) or key is None or key not in known:
            continue
        if item.operation not in EXPENSIVE - _CHEAP:
            continue
        name = f"%keep{len(arrays)}"
        arrays[name] = Array(item.dtype, size)
        place = Access(name, dim(first.axes[0].name))
        source = known[key]
        first = replace(first, writes=(*first.writes, Write(source, place, item.dtype)))
        back = Read(item.result, Access(name, dim(second.axes[0].name)), item.dtype)
        second = replace(second, body=tuple(back if i is item else i for i in second.body))
    phases[earlier], phases[later] = first, _without_unused(second)


def _keys(
    phase: NestPhase, changed: set[int | str], numbers: dict[_Key, int]
) -> dict[str, int]:
    """A number for what each body value is, the same in two phases; unknown ones left out.

    `numbers` has those given so far: a value is described by its operands' numbers.
    """
    names: dict[str, Expr] = {phase.axes[0].name: _COMMON}
    keys: dict[str, int] = {}

    def number(item: Item, *description: object) -> None:
        keys[item.result] = numbers.setdefault(description, len(numbers))

    for item in phase.body:
        if isinstance(item, Read):
            access = item.access
            through = any(n.startswith("%v") or n in keys for n in access.names)
            if access.place in changed or through:
                continue
            guards = tuple((i.substitute(names), s) for i, s in access.guards)
            offset = access.offset.substitute(names)
            number(item, "read", access.place, offset, guards, repr(item.otherwise))
        elif isinstance(item, Constant):
            number(item, "constant", item.dtype, repr(item.value))
        elif isinstance(item, IndexValue):
            if not any(n in keys for n in item.value.names):
                number(item, "index", item.dtype, item.value.substitute(names))
        elif all(o in keys for o in item.operands):
            operands = tuple(keys[o] for o in item.operands)
            number(item, item.operation, item.attribute, item.dtype, operands)
    return keys


def _without_unused(phase: NestPhase) -> NestPhase:
    needed: set[str] = {w.value for w in phase.writes}
    for write in phase.writes:
        needed |= write.access.names
    if phase.reduction is not None:
        needed |= set(phase.reduction.values)
    kept: list[Item] = []
    for item in reversed(phase.body):
        if item.result not in needed:
            continue
        kept.append(item)
        if isinstance(item, Read):
            needed |= item.access.names
        elif isinstance(item, IndexValue):
            needed |= item.value.names
        elif isinstance(item, Compute):
            needed |= set(item.operands)
    return replace(phase, body=tuple(reversed(kept)))
