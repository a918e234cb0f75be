"""Which function converts which operation: filled by the modules that hold them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from xdsl.ir import SSAValue

from headrace.importers.hlo.tree import HloOperation

if TYPE_CHECKING:
    from headrace.importers.hlo.convert import FunctionConverter

Value: TypeAlias = Union[SSAValue, tuple["Value", ...]]
Converter: TypeAlias = Callable[["FunctionConverter", HloOperation], Sequence[Value]]

CONVERTERS: dict[str, Converter] = {}

ALIASES = {
    "max": "maximum", "min": "minimum", "sub": "subtract", "mul": "multiply",
    "div": "divide", "exp": "exponential", "neg": "negate", "cos": "cosine", "sin": "sine",
    "conv": "convolution", "expm1": "exponential_minus_one", "log1p": "log_plus_one",
    "addf": "add", "addi": "add", "subf": "subtract", "subi": "subtract", "mulf": "multiply",
    "muli": "multiply", "divf": "divide", "divis": "divide", "remis": "remainder",
    "tuple_element": "get_tuple_element", "custom_tuple": "tuple", "unfoldable_constant": "constant",
    "do_not_optimize": "identity", "optimization_barrier": "identity",
    "probe": "identity", "indirect": "identity", "dynamic_shape_constant": "constant", "remf": "remainder",
}  # fmt: skip
"""Names of older ages (xla_hlo 2019, std) under their StableHLO name."""


class Unsupported(ValueError):
    """An operation is well formed, but nothing here can do it; the text says what."""


def operation_key(name: str) -> str:
    """`xla_hlo.max` -> `maximum`: the name that `CONVERTERS` knows."""
    bare = name.rpartition(".")[2].replace("-", "_")
    return ALIASES.get(bare, bare)


def converter(*names: str) -> Callable[[Converter], Converter]:
    """Registers a converter under StableHLO names."""

    def register(function: Converter) -> Converter:
        for name in names:
            CONVERTERS[name] = function
        return function

    return register


def integers_of(value: Any) -> list[int]:
    """An integer attribute of any spelling (array, dense, list, int) as a list."""
    import numpy as np

    return [int(v) for v in np.asarray(value).reshape(-1)]
