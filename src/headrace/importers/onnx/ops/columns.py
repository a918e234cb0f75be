"""The inverses of taking windows apart: Col2Im and MaxUnpool."""

from __future__ import annotations

from itertools import product
from math import prod

from xdsl.ir import SSAValue

from headrace.base.dtypes import I64
from headrace.base.symbols import Expr, as_expr
from headrace.base.symbols import product as product_of
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.ops.scatter import replace
from headrace.importers.onnx.ops.windows import padding, spatial
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import dtype_of, shape_of

_MOST_WINDOW_ELEMENTS = 4096


@onnx_op("Col2Im")
def column_to_image(c: NodeContext) -> SSAValue:
    """Adds the columns' elements up where they came from.

    One term an element of the window: what all windows hold there, spread by the strides.
    """
    b, x = c.build, c.data(0)
    image = c.sizes(1)
    block = c.integers_at(2)
    count = len(image)
    if len(block) != count or min(block, default=0) < 1:
        raise c.malformed(f"'block_shape' must have {count} positive entries")
    if prod(block) > _MOST_WINDOW_ELEMENTS:
        raise c.unsupported(f"a block of more than {_MOST_WINDOW_ELEMENTS} elements")
    strides, dilations = spatial(c, "strides", count), spatial(c, "dilations", count)
    low, high = padding(c, image, block, strides)
    windows: list[Expr] = []
    for n in range(count):
        reach = (block[n] - 1) * dilations[n] + 1
        windows.append((image[n] + low[n] + high[n] - reach) // strides[n] + 1)
    batch, rows, columns = shape_of(x)
    c.dims.same(columns, product_of(windows))
    channels = rows // prod(block)
    c.dims.same(rows, channels * prod(block))
    parted = b.reshape(x, (batch, channels, prod(block), *windows))
    zero = b.scalar(0, dtype_of(x))
    total: SSAValue | None = None
    for n, place in enumerate(product(*(range(k) for k in block))):
        part = b.reshape(c.slice_axis(parted, 2, n, n + 1), (batch, channels, *windows))
        before = [as_expr(p * d) - lo for p, d, lo in zip(place, dilations, low, strict=True)]
        behind = [
            image[m] - before[m] - ((windows[m] - 1) * strides[m] + 1) for m in range(count)
        ]
        spread = b.pad(
            part, zero, (0, 0, *before), (0, 0, *behind), (0, 0, *(s - 1 for s in strides))
        )
        total = spread if total is None else b.binary("add", total, spread)
    assert total is not None
    return total


@onnx_op("MaxUnpool")
def max_unpool(c: NodeContext) -> SSAValue:
    """Elements back at the flat places that MaxPool gave, zero elsewhere.

    Places count in the shape that the windows imply; a larger `output_shape` adds zeros
    behind, as ONNX's reference has it.
    """
    b, x = c.build, c.data(0)
    shape = shape_of(x)
    count = len(shape) - 2
    sizes = spatial(c, "kernel_shape", count)
    strides = spatial(c, "strides", count)
    low, high = padding(c, shape[2:], sizes, strides)
    space = [
        (shape[2 + n] - 1) * strides[n] + sizes[n] - low[n] - high[n] for n in range(count)
    ]
    implied = (*shape[:2], *space)
    total = product_of(implied)
    elements = product_of(shape)
    made = b.scatter(
        [b.splat(0, dtype_of(x), (total,))],
        b.reshape(b.convert(c.data(1), I64), (elements, 1)),
        [b.reshape(x, (elements,))],
        replace,
        update_window_dims=[],
        inserted_window_dims=[0],
        scatter_dims_to_operand_dims=[0],
        index_vector_dim=1,
    )[0]
    made = b.reshape(made, implied)
    if not c.has(2):
        return made
    more = [w - g for w, g in zip(c.sizes(2), implied, strict=True)]
    return b.pad(made, b.scalar(0, dtype_of(x)), [0] * len(shape), more)
