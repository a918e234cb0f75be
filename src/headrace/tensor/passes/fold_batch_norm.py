"""Folds a per-channel affine into the weights of the product before it.

`y = convolution(x, w) * s + t` becomes `convolution(x, w * s) + t`: a batch normalisation,
decomposed into subtract, multiply, divide and add, costs one bias. The same for
`dot_general` along its free and batch dimensions of the constant operand. The factors
must be known before the model runs (`fold_constants` turns `w * s` into a parameter),
floats of the weight's type, along one dimension or everywhere equal. One that is everywhere
equal may stand behind reshapes and transposes: queries are scaled where heads are parted.

Not exact: products are rounded in another order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from headrace.base.parameters import size_bytes
from headrace.ir.model import Model
from headrace.ir.passes import Pass
from headrace.ir.types import dtype_of, shape_of
from headrace.tensor import dialect as d
from headrace.tensor.rewrite import (
    RewriteBuilder,
    functions,
    has_one_use,
    owner,
    replace,
    users,
)
from headrace.tensor.rules.movement import integer_list
from headrace.tensor.sources import GROWTH_BYTES, is_weight_shared, known_values, source_of

_STEPS = (d.MultiplyOp, d.DivideOp, d.AddOp, d.SubtractOp, d.NegateOp)
_MOVEMENTS = (d.ReshapeOp, d.TransposeOp)


@dataclass(frozen=True)
class FoldBatchNorm(Pass):
    """`tensor-fold-batch-norm{stored=true}`: one walk over the products.

    Attributes:
        stored: only weights that are parameters: before others know the rest.
    """

    stored: bool = False

    def run(self, model: Model) -> None:
        for _function, block in functions(model):
            known = known_values(block)
            for operation in list(block.ops):
                if isinstance(operation, (d.ConvolutionOp, d.DotGeneralOp)):
                    _fold(operation, model, known, self.stored)


@dataclass(frozen=True)
class _Chain:
    """The affine operations behind a product.

    Attributes:
        steps: each with its vector (None for negate) and whether the product is the
            right operand.
        movements: before the last of the steps, in order.
        channel: the result dimension of the vectors; None where all are scalars.
    """

    steps: tuple[tuple[Operation, SSAValue | None, bool], ...]
    movements: tuple[Operation, ...]
    channel: int | None


def _weight_index(operation: Operation, known: set[SSAValue]) -> int | None:
    """Which operand is the known one."""
    lhs, rhs = operation.operands
    if rhs in known:
        return None if lhs in known else 1
    return 0 if isinstance(operation, d.DotGeneralOp) and lhs in known else None


def _weight_dimensions(operation: Operation, index: int) -> dict[int, int]:
    """Result dimension -> dimension of the weight that it comes from."""
    if isinstance(operation, d.ConvolutionOp):
        return {1: 0}
    if not isinstance(operation, d.DotGeneralOp):
        return {}
    batch = [
        integer_list(operation.lhs_batching_dimensions),
        integer_list(operation.rhs_batching_dimensions),
    ]
    contract = [
        integer_list(operation.lhs_contracting_dimensions),
        integer_list(operation.rhs_contracting_dimensions),
    ]
    free = [
        [
            n
            for n in range(len(shape_of(value)))
            if n not in batch[side] and n not in contract[side]
        ]
        for side, value in enumerate(operation.operands)
    ]
    first = len(batch[0]) + (len(free[0]) if index == 1 else 0)
    return {
        **dict(enumerate(batch[index])),
        **{first + n: dimension for n, dimension in enumerate(free[index])},
    }


def _vector(value: SSAValue, known: set[SSAValue]) -> tuple[SSAValue, int | None] | None:
    """A known rank-0 or rank-1 value behind a broadcast, and its result dimension."""
    operation = owner(value)
    if not isinstance(operation, d.BroadcastInDimOp):
        return None
    dims = integer_list(operation.broadcast_dimensions)
    if len(dims) > 1 or operation.operand not in known:
        return None
    if not dims:
        return operation.operand, None
    if shape_of(operation.operand)[0] != shape_of(value)[dims[0]]:
        return None
    return operation.operand, dims[0]


def _chain(operation: Operation, allowed: set[int], known: set[SSAValue]) -> _Chain:
    steps: list[tuple[Operation, SSAValue | None, bool]] = []
    movements: list[Operation] = []
    moved = 0
    channel: int | None = None
    value = operation.results[0]
    while has_one_use(value):
        (step,) = users(value)
        if isinstance(step, _MOVEMENTS):
            movements.append(step)
            value = step.result
            continue
        if not isinstance(step, _STEPS):
            break
        if isinstance(step, d.NegateOp):
            steps.append((step, None, False))
            moved = len(movements)
            value = step.result
            continue
        on_right = step.rhs is value
        if on_right and isinstance(step, d.DivideOp):
            break
        found = _vector(step.lhs if on_right else step.rhs, known)
        if found is None:
            break
        vector, dimension = found
        if dimension is not None:
            if movements or dimension not in allowed or channel not in (None, dimension):
                break
            channel = dimension
        steps.append((step, vector, on_right))
        moved = len(movements)
        value = step.results[0]
    return _Chain(tuple(steps), tuple(movements[:moved]), channel)


def _fold(operation: Operation, model: Model, known: set[SSAValue], stored: bool) -> None:
    index = _weight_index(operation, known)
    if index is None:
        return
    weight = operation.operands[index]
    if stored and not _is_stored(weight):
        return
    kind = dtype_of(operation.results[0])
    if not kind.is_float or dtype_of(weight) != kind:
        return
    places = _weight_dimensions(operation, index)
    chain = _chain(operation, set(places), known)
    scales = any(not _adds(step, on_right) for step, _, on_right in chain.steps)
    if not scales and len(chain.steps) < 2:
        return
    if scales and is_weight_shared(weight) and _is_large(weight, model):
        return  # the scaled copy would be stored beside the weight
    last = chain.steps[-1][0]
    builder = RewriteBuilder(last)
    builder.standing_for(operation, *(s for s, _v, _r in chain.steps))
    factor, shift = _affine(chain, operation, builder)
    operands = list(operation.operands)
    if factor is not None:
        dims = [] if chain.channel is None else [places[chain.channel]]
        spread = builder.broadcast_in_dim(factor, dims, shape_of(weight))
        operands[index] = builder.binary("multiply", weight, spread)
    value = _again(operation, operands, builder)
    if shift is not None:
        dims = [] if chain.channel is None else [chain.channel]
        spread = builder.broadcast_in_dim(shift, dims, shape_of(value))
        value = builder.binary("add", value, spread)
    for movement in chain.movements:
        value = _again(movement, [value], builder)
    replace(last, [value])
    behind = [operation, *(s for s, _v, _r in chain.steps[:-1]), *chain.movements]
    _erase(behind)


def _adds(step: Operation, on_right: bool) -> bool:
    return isinstance(step, d.AddOp) or (isinstance(step, d.SubtractOp) and not on_right)


def _is_stored(weight: SSAValue) -> bool:
    """A parameter, or one moved: nothing was computed."""
    producer = owner(weight)
    while isinstance(producer, _MOVEMENTS):
        producer = owner(producer.operand)
    return isinstance(producer, d.ParameterOp)


def _is_large(weight: SSAValue, model: Model) -> bool:
    source = source_of(weight, model)
    return source is None or size_bytes(source) > GROWTH_BYTES


def _affine(
    chain: _Chain, operation: Operation, builder: RewriteBuilder
) -> tuple[SSAValue | None, SSAValue | None]:
    """Factor and shift of the whole chain, of the channel's shape; None for 1 and 0."""
    shape = [] if chain.channel is None else [shape_of(operation.results[0])[chain.channel]]
    factor: SSAValue | None = None
    shift: SSAValue | None = None

    def times(left: SSAValue | None, right: SSAValue, name: str) -> SSAValue:
        if left is None:
            one = builder.splat(1, dtype_of(right), shape)
            return right if name == "multiply" else builder.binary("divide", one, right)
        return builder.binary(name, left, right)

    for step, vector, on_right in chain.steps:
        if vector is None:
            minus = builder.splat(-1, dtype_of(operation.results[0]), shape)
            factor = times(factor, minus, "multiply")
            shift = None if shift is None else builder.unary("negate", shift)
            continue
        spread = (
            vector
            if len(shape_of(vector)) == len(shape)
            else builder.broadcast_in_dim(vector, (), shape)
        )
        if isinstance(step, (d.MultiplyOp, d.DivideOp)):
            name = step.name.removeprefix("tensor.")
            factor = times(factor, spread, name)
            shift = None if shift is None else builder.binary(name, shift, spread)
        elif isinstance(step, d.AddOp):
            shift = spread if shift is None else builder.binary("add", shift, spread)
        elif on_right:  # vector - product
            minus = builder.splat(-1, dtype_of(spread), shape)
            factor = times(factor, minus, "multiply")
            shift = spread if shift is None else builder.binary("subtract", spread, shift)
        else:
            shift = (
                builder.unary("negate", spread)
                if shift is None
                else builder.binary("subtract", shift, spread)
            )
    return factor, shift


def _erase(operations: Sequence[Operation]) -> None:
    """Each once nothing uses it."""
    todo = list(operations)
    while todo:
        unused = [op for op in todo if not any(r.uses for r in op.results)]
        for operation in unused:
            operation.detach()
            operation.erase()
            todo.remove(operation)


def _again(
    operation: Operation, operands: Sequence[SSAValue], builder: RewriteBuilder
) -> SSAValue:
    """The same operation on other operands."""
    made = type(operation).create(
        operands=list(operands),
        result_types=[r.type for r in operation.results],
        properties=dict(operation.properties),
    )
    made.location = builder.location
    return builder.insert(made).results[0]
