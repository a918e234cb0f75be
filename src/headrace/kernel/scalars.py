"""Elementwise operations on numpy arrays: the tensor stage's own meanings, by name."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.base.dtypes import DType
from headrace.tensor.meaning import conversion, elementwise
from headrace.tensor.meaning.arguments import Arguments, Meaning

MEANINGS: dict[str, Meaning] = {**elementwise.MEANINGS, **conversion.MEANINGS}
"""Operation name -> meaning; `Compute.operation` is one of these."""


def apply(operation: str, operands: list[Any], dtype: DType, attribute: str = "") -> Any:
    """Applies an elementwise operation to numpy arrays that broadcast together.

    Args:
        operation: the name of a tensor-stage elementwise operation, without `tensor.`.
        operands: arrays of the operand element types.
        dtype: the result's element type.
        attribute: compare's direction.

    Raises:
        KeyError: there is no such operation.
    """
    attributes = {"direction": attribute} if attribute else {}
    with np.errstate(all="ignore"):
        return MEANINGS[operation](Arguments(tuple(operands), attributes, dtype, ()))
