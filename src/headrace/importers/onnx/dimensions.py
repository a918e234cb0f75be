"""Names for the sizes of a graph's inputs, and what is known about them.

ONNX lets a file leave sizes unnamed (`?`, empty, -1) or give them names that are no
expressions. Every symbolic size gets a name here that `base/symbols` can read; the
user's spelling is kept beside it for messages and signatures.

A graph often *implies* that two sizes are equal (the operands of an Add) or bounded (a
slice of a table of 512 positions). `Dimensions.same` finds what must hold and raises
`learnings.Learned`; the reader then starts again with what it learned, so every type in the module
is written with the fewest names.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from headrace.base.symbols import (
    Expr,
    ExprLike,
    Operation,
    as_expr,
    dim,
    maximum,
    minimum,
    parse_expr,
)
from headrace.importers.onnx import learnings
from headrace.importers.onnx.remainders import bounds_by_remainder, is_always_zero
from headrace.importers.options import DimensionChoice

_NAME = re.compile(r"[A-Za-z_$][\w.$:/]*")
_RESERVED = frozenset({"max", "min", "floordiv", "mod"})
_UNBOUNDED = 1 << 40
_LARGEST_LEAST = 1 << 20


@dataclass
class Dimensions:
    """Names, equalities and bounds of the symbolic sizes of one model.

    Attributes:
        choices: what the user fixed or bounded, by the user's name.
        substitutions: name -> the expression that stands for it everywhere.
        ranges: name -> (least, greatest or None); sizes are at least 1 unless given.
        user_names: name -> how the user's file spells it.
        defined: names of sizes that data decides.
        branch_ranges: by branch, bounds that only hold there.
    """

    choices: Mapping[str, DimensionChoice]
    substitutions: dict[str, Expr] = field(default_factory=dict[str, Expr])
    ranges: dict[str, tuple[int, int | None]] = field(
        default_factory=dict[str, "tuple[int, int | None]"]
    )
    user_names: dict[str, str] = field(default_factory=dict[str, str])
    branch_ranges: dict[str, dict[str, tuple[int, int | None]]] = field(
        default_factory=dict[str, "dict[str, tuple[int, int | None]]"]
    )
    _in_branch: bool = False
    defined: list[str] = field(default_factory=list[str])
    _names: dict[str, str] = field(default_factory=dict[str, str])

    def start(self) -> None:
        """Forgets the names given, keeps what was learned; called before each attempt."""
        self._names.clear()
        self.defined.clear()
        self.user_names.clear()

    # -- names ---------------------------------------------------------------

    def named(self, text: str) -> Expr:
        """The size that the user calls `text`: a name, or an expression of names."""
        if text not in self._names and not _NAME.fullmatch(text):
            expression = self._as_known_expression(text)
            if expression is not None:
                return self.resolve(expression)
        return self._expression_of(text)

    def fresh(self, owner: str, axis: int, spelling: str) -> Expr:
        """A new name for an unnamed size, as `x_d2` for axis 2 of `x`."""
        return self._expression_of(f"{owner}_d{axis}", spelling)

    def decided(self, stem: str, most: int | None) -> Expr:
        """A new name for a size that data decides: 0 or more, at most `most`."""
        name = self._unique(stem)
        self._names[f"{name} (data)"] = name
        self.defined.append(name)
        self.ranges[name] = (0, most)
        return dim(name)

    def _as_known_expression(self, text: str) -> Expr | None:
        """`past_length + 1` where `past_length` is a dimension of its own."""
        try:
            expression = parse_expr(text)
        except ValueError:
            return None
        known = set(self._names.values())
        return expression if expression.names and expression.names <= known else None

    def _expression_of(self, text: str, spelling: str | None = None) -> Expr:
        name = self._names.get(text)
        if name is None:
            name = self._unique(text)
            self._names[text] = name
            self.user_names[name] = text if spelling is None else spelling
        choice = self.choices.get(text, self.choices.get(name))
        if isinstance(choice, int):
            return as_expr(choice)
        if choice is not None:
            low, high = choice
            known_low, known_high = self.ranges.get(name, (low, high))
            highs = [h for h in (high, known_high) if h is not None]
            self.ranges[name] = (max(low, known_low), min(highs) if highs else None)
        return self.resolve(dim(name))

    def _unique(self, text: str) -> str:
        name = re.sub(r"[^\w.$:/]", "_", text) or "d"
        if not _NAME.fullmatch(name):
            name = f"d_{name}"
        taken = {*self._names.values(), *_RESERVED}
        unique, n = name, 2
        while unique in taken:
            unique, n = f"{name}_{n}", n + 1
        return unique

    def resolve(self, expr: Expr) -> Expr:
        """The expression with everything learned put in."""
        while expr.names & self.substitutions.keys():
            expr = expr.substitute(dict(self.substitutions))
        return expr

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every name that a user may call a dimension by, sorted."""
        return tuple(sorted({*self._names, *self._names.values()}))

    @contextmanager
    def within(self, branch: str) -> Generator[None, None, None]:
        """Bounds that are learned in here hold where data takes this branch.

        In a branch within a branch they hold for the outer one: what it knows may decide
        about the inner one when compiling.
        """
        if self._in_branch:
            yield
            return
        outer = self.ranges
        self._in_branch = True
        self.ranges = {**outer, **self.branch_ranges.get(branch, {})}
        try:
            yield
        finally:
            changed = {n: r for n, r in self.ranges.items() if outer.get(n) != r}
            self.branch_ranges[branch] = changed
            self.ranges = outer
            self._in_branch = False

    def join(self, branches: Sequence[str]) -> None:
        """Where all branches bound a name, some of them must fit: a bound of all."""
        found = [self.branch_ranges.get(branch, {}) for branch in branches]
        for name in sorted(set.intersection(*(set(f) for f in found))):
            lows, highs = zip(*(f[name] for f in found), strict=True)
            high = None if None in highs else max(h for h in highs if h is not None)
            self.ranges[name] = (min(lows), high)

    # -- what is known --------------------------------------------------------

    def bounds(self, expr: Expr) -> tuple[int, int] | None:
        """Least and greatest value, sizes without a range being 1 or more."""
        ranges: dict[str, tuple[int, int]] = {}
        for name in expr.names:
            low, high = self.ranges.get(name, (1, None))
            ranges[name] = (low, _UNBOUNDED if high is None else high)
        return bounds_by_remainder(expr, ranges)

    def at_least(self, expr: ExprLike, least: int) -> bool:
        """Whether the value is surely `least` or more."""
        found = self.bounds(as_expr(expr))
        return found is not None and found[0] >= least

    def at_most(self, expr: ExprLike, greatest: int) -> bool:
        """Whether the value is surely `greatest` or less."""
        found = self.bounds(as_expr(expr))
        return found is not None and found[1] <= greatest

    def minimum(self, a: ExprLike, b: ExprLike) -> Expr:
        """The smaller, decided here where the bounds allow."""
        difference = as_expr(a) - as_expr(b)
        if self.at_most(difference, 0):
            return as_expr(a)
        return as_expr(b) if self.at_least(difference, 0) else minimum(a, b)

    def maximum(self, a: ExprLike, b: ExprLike) -> Expr:
        """The larger, decided here where the bounds allow."""
        difference = as_expr(a) - as_expr(b)
        if self.at_least(difference, 0):
            return as_expr(a)
        return as_expr(b) if self.at_most(difference, 0) else maximum(a, b)

    def simplify(self, expr: Expr) -> Expr:
        """The expression with every operation whose bounds meet replaced by its value."""
        if not any(self.ranges.get(n, (1, None))[1] is not None for n in expr.names):
            return expr
        found = self.bounds(expr)
        if found is not None and found[0] == found[1]:
            return as_expr(found[0])
        total = as_expr(0)
        for monomial, coefficient in expr.terms:
            term = as_expr(coefficient)
            for atom, power in monomial:
                factor = Expr((((((atom, 1),)), 1),))
                if isinstance(atom, Operation):
                    limits = self.bounds(factor)
                    if limits is not None and limits[0] == limits[1]:
                        factor = as_expr(limits[0])
                for _ in range(power):
                    term = term * factor
            total = total + term
        return total

    def raise_least_sizes(self, sizes: Iterable[Expr]) -> bool:
        """Raises the least value of a name until no size that it alone decides is negative.

        A convolution over samples, say, needs as many as its window has. A size that is
        negative for all values up to a million is left to the plan's error.

        Returns:
            Whether any was raised.
        """
        raised = False
        single = {s for s in sizes if len(s.names) == 1}
        for size in sorted(single, key=str):
            (name,) = size.names
            low, high = self.ranges.get(name, (1, None))
            if size.evaluate({name: low}) >= 0:
                continue
            least = self._first_possible(size, name, low)
            if least is not None and (high is None or least <= high):
                self.ranges[name] = (least, high)
                raised = True
        return raised

    def _first_possible(self, size: Expr, name: str, low: int) -> int | None:
        """The least value, found by halving, from which the size is not negative."""
        fails, works = low, max(2 * low, 2)
        while size.evaluate({name: works}) < 0:
            fails, works = works, 2 * works
            if works > _LARGEST_LEAST:
                return None
        while works - fails > 1:
            middle = (fails + works) // 2
            if size.evaluate({name: middle}) < 0:
                fails = middle
            else:
                works = middle
        return works

    # -- what a graph implies -------------------------------------------------------

    def same(self, a: Expr, b: Expr) -> Expr:
        """The size that both are.

        Raises:
            Learned: they are equal only under a condition, now known; start again.
            ValueError: they cannot be equal, or the condition is none that can be kept.
        """
        a, b = self.simplify(a), self.simplify(b)
        if a == b:
            return a
        if not self.maybe_equal(a, b):
            raise ValueError(f"sizes {a} and {b} differ")
        if not (a - b).names & set(self.defined):
            learnings.learn_equal(self, a, b)
        raise ValueError(f"sizes {a} and {b} are not known to be equal")

    def always_equal(self, a: Expr, b: Expr) -> bool:
        """Whether sizes are equal for all values of one dimension, however they are written."""
        for factor in learnings.factors(self.simplify(a) - self.simplify(b)):
            if len(factor.names) == 1:
                (name,) = factor.names
                if is_always_zero(factor, self.ranges.get(name, (1, None))[0]):
                    return True
        return False

    def maybe_equal(self, a: Expr, b: Expr) -> bool:
        """Whether the sizes can be equal for some values of the dimensions."""
        found = self.bounds(a - b)
        return found is None or found[0] <= 0 <= found[1]
