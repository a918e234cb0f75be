"""Halos: what a reader needs of one, and what it no longer guards once it has one."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from headrace.base.dtypes import DType
from headrace.base.symbols import ZERO, Expr, Operation
from headrace.kernel.description import Axis, Kernel, Layout, Load, Phase, Scalar
from headrace.kernel.text import print_scalar


def same_scalar(left: Scalar | None, right: Scalar | None, dtype: DType) -> bool:
    """Whether two scalars are the same element of `dtype`, bit for bit (-0.0 is not 0.0)."""
    if left is None or right is None:
        return left is right
    return print_scalar(element(left, dtype)) == print_scalar(element(right, dtype))


def element(value: Scalar, dtype: DType) -> Scalar:
    """A scalar in the Python type that stands for `dtype`: a wish may say 0 for 0.0."""
    if dtype.is_float and isinstance(value, int):
        return float(value)
    return value


def with_layouts(kernel: Kernel, layouts: Sequence[Layout]) -> Kernel:
    """The kernel with its operands in other layouts, loads guarded only where they must.

    A dimension of a load stays `bounded` unless the operand's halo reaches as far as the
    load does and holds the very value the load has outside.
    """
    operands = tuple(
        replace(operand, layout=layout)
        for operand, layout in zip(kernel.operands, layouts, strict=True)
    )
    changed = replace(kernel, operands=operands)
    phases: list[Phase] = []
    for phase in kernel.phases:
        axes = (*kernel.outer, *phase.parallel, *phase.reduction_axes)
        body = tuple(
            _unguarded(changed, axes, op) if isinstance(op, Load) and op.bounded else op
            for op in phase.body
        )
        phases.append(replace(phase, body=body))
    return replace(changed, phases=tuple(phases))


def _unguarded(kernel: Kernel, axes: Sequence[Axis], load: Load) -> Load:
    operand = kernel.operands[load.operand]
    layout = operand.layout
    if not layout.has_halo or not same_scalar(load.otherwise, layout.halo_value, operand.dtype):
        return load
    left = tuple(
        d
        for d in load.bounded
        if not _reaches_no_further(
            load.index[d], axes, operand.shape[d], layout.halo_low[d], layout.halo_high[d]
        )
    )
    return replace(load, bounded=left, otherwise=load.otherwise if left else None)


def _reaches_no_further(
    index: Expr, axes: Sequence[Axis], size: Expr, low: int, high: int
) -> bool:
    """Whether an index stays within `-low` and `size - 1 + high` for all points."""
    names = {a.name for a in axes}
    if any(n.startswith("%") and n not in names for n in index.names):
        return False
    if not _rises(index, names):
        return False
    first = index.substitute(dict.fromkeys(names, 0))
    last = index.substitute({a.name: a.size - 1 for a in axes})
    beyond = at_most(last - (size - 1 + high))
    before = first + low
    return before.is_constant and before.value >= 0 and beyond.is_constant and beyond.value <= 0


def _rises(expr: Expr, names: Set[str]) -> bool:
    """Whether an expression never falls as one of the names grows."""
    for monomial, coefficient in expr.terms:
        if not (Expr(((monomial, coefficient),)).names & names):
            continue
        if len(monomial) != 1 or monomial[0][1] != 1 or coefficient < 0:
            return False
        atom = monomial[0][0]
        if isinstance(atom, Operation):
            numerator, divisor = atom.operands if atom.name == "floordiv" else (ZERO, ZERO)
            if not divisor.is_constant or divisor.value <= 0 or not _rises(numerator, names):
                return False
    return True


def at_most(expr: Expr) -> Expr:
    """An expression that is never smaller, without `floordiv` by a constant.

    `c*(x floordiv s)` is at most `(c/s)*x` where `s` divides `c > 0`: the last window of
    a strided convolution then reaches at most its padding beyond the image.
    """
    total = ZERO
    for monomial, coefficient in expr.terms:
        term = Expr(((monomial, coefficient),))
        if len(monomial) == 1 and monomial[0][1] == 1 and coefficient > 0:
            atom = monomial[0][0]
            if isinstance(atom, Operation) and atom.name == "floordiv":
                numerator, divisor = atom.operands
                if divisor.is_constant and divisor.value > 0:
                    factor, rest = divmod(coefficient, divisor.value)
                    if rest == 0:
                        term = numerator * factor
        total = total + term
    return total
