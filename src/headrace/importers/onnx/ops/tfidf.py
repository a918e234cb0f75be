"""TfIdfVectorizer: how often the n-grams of a pool occur."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from xdsl.ir import SSAValue

from headrace.base.dtypes import F32, I64
from headrace.base.symbols import as_expr
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import shape_of


@onnx_op("TfIdfVectorizer")
def tf_idf_vectorizer(c: NodeContext) -> SSAValue:
    """Counts (`TF`), whether they occur (`IDF`), or counts times weights (`TFIDF`).

    The items of an n-gram stand 1 to `max_skip_count` + 1 apart, all equally far.
    """
    import numpy as np

    if c.has_attribute("pool_strings"):
        raise c.unsupported("a pool of strings")
    b = c.build
    x = b.convert(c.data(0), I64)
    one_row = len(shape_of(x)) == 1
    if one_row:
        x = b.reshape(x, (1, *shape_of(x)))
    columns = c.ints("ngram_indexes") or []
    weights = c.floats("weights") or [1.0] * len(columns)
    first, last = c.int("min_gram_length"), c.int("max_gram_length")
    counts: list[SSAValue] = []
    matrix = np.zeros((0, max(columns, default=-1) + 1), np.float32)
    start = 0
    for length, pool in _pools(c):
        here, start = slice(start, start + len(pool)), start + len(pool)
        if not first <= length <= last or not len(pool):
            continue
        counts.append(_occurrences(c, x, pool))
        rows = np.zeros((len(pool), matrix.shape[1]), np.float32)
        rows[np.arange(len(pool)), columns[here]] = np.asarray(weights[here])
        matrix = np.concatenate([matrix, rows])
    if not counts:
        made = b.splat(0, F32, (shape_of(x)[0], matrix.shape[1]))
    else:
        made = b.concatenate(counts, 1)
        mode = c.string("mode")
        if mode not in ("TF", "IDF", "TFIDF"):
            raise c.malformed(f"mode '{mode}' is unknown")
        if mode == "IDF":
            made = b.convert(b.compare("GT", made, c.scalar_like(0, made)), F32)
        if mode == "TF":
            matrix = (matrix != 0).astype(np.float32)
        table = c.as_data(c.from_array(matrix))
        made = b.dot_general(made, table, contract=((1,), (0,)))
    return b.reshape(made, shape_of(made)[1:]) if one_row else made


def _pools(c: NodeContext) -> list[tuple[int, Any]]:
    """(n, n-grams [count, n]) for n = 1, 2, ...; `ngram_counts` says where each begins."""
    import numpy as np

    items = np.array(c.ints("pool_int64s") or [], np.int64)
    starts = [*(c.ints("ngram_counts") or []), len(items)]
    pools: list[tuple[int, Any]] = []
    for n, (begin, end) in enumerate(pairwise(starts), 1):
        if begin > end or (end - begin) % n:
            raise c.malformed(f"{end - begin} items are no {n}-grams")
        pools.append((n, items[begin:end].reshape(-1, n)))
    return pools


def _occurrences(c: NodeContext, x: SSAValue, pool: Any) -> SSAValue:
    """[rows, n-grams]: how often each occurs in each row, at every distance."""
    b = c.build
    rows, size = shape_of(x)
    count, length = pool.shape
    total = b.splat(0, F32, (rows, count))
    # Single items have no distance.
    for step in range(1, 2 + (c.int("max_skip_count") if length > 1 else 0)):
        places = size - (length - 1) * step
        if c.dims.at_most(places, 0):
            continue
        if not c.dims.at_least(places, 0):
            raise c.unsupported(f"rows of {size} items, maybe fewer than an n-gram has")
        shape = (rows, as_expr(count), places)
        same: SSAValue | None = None
        for n in range(length):
            items = c.slice_axis(x, 1, n * step, places + n * step)
            wanted = c.as_data(c.from_array(pool[:, n].copy()))
            equal = b.compare(
                "EQ",
                b.broadcast_in_dim(items, (0, 2), shape),
                b.broadcast_in_dim(wanted, (1,), shape),
            )
            same = equal if same is None else b.binary("and", same, equal)
        assert same is not None
        found = c.reduce(b.convert(same, F32), 0, [2], "add")
        total = b.binary("add", total, found)
    return total
