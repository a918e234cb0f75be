"""Stage 0, `tensor`: whole-tensor operations under StableHLO's names and semantics.

Specification: https://openxla.org/stablehlo/spec, section "Ops", unless an operation says
otherwise. Differences, all deliberate:

- A size is an expression over named dimensions (`#hr.dims`), so there are no `dynamic_*`
  twins: the bounds of `slice`, the amounts of `pad`, the result shape of `reshape`,
  `broadcast_in_dim` and `iota` are expressions (`#hr.exprs`) or stand in the type.
- Weights are `tensor.parameter @name`; `tensor.constant` holds only small tensors.
- Elementwise operands have equal shapes: broadcasts are explicit.

`build.py` makes operations with inferred types; `interp.py` gives each its meaning in
numpy; `verify.py` says which are legal.
"""

from __future__ import annotations

from abc import ABC
from typing import TypeAlias

from xdsl.dialects.builtin import (
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    IntegerType,
    StringAttr,
    SymbolRefAttr,
    TensorType,
    i64,
)
from xdsl.ir import Dialect
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import Pure

from headrace.ir.types import DimsAttr, ExprsAttr
from headrace.tensor.control import IfOp, ReturnOp, WhileOp
from headrace.tensor.sizes import DefineDimensionOp

Integers: TypeAlias = DenseArrayBase[IntegerType]
_INTEGERS = DenseArrayBase.constr(i64)


# -- elementwise ----------------------------------------------------------------


class ElementwiseOp(IRDLOperation, ABC):
    """Computes each result element from the operand elements at the same index."""


class UnaryOp(ElementwiseOp, ABC):
    """`%r = tensor.<name> %x : (T) -> U`, elementwise over one operand."""

    operand = operand_def(TensorType)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = "$operand attr-dict `:` functional-type(operands, results)"


class BinaryOp(ElementwiseOp, ABC):
    """`%r = tensor.<name> %x, %y : (T, T) -> T`, elementwise over two operands."""

    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = "$lhs `,` $rhs attr-dict `:` functional-type(operands, results)"


@irdl_op_definition
class AbsOp(UnaryOp):
    """The absolute value."""

    name = "tensor.abs"


@irdl_op_definition
class CbrtOp(UnaryOp):
    """The cube root."""

    name = "tensor.cbrt"


@irdl_op_definition
class CeilOp(UnaryOp):
    """Rounds up."""

    name = "tensor.ceil"


@irdl_op_definition
class ConvertOp(UnaryOp):
    """Converts the element type: floats to integers truncate and saturate (NaN to 0)."""

    name = "tensor.convert"


@irdl_op_definition
class CopyOp(UnaryOp):
    """Yields its operand; kept at -O0, where it is a dispatch of its own."""

    name = "tensor.copy"


@irdl_op_definition
class CosineOp(UnaryOp):
    """The cosine."""

    name = "tensor.cosine"


@irdl_op_definition
class CountLeadingZerosOp(UnaryOp):
    """Counts the leading zero bits."""

    name = "tensor.count_leading_zeros"


@irdl_op_definition
class ErfOp(UnaryOp):
    """The error function (CHLO's `erf`)."""

    name = "tensor.erf"


@irdl_op_definition
class ExponentialOp(UnaryOp):
    """e to the operand."""

    name = "tensor.exponential"


@irdl_op_definition
class ExponentialMinusOneOp(UnaryOp):
    """e to the operand, less one, accurate near zero."""

    name = "tensor.exponential_minus_one"


@irdl_op_definition
class FloorOp(UnaryOp):
    """Rounds down."""

    name = "tensor.floor"


@irdl_op_definition
class IsFiniteOp(UnaryOp):
    """i1: neither infinite nor NaN."""

    name = "tensor.is_finite"


@irdl_op_definition
class LogOp(UnaryOp):
    """The natural logarithm."""

    name = "tensor.log"


@irdl_op_definition
class LogPlusOneOp(UnaryOp):
    """The natural logarithm of one plus the operand, accurate near zero."""

    name = "tensor.log_plus_one"


@irdl_op_definition
class LogisticOp(UnaryOp):
    """1 / (1 + e to the negated operand)."""

    name = "tensor.logistic"


@irdl_op_definition
class NegateOp(UnaryOp):
    """The negated operand; integers wrap."""

    name = "tensor.negate"


@irdl_op_definition
class NotOp(UnaryOp):
    """Bitwise not; logical for i1."""

    name = "tensor.not"


@irdl_op_definition
class PopcntOp(UnaryOp):
    """Counts the bits that are set."""

    name = "tensor.popcnt"


@irdl_op_definition
class RoundNearestAfzOp(UnaryOp):
    """Rounds to the nearest integer, halves away from zero."""

    name = "tensor.round_nearest_afz"


@irdl_op_definition
class RoundNearestEvenOp(UnaryOp):
    """Rounds to the nearest integer, halves to even."""

    name = "tensor.round_nearest_even"


@irdl_op_definition
class RsqrtOp(UnaryOp):
    """1 / square root."""

    name = "tensor.rsqrt"


@irdl_op_definition
class SignOp(UnaryOp):
    """-1, 0 or 1; NaN and signed zeros stay."""

    name = "tensor.sign"


@irdl_op_definition
class SineOp(UnaryOp):
    """The sine."""

    name = "tensor.sine"


@irdl_op_definition
class SqrtOp(UnaryOp):
    """The square root."""

    name = "tensor.sqrt"


@irdl_op_definition
class TanOp(UnaryOp):
    """The tangent."""

    name = "tensor.tan"


@irdl_op_definition
class TanhOp(UnaryOp):
    """The hyperbolic tangent."""

    name = "tensor.tanh"


@irdl_op_definition
class BitcastConvertOp(UnaryOp):
    """Reinterprets the bits as an element type of the same width."""

    name = "tensor.bitcast_convert"


@irdl_op_definition
class RealOp(UnaryOp):
    """The real part of complex numbers."""

    name = "tensor.real"


@irdl_op_definition
class ImagOp(UnaryOp):
    """The imaginary part of complex numbers."""

    name = "tensor.imag"


@irdl_op_definition
class ComplexOp(BinaryOp):
    """Complex numbers of real parts and imaginary parts."""

    name = "tensor.complex"


@irdl_op_definition
class AddOp(BinaryOp):
    """The sum; integers wrap, i1 is logical or."""

    name = "tensor.add"


@irdl_op_definition
class AndOp(BinaryOp):
    """Bitwise and; logical for i1."""

    name = "tensor.and"


@irdl_op_definition
class Atan2Op(BinaryOp):
    """The angle of (rhs, lhs)."""

    name = "tensor.atan2"


@irdl_op_definition
class DivideOp(BinaryOp):
    """The quotient; integers round toward zero, and by zero give -1 (all ones)."""

    name = "tensor.divide"


@irdl_op_definition
class MaximumOp(BinaryOp):
    """The larger; NaN where either is NaN."""

    name = "tensor.maximum"


@irdl_op_definition
class MinimumOp(BinaryOp):
    """The smaller; NaN where either is NaN."""

    name = "tensor.minimum"


@irdl_op_definition
class MultiplyOp(BinaryOp):
    """The product; integers wrap, i1 is logical and."""

    name = "tensor.multiply"


@irdl_op_definition
class OrOp(BinaryOp):
    """Bitwise or; logical for i1."""

    name = "tensor.or"


@irdl_op_definition
class PowerOp(BinaryOp):
    """lhs to the power of rhs; integers by repeated multiplication."""

    name = "tensor.power"


@irdl_op_definition
class RemainderOp(BinaryOp):
    """The remainder with the sign of lhs (C's fmod); integers by zero give lhs."""

    name = "tensor.remainder"


@irdl_op_definition
class ShiftLeftOp(BinaryOp):
    """Shifts left; by the width or more gives 0."""

    name = "tensor.shift_left"


@irdl_op_definition
class ShiftRightArithmeticOp(BinaryOp):
    """Shifts right, keeping the sign; by the width or more gives the sign."""

    name = "tensor.shift_right_arithmetic"


@irdl_op_definition
class ShiftRightLogicalOp(BinaryOp):
    """Shifts right, filling zeros; by the width or more gives 0."""

    name = "tensor.shift_right_logical"


@irdl_op_definition
class SubtractOp(BinaryOp):
    """The difference; integers wrap."""

    name = "tensor.subtract"


@irdl_op_definition
class XorOp(BinaryOp):
    """Bitwise exclusive or; logical for i1."""

    name = "tensor.xor"


@irdl_op_definition
class CompareOp(ElementwiseOp):
    """i1: `lhs <direction> rhs`; direction is EQ, NE, LT, LE, GT or GE.

    Floats compare as IEEE (NaN: only NE holds).
    """

    name = "tensor.compare"
    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    direction = prop_def(StringAttr)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = (
        "$direction `,` $lhs `,` $rhs attr-dict `:` functional-type(operands, results)"
    )


@irdl_op_definition
class SelectOp(ElementwiseOp):
    """`on_true` where the i1 `predicate` holds, else `on_false`; all of equal shape."""

    name = "tensor.select"
    predicate = operand_def(TensorType)
    on_true = operand_def(TensorType)
    on_false = operand_def(TensorType)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = (
        "$predicate `,` $on_true `,` $on_false attr-dict `:` functional-type(operands, results)"
    )


@irdl_op_definition
class ClampOp(ElementwiseOp):
    """minimum(maximum(operand, low), high); all of equal shape."""

    name = "tensor.clamp"
    low = operand_def(TensorType)
    operand = operand_def(TensorType)
    high = operand_def(TensorType)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = (
        "$low `,` $operand `,` $high attr-dict `:` functional-type(operands, results)"
    )


# -- sources ---------------------------------------------------------------------


@irdl_op_definition
class ConstantOp(IRDLOperation):
    """A small tensor (at most 1,024 elements); `value` has the result's type.

    A splat of a larger shape is a rank-0 constant and a `broadcast_in_dim`; anything else
    larger is a parameter.
    """

    name = "tensor.constant"
    value = prop_def(DenseIntOrFPElementsAttr)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = "$value attr-dict `:` type($result)"


@irdl_op_definition
class ParameterOp(IRDLOperation):
    """A weight by name; the module's parameter table says where it comes from."""

    name = "tensor.parameter"
    parameter = prop_def(SymbolRefAttr)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = "$parameter attr-dict `:` type($result)"


@irdl_op_definition
class IotaOp(IRDLOperation):
    """The index along `dimension` at every place."""

    name = "tensor.iota"
    dimension = prop_def(_INTEGERS)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = "attr-dict `dim` `=` $dimension `:` type($result)"


@irdl_op_definition
class DimensionOp(IRDLOperation):
    """A size expression as a tensor of integers: one element an expression.

    A rank-0 result has one expression; a rank-1 result one per element. ONNX's `Shape`
    where it is used as data.
    """

    name = "tensor.dimension"
    value = prop_def(ExprsAttr)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = "$value attr-dict `:` type($result)"


# -- movement --------------------------------------------------------------------


@irdl_op_definition
class BroadcastInDimOp(IRDLOperation):
    """Operand dimension `i` becomes result dimension `broadcast_dimensions[i]`; size 1
    stretches."""

    name = "tensor.broadcast_in_dim"
    operand = operand_def(TensorType)
    broadcast_dimensions = prop_def(_INTEGERS)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = (
        "$operand `,` `dims` `=` $broadcast_dimensions attr-dict `:` "
        "functional-type(operands, results)"
    )


@irdl_op_definition
class ReshapeOp(IRDLOperation):
    """The same elements in row-major order under another shape."""

    name = "tensor.reshape"
    operand = operand_def(TensorType)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = "$operand attr-dict `:` functional-type(operands, results)"


@irdl_op_definition
class TransposeOp(IRDLOperation):
    """Result dimension `i` is operand dimension `permutation[i]`."""

    name = "tensor.transpose"
    operand = operand_def(TensorType)
    permutation = prop_def(_INTEGERS)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = (
        "$operand `,` `dims` `=` $permutation attr-dict `:` functional-type(operands, results)"
    )


@irdl_op_definition
class SliceOp(IRDLOperation):
    """Elements `start, start + stride, ... < limit` along each dimension."""

    name = "tensor.slice"
    operand = operand_def(TensorType)
    start_indices = prop_def(ExprsAttr)
    limit_indices = prop_def(ExprsAttr)
    strides = prop_def(_INTEGERS)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = (
        "$operand `,` $start_indices `to` $limit_indices `step` $strides attr-dict `:` "
        "functional-type(operands, results)"
    )


@irdl_op_definition
class DynamicSliceOp(IRDLOperation):
    """A window of the result's shape at scalar start indices, clamped inside."""

    name = "tensor.dynamic_slice"
    operand = operand_def(TensorType)
    start_indices = var_operand_def(TensorType)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = (
        "$operand `at` $start_indices attr-dict `:` functional-type(operands, results)"
    )


@irdl_op_definition
class DynamicUpdateSliceOp(IRDLOperation):
    """The operand with `update` written at scalar start indices, clamped inside."""

    name = "tensor.dynamic_update_slice"
    operand = operand_def(TensorType)
    update = operand_def(TensorType)
    start_indices = var_operand_def(TensorType)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = (
        "$operand `,` $update `at` $start_indices attr-dict `:` "
        "functional-type(operands, results)"
    )


@irdl_op_definition
class PadOp(IRDLOperation):
    """Adds `padding_value` (rank 0) before, behind and between; negative amounts cut."""

    name = "tensor.pad"
    operand = operand_def(TensorType)
    padding_value = operand_def(TensorType)
    edge_padding_low = prop_def(ExprsAttr)
    edge_padding_high = prop_def(ExprsAttr)
    interior_padding = prop_def(_INTEGERS)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = (
        "$operand `,` $padding_value `low` $edge_padding_low `high` $edge_padding_high "
        "`interior` $interior_padding attr-dict `:` functional-type(operands, results)"
    )


@irdl_op_definition
class ConcatenateOp(IRDLOperation):
    """The operands one behind the other along `dimension` (one integer)."""

    name = "tensor.concatenate"
    inputs = var_operand_def(TensorType)
    dimension = prop_def(_INTEGERS)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = (
        "$inputs `dim` `=` $dimension attr-dict `:` functional-type(operands, results)"
    )


@irdl_op_definition
class ReverseOp(IRDLOperation):
    """Reverses the order along `dimensions`."""

    name = "tensor.reverse"
    operand = operand_def(TensorType)
    dimensions = prop_def(_INTEGERS)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = (
        "$operand `,` `dims` `=` $dimensions attr-dict `:` functional-type(operands, results)"
    )


@irdl_op_definition
class GatherOp(IRDLOperation):
    """StableHLO's `gather`; start indices are clamped so that slices stay inside.

    Slice sizes are expressions; `operand_batching_dims` and `start_indices_batching_dims`
    as in the specification.
    """

    name = "tensor.gather"
    operand = operand_def(TensorType)
    start_indices = operand_def(TensorType)
    offset_dims = prop_def(_INTEGERS)
    collapsed_slice_dims = prop_def(_INTEGERS)
    operand_batching_dims = prop_def(_INTEGERS)
    start_indices_batching_dims = prop_def(_INTEGERS)
    start_index_map = prop_def(_INTEGERS)
    index_vector_dim = prop_def(_INTEGERS)
    slice_sizes = prop_def(ExprsAttr)
    result = result_def(TensorType)
    traits = traits_def(Pure())


# -- reductions --------------------------------------------------------------------


@irdl_op_definition
class ReduceOp(IRDLOperation):
    """Folds `inputs` over `dimensions`, starting at `init_values` exactly as given.

    The body takes left scalars then right scalars (rank-0 tensors) and returns one value
    an input; the order of folding is free, as in the specification.
    """

    name = "tensor.reduce"
    inputs = var_operand_def(TensorType)
    init_values = var_operand_def(TensorType)
    dimensions = prop_def(_INTEGERS)
    body = region_def("single_block")
    results_ = var_result_def(TensorType)
    traits = traits_def(Pure())
    irdl_options = (AttrSizedOperandSegments(as_property=True),)


@irdl_op_definition
class ReduceWindowOp(IRDLOperation):
    """Folds windows of `inputs`: pooling. Padding holds the initial values.

    `padding_low`, `padding_high` are expressions, negative ones cut.
    """

    name = "tensor.reduce_window"
    inputs = var_operand_def(TensorType)
    init_values = var_operand_def(TensorType)
    window_dimensions = prop_def(_INTEGERS)
    window_strides = prop_def(_INTEGERS)
    base_dilations = prop_def(_INTEGERS)
    window_dilations = prop_def(_INTEGERS)
    padding_low = prop_def(ExprsAttr)
    padding_high = prop_def(ExprsAttr)
    body = region_def("single_block")
    results_ = var_result_def(TensorType)
    traits = traits_def(Pure())
    irdl_options = (AttrSizedOperandSegments(as_property=True),)


@irdl_op_definition
class ScatterOp(IRDLOperation):
    """StableHLO's `scatter`: the inputs with updates combined in, in row-major order of the
    updates; an element that would fall outside is left out.

    The body takes scalars of the inputs then of the updates and returns what is stored.
    """

    name = "tensor.scatter"
    inputs = var_operand_def(TensorType)
    scatter_indices = operand_def(TensorType)
    updates = var_operand_def(TensorType)
    update_window_dims = prop_def(_INTEGERS)
    inserted_window_dims = prop_def(_INTEGERS)
    input_batching_dims = prop_def(_INTEGERS)
    scatter_indices_batching_dims = prop_def(_INTEGERS)
    scatter_dims_to_operand_dims = prop_def(_INTEGERS)
    index_vector_dim = prop_def(_INTEGERS)
    body = region_def("single_block")
    results_ = var_result_def(TensorType)
    traits = traits_def(Pure())
    irdl_options = (AttrSizedOperandSegments(as_property=True),)


@irdl_op_definition
class SortOp(IRDLOperation):
    """Sorts the inputs together along `dimension` (one integer); equals keep their order.

    The body takes scalars of the inputs at one place, then at another, and returns an i1:
    whether the first stands before the second.
    """

    name = "tensor.sort"
    inputs = var_operand_def(TensorType)
    dimension = prop_def(_INTEGERS)
    body = region_def("single_block")
    results_ = var_result_def(TensorType)
    traits = traits_def(Pure())


# -- contractions --------------------------------------------------------------------


@irdl_op_definition
class DotGeneralOp(IRDLOperation):
    """Sums products over contracting dimensions.

    The result has the batch dimensions, then the free ones of lhs, then those of rhs.
    """

    name = "tensor.dot_general"
    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    lhs_batching_dimensions = prop_def(_INTEGERS)
    rhs_batching_dimensions = prop_def(_INTEGERS)
    lhs_contracting_dimensions = prop_def(_INTEGERS)
    rhs_contracting_dimensions = prop_def(_INTEGERS)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = (
        "$lhs `,` $rhs `batch` $lhs_batching_dimensions `x` $rhs_batching_dimensions "
        "`contract` $lhs_contracting_dimensions `x` $rhs_contracting_dimensions attr-dict "
        "`:` functional-type(operands, results)"
    )


@irdl_op_definition
class ConvolutionOp(IRDLOperation):
    """Convolution in canonical order: lhs [batch, feature, spatial...], rhs [output feature,
    input feature / groups, spatial...], result [batch, output feature, spatial...].

    Importers transpose to this order (the transposes cancel later). Padding amounts are
    expressions; `lhs_dilation` above 1 is a transposed convolution.
    """

    name = "tensor.convolution"
    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    window_strides = prop_def(_INTEGERS)
    padding_low = prop_def(ExprsAttr)
    padding_high = prop_def(ExprsAttr)
    lhs_dilation = prop_def(_INTEGERS)
    rhs_dilation = prop_def(_INTEGERS)
    feature_group_count = prop_def(_INTEGERS)
    result = result_def(TensorType)
    traits = traits_def(Pure())


TENSOR_OPERATIONS: list[type[IRDLOperation]] = [
    AbsOp, CbrtOp, CeilOp, ConvertOp, CopyOp, CosineOp, CountLeadingZerosOp, ErfOp,
    ExponentialOp, ExponentialMinusOneOp, FloorOp, IsFiniteOp, LogOp, LogPlusOneOp,
    LogisticOp, NegateOp, NotOp, PopcntOp, RoundNearestAfzOp, RoundNearestEvenOp, RsqrtOp,
    SignOp, SineOp, SqrtOp, TanOp, TanhOp, BitcastConvertOp, RealOp, ImagOp,
    ComplexOp, AddOp, AndOp, Atan2Op, DivideOp, MaximumOp, MinimumOp, MultiplyOp, OrOp, PowerOp,
    RemainderOp, ShiftLeftOp, ShiftRightArithmeticOp, ShiftRightLogicalOp, SubtractOp, XorOp,
    CompareOp, SelectOp, ClampOp,
    ConstantOp, ParameterOp, IotaOp, DimensionOp,
    BroadcastInDimOp, ReshapeOp, TransposeOp, SliceOp, DynamicSliceOp, DynamicUpdateSliceOp,
    PadOp, ConcatenateOp, ReverseOp, GatherOp,
    ReduceOp, ReduceWindowOp, ScatterOp, SortOp, ReturnOp, IfOp, WhileOp,
    DefineDimensionOp,
    DotGeneralOp, ConvolutionOp,
]  # fmt: skip

BODIES = (ReduceOp, ReduceWindowOp, ScatterOp, SortOp)
"""Operations whose region computes with scalars."""

CONTROL = (IfOp, WhileOp)
"""Operations whose regions hold whole-tensor operations."""

TENSOR = Dialect("tensor", [*TENSOR_OPERATIONS], [])
HR = Dialect("hr", [], [DimsAttr, ExprsAttr])
