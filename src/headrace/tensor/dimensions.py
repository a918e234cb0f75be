"""Named dimensions from the shapes of actual inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.base.errors import Diagnostic, Problems
from headrace.base.symbols import Expr


def solve_dimensions(
    declared: Sequence[tuple[str, Sequence[Expr]]],
    actual: Sequence[Sequence[int]],
    known: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """The value of every dimension named in the declared shapes.

    Args:
        declared: (input name, shape) of every input, in order.
        actual: the shape of every input given, in the same order.
        known: dimensions that have their size already.

    Raises:
        HeadraceError HR4001: a rank or a size does not fit, or a dimension follows from
            no input; everything that is wrong at once.
    """
    problems = Problems()
    pending: list[tuple[str, int, Expr, int]] = []
    for (name, shape), sizes in zip(declared, actual, strict=True):
        if len(shape) != len(sizes):
            fact = f"input '{name}' has rank {len(sizes)}, the model takes {len(shape)}"
            problems.add(Diagnostic("HR4001", fact))
            continue
        pending += [(name, n, e, s) for n, (e, s) in enumerate(zip(shape, sizes, strict=True))]
    dims: dict[str, int] = dict(known or {})
    changed = True
    while changed:
        changed = False
        for _name, _axis, expr, size in pending:
            rest = expr.substitute(dims)
            if len(rest.names) != 1:
                continue
            (unknown,) = rest.names
            value = _solve_linear(rest, unknown, size)
            if value is not None:
                dims[unknown] = value
                changed = True
    for name, axis, expr, size in pending:
        rest = expr.substitute(dims)
        if len(rest.names) == 1 and rest.is_linear_in(rest.names):
            fact = f"dimension {axis} of input '{name}' is {size}, '{expr}' cannot be that"
            problems.add(Diagnostic("HR4001", fact))
        elif not rest.is_constant:
            problems.add(Diagnostic("HR4001", f"no input shape tells dimensions of '{rest}'"))
        elif rest.value != size:
            fact = f"dimension {axis} of input '{name}' is {size}, the model takes {rest.value}"
            notes = () if expr.is_constant else (f"its size is '{expr}' with {dims}",)
            problems.add(Diagnostic("HR4001", fact, notes=notes))
    problems.raise_if_any()
    return dims


def _solve_linear(expr: Expr, unknown: str, size: int) -> int | None:
    """The value of the only name in `expr` that makes it `size`; None where unclear."""
    try:
        factor = expr.coefficient(unknown)
    except ValueError:
        return None
    if not factor.is_constant or factor.value == 0:
        return None
    difference = size - expr.constant_term
    return difference // factor.value if difference % factor.value == 0 else None
