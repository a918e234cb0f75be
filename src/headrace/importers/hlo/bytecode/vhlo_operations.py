"""The operations of VHLO: their properties in the order of the bytecode, and what they are
called in StableHLO.

VHLO is StableHLO at one version, with every attribute spelled out. What a text leaves out
is left out here too, so that both ways give the same tree.
"""

from __future__ import annotations

import re
from typing import Any

from headrace.importers.hlo.defaults import says_nothing

_PLAIN = """
abs_v1 add_v1 after_all_v1 and_v1 async_done_v1 async_start_v1 atan2_v1 bitcast_convert_v1
case_v1 cbrt_v1 ceil_v1 clamp_v1 complex_v1 convert_v1 cosine_v1 count_leading_zeros_v1
create_token_v1 divide_v1 dynamic_pad_v1 dynamic_reshape_v1 dynamic_update_slice_v1
exponential_minus_one_v1 exponential_v1 floor_v1 if_v1 imag_v1 is_finite_v1 log_plus_one_v1
log_v1 logistic_v1 maximum_v1 minimum_v1 multiply_v1 negate_v1 not_v1 optimization_barrier_v1
or_v1 partition_id_v1 popcnt_v1 power_v1 real_dynamic_slice_v1 real_v1 remainder_v1
replica_id_v1 reshape_v1 return_v1 round_nearest_afz_v1 round_nearest_even_v1 rsqrt_v1 select_v1
shift_left_v1 shift_right_arithmetic_v1 shift_right_logical_v1 sign_v1 sine_v1 sqrt_v1
subtract_v1 tan_v1 tanh_v1 tuple_v1 uniform_dequantize_v1 uniform_quantize_v1 while_v1 xor_v1
"""
"""Operations without properties."""

_WITH_ACCURACY = """
cbrt_v2 cosine_v2 exponential_minus_one_v2 exponential_v2 log_plus_one_v2 log_v2 logistic_v2
rsqrt_v2 sine_v2 sqrt_v2 tan_v2 tanh_v2
"""

_WITH_PROPERTIES = """
all_gather_v1: all_gather_dim channel_id replica_groups use_global_device_ids
all_gather_v2: all_gather_dim channel_id replica_groups use_global_device_ids
all_reduce_v1: channel_id replica_groups use_global_device_ids
all_reduce_v2: channel_id replica_groups use_global_device_ids
all_to_all_v1: channel_id concat_dimension replica_groups split_count split_dimension
all_to_all_v2: channel_id concat_dimension replica_groups split_count split_dimension
batch_norm_grad_v1: epsilon feature_index
batch_norm_inference_v1: epsilon feature_index
batch_norm_training_v1: epsilon feature_index
broadcast_in_dim_v1: broadcast_dimensions
broadcast_v1: broadcast_sizes
call_v1: callee
cholesky_v1: lower
collective_broadcast_v1: channel_id replica_groups
collective_broadcast_v2: channel_id has_dynamic_root replica_groups
collective_permute_v1: channel_id source_target_pairs
collective_reduce_v1: channel_id has_dynamic_root replica_groups use_global_device_ids
compare_v1: compare_type comparison_direction
composite_v1: composite_attributes decomposition name version
composite_v2: composite_attributes decomposition name version
concatenate_v1: dimension
constant_v1: value
convolution_v1: batch_group_count feature_group_count input_batch_dimension
    input_feature_dimension input_spatial_dimensions kernel_input_feature_dimension
    kernel_output_feature_dimension kernel_spatial_dimensions lhs_dilation
    output_batch_dimension output_feature_dimension output_spatial_dimensions padding
    precision_config rhs_dilation window_reversal window_strides
cross-replica-sum_v1: replica_groups
custom_call_v1: api_version backend_config call_target_name called_computations has_side_effect
    operand_layouts output_operand_aliases result_layouts
custom_call_v2: api_version backend_config call_target_name called_computations has_side_effect
    operand_layouts output_operand_aliases result_layouts result_tilings
dot_general_v1: lhs_batching_dimensions lhs_contracting_dimensions precision_config
    rhs_batching_dimensions rhs_contracting_dimensions
dot_general_v2: accumulation_type allow_imprecise_accumulation lhs_batching_dimensions
    lhs_component_count lhs_contracting_dimensions lhs_precision_type num_primitive_operations
    precision_config rhs_batching_dimensions rhs_component_count rhs_contracting_dimensions
    rhs_precision_type
dot_v1: precision_config
dynamic_broadcast_in_dim_v1: broadcast_dimensions known_expanding_dimensions
    known_nonexpanding_dimensions
dynamic_conv_v1: batch_group_count feature_group_count input_batch_dimension
    input_feature_dimension input_spatial_dimensions kernel_input_feature_dimension
    kernel_output_feature_dimension kernel_spatial_dimensions lhs_dilation
    output_batch_dimension output_feature_dimension output_spatial_dimensions padding
    precision_config rhs_dilation window_reversal window_strides
dynamic_conv_v2: batch_group_count feature_group_count input_batch_dimension
    input_feature_dimension input_spatial_dimensions kernel_input_feature_dimension
    kernel_output_feature_dimension kernel_spatial_dimensions lhs_dilation
    output_batch_dimension output_feature_dimension output_spatial_dimensions precision_config
    rhs_dilation window_reversal window_strides
dynamic_gather_v1: collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims
    start_index_map
dynamic_gather_v2: collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims
    operand_batching_dims start_index_map start_indices_batching_dims
dynamic_iota_v1: iota_dimension
dynamic_slice_v1: slice_sizes
einsum_v1: einsum_config
fft_v1: fft_length fft_type
func_v1: arg_attrs function_type res_attrs sym_name sym_visibility
gather_v1: collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims slice_sizes
    start_index_map
gather_v2: collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims
    operand_batching_dims slice_sizes start_index_map start_indices_batching_dims
get_dimension_size_v1: dimension
get_tuple_element_v1: index
infeed_v1: infeed_config layout
iota_v1: iota_dimension
map_v1: dimensions
outfeed_v1: outfeed_config
pad_v1: edge_padding_high edge_padding_low interior_padding
recv_v1: channel_id channel_type is_host_transfer
recv_v2: channel_id channel_type is_host_transfer source_target_pairs
reduce_precision_v1: exponent_bits mantissa_bits
reduce_scatter_v1: channel_id replica_groups scatter_dimension use_global_device_ids
reduce_v1: dimensions
reduce_window_v1: base_dilations padding window_dilations window_dimensions window_strides
reverse_v1: dimensions
rng_bit_generator_v1: rng_algorithm
rng_v1: rng_distribution
scatter_v1: index_vector_dim indices_are_sorted inserted_window_dims
    scatter_dims_to_operand_dims unique_indices update_window_dims
scatter_v2: index_vector_dim indices_are_sorted input_batching_dims inserted_window_dims
    scatter_dims_to_operand_dims scatter_indices_batching_dims unique_indices update_window_dims
select_and_scatter_v1: padding window_dimensions window_strides
send_v1: channel_id channel_type is_host_transfer
send_v2: channel_id channel_type is_host_transfer source_target_pairs
set_dimension_size_v1: dimension
slice_v1: limit_indices start_indices strides
sort_v1: dimension is_stable
torch_index_select_v1: batch_dims dim
transpose_v1: permutation
triangular_solve_v1: left_side lower transpose_a unit_diagonal
unary_einsum_v1: einsum_config
"""
"""Others, each with its properties in the order of the alphabet, as they are stored."""


def _table() -> dict[str, tuple[str, ...]]:
    found = {f"vhlo.{name}": () for name in _PLAIN.split()}
    table: dict[str, tuple[str, ...]] = dict(found)
    table.update({f"vhlo.{name}": ("result_accuracy",) for name in _WITH_ACCURACY.split()})
    for row in re.split(r"\n(?! )", _WITH_PROPERTIES.strip()):
        name, _, properties = row.partition(":")
        table[f"vhlo.{name}"] = tuple(properties.split())
    return table


PROPERTIES = _table()
"""Properties of each operation of VHLO, in the order in which they are stored."""

_VERSION = re.compile(r"_v\d+$")
_OTHER_NAMES = {"call": "func.call"}

_ARRAYS = ("value", "padding", "replica_groups", "source_target_pairs")
"""Attributes that stay arrays; others of integers and booleans are lists."""

_GROUPS: dict[str, tuple[str, ...]] = {
    "convolution": (
        "input_batch_dimension", "input_feature_dimension", "input_spatial_dimensions",
        "kernel_input_feature_dimension", "kernel_output_feature_dimension",
        "kernel_spatial_dimensions", "output_batch_dimension", "output_feature_dimension",
        "output_spatial_dimensions",
    ),
    "dot_general": (
        "lhs_batching_dimensions", "rhs_batching_dimensions", "lhs_contracting_dimensions",
        "rhs_contracting_dimensions",
    ),
    "gather": (
        "offset_dims", "collapsed_slice_dims", "operand_batching_dims",
        "start_indices_batching_dims", "start_index_map", "index_vector_dim",
    ),
    "scatter": (
        "update_window_dims", "inserted_window_dims", "input_batching_dims",
        "scatter_indices_batching_dims", "scatter_dims_to_operand_dims", "index_vector_dim",
    ),
    "algorithm": (
        "lhs_precision_type", "rhs_precision_type", "accumulation_type", "lhs_component_count",
        "rhs_component_count", "num_primitive_operations", "allow_imprecise_accumulation",
    ),
}  # fmt: skip
_GROUPED = {
    "convolution": ("dimension_numbers", "convolution"),
    "dynamic_conv": ("dimension_numbers", "convolution"),
    "dot_general": ("dot_dimension_numbers", "dot_general"),
    "gather": ("dimension_numbers", "gather"),
    "dynamic_gather": ("dimension_numbers", "gather"),
    "scatter": ("scatter_dimension_numbers", "scatter"),
}
"""The attribute that holds several properties of an operation, and which."""
_RENAMED = {"scatter_dims_to_operand_dims": "scattered_dims_to_operand_dims"}


def as_stablehlo(name: str, attributes: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name and the attributes of a VHLO operation in StableHLO.

    Args:
        name: `vhlo.add_v1`.
        attributes: its properties, and what else it holds.
    """
    bare = _VERSION.sub("", name.removeprefix("vhlo."))
    known = PROPERTIES[name]
    found = {key: _listed(bare, key, value) for key, value in attributes.items()}
    if "channel_id" in known:
        handle, kind = found.pop("channel_id", 0), found.pop("channel_type", None)
        if handle or kind is not None:
            found["channel_handle"] = {"handle": handle, "type": kind or 0}
    if bare == "dynamic_conv":
        found.pop("padding", None)  # an operand says it
    if "lhs_precision_type" in known:
        group = {key: found.pop(key) for key in _GROUPS["algorithm"] if key in found}
        if str(group.get("lhs_precision_type")) != "none":
            found["algorithm"] = group
    if bare in _GROUPED:
        key, names = _GROUPED[bare]
        group = {_RENAMED.get(n, n): found.pop(n) for n in _GROUPS[names] if n in found}
        if names in ("gather", "scatter"):  # batching dimensions came with 1.1.0
            for n in _GROUPS[names]:
                group.setdefault(_RENAMED.get(n, n), [])
        found[key] = group
    if not found.get("operand_layouts") and not found.get("result_layouts"):
        found.pop("operand_layouts", None)
        found.pop("result_layouts", None)
    stays = {key: value for key, value in found.items() if not says_nothing(bare, key, value)}
    return _OTHER_NAMES.get(bare, f"stablehlo.{bare}"), stays


def _listed(operation: str, key: str, value: Any) -> Any:
    """An array of integers as the list that newer text has in its place."""
    import numpy as np

    if not isinstance(value, np.ndarray) or key in _ARRAYS or operation == "custom_call":
        return value
    return value.tolist()
