"""Optimisers of `ai.onnx.preview.training`: one step each, tensor by tensor.

Inputs are the learning rate, the step's number, then all tensors, all gradients, and all of
each state; outputs are the tensors and the states after the step.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from headrace.base.dtypes import F32
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import dtype_of

_DOMAIN = "ai.onnx.preview.training"


def _groups(c: NodeContext, kinds: int) -> list[list[SSAValue]]:
    """The inputs behind the first two: `kinds` values for each tensor that is trained."""
    rest = [c.data(n) for n in range(2, len(c.inputs))]
    if len(rest) % kinds:
        raise c.malformed(f"{len(rest)} tensors are no multiple of {kinds}")
    count = len(rest) // kinds
    return [rest[n::count] for n in range(count)]


def _interleaved(results: Sequence[Sequence[SSAValue]]) -> list[SSAValue]:
    return [value for kind in zip(*results, strict=True) for value in kind]


class _Step:
    """Arithmetic of scalars and tensors, scalars spread where they meet a tensor."""

    def __init__(self, c: NodeContext) -> None:
        self.c = c
        self.count = c.build.convert(c.data(1), F32)

    def times(self, x: SSAValue, factor: SSAValue | float) -> SSAValue:
        if isinstance(factor, SSAValue):
            return self.c.binary("multiply", x, self.c.build.convert(factor, dtype_of(x)))
        return self.c.with_scalar("multiply", x, factor)

    def add(self, x: SSAValue, y: SSAValue) -> SSAValue:
        return self.c.binary("add", x, y)

    def regularised(self, gradient: SSAValue, x: SSAValue, factor: float) -> SSAValue:
        return self.add(gradient, self.times(x, factor)) if factor else gradient

    def is_later(self) -> SSAValue:
        """Whether steps were taken before: a boolean scalar."""
        b = self.c.build
        return b.reshape(b.compare("GT", self.count, self.c.scalar_like(0, self.count)), ())


@onnx_op("Adagrad", domain=_DOMAIN)
def adagrad(c: NodeContext) -> list[SSAValue]:
    """x - rate / (1 + step decay) g / (sqrt(h) + epsilon), with h the sum of squares."""
    b, step = c.build, _Step(c)
    decayed = c.with_scalar("multiply", step.count, c.float("decay_factor"))
    slowed = c.with_scalar("add", decayed, 1)
    rate = c.binary("divide", b.convert(c.data(0), F32), slowed)
    results: list[list[SSAValue]] = []
    for x, gradient, squares in _groups(c, 3):
        g = step.regularised(gradient, x, c.float("norm_coefficient"))
        total = step.add(squares, b.binary("multiply", g, g))
        scale = c.with_scalar("add", b.unary("sqrt", total), c.float("epsilon", 1e-6))
        moved = b.binary("divide", step.times(g, b.reshape(rate, ())), scale)
        results.append([b.binary("subtract", x, moved), total])
    return _interleaved(results)


@onnx_op("Momentum", domain=_DOMAIN)
def momentum(c: NodeContext) -> list[SSAValue]:
    """v = alpha v + beta g; x - rate v, or with Nesterov x - rate (g + alpha v)."""
    b, step = c.build, _Step(c)
    alpha, beta = c.float("alpha"), c.float("beta")
    mode = c.string("mode")
    if mode not in ("standard", "nesterov"):
        raise c.malformed(f"mode '{mode}' is unknown")
    # The first step takes the gradient whole.
    share = b.select(step.is_later(), b.scalar(beta), b.scalar(1.0))
    results: list[list[SSAValue]] = []
    for x, gradient, velocity in _groups(c, 3):
        g = step.regularised(gradient, x, c.float("norm_coefficient"))
        v = step.add(step.times(velocity, alpha), step.times(g, share))
        direction = step.add(g, step.times(v, alpha)) if mode == "nesterov" else v
        moved = step.times(direction, b.reshape(c.data(0), ()))
        results.append([b.binary("subtract", x, moved), v])
    return _interleaved(results)


@onnx_op("Adam", domain=_DOMAIN)
def adam(c: NodeContext) -> list[SSAValue]:
    """Running means of gradients and of their squares, the rate corrected from step 1 on."""
    b, step = c.build, _Step(c)
    alpha, beta = c.float("alpha", 0.9), c.float("beta", 0.999)
    count = b.reshape(step.count, ())

    def left(decay: float) -> SSAValue:
        """1 - decay ^ step."""
        power = b.binary("power", b.scalar(decay), count)
        return b.binary("subtract", b.scalar(1.0), power)

    rate = b.reshape(b.convert(c.data(0), F32), ())
    corrected = b.binary(
        "divide", b.binary("multiply", rate, b.unary("sqrt", left(beta))), left(alpha)
    )
    rate = b.select(step.is_later(), corrected, rate)
    after = 1 - c.float("norm_coefficient_post")
    results: list[list[SSAValue]] = []
    for x, gradient, mean, squares in _groups(c, 4):
        g = step.regularised(gradient, x, c.float("norm_coefficient"))
        m = step.add(step.times(mean, alpha), step.times(g, 1 - alpha))
        squared = step.times(b.binary("multiply", g, g), 1 - beta)
        s = step.add(step.times(squares, beta), squared)
        scale = c.with_scalar("add", b.unary("sqrt", s), c.float("epsilon", 1e-6))
        moved = b.binary("divide", step.times(m, rate), scale)
        made = b.binary("subtract", x, moved)
        results.append([step.times(made, after) if after != 1 else made, m, s])
    return _interleaved(results)
