"""Index expressions as values of a machine."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.base.errors import error
from headrace.base.symbols import Expr, Operation, bounds
from headrace.kernel.lanes.machine import Machine, Value

# Sizes nobody bounds: large enough for any, small enough not to overflow a sum of bounds.
UNBOUNDED = 1 << 40


class Indices:
    """The names in scope, their values and ranges, and expressions over them.

    Attributes:
        names: values of axes and index values by name.
        ranges: inclusive bounds of names; decide whether a division needs a correction.
    """

    def __init__(self, machine: Machine, dims: Sequence[str]) -> None:
        self.machine = machine
        self.dims = tuple(dims)
        self.names: dict[str, Value] = {}
        self.ranges: dict[str, tuple[int, int]] = {d: (1, UNBOUNDED) for d in dims}

    def constant(self, value: int) -> Value:
        return self.machine.constant(self.machine.index_type, value)

    def value(self, expr: Expr) -> Value:
        """The value of an index expression; floor division and modulo as in Python."""
        found: list[Value] = []
        for monomial, coefficient in expr.terms:
            factor: Value | None = None
            for atom, power in monomial:
                value = self._name(atom) if isinstance(atom, str) else self._operation(atom)
                for _ in range(power):
                    factor = value if factor is None else factor * value
            if factor is None:
                factor = self.constant(coefficient)
            elif coefficient != 1:
                factor = factor * coefficient
            found.append(factor)
        return self.machine.sum(found) if found else self.constant(0)

    def _name(self, name: str) -> Value:
        found = self.names.get(name)
        if found is None:
            if name not in self.dims:
                raise error(
                    "HR9401",
                    f"a kernel uses the name '{name}' that it does not define",
                    notes=f"its dimensions are {', '.join(self.dims) or 'none'}",
                )
            found = self.machine.dimension(name)
        return found

    def _operation(self, operation: Operation) -> Value:
        values = [self.value(o) for o in operation.operands]
        if operation.name in ("max", "min"):
            result = values[0]
            for value in values[1:]:
                better = value.gt(result) if operation.name == "max" else value.lt(result)
                result = better.select(value, result)
            return result
        numerator, divisor = values
        plain = self.is_not_negative(operation.operands[0])
        plain = plain and self.is_not_negative(operation.operands[1])
        if operation.name == "floordiv":
            quotient = numerator / divisor
            if plain:
                return quotient
            rest = numerator - quotient * divisor
            wrong = rest.ne(0) & (rest ^ divisor).lt(0)
            return wrong.select(quotient - 1, quotient)
        rest = numerator % divisor
        if plain:
            return rest
        wrong = rest.ne(0) & (rest ^ divisor).lt(0)
        return wrong.select(rest + divisor, rest)

    def is_not_negative(self, expr: Expr) -> bool:
        found = bounds(expr, self.ranges)
        return found is not None and found[0] >= 0
