"""What kind of value each attribute has, whatever its operation: rules rely on it."""

from __future__ import annotations

from typing import Any

from headrace.importers.hlo.tree import HloOperation
from headrace.importers.hlo.verify.rules import need

_INTEGERS = """
all_gather_dim axis base_dilations batch_dims batch_group_count broadcast_dimensions
broadcast_sizes concat_dimension dim dimension dimensions edge_padding_high
edge_padding_low exponent_bits feature_group_count feature_index fft_length index
interior_padding iota_dimension k known_expanding_dimensions
known_nonexpanding_dimensions lhs_dilation limit_indices mantissa_bits padding permutation
rhs_dilation scatter_dimension slice_sizes source_target_pairs split_count
split_dimension start_indices strides version window_dilations window_dimensions
window_strides
"""
_BOOLEANS = """
has_dynamic_root has_side_effect indices_are_sorted is_host_transfer is_stable left_side
lower unique_indices unit_diagonal use_global_device_ids window_reversal
"""
_WORDS = """
call_target_name callee compare_type comparison_direction comparison_type decomposition
einsum_config fft_type name rng_algorithm rng_distribution transpose_a
"""
_KINDS: dict[str, str] = {
    **dict.fromkeys(_INTEGERS.split(), "integers"),
    **dict.fromkeys(_BOOLEANS.split(), "booleans"),
    **dict.fromkeys(_WORDS.split(), "word"),
}
_CONVOLUTION = tuple(
    f"{stem}_dimension{end}"
    for stem, end in (
        ("input_batch", ""), ("input_feature", ""), ("input_spatial", "s"),
        ("kernel_input_feature", ""), ("kernel_output_feature", ""), ("kernel_spatial", "s"),
        ("output_batch", ""), ("output_feature", ""), ("output_spatial", "s"),
    )
)  # fmt: skip
_NUMBERS: dict[str, tuple[str, ...]] = {
    "convolution": _CONVOLUTION,
    "dynamic_conv": _CONVOLUTION,
}
"""Keys that the dimension numbers of an operation must have."""
_DICTIONARIES = (
    "dimension_numbers", "dot_dimension_numbers", "scatter_dimension_numbers", "channel_handle",
)  # fmt: skip


def check_kinds(operation: HloOperation) -> None:
    """Refuses attributes of other kinds than the specification gives them."""
    dialect, _, bare = operation.name.partition(".")
    if dialect not in ("stablehlo", "chlo") or bare == "custom_call":
        return
    for name, value in operation.attributes.items():
        kind = _KINDS.get(name)
        if kind == "integers":
            need(_holds(value, "iu", int), f"{name} holds other things than integers")
        elif kind == "booleans":
            need(_holds(value, "b", bool), f"{name} holds other things than booleans")
        elif kind == "word":
            need(isinstance(value, str), f"{name} is no word")
        elif name in _DICTIONARIES:
            _check_numbers(name, value, _NUMBERS.get(bare, ()))


def _check_numbers(name: str, value: Any, keys: tuple[str, ...]) -> None:
    need(isinstance(value, dict), f"{name} names no dimensions")
    for key in keys:
        need(key in value, f"{name} has no {key}")
        single = not key.endswith("s")
        need(not single or isinstance(value[key], int), f"{key} is no integer")
    for key, numbers in value.items():
        need(_holds(numbers, "iu", int), f"{key} holds other things than integers")


def _holds(value: Any, kinds: str, kind: type) -> bool:
    """Whether a value is one or many of a kind, in any spelling."""
    if isinstance(value, list):
        return all(_holds(element, kinds, kind) for element in value)
    dtype = getattr(value, "dtype", None)
    if dtype is not None and hasattr(dtype, "kind"):
        return dtype.kind in kinds
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
