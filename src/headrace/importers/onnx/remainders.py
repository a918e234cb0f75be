"""Bounds of sizes that hold a name both as it stands and divided: `N - 441 * (N floordiv 441)`.

Interval arithmetic takes each place of a name for itself, so it does not see that the
difference is at most 440. With `N = 441 * q + r` it does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from headrace.base.symbols import Expr, Operation, atom_names, bounds, dim

Range = tuple[int, int]

_LARGEST_CONSTANT = 1024
_LONGEST_PERIOD = 1024
_MOST_SPLIT = 4
"""How many names and divisors are tried for one expression."""


def bounds_by_remainder(expr: Expr, ranges: Mapping[str, Range]) -> Range | None:
    """The least and the greatest value over inclusive ranges of the names; never too narrow.

    As `base.symbols.bounds`, and narrower where a name is divided by a constant.
    """
    found = bounds(expr, ranges)
    if found is None:
        return None
    low, high = found
    for name, divisor in sorted(set(_divided(expr)))[:_MOST_SPLIT]:
        if name not in ranges or _places(expr, name) < 2:
            continue
        quotient, remainder = f"{name} quotient", f"{name} remainder"
        parts = dim(quotient) * divisor + dim(remainder)
        least, most = ranges[name]
        split = {
            **ranges,
            quotient: (least // divisor, most // divisor),
            remainder: (0, divisor - 1),
        }
        narrower = bounds(expr.substitute({name: parts}), split)
        if narrower is not None:
            low, high = max(low, narrower[0]), min(high, narrower[1])
    return low, high


def is_always_zero(expr: Expr, low: int) -> bool:
    """Whether an expression of one name is 0 for all of its values from `low` on.

    Made of sums, extrema, quotients and remainders by constants, it runs, behind its last
    bend, on a line that repeats: where it is 0 over many periods there, it stays so.
    """
    constants = [abs(n) for n in _constants(expr)]
    if (
        len(expr.names) != 1
        or not _bends(expr)
        or max(constants, default=0) > _LARGEST_CONSTANT
    ):
        return False
    (name,) = expr.names
    period = math.lcm(1, *(divisor for _, divisor in _divided(expr)))
    if period > _LONGEST_PERIOD:
        return False
    last = 4 * (_LARGEST_CONSTANT + _LONGEST_PERIOD)
    return all(expr.evaluate({name: n}) == 0 for n in range(low, low + last))


def _constants(expr: Expr) -> Iterator[int]:
    for monomial, coefficient in expr.terms:
        yield coefficient
        for atom, _ in monomial:
            if isinstance(atom, Operation):
                for operand in atom.operands:
                    yield from _constants(operand)


def _bends(expr: Expr) -> bool:
    """Whether every term is a constant times one name or operation, divisors constants."""
    for monomial, _ in expr.terms:
        if len(monomial) > 1 or any(power != 1 for _, power in monomial):
            return False
        for atom, _power in monomial:
            if isinstance(atom, Operation):
                divides = atom.name in ("floordiv", "mod")
                if divides and not (
                    atom.operands[1].is_constant and atom.operands[1].value > 0
                ):
                    return False
                if not all(_bends(operand) for operand in atom.operands):
                    return False
    return True


def _divided(expr: Expr) -> Iterator[tuple[str, int]]:
    """Names with the constants that they are divided by."""
    for monomial, _ in expr.terms:
        for atom, _power in monomial:
            if not isinstance(atom, Operation):
                continue
            for operand in atom.operands:
                yield from _divided(operand)
            if atom.name in ("floordiv", "mod") and atom.operands[1].is_constant:
                divisor = atom.operands[1].value
                names = _plain_names(atom.operands[0]) if divisor > 1 else ()
                yield from ((name, divisor) for name in names)


def _plain_names(expr: Expr) -> Iterator[str]:
    """Names that a sum has as terms, times constants."""
    for monomial, _ in expr.terms:
        if len(monomial) == 1 and isinstance(monomial[0][0], str) and monomial[0][1] == 1:
            yield monomial[0][0]


def _places(expr: Expr, name: str) -> int:
    """In how many terms a name stands; terms inside of an extremum count each."""
    count = 0
    for monomial, _ in expr.terms:
        for atom, _power in monomial:
            if isinstance(atom, Operation) and atom.name in ("min", "max"):
                count += sum(_places(o, name) for o in atom.operands)
            elif name in atom_names(atom):
                count += 1
    return count
