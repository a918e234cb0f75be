"""Control flow that needs none when it runs: branches become selects, loops whose trips are
known when compiling are written out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from xdsl.ir import Operation, SSAValue

from headrace.base.symbols import product
from headrace.importers.hlo.helpers import flatten
from headrace.importers.hlo.registry import Unsupported, Value, converter
from headrace.importers.hlo.tree import HloOperation, HloRegion
from headrace.ir.types import dtype_of, shape_of
from headrace.tensor import dialect as t
from headrace.tensor.build import TensorBuilder, to_numpy
from headrace.tensor.interp import attribute_values, evaluate

if TYPE_CHECKING:
    from headrace.importers.hlo.convert import FunctionConverter

MOST_TRIPS = 64
"""Loops of more trips are not written out."""
_MOST_KNOWN = 64
"""The most elements of a value that is followed when compiling."""


# -- branches --------------------------------------------------------------------------


def _branch(at: FunctionConverter, region: HloRegion) -> list[SSAValue]:
    """A region without arguments, computed where it stands."""
    outer = dict(at.values)
    found = [leaf for value in at.region_values(region) for leaf in flatten(value)]
    at.values = outer
    return found


def _chosen(
    builder: TensorBuilder, condition: SSAValue, yes: Sequence[SSAValue], no: Sequence[SSAValue]
) -> list[SSAValue]:
    found: list[SSAValue] = []
    for a, b in zip(yes, no, strict=True):
        predicate = builder.broadcast_in_dim(condition, (), shape_of(a))
        found.append(builder.select(predicate, a, b))
    return found


@converter("if")
def _if(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    """Both branches are pure: both are computed, one is taken."""
    condition = at.operand(operation, 0)
    known = known_value(at, condition)
    if known is not None:
        return _branch(at, operation.regions[0 if bool(known.reshape(-1)[0]) else 1])
    yes, no = (_branch(at, region) for region in operation.regions)
    return _chosen(at.builder, condition, yes, no)


@converter("case")
def _case(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    """An index that names no branch takes the last."""
    index = at.operand(operation, 0)
    known = known_value(at, index)
    if known is not None:
        number = int(known.reshape(-1)[0])
        last = len(operation.regions) - 1
        return _branch(at, operation.regions[number if 0 <= number <= last else last])
    branches = [_branch(at, region) for region in operation.regions]
    result = branches[-1]
    for number in reversed(range(len(branches) - 1)):
        here = at.builder.compare("EQ", index, at.builder.scalar(number, dtype_of(index)))
        result = _chosen(at.builder, here, branches[number], result)
    return result


# -- loops -----------------------------------------------------------------------------


@converter("while")
def _while(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    """Written out trip by trip for as long as the condition is known when compiling."""
    condition, body = operation.regions
    carried: list[Value] = [at.values[o] for o in operation.operands]
    outer = dict(at.values)
    for _ in range(MOST_TRIPS + 1):
        (goes_on,) = _with(at, condition, carried, outer)
        known = known_value(at, goes_on)
        if known is None:
            raise Unsupported("data decides how often the loop runs")
        if not bool(known.reshape(-1)[0]):
            at.values = outer
            return carried
        carried = _with(at, body, carried, outer)
    raise Unsupported(f"the loop runs more than {MOST_TRIPS} times")


def _with(
    at: FunctionConverter, region: HloRegion, values: Sequence[Value], outer: dict[str, Value]
) -> list[Value]:
    names = [name for name, _ in region.arguments]
    at.values = {**outer, **dict(zip(names, values, strict=True))}
    return at.region_values(region)


# -- what is known when compiling ------------------------------------------------------


def known_value(at: FunctionConverter, value: Value) -> Any | None:
    """The small array that a value certainly is, None where data decides."""
    if not isinstance(value, SSAValue) or not isinstance(value.owner, Operation):
        return None
    if value not in at.known:
        at.known[value] = _evaluated(at, value, value.owner)
    return at.known[value]


def _evaluated(at: FunctionConverter, value: SSAValue, owner: Operation) -> Any | None:
    shape = shape_of(value)
    count = product(shape)
    small = count.is_constant and count.value <= _MOST_KNOWN
    if not small or isinstance(owner, (t.ParameterOp, t.DimensionOp)) or owner.regions:
        return None
    arrays = [known_value(at, operand) for operand in owner.operands]
    if any(array is None for array in arrays):
        return None
    name = owner.name.removeprefix("tensor.")
    if isinstance(owner, t.ConstantOp):
        return to_numpy(owner.value)
    sizes = tuple(s.value for s in shape)
    return evaluate(name, arrays, dtype_of(value), sizes, attribute_values(owner))
