"""NonZero, Compress and Unique: data decides how many elements there are.

Everything is computed at the upper bound, every element kept; the count is read back, and the
results are cut to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from headrace.base.dtypes import I1, I64
from headrace.base.symbols import Expr, as_expr, ceildiv, product
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import shape_of
from headrace.tensor.build import TensorBuilder

_BLOCK = 64
"""Sums within blocks of so many, then over blocks: a fold over all before each is quadratic."""


def prefix_sums(b: TensorBuilder, x: SSAValue) -> SSAValue:
    """For each element of an i64 vector the sum up to it, itself included."""
    (count,) = shape_of(x)
    if count.is_constant and count.value <= 2 * _BLOCK:
        return _sums(b, x, (count,))
    blocks = ceildiv(count, _BLOCK)
    padded = b.pad(x, b.scalar(0, I64), [0], [blocks * _BLOCK - count])
    within = _sums(b, b.reshape(padded, (blocks, _BLOCK)), (blocks, as_expr(_BLOCK)))
    totals = b.reshape(b.slice(within, [0, _BLOCK - 1], [blocks, _BLOCK], [1, 1]), (blocks,))
    before = b.binary("subtract", _sums(b, totals, (blocks,)), totals)
    spread = b.broadcast_in_dim(before, (0,), (blocks, _BLOCK))
    summed = b.reshape(b.binary("add", within, spread), (blocks * _BLOCK,))
    return b.slice(summed, [0], [count], [1])


def _sums(b: TensorBuilder, x: SSAValue, shape: Sequence[Expr]) -> SSAValue:
    """Sums up to each element along the last dimension."""
    rank = len(shape)
    wide = (*shape, shape[-1])
    places = [*range(rank - 1), rank]
    spread = b.broadcast_in_dim(x, places, wide)
    taken = b.compare("LE", b.iota(I64, wide, rank), b.iota(I64, wide, rank - 1))
    chosen = b.select(taken, spread, b.splat(0, I64, wide))
    return b.reduce(chosen, b.scalar(0, I64), [rank], "add")[0]


def true_places(b: TensorBuilder, mask: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Where a vector of i1 is true, in order, zeros behind; and how often, an i64 scalar."""
    (count,) = shape_of(mask)
    ones = b.convert(mask, I64)
    ends = prefix_sums(b, ones)
    place = b.binary("subtract", ends, b.splat(1, I64, (count,)))
    outside = b.broadcast_in_dim(b.dimension(count), (), (count,))
    places = placed(b, b.select(mask, place, outside), b.iota(I64, (count,), 0))
    return places, b.reduce(ones, b.scalar(0, I64), [0], "add")[0]


def placed(b: TensorBuilder, places: SSAValue, values: SSAValue) -> SSAValue:
    """A vector with values at places; zeros elsewhere, what would fall outside left out."""
    (count,) = shape_of(values)
    return b.scatter(
        [b.splat(0, I64, (count,))],
        b.reshape(places, (count, 1)),
        [values],
        lambda _, __, new: [new],
        update_window_dims=[],
        inserted_window_dims=[0],
        scatter_dims_to_operand_dims=[0],
        index_vector_dim=1,
    )[0]


def first_of(b: TensorBuilder, x: SSAValue, count: Expr) -> SSAValue:
    """The first elements of a vector."""
    return b.slice(x, [0], [count], [1])


@onnx_op("NonZero")
def non_zero(c: NodeContext) -> SSAValue:
    """Coordinates of what is not zero, [rank, count]; a scalar counts as a vector."""
    b, x = c.build, c.data(0)
    shape = shape_of(x) or (as_expr(1),)
    total = product(shape)
    flat = b.reshape(x, (total,))
    mask = flat if c.dtype(0) == I1 else b.compare("NE", flat, c.scalar_like(0, flat))
    places, count = true_places(b, mask)
    found = c.decided_size(count, total)
    where = first_of(b, places, found)
    rows: list[SSAValue] = []
    for n, size in enumerate(shape):
        inner = b.broadcast_in_dim(b.dimension(product(shape[n + 1 :])), (), (found,))
        along = b.broadcast_in_dim(b.dimension(size), (), (found,))
        row = b.binary("remainder", b.binary("divide", where, inner), along)
        rows.append(b.reshape(row, (1, found)))
    return b.concatenate(rows, 0)


@onnx_op("Compress")
def compress(c: NodeContext) -> SSAValue:
    """Keeps places along an axis where the condition holds; it may be too short."""
    b, x = c.build, c.data(0)
    axis = 0
    if c.has_attribute("axis"):
        axis = c.axis("axis", len(shape_of(x)), 0)
    else:
        x = b.reshape(x, (product(shape_of(x)),))
    known = c.known(1)
    if known is not None:
        import numpy as np

        kept = np.nonzero(known.astype(bool))[0].astype(np.int64)
        return b.take(x, c.as_data(c.from_array(kept)), axis)
    (most,) = c.shape(1)
    places, count = true_places(b, c.data(1))
    return b.take(x, first_of(b, places, c.decided_size(count, most)), axis)


@onnx_op("Unique")
def unique(c: NodeContext) -> list[SSAValue]:
    """Distinct slices along an axis, or elements; every pair is compared."""
    b, x = c.build, c.data(0)
    axis = c.axis("axis", len(shape_of(x)), 0) if c.has_attribute("axis") else 0
    if not c.has_attribute("axis"):
        x = b.reshape(x, (product(shape_of(x)),))
    shape = shape_of(x)
    count = shape[axis]
    rows = b.transpose(x, [axis, *(n for n in range(len(shape)) if n != axis)])
    rest = product([s for n, s in enumerate(shape) if n != axis])
    equal, before = _compared(c, b.reshape(rows, (count, rest)))
    pairs = (count, count)
    column = b.iota(I64, pairs, 1)
    outside = b.broadcast_in_dim(b.dimension(count), (), pairs)
    firsts = b.reduce(b.select(equal, column, outside), b.dimension(count), [1], "minimum")[0]
    is_first = b.compare("EQ", firsts, b.iota(I64, (count,), 0))
    # A distinct slice stands behind those first ones that are smaller, or earlier.
    if not c.flag("sorted", True):
        before = b.compare("LT", column, b.iota(I64, pairs, 0))
    counted = b.binary("and", before, b.broadcast_in_dim(is_first, (1,), pairs))
    number = b.reduce(b.convert(counted, I64), b.scalar(0, I64), [1], "add")[0]
    inverse = b.take(number, firsts, 0)
    ones = b.convert(is_first, I64)
    found = c.decided_size(b.reduce(ones, b.scalar(0, I64), [0], "add")[0], count)
    nowhere = b.broadcast_in_dim(b.dimension(count), (), (count,))
    places = placed(b, b.select(is_first, number, nowhere), b.iota(I64, (count,), 0))
    indices = first_of(b, places, found)
    results = [b.take(x, indices, axis), indices, inverse]
    if c.wants(3):
        members = b.broadcast_in_dim(inverse, (1,), (found, count))
        alike = b.compare("EQ", members, b.iota(I64, (found, count), 0))
        results.append(b.reduce(b.convert(alike, I64), b.scalar(0, I64), [1], "add")[0])
    return results


def _compared(c: NodeContext, rows: SSAValue) -> tuple[SSAValue, SSAValue]:
    """For rows i and j: whether they are equal, and whether j stands before i."""
    b = c.build
    count, width = shape_of(rows)
    wide = (count, count, width)
    mine, others = (b.broadcast_in_dim(rows, (n, 2), wide) for n in (0, 1))
    differ = b.compare("NE", mine, others)
    column = b.iota(I64, wide, 2)
    end = b.dimension(width)
    at = b.reduce(
        b.select(differ, column, b.broadcast_in_dim(end, (), wide)), end, [2], "minimum"
    )[0]
    pairs = (count, count)
    equal = b.compare("EQ", at, b.broadcast_in_dim(end, (), pairs))
    decisive = b.compare("EQ", column, b.broadcast_in_dim(at, (0, 1), wide))
    less = b.binary("and", decisive, b.compare("LT", others, mine))
    before = b.reduce(less, b.scalar(False, I1), [2], "or")[0]
    return equal, before
