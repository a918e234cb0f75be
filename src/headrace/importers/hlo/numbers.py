"""Formulas as they are written: operators on tensor values of one float type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, Union

from xdsl.ir import SSAValue

from headrace.ir.types import dtype_of, shape_of
from headrace.tensor.build import TensorBuilder

Operand: TypeAlias = Union["Number", float]


@dataclass(frozen=True)
class Truth:
    """An i1 tensor."""

    builder: TensorBuilder
    value: SSAValue

    def both(self, other: Truth) -> Truth:
        return Truth(self.builder, self.builder.binary("and", self.value, other.value))

    def either(self, other: Truth) -> Truth:
        return Truth(self.builder, self.builder.binary("or", self.value, other.value))


@dataclass(frozen=True, eq=False)
class Number:
    """A tensor of floats; plain numbers beside it stand for tensors of its shape."""

    builder: TensorBuilder
    value: SSAValue

    def like(self, number: float) -> Number:
        """A constant of this tensor's type."""
        kind, shape = dtype_of(self.value), shape_of(self.value)
        return Number(self.builder, self.builder.splat(number, kind, shape))

    def _other(self, other: Operand) -> SSAValue:
        return other.value if isinstance(other, Number) else self.like(other).value

    def _binary(self, name: str, other: Operand) -> Number:
        return Number(self.builder, self.builder.binary(name, self.value, self._other(other)))

    def _reversed(self, name: str, other: float) -> Number:
        return Number(
            self.builder, self.builder.binary(name, self.like(other).value, self.value)
        )

    def _unary(self, name: str) -> Number:
        return Number(self.builder, self.builder.unary(name, self.value))

    def _compare(self, direction: str, other: Operand) -> Truth:
        made = self.builder.compare(direction, self.value, self._other(other))
        return Truth(self.builder, made)

    def __add__(self, other: Operand) -> Number:
        return self._binary("add", other)

    def __radd__(self, other: float) -> Number:
        return self._reversed("add", other)

    def __sub__(self, other: Operand) -> Number:
        return self._binary("subtract", other)

    def __rsub__(self, other: float) -> Number:
        return self._reversed("subtract", other)

    def __mul__(self, other: Operand) -> Number:
        return self._binary("multiply", other)

    def __rmul__(self, other: float) -> Number:
        return self._reversed("multiply", other)

    def __truediv__(self, other: Operand) -> Number:
        return self._binary("divide", other)

    def __rtruediv__(self, other: float) -> Number:
        return self._reversed("divide", other)

    def __neg__(self) -> Number:
        return self._unary("negate")

    def __abs__(self) -> Number:
        return self._unary("abs")

    def __lt__(self, other: Operand) -> Truth:
        return self._compare("LT", other)

    def __le__(self, other: Operand) -> Truth:
        return self._compare("LE", other)

    def __gt__(self, other: Operand) -> Truth:
        return self._compare("GT", other)

    def __ge__(self, other: Operand) -> Truth:
        return self._compare("GE", other)

    def equals(self, other: Operand) -> Truth:
        return self._compare("EQ", other)

    def is_nan(self) -> Truth:
        return self._compare("NE", self)

    def is_finite(self) -> Truth:
        return Truth(self.builder, self.builder.unary("is_finite", self.value))

    def exp(self) -> Number:
        return self._unary("exponential")

    def expm1(self) -> Number:
        return self._unary("exponential_minus_one")

    def log(self) -> Number:
        return self._unary("log")

    def log1p(self) -> Number:
        return self._unary("log_plus_one")

    def sqrt(self) -> Number:
        return self._unary("sqrt")

    def sin(self) -> Number:
        return self._unary("sine")

    def cos(self) -> Number:
        return self._unary("cosine")

    def tan(self) -> Number:
        return self._unary("tan")

    def erf(self) -> Number:
        return self._unary("erf")

    def floor(self) -> Number:
        return self._unary("floor")

    def sign(self) -> Number:
        return self._unary("sign")

    def atan2(self, other: Operand) -> Number:
        """The angle of (other, self)."""
        return self._binary("atan2", other)

    def with_sign_of(self, other: Number) -> Number:
        """Negated where the other is below 0."""
        return choose(other < 0.0, -self, self)

    def polynomial(self, coefficients: Sequence[float]) -> Number:
        """By Horner's rule; the constant term comes first."""
        total = self.like(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            total = total * self + coefficient
        return total


def number(builder: TensorBuilder, value: SSAValue) -> Number:
    """A tensor value for formulas."""
    return Number(builder, value)


def choose(condition: Truth, on_true: Number, on_false: Number) -> Number:
    """`on_true` where the condition holds."""
    builder = condition.builder
    return Number(builder, builder.select(condition.value, on_true.value, on_false.value))
