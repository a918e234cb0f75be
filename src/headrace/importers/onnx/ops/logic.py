"""Comparisons, logic and bits."""

from __future__ import annotations

import math

from xdsl.ir import SSAValue

from headrace.base.dtypes import I1
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.ops.elementwise import aligned_operand
from headrace.importers.onnx.registry import onnx_op
from headrace.importers.onnx.values import Value
from headrace.ir.types import dtype_of, shape_of

_COMPARE = {
    "Equal": "EQ",
    "Greater": "GT",
    "GreaterOrEqual": "GE",
    "Less": "LT",
    "LessOrEqual": "LE",
}
_LOGIC = {
    "And": "and",
    "Or": "or",
    "Xor": "xor",
    "BitwiseAnd": "and",
    "BitwiseOr": "or",
    "BitwiseXor": "xor",
}


@onnx_op(*_COMPARE)
def compare(c: NodeContext) -> Value:
    left, right = c.broadcast(c.data(0), aligned_operand(c))
    made = c.build.compare(_COMPARE[c.node.op_type], left, right)
    value = Value("", I1, shape_of(made), ssa=made)
    sizes = [c.value(n).sizes for n in (0, 1)]
    if c.node.op_type == "Equal" and all(s is not None and s.size == 1 for s in sizes):
        value.compared = (sizes[0].item(), sizes[1].item())
    return value


@onnx_op(*_LOGIC)
def logic(c: NodeContext) -> SSAValue:
    return c.binary(_LOGIC[c.node.op_type], c.data(0), aligned_operand(c))


@onnx_op("Not", "BitwiseNot")
def negation(c: NodeContext) -> SSAValue:
    return c.build.unary("not", c.data(0))


@onnx_op("BitShift")
def bit_shift(c: NodeContext) -> SSAValue:
    """A right shift keeps the sign of signed integers; shifts by less than 0 are by all bits."""
    if c.string("direction") == "LEFT":
        return c.binary("shift_left", c.data(0), c.data(1))
    signed = c.dtype(0).kind == "signed"
    name = "shift_right_arithmetic" if signed else "shift_right_logical"
    return c.binary(name, c.data(0), c.data(1))


@onnx_op("Where")
def where(c: NodeContext) -> SSAValue:
    return c.build.select(*c.broadcast(c.data(0), c.data(1), c.data(2)))


@onnx_op("IsNaN")
def is_nan(c: NodeContext) -> SSAValue:
    x = c.data(0)
    return c.build.compare("NE", x, x)


@onnx_op("IsInf")
def is_infinite(c: NodeContext) -> SSAValue:
    x, b = c.data(0), c.build
    positive = c.flag("detect_positive", True)
    negative = c.flag("detect_negative", True)
    if dtype_of(x).name.endswith(("FN", "FNUZ")):  # these types have no infinity
        return c.build.compare("NE", b.unary("abs", x), b.unary("abs", x))
    tests = [
        b.compare("EQ", x, c.scalar_like(sign * math.inf, x))
        for sign, wanted in ((1, positive), (-1, negative))
        if wanted
    ]
    if not tests:
        return b.compare("LT", x, x)
    return tests[0] if len(tests) == 1 else b.binary("or", *tests)
