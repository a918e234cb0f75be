"""Indices through movement operations, kept free of divisions wherever they can be.

An index is a tuple of `Expr`s over axes. Divisions that a reshape brings vanish where the
ranges of the axes decide them: with `%d1` below 7, `(7*%d0 + %d1) floordiv 7` is `%d0`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from headrace.base.symbols import ONE, ZERO, Expr, Operation, as_expr, product

Index: TypeAlias = tuple[Expr, ...]
Sizes: TypeAlias = Mapping[str, Expr]
"""The size of each axis, by name: the axis runs from 0 to size - 1."""


def never_negative(expr: Expr) -> bool:
    """Whether an expression over sizes (at least 0) is certainly not negative."""
    return all(c >= 0 for _, c in expr.terms)


def upper_bound(expr: Expr, sizes: Sizes) -> Expr | None:
    """The greatest value of a non-negative sum over axes, as an expression over sizes.

    None where it may be negative or is not understood.
    """
    total = ZERO
    for monomial, coefficient in expr.terms:
        if coefficient < 0:
            return None
        term = as_expr(coefficient)
        for atom, power in monomial:
            factor = _atom_bound(atom, sizes)
            if factor is None:
                return None
            for _ in range(power):
                term = term * factor
        total = total + term
    return total


def _atom_bound(atom: str | Operation, sizes: Sizes) -> Expr | None:
    if isinstance(atom, str):
        if atom in sizes:
            return sizes[atom] - 1
        return None if atom.startswith("%") else as_expr(atom)
    if atom.name == "mod":
        return atom.operands[1] - 1
    if atom.name == "floordiv":
        inner = upper_bound(atom.operands[0], sizes)
        return None if inner is None else inner // atom.operands[1]
    return None


def is_below(expr: Expr, size: Expr, sizes: Sizes) -> bool:
    """Whether 0 <= expr < size for certain."""
    bound = upper_bound(expr, sizes)
    return bound is not None and never_negative(size - 1 - bound)


def divide(expr: Expr, divisor: Expr, sizes: Sizes) -> tuple[Expr, Expr]:
    """Quotient and remainder of `expr` by a positive `divisor`."""
    if divisor == ONE:
        return expr, ZERO
    quotient, rest = ZERO, ZERO
    for monomial, coefficient in expr.terms:
        term = Expr(((monomial, coefficient),))
        whole = _exactly(term, divisor)
        if whole is None:
            rest = rest + term
        else:
            quotient = quotient + whole
    if is_below(rest, divisor, sizes):
        return quotient, rest
    return quotient + rest // divisor, rest % divisor


def _exactly(term: Expr, divisor: Expr) -> Expr | None:
    """The quotient of one monomial by another where it has no remainder."""
    if len(divisor.terms) != 1:
        quotient = term // divisor
        return quotient if quotient * divisor == term else None
    (powers, coefficient) = term.terms[0]
    (wanted, factor) = divisor.terms[0]
    left = dict(powers)
    for atom, power in wanted:
        if left.get(atom, 0) < power:
            return None
        left[atom] -= power
    if coefficient % factor:
        return None
    kept = tuple((a, p) for a, p in powers if left[a])
    return Expr(((tuple((a, left[a]) for a, _ in kept), coefficient // factor),))


def rejoined(expr: Expr) -> Expr:
    """`(x floordiv n)*n*c + (x mod n)*c` becomes `x*c`."""
    for monomial, coefficient in expr.terms:
        for atom, power in monomial:
            if not isinstance(atom, Operation) or atom.name != "mod" or power != 1:
                continue
            x, n = atom.operands
            rest = tuple(item for item in monomial if item[0] != atom)
            scale = Expr(((rest, coefficient),))
            remainder = Expr(((monomial, coefficient),))
            quotient = (x // n) * n * scale
            present = set(expr.terms)
            if quotient.terms and all(t in present for t in quotient.terms):
                return rejoined(expr - remainder - quotient + x * scale)
    return expr


def strides_of(shape: Sequence[Expr]) -> list[Expr]:
    """Row-major strides of a shape, in elements."""
    strides, stride = [ONE] * len(shape), ONE
    for n in reversed(range(len(shape))):
        strides[n] = stride
        stride = stride * shape[n]
    return strides


def linear(index: Index, shape: Sequence[Expr]) -> Expr:
    """The row-major position of an index."""
    total = ZERO
    for i, stride in zip(index, strides_of(shape), strict=True):
        total = total + i * stride
    return rejoined(total)


def reshape_index(
    index: Index, source: Sequence[Expr], target: Sequence[Expr], sizes: Sizes
) -> Index:
    """The index in shape `target` of the element that stands at `index` in `source`.

    Works both ways through a reshape: the shapes hold equally many elements.
    """
    groups = matching_groups(source, target)
    if groups is None:
        groups = [(range(len(source)), range(len(target)))]
    result: list[Expr] = [ZERO] * len(target)
    for from_dims, to_dims in groups:
        wide_from = [d for d in from_dims if source[d] != ONE]
        wide_to = [d for d in to_dims if target[d] != ONE]
        if len(wide_to) == 1:
            result[wide_to[0]] = linear(
                tuple(index[d] for d in wide_from), [source[d] for d in wide_from]
            )
            continue
        position = linear(tuple(index[d] for d in wide_from), [source[d] for d in wide_from])
        for d in reversed(wide_to[1:]):
            position, result[d] = divide(position, target[d], sizes)
        if wide_to:
            result[wide_to[0]] = position
    return tuple(result)


def matching_groups(
    source: Sequence[Expr], target: Sequence[Expr]
) -> list[tuple[range, range]] | None:
    """Cuts both shapes into runs of equal element counts, as short as they can be."""
    groups: list[tuple[range, range]] = []
    i = j = 0
    while i < len(source) or j < len(target):
        first_i, first_j = i, j
        left = source[i] if i < len(source) else ONE
        right = target[j] if j < len(target) else ONE
        i, j = min(i + 1, len(source)), min(j + 1, len(target))
        while left != right:
            grow = _smaller(left, right)
            if grow is None:
                return None
            if grow:
                if i == len(source):
                    return None
                left, i = left * source[i], i + 1
            else:
                if j == len(target):
                    return None
                right, j = right * target[j], j + 1
        groups.append((range(first_i, i), range(first_j, j)))
    return groups


def _smaller(left: Expr, right: Expr) -> bool | None:
    """Whether the left product must grow to meet the right one; None: not known."""
    if left.is_constant and right.is_constant:
        return left.value < right.value
    if left == ONE or right == ONE:
        return left == ONE
    if _exactly_any(right, left):
        return True
    if _exactly_any(left, right):
        return False
    return None


def _exactly_any(whole: Expr, part: Expr) -> bool:
    """Whether `part` divides `whole` for certain."""
    quotient = whole // part
    return quotient * part == whole


def same_elements(left: Sequence[Expr], right: Sequence[Expr]) -> bool:
    """Whether two shapes hold equally many elements."""
    return product(left) == product(right)
