"""Parts of attention operators: heads, rotary positions, masks, and attention itself."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import SSAValue

from headrace.base.dtypes import F32, I64
from headrace.base.symbols import Expr, ExprLike, as_expr
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.ops.pooling import lowest
from headrace.importers.onnx.ops.softmax import softmax_along
from headrace.ir.types import dtype_of, shape_of


def split_heads(c: NodeContext, x: SSAValue, heads: int) -> SSAValue:
    """[batch, length, heads * size] as [batch, heads, length, size]."""
    if heads < 1:
        raise c.malformed("the number of heads must be positive")
    batch, length, hidden = shape_of(x)
    size = hidden // heads
    c.dims.same(hidden, size * heads)
    parted = c.build.reshape(x, (batch, length, heads, size))
    return c.build.transpose(parted, (0, 2, 1, 3))


def joined_heads(c: NodeContext, x: SSAValue) -> SSAValue:
    """[batch, heads, length, size] as [batch, length, heads * size]."""
    batch, heads, length, size = shape_of(x)
    moved = c.build.transpose(x, (0, 2, 1, 3))
    return c.build.reshape(moved, (batch, length, heads * size))


def rotated(
    c: NodeContext, x: SSAValue, cosine: SSAValue, sine: SSAValue, interleaved: bool
) -> SSAValue:
    """Pairs of elements of [batch, heads, length, size] turned by an angle of their place.

    Args:
        cosine, sine: [batch, length, pairs]; elements behind the pairs stay.
        interleaved: a pair are neighbours, else first and second half.
    """
    b, shape = c.build, shape_of(x)
    pairs = shape_of(cosine)[2]
    turning = c.slice_axis(x, 3, 0, pairs * 2)
    half = (*shape[:3], pairs)
    cosine = b.broadcast_in_dim(b.convert(cosine, dtype_of(x)), (0, 2, 3), half)
    sine = b.broadcast_in_dim(b.convert(sine, dtype_of(x)), (0, 2, 3), half)
    if interleaved:
        first = c.slice_axis(turning, 3, 0, pairs * 2, 2)
        second = c.slice_axis(turning, 3, 1, pairs * 2, 2)
        first, second = b.reshape(first, half), b.reshape(second, half)
    else:
        first = c.slice_axis(turning, 3, 0, pairs)
        second = c.slice_axis(turning, 3, pairs, pairs * 2)
    left = b.binary(
        "subtract", b.binary("multiply", first, cosine), b.binary("multiply", second, sine)
    )
    right = b.binary(
        "add", b.binary("multiply", second, cosine), b.binary("multiply", first, sine)
    )
    if interleaved:
        parts = [b.reshape(p, (*half, 1)) for p in (left, right)]
        made = b.reshape(b.concatenate(parts, 4), shape_of(turning))
    else:
        made = b.concatenate([left, right], 3)
    if shape[3] == pairs * 2:
        return made
    return b.concatenate([made, c.slice_axis(x, 3, pairs * 2, shape[3])], 3)


@dataclass(frozen=True)
class Scores:
    """How the scores of queries and keys become weights.

    Attributes:
        scale: factor of the products.
        softcap: where not 0, scores are bent into -softcap ... softcap.
        addend: added to the scores; broadcasts to [batch, heads, queries, keys].
        keep: i1, broadcasts likewise; what is not kept has no weight.
        sink: one score a head that takes part in the sum and has no value.
    """

    scale: float
    softcap: float = 0.0
    addend: SSAValue | None = None
    keep: SSAValue | None = None
    sink: SSAValue | None = None


def attend(
    c: NodeContext, query: SSAValue, key: SSAValue, value: SSAValue, how: Scores
) -> SSAValue:
    """softmax(scale * query * key') * value, in f32 where the type is narrower.

    Args:
        query: [batch, heads, queries, size].
        key, value: [batch, shared heads, keys, size]; neighbouring heads share one.
    """
    b, kind = c.build, dtype_of(query)
    work = F32 if kind.bits < 32 else kind
    query, key, value = (b.convert(x, work) for x in (query, key, value))
    batch, heads, queries, size = shape_of(query)
    shared, keys = shape_of(key)[1], shape_of(key)[2]
    c.dims.same(size, shape_of(key)[3])
    c.dims.same(keys, shape_of(value)[2])
    c.dims.same(batch, shape_of(key)[0])
    group = heads // shared
    c.dims.same(heads, group * shared)
    wide, last = (batch, shared, group, queries), 4
    if group == as_expr(1):
        wide, last = (batch, shared, queries), 3
    pairs = ((0, 1), (0, 1))
    grouped = b.reshape(query, (*wide, size))
    scores = b.dot_general(grouped, key, batch=pairs, contract=((last,), (3,)))
    scores = c.with_scalar("multiply", scores, how.scale)
    scores = b.reshape(scores, (batch, heads, queries, keys))
    weights = b.reshape(_weights(c, scores, how), (*wide, keys))
    made = b.dot_general(weights, value, batch=pairs, contract=((last,), (2,)))
    made = b.reshape(made, (batch, heads, queries, shape_of(value)[3]))
    return b.convert(made, kind)


def _weights(c: NodeContext, scores: SSAValue, how: Scores) -> SSAValue:
    b, kind, shape = c.build, dtype_of(scores), shape_of(scores)
    if how.softcap:
        bent = b.unary("tanh", c.with_scalar("divide", scores, how.softcap))
        scores = c.with_scalar("multiply", bent, how.softcap)
    if how.addend is not None:
        scores = c.binary("add", scores, b.convert(how.addend, kind))
    if how.keep is not None:
        keep = b.broadcast_to(how.keep, shape)
        scores = b.select(keep, scores, c.scalar_like(lowest(kind), scores))
    if how.sink is None:
        return softmax_along(c, scores, 3)
    column = b.broadcast_in_dim(b.convert(how.sink, kind), (1,), (*shape[:3], 1))
    weights = softmax_along(c, b.concatenate([scores, column], 3), 3)
    return c.slice_axis(weights, 3, 0, shape[3])


def not_after(c: NodeContext, queries: ExprLike, keys: ExprLike, before: ExprLike) -> SSAValue:
    """i1 [queries, keys]: whether a key is not behind its query; `before` keys come first."""
    b = c.build
    shape = (queries, keys)
    first = b.broadcast_in_dim(b.dimension(as_expr(before), I64), (), shape)
    at = b.binary("add", b.iota(I64, shape, 0), first)
    return b.compare("LE", b.iota(I64, shape, 1), at)


def padding_addend(
    c: NodeContext, mask: SSAValue, batch: Expr, keys: Expr, fill: float
) -> SSAValue:
    """A mask of keys as what is added to scores: `fill` for those that are left out.

    Args:
        mask: 0 for left out, of [batch, keys] or [batch, queries, keys]; or the keys' number
            of each row, [batch], or those, then the first key of each row, [2 * batch].
    """
    b, shape = c.build, shape_of(mask)
    if len(shape) == 1:
        places = b.iota(dtype_of(mask), (batch, keys), 1)
        rows = shape[0]
        twice = rows == batch * 2 and batch != as_expr(0)
        if not twice:
            c.dims.same(rows, batch)
        end = c.slice_axis(mask, 0, 0, batch)
        kept = b.compare("LT", places, b.broadcast_in_dim(end, (0,), (batch, keys)))
        if twice:
            start = b.broadcast_in_dim(
                c.slice_axis(mask, 0, batch, batch * 2), (0,), (batch, keys)
            )
            kept = b.binary("and", kept, b.compare("GE", places, start))
        shape = (batch, keys)
    elif len(shape) in (2, 3):
        c.dims.same(shape[-1], keys)
        kept = b.compare("GT", mask, c.scalar_like(0, mask))
    else:
        raise c.unsupported(f"a mask of rank {len(shape)}")
    addend = b.select(kept, b.splat(0, F32, shape), b.splat(fill, F32, shape))
    wide = (shape[0], 1, *([1] if len(shape) == 2 else []), *shape[1:])
    return b.reshape(addend, wide)
