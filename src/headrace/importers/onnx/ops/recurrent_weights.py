"""Weights of recurrent operators: floats, or numbers that stand for floats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from xdsl.ir import SSAValue

from headrace.base.dtypes import F32, I16, I32, UI8
from headrace.base.symbols import ExprLike, as_expr
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.ops.points import working_type
from headrace.importers.onnx.ops.quantization import dynamically_quantised
from headrace.ir.types import dtype_of, shape_of


class Weights(Protocol):
    """What inputs or states of one direction are multiplied with, all gates side by side."""

    def times(self, c: NodeContext, x: SSAValue, start: ExprLike, end: ExprLike) -> SSAValue:
        """[..., inner] times the columns from start to end: [..., end - start]."""
        ...


ReadWeights = Callable[[NodeContext, int, int], Weights]
"""Of a node, the input's index and the direction's number."""


@dataclass(frozen=True)
class FloatWeights:
    """`matrix` is [columns, inner], in the working type."""

    matrix: SSAValue

    def times(self, c: NodeContext, x: SSAValue, start: ExprLike, end: ExprLike) -> SSAValue:
        """See `Weights`."""
        b, last = c.build, len(shape_of(x)) - 1
        part = c.slice_axis(self.matrix, 0, start, end)
        return b.dot_general(b.convert(x, dtype_of(part)), part, contract=((last,), (1,)))


@dataclass(frozen=True)
class NumberWeights:
    """Weights of 8 bits; what they are multiplied with becomes 8 bits over its own range.

    Attributes:
        matrix: [inner, columns] i16, less their zero point.
        scale: f32, [1] or [columns].
    """

    matrix: SSAValue
    scale: SSAValue

    def times(self, c: NodeContext, x: SSAValue, start: ExprLike, end: ExprLike) -> SSAValue:
        """See `Weights`. Whole rows of x share a scale, as in onnxruntime's products."""
        b, last = c.build, len(shape_of(x)) - 1
        number, scale, zero = dynamically_quantised(c, x, UI8)
        zero = b.broadcast_in_dim(b.convert(zero, I16), (), shape_of(x))
        left = b.binary("subtract", b.convert(number, I16), zero)
        part = c.slice_axis(self.matrix, 1, start, end)
        sums = b.dot_general(left, part, contract=((last,), (0,)), dtype=I32)
        columns = self.scale
        if shape_of(columns) != (as_expr(1),):
            columns = c.slice_axis(columns, 0, start, end)
        factor = c.binary("multiply", columns, scale)
        return c.binary("multiply", b.convert(sums, F32), factor)


def of_direction(c: NodeContext, index: int, n: int) -> SSAValue:
    """One direction's part of an input, as it is stored."""
    x = c.data(index)
    return c.build.reshape(c.slice_axis(x, 0, n, n + 1), shape_of(x)[1:])


def float_weights(c: NodeContext, index: int, n: int) -> Weights:
    """Of [directions, columns, inner] floats."""
    part = of_direction(c, index, n)
    return FloatWeights(c.build.convert(part, working_type(dtype_of(part))))


def number_weights(c: NodeContext, index: int, n: int) -> Weights:
    """Of [directions, inner, columns] numbers of `DynamicQuantizeLSTM`.

    Scales and zero points, inputs 8 to 11, are one a direction or one a column.
    """
    b, first = c.build, 8 + 2 * (index - 1)
    matrix = b.convert(of_direction(c, index, n), I16)
    zero = b.convert(_row(c, first + 1, n), I16)
    return NumberWeights(c.binary("subtract", matrix, zero), _row(c, first, n))


def _row(c: NodeContext, index: int, n: int) -> SSAValue:
    """One direction's part of [directions] or [directions, columns], as a vector."""
    part = c.slice_axis(c.data(index), 0, n, n + 1)
    return c.build.reshape(part, shape_of(part)[-1:])
