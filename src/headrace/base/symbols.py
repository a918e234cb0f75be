"""Sizes as expressions over named dimensions, in one normal form.

An `Expr` is an integer polynomial over *atoms*: named dimensions (`batch`), the
local names of a kernel (`%d0`, an axis; `%v3`, an index value) and the integer
operations that are no polynomial (`floordiv`, `mod`, `max`, `min`). Two
expressions that normalise alike are equal, hash alike and print alike, so equal
sizes are equal dimensions everywhere from the importer to the plan.

The text form is what the IR and the `.hrx` file hold::

    2*batch*seq + (h - 1) floordiv 2 + 1
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias, Union

ExprLike: TypeAlias = Union["Expr", int, str]


@dataclass(frozen=True)
class Operation:
    """An integer operation kept whole as an atom: `floordiv`, `mod`, `max`, `min`."""

    name: str
    operands: tuple[Expr, ...]

    def __str__(self) -> str:
        if self.name in ("max", "min"):
            return f"{self.name}({', '.join(str(o) for o in self.operands)})"
        left, right = (_parenthesised(o) for o in self.operands)
        return f"{left} {self.name} {right}"


Atom: TypeAlias = Union[str, Operation]
Monomial: TypeAlias = tuple[tuple[Atom, int], ...]  # (atom, power), sorted by text


def _atom_key(atom: Atom) -> tuple[int, str]:
    return (0, atom) if isinstance(atom, str) else (1, str(atom))


def _floordiv(a: int, b: int) -> int:
    if b == 0:
        raise ZeroDivisionError("division by zero in a size expression")
    return a // b


def _mod(a: int, b: int) -> int:
    if b == 0:
        raise ZeroDivisionError("division by zero in a size expression")
    return a % b


_EVALUATE: dict[str, Callable[..., int]] = {
    "floordiv": _floordiv,
    "mod": _mod,
    "max": max,
    "min": min,
}


@dataclass(frozen=True)
class Expr:
    """An integer expression in normal form; build one with `as_expr` or operators.

    Attributes:
        terms: pairs of monomial and non-zero coefficient, sorted by text; the
            constant term has the empty monomial.
    """

    terms: tuple[tuple[Monomial, int], ...]

    # -- what it is ---------------------------------------------------------

    @property
    def is_constant(self) -> bool:
        return not self.terms or (len(self.terms) == 1 and self.terms[0][0] == ())

    @property
    def value(self) -> int:
        """The integer it is. Raises ValueError where it is no constant."""
        if not self.is_constant:
            raise ValueError(f"'{self}' is no constant")
        return self.terms[0][1] if self.terms else 0

    @property
    def constant_term(self) -> int:
        return next((c for m, c in self.terms if m == ()), 0)

    def coefficient(self, name: str) -> Expr:
        """The factor of `name` where the expression is linear in it.

        Raises:
            ValueError: `name` occurs with a power or inside an operation.
        """
        terms: list[tuple[Monomial, int]] = []
        for monomial, coefficient in self.terms:
            rest = tuple((a, p) for a, p in monomial if a != name)
            powers = [p for a, p in monomial if a == name]
            if any(name in atom_names(a) for a, _ in rest) or powers not in ([], [1]):
                raise ValueError(f"'{self}' is not linear in '{name}'")
            if powers:
                terms.append((rest, coefficient))
        return _from_terms(terms)

    def is_linear_in(self, names: Iterable[str]) -> bool:
        """Whether it is a sum of `factor * name` and a rest free of `names`."""
        wanted = set(names)
        for monomial, _ in self.terms:
            inside = [(a, p) for a, p in monomial if wanted & atom_names(a)]
            if len(inside) > 1 or any(isinstance(a, Operation) or p != 1 for a, p in inside):
                return False
        return True

    @property
    def names(self) -> frozenset[str]:
        """Every name it mentions, also inside operations."""
        found: set[str] = set()
        for monomial, _ in self.terms:
            for atom, _power in monomial:
                found |= atom_names(atom)
        return frozenset(found)

    # -- arithmetic ---------------------------------------------------------

    def __add__(self, other: ExprLike) -> Expr:
        return _from_terms([*self.terms, *as_expr(other).terms])

    def __radd__(self, other: ExprLike) -> Expr:
        return as_expr(other) + self

    def __neg__(self) -> Expr:
        return Expr(tuple((m, -c) for m, c in self.terms))

    def __sub__(self, other: ExprLike) -> Expr:
        return self + -as_expr(other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return as_expr(other) - self

    def __mul__(self, other: ExprLike) -> Expr:
        right = as_expr(other)
        return _from_terms(
            [(_multiply(ma, mb), ca * cb) for ma, ca in self.terms for mb, cb in right.terms]
        )

    def __rmul__(self, other: ExprLike) -> Expr:
        return as_expr(other) * self

    def __floordiv__(self, other: ExprLike) -> Expr:
        return floordiv(self, as_expr(other))

    def __mod__(self, other: ExprLike) -> Expr:
        return mod(self, as_expr(other))

    # -- evaluation ---------------------------------------------------------

    def evaluate(self, dims: Mapping[str, int]) -> int:
        """Its value with every name given. Raises KeyError for a missing name."""
        total = 0
        for monomial, coefficient in self.terms:
            product = coefficient
            for atom, power in monomial:
                value = (
                    dims[atom]
                    if isinstance(atom, str)
                    else _EVALUATE[atom.name](*(o.evaluate(dims) for o in atom.operands))
                )
                product *= value**power
            total += product
        return total

    def substitute(self, names: Mapping[str, ExprLike]) -> Expr:
        """The expression with names replaced; names not given stay."""
        if not names or not (self.names & names.keys()):
            return self
        total = ZERO
        for monomial, coefficient in self.terms:
            product = as_expr(coefficient)
            for atom, power in monomial:
                if isinstance(atom, str):
                    factor = as_expr(names.get(atom, atom))
                else:
                    factor = operation(atom.name, [o.substitute(names) for o in atom.operands])
                for _ in range(power):
                    product = product * factor
            total = total + product
        return total

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        parts: list[str] = []
        for monomial, coefficient in self.terms:
            factors = [
                text
                for atom, power in monomial
                for text in [atom if isinstance(atom, str) else f"({atom})"] * power
            ]
            if len(monomial) == 1 and abs(coefficient) == 1:
                atom, power = monomial[0]
                if power == 1 and isinstance(atom, Operation) and atom.name in ("max", "min"):
                    factors = [str(atom)]
            if abs(coefficient) != 1 or not factors:
                factors.insert(0, str(abs(coefficient)))
            sign = "-" if coefficient < 0 else "+"
            parts.append(f"{sign} {'*'.join(factors)}")
        text = " ".join(parts)
        return text[2:] if text.startswith("+ ") else "-" + text[2:]

    def __repr__(self) -> str:
        return f"Expr('{self}')"


def atom_names(atom: Atom) -> frozenset[str]:
    """The names inside an atom."""
    if isinstance(atom, str):
        return frozenset((atom,))
    found: frozenset[str] = frozenset()
    for operand in atom.operands:
        found |= operand.names
    return found


def _parenthesised(expr: Expr) -> str:
    text = str(expr)
    return text if re.fullmatch(r"[%\w.$]+", text) else f"({text})"


def _multiply(left: Monomial, right: Monomial) -> Monomial:
    powers: dict[Atom, int] = dict(left)
    for atom, power in right:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: _atom_key(item[0])))


def _from_terms(terms: Iterable[tuple[Monomial, int]]) -> Expr:
    sums: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        sums[monomial] = sums.get(monomial, 0) + coefficient
    kept = [(m, c) for m, c in sums.items() if c]
    # Higher terms first, the constant last: the text reads as people write it.
    kept.sort(key=lambda item: (item[0] == (), [_atom_key(a) for a, _ in item[0]], item[1]))
    return Expr(tuple(kept))


ZERO = Expr(())
ONE = Expr((((), 1),))


@lru_cache(maxsize=1 << 14)
def _constant(value: int) -> Expr:
    return Expr((((), value),)) if value else ZERO


def as_expr(value: ExprLike) -> Expr:
    """An int, an expression, or text (a name or a whole expression) as an `Expr`."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, str):
        return parse_expr(value)
    return _constant(int(value))


@lru_cache(maxsize=1 << 14)
def dim(name: str) -> Expr:
    """The expression that is one named dimension, or one kernel-local name."""
    return Expr(((((name, 1),), 1),))


def operation(name: str, operands: Iterable[ExprLike]) -> Expr:
    """`floordiv`, `mod`, `max` or `min` of operands, simplified."""
    values = [as_expr(o) for o in operands]
    if name == "floordiv":
        return floordiv(*values)
    if name == "mod":
        return mod(*values)
    return _extremum(name, values)


def _divisible(numerator: Expr, divisor: int) -> tuple[Expr, Expr]:
    """Splits into (part whose coefficients `divisor` divides, the rest)."""
    whole = [(m, c) for m, c in numerator.terms if c % divisor == 0]
    rest = [(m, c) for m, c in numerator.terms if c % divisor != 0]
    constant = next((c for m, c in rest if m == ()), 0)
    if constant and abs(constant) >= divisor:
        rest = [(m, c) for m, c in rest if m != ()]
        whole.append(((), constant - constant % divisor))
        rest.append(((), constant % divisor))
    return _from_terms(whole), _from_terms(rest)


def floordiv(numerator: Expr, denominator: Expr) -> Expr:
    """`numerator` divided by `denominator`, rounded down."""
    if denominator == ONE:
        return numerator
    if numerator.is_constant and denominator.is_constant and denominator.value:
        return as_expr(numerator.value // denominator.value)
    if denominator.is_constant and denominator.value > 0:
        whole, rest = _divisible(numerator, denominator.value)
        quotient = Expr(tuple((m, c // denominator.value) for m, c in whole.terms))
        if rest == ZERO:
            return quotient
        if whole != ZERO:
            return quotient + floordiv(rest, denominator)
    exact = _exact_quotient(numerator, denominator)
    if exact is not None:
        return exact
    return Expr(((((Operation("floordiv", (numerator, denominator)), 1),), 1),))


def _exact_quotient(numerator: Expr, denominator: Expr) -> Expr | None:
    """The quotient where the denominator is one monomial that divides every term."""
    if len(denominator.terms) != 1 or denominator.is_constant:
        return None
    divisor, factor = denominator.terms[0]
    terms: list[tuple[Monomial, int]] = []
    for monomial, coefficient in numerator.terms:
        powers = dict(monomial)
        for atom, power in divisor:
            if powers.get(atom, 0) < power:
                return None
            powers[atom] -= power
        if coefficient % factor:
            return None
        kept = tuple(
            sorted(((a, p) for a, p in powers.items() if p), key=lambda i: _atom_key(i[0]))
        )
        terms.append((kept, coefficient // factor))
    return _from_terms(terms)


def ceildiv(numerator: ExprLike, denominator: ExprLike) -> Expr:
    """`numerator` divided by `denominator`, rounded up."""
    divisor = as_expr(denominator)
    return floordiv(as_expr(numerator) + divisor - 1, divisor)


def mod(numerator: Expr, denominator: Expr) -> Expr:
    """`numerator` modulo `denominator`, with the sign of the denominator."""
    if denominator == ONE:
        return ZERO
    if numerator.is_constant and denominator.is_constant and denominator.value:
        return as_expr(numerator.value % denominator.value)
    if denominator.is_constant and denominator.value > 0:
        _, rest = _divisible(numerator, denominator.value)
        if rest.is_constant:
            return as_expr(rest.value % denominator.value)
        numerator = rest
    elif _exact_quotient(numerator, denominator) is not None:
        return ZERO
    return Expr(((((Operation("mod", (numerator, denominator)), 1),), 1),))


def _extremum(name: str, values: list[Expr]) -> Expr:
    flat: dict[Expr, None] = {}
    constants: list[int] = []
    for value in values:
        if value.is_constant:
            constants.append(value.value)
            continue
        flat[value] = None
    unique = sorted(flat, key=str)
    pick = max if name == "max" else min
    if constants:
        constant = pick(constants)
        if not unique:
            return as_expr(constant)
        unique.append(as_expr(constant))
    if len(unique) == 1:
        return unique[0]
    # Expressions that differ by a constant are ordered whatever the names are.
    base, *others = unique
    offsets = [o - base for o in others]
    if all(o.is_constant for o in offsets):
        return base + pick(0, *(o.value for o in offsets))
    return Expr(((((Operation(name, tuple(unique)), 1),), 1),))


def maximum(*values: ExprLike) -> Expr:
    """The largest of the values."""
    return _extremum("max", [as_expr(v) for v in values])


def minimum(*values: ExprLike) -> Expr:
    """The smallest of the values."""
    return _extremum("min", [as_expr(v) for v in values])


def product(values: Iterable[ExprLike]) -> Expr:
    """The product of the values; 1 for none. The element count of a shape."""
    total = ONE
    for value in values:
        total = total * as_expr(value)
    return total


# -- text -------------------------------------------------------------------

_TOKEN = re.compile(r"\s*(?:(\d+)|([%A-Za-z_$][\w.$:/]*)|(.))")


@lru_cache(maxsize=1 << 14)
def parse_expr(text: str) -> Expr:
    """Reads the text form: names, integers, `+ - *`, `floordiv`, `mod`, `max(,)`, `min(,)`.

    Raises:
        ValueError: the text is no expression; the message quotes it.
    """
    tokens = [t for t in _TOKEN.findall(text.strip()) if any(t)]
    expr, position = _parse_sum(tokens, 0, text)
    if position != len(tokens):
        raise ValueError(f"'{text}' is no size expression")
    return expr


def _punctuation(tokens: list[tuple[str, str, str]], position: int) -> str:
    return tokens[position][2] if position < len(tokens) else ""


def _parse_sum(tokens: list[tuple[str, str, str]], at: int, text: str) -> tuple[Expr, int]:
    sign = 1
    if _punctuation(tokens, at) == "-":
        sign, at = -1, at + 1
    total, at = _parse_product(tokens, at, text)
    total = total * sign
    while _punctuation(tokens, at) in ("+", "-"):
        minus = _punctuation(tokens, at) == "-"
        right, at = _parse_product(tokens, at + 1, text)
        total = total - right if minus else total + right
    return total, at


def _parse_product(tokens: list[tuple[str, str, str]], at: int, text: str) -> tuple[Expr, int]:
    left, at = _parse_atom(tokens, at, text)
    while at < len(tokens):
        word = tokens[at][1] or tokens[at][2]
        if word not in ("*", "floordiv", "mod"):
            break
        right, at = _parse_atom(tokens, at + 1, text)
        left = left * right if word == "*" else operation(word, (left, right))
    return left, at


def _parse_atom(tokens: list[tuple[str, str, str]], at: int, text: str) -> tuple[Expr, int]:
    if at >= len(tokens):
        raise ValueError(f"'{text}' is no size expression")
    number, word, mark = tokens[at]
    if number:
        return as_expr(int(number)), at + 1
    if mark == "(":
        inner, at = _parse_sum(tokens, at + 1, text)
        if _punctuation(tokens, at) != ")":
            raise ValueError(f"'{text}' lacks a ')'")
        return inner, at + 1
    if word in ("max", "min") and _punctuation(tokens, at + 1) == "(":
        operands: list[Expr] = []
        at += 1
        while _punctuation(tokens, at) in ("(", ","):
            operand, at = _parse_sum(tokens, at + 1, text)
            operands.append(operand)
        if _punctuation(tokens, at) != ")":
            raise ValueError(f"'{text}' lacks a ')'")
        return operation(word, operands), at + 1
    if word and word not in ("floordiv", "mod"):
        return dim(word), at + 1
    raise ValueError(f"'{text}' is no size expression")


# -- bounds -----------------------------------------------------------------


def bounds(expr: Expr, ranges: Mapping[str, tuple[int, int]]) -> tuple[int, int] | None:
    """The least and the greatest value over inclusive ranges of the names.

    Interval arithmetic: never too narrow, maybe too wide. None where a name has no
    range or a divisor may not be positive.
    """
    low = high = 0
    for monomial, coefficient in expr.terms:
        term = (coefficient, coefficient)
        for atom, power in monomial:
            factor = _atom_bounds(atom, ranges)
            if factor is None:
                return None
            for _ in range(power):
                corners = [a * b for a in term for b in factor]
                term = (min(corners), max(corners))
        low, high = low + term[0], high + term[1]
    return low, high


def _atom_bounds(atom: Atom, ranges: Mapping[str, tuple[int, int]]) -> tuple[int, int] | None:
    if isinstance(atom, str):
        return ranges.get(atom)
    operands: list[tuple[int, int]] = []
    for operand in atom.operands:
        found = bounds(operand, ranges)
        if found is None:
            return None
        operands.append(found)
    if atom.name in ("max", "min"):
        pick = max if atom.name == "max" else min
        return pick(o[0] for o in operands), pick(o[1] for o in operands)
    (low, high), (divisor_low, divisor_high) = operands
    if divisor_low <= 0:
        return None
    if atom.name == "mod":
        if low >= 0 and high < divisor_low:
            return low, high
        return 0, divisor_high - 1
    corners = [a // b for a in (low, high) for b in (divisor_low, divisor_high)]
    return min(corners), max(corners)
