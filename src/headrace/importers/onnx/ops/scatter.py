"""Scatters: updates written or combined at places that indices name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, Union

from xdsl.ir import SSAValue

from headrace.base.dtypes import I64
from headrace.base.symbols import as_expr
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.ops.indexing import non_negative
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import dtype_of, shape_of
from headrace.tensor import dialect as d
from headrace.tensor.build import TensorBuilder

Reducer: TypeAlias = Union[str, Callable[..., Sequence[SSAValue]]]

_REDUCERS = {"add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}
_LOGICAL = {"add": "or", "mul": "and", "max": "or", "min": "and"}


def replace(b: TensorBuilder, old: SSAValue, new: SSAValue) -> list[SSAValue]:
    """The reducer that keeps the update: of several at one place, the last."""
    return [new]


def _reducer(c: NodeContext) -> Reducer:
    name = c.string("reduction", "none")
    if name == "none":
        return replace
    if name not in _REDUCERS:
        raise c.malformed(f"reduction '{name}' is unknown")
    return (_LOGICAL if c.dtype(0).kind == "bool" else _REDUCERS)[name]


@onnx_op("Scatter", "ScatterElements")
def scatter_elements(c: NodeContext) -> SSAValue:
    """Each update goes to its own place but for `axis`, where the index stands. Indices that
    differ along `axis` only move whole rows: so exporters write into a cache of keys."""
    b, x, updates = c.build, c.data(0), c.data(2)
    shape = shape_of(x)
    rank = len(shape)
    axis = c.axis("axis", rank, 0)
    rows = _rows(c, axis)
    if rows is not None:
        return _scatter_rows(c, axis, rows)
    indices = non_negative(c, b.convert(c.data(1), I64), shape[axis])
    places = c.common_shape(shape_of(indices), shape_of(updates))
    coordinates = [indices if n == axis else b.iota(I64, places, n) for n in range(rank)]
    vectors = b.concatenate([b.reshape(i, (*places, 1)) for i in coordinates], rank)
    return b.scatter(
        [x],
        vectors,
        [updates],
        _reducer(c),
        update_window_dims=[],
        inserted_window_dims=range(rank),
        scatter_dims_to_operand_dims=range(rank),
        index_vector_dim=rank,
    )[0]


@dataclass(frozen=True)
class _Rows:
    """Where whole rows go: `indices` [n]; `adjacent` ones follow the first."""

    indices: SSAValue
    adjacent: bool


def _rows(c: NodeContext, axis: int) -> _Rows | None:
    """The rows, where the updates are whole along the other axes and all their indices alike."""
    places, shape = c.shape(1), c.shape(0)
    whole = all(n == axis or size == shape[n] for n, size in enumerate(places))
    if not whole or places != c.shape(2) or not places[axis].is_constant:
        return None
    known = c.known(1)
    if known is None:
        indices = _spread_along(c, axis)
        if indices is None:
            return None
        return _Rows(indices, adjacent=places[axis] == as_expr(1))
    if not known.size or not shape[axis].is_constant:
        return None
    columns = known.swapaxes(0, axis).reshape(known.shape[axis], -1)
    rows = columns[:, 0].astype("int64") % shape[axis].value
    if (columns != columns[:, :1]).any():
        return None
    indices = c.as_data(c.from_array(rows))
    return _Rows(indices, adjacent=bool((rows[1:] - rows[:-1] == 1).all()))


def _spread_along(c: NodeContext, axis: int) -> SSAValue | None:
    """[n], where the indices are a broadcast of what differs along `axis` alone."""
    spread = c.data(1).owner
    if not isinstance(spread, d.BroadcastInDimOp):
        return None
    size = as_expr(1)
    for to, given in zip(
        spread.broadcast_dimensions.get_values(), shape_of(spread.operand), strict=True
    ):
        if to == axis:
            size = given
        elif given != as_expr(1):
            return None
    if size != c.shape(1)[axis]:
        return None
    return c.build.convert(c.build.reshape(spread.operand, [size]), I64)


def _scatter_rows(c: NodeContext, axis: int, rows: _Rows) -> SSAValue:
    b, x, updates = c.build, c.data(0), c.data(2)
    shape = shape_of(x)
    indices = non_negative(c, rows.indices, shape[axis])
    others = [n for n in range(len(shape)) if n != axis]
    reducer = _reducer(c)
    if rows.adjacent and reducer is replace:
        starts = [b.scalar(0, I64)] * len(shape)
        starts[axis] = b.reshape(c.slice_axis(indices, 0, 0, 1), [])
        return b.dynamic_update_slice(x, updates, starts)
    return b.scatter(
        [x],
        indices,
        [updates],
        reducer,
        update_window_dims=others,
        inserted_window_dims=[axis],
        scatter_dims_to_operand_dims=[axis],
        index_vector_dim=1,
    )[0]


@onnx_op("ScatterND")
def scatter_nd(c: NodeContext) -> SSAValue:
    """The last dimension of `indices` holds the leading coordinates of a slice."""
    b, x, updates = c.build, c.data(0), c.data(2)
    indices = b.convert(c.data(1), I64)
    places, shape = shape_of(indices), shape_of(x)
    if not places or not places[-1].is_constant:
        raise c.unsupported("the length of the index vectors must be known")
    width, batch = places[-1].value, len(places) - 1
    if width > len(shape):
        raise c.malformed(f"index vectors of {width} elements for rank {len(shape)}")
    if width:
        columns = [
            non_negative(c, c.slice_axis(indices, batch, n, n + 1), shape[n])
            for n in range(width)
        ]
        indices = b.concatenate(columns, batch)
    for wanted, given in zip((*places[:-1], *shape[width:]), shape_of(updates), strict=True):
        c.dims.same(wanted, given)
    return b.scatter(
        [x],
        indices,
        [updates],
        _reducer(c),
        update_window_dims=range(batch, batch + len(shape) - width),
        inserted_window_dims=range(width),
        scatter_dims_to_operand_dims=range(width),
        index_vector_dim=batch,
    )[0]


@onnx_op("TensorScatter")
def tensor_scatter(c: NodeContext) -> SSAValue:
    """Writes each batch entry's update into its cache at a place of its own."""
    b, cache, update = c.build, c.data(0), c.data(1)
    shape, written = shape_of(cache), shape_of(update)
    axis = c.axis("axis", len(shape), -2)
    if axis == 0:
        raise c.malformed("the axis cannot be the batch")
    mode = c.string("mode", "linear")
    if mode not in ("linear", "circular"):
        raise c.malformed(f"mode '{mode}' is unknown")
    flat = (written[0], written[axis])
    places = b.iota(I64, flat, 1)
    if c.has(2):
        starts = b.broadcast_in_dim(b.convert(c.data(2), I64), (0,), flat)
        places = b.binary("add", places, starts)
    if mode == "circular":
        length = b.broadcast_in_dim(c.count([shape[axis]], I64), (), flat)
        places = b.binary("remainder", places, length)
    both = [b.reshape(i, (*flat, as_expr(1))) for i in (b.iota(I64, flat, 0), places)]
    return b.scatter(
        [cache],
        b.concatenate(both, 2),
        [b.convert(update, dtype_of(cache))],
        replace,
        update_window_dims=[n for n in range(len(shape)) if n not in (0, axis)],
        inserted_window_dims=[0, axis],
        scatter_dims_to_operand_dims=[0, axis],
        index_vector_dim=2,
    )[0]
