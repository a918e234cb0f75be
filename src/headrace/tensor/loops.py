"""Loops that count, and branches: how importers build `tensor.while` and `tensor.if`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.ir import Block, Region, SSAValue

from headrace.base.dtypes import I1, I64
from headrace.base.symbols import Expr, ExprLike
from headrace.ir.types import dtype_of, exprs_attr, shape_of, tensor_type
from headrace.tensor.build import TensorBuilder
from headrace.tensor.control import (
    Fill,
    ReturnOp,
    is_cheap,
    make_if,
    make_while,
    region_of,
    require_equal_types,
)

WRITTEN_TRIPS = 8
"""Loops of at most so many trips, known when compiling, are written out."""


@dataclass(frozen=True)
class Stepped:
    """What one trip of a loop makes.

    Attributes:
        carried: the next carried values, of the types of those before.
        kept: values that are stacked over the trips.
        goes_on: an i1 scalar, whether there may be a next trip; None for always.
    """

    carried: Sequence[SSAValue]
    kept: Sequence[SSAValue] = ()
    goes_on: SSAValue | None = None


@dataclass(frozen=True)
class Looped:
    """What a loop leaves behind.

    Attributes:
        carried: values after the last trip.
        kept: for each kept value [trips, ...]; zeros in rows that no trip made.
        count: how many trips there were, an i64 scalar.
    """

    carried: list[SSAValue]
    kept: list[SSAValue]
    count: SSAValue


Step: TypeAlias = Callable[[SSAValue, "list[SSAValue]"], Stepped]
"""Of the trip's number (an i64 scalar) and the carried values."""


def counted_loop(
    build: TensorBuilder,
    trips: ExprLike | SSAValue | None,
    carried: Sequence[SSAValue],
    step: Step,
    *,
    goes_on: SSAValue | None = None,
    reverse: bool | Sequence[bool] = False,
) -> Looped:
    """Runs `step` with 0, 1, ... for as long as it goes on.

    Args:
        trips: how often at most: a size, an i64 scalar, or None for no limit. Only with a
            size anything can be kept.
        goes_on: an i1 scalar, whether there is a first trip; None for yes.
        reverse: trip n fills row `trips - 1 - n` of what is kept; may be given for each.

    Raises:
        ValueError: `step` changes the type of a carried value, or keeps values where the
            number of trips has no bound.
    """
    bound = None if trips is None or isinstance(trips, SSAValue) else trips
    limit = build.dimension(bound, I64) if bound is not None else trips
    assert limit is None or isinstance(limit, SSAValue)
    body = Block(arg_types=[tensor_type(I64, ()), *(v.type for v in carried)])
    starts = [build.scalar(0, I64), *carried]
    with build.inside(body):
        index, *inner = body.args
        made = step(index, list(inner))
        if [v.type for v in made.carried] != [v.type for v in carried]:
            raise ValueError("a value that the loop carries changes its shape or type")
        if made.kept and bound is None:
            raise ValueError("what is kept of a loop needs a bound of its trips")
        returned = [build.binary("add", index, build.scalar(1, I64)), *made.carried]
        backwards = [reverse] * len(made.kept) if isinstance(reverse, bool) else reverse
        for value, back in zip(made.kept, backwards, strict=True):
            assert bound is not None and limit is not None
            kind = tensor_type(dtype_of(value), (bound, *shape_of(value)))
            buffer = body.insert_arg(kind, len(body.args))
            row = index
            if back:
                last = build.binary("subtract", limit, build.scalar(1, I64))
                row = build.binary("subtract", last, index)
            returned.append(set_row(build, buffer, row, value))
        flagged = goes_on is not None or made.goes_on is not None
        if flagged:
            body.insert_arg(tensor_type(I1, ()), len(body.args))
            following = made.goes_on
            returned.append(build.scalar(True, I1) if following is None else following)
    types = [v.type for v in returned]
    for value in made.kept:
        assert bound is not None
        starts.append(build.splat(0, dtype_of(value), (bound, *shape_of(value))))
    if flagged:
        starts.append(build.scalar(True, I1) if goes_on is None else goes_on)
    body_region = _ended(body, returned)

    def holds(block: Block) -> Sequence[SSAValue]:
        with build.inside(block):
            flag = block.args[-1] if flagged else None
            if limit is None:
                return [build.scalar(True, I1) if flag is None else flag]
            below = build.compare("LT", block.args[0], limit)
            return [below if flag is None else build.binary("and", below, flag)]

    loop = make_while(starts, region_of(types, holds), body_region)
    if bound is not None:
        loop.trip_count = exprs_attr([bound])
    results: list[SSAValue] = list(build.insert(loop).results)
    first = 1 + len(carried)
    return Looped(results[1:first], results[first : first + len(made.kept)], results[0])


def _ended(block: Block, returned: Sequence[SSAValue]) -> Region:
    block.add_op(ReturnOp.build(operands=[list(returned)]))
    return Region(block)


def set_row(build: TensorBuilder, buffer: SSAValue, row: SSAValue, value: SSAValue) -> SSAValue:
    """`buffer` [rows, ...] with one row replaced; `row` is an i64 scalar inside."""
    rank = len(shape_of(value))
    return build.scatter(
        [buffer],
        build.reshape(row, (1,)),
        [value],
        lambda _, __, new: [new],
        update_window_dims=range(rank),
        inserted_window_dims=[0],
        scatter_dims_to_operand_dims=[0],
        index_vector_dim=0,
    )[0]


def get_row(build: TensorBuilder, operand: SSAValue, axis: int, place: SSAValue) -> SSAValue:
    """The slice of size 1 along an axis, without the axis; `place` is an i64 scalar inside."""
    shape: list[Expr] = list(shape_of(operand))
    zero = build.scalar(0, I64)
    starts = [place if n == axis else zero for n in range(len(shape))]
    sizes: list[ExprLike] = [1 if n == axis else s for n, s in enumerate(shape)]
    row = build.dynamic_slice(operand, starts, sizes)
    return build.reshape(row, [s for n, s in enumerate(shape) if n != axis])


def branch(
    build: TensorBuilder, condition: SSAValue, then: Fill, otherwise: Fill
) -> list[SSAValue]:
    """The results of one of two sides, of equal types.

    Where both are next to nothing, both are computed and one is taken.

    Args:
        condition: an i1 scalar.
        then, otherwise: build a side at `build`, which stands in the block given.

    Raises:
        ValueError: the sides return different types.
    """

    def side(fill: Fill) -> Region:
        def into(block: Block) -> Sequence[SSAValue]:
            with build.inside(block):
                return fill(block)

        return region_of([], into)

    yes_side, no_side = side(then), side(otherwise)
    if not (is_cheap(yes_side) and is_cheap(no_side)):
        return list(build.insert(make_if(condition, yes_side, no_side)).results)
    require_equal_types(yes_side, no_side)
    yes, no = _spliced(build, yes_side), _spliced(build, no_side)
    found: list[SSAValue] = []
    for a, b in zip(yes, no, strict=True):
        predicate = build.broadcast_in_dim(condition, (), shape_of(a))
        found.append(build.select(predicate, a, b))
    return found


def _spliced(build: TensorBuilder, region: Region) -> list[SSAValue]:
    """A region's operations in line; what it returns."""
    end = region.block.last_op
    assert end is not None
    found = list(end.operands)
    end.detach()
    end.erase()
    move(region.block, build)
    return found


def move(draft: Block, build: TensorBuilder) -> None:
    """Puts the operations of a draft where the builder stands."""
    for operation in list(draft.ops):
        operation.detach()
        build.insert(operation)


def discard(draft: Block) -> None:
    """Erases the operations of a draft that is not wanted."""
    for operation in reversed(list(draft.ops)):
        operation.detach()
        operation.erase()
