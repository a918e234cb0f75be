"""Sequences and optionals, resolved while importing: lengths and positions are known then."""

from __future__ import annotations

from xdsl.ir import SSAValue

from headrace.base.dtypes import F32, I64, DType
from headrace.base.symbols import Expr, as_expr
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.registry import onnx_op
from headrace.importers.onnx.values import OptionalValue, SequenceValue, Value
from headrace.importers.onnx.weights import element_dtype
from headrace.ir.types import dtype_of, shape_of


def sequence(c: NodeContext, index: int) -> SequenceValue:
    """The input as a sequence.

    Raises:
        HeadraceError HR1207: it is none.
    """
    value = c.value(index)
    if isinstance(value, OptionalValue) and value.item is not None:
        value = value.item
    if not isinstance(value, SequenceValue):
        raise c.malformed(f"input '{c.node.inputs[index]}' is no sequence")
    return value


def _sequence_of(items: tuple[Value, ...], dtype: DType) -> SequenceValue:
    return SequenceValue("", items[0].dtype if items else dtype, (), items=items)


def _position(c: NodeContext, index: int, length: int, default: int) -> int:
    """A position in a sequence of `length`, counted from the front.

    Raises:
        HeadraceError HR1207: out of range; HR1204: only data decides it.
    """
    if not c.has(index):
        return default
    place = _whole(c, index)
    if not -length <= place < length:
        raise c.malformed(f"position {place} in a sequence of {length}")
    return place % length


def _whole(c: NodeContext, index: int) -> int:
    known = c.known(index)
    if known is None:
        raise c.unsupported("data decides about a position in a sequence")
    return int(known.reshape(-1)[0])


@onnx_op("SequenceEmpty")
def sequence_empty(c: NodeContext) -> SequenceValue:
    code = c.int("dtype", 1)
    return _sequence_of((), element_dtype(code, c.node.place))


@onnx_op("SequenceConstruct")
def sequence_construct(c: NodeContext) -> SequenceValue:
    items = tuple(c.value(n) for n in range(len(c.inputs)))
    return _sequence_of(items, F32)


@onnx_op("SequenceAt")
def sequence_at(c: NodeContext) -> Value:
    items = sequence(c, 0).items
    if not items:
        raise c.malformed("the sequence is empty")
    return items[_position(c, 1, len(items), 0)]


@onnx_op("SequenceInsert")
def sequence_insert(c: NodeContext) -> SequenceValue:
    """Behind the last where no position is given; position `length` is there too."""
    items = list(sequence(c, 0).items)
    place = len(items)
    if c.has(2) and _whole(c, 2) != place:
        place = _position(c, 2, len(items), place)
    items.insert(place, c.value(1))
    return _sequence_of(tuple(items), c.dtype(1))


@onnx_op("SequenceErase")
def sequence_erase(c: NodeContext) -> SequenceValue:
    """The last where no position is given."""
    before = sequence(c, 0)
    items = list(before.items)
    if not items:
        raise c.malformed("the sequence is empty")
    del items[_position(c, 1, len(items), len(items) - 1)]
    return _sequence_of(tuple(items), before.dtype)


@onnx_op("SequenceLength")
def sequence_length(c: NodeContext) -> Value:
    return c.of_sizes(as_expr(len(sequence(c, 0).items)), I64)


@onnx_op("SplitToSequence")
def split_to_sequence(c: NodeContext) -> SequenceValue:
    """Parts of stated sizes, or of one stated size, or slices of size 1."""
    x = c.data(0)
    shape = shape_of(x)
    axis = c.axis("axis", len(shape), 0)
    sizes = _part_sizes(c, shape[axis])
    parts: list[Value] = []
    start = as_expr(0)
    for size in sizes:
        part = c.slice_axis(x, axis, start, start + size)
        if not c.has(1) and not c.flag("keepdims", True):
            part = c.build.reshape(part, [s for n, s in enumerate(shape) if n != axis])
        parts.append(_value(part))
        start = start + size
    return _sequence_of(tuple(parts), c.dtype(0))


def _part_sizes(c: NodeContext, total: Expr) -> list[Expr]:
    if c.has(1) and c.rank(1) == 1:
        sizes = c.sizes(1)
        c.dims.same(sum(sizes, as_expr(0)), total)
        return sizes
    if not total.is_constant:
        raise c.unsupported(f"a sequence of as many tensors as {total}")
    step = 1
    if c.has(1):
        (step,) = c.integers_at(1)
    if step < 1:
        raise c.malformed(f"parts of size {step}")
    return [as_expr(min(step, total.value - n)) for n in range(0, total.value, step)]


def _value(ssa: SSAValue) -> Value:
    return Value("", dtype_of(ssa), shape_of(ssa), ssa=ssa)


@onnx_op("ConcatFromSequence")
def concat_from_sequence(c: NodeContext) -> SSAValue:
    items = sequence(c, 0).items
    if not items:
        raise c.malformed("the sequence is empty")
    joined = c.flag("new_axis")
    axis = c.normal_axis(c.int("axis"), items[0].rank + joined)
    parts: list[SSAValue] = []
    for item in items:
        part = c.as_data(item)
        if joined:
            part = c.build.reshape(part, [*item.shape[:axis], as_expr(1), *item.shape[axis:]])
        parts.append(part)
    for part in parts[1:]:
        for n, (a, b) in enumerate(zip(shape_of(parts[0]), shape_of(part), strict=True)):
            if n != axis:
                c.dims.same(a, b)
    return c.build.concatenate(parts, axis)


@onnx_op("Optional")
def optional(c: NodeContext) -> OptionalValue:
    item = c.value(0) if c.has(0) else None
    return OptionalValue("", F32 if item is None else item.dtype, (), item=item)


@onnx_op("OptionalHasElement")
def optional_has_element(c: NodeContext) -> Value:
    import numpy as np

    value = c.value(0) if c.has(0) else None
    holds = value is not None
    if isinstance(value, OptionalValue):
        holds = value.item is not None
    return c.from_array(np.array(holds))


@onnx_op("OptionalGetElement")
def optional_get_element(c: NodeContext) -> Value:
    value = c.value(0)
    if not isinstance(value, OptionalValue):
        return value
    if value.item is None:
        raise c.malformed("the optional is empty")
    return value.item
