"""What follows for named dimensions where a graph needs two sizes to be equal.

Each rule tries to say `a = b` as a fact that a signature can keep, so that it is checked
when inputs come: a name stands for an expression, has bounds, or is a multiple.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.base.symbols import Atom, Expr, Operation, atom_names, dim
from headrace.importers.onnx.remainders import is_always_zero

if TYPE_CHECKING:
    from headrace.importers.onnx.dimensions import Dimensions

_SCANNED = 1 << 12
_MULTIPLES = (2, 4, 8, 16, 32, 64, 128)


class Learned(Exception):
    """The graph implies something about a dimension that was not known at the start."""


def learn_equal(dims: Dimensions, a: Expr, b: Expr) -> None:
    """Tries every rule on `a = b`; returns where none applies.

    Raises:
        Learned: `dims` now holds what must be true.
    """
    for left, right in ((a, b), (b, a)):
        _learn_bound(dims, left, right)
    _learn_name(dims, a, b)
    _learn_factor(dims, a - b)
    _learn_multiple(dims, a - b)


def _learn_bound(dims: Dimensions, extremum: Expr, other: Expr) -> None:
    """`min(seq, 512) = seq` says that `seq` is at most 512, `max(n floordiv 2 - 3, 0) =
    n floordiv 2 - 3` that `n` is at least 6."""
    atom = _only_atom(extremum)
    if not isinstance(atom, Operation) or atom.name not in ("min", "max"):
        return
    limits = [o.value for o in atom.operands if o.is_constant]
    names = [n for n in other.names if other == dim(n)]
    if other not in atom.operands or len(atom.operands) != 2 or not limits:
        return
    if not names:
        if atom.name == "max" and dims.raise_least_sizes([other - limits[0]]):
            raise Learned
        return
    low, high = dims.ranges.get(names[0], (1, None))
    if atom.name == "min":
        dims.ranges[names[0]] = (low, limits[0] if high is None else min(high, limits[0]))
    else:
        dims.ranges[names[0]] = (max(low, limits[0]), high)
    raise Learned


def _only_atom(expr: Expr) -> Atom | None:
    """The atom that the expression is, alone, to the first power."""
    if len(expr.terms) != 1:
        return None
    monomial, coefficient = expr.terms[0]
    if coefficient != 1 or len(monomial) != 1 or monomial[0][1] != 1:
        return None
    return monomial[0][0]


def _learn_name(dims: Dimensions, a: Expr, b: Expr) -> None:
    """Solves `a = b` for a name that occurs once, with a factor that divides the rest."""
    difference = a - b
    for name in _latest_first(dims, difference.names):
        try:
            factor = difference.coefficient(name)
        except ValueError:
            continue
        rest = difference - dim(name) * factor
        if not factor.is_constant or any(n % factor.value for _, n in rest.terms):
            continue
        solved = Expr(tuple((m, -n // factor.value) for m, n in rest.terms))
        if name not in solved.names and _may_stand_for(dims, name, solved):
            dims.substitutions[name] = solved
            raise Learned


def _latest_first(dims: Dimensions, names: Iterable[str]) -> list[str]:
    """Names of later inputs first: those of earlier ones are kept."""
    order = list(dims.user_names)
    return sorted(names, key=lambda n: (-order.index(n) if n in order else 1, n))


def _may_stand_for(dims: Dimensions, name: str, value: Expr) -> bool:
    """Whether the value can lie in the range of the name."""
    found = dims.bounds(value)
    low, high = dims.ranges.get(name, (1, None))
    return found is None or (found[1] >= low and (high is None or found[0] <= high))


def _learn_factor(dims: Dimensions, difference: Expr) -> None:
    """`batch * ((h - 33) floordiv 16) = 0` bounds `h`: a factor must be 0.

    Sizes are at least 1, so names themselves are no such factor.
    """
    for factor in factors(difference):
        if len(factor.names) != 1:
            continue
        (name,) = factor.names
        low, high = dims.ranges.get(name, (1, None))
        zero = _zeros(factor, name, low, min(high or _SCANNED, _SCANNED))
        if zero is not None and zero != (low, high):
            dims.ranges[name] = zero
            raise Learned


def factors(expr: Expr) -> list[Expr]:
    """Operations that every term has as a factor, and the rest without common names."""
    monomials = [m for m, _ in expr.terms]
    if not monomials:
        return []
    common = [atom for atom, _ in monomials[0] if all(atom in dict(m) for m in monomials)]
    names = [atom for atom in common if isinstance(atom, str)]
    rest = expr
    for name in names:
        rest = rest // dim(name)
    operations = [Expr(((((a, 1),), 1),)) for a in common if isinstance(a, Operation)]
    return [*operations, rest]


def _zeros(expr: Expr, name: str, low: int, high: int) -> tuple[int, int | None] | None:
    """The range of the name where the expression is 0; None where that is no range."""
    try:
        found = [n for n in range(low, high + 1) if expr.evaluate({name: n}) == 0]
    except ZeroDivisionError:
        return None
    if not found or found[-1] - found[0] + 1 != len(found):
        return None
    if found[-1] == _SCANNED:
        return (found[0], None) if is_always_zero(expr, found[0]) else None
    return found[0], found[-1]


def _learn_multiple(dims: Dimensions, difference: Expr) -> None:
    """`2 * ((h - 1) floordiv 2 + 1) = h` holds where `h` is a multiple of 2."""
    rounded = sorted(
        {
            name
            for monomial, _ in difference.terms
            for atom, _ in monomial
            if isinstance(atom, Operation)
            for name in atom_names(atom)
        }
    )
    for factor in (*_MULTIPLES, *_divisors(difference)):
        parts = {n: dim(f"{n}_by_{factor}") * factor for n in rounded}
        if rounded and difference.substitute(parts).terms == ():
            for name in rounded:
                _divide(dims, name, factor)
            raise Learned


def _divisors(expr: Expr) -> list[int]:
    """What names are divided by, where the usual multiples do not tell."""
    found = {
        atom.operands[1].value
        for monomial, _ in expr.terms
        for atom, _ in monomial
        if isinstance(atom, Operation) and atom.name in ("floordiv", "mod")
        if atom.operands[1].is_constant
    }
    return sorted(n for n in found if n > 1 and n not in _MULTIPLES)


def _divide(dims: Dimensions, name: str, factor: int) -> None:
    part = f"{name}_by_{factor}"
    dims.substitutions[name] = dim(part) * factor
    low, high = dims.ranges.get(name, (1, None))
    if name in dims.ranges:
        dims.ranges[part] = (-(-low // factor), None if high is None else high // factor)
