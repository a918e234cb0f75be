"""Gives elementwise operations the one number that a large constant holds everywhere.

A constant of more than 1,024 equal elements enters as a parameter: it may stand for a
weight, which products stream. Beside other elements it would only be loaded, so there it
is a rank-0 constant and a `broadcast_in_dim`, and is stored nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.base.parameters import ArraySource, ExpressionSource
from headrace.ir.model import Model
from headrace.ir.passes import Pass
from headrace.tensor import dialect as d
from headrace.tensor.rewrite import RewriteBuilder, functions
from headrace.tensor.sources import source_of

_USERS = (d.ElementwiseOp, d.ReshapeOp, d.BroadcastInDimOp)
"""Elementwise operations, and what spreads zero points and scales out before them."""


@dataclass(frozen=True)
class InlineSplats(Pass):
    """One walk over the parameters."""

    def run(self, model: Model) -> None:
        for _function, block in functions(model):
            for operation in list(block.ops):
                if isinstance(operation, d.ParameterOp):
                    _inline(operation, model)


def _inline(operation: d.ParameterOp, model: Model) -> None:
    number = _splat(operation, model)
    uses = [u for u in operation.result.uses if isinstance(u.operation, _USERS)]
    if number is None or not uses:
        return
    builder = RewriteBuilder(operation).standing_for(operation)
    source = model.parameters[operation.parameter.root_reference.data]
    value = builder.splat(number, source.dtype, source.shape)
    for use in uses:
        use.operation.operands[use.index] = value


def _splat(operation: d.ParameterOp, model: Model) -> Any:
    """The numpy scalar that all elements are, by bits; None where they differ."""
    source = source_of(operation.result, model)
    if isinstance(source, ArraySource):
        return _only_element(source.array)
    if not isinstance(source, ExpressionSource) or source.operation != "broadcast_in_dim":
        return None
    (scalar,) = source.operands
    return scalar.array[()] if isinstance(scalar, ArraySource) and not scalar.shape else None


def _only_element(array: Any) -> Any:
    elements = array.reshape(-1)
    if not elements.size:
        return None
    rows = elements.view(np.uint8).reshape(elements.size, -1)
    # Weights differ at once: few are looked at whole.
    alike = (rows[-1] == rows[0]).all() and (rows == rows[0]).all()
    return elements[0] if alike else None
