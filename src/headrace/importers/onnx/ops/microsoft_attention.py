"""`com.microsoft`: attention of several heads, with their past.

Definitions: onnxruntime's docs/ContribOperators.md .
"""

from __future__ import annotations

import math

from xdsl.ir import SSAValue

from headrace.base.dtypes import F32, I32, I64
from headrace.base.symbols import Expr, as_expr
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.ops.attention_parts import (
    Scores,
    attend,
    joined_heads,
    not_after,
    padding_addend,
    rotated,
    split_heads,
)
from headrace.importers.onnx.ops.contraction import matmul_values
from headrace.importers.onnx.ops.microsoft_fused import DOMAIN
from headrace.importers.onnx.ops.quantization import less_zero, rankless
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import dtype_of, shape_of


def _refuse(c: NodeContext, inputs: dict[int, str], flags: tuple[str, ...] = ()) -> None:
    """Refuses what is given of forms that are not taken."""
    given = [name for n, name in inputs.items() if c.has(n)]
    given += [f for f in flags if c.flag(f)]
    if given:
        raise c.unsupported(f"with {', '.join(given)}")


def _scale(c: NodeContext, size: Expr) -> float:
    """The factor of the scores: 1 / sqrt(size of a head) by default."""
    given = c.float("scale", 0.0)
    if given:
        return given
    if not size.is_constant:
        raise c.unsupported("heads of a size that is not constant")
    return 1 / math.sqrt(size.value)


def _sum(c: NodeContext, given: list[SSAValue | None]) -> SSAValue | None:
    total: SSAValue | None = None
    for addend in given:
        if addend is not None:
            total = addend if total is None else c.binary("add", total, addend)
    return total


def _with_past(c: NodeContext, past: SSAValue | None, new: SSAValue) -> SSAValue:
    return new if past is None else c.build.concatenate([past, new], 2)


# -- Attention, QAttention ---------------------------------------------------------------------


@onnx_op("Attention", domain=DOMAIN)
def attention(c: NodeContext) -> list[SSAValue]:
    _refuse(c, {6: "past_sequence_length"}, ("do_rotary", "past_present_share_buffer"))
    projected = matmul_values(c, c.data(0), c.data(1))
    if c.has(2):
        projected = c.binary("add", projected, c.data(2))
    addend = c.data(5) if c.has(5) else None
    return _self_attention(c, projected, 3, 4, addend)


@onnx_op("QAttention", domain=DOMAIN)
def quantised_attention(c: NodeContext) -> list[SSAValue]:
    """The projection is of integers; the rest is Attention."""
    _refuse(c, {}, ("do_rotary", "past_present_share_buffer"))
    made = matmul_values(c, less_zero(c, c.data(0), 6), less_zero(c, c.data(1), 7), I32)
    scale = c.binary("multiply", rankless(c, c.data(3)), rankless(c, c.data(4)))
    projected = c.binary("multiply", c.build.convert(made, F32), scale)
    projected = c.binary("add", projected, c.data(2))
    return _self_attention(c, projected, 5, 8, None)


def _self_attention(
    c: NodeContext, projected: SSAValue, mask: int, past: int, addend: SSAValue | None
) -> list[SSAValue]:
    """Attention of what stands side by side in the last dimension: query, key, value."""
    b, heads = c.build, c.int("num_heads")
    batch, queries, hidden = shape_of(projected)
    sizes = [as_expr(s) for s in c.ints("qkv_hidden_sizes") or []]
    if not sizes:
        c.dims.same(hidden, hidden // 3 * 3)
        sizes = [hidden // 3] * 3
    if len(sizes) != 3:
        raise c.malformed("'qkv_hidden_sizes' must have 3 entries")
    first, second = sizes[0], sizes[0] + sizes[1]
    c.dims.same(hidden, second + sizes[2])
    query, key, value = (
        split_heads(c, c.slice_axis(projected, 2, start, end), heads)
        for start, end in ((as_expr(0), first), (first, second), (second, hidden))
    )
    before = as_expr(0)
    if c.has(past):
        whole = c.data(past)
        before = shape_of(whole)[3]
        old = [b.reshape(c.slice_axis(whole, 0, n, n + 1), shape_of(whole)[1:]) for n in (0, 1)]
        key, value = _with_past(c, old[0], key), _with_past(c, old[1], value)
    keys = shape_of(key)[2]
    fill = c.float("mask_filter_value", -10000.0)
    masked = padding_addend(c, c.data(mask), batch, keys, fill) if c.has(mask) else None
    keep = not_after(c, queries, keys, before) if c.flag("unidirectional") else None
    how = Scores(_scale(c, shape_of(query)[3]), addend=_sum(c, [masked, addend]), keep=keep)
    results = [joined_heads(c, attend(c, query, key, value, how))]
    if c.wants(1):
        both = [b.reshape(x, (1, *shape_of(x))) for x in (key, value)]
        results.append(b.concatenate(both, 0))
    return results


# -- MultiHeadAttention --------------------------------------------------------------------------


@onnx_op("MultiHeadAttention", domain=DOMAIN)
def multi_head_attention(c: NodeContext) -> list[SSAValue]:
    """Keys and values come as rows, as heads of another's past, or packed with the query."""
    _refuse(c, {8: "past_sequence_length", 9: "cache_indirection"})
    heads = c.int("num_heads")
    query, key, value = _three(c, heads)
    batch, _, queries, size = shape_of(query)
    before = as_expr(0)
    if c.has(6):
        before = c.shape(6)[2]
        key, value = _with_past(c, c.data(6), key), _with_past(c, c.data(7), value)
    keys = shape_of(key)[2]
    fill = c.float("mask_filter_value", -10000.0)
    masked = padding_addend(c, c.data(4), batch, keys, fill) if c.has(4) else None
    bias = c.data(5) if c.has(5) else None
    keep = not_after(c, queries, keys, before) if c.flag("unidirectional") else None
    how = Scores(_scale(c, size), addend=_sum(c, [masked, bias]), keep=keep)
    return [joined_heads(c, attend(c, query, key, value, how)), key, value]


def _three(c: NodeContext, heads: int) -> tuple[SSAValue, SSAValue, SSAValue]:
    """Query, key and value as [batch, heads, length, size], with their bias."""
    b = c.build
    if c.rank(0) == 5:  # [batch, length, heads, 3, size]
        query, key, value = _unpacked(c, c.data(0), 3)
    elif c.has(1) and c.rank(1) == 5:
        query = split_heads(c, c.data(0), heads)
        key, value = _unpacked(c, c.data(1), 2)
    elif not c.has(1) or not c.has(2):
        raise c.malformed("key and value are missing")
    else:
        query = split_heads(c, c.data(0), heads)
        key, value = (
            c.data(n) if c.rank(n) == 4 else split_heads(c, c.data(n), heads) for n in (1, 2)
        )
    if not c.has(3):
        return query, key, value
    bias, first = c.data(3), as_expr(0)
    made: list[SSAValue] = []
    for n, x in enumerate((query, key, value)):
        _, count, _, size = shape_of(x)
        end = first + count * size
        part = b.reshape(c.slice_axis(bias, 0, first, end), (1, count, 1, size))
        # Keys that come as heads of another's past have their bias already.
        crossed = n > 0 and c.rank(0) == 3 and c.rank(n) == 4
        made.append(x if crossed else c.binary("add", x, part))
        first = end
    return made[0], made[1], made[2]


def _unpacked(c: NodeContext, x: SSAValue, count: int) -> list[SSAValue]:
    """[batch, length, heads, count, size] as `count` of [batch, heads, length, size]."""
    batch, length, heads, _, size = shape_of(x)
    shape = (batch, length, heads, size)
    return [
        c.build.transpose(c.build.reshape(c.slice_axis(x, 3, n, n + 1), shape), (0, 2, 1, 3))
        for n in range(count)
    ]


# -- RotaryEmbedding, GroupQueryAttention ------------------------------------------------------------


@onnx_op("RotaryEmbedding", domain=DOMAIN)
def rotary_embedding(c: NodeContext) -> SSAValue:
    """Of rows, or of heads; one position is that of the first of them all."""
    _refuse(c, {}, ("is_packed_batching",))
    b, x = c.build, c.data(0)
    cosine, sine, positions = c.data(2), c.data(3), c.data(1)
    flat = len(shape_of(x)) == 3
    if flat:
        heads = c.int("num_heads", 0)
        hidden, size = shape_of(x)[2], shape_of(cosine)[1] * 2
        if not heads:
            count = hidden // size
            if not count.is_constant:
                raise c.unsupported("a number of heads that is not constant")
            heads = count.value
        x = split_heads(c, x, heads)
    batch, _, length, _ = shape_of(x)
    if c.rank(1) == 1:
        first = b.broadcast_in_dim(b.reshape(positions, ()), (), (batch, length))
        steps = b.iota(dtype_of(positions), (batch, length), 1)
        positions = b.binary("add", first, steps)
    at = [b.take(t, positions, 0) for t in (cosine, sine)]
    made = rotated(c, x, at[0], at[1], c.flag("interleaved"))
    scale = c.float("scale", 1.0)
    made = made if scale == 1.0 else c.with_scalar("multiply", made, scale)
    return joined_heads(c, made) if flat else made


@onnx_op("GroupQueryAttention", domain=DOMAIN)
def group_query_attention(c: NodeContext) -> list[SSAValue]:
    """New keys stand behind each row's past; the present is as long as the past's buffer,
    or as past and new ones together where there is no room in it.
    """
    missing = {12: "k_scale", 13: "v_scale", 14: "q_norm_weight", 16: "query_seqlens"}
    _refuse(c, missing, ("sliding_window_cache", "qk_output"))
    b, heads, shared = c.build, c.int("num_heads"), c.int("kv_num_heads")
    query, key, value = _grouped(c, heads, shared)
    batch, _, queries, size = shape_of(query)
    for n in (3, 4):
        if c.has(n):
            c.dims.same(size, c.shape(n)[3])
    # Keys before the new ones in each row; a first, padded prompt has none.
    ends = b.convert(b.reshape(c.data(5), (batch,)), I64)
    many = b.broadcast_in_dim(b.dimension(queries, I64), (), (batch,))
    before = b.binary("subtract", c.with_scalar("add", ends, 1), many)
    before = b.binary("maximum", before, c.scalar_like(0, before))
    rows = (batch, queries)
    at = b.binary("add", b.broadcast_in_dim(before, (0,), rows), b.iota(I64, rows, 1))
    if c.flag("do_rotary"):
        places = c.data(9) if c.has(9) else at
        turn = [b.take(c.data(n), places, 0) for n in (7, 8)]
        interleaved = c.flag("rotary_interleaved")
        query = rotated(c, query, turn[0], turn[1], interleaved)
        key = rotated(c, key, turn[0], turn[1], interleaved)
    present = [_present(c, n, x, before) for n, x in ((3, key), (4, value))]
    keys = shape_of(present[0])[2]
    shape = (batch, queries, keys)
    column, row = b.iota(I64, shape, 2), b.broadcast_in_dim(at, (0, 1), shape)
    if c.flag("causal", True):
        keep = b.compare("LE", column, row)
    else:
        keep = b.compare("LE", column, b.broadcast_in_dim(ends, (0,), shape))
    window = c.int("local_window_size", -1)
    if window >= 0:
        near = b.compare("GT", column, c.with_scalar("subtract", row, window))
        keep = b.binary("and", keep, near)
    sink = c.data(11) if c.has(11) else None
    if sink is None and c.flag("smooth_softmax"):
        sink = b.splat(0, F32, (heads,))
    how = Scores(
        _scale(c, size),
        c.float("softcap", 0.0),
        c.data(10) if c.has(10) else None,
        b.broadcast_in_dim(keep, (0, 2, 3), (batch, heads, queries, keys)),
        sink,
    )
    return [joined_heads(c, attend(c, query, present[0], present[1], how)), *present]


def _grouped(c: NodeContext, heads: int, shared: int) -> list[SSAValue]:
    """Query, key and value as heads; without a key they stand side by side."""
    if heads < 1 or shared < 1:
        raise c.malformed("'num_heads' and 'kv_num_heads' must be positive")
    counts = (heads, shared, shared)
    if c.has(1):
        return [split_heads(c, c.data(n), count) for n, count in enumerate(counts)]
    packed = c.data(0)
    size = shape_of(packed)[2] // sum(counts)
    c.dims.same(shape_of(packed)[2], size * sum(counts))
    made: list[SSAValue] = []
    first = as_expr(0)
    for count in counts:
        part = c.slice_axis(packed, 2, first, first + size * count)
        made.append(split_heads(c, part, count))
        first = first + size * count
    return made


def _present(c: NodeContext, past: int, new: SSAValue, before: SSAValue) -> SSAValue:
    """[batch, heads, length, size]: row by row the past, then at `before` the new ones."""
    if not c.has(past):
        return new
    b, old = c.build, c.data(past)
    batch, heads, count, size = shape_of(new)
    room, length = shape_of(old)[2], _present_length(c, past, count)
    if length != room:
        old = b.pad(old, b.scalar(0, dtype_of(old)), (0,) * 4, (0, 0, length - room, 0))
    rows = (batch, length)
    at = b.binary("subtract", b.iota(I64, rows, 1), b.broadcast_in_dim(before, (0,), rows))
    last = b.broadcast_in_dim(b.dimension(count - 1, I64), (), rows)
    inside = b.binary(
        "and", b.compare("GE", at, c.scalar_like(0, at)), b.compare("LE", at, last)
    )
    near = b.clamp(c.scalar_like(0, at), at, last)
    moved = b.gather(
        b.transpose(new, (0, 2, 1, 3)),
        b.reshape(near, (*rows, 1)),
        offset_dims=[2, 3],
        collapsed_slice_dims=[1],
        start_index_map=[1],
        index_vector_dim=2,
        slice_sizes=[1, 1, heads, size],
        operand_batching_dims=[0],
        start_indices_batching_dims=[0],
    )
    moved = b.transpose(moved, (0, 2, 1, 3))
    return b.select(b.broadcast_in_dim(inside, (0, 2), shape_of(moved)), moved, old)


def _present_length(c: NodeContext, past: int, new: Expr) -> Expr:
    """The buffer's length where the total surely fits into it, else past and new ones."""
    room = c.shape(past)[2]
    total = c.size(6)
    if total == room:
        return room
    if room.is_constant and total.is_constant:
        return as_expr(max(room.value, total.value))
    c.dims.same(total, room + new)
    return room + new
