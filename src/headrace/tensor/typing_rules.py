"""The type that each operation's own rule gives it, and the element types it takes.

Shapes come from the same code that builds operations (`build.TensorBuilder`), here with
placeholders instead of operations, so there is one rule for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import IRDLOperation

from headrace.base.dtypes import I1, I64, DType
from headrace.base.symbols import ONE, ExprLike, as_expr
from headrace.ir.types import dtype_of, shape_of, tensor_type
from headrace.tensor import dialect as d
from headrace.tensor.build import TensorBuilder, window_size
from headrace.tensor.control import returned_types

ANY, FLOAT, INTEGER, LOGICAL, NUMBER = (
    frozenset(kinds.split())
    for kinds in (
        "float signed unsigned bool complex",
        "float complex",
        "signed unsigned",
        "signed unsigned bool",
        "float signed unsigned complex",
    )
)

ELEMENT_KINDS: dict[type[Operation], frozenset[str]] = {
    d.AbsOp: NUMBER,
    d.CbrtOp: FLOAT,
    d.CeilOp: FLOAT,
    d.ConvertOp: ANY,
    d.CopyOp: ANY,
    d.CosineOp: FLOAT,
    d.CountLeadingZerosOp: INTEGER,
    d.ErfOp: FLOAT,
    d.ExponentialOp: FLOAT,
    d.ExponentialMinusOneOp: FLOAT,
    d.FloorOp: FLOAT,
    d.IsFiniteOp: FLOAT,
    d.LogOp: FLOAT,
    d.LogPlusOneOp: FLOAT,
    d.LogisticOp: FLOAT,
    d.NegateOp: NUMBER,
    d.NotOp: LOGICAL,
    d.PopcntOp: INTEGER,
    d.RoundNearestAfzOp: FLOAT,
    d.RoundNearestEvenOp: FLOAT,
    d.RsqrtOp: FLOAT,
    d.SignOp: NUMBER,
    d.SineOp: FLOAT,
    d.SqrtOp: FLOAT,
    d.TanOp: FLOAT,
    d.TanhOp: FLOAT,
    d.BitcastConvertOp: ANY,
    d.RealOp: frozenset({"complex"}),
    d.ImagOp: frozenset({"complex"}),
    d.ComplexOp: frozenset({"float"}),
    d.AddOp: ANY,
    d.AndOp: LOGICAL,
    d.Atan2Op: FLOAT,
    d.DivideOp: NUMBER,
    d.MaximumOp: ANY,
    d.MinimumOp: ANY,
    d.MultiplyOp: ANY,
    d.OrOp: LOGICAL,
    d.PowerOp: NUMBER,
    d.RemainderOp: NUMBER,
    d.ShiftLeftOp: INTEGER,
    d.ShiftRightArithmeticOp: INTEGER,
    d.ShiftRightLogicalOp: INTEGER,
    d.SubtractOp: NUMBER,
    d.XorOp: LOGICAL,
    d.CompareOp: ANY,
    d.ClampOp: NUMBER,
}
"""Kinds of element types an elementwise operation computes with (default: any)."""


class _TypeBuilder(TensorBuilder):
    """Applies the builder's rules; what it 'makes' is a placeholder of the right type."""

    def __init__(self) -> None:
        super().__init__(Block())

    def _make(
        self,
        kind: type[IRDLOperation],
        operands: Sequence[SSAValue | Sequence[SSAValue]],
        dtype: DType,
        shape: Iterable[ExprLike],
        regions: Sequence[Region] = (),
        **properties: Attribute,
    ) -> SSAValue:
        return Block(arg_types=[tensor_type(dtype, shape)]).args[0]


_BUILDER = _TypeBuilder()


def inferred_types(operation: Operation) -> list[TensorType]:
    """The result types that an operation's rule gives.

    Raises:
        ValueError: the operands do not fit the rule; the message is the reason.
    """
    kinds = ELEMENT_KINDS.get(type(operation))
    if kinds is not None:
        kind = dtype_of(operation.operands[0])
        if kind.kind not in kinds:
            name = operation.name.removeprefix("tensor.")
            raise ValueError(f"{name} does not compute with {kind}")
    if isinstance(operation, d.BinaryOp):
        name = operation.name.removeprefix("tensor.")
        return [_type(_BUILDER.binary(name, operation.lhs, operation.rhs))]
    rule = _RULES.get(type(operation), _unary)
    found = rule(operation)
    return found if isinstance(found, list) else [_type(found)]


def _type(value: SSAValue) -> TensorType:
    return cast(TensorType, value.type)


def _unary(operation: Operation) -> SSAValue:
    name = operation.name.removeprefix("tensor.")
    return _BUILDER.unary(name, operation.operands[0])


def _ints(attribute: d.Integers) -> list[int]:
    return [int(v) for v in attribute.get_values()]


def _dims_in_range(name: str, dims: Sequence[int], rank: int) -> None:
    if len(set(dims)) != len(dims) or any(not 0 <= n < rank for n in dims):
        raise ValueError(f"{name} {list(dims)} are not distinct dimensions of rank {rank}")


def _constant(op: d.ConstantOp) -> list[TensorType]:
    found = cast(TensorType, op.value.type)
    count = 1
    for size in shape_of(found):
        count *= size.value
    if count > 1024:
        raise ValueError(f"a constant holds at most 1024 elements, not {count}")
    return [found]


def _own(op: Operation) -> list[TensorType]:
    return [_type(r) for r in op.results]


def _parameter(op: d.ParameterOp) -> list[TensorType]:
    if not all(s.is_constant for s in shape_of(op.result)):
        raise ValueError("a parameter has a static shape")
    return _own(op)


def _iota(op: d.IotaOp) -> list[TensorType]:
    _dims_in_range("dimension", _ints(op.dimension), len(shape_of(op.result)))
    return _own(op)


def _dimension(op: d.DimensionOp) -> list[TensorType]:
    kind = dtype_of(op.result)
    if not kind.is_integer:
        raise ValueError(f"a dimension is an integer, not {kind}")
    values = op.value.exprs
    shape = [] if not shape_of(op.result) and len(values) == 1 else [len(values)]
    return [tensor_type(kind, shape)]


def _broadcast(op: d.BroadcastInDimOp) -> SSAValue:
    target = shape_of(op.result)
    dims = _ints(op.broadcast_dimensions)
    _dims_in_range("broadcast dimensions", dims, len(target))
    if len(dims) != len(shape_of(op.operand)):
        raise ValueError("one broadcast dimension is needed for each operand dimension")
    return _BUILDER.broadcast_in_dim(op.operand, dims, target)


def _slice(op: d.SliceOp) -> SSAValue:
    start, limit = op.start_indices.exprs, op.limit_indices.exprs
    strides, source = _ints(op.strides), shape_of(op.operand)
    if not len(start) == len(limit) == len(strides) == len(source):
        raise ValueError("start, limit and stride are needed for each dimension")
    for low, high, step, size in zip(start, limit, strides, source, strict=True):
        if step < 1:
            raise ValueError(f"stride {step} is not positive")
        if low.is_constant and low.value < 0:
            raise ValueError(f"start {low} is negative")
        if (size - high).is_constant and (size - high).value < 0:
            raise ValueError(f"limit {high} is beyond the size {size}")
    return _BUILDER.slice(op.operand, start, limit, strides)


def _starts(values: Sequence[SSAValue], rank: int) -> None:
    if len(values) != rank:
        raise ValueError(f"{len(values)} start indices for rank {rank}")
    for value in values:
        if shape_of(value) or not dtype_of(value).is_integer:
            raise ValueError("start indices are integer scalars")


def _dynamic_slice(op: d.DynamicSliceOp) -> SSAValue:
    sizes = shape_of(op.result)
    _starts(op.start_indices, len(shape_of(op.operand)))
    if len(sizes) != len(shape_of(op.operand)):
        raise ValueError("a slice has the rank of its operand")
    return _BUILDER.dynamic_slice(op.operand, list(op.start_indices), sizes)


def _dynamic_update_slice(op: d.DynamicUpdateSliceOp) -> SSAValue:
    _starts(op.start_indices, len(shape_of(op.operand)))
    if dtype_of(op.operand) != dtype_of(op.update):
        raise ValueError("operand and update have different element types")
    if len(shape_of(op.operand)) != len(shape_of(op.update)):
        raise ValueError("operand and update have different ranks")
    return _BUILDER.dynamic_update_slice(op.operand, op.update, list(op.start_indices))


def _pad(op: d.PadOp) -> SSAValue:
    if shape_of(op.padding_value) or dtype_of(op.padding_value) != dtype_of(op.operand):
        raise ValueError("the padding value is a scalar of the operand's element type")
    between = _ints(op.interior_padding)
    if any(n < 0 for n in between):
        raise ValueError("interior padding is not negative")
    return _BUILDER.pad(
        op.operand,
        op.padding_value,
        op.edge_padding_low.exprs,
        op.edge_padding_high.exprs,
        between,
    )


def _concatenate(op: d.ConcatenateOp) -> SSAValue:
    inputs = list(op.inputs)
    if not inputs:
        raise ValueError("concatenate needs an input")
    _dims_in_range("dimension", _ints(op.dimension), len(shape_of(inputs[0])))
    if len({dtype_of(i) for i in inputs}) > 1:
        raise ValueError("concatenate needs one element type")
    return _BUILDER.concatenate(inputs, _ints(op.dimension)[0])


def _reverse(op: d.ReverseOp) -> SSAValue:
    _dims_in_range("dimensions", _ints(op.dimensions), len(shape_of(op.operand)))
    return op.operand


def _gather(op: d.GatherOp) -> SSAValue:
    operand_rank, index_shape = len(shape_of(op.operand)), shape_of(op.start_indices)
    collapsed, batching = _ints(op.collapsed_slice_dims), _ints(op.operand_batching_dims)
    start_map, vector = _ints(op.start_index_map), _ints(op.index_vector_dim)[0]
    sizes = op.slice_sizes.exprs
    if not dtype_of(op.start_indices).is_integer:
        raise ValueError("start indices are integers")
    if not 0 <= vector <= len(index_shape):
        raise ValueError(f"index_vector_dim {vector} is beyond rank {len(index_shape)}")
    if len(sizes) != operand_rank:
        raise ValueError("one slice size is needed for each operand dimension")
    _dims_in_range("collapsed and batching", [*collapsed, *batching], operand_rank)
    _dims_in_range("start_index_map", start_map, operand_rank)
    count = as_expr(1) if vector == len(index_shape) else index_shape[vector]
    if count != as_expr(len(start_map)):
        raise ValueError(f"index vectors have {count} elements, the map {len(start_map)}")
    if any(sizes[n] != ONE for n in (*collapsed, *batching)):
        raise ValueError("slices of collapsed and batching dimensions have size 1")
    offsets = operand_rank - len(collapsed) - len(batching)
    rank = offsets + len(index_shape) - (1 if vector < len(index_shape) else 0)
    _dims_in_range("offset_dims", _ints(op.offset_dims), rank)
    if len(_ints(op.offset_dims)) != offsets:
        raise ValueError(f"{offsets} offset dimensions are needed")
    return _BUILDER.gather(
        op.operand,
        op.start_indices,
        offset_dims=_ints(op.offset_dims),
        collapsed_slice_dims=collapsed,
        operand_batching_dims=batching,
        start_indices_batching_dims=_ints(op.start_indices_batching_dims),
        start_index_map=start_map,
        index_vector_dim=vector,
        slice_sizes=sizes,
    )


def _require_reduction(op: Any) -> list[DType]:
    """Checks inputs, initial values and body; gives the element types."""
    inputs, starts = list(op.inputs), list(op.init_values)
    if not inputs or len(inputs) != len(starts):
        raise ValueError("one initial value is needed for each input")
    kinds = [dtype_of(i) for i in inputs]
    for value, start in zip(inputs, starts, strict=True):
        if shape_of(value) != shape_of(inputs[0]):
            raise ValueError("the inputs of a reduction have one shape")
        if shape_of(start) or dtype_of(start) != dtype_of(value):
            raise ValueError("an initial value is a scalar of its input's element type")
    scalars = [tensor_type(k, ()) for k in kinds]
    block = op.body.blocks[0]
    if [a.type for a in block.args] != [*scalars, *scalars]:
        raise ValueError("the body takes left then right scalars of the inputs' types")
    end = block.last_op
    if not isinstance(end, d.ReturnOp) or [v.type for v in end.operands] != scalars:
        raise ValueError("the body returns one scalar an input")
    return kinds


def _reduce(op: d.ReduceOp) -> list[TensorType]:
    kinds = _require_reduction(op)
    shape, dims = shape_of(op.inputs[0]), _ints(op.dimensions)
    _dims_in_range("dimensions", dims, len(shape))
    kept = [s for n, s in enumerate(shape) if n not in dims]
    return [tensor_type(k, kept) for k in kinds]


def _reduce_window(op: d.ReduceWindowOp) -> list[TensorType]:
    kinds = _require_reduction(op)
    shape = shape_of(op.inputs[0])
    lists = (
        _ints(op.window_dimensions), _ints(op.window_strides), op.padding_low.exprs,
        op.padding_high.exprs, _ints(op.base_dilations), _ints(op.window_dilations),
    )  # fmt: skip
    if any(len(values) != len(shape) for values in lists):
        raise ValueError("a window says something for every dimension")
    sizes = [window_size(*values) for values in zip(shape, *lists, strict=True)]
    return [tensor_type(k, sizes) for k in kinds]


def _scatter(op: d.ScatterOp) -> list[TensorType]:
    inputs, updates = list(op.inputs), list(op.updates)
    kinds = [dtype_of(i) for i in inputs]
    if not inputs or [dtype_of(u) for u in updates] != kinds:
        raise ValueError("one update of its element type is needed for each input")
    if not dtype_of(op.scatter_indices).is_integer:
        raise ValueError("scatter indices are integers")
    scalars = [tensor_type(k, ()) for k in kinds]
    _require_body(op, scalars, scalars)
    shape, moved, index = (shape_of(v) for v in (inputs[0], updates[0], op.scatter_indices))
    if any(shape_of(i) != shape for i in inputs) or any(shape_of(u) != moved for u in updates):
        raise ValueError("the inputs of a scatter have one shape, and so have its updates")
    window, inserted = _ints(op.update_window_dims), _ints(op.inserted_window_dims)
    batching, places = _ints(op.input_batching_dims), _ints(op.scatter_dims_to_operand_dims)
    vector = _ints(op.index_vector_dim)[0]
    _dims_in_range("update_window_dims", window, len(moved))
    _dims_in_range("inserted and batching", [*inserted, *batching], len(shape))
    _dims_in_range("scatter_dims_to_operand_dims", places, len(shape))
    if not 0 <= vector <= len(index):
        raise ValueError(f"index_vector_dim {vector} is beyond rank {len(index)}")
    if len(window) + len(inserted) + len(batching) != len(shape):
        raise ValueError("window, inserted and batching dimensions are not those of the input")
    count = ONE if vector == len(index) else index[vector]
    if count != as_expr(len(places)):
        raise ValueError(f"index vectors have {count} elements, the map {len(places)}")
    scattered = [s for n, s in enumerate(moved) if n not in window]
    if scattered != [s for n, s in enumerate(index) if n != vector]:
        raise ValueError("the updates do not have a window for each index vector")
    return [tensor_type(k, shape) for k in kinds]


def _sort(op: d.SortOp) -> list[TensorType]:
    inputs = list(op.inputs)
    if not inputs or any(shape_of(i) != shape_of(inputs[0]) for i in inputs):
        raise ValueError("a sort needs inputs of one shape")
    _dims_in_range("dimension", _ints(op.dimension), len(shape_of(inputs[0])))
    scalars = [tensor_type(dtype_of(i), ()) for i in inputs]
    _require_body(op, scalars, [tensor_type(I1, ())])
    return [_type(i) for i in inputs]


def _require_body(op: Any, scalars: list[TensorType], results: list[TensorType]) -> None:
    """Checks that the body takes each scalar twice and returns `results`."""
    block = op.body.blocks[0]
    if [a.type for a in block.args] != [*scalars, *scalars]:
        raise ValueError("the body takes left then right scalars of the inputs' types")
    end = block.last_op
    if not isinstance(end, d.ReturnOp) or [v.type for v in end.operands] != results:
        raise ValueError("the body returns other scalars than it should")


def _dot_general(op: d.DotGeneralOp) -> SSAValue:
    batch = (_ints(op.lhs_batching_dimensions), _ints(op.rhs_batching_dimensions))
    contract = (_ints(op.lhs_contracting_dimensions), _ints(op.rhs_contracting_dimensions))
    for side, value in enumerate((op.lhs, op.rhs)):
        dims = [*batch[side], *contract[side]]
        _dims_in_range("batching and contracting", dims, len(shape_of(value)))
    return _BUILDER.dot_general(
        op.lhs, op.rhs, batch=batch, contract=contract, dtype=dtype_of(op.result)
    )


def _convolution(op: d.ConvolutionOp) -> SSAValue:
    left, right = shape_of(op.lhs), shape_of(op.rhs)
    if len(left) != len(right) or len(left) < 2:
        raise ValueError("lhs and rhs of a convolution have one rank, at least 2")
    groups = _ints(op.feature_group_count)[0]
    if groups < 1 or not right[0].is_constant or right[0].value % groups:
        raise ValueError(f"{right[0]} output features do not divide into {groups} groups")
    return _BUILDER.convolution(
        op.lhs,
        op.rhs,
        window_strides=_ints(op.window_strides),
        padding_low=op.padding_low.exprs,
        padding_high=op.padding_high.exprs,
        lhs_dilation=_ints(op.lhs_dilation),
        rhs_dilation=_ints(op.rhs_dilation),
        feature_group_count=groups,
        dtype=dtype_of(op.result),
    )


_DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")


def _compare(op: d.CompareOp) -> SSAValue:
    direction = op.direction.data
    if direction not in _DIRECTIONS:
        raise ValueError(f"'{direction}' is no direction; one of {', '.join(_DIRECTIONS)}")
    return _BUILDER.compare(direction, op.lhs, op.rhs)


def _is_finite(op: d.IsFiniteOp) -> list[TensorType]:
    return [tensor_type(I1, shape_of(op.operand))]


def _abs(op: d.AbsOp) -> list[TensorType]:
    """Of complex numbers it is their magnitude."""
    kind = dtype_of(op.operand)
    real = dtype_of(op.result) if kind.kind == "complex" else kind
    return [tensor_type(real, shape_of(op.operand))]


def _define_dimension(op: d.DefineDimensionOp) -> list[TensorType]:
    if op.size.type != tensor_type(I64, ()):
        raise ValueError("the size is an i64 scalar")
    return []


def _if(op: d.IfOp) -> list[TensorType]:
    if op.condition.type != tensor_type(I1, ()):
        raise ValueError("the condition is an i1 scalar")
    types = returned_types(op.then)
    if any(region.block.args for region in op.regions):
        raise ValueError("the regions take no arguments")
    if types != returned_types(op.otherwise):
        raise ValueError("the regions return different types")
    return cast("list[TensorType]", types)


def _while(op: d.WhileOp) -> list[TensorType]:
    types = [v.type for v in op.inputs]
    if any([a.type for a in region.block.args] != types for region in op.regions):
        raise ValueError("the regions take the carried values")
    if returned_types(op.condition) != [tensor_type(I1, ())]:
        raise ValueError("the condition returns an i1 scalar")
    if returned_types(op.body) != types:
        raise ValueError("the body returns other types than it takes")
    return cast("list[TensorType]", types)


_RULES: dict[type[Operation], Callable[[Any], SSAValue | list[TensorType]]] = {
    d.AbsOp: _abs,
    d.IsFiniteOp: _is_finite,
    d.ConvertOp: lambda op: _BUILDER.convert(op.operand, dtype_of(op.result)),
    d.BitcastConvertOp: lambda op: _BUILDER.bitcast_convert(op.operand, dtype_of(op.result)),
    d.CompareOp: _compare,
    d.SelectOp: lambda op: _BUILDER.select(op.predicate, op.on_true, op.on_false),
    d.ClampOp: lambda op: _BUILDER.clamp(op.low, op.operand, op.high),
    d.ConstantOp: _constant,
    d.ParameterOp: _parameter,
    d.IotaOp: _iota,
    d.DimensionOp: _dimension,
    d.BroadcastInDimOp: _broadcast,
    d.ReshapeOp: lambda op: _BUILDER.reshape(op.operand, shape_of(op.result)),
    d.TransposeOp: lambda op: _BUILDER.transpose(op.operand, _ints(op.permutation)),
    d.SliceOp: _slice,
    d.DynamicSliceOp: _dynamic_slice,
    d.DynamicUpdateSliceOp: _dynamic_update_slice,
    d.PadOp: _pad,
    d.ConcatenateOp: _concatenate,
    d.ReverseOp: _reverse,
    d.GatherOp: _gather,
    d.ReduceOp: _reduce,
    d.ReduceWindowOp: _reduce_window,
    d.ScatterOp: _scatter,
    d.SortOp: _sort,
    d.IfOp: _if,
    d.DefineDimensionOp: _define_dimension,
    d.WhileOp: _while,
    d.DotGeneralOp: _dot_general,
    d.ConvolutionOp: _convolution,
}
