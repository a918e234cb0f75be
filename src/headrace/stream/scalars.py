"""Scalar operands of dispatches as size expressions: what the arithmetic before them says.

`stream.size`, constants and the casts, shifts and bit patterns that
`stream-pack-dispatch-operands` inserts all are expressions over named dimensions; 32-bit
words of 64-bit values are `x mod 2**32` and `x floordiv 2**32`.
"""

from __future__ import annotations

import struct
from typing import Any

from xdsl.dialects import arith
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, IntegerType
from xdsl.ir import Operation, SSAValue

from headrace.base.errors import error
from headrace.base.symbols import Expr, as_expr
from headrace.stream.dialect import SizeOp
from headrace.stream.places import place_of

_FLOAT_FORMATS = {"f64": "d", "f32": "f", "f16": "e"}


def scalar_expr(value: SSAValue) -> Expr:
    """The value as an expression; a float as its bit pattern.

    Raises:
        HeadraceDefect HR9508: it is computed by anything else.
    """
    op = value.owner
    if isinstance(op, SizeOp):
        return op.value.exprs[0]
    if isinstance(op, arith.ConstantOp):
        return _constant(op)
    if isinstance(op, (arith.IndexCastOp, arith.ExtUIOp, arith.BitcastOp)):
        return scalar_expr(op.input)
    if isinstance(op, arith.TruncIOp):
        return scalar_expr(op.input) % (1 << op.result.type.bitwidth)
    if isinstance(op, arith.ShRUIOp):
        amount = scalar_expr(op.rhs)
        if amount.is_constant:
            return scalar_expr(op.lhs) // (1 << amount.value)
    where = place_of(op) if isinstance(op, Operation) else ()
    raise error("HR9508", "a push constant is no size expression", at=where)


def _constant(op: arith.ConstantOp) -> Expr:
    value: Any = op.value
    if isinstance(value, IntegerAttr):
        number = value.value.data
        kind = value.type
        if isinstance(kind, IntegerType) and number < 0:
            number += 1 << kind.bitwidth
        return as_expr(number)
    if isinstance(value, FloatAttr):
        number = float(value.value.data)
        name = str(value.type)
        if name == "bf16":
            return as_expr(struct.unpack("<I", struct.pack("<f", number))[0] >> 16)
        if name in _FLOAT_FORMATS:
            raw = struct.pack(f"<{_FLOAT_FORMATS[name]}", number)
            return as_expr(int.from_bytes(raw, "little"))
    raise error("HR9508", f"a push constant from {op.value}", at=place_of(op))
