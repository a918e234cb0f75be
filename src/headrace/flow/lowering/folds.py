"""The reductions as phases: which elements they fold, at one outer point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.ir import Block, Operation, SSAValue

from headrace.base.dtypes import BY_NAME, F32, DType
from headrace.base.errors import error
from headrace.base.symbols import ONE, ZERO, Expr, as_expr, dim
from headrace.flow.lowering.body import Body, python_scalar
from headrace.flow.lowering.frame import Frame
from headrace.flow.lowering.indexing import Index
from headrace.flow.lowering.operations import integers, is_elementwise, operation_name
from headrace.flow.lowering.pull import Pull
from headrace.flow.lowering.subpixels import Subpixels, subpixels
from headrace.ir.locations import places
from headrace.ir.types import dtype_of, shape_of
from headrace.kernel.description import Axis, Combiner, Compute, Constant, Scalar
from headrace.kernel.text import simple_combiner
from headrace.tensor import dialect as t
from headrace.tensor.build import to_numpy


@dataclass(frozen=True)
class Fold:
    """What a reduce phase folds.

    Attributes:
        axes: the reduction axes.
        values: names in the body.
        dtypes: in which each value is folded; a dot of f16 folds in f32.
        initial, combiner: as in `Reduction`.
        later: starts that are not known when compiling; the phase starts at the neutral
            element instead, and they are combined with its results.
    """

    axes: tuple[Axis, ...]
    values: tuple[str, ...]
    dtypes: tuple[DType, ...]
    initial: tuple[Scalar, ...]
    combiner: Combiner
    later: tuple[SSAValue, ...] = ()


def inner_names(operation: Operation, frame: Frame) -> dict[str, Expr]:
    """What the inner axes of the frame are called in the phase of a reduction.

    A product in a frame of rows has one of them in parallel: the first product the axis
    that is folded later, the second, which folds that one, the free axis.
    """
    if isinstance(operation, t.ReduceOp):
        return {name: dim(f"%r{n}") for n, (name, _) in enumerate(frame.inner)}
    at = frame.coordinates[operation.results[0]]
    (name, *_) = [n for n, _ in (*frame.inner, *frame.free) if at and dim(n) == at[-1]] or ("",)
    if not name:
        return {}
    parallel = dim(f"%d{len(frame.outer)}")
    folded = {n: dim("%r0") for n, _ in frame.inner if n != name}
    return {**folded, name: parallel}


def fold(operation: Operation, pull: Pull) -> Fold:
    """Makes the body of the phase of a reduction."""
    match operation:
        case t.ReduceOp():
            return _reduce(operation, pull)
        case t.ReduceWindowOp():
            return _reduce_window(operation, pull)
        case t.DotGeneralOp():
            return _dot_general(operation, pull)
        case t.ConvolutionOp():
            return _convolution(operation, pull)
        case _:
            raise error("HR9203", f"{operation.name} is no reduction", at=places(operation))


def _initial(
    operation: t.ReduceOp | t.ReduceWindowOp, pull: Pull
) -> tuple[tuple[Scalar, ...], tuple[SSAValue, ...]]:
    """What the phase starts at, and starts to combine with its results."""
    found = [pull.scalar(value) for value in operation.init_values]
    known = tuple(scalar for scalar in found if scalar is not None)
    if len(known) == len(found):
        return known, ()
    kind = combiner(operation).kind
    if kind is None or len(found) != 1 or isinstance(operation, t.ReduceWindowOp):
        raise error(
            "HR2201",
            "a reduction starts at a value that is not known when compiling",
            at=places(operation),
            helps="give it a constant start and combine the value with its result",
        )
    return (neutral(kind, dtype_of(operation.inputs[0])),), tuple(operation.init_values)


def neutral(kind: str, dtype: DType) -> Scalar:
    """The value that a named combiner leaves others alone with."""
    if kind == "multiply":
        return python_scalar(1, dtype)
    if kind == "and":
        return (
            True if dtype.kind == "bool" else -1 if dtype.kind == "signed" else _highest(dtype)
        )
    if kind in ("maximum", "minimum"):
        return _lowest(dtype) if kind == "maximum" else _highest(dtype)
    return python_scalar(0, dtype)


def _lowest(dtype: DType) -> Scalar:
    if dtype.is_float:
        return -math.inf
    if dtype.kind == "signed":
        return -(1 << (dtype.bits - 1))
    return python_scalar(0, dtype)


def _highest(dtype: DType) -> Scalar:
    if dtype.is_float:
        return math.inf
    if dtype.kind == "bool":
        return True
    return (1 << (dtype.bits - (1 if dtype.kind == "signed" else 0))) - 1


def _reduce(operation: t.ReduceOp, pull: Pull) -> Fold:
    frame = pull.frame
    values: list[str] = []
    for value in operation.inputs:
        place = frame.place(value, shape_of(value))
        index = tuple(i.substitute(pull.inner) for i in place)
        values.append(pull.value(value, index))
    axes = tuple(Axis(f"%r{n}", size) for n, (_, size) in enumerate(frame.inner))
    dtypes = tuple(dtype_of(v) for v in operation.inputs)
    initial, later = _initial(operation, pull)
    return Fold(axes, tuple(values), dtypes, initial, combiner(operation), later)


def _reduce_window(operation: t.ReduceWindowOp, pull: Pull) -> Fold:
    window = integers(operation.window_dimensions)
    strides = integers(operation.window_strides)
    dilations = integers(operation.window_dilations)
    spread = integers(operation.base_dilations)
    low, high = operation.padding_low.exprs, operation.padding_high.exprs
    axes: list[Axis] = []
    index: list[Expr] = []
    for n, at in enumerate(pull.frame.outer_index):
        position = at * strides[n]
        if window[n] != 1:
            axes.append(Axis(f"%r{len(axes)}", as_expr(window[n])))
            position = position + dim(axes[-1].name) * dilations[n]
        index.append(position)
    axes = axes or [Axis("%r0", ONE)]
    pull.know(axes)
    initial, _ = _initial(operation, pull)
    values = tuple(
        _padded(pull, value, tuple(index), low, high, spread, start)
        for value, start in zip(operation.inputs, initial, strict=True)
    )
    dtypes = tuple(dtype_of(v) for v in operation.inputs)
    return Fold(tuple(axes), values, dtypes, initial, combiner(operation))


def _padded(
    pull: Pull,
    value: SSAValue,
    index: Index,
    low: tuple[Expr, ...],
    high: tuple[Expr, ...],
    spread: tuple[int, ...],
    otherwise: Scalar,
) -> str:
    """An element of a padded and base-dilated tensor."""
    at: list[Expr] = []
    outside: list[int] = []
    hits: str | None = None
    for n, (i, before, behind) in enumerate(zip(index, low, high, strict=True)):
        position = i - before
        if spread[n] != 1:
            hit = pull.body.compare("EQ", position % spread[n], 0)
            hits = pull.body.both(hits, hit)
            position = position // spread[n]
        at.append(position)
        inside = all(e.is_constant and e.value <= 0 for e in (before, behind))
        if not inside:
            outside.append(n)
    element = pull.bounded(value, tuple(at), tuple(outside), otherwise)
    if hits is None:
        return element
    dtype = dtype_of(value)
    constant = pull.body.constant(otherwise, dtype)
    return pull.body.compute("select", (hits, element, constant), dtype)


def combiner(
    operation: t.ReduceOp | t.ReduceWindowOp | t.ScatterOp | t.SortOp,
) -> Combiner:
    """The region of a reduction, scatter or sort as a combiner."""
    block: Block = operation.body.block
    half = len(block.args) // 2
    names: dict[SSAValue, str] = {}
    for n, value in enumerate(block.args):
        names[value] = f"%a{n}" if n < half else f"%b{n - half}"
    body: list[Compute | Constant] = []
    results: tuple[str, ...] = ()
    for inner in block.ops:
        if isinstance(inner, t.ReturnOp):
            results = tuple(names[v] for v in inner.arguments)
            break
        if isinstance(inner, (t.ReshapeOp, t.BroadcastInDimOp, t.CopyOp)):
            names[inner.results[0]] = names[inner.operands[0]]  # of a scalar
            continue
        result = f"%c{len(body)}"
        names[inner.results[0]] = result
        dtype = dtype_of(inner.results[0])
        if isinstance(inner, t.ConstantOp):
            value = to_numpy(inner.value).reshape(-1)[0]
            body.append(Constant(result, dtype, python_scalar(value, dtype)))
        elif is_elementwise(inner):
            direction: Any = inner.properties.get("direction")
            arguments = tuple(names[v] for v in inner.operands)
            attribute = direction.data if direction is not None else ""
            body.append(Compute(result, operation_name(inner), arguments, dtype, attribute))
        else:
            raise error(
                "HR2202",
                f"{inner.name} cannot stand in the body of a reduction",
                at=places(operation),
            )
    left = tuple(f"%a{n}" for n in range(half))
    right = tuple(f"%b{n}" for n in range(half))
    made = Combiner(left, right, tuple(body), results)
    if made.kind is not None and isinstance(body[0], Compute):
        return simple_combiner(made.kind, body[0].dtype)
    return made


def folding_dtype(dtype: DType) -> DType:
    """The type in which products are summed: f32 for narrower floats, else the result's."""
    return F32 if dtype.is_float and dtype.bits < 32 else dtype


def _products(body: Body, left: str, right: str, dtype: DType) -> tuple[str, DType]:
    folded = folding_dtype(dtype)
    a, b = body.convert(left, folded), body.convert(right, folded)
    if folded == BY_NAME["i1"]:
        return body.compute("and", (a, b), folded), folded
    return body.compute("multiply", (a, b), folded), folded


def _sum(axes: list[Axis], value: str, dtype: DType) -> Fold:
    zero = python_scalar(0, dtype)
    if dtype.kind == "bool":
        return Fold(tuple(axes), (value,), (dtype,), (zero,), simple_combiner("or", dtype))
    return Fold(tuple(axes), (value,), (dtype,), (zero,), simple_combiner("add", dtype))


def _dot_general(operation: t.DotGeneralOp, pull: Pull) -> Fold:
    batch = (
        integers(operation.lhs_batching_dimensions),
        integers(operation.rhs_batching_dimensions),
    )
    contract = (
        integers(operation.lhs_contracting_dimensions),
        integers(operation.rhs_contracting_dimensions),
    )
    left_shape = shape_of(operation.lhs)
    axes = [Axis(f"%r{n}", left_shape[d]) for n, d in enumerate(contract[0])]
    axes = axes or [Axis("%r0", ONE)]
    pull.know(axes)
    outer = pull.coordinates(operation.result)
    place = len(batch[0])
    indices: list[Index] = []
    for side, operand in enumerate((operation.lhs, operation.rhs)):
        index: list[Expr] = []
        for d in range(len(shape_of(operand))):
            if d in batch[side]:
                index.append(outer[batch[side].index(d)])
            elif d in contract[side]:
                index.append(dim(axes[contract[side].index(d)].name))
            else:
                index.append(outer[place])
                place += 1
        indices.append(tuple(index))
    left = pull.value(operation.lhs, indices[0])
    right = pull.value(operation.rhs, indices[1])
    return _sum(axes, *_products(pull.body, left, right, dtype_of(operation.result)))


def _convolution(operation: t.ConvolutionOp, pull: Pull) -> Fold:
    right_shape = shape_of(operation.rhs)
    (groups,) = integers(operation.feature_group_count)
    cuts = subpixels(operation)
    outer = iter(pull.frame.outer_index)
    n, oc = next(outer), next(outer)
    outputs = [(next(outer), ZERO if cut is None else next(outer)) for cut in cuts]
    axes: list[Axis] = []

    def axis(size: Expr) -> Expr:
        if size == ONE:
            return ZERO
        axes.append(Axis(f"%r{len(axes)}", size))
        return dim(axes[-1].name)

    ic = axis(right_shape[1])
    window = [
        axis(size if cut is None else as_expr(cut.taps))
        for size, cut in zip(right_shape[2:], cuts, strict=True)
    ]
    axes = axes or [Axis("%r0", ONE)]
    pull.know(axes)
    channel = ic
    if groups != 1:
        outputs_a_group = right_shape[0] // groups
        channel = (oc // outputs_a_group) * right_shape[1] + ic
    left = _spread_element(operation, pull, (n, channel), outputs, window, cuts)
    taps = tuple(
        tap if cut is None else cut.kernel_index(within, tap)
        for (_, within), tap, cut in zip(outputs, window, cuts, strict=True)
    )
    right = pull.value(operation.rhs, (oc, ic, *taps))
    return _sum(axes, *_products(pull.body, left, right, dtype_of(operation.result)))


def _spread_element(
    operation: t.ConvolutionOp,
    pull: Pull,
    index: Index,
    outputs: Sequence[tuple[Expr, Expr]],
    window: Sequence[Expr],
    cuts: Sequence[Subpixels | None],
) -> str:
    """The image's element for a tap; `outputs` are pixels with what is within them."""
    strides = integers(operation.window_strides)
    dilations = integers(operation.rhs_dilation)
    spread = list(integers(operation.lhs_dilation))
    low, high = list(operation.padding_low.exprs), list(operation.padding_high.exprs)
    at: list[Expr] = []
    shape = shape_of(operation.result)[2:]
    for d, ((pixel, within), tap, cut) in enumerate(zip(outputs, window, cuts, strict=True)):
        if cut is None:
            at.append(pixel * strides[d] + tap * dilations[d])
            continue
        at.append(cut.input_index(pixel, within, tap))
        inside = cut.is_inside(shape[d] // cut.stride, shape_of(operation.lhs)[2 + d])
        # The padding is in the index already; an amount says only that it may leave.
        spread[d], low[d], high[d] = 1, ZERO, ZERO if inside else ONE
    zero = python_scalar(0, dtype_of(operation.lhs))
    return _padded(
        pull,
        operation.lhs,
        (*index, *at),
        (ZERO, ZERO, *low),
        (ZERO, ZERO, *high),
        (1, 1, *spread),
        zero,
    )
