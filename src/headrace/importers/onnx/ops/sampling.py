"""Arithmetic that runs now on numpy arrays where all is known, else becomes operations.

Resampling needs positions and weights of every result place. With constant sizes they
are constants; with symbolic ones the same formulas become tensor operations on f32.
"""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from headrace.base.dtypes import F32, I64
from headrace.base.symbols import Expr
from headrace.importers.onnx.context import NodeContext
from headrace.ir.types import shape_of

_LONGEST_TABLE = 1 << 16  # longer constants are computed, not stored


class Arithmetic:
    """Elementwise formulas over rank-1 operands: numpy arrays, SSA values, numbers."""

    def __init__(self, c: NodeContext) -> None:
        self.c = c

    def index(self, length: Expr) -> Any:
        """0, 1, ... as floats."""
        import numpy as np

        if length.is_constant and length.value <= _LONGEST_TABLE:
            return np.arange(length.value, dtype=np.float64)
        return self.c.build.iota(F32, (length,), 0)

    def size(self, value: Expr, length: Expr) -> Any:
        """A size as a float operand for rank-1 operands of `length`."""
        if value.is_constant and length.is_constant and length.value <= _LONGEST_TABLE:
            return float(value.value)
        scalar = self.c.build.convert(self.c.build.dimension(value, I64), F32)
        return self.c.build.broadcast_in_dim(scalar, (), (length,))

    def __call__(self, name: str, left: Any, right: Any) -> Any:
        """add, subtract, multiply, divide, maximum or minimum."""
        import numpy as np

        if not isinstance(left, SSAValue) and not isinstance(right, SSAValue):
            return getattr(np, name)(left, right)
        left, right = self._alike(left, right)
        return self.c.build.binary(name, left, right)

    def floor(self, operand: Any) -> Any:
        import numpy as np

        if isinstance(operand, SSAValue):
            return self.c.build.unary("floor", operand)
        return np.floor(operand)

    def ceil(self, operand: Any) -> Any:
        import numpy as np

        if isinstance(operand, SSAValue):
            return self.c.build.unary("ceil", operand)
        return np.ceil(operand)

    def inside(self, operand: Any, last: Any) -> Any:
        """1 where 0 <= operand <= last, else 0, as a float."""
        import numpy as np

        if not isinstance(operand, SSAValue) and not isinstance(last, SSAValue):
            return ((operand >= 0) & (operand <= last)).astype(np.float64)
        operand, last = self._alike(operand, last)
        b = self.c.build
        both = b.binary(
            "and",
            b.compare("GE", operand, self.c.scalar_like(0, operand)),
            b.compare("LE", operand, last),
        )
        return b.convert(both, F32)

    def clamped_index(self, operand: Any, last: Any) -> SSAValue:
        """The operand, at least 0 and at most `last`, as i64 data."""
        import numpy as np

        bounded = self("minimum", self("maximum", operand, 0.0), last)
        if isinstance(bounded, SSAValue):
            return self.c.build.convert(bounded, I64)
        return self.c.as_data(self.c.from_array(np.asarray(bounded).astype(np.int64)))

    def data(self, operand: Any) -> SSAValue:
        """The operand as f32 data."""
        import numpy as np

        if isinstance(operand, SSAValue):
            return operand
        return self.c.as_data(self.c.from_array(np.asarray(operand).astype(np.float32)))

    def _alike(self, left: Any, right: Any) -> tuple[SSAValue, SSAValue]:
        like = left if isinstance(left, SSAValue) else right
        return self._spread(left, like), self._spread(right, like)

    def _spread(self, operand: Any, like: SSAValue) -> SSAValue:
        if isinstance(operand, SSAValue):
            return operand
        if getattr(operand, "ndim", 0):
            return self.data(operand)
        return self.c.build.splat(float(operand), F32, shape_of(like))
