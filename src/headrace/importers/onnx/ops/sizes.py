"""How operators compute on tensors of sizes (numpy object arrays of `Expr`).

A rule returns None (or raises ValueError) where the result cannot be said without the data;
the operator then becomes an ordinary operation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.base.dtypes import I1
from headrace.base.symbols import Expr, as_expr, product
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.ops.constant import range_length
from headrace.importers.onnx.ops.indexing import slice_plan
from headrace.importers.onnx.ops.movement import (
    solve_reshape,
    squeezed_shape,
    unsqueezed_shape,
)
from headrace.importers.onnx.registry import size_rule
from headrace.importers.onnx.values import SMALL_ELEMENTS, Value, sizes_array

_ONE = as_expr(1)


class _UnknownError(ValueError):
    """The result cannot be said; the walk falls back to an ordinary operation."""


def _elementwise(compute: Callable[..., Expr], *arrays: Any) -> Any:
    import numpy as np

    spread = np.broadcast_arrays(*arrays)
    if spread[0].size > SMALL_ELEMENTS:
        return None
    flat = [compute(*e) for e in zip(*(a.reshape(-1) for a in spread), strict=True)]
    return sizes_array(flat, spread[0].shape)


def _divide(c: NodeContext) -> Callable[[Expr, Expr], Expr]:
    """Integers divide toward zero; sizes are not negative, so that is downward."""

    def divide(a: Expr, b: Expr) -> Expr:
        if a.is_constant and b.is_constant:
            quotient = abs(a.value) // abs(b.value)
            return as_expr(quotient if (a.value < 0) == (b.value < 0) else -quotient)
        if c.dims.at_least(a, 0) and c.dims.at_least(b, 1):
            return a // b
        raise _UnknownError

    def divide_exactly(a: Expr, b: Expr) -> Expr:
        if b == as_expr(0) or (a // b) * b != a:
            raise _UnknownError
        return a // b

    return divide_exactly if c.dtype(0).is_float else divide


def _modulo(c: NodeContext) -> Callable[[Expr, Expr], Expr]:
    def modulo(a: Expr, b: Expr) -> Expr:
        if c.flag("fmod") and not (c.dims.at_least(a, 0) and c.dims.at_least(b, 1)):
            raise _UnknownError
        return a % b

    return modulo


_ARITHMETIC: dict[str, Callable[[NodeContext], Callable[..., Expr]]] = {
    "Add": lambda c: lambda a, b: a + b,
    "Sub": lambda c: lambda a, b: a - b,
    "Mul": lambda c: lambda a, b: a * b,
    "Div": _divide,
    "Mod": _modulo,
    "Neg": lambda c: lambda a: -a,
    "Abs": lambda c: lambda a: _absolute(c, a),
    "Max": lambda c: lambda *v: _fold(c.dims.maximum, v),
    "Min": lambda c: lambda *v: _fold(c.dims.minimum, v),
    "Sum": lambda c: lambda *v: sum(v, as_expr(0)),
}


def _fold(pick: Callable[[Expr, Expr], Expr], values: tuple[Expr, ...]) -> Expr:
    result = values[0]
    for value in values[1:]:
        result = pick(result, value)
    return result


def _absolute(c: NodeContext, value: Expr) -> Expr:
    if c.dims.at_least(value, 0):
        return value
    if c.dims.at_most(value, 0):
        return -value
    raise _UnknownError


@size_rule(*_ARITHMETIC)
def arithmetic(c: NodeContext, arrays: list[Any]) -> Any:
    if any(v is not None and v.dtype.bits < 32 for v in c.inputs):
        return None  # narrow integers wrap
    if c.node.op_type == "Mod" and c.dtype(0).is_float:
        return None
    return _elementwise(_ARITHMETIC[c.node.op_type](c), *arrays)


@size_rule("Floor", "Ceil", "Round")
def round_(c: NodeContext, arrays: list[Any]) -> Any:
    """Floats are tracked only while they are whole."""
    return arrays[0]


def _truth(holds: bool, fails: bool) -> Expr:
    if holds or fails:
        return as_expr(int(holds))
    raise _UnknownError


def _compare(c: NodeContext, kind: str, a: Expr, b: Expr) -> Expr:
    d = a - b
    if kind == "Equal":
        return _truth(d == as_expr(0), not c.dims.maybe_equal(a, b))
    if kind == "Less":
        return _truth(c.dims.at_most(d, -1), c.dims.at_least(d, 0))
    if kind == "LessOrEqual":
        return _truth(c.dims.at_most(d, 0), c.dims.at_least(d, 1))
    if kind == "Greater":
        return _truth(c.dims.at_least(d, 1), c.dims.at_most(d, 0))
    return _truth(c.dims.at_least(d, 0), c.dims.at_most(d, -1))


@size_rule("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
def compare(c: NodeContext, arrays: list[Any]) -> Any:
    return _booleans(_elementwise(lambda a, b: _compare(c, c.node.op_type, a, b), *arrays))


def _booleans(found: Any) -> Any:
    if found is None:
        return None
    return Value("", I1, tuple(as_expr(s) for s in found.shape), sizes=found)


@size_rule("Not", "And", "Or", "Xor")
def logic(c: NodeContext, arrays: list[Any]) -> Any:
    rules: dict[str, Callable[..., Expr]] = {
        "Not": lambda a: 1 - a,
        "And": lambda a, b: a * b,
        "Or": lambda a, b: a + b - a * b,
        "Xor": lambda a, b: a + b - 2 * a * b,
    }
    return _booleans(_elementwise(rules[c.node.op_type], *arrays))


@size_rule("Where")
def where(c: NodeContext, arrays: list[Any]) -> Any:
    found = _elementwise(lambda p, a, b: a if p.value else b, *arrays)
    if found is None:
        return None
    return Value("", c.dtype(1), tuple(as_expr(s) for s in found.shape), sizes=found)


# -- movement ----------------------------------------------------------------------


def _integers(values: Any) -> list[int]:
    return [v.value for v in values.reshape(-1)]


@size_rule("Gather")
def gather(c: NodeContext, arrays: list[Any]) -> Any:
    import numpy as np

    indices = np.array(_integers(arrays[1]), np.int64).reshape(arrays[1].shape)
    return sizes_array(np.take(arrays[0], indices, axis=c.axis("axis", arrays[0].ndim, 0)))


@size_rule("Concat")
def concat(c: NodeContext, arrays: list[Any]) -> Any:
    import numpy as np

    found = np.concatenate(arrays, axis=c.int("axis"))
    return found if found.size <= SMALL_ELEMENTS else None


@size_rule("Slice")
def slice_(c: NodeContext, arrays: list[Any]) -> Any:
    plan = slice_plan(c, [as_expr(s) for s in arrays[0].shape])
    result = arrays[0]
    for p in plan:
        places = [slice(None)] * result.ndim
        if p.step < 0:
            places[p.axis] = slice(None, None, -1)
            result = result[tuple(places)]
        places[p.axis] = slice(p.start.value, p.limit.value, abs(p.step))
        result = result[tuple(places)]
    return result


def _static(shape: list[Expr]) -> tuple[int, ...]:
    return tuple(s.value for s in shape)


@size_rule("Squeeze")
def squeeze(c: NodeContext, arrays: list[Any]) -> Any:
    return arrays[0].reshape(_static(squeezed_shape(c, c.shape(0))))


@size_rule("Unsqueeze")
def unsqueeze(c: NodeContext, arrays: list[Any]) -> Any:
    return arrays[0].reshape(_static(unsqueezed_shape(c, c.shape(0))))


@size_rule("Reshape")
def reshape(c: NodeContext, arrays: list[Any]) -> Any:
    return arrays[0].reshape(_static(solve_reshape(c, c.shape(0), c.sizes(1))))


@size_rule("Flatten")
def flatten(c: NodeContext, arrays: list[Any]) -> Any:
    return None if arrays[0].ndim != 1 else arrays[0].reshape(1, -1)


@size_rule("Transpose")
def transpose(c: NodeContext, arrays: list[Any]) -> Any:
    return arrays[0].transpose(c.ints("perm"))


@size_rule("Expand")
def expand(c: NodeContext, arrays: list[Any]) -> Any:
    import numpy as np

    shape = c.common_shape(c.shape(0), c.sizes(1))
    return np.broadcast_to(arrays[0], _static(list(shape))) if c.fits_small(shape) else None


@size_rule("Tile")
def tile(c: NodeContext, arrays: list[Any]) -> Any:
    import numpy as np

    if not c.fits_small([s * r for s, r in zip(c.shape(0), c.sizes(1), strict=True)]):
        return None
    return np.tile(arrays[0], _integers(arrays[1]))


@size_rule("Range")
def range_(c: NodeContext, arrays: list[Any]) -> Any:
    start, limit, delta = (a.reshape(-1)[0] for a in arrays)
    count = range_length(c, start, limit, delta)
    if not count.is_constant or count.value > SMALL_ELEMENTS:
        return None
    return sizes_array([start + delta * n for n in range(count.value)])


@size_rule("ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin")
def reduce_(c: NodeContext, arrays: list[Any]) -> Any:
    kind = c.node.op_type
    if arrays[0].ndim != 1 or arrays[0].size == 0:
        return None
    if c.flag("noop_with_empty_axes") and not (c.has(1) or c.has_attribute("axes")):
        return arrays[0]
    values = list(arrays[0])
    if kind == "ReduceProd":
        result = product(values)
    elif kind == "ReduceSum":
        result = sum(values, as_expr(0))
    else:
        result = _fold(c.dims.maximum if kind == "ReduceMax" else c.dims.minimum, tuple(values))
    return sizes_array([result], (1,) if c.flag("keepdims", True) else ())


@size_rule("CumSum")
def cumulative_sum(c: NodeContext, arrays: list[Any]) -> Any:
    if arrays[0].ndim != 1 or c.flag("reverse") or c.flag("exclusive"):
        return None
    total = as_expr(0)
    sums: list[Expr] = []
    for value in arrays[0]:
        total = total + value
        sums.append(total)
    return sizes_array(sums)


@size_rule("ScatterND")
def scatter(c: NodeContext, arrays: list[Any]) -> Any:
    """Rank-1 data only: exporters write sizes into a shape this way."""
    if arrays[0].ndim != 1 or c.string("reduction", "none") != "none":
        return None
    result = arrays[0].copy()
    for place, value in zip(_integers(arrays[1]), arrays[2].reshape(-1), strict=True):
        result[place] = value
    return result
