"""What operators whose attributes are graphs share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from headrace.base.symbols import as_expr
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.values import Value
from headrace.ir.types import dtype_of, shape_of

if TYPE_CHECKING:
    from onnx import GraphProto

    from headrace.importers.onnx.graph import GraphImporter

MOST_WRITTEN_TRIPS = 1024
"""A loop that only makes sense written out may have so many trips."""


def graph_of(c: NodeContext, name: str) -> GraphProto:
    """An attribute that is a graph, which must be there."""
    from onnx import GraphProto

    found = c.attribute(name, GraphProto, None)
    if found is None:
        raise c.malformed(f"'{name}' is missing")
    return found


class Changes(ValueError):
    """A value changes from trip to trip, so that only a written out loop can have it."""


def stack(at: GraphImporter, rows: Sequence[Value], axis: int = 0) -> Value:
    """Rows joined along a new axis."""
    parts: list[SSAValue] = []
    for row in rows:
        shape = [*row.shape[:axis], as_expr(1), *row.shape[axis:]]
        parts.append(at.build.reshape(at.materialise(row), shape))
    made = at.build.concatenate(parts, axis)
    return Value("", dtype_of(made), shape_of(made), ssa=made)


def require_same(c: NodeContext, before: Sequence[Value], after: Sequence[Value]) -> None:
    """Checks that carried values keep their type.

    Raises:
        HeadraceError HR1207: the element type changes.
        Changes: the shape does.
    """
    for old, new in zip(before, after, strict=True):
        if old.dtype != new.dtype:
            raise c.malformed(f"'{old.name}' becomes {new.dtype} from {old.dtype} in a trip")
        try:
            if len(old.shape) != len(new.shape):
                raise ValueError
            for a, b in zip(old.shape, new.shape, strict=True):
                c.dims.same(a, b)
        except ValueError as wrong:
            raise Changes(f"'{old.name}' changes its shape from trip to trip") from wrong
