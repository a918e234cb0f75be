"""Where in the user's model an operation came from, kept through every rewrite.

A place is text such as `node 'encoder/MatMul_3'` or `line 12`. One place is a `NameLoc`,
several (a fused operation) a `FusedLoc` of them. `HEADRACE` prints them with
`--print-locations` as MLIR's `loc("...")`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    FileLineColLoc,
    FusedLoc,
    LocationAttr,
    NameLoc,
    NoneAttr,
    StringAttr,
    UnknownLoc,
)
from xdsl.ir import Operation


def location(*places: str) -> LocationAttr:
    """The location of one or several places; unknown for none."""
    unique = list(dict.fromkeys(p for p in places if p))
    if not unique:
        return UnknownLoc()
    names = [NameLoc(StringAttr(p), NoneAttr()) for p in unique]
    return names[0] if len(names) == 1 else FusedLoc(ArrayAttr(names), NoneAttr())


def places_of(loc: LocationAttr) -> tuple[str, ...]:
    """Every place named in a location, in order, each once."""
    if isinstance(loc, NameLoc):
        return (loc.desc.data,)
    if isinstance(loc, FusedLoc):
        found: dict[str, None] = {}
        for part in cast("ArrayAttr[Any]", loc.locations).data:
            found.update(dict.fromkeys(places_of(part)))
        return tuple(found)
    if isinstance(loc, FileLineColLoc):
        return (f"{loc.filename.data}:{loc.line.data}:{loc.column.data}",)
    return ()


def places(operation: Operation) -> tuple[str, ...]:
    """The places an operation came from."""
    return places_of(operation.location)


def fused_location(operations: Iterable[Operation]) -> LocationAttr:
    """The location of an operation that stands for several."""
    return location(*(p for op in operations for p in places(op)))
