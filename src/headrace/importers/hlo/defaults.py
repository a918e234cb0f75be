"""Attributes that say nothing: text spells them and artifacts leave them out, or the other
way round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.importers.hlo.tree import HloModule, HloOperation, HloRegion

_WITHOUT_MEANING = ("api_version", "result_accuracy")
"""Accuracy is what the target gives: never less than the default asks for."""

_DEFAULTS: dict[str, Any] = {
    "backend_config": "", "called_computations": [], "compare_type": "NOTYPE",
    "composite_attributes": {}, "has_dynamic_root": False, "has_side_effect": False,
    "indices_are_sorted": False, "infeed_config": "", "is_host_transfer": False,
    "is_stable": False, "known_expanding_dimensions": [], "known_nonexpanding_dimensions": [],
    "layout": [], "outfeed_config": "", "output_operand_aliases": [], "result_tilings": [],
    "unique_indices": False, "use_global_device_ids": False,
}  # fmt: skip
_DEFAULTS_OF: dict[tuple[str, str], Any] = {
    ("cholesky", "lower"): False,
    ("composite", "version"): 0,
    ("custom_call", "backend_config"): {},
    ("recv", "source_target_pairs"): [],
    ("send", "source_target_pairs"): [],
    ("sort", "dimension"): -1,
}
"""Of one operation."""
_DEFAULT_ELEMENTS: dict[str, Any] = {
    "base_dilations": 1, "lhs_dilation": 1, "padding": 0, "precision_config": "DEFAULT",
    "rhs_dilation": 1, "window_dilations": 1, "window_reversal": False, "window_strides": 1,
}  # fmt: skip
"""Of lists and arrays that mean nothing where each element is this one."""


def says_nothing(operation: str, key: str, value: Any) -> bool:
    """Whether an attribute has the value that goes without saying.

    Args:
        operation: without its dialect.
        key: of the attribute.
        value: of it, as in a tree.
    """
    import numpy as np

    own = (operation, key)
    if key not in _DEFAULT_ELEMENTS and key not in _DEFAULTS and own not in _DEFAULTS_OF:
        return value is None  # Weights are attributes too: none is made a list.
    if isinstance(value, np.ndarray):
        value = value.reshape(-1).tolist()
    if key in _DEFAULT_ELEMENTS and isinstance(value, list):
        return all(element == _DEFAULT_ELEMENTS[key] for element in value)
    known = (_DEFAULTS.get(key), _DEFAULTS_OF.get(own))
    return any(type(value) is type(default) and value == default for default in known)


def drop_defaults(module: HloModule) -> None:
    """Takes attributes without meaning out of a verified module, in place."""
    for function in module.functions:
        for operation in _operations(function.body):
            bare = operation.name.rpartition(".")[2]
            for name, value in list(operation.attributes.items()):
                if name in _WITHOUT_MEANING or says_nothing(bare, name, value):
                    del operation.attributes[name]


def _operations(region: HloRegion) -> Iterator[HloOperation]:
    for operation in region.operations:
        yield operation
        for inner in operation.regions:
            yield from _operations(inner)
