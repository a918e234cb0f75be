"""Divisions in offsets resolved by what is known of the axes.

A reshape in front of a load leaves `floordiv` and `mod` in its index. Most of them go:
`(64 h + d) floordiv 768` is 0 where h < 12 and d < 64, and `(e floordiv 4) * 4 + e mod 4`
is e. Axes of which quotient and remainder are used apart are split in two (`nest.py`),
so that offsets are linear again and vectors can run along them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.base.symbols import (
    ONE,
    ZERO,
    Atom,
    Expr,
    Operation,
    as_expr,
    bounds,
    dim,
    floordiv,
    operation,
)

_Ranges = Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Facts:
    """What is known of names.

    Attributes:
        sizes: axes: each lies in 0 to its size - 1.
        ranges: inclusive ranges of axes and dimensions.
    """

    sizes: Mapping[str, Expr]
    ranges: _Ranges

    def within(self, expr: Expr, size: Expr) -> bool:
        """Whether 0 <= expr < size certainly holds (where the axes have points at all)."""
        found = bounds(expr, self.ranges)
        if found is None or found[0] < 0:
            return False
        extent = bounds(size, self.ranges)
        if extent is not None and found[1] < extent[0]:
            return True
        room = bounds(size - 1 - self._highest(expr), self.ranges)
        return room is not None and room[0] >= 0

    def _highest(self, expr: Expr) -> Expr:
        """An upper bound: axes in terms with a positive coefficient at their ends."""
        total = ZERO
        for monomial, coefficient in expr.terms:
            term = Expr(((monomial, coefficient),))
            if coefficient > 0:
                term = term.substitute({n: self.sizes[n] - 1 for n in _plain(monomial, self)})
            else:
                term = term.substitute({n: ZERO for n in _plain(monomial, self)})
            total = total + term
        return total


def _plain(monomial: tuple[tuple[Atom, int], ...], facts: Facts) -> list[str]:
    """Axes that are factors by themselves, beside nothing that may be negative."""
    for atom, _ in monomial:
        if isinstance(atom, Operation):
            found = bounds(Expr(((((atom, 1),), 1),)), facts.ranges)
            if found is None or found[0] < 0:
                return []
    return [a for a, _ in monomial if isinstance(a, str) and a in facts.sizes]


def simplify(expr: Expr, facts: Facts) -> Expr:
    """An equal expression, for all values that the facts allow, with fewer divisions."""
    if not _has_division(expr):
        return expr
    total = ZERO
    for monomial, coefficient in expr.terms:
        term = as_expr(coefficient)
        for atom, power in monomial:
            factor = dim(atom) if isinstance(atom, str) else _atom(atom, facts)
            for _ in range(power):
                term = term * factor
        total = total + term
    return _joined(total)


def _has_division(expr: Expr) -> bool:
    return any(isinstance(a, Operation) for m, _ in expr.terms for a, _ in m)


def _atom(atom: Operation, facts: Facts) -> Expr:
    operands = [simplify(o, facts) for o in atom.operands]
    if atom.name not in ("floordiv", "mod"):
        return operation(atom.name, operands)
    numerator, divisor = operands
    multiple, rest = _multiples(numerator, divisor)
    if facts.within(rest, divisor):
        return multiple if atom.name == "floordiv" else rest
    found = bounds(rest, facts.ranges)
    if found is None or found[0] < 0:
        return operation(atom.name, operands)
    if divisor.is_constant and divisor.value > 1:
        coarser = _coarser(atom.name, rest, divisor.value, facts)
        if coarser is not None:
            return multiple + coarser if atom.name == "floordiv" else coarser
    if atom.name == "floordiv":
        return multiple + floordiv(rest, divisor)
    return operation("mod", (rest, divisor))


def _multiples(numerator: Expr, divisor: Expr) -> tuple[Expr, Expr]:
    """(quotient, rest): the terms that the divisor divides exactly, and the others."""
    quotient = rest = ZERO
    for monomial, coefficient in numerator.terms:
        term = Expr(((monomial, coefficient),))
        part = floordiv(term, divisor) if divisor != ZERO else ZERO
        if divisor != ZERO and part * divisor == term:
            quotient = quotient + part
        else:
            rest = rest + term
    return quotient, rest


def _coarser(name: str, numerator: Expr, divisor: int, facts: Facts) -> Expr | None:
    """With g X + Y, 0 <= Y < g and g dividing the divisor: a division of X alone."""
    terms = sorted(numerator.terms, key=lambda t: (-abs(t[1]), str(Expr((t,)))))
    g = divisor
    for count in range(1, len(terms) + 1):
        g = math.gcd(g, terms[count - 1][1])
        if g == 1:
            return None
        low = Expr(()) if count == len(terms) else sum_of(terms[count:])
        if not facts.within(low, as_expr(g)):
            continue
        high = Expr(tuple((m, c // g) for m, c in sum_of(terms[:count]).terms))
        if name == "floordiv":
            return simplify(operation("floordiv", (high, divisor // g)), facts)
        return simplify(operation("mod", (high, divisor // g)), facts) * g + low
    return None


def sum_of(terms: list[tuple[tuple[tuple[Atom, int], ...], int]]) -> Expr:
    """The expression of some terms of another."""
    total = ZERO
    for term in terms:
        total = total + Expr((term,))
    return total


def _joined(expr: Expr) -> Expr:
    """`c * k * (e floordiv k) + c * (e mod k)` becomes `c * e`."""
    changed = True
    while changed:
        changed = False
        for monomial, coefficient in expr.terms:
            for atom, power in monomial:
                if isinstance(atom, str) or atom.name != "mod" or power != 1:
                    continue
                numerator, divisor = atom.operands
                others = Expr(((tuple(p for p in monomial if p[0] != atom), coefficient),))
                part = others * divisor * operation("floordiv", (numerator, divisor))
                if set(part.terms) <= set(expr.terms):
                    joined = others * numerator
                    expr = expr - Expr(((monomial, coefficient),)) - part + joined
                    changed = True
                    break
            if changed:
                break
    return expr


def divisors_of(expr: Expr, axis: str) -> list[Expr]:
    """Divisors k of `axis floordiv k` and `axis mod k` anywhere inside."""
    found: list[Expr] = []
    for monomial, _ in expr.terms:
        for atom, _power in monomial:
            if isinstance(atom, str):
                continue
            if atom.name in ("floordiv", "mod") and atom.operands[0] == dim(axis):
                found.append(atom.operands[1])
            for operand in atom.operands:
                found += divisors_of(operand, axis)
    return found


def split_size(size: Expr, divisor: Expr) -> Expr | None:
    """The quotient where the divisor divides a size exactly, and neither is 1."""
    if divisor == ONE or (divisor.is_constant and divisor.value <= 1):
        return None
    quotient = floordiv(size, divisor)
    if quotient * divisor != size or quotient == ONE:
        return None
    return quotient
