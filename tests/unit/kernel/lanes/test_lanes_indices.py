"""Index expressions on lanes equal `Expr.evaluate`, for negative values too."""

from __future__ import annotations

import random

import numpy as np
import pytest
from numpy_machine import NumpyMachine

from headrace.base.errors import HeadraceDefect
from headrace.base.symbols import Expr, as_expr, dim, operation, parse_expr
from headrace.kernel.lanes.indices import Indices
from headrace.kernel.lanes.machine import Value

RANGES = {"%d0": (0, 11), "%r0": (0, 6), "%v0": (-20, 20), "n": (1, 9)}


def _random_expr(source: random.Random, depth: int) -> Expr:
    if depth == 0:
        if source.random() < 0.3:
            return as_expr(source.randint(-9, 9))
        return dim(source.choice(list(RANGES)))
    left, right = (_random_expr(source, depth - 1) for _ in range(2))
    kind = source.choice(("add", "sub", "mul", "floordiv", "mod", "max", "min"))
    if kind == "add":
        return left + right
    if kind == "sub":
        return left - right
    if kind == "mul":
        return left * source.randint(-3, 3)
    if kind in ("floordiv", "mod"):
        # A divisor that is never 0: a number of either sign, or a dimension.
        divisor = source.choice([as_expr(source.choice((-5, -2, 2, 3, 7))), dim("n")])
        return operation(kind, (left, divisor))
    return operation(kind, (left, right))


@pytest.mark.parametrize("seed", range(150))
def test_values_equal_the_expression(seed: int) -> None:
    source = random.Random(seed)
    expr = _random_expr(source, 3)
    rng = np.random.default_rng(seed)
    lanes = 64
    values = {n: rng.integers(low, high + 1, lanes) for n, (low, high) in RANGES.items()}
    machine = NumpyMachine(lanes)
    machine.dims = {"n": int(values["n"][0])}
    values["n"][:] = machine.dims["n"]
    indices = Indices(machine, ["n"])
    for name in ("%d0", "%r0", "%v0"):
        indices.names[name] = Value(machine, "i64", values[name])
        if name != "%v0":
            indices.ranges[name] = RANGES[name]
    got = indices.value(expr).handle
    wanted = [expr.evaluate({n: int(v[i]) for n, v in values.items()}) for i in range(lanes)]
    np.testing.assert_array_equal(got, wanted, err_msg=str(expr))


def test_an_unknown_name_is_our_defect() -> None:
    machine = NumpyMachine(1)
    with pytest.raises(HeadraceDefect, match=r"HR9401.*'batch'"):
        Indices(machine, ["n"]).value(parse_expr("2*batch + 1"))
