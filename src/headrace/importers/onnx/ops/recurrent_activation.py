"""Activations that recurrent operators name in their attributes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from headrace.importers.onnx.context import NodeContext

Formula = Callable[[NodeContext, SSAValue, float, float], SSAValue]


@dataclass(frozen=True)
class Activation:
    """A formula with its numbers."""

    formula: Formula
    alpha: float
    beta: float

    def __call__(self, c: NodeContext, x: SSAValue) -> SSAValue:
        return self.formula(c, x, self.alpha, self.beta)


def _unary(name: str) -> Formula:
    return lambda c, x, alpha, beta: c.build.unary(name, x)


def _affine(c: NodeContext, x: SSAValue, alpha: float, beta: float) -> SSAValue:
    return c.with_scalar("add", c.with_scalar("multiply", x, alpha), beta)


def _scaled_tanh(c: NodeContext, x: SSAValue, alpha: float, beta: float) -> SSAValue:
    inner = c.build.unary("tanh", c.with_scalar("multiply", x, beta))
    return c.with_scalar("multiply", inner, alpha)


def _hard_sigmoid(c: NodeContext, x: SSAValue, alpha: float, beta: float) -> SSAValue:
    line = _affine(c, x, alpha, beta)
    return c.build.clamp(c.scalar_like(0, x), line, c.scalar_like(1, x))


def _where_positive(c: NodeContext, x: SSAValue, other: SSAValue) -> SSAValue:
    return c.build.select(c.build.compare("GE", x, c.scalar_like(0, x)), x, other)


def _leaky_relu(c: NodeContext, x: SSAValue, alpha: float, beta: float) -> SSAValue:
    return _where_positive(c, x, c.with_scalar("multiply", x, alpha))


def _elu(c: NodeContext, x: SSAValue, alpha: float, beta: float) -> SSAValue:
    grown = c.build.unary("exponential_minus_one", x)
    return _where_positive(c, x, c.with_scalar("multiply", grown, alpha))


def _thresholded_relu(c: NodeContext, x: SSAValue, alpha: float, beta: float) -> SSAValue:
    above = c.build.compare("GE", x, c.scalar_like(alpha, x))
    return c.build.select(above, x, c.scalar_like(0, x))


def _relu(c: NodeContext, x: SSAValue, alpha: float, beta: float) -> SSAValue:
    return c.with_scalar("maximum", x, 0)


def _softsign(c: NodeContext, x: SSAValue, alpha: float, beta: float) -> SSAValue:
    size = c.with_scalar("add", c.build.unary("abs", x), 1)
    return c.build.binary("divide", x, size)


def _softplus(c: NodeContext, x: SSAValue, alpha: float, beta: float) -> SSAValue:
    b = c.build
    tail = b.unary("exponential", b.unary("negate", b.unary("abs", x)))
    return b.binary("add", c.with_scalar("maximum", x, 0), b.unary("log_plus_one", tail))


# The formula, then the defaults of alpha and beta; None where it has no such number.
_FORMULAS: dict[str, tuple[Formula, float | None, float | None]] = {
    "affine": (_affine, 1.0, 0.0),
    "elu": (_elu, 1.0, None),
    "hardsigmoid": (_hard_sigmoid, 0.2, 0.5),
    "leakyrelu": (_leaky_relu, 0.01, None),
    "relu": (_relu, None, None),
    "scaledtanh": (_scaled_tanh, 1.0, 1.0),
    "sigmoid": (_unary("logistic"), None, None),
    "softplus": (_softplus, None, None),
    "softsign": (_softsign, None, None),
    "tanh": (_unary("tanh"), None, None),
    "thresholdedrelu": (_thresholded_relu, 1.0, None),
}


def read_activations(
    c: NodeContext, defaults: Sequence[str], directions: int
) -> list[Activation]:
    """The activations of all directions, one direction behind the other.

    The numbers of `activation_alpha` and `activation_beta` go, in order, to those that
    have such a number.
    """
    names = c.attribute("activations", list, None) or [*defaults] * directions
    if len(names) != len(defaults) * directions:
        raise c.malformed(f"{len(names)} activations, not {len(defaults) * directions}")
    alphas, betas = (
        iter(c.floats("activation_alpha") or []),
        iter(c.floats("activation_beta") or []),
    )
    found: list[Activation] = []
    for name in names:
        row = _FORMULAS.get(str(name).lower())
        if row is None:
            raise c.malformed(f"activation '{name}' is unknown")
        formula, alpha, beta = row
        found.append(
            Activation(
                formula,
                0.0 if alpha is None else next(alphas, alpha),
                0.0 if beta is None else next(betas, beta),
            )
        )
    return found
