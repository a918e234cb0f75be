"""Reductions over axes."""

from __future__ import annotations

from xdsl.ir import SSAValue

from headrace.base.dtypes import F32, F64, I64
from headrace.base.symbols import as_expr
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.ops.pooling import first_largest, highest, lowest
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import dtype_of, shape_of
from headrace.tensor.build import TensorBuilder

_AXES_INPUT_SINCE = {"ReduceSum": 13}  # the others: 18


def reduced_axes(c: NodeContext, rank: int) -> list[int]:
    """The axes to fold over; none stated means all, unless told otherwise."""
    axes: list[int] | None
    if c.opset >= _AXES_INPUT_SINCE.get(c.node.op_type, 18):
        axes = c.integers_at(1) if c.has(1) else None
    else:
        axes = c.ints("axes")
    if not axes:
        return [] if c.flag("noop_with_empty_axes") else list(range(rank))
    return sorted(c.normal_axes(axes, rank))


@onnx_op(
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceSumSquare",
)
def reduce_(c: NodeContext) -> SSAValue:
    x, b = c.data(0), c.build
    kind = dtype_of(x)
    axes = reduced_axes(c, len(shape_of(x)))
    keep = c.flag("keepdims", True)
    name = c.node.op_type
    if name in ("ReduceMax", "ReduceMin"):
        if kind.kind == "bool":
            reducer = "or" if name == "ReduceMax" else "and"
            return c.reduce(x, name == "ReduceMin", axes, reducer, keep)
        start = lowest(kind) if name == "ReduceMax" else highest(kind)
        reducer = "maximum" if name == "ReduceMax" else "minimum"
        return c.reduce(x, start, axes, reducer, keep)
    if name == "ReduceProd":
        return c.reduce(x, 1, axes, "multiply", keep)
    if name == "ReduceLogSumExp":
        return _log_sum_exp(c, x, axes, keep)
    narrow = kind.is_float and kind.bits < 32
    if narrow:  # sums of half floats are taken in f32
        x = b.convert(x, F32)
    if name == "ReduceMean":
        return b.convert(c.mean(x, axes, keep), kind)
    if name == "ReduceL1":
        x = b.unary("abs", x)
    elif name in ("ReduceL2", "ReduceSumSquare"):
        x = b.binary("multiply", x, x)
    total = c.reduce(x, 0, axes, "add", keep)
    if name == "ReduceL2":
        total = _float_unary(c, "sqrt", total)
    elif name == "ReduceLogSum":
        total = _float_unary(c, "log", total)
    return b.convert(total, kind) if narrow else total


def _float_unary(c: NodeContext, name: str, operand: SSAValue) -> SSAValue:
    """A function of floats; integers go through f64 and back."""
    kind = dtype_of(operand)
    if kind.is_float:
        return c.build.unary(name, operand)
    return c.build.convert(c.build.unary(name, c.build.convert(operand, F64)), kind)


def _log_sum_exp(c: NodeContext, x: SSAValue, axes: list[int], keep: bool) -> SSAValue:
    """max + log(sum(e^(x - max))), which does not overflow; the max of nothing is 0."""
    b = c.build
    kind = dtype_of(x)
    if not kind.is_float:
        return b.convert(_log_sum_exp(c, b.convert(x, F64), axes, keep), kind)
    if not axes:
        return x
    peak = c.reduce(x, lowest(kind), axes, "maximum", keep=True)
    finite = b.unary("is_finite", peak)
    peak = b.select(finite, peak, c.scalar_like(0, peak))
    shifted = b.binary("subtract", x, b.broadcast_to(peak, shape_of(x)))
    total = c.reduce(b.unary("exponential", shifted), 0, axes, "add", keep=True)
    result = b.binary("add", b.unary("log", total), peak)
    if keep:
        return result
    shape = [s for n, s in enumerate(shape_of(x)) if n not in axes]
    return b.reshape(result, shape)


@onnx_op("ArgMax", "ArgMin")
def arg_extremum(c: NodeContext) -> SSAValue:
    """The place of the extremum along an axis, the first (or last) of equal ones."""
    x, b = c.data(0), c.build
    shape = shape_of(x)
    kind = dtype_of(x)
    axis = c.axis("axis", len(shape), 0)
    largest = c.node.op_type == "ArgMax"
    last = c.flag("select_last_index")
    places = b.iota(I64, shape, axis)
    start = b.scalar(lowest(kind) if largest else highest(kind), kind)
    beyond = b.scalar(-1 if last else (1 << 63) - 1, I64)

    def pick(
        inner: TensorBuilder, value: SSAValue, at: SSAValue, other: SSAValue, other_at: SSAValue
    ) -> list[SSAValue]:
        if largest and not last:
            return first_largest(inner, value, at, other, other_at)
        better = inner.compare("GT" if largest else "LT", other, value)
        equal = inner.compare("EQ", other, value)
        preferred = inner.compare("GT" if last else "LT", other_at, at)
        take = inner.binary("or", better, inner.binary("and", equal, preferred))
        return [inner.select(take, other, value), inner.select(take, other_at, at)]

    found = b.reduce([x, places], [start, beyond], [axis], pick)[1]
    if not c.flag("keepdims", True):
        return found
    return b.reshape(found, (*shape[:axis], as_expr(1), *shape[axis + 1 :]))


@onnx_op("CumSum", "CumProd")
def cumulative(c: NodeContext) -> SSAValue:
    """Folds, for each place along the axis, the elements up to it (or from it on)."""
    x, b = c.data(0), c.build
    kind, shape = dtype_of(x), shape_of(x)
    axis = c.normal_axis(c.integers_at(1)[0], len(shape))
    backward, exclusive = c.flag("reverse"), c.flag("exclusive")
    neutral, reducer = (0, "add") if c.node.op_type == "CumSum" else (1, "multiply")
    # A new dimension behind the axis holds what is folded.
    wide = (*shape[: axis + 1], shape[axis], *shape[axis + 1 :])
    places = [n if n < axis else n + 1 for n in range(len(shape))]
    spread = b.broadcast_in_dim(x, places, wide)
    at, source = b.iota(I64, wide, axis), b.iota(I64, wide, axis + 1)
    direction = ("GT" if exclusive else "GE") if backward else ("LT" if exclusive else "LE")
    taken = b.select(b.compare(direction, source, at), spread, c.scalar_like(neutral, spread))
    return b.convert(c.reduce(taken, neutral, [axis + 1], reducer), kind)
