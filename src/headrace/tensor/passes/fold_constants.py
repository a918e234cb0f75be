"""Computes before the model runs what depends on constants and parameters only.

Of small constants (at most 1,024 elements) the result is a constant, computed now. Of
parameters it is a parameter again whose source is the expression; nothing is read here.
Splats, iotas and broadcasts stay operations, and no result is stored that is more than
64 KiB larger than the sources it comes from (a dequantised weight stays packed).
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Block, Operation, SSAValue

from headrace.base.parameters import ExpressionSource
from headrace.ir.locations import fused_location
from headrace.ir.model import NAME, Model
from headrace.ir.passes import Pass
from headrace.ir.types import dtype_of, shape_of
from headrace.tensor import dialect as d
from headrace.tensor.interp import evaluate_operation
from headrace.tensor.passes.eliminate_dead_code import drop_unread_parameters
from headrace.tensor.rewrite import (
    RewriteBuilder,
    constant_array,
    erase_if_dead,
    functions,
    is_pure,
    replace,
)
from headrace.tensor.sources import expression_of, grows_too_much

CONSTANT_ELEMENTS = 1024
"""The largest `tensor.constant`."""

_STAY = (d.ConstantOp, d.ParameterOp, d.BroadcastInDimOp, d.IotaOp, d.CopyOp, d.WhileOp, d.IfOp)


@dataclass(frozen=True)
class FoldConstants(Pass):
    """One walk: producers are folded before their users look at them."""

    def run(self, model: Model) -> None:
        before = set(model.parameters)
        for _function, block in functions(model):
            for operation in list(block.ops):
                if isinstance(operation, _STAY) or not is_pure(operation):
                    continue
                _ = _fold_to_constants(operation) or fold_to_parameter(operation, model)
            for operation in reversed(list(block.ops)):
                erase_if_dead(operation, lambda _: None)
        if set(model.parameters) != before:
            drop_unread_parameters(model)


def _is_small(operation: Operation) -> bool:
    for result in operation.results:
        count = 1
        for size in shape_of(result):
            if not size.is_constant:
                return False
            count *= size.value
        if count > CONSTANT_ELEMENTS:
            return False
    return True


def _fold_to_constants(operation: Operation) -> bool:
    if not _is_small(operation):
        return False
    arrays = [constant_array(v) for v in operation.operands]
    if any(a is None for a in arrays):
        return False
    try:
        found = evaluate_operation(operation, arrays, {}, _no_parameters)
    except KeyError:
        return False  # a size expression names a dimension
    builder = RewriteBuilder(operation)
    made = [builder.constant(array) for array in found]
    # What is made of one constant alone keeps what the user calls that.
    names = [
        v.owner.attributes.get(NAME)
        for v in operation.operands
        if not isinstance(v.owner, Block)
    ]
    if len(names) == len(made) == 1 and names[0] is not None:
        owner = made[0].owner
        assert isinstance(owner, Operation)
        owner.attributes[NAME] = names[0]
    replace(operation, made)
    return True


def _no_parameters(name: str) -> object:
    raise KeyError(name)


def fold_to_parameter(
    operation: Operation, model: Model, *, may_grow: bool = False
) -> SSAValue | None:
    """Puts a parameter in place of an operation on known values; None where it cannot.

    `may_grow`: even where more is stored then.
    """
    if not operation.operands:
        return None
    source = expression_of(operation, model)
    if source is None or (grows_too_much(source) and not may_grow):
        return None
    builder = RewriteBuilder(operation)
    builder.location = fused_location([operation])
    name = _add_parameter(model, operation, source)
    made = builder.parameter(name, dtype_of(operation.results[0]), source.shape)
    replace(operation, [made])
    return made


def _add_parameter(model: Model, operation: Operation, source: ExpressionSource) -> str:
    """Enters a source under a readable name: the first parameter's and the operation's."""
    base = next(
        (
            v.owner.parameter.root_reference.data
            for v in operation.operands
            if isinstance(v.owner, d.ParameterOp)
        ),
        "constant",
    )
    stem = f"{base}.{source.operation}"
    name, number = stem, 2
    while name in model.parameters:
        if model.parameters[name] == source:
            return name
        name, number = f"{stem}.{number}", number + 1
    model.parameters[name] = source
    return name
