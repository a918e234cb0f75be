"""Operations made of others: rounding to fewer bits, windows that pick and scatter, shapes
given as data, calls by name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from xdsl.ir import Operation, SSAValue

from headrace.base.dtypes import BY_NAME, I64
from headrace.base.symbols import ZERO, Expr, as_expr, maximum, minimum, product
from headrace.importers.hlo.helpers import inline_body, pairs_of, result_type, spread
from headrace.importers.hlo.registry import (
    CONVERTERS,
    Unsupported,
    Value,
    converter,
    integers_of,
)
from headrace.importers.hlo.tree import HloOperation
from headrace.ir.types import dtype_of, shape_of
from headrace.tensor import dialect as t
from headrace.tensor.build import TensorBuilder, to_numpy

if TYPE_CHECKING:
    from headrace.importers.hlo.convert import FunctionConverter

_MANTISSA = {"f64": 52, "f32": 23, "f16": 10, "bf16": 7}


@converter("reduce_precision")
def _reduce_precision(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    """Rounds to fewer bits of exponent and mantissa, by arithmetic on the bits.

    Halves go to even; what is below the smallest normal number becomes zero, what is
    above the largest infinity, as in XLA.
    """
    b, x = at.builder, at.operand(operation, 0)
    kind, shape = dtype_of(x), shape_of(x)
    exponent_bits = integers_of(operation.attributes["exponent_bits"])[0]
    mantissa_bits = integers_of(operation.attributes["mantissa_bits"])[0]
    if kind.name not in _MANTISSA:
        raise Unsupported(f"numbers of {kind} are not rounded to fewer bits")
    mantissa = _MANTISSA[kind.name]
    own_exponent = kind.bits - 1 - mantissa
    word = BY_NAME[f"ui{kind.bits}"]

    def bits(value: int) -> SSAValue:
        return b.splat(value & ((1 << kind.bits) - 1), word, shape)

    pattern = b.bitcast_convert(x, word)
    if mantissa_bits < mantissa:
        drop = mantissa - mantissa_bits
        last = b.binary("shift_right_logical", pattern, bits(drop))
        odd = b.binary("and", last, bits(1))
        bias = b.binary("add", odd, bits((1 << (drop - 1)) - 1))
        rounded = b.binary("add", pattern, bias)
        pattern = b.binary("and", rounded, bits(~((1 << drop) - 1)))
    sign = b.binary("and", pattern, bits(1 << (kind.bits - 1)))
    if exponent_bits < own_exponent:
        own_bias = (1 << (own_exponent - 1)) - 1
        bias = (1 << (exponent_bits - 1)) - 1
        field = ((1 << own_exponent) - 1) << mantissa
        exponent = b.binary("and", pattern, bits(field))
        infinite = b.binary("or", sign, bits(field))
        large = b.compare("GT", exponent, bits((own_bias + bias) << mantissa))
        small = b.compare("LE", exponent, bits((own_bias - bias) << mantissa))
        pattern = b.select(large, infinite, pattern)
        pattern = b.select(small, sign, pattern)
    result = b.bitcast_convert(pattern, kind)
    # Without mantissa there is no NaN to keep.
    nan = x if mantissa_bits else b.splat(math.inf, kind, shape)
    return [b.select(b.compare("NE", x, x), nan, result)]


@converter("select_and_scatter")
def _select_and_scatter(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    """Each window picks a place by the first region; the source's element is combined in
    there by the second. Places are numbers in row-major order, -1 for padding."""
    b = at.builder
    operand, source, start = at.operands(operation)
    shape, kind = shape_of(operand), dtype_of(operand)
    a, rank = operation.attributes, len(shape)
    window = spread(a.get("window_dimensions"), rank)
    low, high = pairs_of(a.get("padding"), rank)
    count = product(shape)
    places = b.reshape(b.iota(I64, [count], 0), shape)
    choose = inline_body(at, operation.regions[0])

    def pick(
        inner: TensorBuilder, x0: SSAValue, i0: SSAValue, x1: SSAValue, i1: SSAValue
    ) -> Sequence[SSAValue]:
        zero = inner.scalar(0, I64)
        (prefers,) = choose(inner, x0, x1)
        first = inner.compare("GE", i0, zero)
        none = inner.compare("LT", i1, zero)
        takes = inner.binary("or", none, inner.binary("and", first, prefers))
        return [inner.select(takes, x0, x1), inner.select(takes, i0, i1)]

    _, chosen = b.reduce_window(
        [operand, places],
        [b.scalar(0, kind), b.scalar(-1, I64)],
        pick,
        window_dimensions=window,
        window_strides=spread(a.get("window_strides"), rank),
        padding_low=low,
        padding_high=high,
    )
    updates = product(shape_of(source))
    (placed,) = b.scatter(
        [b.broadcast_in_dim(start, (), [count])],
        b.reshape(chosen, [updates, 1]),
        [b.reshape(source, [updates])],
        inline_body(at, operation.regions[1]),
        update_window_dims=(),
        inserted_window_dims=(0,),
        scatter_dims_to_operand_dims=(0,),
        index_vector_dim=1,
    )
    return [b.reshape(placed, shape)]


@converter("map")
def _map(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    """The region on whole tensors: it computes elementwise."""
    region, outer = operation.regions[0], at.values
    values = at.operands(operation)
    shape = shape_of(values[0])
    names = [name for name, _ in region.arguments]
    at.values = {**outer, **dict(zip(names, values, strict=True))}
    results = at.region_values(region)
    at.values = outer
    found: list[Value] = []
    for value in results:
        assert isinstance(value, SSAValue)
        found.append(
            value if shape_of(value) else at.builder.broadcast_in_dim(value, (), shape)
        )
    return found


@converter("composite")
def _composite(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    """What it is made of: the name says no more than its decomposition does."""
    callee = operation.attributes["decomposition"]
    inner = HloOperation(
        "func.call", operation.operands, operation.results, {"callee": callee},
        operation.types, operation.result_types, operation.place,
    )  # fmt: skip
    return CONVERTERS["call"](at, inner)


_TRANSPARENT = ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement", "LayoutConstraint")  # fmt: skip
"""Custom calls that yield their operand: they tell compilers of clusters where to put it."""


@converter("custom_call")
def _custom_call(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    name = str(operation.attributes.get("call_target_name", ""))
    if name in _TRANSPARENT:
        return [at.values[o] for o in operation.operands]
    if name == "shape_assertion" or (name in CONVERTERS and name.startswith("headrace.")):
        return CONVERTERS[name](at, operation)
    known = name.removeprefix("mhlo.").removeprefix("chlo.")
    if known in CONVERTERS and known != name:
        attributes = operation.attributes.get("mhlo.attributes", operation.attributes)
        inner = HloOperation(
            known, operation.operands, operation.results, dict(attributes),
            operation.types, operation.result_types, operation.place, operation.regions,
        )  # fmt: skip
        return CONVERTERS[known](at, inner)
    raise Unsupported(f"nothing is known of a custom call to '{name}'")


@converter("shape_assertion")
def _shape_assertion(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    """What JAX says of symbolic sizes: the signature holds it, for sizes are solved from the
    inputs of every call and those that do not agree are refused."""
    return []


@converter("clz")
def _clz(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    return [at.builder.unary("count_leading_zeros", at.operand(operation, 0))]


# -- shapes given as data -------------------------------------------------------------


def sizes_of(at: FunctionConverter, value: SSAValue) -> list[Expr] | None:
    """The integers that a small tensor holds, as sizes; None where there is no telling.

    Sizes of dimensions and what is computed of them are followed; a rank-0 tensor is a
    list of one. What data decides is read back when the program runs.
    """
    found = _followed(at, value)
    return at.open_sizes.decide(at.builder, value) if found is None else found


def _followed(at: FunctionConverter, value: SSAValue) -> list[Expr] | None:
    owner = value.owner
    if not isinstance(owner, Operation):
        return None
    if isinstance(owner, t.ConstantOp):
        array = to_numpy(owner.value).reshape(-1)
        return [as_expr(int(v)) for v in array] if array.dtype.kind in "iu" else None
    if isinstance(owner, t.DimensionOp):
        return list(owner.value.exprs)
    if not isinstance(owner, _FOLLOWED):
        return None
    parts = [sizes_of(at, o) for o in owner.operands]
    if any(p is None for p in parts):
        return None
    known = [p for p in parts if p is not None]
    match owner:
        case t.ConvertOp() | t.ReshapeOp() | t.CopyOp():
            return known[0]
        case t.ConcatenateOp():
            return [size for part in known for size in part]
        case t.BroadcastInDimOp() if len(known[0]) == 1:
            count = product(shape_of(value))
            return known[0] * count.value if count.is_constant else None
        case t.SliceOp() if len(shape_of(value)) == 1:
            first, last = owner.start_indices.exprs[0], owner.limit_indices.exprs[0]
            step = int(owner.strides.get_values()[0])
            if not (first.is_constant and last.is_constant):
                return None
            return known[0][first.value : last.value : step]
        case t.AddOp():
            return [a + b for a, b in zip(*known, strict=True)]
        case t.SubtractOp():
            return [a - b for a, b in zip(*known, strict=True)]
        case t.MultiplyOp():
            return [a * b for a, b in zip(*known, strict=True)]
        case t.MaximumOp():
            return [maximum(a, b) for a, b in zip(*known, strict=True)]
        case t.MinimumOp():
            return [minimum(a, b) for a, b in zip(*known, strict=True)]
        case _:
            return None


_FOLLOWED = (
    t.ConvertOp, t.ReshapeOp, t.CopyOp, t.ConcatenateOp, t.BroadcastInDimOp, t.SliceOp,
    t.AddOp, t.SubtractOp, t.MultiplyOp, t.MaximumOp, t.MinimumOp,
)  # fmt: skip
"""Operations whose sizes are computed of those of their operands."""


def _sizes(at: FunctionConverter, operation: HloOperation, index: int, what: str) -> list[Expr]:
    found = sizes_of(at, at.operand(operation, index))
    if found is None:
        raise Unsupported(f"{what} is data that only a run knows")
    return found


def _constants(
    at: FunctionConverter, operation: HloOperation, index: int, what: str
) -> list[int]:
    found = _sizes(at, operation, index, what)
    if not all(size.is_constant for size in found):
        raise Unsupported(f"{what} is no list of constants")
    return [size.value for size in found]


@converter("get_dimension_size")
def _get_dimension_size(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    (dimension,) = integers_of(operation.attributes["dimension"])
    size = shape_of(at.operand(operation, 0))[dimension]
    return [at.builder.dimension(size, result_type(operation).dtype)]


@converter("dynamic_broadcast_in_dim")
def _dynamic_broadcast_in_dim(
    at: FunctionConverter, operation: HloOperation
) -> Sequence[Value]:
    shape = _sizes(at, operation, 1, "the shape to broadcast to")
    at.target = shape
    dims = integers_of(operation.attributes["broadcast_dimensions"])
    return [at.builder.broadcast_in_dim(at.operand(operation, 0), dims, shape)]


@converter("dynamic_reshape")
def _dynamic_reshape(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    shape = _sizes(at, operation, 1, "the new shape")
    at.target = shape
    return [at.builder.reshape(at.operand(operation, 0), shape)]


@converter("dynamic_iota")
def _dynamic_iota(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    shape = _sizes(at, operation, 0, "the shape of an iota")
    (dimension,) = integers_of(operation.attributes["iota_dimension"])
    return [at.builder.iota(result_type(operation).dtype, shape, dimension)]


def _smaller(a: Expr, b: Expr) -> Expr:
    """The minimum of sizes, which are not negative: `n` of `n` and `2*n`."""
    factors = [c for m, c in (a - b).terms if all(isinstance(atom, str) for atom, _ in m)]
    if len(factors) == len((a - b).terms) and all(c <= 0 for c in factors):
        return a
    if len(factors) == len((a - b).terms) and all(c >= 0 for c in factors):
        return b
    return minimum(a, b)


@converter("real_dynamic_slice")
def _real_dynamic_slice(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    """Slices whose places data decides stay inside of the operand: starts are moved there,
    as those of `dynamic_slice` are, and what is beyond the end is not there."""
    operand, b = at.operand(operation, 0), at.builder
    start = _sizes(at, operation, 1, "the start of a slice")
    limit = _sizes(at, operation, 2, "the limit of a slice")
    strides = _constants(at, operation, 3, "the step of a slice")
    decided = set(at.open_sizes.decided)
    shape = shape_of(operand)
    lengths = list(shape)
    moved: list[SSAValue] = [b.scalar(0, I64)] * len(shape)
    for n, size in enumerate(shape):
        length = limit[n] - start[n]
        if start[n].names & decided and strides[n] == 1 and not start[n].names & length.names:
            lengths[n] = _smaller(length, size) if length.names & decided else length
            moved[n] = b.dimension(start[n], I64)
            start[n], limit[n] = ZERO, lengths[n]
        elif limit[n].names & decided or start[n].names & decided:
            limit[n] = _smaller(limit[n], size)
            if start[n].names & decided:
                start[n] = _smaller(start[n], limit[n])
    if lengths != list(shape):
        operand = b.dynamic_slice(operand, moved, lengths)
    return [b.slice(operand, start, limit, strides)]


@converter("dynamic_pad")
def _dynamic_pad(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    return [
        at.builder.pad(
            at.operand(operation, 0),
            at.operand(operation, 1),
            _sizes(at, operation, 2, "padding"),
            _sizes(at, operation, 3, "padding"),
            _constants(at, operation, 4, "interior padding"),
        )
    ]


@converter("dynamic_gather", "dynamic_conv")
def _with_static_operand(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    """The operation without `dynamic_`: its third operand is an attribute."""
    key, named = {
        "dynamic_gather": ("gather", "slice_sizes"),
        "dynamic_conv": ("convolution", "padding"),
    }[operation.name.rpartition(".")[2]]
    values: Sequence[Any]
    if named == "slice_sizes":
        whole, decided = shape_of(at.operand(operation, 0)), set(at.open_sizes.decided)
        values = [
            _smaller(v, size) if v.names & decided else v
            for v, size in zip(_sizes(at, operation, 2, named), whole, strict=True)
        ]
    else:
        values = _constants(at, operation, 2, named)
    attributes: dict[str, Any] = {**operation.attributes, named: values}
    inner = HloOperation(
        key, operation.operands[:2], operation.results, attributes,
        operation.types[:2], operation.result_types, operation.place,
    )  # fmt: skip
    return CONVERTERS[key](at, inner)
