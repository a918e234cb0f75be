"""Large reductions to few values in two passes, so that all threads have work.

A dispatch shares out its results; a reduction to one value has one. So elements are first
folded to some hundreds of partial results, each a run of its own, and these to the result::

    reduce(x[1000, 1000], dims = [0, 1])    becomes    reduce(reduce(x, [1]), [0])
    reduce(x[1000000], dims = [0])          becomes    reduce(reduce(reshape(x, [500, 2000]), [1]), [0])

How they are cut follows from the shape alone. Left alone are reductions whose result is
spread over their input again (softmax, norms: one dispatch each), small ones, and sums of
narrow floats, whose partial results would be rounded. Sums are added in another order.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

from xdsl.ir import Operation, SSAValue

from headrace.base.symbols import product
from headrace.ir.model import Model
from headrace.ir.passes import Pass
from headrace.ir.types import dtype_of, shape_of
from headrace.tensor import dialect as d
from headrace.tensor.reducers import reducer_kind
from headrace.tensor.rewrite import RewriteBuilder, functions, replace, users
from headrace.tensor.rules.movement import integer_list
from headrace.tensor.rules.reductions import neutral

_MOST_RESULTS = 4
_LEAST_FOLDED = 1 << 15
"""Elements of one result from which two passes pay: below, one thread takes some 10 us."""

_LEAST_PARTS = 16
_MOST_LOOK_AHEAD = 8


@dataclass(frozen=True)
class SplitReductions(Pass):
    """One walk over the reductions."""

    def run(self, model: Model) -> None:
        for _function, block in functions(model):
            for operation in list(block.ops):
                if isinstance(operation, d.ReduceOp):
                    _split(operation)


def _split(operation: d.ReduceOp) -> None:
    kind = reducer_kind(operation)
    if kind is None or len(operation.inputs) != 1:
        return
    (source,), (result,) = operation.inputs, operation.results
    shape, dtype = shape_of(source), dtype_of(source)
    folded = integer_list(operation.dimensions)
    sizes = [shape[n] for n in folded]
    if not all(s.is_constant for s in shape) or (dtype.is_float and dtype.bits < 32):
        return
    if product(shape_of(result)).value > _MOST_RESULTS:
        return
    if product(sizes).value < _LEAST_FOLDED or _is_spread_again(result, product(sizes).value):
        return
    start = neutral(kind, dtype)
    if start is None:
        return
    builder = RewriteBuilder(operation)
    first = builder.scalar(start, dtype)
    inner = _inner(folded, [s.value for s in sizes])
    if inner is not None:
        (partial,) = builder.reduce(source, first, inner, kind)
        left = [n - sum(i < n for i in inner) for n in folded if n not in inner]
        replace(operation, builder.reduce(partial, operation.init_values[0], left, kind))
        return
    # One long dimension: cut it where that is possible.
    longest = max(folded, key=lambda n: shape[n].value)
    parts = _parts(shape[longest].value)
    if parts is None or len(folded) > 1:
        return
    before, behind = shape[:longest], shape[longest + 1 :]
    cut = builder.reshape(source, (*before, parts, shape[longest] // parts, *behind))
    (partial,) = builder.reduce(cut, first, [longest + 1], kind)
    replace(operation, builder.reduce(partial, operation.init_values[0], [longest], kind))


def _inner(folded: list[int], sizes: list[int]) -> list[int] | None:
    """The innermost dimensions to fold first: the rest still has parts enough."""
    parts = 1
    for count in range(1, len(folded)):
        parts *= sizes[count - 1]
        rest = _product_of(sizes[count:])
        if parts >= _LEAST_PARTS and rest >= _LEAST_PARTS:
            return list(folded[count:])
    return None


def _product_of(sizes: list[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


def _parts(size: int) -> int | None:
    """The divisor nearest to the square root from below, None where all are small."""
    for parts in range(isqrt(size), _LEAST_PARTS - 1, -1):
        if size % parts == 0:
            return parts
    return None


def _is_spread_again(value: SSAValue, elements: int) -> bool:
    """Whether a result is soon broadcast to as many elements as were folded."""
    pending: list[tuple[SSAValue, int]] = [(value, 0)]
    while pending:
        current, depth = pending.pop()
        for user in users(current):
            if _spreads(user, elements):
                return True
            if depth < _MOST_LOOK_AHEAD and isinstance(
                user, (d.ElementwiseOp, d.ReshapeOp, d.BroadcastInDimOp, d.ConvertOp)
            ):
                pending += [(r, depth + 1) for r in user.results]
    return False


def _spreads(operation: Operation, elements: int) -> bool:
    if not isinstance(operation, d.BroadcastInDimOp):
        return False
    size = product(shape_of(operation.result))
    return not size.is_constant or size.value >= elements
