"""Control flow: branches and loops, but for what needs none when it runs: branches that are
next to nothing become selects, loops of few known trips are written out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from xdsl.ir import Block, Operation, SSAValue

from headrace.base.symbols import product
from headrace.importers.hlo.helpers import flatten
from headrace.importers.hlo.registry import Value, converter
from headrace.importers.hlo.tree import HloOperation, HloRegion
from headrace.ir.types import dtype_of, exprs_attr, shape_of
from headrace.tensor import dialect as t
from headrace.tensor.build import to_numpy
from headrace.tensor.control import make_while, region_of, trip_count
from headrace.tensor.interp import attribute_values, evaluate
from headrace.tensor.loops import WRITTEN_TRIPS, branch, discard, move

if TYPE_CHECKING:
    from headrace.importers.hlo.convert import FunctionConverter

_MOST_KNOWN = 64
"""The most elements of a value that is followed when compiling."""


# -- branches --------------------------------------------------------------------------


def _branch(at: FunctionConverter, region: HloRegion) -> list[SSAValue]:
    """A region without arguments, computed where the builder stands."""
    outer = dict(at.values)
    found = [leaf for value in at.region_values(region) for leaf in flatten(value)]
    at.values = outer
    return found


@converter("if")
def _if(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    """A branch; where both sides are next to nothing, both are computed and one is taken."""
    condition = at.operand(operation, 0)
    known = known_value(at, condition)
    if known is not None:
        return _branch(at, operation.regions[0 if bool(known.reshape(-1)[0]) else 1])
    then, otherwise = operation.regions
    sides = (lambda _: _branch(at, then), lambda _: _branch(at, otherwise))
    return branch(at.builder, condition, *sides)


@converter("case")
def _case(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    """An index that names no branch takes the last; others are tried from the first."""
    index = at.operand(operation, 0)
    known = known_value(at, index)
    last = len(operation.regions) - 1
    if known is not None:
        number = int(known.reshape(-1)[0])
        return _branch(at, operation.regions[number if 0 <= number <= last else last])

    def from_branch(number: int) -> list[SSAValue]:
        if number == last:
            return _branch(at, operation.regions[last])
        here = at.builder.compare("EQ", index, at.builder.scalar(number, dtype_of(index)))
        taken = operation.regions[number]
        sides = (lambda _: _branch(at, taken), lambda _: from_branch(number + 1))
        return branch(at.builder, here, *sides)

    return from_branch(0)


# -- loops -----------------------------------------------------------------------------


@converter("while")
def _while(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    """A loop; one of few trips, known when compiling, is written out."""
    carried: list[Value] = [at.values[o] for o in operation.operands]
    written = _written_out(at, operation, carried)
    if written is not None:
        return written
    condition, body = operation.regions
    inputs = [leaf for value in carried for leaf in flatten(value)]
    types = [v.type for v in inputs]

    def fill(region: HloRegion) -> Callable[[Block], list[SSAValue]]:
        def into(block: Block) -> list[SSAValue]:
            leaves = iter(block.args)
            values = [_like(value, leaves) for value in carried]
            with at.builder.inside(block):
                return [leaf for v in _with(at, region, values) for leaf in flatten(v)]

        return into

    loop = make_while(inputs, region_of(types, fill(condition)), region_of(types, fill(body)))
    trips = trip_count(loop)
    if trips is not None:
        loop.trip_count = exprs_attr([trips])
    results = iter(at.builder.insert(loop).results)
    return [_like(value, results) for value in carried]


def _written_out(
    at: FunctionConverter, operation: HloOperation, carried: Sequence[Value]
) -> list[Value] | None:
    """The values after the last trip, the operations of all trips in line; None where the
    trips are many, or not known."""
    condition, body = operation.regions
    values = list(carried)
    draft = Block()
    try:
        with at.builder.inside(draft):
            for _ in range(WRITTEN_TRIPS + 1):
                (goes_on,) = _with(at, condition, values)
                known = known_value(at, goes_on)
                if known is None:
                    return None
                if not bool(known.reshape(-1)[0]):
                    break
                values = _with(at, body, values)
            else:
                return None
        move(draft, at.builder)
        return values
    finally:
        for op in draft.ops:
            for result in op.results:
                at.known.pop(result, None)
        discard(draft)


def _with(at: FunctionConverter, region: HloRegion, values: Sequence[Value]) -> list[Value]:
    outer = dict(at.values)
    names = [name for name, _ in region.arguments]
    at.values = {**outer, **dict(zip(names, values, strict=True))}
    found = at.region_values(region)
    at.values = outer
    return found


def _like(value: Value, leaves: Iterator[SSAValue]) -> Value:
    """The next leaves in the shape of a value: tuples in legacy text nest."""
    if isinstance(value, tuple):
        return tuple(_like(element, leaves) for element in value)
    return next(leaves)


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
