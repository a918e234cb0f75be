"""Sizes that a module leaves open: which must be equal, and which data decides.

StableHLO writes every open size as `?`, so a module does not say which are the same. Its
operations imply it: the operands of an addition are equally large. Where two sizes must be
equal and have different names, one comes to stand for the other, and the function is
converted again from the start.

A size may also be given as data (`dynamic_broadcast_in_dim` to the contents of an input).
Where nothing implies what it is, it is read back when the program runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xdsl.ir import SSAValue

from headrace.base.dtypes import I64
from headrace.base.symbols import ONE, ZERO, Expr, Operation, dim, product
from headrace.importers.hlo.registry import integers_of, operation_key
from headrace.importers.hlo.tree import HloOperation
from headrace.ir.types import dtype_of, shape_of

if TYPE_CHECKING:
    from headrace.tensor.build import TensorBuilder

_MOST_DECIDED = 16
_NOT_ALIKE = ("pad", "dynamic_pad", "gather", "dynamic_gather")
"""Operations whose operands are not of one shape, though their ranks may be."""


class Learned(Exception):
    """Two sizes are the same; the function is converted again."""


@dataclass
class OpenSizes:
    """What is known of the open sizes of one function.

    Attributes:
        substitutions: name -> the expression that stands for it everywhere.
        decided: names of sizes that data decides, in the order they came up.
    """

    substitutions: dict[str, Expr] = field(default_factory=dict[str, Expr])
    decided: list[str] = field(default_factory=list[str])
    _of: dict[tuple[SSAValue, int], Expr] = field(
        default_factory=dict[tuple[SSAValue, int], Expr]
    )

    def start(self) -> None:
        """Forgets the values of the attempt before."""
        self.decided.clear()
        self._of.clear()

    def resolve(self, expr: Expr) -> Expr:
        """The expression with everything learned put in."""
        while expr.names & self.substitutions.keys():
            expr = expr.substitute(dict(self.substitutions))
        return expr

    def decide(self, builder: TensorBuilder, value: SSAValue) -> list[Expr] | None:
        """The integers of a small tensor, as sizes that are read back; None where it cannot
        be: inside of a loop, or it is no small tensor of integers."""
        count = product(shape_of(value))
        small = count.is_constant and count.value <= _MOST_DECIDED
        if builder.depth or not small or not dtype_of(value).is_integer:
            return None
        return [self._decide(builder, value, n) for n in range(count.value)]

    def _decide(self, builder: TensorBuilder, value: SSAValue, place: int) -> Expr:
        found = self._of.get((value, place))
        if found is not None:
            return found
        name = f"decided_{len(self._of)}"
        made = self._of[(value, place)] = self.resolve(dim(name))
        if made == dim(name):
            count = product(shape_of(value)).value
            flat = builder.reshape(builder.convert(value, I64), (count,))
            element = builder.slice(flat, [place], [place + 1], [1])
            builder.define_dimension(name, builder.reshape(element, ()))
            self.decided.append(name)
        return made

    # -- what operations imply --------------------------------------------------------

    def learn(
        self,
        operation: HloOperation,
        shapes: Sequence[tuple[Expr, ...]],
        target: Sequence[Expr] | None,
    ) -> None:
        """Looks for what makes an operation well formed; returns where nothing does.

        Args:
            shapes: of its operands.
            target: the shape that data gives, of an operation that takes one.

        Raises:
            Learned: a name now stands for another.
        """
        key = operation_key(operation.name)
        attributes = operation.attributes
        if key == "dot_general":
            for left, right in _contracted(attributes):
                for i, j in zip(left, right, strict=True):
                    self.same(shapes[0][i], shapes[1][j])
        elif key in ("broadcast_in_dim", "dynamic_broadcast_in_dim"):
            dims = integers_of(attributes["broadcast_dimensions"])
            for size, place in zip(shapes[0], dims, strict=True):
                if target is not None and size != ONE:
                    self.same(size, target[place])
        elif key in ("reshape", "dynamic_reshape"):
            if target is not None:
                self.same(product(shapes[0]), product(target))
        elif key == "scatter":
            for update, index in _scattered(attributes, shapes):
                self.same(update, index)
        elif key not in _NOT_ALIKE:
            along = integers_of(attributes["dimension"])[0] if key == "concatenate" else None
            alike = [s for s in shapes if len(s) == len(shapes[0])]
            for shape in alike[1:]:
                for n, (a, b) in enumerate(zip(alike[0], shape, strict=True)):
                    if n != along:
                        self.same(a, b)

    def same(self, a: Expr, b: Expr) -> None:
        """Notes that two sizes are equal, where a name can stand for what it equals.

        Raises:
            Learned: it was not known.
        """
        difference = self.resolve(a) - self.resolve(b)
        common = _common_names(difference)
        for name in common:
            difference = difference // dim(name)
        difference = _without_extremum(difference)
        # What data decides is replaced first: then nothing is read back.
        for name in sorted(difference.names, key=lambda n: (not n.startswith("decided_"), n)):
            solved = _solved(difference, name)
            if solved is not None:
                self.substitutions[name] = solved
                raise Learned


def _contracted(attributes: Mapping[str, Any]) -> list[tuple[list[int], list[int]]]:
    numbers = {**attributes, **attributes.get("dot_dimension_numbers", {})}
    found: list[tuple[list[int], list[int]]] = []
    for kind in ("batching", "contracting"):
        sides = [numbers.get(f"{side}_{kind}_dimensions", []) for side in ("lhs", "rhs")]
        found.append((integers_of(sides[0]), integers_of(sides[1])))
    return found


def _scattered(
    attributes: Mapping[str, Any], shapes: Sequence[tuple[Expr, ...]]
) -> list[tuple[Expr, Expr]]:
    """Sizes of updates and of indices that have to be equal: one update an index vector."""
    numbers = {**attributes, **attributes.get("scatter_dimension_numbers", {})}
    window = integers_of(numbers.get("update_window_dims", []))
    (vector,) = integers_of(numbers["index_vector_dim"])
    count = len(shapes) // 2
    indices = [s for n, s in enumerate(shapes[count]) if n != vector]
    updates = [s for n, s in enumerate(shapes[-1]) if n not in window]
    return list(zip(updates, indices, strict=False))


def _common_names(expr: Expr) -> list[str]:
    """Names that every term has as a factor: a size is not 0, so they may go."""
    monomials = [dict(m) for m, _ in expr.terms]
    if not monomials:
        return []
    return [a for a in monomials[0] if isinstance(a, str) and all(a in m for m in monomials)]


def _without_extremum(difference: Expr) -> Expr:
    """`min(d, size) - size` is 0 where `d - size` is: one operand stands for the extremum."""
    for monomial, coefficient in difference.terms:
        for atom, _ in monomial:
            if isinstance(atom, Operation) and atom.name in ("min", "max"):
                rest = difference - Expr(((monomial, coefficient),))
                for operand in atom.operands:
                    if rest + operand * coefficient == ZERO and len(monomial) == 1:
                        others = [o for o in atom.operands if o != operand]
                        return others[0] - operand
    return difference


def _solved(difference: Expr, name: str) -> Expr | None:
    """What a name must be for a difference to be 0; None where that is no whole number."""
    try:
        factor = difference.coefficient(name)
    except ValueError:
        return None
    rest = difference - dim(name) * factor
    if not factor.is_constant or not factor.value:
        return None
    if any(n % factor.value for _, n in rest.terms):
        return None
    return Expr(tuple((m, -n // factor.value) for m, n in rest.terms))
