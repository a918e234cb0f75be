"""How many operands, results and regions an operation has, of which elements, and which
attributes it must have: a table.

Kinds of elements are letters: `p` booleans, `s` signed and `u` unsigned integers, `f` floats,
`c` complex numbers, `q` quantised. Each column of the specification's operand table is one
string; `*` behind the last says that it repeats, `.` allows anything.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.importers.hlo.tree import HloOperation, HloTensorType, HloType
from headrace.importers.hlo.verify.rules import Refused, is_unranked, need


@dataclass(frozen=True)
class Signature:
    """One row.

    Attributes:
        operands: kinds of elements of each operand.
        results: how many; None for any number.
        regions: how many; None for any number.
        attributes: that must be there.
    """

    operands: tuple[str, ...]
    results: int | None = 1
    regions: int | None = 0
    attributes: tuple[str, ...] = ()


def _row(
    operands: str, results: int | None = 1, attributes: str = "", regions: int | None = 0
) -> Signature:
    return Signature(tuple(operands.split()), results, regions, tuple(attributes.split()))


_ANY = "psufcq"
_NUMBERS = "sufcq"
_UNARY = {
    "abs": "sfcq", "cbrt": "fcq", "ceil": "fq", "convert": _ANY, "cosine": "fcq",
    "count_leading_zeros": "su", "exponential": "fcq", "exponential_minus_one": "fcq",
    "floor": "fq", "imag": "fc", "is_finite": "fq", "log": "fcq", "log_plus_one": "fcq",
    "logistic": "fcq", "negate": _NUMBERS, "not": "psu", "popcnt": "su", "real": "fc",
    "reduce_precision": "fq", "round_nearest_afz": "fq", "round_nearest_even": "fq",
    "rsqrt": "fcq", "sign": "sfcq", "sine": "fcq", "sqrt": "fcq", "tan": "fcq", "tanh": "fcq",
}  # fmt: skip
_BINARY = {
    "add": _ANY, "and": "psu", "atan2": "fcq", "complex": "f", "divide": _NUMBERS,
    "maximum": _ANY, "minimum": _ANY, "multiply": _ANY, "or": "psu", "power": _NUMBERS,
    "remainder": _NUMBERS, "shift_left": "su", "shift_right_arithmetic": "su",
    "shift_right_logical": "su", "subtract": _NUMBERS, "xor": "psu",
}  # fmt: skip

SIGNATURES: dict[str, Signature] = {
    **{name: _row(kinds) for name, kinds in _UNARY.items()},
    **{name: _row(f"{kinds} {kinds}") for name, kinds in _BINARY.items()},
    "after_all": _row(".*"),
    "all_gather": _row(".*", None, "all_gather_dim replica_groups"),
    "all_reduce": _row(".*", None, "replica_groups", 1),
    "all_to_all": _row(
        ".*", None, "split_dimension concat_dimension split_count replica_groups"
    ),
    "batch_norm_grad": _row("fq fq fq fq fq", 3, "epsilon feature_index"),
    "batch_norm_inference": _row("fq fq fq fq fq", 1, "epsilon feature_index"),
    "batch_norm_training": _row("fq fq fq", 3, "epsilon feature_index"),
    "bitcast_convert": _row("."),
    "broadcast": _row(".", 1, "broadcast_sizes"),
    "broadcast_in_dim": _row(".", 1, "broadcast_dimensions"),
    "case": _row("s", None, "", None),
    "cholesky": _row("fcq"),
    "clamp": _row("psufcq psufcq psufcq"),
    "collective_broadcast": _row(".*", None, "replica_groups"),
    "collective_permute": _row(".*", None, "source_target_pairs"),
    "compare": _row(". .", 1, "comparison_direction"),
    "composite": _row(".*", None, "name decomposition", None),
    "concatenate": _row(".*", 1, "dimension"),
    "constant": _row("", 1, "value"),
    "convolution": _row(". .", 1, "dimension_numbers feature_group_count batch_group_count"),
    "create_token": _row(""),
    "cross-replica-sum": _row(".", 1, "replica_groups"),
    "custom_call": _row(".*", None, "call_target_name", None),
    "dot": _row(". ."),
    "dot_general": _row(". .", 1, "dot_dimension_numbers"),
    "dynamic_broadcast_in_dim": _row(". su", 1, "broadcast_dimensions"),
    "dynamic_conv": _row(
        ". . su", 1, "dimension_numbers feature_group_count batch_group_count"
    ),
    "dynamic_gather": _row(". su su", 1, "dimension_numbers"),
    "dynamic_iota": _row("su", 1, "iota_dimension"),
    "dynamic_pad": _row(". . su su su"),
    "dynamic_reshape": _row(". su"),
    "dynamic_slice": _row(". su*", 1, "slice_sizes"),
    "dynamic_update_slice": _row(". . su*"),
    "fft": _row("fc", 1, "fft_type fft_length"),
    "gather": _row(". su", 1, "dimension_numbers slice_sizes"),
    "get_dimension_size": _row(".", 1, "dimension"),
    "get_tuple_element": _row(".", 1, "index"),
    "if": _row("p", None, "", 2),
    "infeed": _row(".", None),
    "iota": _row("", 1, "iota_dimension"),
    "map": _row(".*", 1, "dimensions", 1),
    "optimization_barrier": _row(".*", None),
    "outfeed": _row(".*", 1),
    "pad": _row(". .", 1, "edge_padding_low edge_padding_high interior_padding"),
    "partition_id": _row(""),
    "real_dynamic_slice": _row(". su su su"),
    "recv": _row(".", None, "channel_handle"),
    "reduce": _row(".*", None, "dimensions", 1),
    "reduce_scatter": _row(".", 1, "scatter_dimension replica_groups", 1),
    "reduce_window": _row(".*", None, "window_dimensions", 1),
    "replica_id": _row(""),
    "reshape": _row("."),
    "reverse": _row(".", 1, "dimensions"),
    "rng": _row("psf psf su", 1, "rng_distribution"),
    "rng_bit_generator": _row("suf", 2, "rng_algorithm"),
    "scatter": _row(".*", None, "scatter_dimension_numbers", 1),
    "select": _row("p . ."),
    "select_and_scatter": _row(". . .", 1, "", 2),
    "send": _row(".*", 1, "channel_handle"),
    "set_dimension_size": _row(". s", 1, "dimension"),
    "slice": _row(".", 1, "start_indices limit_indices strides"),
    "sort": _row(".*", None, "", 1),
    "transpose": _row(".", 1, "permutation"),
    "triangular_solve": _row("fc fc", 1, "left_side lower unit_diagonal transpose_a"),
    "tuple": _row(".*"),
    "uniform_dequantize": _row("q"),
    "uniform_quantize": _row("fq"),
    "while": _row(".*", None, "", 2),
}
"""StableHLO's operations."""


def kind_letter(kind: HloTensorType) -> str:
    if kind.grid:
        return "q"
    letters = {"bool": "p", "signed": "s", "unsigned": "u", "float": "f", "complex": "c"}
    return letters[kind.dtype.kind]


_WORDS = {"p": "booleans", "s": "signed integers", "u": "unsigned integers", "f": "floats",
          "c": "complex numbers", "q": "quantised numbers"}  # fmt: skip


def check_elements(kind: HloType, letters: str, what: str) -> None:
    """Refuses a type whose elements are none of the kinds."""
    if letters == "." or is_unranked(kind):
        return
    if not isinstance(kind, HloTensorType):
        raise Refused(f"{what} is a {kind}, not a tensor")
    allowed = ", ".join(_WORDS[letter] for letter in letters)
    need(kind_letter(kind) in letters, f"{what} is a {kind}, and must hold {allowed}")


def check_signature(operation: HloOperation) -> None:
    """Refuses an operation of StableHLO that is none, or has another signature."""
    dialect, _, name = operation.name.partition(".")
    if dialect != "stablehlo" or name == "return":
        return
    row = SIGNATURES.get(name)
    if row is None:
        return
    wanted = row.operands
    have = len(operation.types)
    if wanted and wanted[-1].endswith("*"):
        least = len(wanted) - 1
        need(have >= least, f"{have} operands stand where at least {least} are needed")
        letters = [*wanted[:-1], *[wanted[-1][:-1]] * (have - least)]
    else:
        need(have == len(wanted), f"{have} operands stand where {len(wanted)} are needed")
        letters = list(wanted)
    for n, (kind, letter) in enumerate(zip(operation.types, letters, strict=True)):
        check_elements(kind, letter, f"operand {n}")
    results, regions = len(operation.result_types), len(operation.regions)
    need(
        row.results is None or results == row.results,
        f"{results} results stand where {row.results} are needed",
    )
    need(
        row.regions is None or regions == row.regions,
        f"{regions} regions stand where {row.regions} are needed",
    )
    missing = [a for a in row.attributes if a not in operation.attributes]
    need(not missing, f"the attribute '{missing[0] if missing else ''}' is missing")
