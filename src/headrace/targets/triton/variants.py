"""The functions of one entry point: how many launches, for which sizes.

Where the rows of a product are known only at run time, one row (bound by reading the
weight), few, some and many want different tiles. Conditions look at dimensions alone, so results
have the same bits at every budget. Attention is one launch; with one row and many keys, and
where it is no softmax between two products, it runs as several launches, what they keep in
scratch between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.base.symbols import ONE, Expr, dim
from headrace.kernel.description import Axis, Kernel, Operand
from headrace.kernel.known_sizes import with_sizes
from headrace.kernel.products import as_product, flat_size, step
from headrace.kernel.softmax_rows import as_softmax_rows
from headrace.kernel.split import split
from headrace.kernel.target import Condition
from headrace.targets.tables import Problem
from headrace.targets.triton import attention, contract, naive, rows
from headrace.targets.triton.naive import TritonSource
from headrace.targets.triton.row_schedule import multiplies_one_row
from headrace.targets.triton.schedule import choose_tiles
from headrace.targets.triton.tuned import PLAIN, How, product_problem, tuned_tiles

_FEW_ROWS = 64
_SOME_ROWS = 256
_MANY_ROWS = 4096
_MANY_KEYS = 512
"""From so many keys on one row is spread over more programs than one for each head."""
_MANY_WIDE_KEYS = 256
"""From so many keys on fp32 goes in pieces: 128 take 24 us whole and 20 in pieces, 512 take
144 and 84 (12 heads of 64, H200)."""


@dataclass(frozen=True)
class Variant:
    """Functions that run one after the other, and when: all conditions hold."""

    conditions: tuple[Condition, ...]
    sources: tuple[TritonSource, ...]


def variants(name: str, kernel: Kernel, how: How = PLAIN) -> list[Variant]:
    """In the order they are tried; the last has no conditions.

    Args:
        how: what decides schedules beside the kernel.

    Raises:
        HeadraceError HR2401: an operation that lanes lack; HR0115: the table has a schedule
            that a product cannot have.
    """
    if kernel.loops:
        return [Variant((), (naive.generate(name, kernel),))]
    rows_at_once = _attention(name, kernel, how)
    if rows_at_once:
        return rows_at_once
    return _in_pieces(name, kernel, how)


def problem(kernel: Kernel, how: How) -> Problem | None:
    """What may be tuned: a product of known sizes that is one launch."""
    if kernel.loops:
        return None
    found = as_product(kernel)
    if found is None or as_softmax_rows(kernel) is not None or split(kernel) is not None:
        return None
    if multiplies_one_row(kernel) or contract.generate("k", kernel) is None:
        return None
    chosen = tuned_tiles(kernel, found, how.table) or choose_tiles(
        found, precision=kernel.precision
    )
    return product_problem(kernel, found, chosen)


def _attention(name: str, kernel: Kernel, how: How) -> list[Variant]:
    """Attention in one launch where that is faster; empty where it never is, or is none.

    Few rows meet many keys in pieces, which are spread over more programs. So do many keys in
    fp32, whose products are bound by arithmetic and want larger tiles than rows leave.
    """
    found = as_softmax_rows(kernel)
    if found is None:
        return []
    count, keys = flat_size(found.rows), found.keys
    many = attention.generate(name, kernel, _MANY_ROWS, found, how)
    some = attention.generate(f"{name}_few", kernel, _FEW_ROWS // 4, found, how)
    if many is None or some is None:
        return []
    narrow = attention.is_narrow(kernel, found)
    few_rows = Condition(count, maximum=_FEW_ROWS // 4)
    most_keys = _MANY_KEYS if narrow else _MANY_WIDE_KEYS
    few = keys.is_constant and keys.value <= most_keys
    if not narrow and keys.is_constant and not few:
        return []
    few_keys = () if narrow or few else (Condition(keys, maximum=most_keys),)
    made = [Variant(few_keys, (many,))]
    if not count.is_constant:
        made.insert(0, Variant((few_rows, *few_keys), (some,)))
    if count == keys and len(count.names) == 1 and count == dim(*count.names):
        # The first token: half of the instructions are those of unknown sizes.
        one = with_sizes(kernel, dict.fromkeys(count.names, 1))
        alone = attention.generate(f"{name}_one", one, 1, how=how)
        if alone is not None:
            made.insert(0, Variant((Condition(count, maximum=1),), (alone,)))
    if not narrow and not few:
        return [*made, *_in_pieces(f"{name}_pieces", kernel, how)]
    if few or count == keys or (count.is_constant and count.value > 1):
        return made
    # The first of them is that for one row.
    conditions = (Condition(count, maximum=1), Condition(keys, minimum=_MANY_KEYS + 1))
    return [Variant(conditions, _in_pieces(f"{name}_pieces", kernel, how)[0].sources), *made]


def _in_pieces(name: str, kernel: Kernel, how: How) -> list[Variant]:
    parted = split(kernel)
    pieces, kept = (parted.pieces, parted.kept) if parted is not None else ((kernel,), ())
    size = _unknown_rows(pieces)
    if size is not None:
        one = [_with_one_row(piece, size) for piece in pieces]
        one_kept = one[0].operands[len(one[0].operands) - len(kept) :]
        found = [
            _launches(f"{name}_one", one, one_kept, 1, how),
            _launches(f"{name}_few", pieces, kept, _FEW_ROWS, how),
            _launches(f"{name}_some", pieces, kept, _SOME_ROWS // 2, how),
            _launches(name, pieces, kept, _MANY_ROWS, how),
        ]
        limits = (1, _FEW_ROWS, _SOME_ROWS, None)
        if all(found):
            return [
                Variant(() if limit is None else (Condition(size, maximum=limit),), sources)
                for limit, sources in zip(limits, found, strict=True)
                if sources is not None
            ]
    sources = _launches(name, pieces, kept, _FEW_ROWS, how)
    return [Variant((), sources or (naive.generate(name, in_memory_order(kernel)),))]


def in_memory_order(kernel: Kernel) -> Kernel:
    """The kernel with the axis along which results lie closest last: neighbouring lanes then
    write, and mostly read, neighbours, whatever layout the results were given."""
    stores = [s for p in kernel.phases for s in p.stores if isinstance(s.operand, int)]
    if not stores:
        return kernel
    first = stores[0]
    assert isinstance(first.operand, int)
    operand = kernel.operands[first.operand]
    steps = {a.name: step(operand, first.index, a.name) for a in kernel.outer}
    if not all(steps.values()):
        return kernel
    outer = sorted(kernel.outer, key=lambda a: abs(steps[a.name] or 0), reverse=True)
    return replace(kernel, outer=tuple(outer))


def _unknown_rows(pieces: Sequence[Kernel]) -> Expr | None:
    """The rows of the products, where they are known only at run time and all the same."""
    sizes: set[Expr] = set()
    for piece in pieces:
        found = as_product(piece)
        if found is not None and not flat_size(found.rows).is_constant:
            sizes.add(flat_size(found.rows))
    return sizes.pop() if len(sizes) == 1 else None


def _with_one_row(piece: Kernel, size: Expr) -> Kernel:
    """The piece where the rows of its product are one."""
    if len(size.names) == 1:
        (name,) = size.names
        if size == dim(name):
            return with_sizes(piece, {name: 1})
    found = as_product(piece)
    if found is None or flat_size(found.rows) != size:
        return piece
    names = {a.name for a in found.rows}
    outer = tuple(Axis(a.name, ONE) if a.name in names else a for a in piece.outer)
    return replace(piece, outer=outer)


def _launches(
    name: str,
    pieces: Sequence[Kernel],
    kept: Sequence[Operand],
    unknown_rows: int,
    how: How,
) -> tuple[TritonSource, ...] | None:
    """A function for each piece; None where only the naive emitter takes one of several."""
    found: list[TritonSource] = []
    for number, piece in enumerate(pieces):
        own = f"{name}_{number}" if len(pieces) > 1 else name
        source = None
        if not multiplies_one_row(piece):
            source = contract.generate(own, piece, unknown_rows, kept, how)
        source = source or rows.generate(own, in_memory_order(piece), kept)
        if source is None:
            return None
        found.append(source)
    return tuple(found)
