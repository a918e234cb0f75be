"""Constants, sizes, types."""

from __future__ import annotations

import math
from typing import Any

from xdsl.ir import SSAValue

from headrace.base.dtypes import F32, I1, I64, DType
from headrace.base.parameters import array_source
from headrace.base.symbols import Expr, as_expr, product
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.registry import Result, onnx_op
from headrace.importers.onnx.values import SMALL_ELEMENTS, Value, sizes_array
from headrace.importers.onnx.weights import element_dtype, tensor_source
from headrace.ir.types import shape_of


@onnx_op("Constant")
def constant(c: NodeContext) -> Value:
    return constant_value(c)


def constant_value(c: NodeContext) -> Value:
    """The value of a Constant node, kept as a source until it is used as data."""
    import numpy as np
    from onnx import TensorProto

    if c.has_attribute("value"):
        tensor = c.attribute("value", TensorProto, None)
        source = tensor_source(tensor, c.folder, c.node.place)
    elif c.has_attribute("value_float"):
        source = array_source(np.float32(c.float("value_float")))
    elif c.has_attribute("value_floats"):
        source = array_source(np.array(c.floats("value_floats"), np.float32))
    elif c.has_attribute("value_int"):
        source = array_source(np.int64(c.int("value_int")))
    elif c.has_attribute("value_ints"):
        source = array_source(np.array(c.ints("value_ints"), np.int64))
    else:
        kinds = ", ".join(c.node.attributes) or "no value"
        raise c.unsupported(f"a constant with {kinds}")
    return c.from_source(source)


@onnx_op("ConstantOfShape")
def constant_of_shape(c: NodeContext) -> Result:
    import numpy as np

    shape = c.sizes(0)
    filled: Any = c.tensor("value") if c.has_attribute("value") else np.zeros(1, np.float32)
    if filled.size != 1:
        raise c.malformed("the value must have one element")
    number = filled.reshape(())
    if number.dtype.kind in "iub" and c.fits_small(shape):
        static = tuple(s.value for s in shape)
        return c.from_source(array_source(np.full(static, number, number.dtype)))
    return c.build.broadcast_in_dim(c.build.constant(number), (), shape)


@onnx_op("Shape")
def shape(c: NodeContext) -> Value:
    sizes = list(c.shape(0))
    if c.has_attribute("start") or c.has_attribute("end"):
        sizes = sizes[c.int("start", 0) : c.int("end", len(sizes))]
    return c.of_sizes(sizes)


@onnx_op("Size")
def size(c: NodeContext) -> Value:
    return Value("", I64, (), sizes=sizes_array([product(c.shape(0))], ()))


@onnx_op("Identity", "Dropout")
def identity(c: NodeContext) -> list[Result]:
    """Dropout before opset 12 drops nothing; its mask is all true, of x's type before 10."""
    value = c.value(0)
    results: list[Result] = [value]
    if c.wants(1):
        results.append(c.build.splat(1, I1 if c.opset >= 10 else value.dtype, value.shape))
    return results


@onnx_op("Range")
def range_(c: NodeContext) -> Result:
    """start, start + delta, ... while before limit."""
    import numpy as np

    kind = c.dtype(0)
    build = c.build
    if kind.is_float and not _are_sizes(c):
        start, limit, delta = (float(c.constant(n)) for n in range(3))
        if delta == 0:
            raise c.malformed("the step is 0")
        count = max(math.ceil((limit - start) / delta), 0)
        if count > SMALL_ELEMENTS:
            return _long_range(c, count, start, delta, kind)
        steps = np.arange(count, dtype=np.float64)
        array = np.asarray(start + steps * delta).astype(kind.numpy_dtype)
        return c.from_source(array_source(array))
    first, step = c.data(0), c.data(2)
    length = range_length(c, c.size(0), c.size(1), c.size(2))
    index = build.iota(kind, (length,), 0)
    scaled = build.binary("multiply", index, build.broadcast_to(step, (length,)))
    return build.binary("add", scaled, build.broadcast_to(first, (length,)))


def _are_sizes(c: NodeContext) -> bool:
    """Whether the bounds are whole numbers, one of them symbolic."""
    sizes = [c.value(n).sizes for n in range(3)]
    if any(s is None for s in sizes):
        return False
    return not all(s.reshape(-1)[0].is_constant for s in sizes)


def _long_range(
    c: NodeContext, count: int, start: float, delta: float, kind: DType
) -> SSAValue:
    wide = kind if kind.bits >= 32 else F32
    index = c.build.iota(wide, (count,), 0)
    made = c.with_scalar("add", c.with_scalar("multiply", index, delta), start)
    return c.build.convert(made, kind)


def range_length(c: NodeContext, start: Expr, limit: Expr, delta: Expr) -> Expr:
    """How many elements a range has."""
    if not delta.is_constant or delta.value == 0:
        raise c.unsupported("a range needs a constant step that is not 0")
    step = delta.value
    span = limit - start if step > 0 else start - limit
    return c.dims.maximum((span + (abs(step) - 1)) // abs(step), 0)


@onnx_op("EyeLike")
def eye_like(c: NodeContext) -> SSAValue:
    kind = element_dtype(c.int("dtype"), c.node.place) if c.has_attribute("dtype") else None
    shape_ = c.shape(0)
    rows = c.build.iota(I64, shape_, 0)
    columns = c.build.iota(I64, shape_, 1)
    shifted = c.with_scalar("add", rows, c.int("k", 0))
    return c.build.convert(c.build.compare("EQ", columns, shifted), kind or c.dtype(0))


@onnx_op("Trilu", domain="com.microsoft")
@onnx_op("Trilu")
def trilu(c: NodeContext) -> SSAValue:
    """The upper (or lower) triangle, zero elsewhere."""
    x = c.data(0)
    shape_ = shape_of(x)
    rows = c.build.iota(I64, shape_, len(shape_) - 2)
    columns = c.build.iota(I64, shape_, len(shape_) - 1)
    if c.has(1):
        k = c.data(1)
        offset = c.build.broadcast_to(c.build.reshape(k, ()) if shape_of(k) else k, shape_)
    else:
        offset = c.build.splat(0, I64, shape_)
    border = c.build.binary("add", rows, offset)
    direction = "GE" if c.flag("upper", True) else "LE"
    inside = c.build.compare(direction, columns, border)
    return c.build.select(inside, x, c.scalar_like(0, x))


@onnx_op("OneHot")
def one_hot(c: NodeContext) -> SSAValue:
    """`values[1]` where the index (negative from the end) is the position, else `[0]`."""
    build = c.build
    depth = c.size(1)
    indices = build.convert(c.data(0), I64)
    before = shape_of(indices)
    axis = c.axis("axis", len(before) + 1, -1)
    result = (*before[:axis], depth, *before[axis:])
    spread = build.broadcast_in_dim(
        indices, [n if n < axis else n + 1 for n in range(len(before))], result
    )
    count = build.broadcast_in_dim(build.dimension(depth, I64), (), result)
    negative = build.compare("LT", spread, build.splat(0, I64, result))
    spread = build.select(negative, build.binary("add", spread, count), spread)
    hit = build.compare("EQ", spread, build.iota(I64, result, axis))
    values = c.data(2)
    off, on = (
        build.broadcast_in_dim(build.reshape(c.slice_axis(values, 0, n, n + 1), ()), (), result)
        for n in (0, 1)
    )
    return build.select(hit, on, off)


def scalar(c: NodeContext, index: int) -> SSAValue:
    """An input of one element as a rank-0 tensor."""
    value = c.data(index)
    if product(shape_of(value)) != as_expr(1):
        raise c.malformed(f"input {index} must have one element")
    return c.build.reshape(value, ())
