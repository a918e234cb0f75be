"""Reductions, scatters, sorts, products and convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from headrace.importers.hlo.helpers import (
    booleans_of,
    inline_body,
    pairs_of,
    result_type,
    spread,
)
from headrace.importers.hlo.registry import Value, converter, integers_of
from headrace.importers.hlo.tree import HloOperation, HloRegion
from headrace.ir.types import dtype_of, shape_of
from headrace.tensor.build import TensorBuilder

if TYPE_CHECKING:
    from headrace.importers.hlo.convert import FunctionConverter


@converter("reduce")
def _reduce(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    values = at.operands(operation)
    half = len(values) // 2
    return at.builder.reduce(
        values[:half],
        values[half:],
        integers_of(operation.attributes["dimensions"]),
        inline_body(at, operation.regions[0]),
    )


@converter("reduce_window")
def _reduce_window(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    values = at.operands(operation)
    half = len(values) // 2
    a = operation.attributes
    window = integers_of(a["window_dimensions"])
    rank = len(window)
    low, high = pairs_of(a.get("padding"), rank)
    return at.builder.reduce_window(
        values[:half],
        values[half:],
        inline_body(at, operation.regions[0]),
        window_dimensions=window,
        window_strides=spread(a.get("window_strides"), rank),
        padding_low=low,
        padding_high=high,
        base_dilations=spread(a.get("base_dilations"), rank),
        window_dilations=spread(a.get("window_dilations"), rank),
    )


@converter("scatter")
def _scatter(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    a = operation.attributes
    n = {**a, **a.get("scatter_dimension_numbers", {})}
    values = at.operands(operation)
    count = len(values) // 2
    return at.builder.scatter(
        values[:count],
        values[count],
        values[count + 1 :],
        inline_body(at, operation.regions[0]),
        update_window_dims=integers_of(n.get("update_window_dims", [])),
        inserted_window_dims=integers_of(n.get("inserted_window_dims", [])),
        scatter_dims_to_operand_dims=integers_of(
            n.get("scattered_dims_to_operand_dims", n.get("scatter_dims_to_operand_dims", []))
        ),
        index_vector_dim=integers_of(n["index_vector_dim"])[0],
        input_batching_dims=integers_of(n.get("input_batching_dims", [])),
        scatter_indices_batching_dims=integers_of(n.get("scatter_indices_batching_dims", [])),
    )


@converter("sort")
def _sort(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    values = at.operands(operation)
    rank = len(shape_of(values[0]))
    dimension = integers_of(operation.attributes.get("dimension", -1))[0]
    region = operation.regions[0]
    # The region's arguments come in pairs, one of either side; the builder's side by side.
    paired = HloRegion([*region.arguments[0::2], *region.arguments[1::2]], region.operations)
    return at.builder.sort(values, dimension % max(rank, 1), inline_body(at, paired))


@converter("dot")
def _dot(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    lhs, rhs = at.operands(operation)
    return [
        at.builder.dot_general(
            lhs,
            rhs,
            contract=([len(shape_of(lhs)) - 1], [0]),
            dtype=result_type(operation).dtype,
        )
    ]


@converter("dot_general")
def _dot_general(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    a = operation.attributes
    n = {**a, **a.get("dot_dimension_numbers", {})}
    lhs, rhs = at.operands(operation)
    return [
        at.builder.dot_general(
            lhs,
            rhs,
            batch=(
                integers_of(n.get("lhs_batching_dimensions", [])),
                integers_of(n.get("rhs_batching_dimensions", [])),
            ),
            contract=(
                integers_of(n.get("lhs_contracting_dimensions", [])),
                integers_of(n.get("rhs_contracting_dimensions", [])),
            ),
            dtype=result_type(operation).dtype,
        )
    ]


@converter("convolution")
def _convolution(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    a = operation.attributes
    n = {**a, **a.get("dimension_numbers", {})}
    lhs, rhs = at.operands(operation)
    spatial = len(shape_of(lhs)) - 2
    groups = integers_of(n.get("batch_group_count", 1))[0]
    if any(booleans_of(n.get("window_reversal"))):
        rhs = at.builder.reverse(rhs, integers_of(n["kernel_spatial_dimensions"]))
    left = [
        integers_of(n["input_batch_dimension"])[0],
        integers_of(n["input_feature_dimension"])[0],
        *integers_of(n["input_spatial_dimensions"]),
    ]
    right = [
        integers_of(n["kernel_output_feature_dimension"])[0],
        integers_of(n["kernel_input_feature_dimension"])[0],
        *integers_of(n["kernel_spatial_dimensions"]),
    ]
    out = [
        integers_of(n["output_batch_dimension"])[0],
        integers_of(n["output_feature_dimension"])[0],
        *integers_of(n["output_spatial_dimensions"]),
    ]
    low, high = pairs_of(n.get("padding"), spatial)
    feature_groups = integers_of(n.get("feature_group_count", 1))[0]
    image = at.builder.transpose(lhs, left)
    if groups != 1:
        # Groups of the batch are groups of features: each output feature sees one part.
        image = _batch_groups_as_features(at.builder, image, groups)
        feature_groups = groups
    result = at.builder.convolution(
        image,
        at.builder.transpose(rhs, right),
        window_strides=spread(n.get("window_strides"), spatial),
        padding_low=low,
        padding_high=high,
        lhs_dilation=spread(n.get("lhs_dilation", n.get("lhs_dilations")), spatial),
        rhs_dilation=spread(n.get("rhs_dilation", n.get("rhs_dilations")), spatial),
        feature_group_count=feature_groups,
        dtype=result_type(operation).dtype,
    )
    inverse = [out.index(d) for d in range(len(out))]
    return [at.builder.transpose(result, inverse)]


def _batch_groups_as_features(builder: TensorBuilder, image: SSAValue, groups: int) -> SSAValue:
    """[groups * n, c, ...] as [n, groups * c, ...]."""
    batch, channels, *spatial = shape_of(image)
    rest = list(range(3, 3 + len(spatial)))
    split = builder.reshape(image, [groups, batch // groups, channels, *spatial])
    turned = builder.transpose(split, [1, 0, 2, *rest])
    return builder.reshape(turned, [batch // groups, channels * groups, *spatial])


@converter("batch_norm_inference")
def _batch_norm_inference(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    """(operand - mean) / sqrt(variance + epsilon) * scale + offset, along one dimension."""
    operand, scale, offset, mean, variance = at.operands(operation)
    b = at.builder
    axis = integers_of(operation.attributes["feature_index"])[0]
    shape = shape_of(operand)
    epsilon = b.splat(
        float(operation.attributes["epsilon"]), dtype_of(operand), shape_of(variance)
    )
    deviation = b.unary("sqrt", b.binary("add", variance, epsilon))
    spread = [b.broadcast_in_dim(v, [axis], shape) for v in (mean, deviation, scale, offset)]
    centred = b.binary("subtract", operand, spread[0])
    scaled = b.binary("multiply", b.binary("divide", centred, spread[1]), spread[2])
    return [b.binary("add", scaled, spread[3])]


@converter("torch_index_select")
def _torch_index_select(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    operand, indices = at.operands(operation)
    if integers_of(operation.attributes.get("batch_dims", 0))[0] != 0:
        raise ValueError("batch dimensions are not supported")
    return [at.builder.take(operand, indices, integers_of(operation.attributes["dim"])[0])]
