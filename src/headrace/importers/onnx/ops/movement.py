"""Operators that move elements without computing."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from headrace.base.dtypes import I64
from headrace.base.symbols import Expr, as_expr, product
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import shape_of

_ONE = as_expr(1)


def solve_reshape(c: NodeContext, source: Sequence[Expr], wanted: Sequence[Expr]) -> list[Expr]:
    """The target of a reshape: 0 copies a size (unless `allowzero`), -1 is solved."""
    result: list[Expr] = []
    unknown: int | None = None
    for n, size in enumerate(wanted):
        if size == as_expr(-1):
            if unknown is not None:
                raise c.malformed("a shape has two -1")
            unknown = n
            result.append(_ONE)
        elif size == as_expr(0) and not c.flag("allowzero"):
            if n >= len(source):
                raise c.malformed(f"0 at place {n} copies from a rank of {len(source)}")
            result.append(source[n])
        else:
            result.append(size)
    if unknown is not None:
        result[unknown] = _missing_size(c, source, result)
    return result


def _missing_size(c: NodeContext, source: Sequence[Expr], others: Sequence[Expr]) -> Expr:
    """The size that -1 stands for; equal factors cancel before anything is divided."""
    rest = list(others)
    left: list[Expr] = []
    for size in source:
        if size in rest:
            rest.remove(size)
        else:
            left.append(size)
    total, known = product(left), product(rest)
    if known == as_expr(0):
        raise c.malformed("-1 cannot be solved where another size is 0")
    if total.is_constant and known.is_constant and total.value % known.value:
        raise c.malformed(f"{total} elements do not divide by {known}")
    return total // known


def reshape_to(c: NodeContext, operand: SSAValue, shape: Sequence[Expr]) -> SSAValue:
    """A reshape, whose element counts must be equal (learned where they can be)."""
    before, after = product(shape_of(operand)), product(shape)
    if before != after and c.dims.always_equal(before, after):
        operand = _rewritten(c, operand, after)
    elif before != after:
        c.dims.same(before, after)
    return c.build.reshape(operand, shape)


def _rewritten(c: NodeContext, operand: SSAValue, count: Expr) -> SSAValue:
    """A tensor of `count` elements with one of its sizes written as a multiple, which it is:
    `n - n mod 160` as `160 * ((n - n mod 160) floordiv 160)`."""
    shape = shape_of(operand)
    for divisor in sorted({abs(factor) for _, factor in count.terms} - {1}):
        for axis, size in enumerate(shape):
            multiple = size // divisor * divisor
            if product([*shape[:axis], multiple, *shape[axis + 1 :]]) == count:
                return c.slice_axis(operand, axis, 0, multiple)
    return operand


@onnx_op("Reshape")
def reshape(c: NodeContext) -> SSAValue:
    """The shape is an attribute before opset 5, then an input."""
    x = c.data(0)
    wanted = [as_expr(s) for s in c.ints("shape") or []] if c.opset < 5 else c.sizes(1)
    return reshape_to(c, x, solve_reshape(c, shape_of(x), wanted))


@onnx_op("Flatten")
def flatten(c: NodeContext) -> SSAValue:
    x = c.data(0)
    shape = shape_of(x)
    axis = c.int("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        raise c.malformed(f"axis {axis} is out of range for rank {len(shape)}")
    axis = axis + len(shape) if axis < 0 else axis
    return c.build.reshape(x, (product(shape[:axis]), product(shape[axis:])))


def axes_argument(c: NodeContext, since_input: int, rank: int) -> list[int] | None:
    """Axes that are an attribute before an opset and input 1 from there on."""
    if c.opset >= since_input:
        axes = c.integers_at(1) if c.has(1) else None
    else:
        axes = c.ints("axes")
    return None if axes is None else c.normal_axes(axes, rank)


@onnx_op("Squeeze")
def squeeze(c: NodeContext) -> SSAValue:
    x = c.data(0)
    return c.build.reshape(x, squeezed_shape(c, shape_of(x)))


def squeezed_shape(c: NodeContext, shape: Sequence[Expr]) -> list[Expr]:
    """The shape without the axes that Squeeze names, or without all ones.

    Without axes every size has to be 1 or not before anything runs: a named dimension that
    stays is 2 or more from here on.

    Raises:
        HeadraceError HR1204: no axes are named, and a size may or may not be 1.
    """
    axes = axes_argument(c, 13, len(shape))
    if axes is None:
        axes = [n for n, s in enumerate(shape) if s == _ONE]
        _keep(c, [s for n, s in enumerate(shape) if n not in axes])
    for axis in axes:
        c.dims.same(shape[axis], _ONE)
    return [s for n, s in enumerate(shape) if n not in axes]


def _keep(c: NodeContext, sizes: Sequence[Expr]) -> None:
    """Sees to it that sizes which Squeeze without axes leaves are never 1."""
    for size in sizes:
        if not size.names & set(c.dims.defined):
            c.dims.raise_least_sizes([size - 2])
        if not c.dims.at_least(size, 2):
            raise c.unsupported(
                f"whether a dimension of size {size} goes is not known before the model runs",
                "export with axes, or give the size with --dim",
            )


@onnx_op("Unsqueeze")
def unsqueeze(c: NodeContext) -> SSAValue:
    x = c.data(0)
    return c.build.reshape(x, unsqueezed_shape(c, shape_of(x)))


def unsqueezed_shape(c: NodeContext, shape: Sequence[Expr]) -> list[Expr]:
    """The shape with ones at the axes that Unsqueeze names."""
    stated = c.integers_at(1) if c.opset >= 13 else c.ints("axes") or []
    rank = len(shape) + len(stated)
    axes = set(c.normal_axes(stated, rank))
    rest = iter(shape)
    return [_ONE if n in axes else next(rest) for n in range(rank)]


@onnx_op("Transpose")
def transpose(c: NodeContext) -> SSAValue:
    x = c.data(0)
    rank = len(shape_of(x))
    return c.build.transpose(x, c.ints("perm") or list(range(rank))[::-1])


@onnx_op("Concat")
def concat(c: NodeContext) -> SSAValue:
    parts = c.all_data()
    axis = c.axis("axis", len(shape_of(parts[0])), 1)
    first = shape_of(parts[0])
    for other in parts[1:]:
        for n, (a, b) in enumerate(zip(first, shape_of(other), strict=True)):
            if n != axis:
                c.dims.same(a, b)
    return c.build.concatenate(parts, axis)


@onnx_op("Split")
def split(c: NodeContext) -> list[SSAValue]:
    x = c.data(0)
    shape = shape_of(x)
    axis = c.axis("axis", len(shape), 0)
    parts: list[SSAValue] = []
    start = as_expr(0)
    for size in split_sizes(c, shape[axis]):
        parts.append(c.slice_axis(x, axis, start, start + size))
        start = start + size
    return parts


def split_sizes(c: NodeContext, total: Expr) -> list[Expr]:
    """Sizes of the parts: as stated, or equal ones, the last maybe smaller."""
    if c.opset >= 13 and c.has(1):
        sizes = c.sizes(1)
    elif c.opset < 13 and c.has_attribute("split"):
        sizes = [as_expr(s) for s in c.ints("split") or []]
    else:
        count = c.int("num_outputs", len(c.node.outputs))
        part = (total + (count - 1)) // count
        sizes = [part] * (count - 1)
        sizes.append(total - part * (count - 1))
        return sizes
    c.dims.same(sum(sizes, as_expr(0)), total)
    return sizes


@onnx_op("Expand")
def expand(c: NodeContext) -> SSAValue:
    x = c.data(0)
    shape = c.common_shape(shape_of(x), c.sizes(1))
    return c.build.broadcast_to(x, shape)


@onnx_op("Tile")
def tile(c: NodeContext) -> SSAValue:
    """Repeats as a broadcast into a new dimension before each, folded in by a reshape."""
    x = c.data(0)
    shape, repeats = shape_of(x), c.sizes(1)
    if len(repeats) != len(shape):
        raise c.malformed(f"{len(repeats)} repeats for rank {len(shape)}")
    wide: list[Expr] = []
    places: list[int] = []
    for size, times in zip(shape, repeats, strict=True):
        if times != _ONE:
            wide.append(times)
        places.append(len(wide))
        wide.append(size)
    spread = c.build.broadcast_in_dim(x, places, wide)
    return c.build.reshape(spread, [s * r for s, r in zip(shape, repeats, strict=True)])


@onnx_op("DepthToSpace")
def depth_to_space(c: NodeContext) -> SSAValue:
    x, block = c.data(0), c.int("blocksize")
    n, channels, height, width = shape_of(x)
    depth = channels // (block * block)
    c.dims.same(channels, depth * (block * block))
    if c.string("mode", "DCR") == "DCR":
        split_ = c.build.reshape(x, (n, block, block, depth, height, width))
        moved = c.build.transpose(split_, (0, 3, 4, 1, 5, 2))
    else:
        split_ = c.build.reshape(x, (n, depth, block, block, height, width))
        moved = c.build.transpose(split_, (0, 1, 4, 2, 5, 3))
    return c.build.reshape(moved, (n, depth, height * block, width * block))


@onnx_op("SpaceToDepth")
def space_to_depth(c: NodeContext) -> SSAValue:
    x, block = c.data(0), c.int("blocksize")
    n, channels, height, width = shape_of(x)
    rows, columns = height // block, width // block
    x = reshape_to(c, x, (n, channels, rows, as_expr(block), columns, as_expr(block)))
    order = (0, 3, 5, 1, 2, 4) if c.string("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    moved = c.build.transpose(x, order)
    return c.build.reshape(moved, (n, channels * (block * block), rows, columns))


@onnx_op("ReverseSequence")
def reverse_sequence(c: NodeContext) -> SSAValue:
    """Reverses the first `sequence_lens[b]` elements of each batch entry."""
    build = c.build
    x, lengths = c.data(0), build.convert(c.data(1), I64)
    batch, time = c.int("batch_axis", 1), c.int("time_axis", 0)
    shape = shape_of(x)
    c.dims.same(shape_of(lengths)[0], shape[batch])
    flat = (shape[batch], shape[time])
    places = build.iota(I64, flat, 1)
    spread = build.broadcast_in_dim(lengths, (0,), flat)
    mirrored = c.with_scalar("subtract", build.binary("subtract", spread, places), 1)
    index = build.select(build.compare("LT", places, spread), mirrored, places)
    order = [batch, time, *(n for n in range(len(shape)) if n not in (batch, time))]
    moved = build.transpose(x, order)
    rest = shape_of(moved)[2:]
    taken = build.gather(
        moved,
        build.reshape(index, (*flat, _ONE)),
        offset_dims=[n + 2 for n in range(len(rest))],
        collapsed_slice_dims=[1],
        operand_batching_dims=[0],
        start_indices_batching_dims=[0],
        start_index_map=[1],
        index_vector_dim=2,
        slice_sizes=[_ONE, _ONE, *rest],
    )
    back = [order.index(n) for n in range(len(shape))]
    return build.transpose(taken, back)
