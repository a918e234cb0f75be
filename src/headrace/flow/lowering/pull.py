"""Computes one element of a tensor value as scalar operations, from its operands' elements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation, SSAValue

from headrace.base.dtypes import I1, I64, DType
from headrace.base.errors import error
from headrace.base.symbols import ZERO, Expr, as_expr, dim, maximum, minimum
from headrace.flow.lowering.body import Body, python_scalar
from headrace.flow.lowering.frame import CannotFuse, Frame
from headrace.flow.lowering.indexing import Index, Sizes, reshape_index, strides_of
from headrace.flow.lowering.operations import (
    integers,
    is_elementwise,
    operation_name,
    scalar_constant,
)
from headrace.ir.locations import places
from headrace.ir.types import dtype_of, shape_of
from headrace.kernel.description import Axis, Scalar
from headrace.tensor import dialect as t
from headrace.tensor.build import to_numpy

_LISTED_ELEMENTS = 64
"""The most elements of a constant that is spelt out by selects."""


Kept: TypeAlias = tuple[str, DType, tuple[str, ...]]
"""A value in a local: its name, its type, the frame's inner axes that index it."""


class Pull:
    """Makes elements of values at one place of a kernel: in the body of one phase.

    Attributes:
        body: where the scalar operations go.
        operands: number of the kernel operand that a value is.
        locals: values that an earlier phase keeps: name, dtype, and the inner axes of the
            frame that it is an array over (none for one scalar an outer point).
        inner: what the frame's inner axes are called in this phase.
        sizes: of all axes of this phase.
    """

    def __init__(
        self,
        body: Body,
        frame: Frame,
        operands: Mapping[SSAValue, int],
        locals_: Mapping[SSAValue, Kept],
        inner: Mapping[str, Expr],
        sizes: Sizes,
    ) -> None:
        self.body = body
        self.frame = frame
        self.operands = operands
        self.locals = locals_
        self.inner = inner
        self.sizes = sizes
        self._known: dict[tuple[SSAValue, Index], str] = {}

    def know(self, axes: Iterable[Axis]) -> None:
        """Adds axes of this phase that are not the frame's."""
        self.sizes = {**self.sizes, **{a.name: a.size for a in axes}}

    # -- which way to a value -----------------------------------------------------------

    def chain(self, value: SSAValue) -> str:
        """A value of the chain at this point of the domain."""
        return self.value(value, self.coordinates(value))

    def coordinates(self, value: SSAValue) -> Index:
        """Coordinates of a value of the chain, in the names of this phase."""
        return tuple(i.substitute(self.inner) for i in self.frame.coordinates[value])

    def value(self, value: SSAValue, index: Index) -> str:
        """Element `index` of a value; a value of the chain has only its own coordinates."""
        if value in self.locals:
            name, dtype, axes = self.locals[value]
            return self.body.load_local(name, dtype, tuple(self.inner[a] for a in axes))
        if value in self.operands:
            return self.body.load(self.operands[value], dtype_of(value), index)
        in_chain = value in self.frame.coordinates
        if in_chain:
            index = self.coordinates(value)
        key = (value, index)
        if key not in self._known:
            self._known[key] = self._compute(value, index, in_chain)
        return self._known[key]

    def _compute(self, value: SSAValue, index: Index, in_chain: bool) -> str:
        operation = value.owner
        if not isinstance(operation, Operation):
            raise error("HR9201", "a dispatch uses a value that is no operand of it")
        moves = in_chain and not is_elementwise(operation) and len(operation.operands) == 1
        if moves and operation.operands[0] in self.frame.coordinates:
            # Movement within the chain: the same element under other coordinates.
            return self.chain(operation.operands[0])
        if is_elementwise(operation):
            return self._elementwise(operation, index)
        handler = _HANDLERS.get(type(operation))
        if handler is None:
            raise CannotFuse(f"{operation.name} has no single elements")
        return handler(self, operation, index)

    def _elementwise(self, operation: Operation, index: Index) -> str:
        arguments = tuple(self.value(o, index) for o in operation.operands)
        direction = operation.properties.get("direction")
        attribute = direction.data if isinstance(direction, StringAttr) else ""
        return self.body.compute(
            operation_name(operation), arguments, dtype_of(operation.results[0]), attribute
        )

    # -- elements that may lie outside ---------------------------------------------------

    def bounded(
        self, value: SSAValue, index: Index, outside: tuple[int, ...], otherwise: Scalar
    ) -> str:
        """Element `index`, or `otherwise` where a dimension of `outside` is out of range."""
        if not outside:
            return self.value(value, index)
        dtype = dtype_of(value)
        if value in self.operands:
            return self.body.load(self.operands[value], dtype, index, outside, otherwise)
        operation = value.owner
        if isinstance(operation, t.TransposeOp):
            permutation = integers(operation.permutation)
            inner: list[Expr] = [ZERO] * len(index)
            for place, source in enumerate(permutation):
                inner[source] = index[place]
            dims = tuple(sorted(permutation[d] for d in outside))
            return self.bounded(operation.operand, tuple(inner), dims, otherwise)
        if isinstance(operation, t.SliceOp) and all(_whole(operation, d) for d in outside):
            return self.bounded(
                operation.operand, _sliced(operation, index), outside, otherwise
            )
        shape, inside = shape_of(value), None
        clamped = list(index)
        for d in outside:
            inside = self.body.both(inside, self.body.compare("GE", index[d], 0))
            inside = self.body.both(inside, self.body.compare("LT", index[d], shape[d]))
            clamped[d] = maximum(minimum(index[d], shape[d] - 1), 0)
        assert inside is not None
        element = self.value(value, tuple(clamped))
        constant = self.body.constant(otherwise, dtype)
        return self.body.compute("select", (inside, element, constant), dtype)

    def scalar(self, value: SSAValue) -> Scalar | None:
        """The Python scalar of a splat constant, None for anything else."""
        constant = scalar_constant(value)
        if constant is None or not isinstance(constant.owner, t.ConstantOp):
            return None
        array = to_numpy(constant.owner.value).reshape(-1)
        return python_scalar(array[0], dtype_of(value)) if array.size else None

    def as_index(self, value: SSAValue, index: Index) -> Expr:
        """An integer element as an index expression."""
        known = self.scalar(value)
        if isinstance(known, int):
            return as_expr(known)
        name = self.value(value, index)
        if dtype_of(value) == I1:
            name = self.body.convert(name, I64)
        return dim(name)


Handler = Callable[[Pull, Operation, Index], str]


def _broadcast(pull: Pull, operation: Operation, index: Index) -> str:
    assert isinstance(operation, t.BroadcastInDimOp)
    operand, result = shape_of(operation.operand), shape_of(operation.result)
    inner = [
        index[place] if operand[n] == result[place] else ZERO
        for n, place in enumerate(integers(operation.broadcast_dimensions))
    ]
    return pull.value(operation.operand, tuple(inner))


def _reshape(pull: Pull, operation: Operation, index: Index) -> str:
    assert isinstance(operation, t.ReshapeOp)
    inner = reshape_index(
        index, shape_of(operation.result), shape_of(operation.operand), pull.sizes
    )
    return pull.value(operation.operand, inner)


def _transpose(pull: Pull, operation: Operation, index: Index) -> str:
    assert isinstance(operation, t.TransposeOp)
    inner: list[Expr] = [ZERO] * len(index)
    for place, source in enumerate(integers(operation.permutation)):
        inner[source] = index[place]
    return pull.value(operation.operand, tuple(inner))


def _slice(pull: Pull, operation: Operation, index: Index) -> str:
    assert isinstance(operation, t.SliceOp)
    return pull.value(operation.operand, _sliced(operation, index))


def _sliced(operation: t.SliceOp, index: Index) -> Index:
    """Where an element of a slice stands in what it was cut from."""
    steps = integers(operation.strides)
    return tuple(
        start + i * step
        for start, i, step in zip(operation.start_indices.exprs, index, steps, strict=True)
    )


def _whole(operation: t.SliceOp, dimension: int) -> bool:
    """Whether a slice takes all of a dimension: what is outside of one is outside of both."""
    return (
        shape_of(operation.result)[dimension] == shape_of(operation.operand)[dimension]
        and integers(operation.strides)[dimension] == 1
    )


def _reverse(pull: Pull, operation: Operation, index: Index) -> str:
    assert isinstance(operation, t.ReverseOp)
    shape, turned = shape_of(operation.operand), set(integers(operation.dimensions))
    inner = tuple(shape[n] - 1 - i if n in turned else i for n, i in enumerate(index))
    return pull.value(operation.operand, inner)


def _copy(pull: Pull, operation: Operation, index: Index) -> str:
    return pull.value(operation.operands[0], index)


def _pad(pull: Pull, operation: Operation, index: Index) -> str:
    assert isinstance(operation, t.PadOp)
    low, high = operation.edge_padding_low.exprs, operation.edge_padding_high.exprs
    interior = integers(operation.interior_padding)
    inner, outside, hits = _spread(pull, index, low, high, interior)
    padding = pull.scalar(operation.padding_value)
    if padding is not None and hits is None:
        return pull.bounded(operation.operand, inner, outside, padding)
    shape, dtype = shape_of(operation.operand), dtype_of(operation.result)
    clamped = list(inner)
    inside = hits
    for d in outside:
        inside = pull.body.both(inside, pull.body.compare("GE", inner[d], 0))
        inside = pull.body.both(inside, pull.body.compare("LT", inner[d], shape[d]))
        clamped[d] = maximum(minimum(inner[d], shape[d] - 1), 0)
    element = pull.value(operation.operand, tuple(clamped))
    if inside is None:
        return element
    value = pull.value(operation.padding_value, ())
    return pull.body.compute("select", (inside, element, value), dtype)


def _spread(
    pull: Pull,
    index: Index,
    low: tuple[Expr, ...],
    high: tuple[Expr, ...],
    interior: tuple[int, ...],
) -> tuple[Index, tuple[int, ...], str | None]:
    """Index into the unpadded operand, dimensions where it may be outside, and whether it
    hits an element (None: always) rather than interior padding."""
    inner: list[Expr] = []
    outside: list[int] = []
    hits: str | None = None
    for n, (i, before, behind, between) in enumerate(
        zip(index, low, high, interior, strict=True)
    ):
        at = i - before
        if between:
            hit = pull.body.compare("EQ", at % (between + 1), 0)
            hits = pull.body.both(hits, hit)
            at = at // (between + 1)
        inner.append(at)
        cuts = all(e.is_constant and e.value <= 0 for e in (before, behind))
        if not cuts or between:
            outside.append(n)
    return tuple(inner), tuple(outside), hits


def _concatenate(pull: Pull, operation: Operation, index: Index) -> str:
    assert isinstance(operation, t.ConcatenateOp)
    (d,) = integers(operation.dimension)
    dtype = dtype_of(operation.result)
    begin, result = ZERO, None
    zero = python_scalar(0, dtype)
    for value in operation.inputs:
        size = shape_of(value)[d]
        at = tuple(i - begin if n == d else i for n, i in enumerate(index))
        if size != ZERO:
            element = pull.bounded(value, at, (d,), zero)
            if result is None:
                result = element
            else:
                behind = pull.body.compare("GE", index[d], begin)
                result = pull.body.compute("select", (behind, element, result), dtype)
        begin = begin + size
    return result if result is not None else pull.body.constant(zero, dtype)


def clamped(start: Expr, last: Expr) -> Expr:
    """`start` between 0 and `last`."""
    return maximum(minimum(start, last), 0)


def _gather(pull: Pull, operation: Operation, index: Index) -> str:
    assert isinstance(operation, t.GatherOp)
    shape, sizes = shape_of(operation.operand), operation.slice_sizes.exprs
    offset_dims = set(integers(operation.offset_dims))
    batch = [i for n, i in enumerate(index) if n not in offset_dims]
    offsets = iter(i for n, i in enumerate(index) if n in offset_dims)
    (vector_dim,) = integers(operation.index_vector_dim)
    start_map = integers(operation.start_index_map)
    batching = integers(operation.operand_batching_dims)
    hidden = {*integers(operation.collapsed_slice_dims), *batching}
    rank = len(shape_of(operation.start_indices))
    at: list[Expr] = [ZERO if n in hidden else next(offsets) for n in range(len(shape))]
    for component, place in enumerate(start_map):
        where = list(batch)
        if vector_dim < rank:
            where.insert(vector_dim, as_expr(component))
        start = pull.as_index(operation.start_indices, tuple(where))
        at[place] = at[place] + clamped(start, shape[place] - sizes[place])
    for place, source in zip(
        batching, integers(operation.start_indices_batching_dims), strict=True
    ):
        at[place] = batch[source - (1 if source > vector_dim else 0)]
    return pull.value(operation.operand, tuple(at))


def _dynamic_slice(pull: Pull, operation: Operation, index: Index) -> str:
    assert isinstance(operation, t.DynamicSliceOp)
    shape, result = shape_of(operation.operand), shape_of(operation.result)
    at = tuple(
        i + clamped(pull.as_index(start, ()), size - extent)
        for i, start, size, extent in zip(
            index, operation.start_indices, shape, result, strict=True
        )
    )
    return pull.value(operation.operand, at)


def _iota(pull: Pull, operation: Operation, index: Index) -> str:
    assert isinstance(operation, t.IotaOp)
    (d,) = integers(operation.dimension)
    dtype = dtype_of(operation.result)
    if dtype.kind in ("complex", "bool"):
        return pull.body.convert(pull.body.index(index[d], I64), dtype)
    return pull.body.index(index[d], dtype)


def _dimension(pull: Pull, operation: Operation, index: Index) -> str:
    assert isinstance(operation, t.DimensionOp)
    dtype = dtype_of(operation.result)
    names = [pull.body.index(e, dtype) for e in operation.value.exprs]
    return _choose(pull, names, index[0] if index else ZERO, dtype)


def _choose(pull: Pull, names: list[str], at: Expr, dtype: DType) -> str:
    """The name that stands at a position of a list; of an empty one nothing is asked."""
    if not names:
        return pull.body.constant(python_scalar(0, dtype), dtype)
    if at.is_constant:
        return names[at.value]
    result = names[0]
    for n, name in enumerate(names[1:], 1):
        behind = pull.body.compare("GE", at, n)
        result = pull.body.compute("select", (behind, name, result), dtype)
    return result


def _constant(pull: Pull, operation: Operation, index: Index) -> str:
    assert isinstance(operation, t.ConstantOp)
    value, dtype = operation.result, dtype_of(operation.result)
    array = to_numpy(operation.value)
    known = pull.scalar(value)
    if known is not None:
        return pull.body.constant(known, dtype)
    if array.size > _LISTED_ELEMENTS:
        raise error(
            "HR9202",
            f"a constant of {array.size} elements stands in a dispatch",
            at=places(operation),
        )
    names = [
        pull.body.constant(python_scalar(v, dtype), dtype) for v in array.reshape(-1).tolist()
    ]
    at = ZERO
    for i, stride in zip(index, strides_of(shape_of(value)), strict=True):
        at = at + i * stride
    return _choose(pull, names, at, dtype)


_HANDLERS: dict[type[Operation], Handler] = {
    t.BroadcastInDimOp: _broadcast,
    t.ReshapeOp: _reshape,
    t.TransposeOp: _transpose,
    t.SliceOp: _slice,
    t.ReverseOp: _reverse,
    t.CopyOp: _copy,
    t.PadOp: _pad,
    t.ConcatenateOp: _concatenate,
    t.GatherOp: _gather,
    t.DynamicSliceOp: _dynamic_slice,
    t.IotaOp: _iota,
    t.DimensionOp: _dimension,
    t.ConstantOp: _constant,
}
