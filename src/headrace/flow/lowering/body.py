"""Makes the scalar operations of a phase, each once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from headrace.base.dtypes import I1, I64, DType
from headrace.base.symbols import Expr, as_expr
from headrace.kernel.description import (
    Compute,
    Constant,
    IndexValue,
    Load,
    LoadLocal,
    Scalar,
    ScalarOperation,
)
from headrace.kernel.text import print_scalar


def python_scalar(value: Any, dtype: DType) -> Scalar:
    """A numpy scalar as the Python value that `Constant` holds."""
    if dtype.kind == "bool":
        return bool(value)
    if dtype.kind == "float":
        return float(value)
    if dtype.kind == "complex":
        return complex(value)
    return int(value)


class Body:
    """A straight line of scalar operations in SSA form; equal operations are shared."""

    def __init__(self, numbers: Iterator[int] | None = None) -> None:
        self.operations: list[ScalarOperation] = []
        self.dtypes: dict[str, DType] = {}
        self.memo: dict[Any, str] = {}
        self._numbers = numbers if numbers is not None else itertools.count()

    def _add(self, key: tuple[Any, ...], dtype: DType, make: Any) -> str:
        known = self.memo.get(key)
        if known is not None:
            return known
        name = f"%v{next(self._numbers)}"
        self.operations.append(make(name))
        self.dtypes[name] = dtype
        self.memo[key] = name
        return name

    def load(
        self,
        operand: int,
        dtype: DType,
        index: tuple[Expr, ...],
        bounded: tuple[int, ...] = (),
        otherwise: Scalar | None = None,
    ) -> str:
        shown = None if otherwise is None else print_scalar(otherwise)
        key = ("load", operand, index, bounded, shown)
        return self._add(key, dtype, lambda n: Load(n, operand, index, bounded, otherwise))

    def load_local(self, local: str, dtype: DType, index: tuple[Expr, ...] = ()) -> str:
        return self._add(("local", local, index), dtype, lambda n: LoadLocal(n, local, index))

    def constant(self, value: Scalar, dtype: DType) -> str:
        key = ("constant", dtype.name, print_scalar(value))
        return self._add(key, dtype, lambda n: Constant(n, dtype, value))

    def index(self, value: Expr, dtype: DType) -> str:
        if value.is_constant:
            return self.constant(python_scalar(value.value, dtype), dtype)
        key = ("index", dtype.name, value)
        return self._add(key, dtype, lambda n: IndexValue(n, dtype, value))

    def compute(
        self, operation: str, operands: tuple[str, ...], dtype: DType, attribute: str = ""
    ) -> str:
        key = ("compute", operation, operands, dtype.name, attribute)
        return self._add(
            key, dtype, lambda n: Compute(n, operation, operands, dtype, attribute)
        )

    def convert(self, value: str, dtype: DType) -> str:
        if self.dtypes[value] == dtype:
            return value
        return self.compute("convert", (value,), dtype)

    def both(self, left: str | None, right: str) -> str:
        """Logical and; `left` may be missing."""
        return right if left is None else self.compute("and", (left, right), I1)

    def compare(self, direction: str, left: Expr, right: Expr | int) -> str:
        """Compares two index expressions."""
        a, b = self.index(left, I64), self.index(as_expr(right), I64)
        return self.compute("compare", (a, b), I1, direction)
