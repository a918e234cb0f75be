"""The elements of a small tensor that was computed from constants alone.

Exporters compute the bounds of a range or the scales of a resize with a few operations on
constants. They were built as tensor operations; asked for, they are evaluated by the
stage's own meaning.
"""

from __future__ import annotations

from typing import Any

from xdsl.ir import Operation, SSAValue

from headrace.base.symbols import product
from headrace.importers.onnx.values import SMALL_ELEMENTS
from headrace.ir.types import shape_of
from headrace.tensor import dialect as d

_MOST_OPERATIONS = 64


def constant_elements(ssa: SSAValue) -> Any:
    """The numpy array that the value always holds; None where it is not known."""
    operations = _history(ssa)
    if operations is None:
        return None
    from headrace.tensor.interp import evaluate_operation

    arrays: dict[SSAValue, Any] = {}
    for operation in operations:
        operands = [arrays[o] for o in operation.operands]
        try:
            results = evaluate_operation(operation, operands, {}, _no_parameter)
        except KeyError:
            return None  # a named dimension decides
        arrays.update(zip(operation.results, results, strict=True))
    return arrays[ssa]


def _no_parameter(name: str) -> Any:
    raise KeyError(name)  # histories hold no parameters


def _history(ssa: SSAValue) -> list[Operation] | None:
    """The operations that make a value, in order; None where inputs or weights do."""
    found: dict[Operation, None] = {}

    def visit(value: SSAValue) -> bool:
        owner = value.owner
        if not isinstance(owner, Operation) or isinstance(owner, d.ParameterOp):
            return False
        if owner in found:
            return True
        count = product(shape_of(value))
        if not count.is_constant or count.value > SMALL_ELEMENTS:
            return False
        if len(found) >= _MOST_OPERATIONS or not all(visit(o) for o in owner.operands):
            return False
        found[owner] = None
        return True

    return list(found) if visit(ssa) else None
