"""Random small models that exercise what the passes rewrite, from a seed."""

from __future__ import annotations

from typing import Any

import numpy as np
from tensor_graphs import model
from xdsl.ir import SSAValue

from headrace.base.dtypes import F32
from headrace.base.parameters import Source, array_source
from headrace.base.symbols import Expr, as_expr
from headrace.ir.model import Model
from headrace.ir.types import shape_of
from headrace.tensor.build import TensorBuilder


class _Graph:
    """Grows one graph: a pool of values, and random operations on them."""

    def __init__(self, builder: TensorBuilder, rng: Any, inputs: list[SSAValue]) -> None:
        self.b = builder
        self.rng = rng
        self.pool = list(inputs)
        self.parameters: dict[str, Source] = {}

    def pick(self) -> SSAValue:
        # Recent values more often, so that chains grow.
        n = len(self.pool)
        return self.pool[max(0, n - 1 - int(self.rng.integers(0, 4)))]

    def parameter(self, shape: tuple[int, ...]) -> SSAValue:
        name = f"p{len(self.parameters)}"
        array = self.rng.uniform(0.5, 1.5, shape).astype(np.float32)
        self.parameters[name] = array_source(array)
        return self.b.parameter(name, F32, shape)

    def number(self) -> float:
        return float(self.rng.choice([0.0, 1.0, -1.0, 2.0, 0.5, 4.0, 3.0]))

    def alike(self, shape: tuple[Expr, ...]) -> SSAValue:
        """A second operand of that shape: a splat, a channel vector, or a value."""
        kind = self.rng.integers(0, 4)
        channels = [n for n, s in enumerate(shape) if s.is_constant]
        if kind == 0 or not channels:
            return self.b.splat(self.number(), F32, shape)
        if kind <= 2:
            at = int(self.rng.choice(channels))
            vector = self.parameter((shape[at].value,))
            if self.rng.random() < 0.3:
                vector = self.b.unary("sqrt", vector)
            if self.rng.random() < 0.5:
                vector = self.b.reshape(vector, [shape[at], *[1] * (len(shape) - at - 1)])
                return self.b.broadcast_to(vector, shape)
            return self.b.broadcast_in_dim(vector, [at], shape)
        same = [v for v in self.pool if shape_of(v) == shape]
        return same[int(self.rng.integers(0, len(same)))]

    def step(self) -> None:
        x = self.pick()
        shape = shape_of(x)
        choice = int(self.rng.integers(0, 14))
        rank = len(shape)
        b = self.b
        if choice <= 2:
            name = str(self.rng.choice(["add", "multiply", "subtract", "divide", "maximum"]))
            y = self.alike(shape)
            if name == "divide":
                y = b.splat(float(self.rng.choice([2.0, 3.0, 0.25, 1.0])), F32, shape)
            pair = (x, y) if self.rng.random() < 0.7 or name == "divide" else (y, x)
            found = b.binary(name, *pair)
        elif choice == 3:
            found = b.unary(str(self.rng.choice(["negate", "tanh", "abs", "floor"])), x)
        elif choice == 4:
            found = b.binary("power", b.unary("tanh", x), b.splat(2.0, F32, shape))
        elif choice <= 7 and rank > 1:
            found = b.transpose(x, [int(n) for n in self.rng.permutation(rank)])
        elif choice == 8:
            order = [int(n) for n in self.rng.permutation(rank)]
            found = b.reshape(b.reshape(x, [*shape, 1]), shape)
            found = b.transpose(b.unary("tanh", b.transpose(found, order)), _inverse(order))
        elif choice == 9:
            found = b.slice(x, [0] * rank, list(shape), [1] * rank)
            found = b.unary("copy", found)
        elif choice == 10 and rank == 4 and shape[1].is_constant:
            weight = self.parameter((3, shape[1].value, 1, 1))
            found = b.convolution(
                x, weight, window_strides=[1, 1], padding_low=[0, 0], padding_high=[0, 0]
            )
            for _ in range(int(self.rng.integers(0, 4))):
                self.pool.append(found)
                found = b.binary("multiply", found, self._channel(shape_of(found), 1))
                found = b.binary("add", found, self._channel(shape_of(found), 1))
        elif choice == 11 and shape[-1].is_constant:
            weight = self.parameter((shape[-1].value, 3))
            found = b.dot_general(x, weight, contract=([rank - 1], [0]))
            found = b.binary("add", found, self._channel(shape_of(found), rank - 1))
            found = b.binary("multiply", found, self._channel(shape_of(found), rank - 1))
        elif choice == 12 and rank > 2:
            axis = int(self.rng.integers(0, rank))
            found = b.reduce(x, b.scalar(0.0), [axis], "add")[0]
            found = b.broadcast_in_dim(found, [n for n in range(rank) if n != axis], shape)
        elif choice == 13:
            axis = int(self.rng.integers(0, rank))
            found = b.concatenate([x, b.unary("negate", x)], axis)
            found = b.slice(
                found, [0] * rank, [2 * s if n == axis else s for n, s in enumerate(shape)],
                [2 if n == axis else 1 for n in range(rank)],
            )  # fmt: skip
        else:
            found = b.binary("add", x, x)
        self.pool.append(b.unary("tanh", found) if self.rng.random() < 0.2 else found)

    def _channel(self, shape: tuple[Expr, ...], axis: int) -> SSAValue:
        if self.rng.random() < 0.3:
            return self.b.splat(self.number() + 0.5, F32, shape)
        return self.b.broadcast_in_dim(self.parameter((shape[axis].value,)), [axis], shape)


def _inverse(permutation: list[int]) -> list[int]:
    return [permutation.index(n) for n in range(len(permutation))]


def random_model(seed: int, steps: int = 14) -> tuple[Model, dict[str, Any]]:
    """A model and inputs for it; the batch is symbolic. The same seed gives the same."""
    rng = np.random.default_rng(seed)
    shape = (as_expr("b"), as_expr(3), as_expr(4), as_expr(5))
    graphs: list[_Graph] = []

    def body(builder: TensorBuilder, *inputs: SSAValue) -> list[SSAValue]:
        graph = _Graph(builder, rng, list(inputs))
        graphs.append(graph)
        for _ in range(steps):
            graph.step()
        return [graph.pool[-1], graph.pool[len(graph.pool) // 2]]

    made = model([(F32, shape), (F32, shape)], body)
    made.parameters.update(graphs[0].parameters)
    inputs = {f"x{n}": rng.standard_normal((2, 3, 4, 5)).astype(np.float32) for n in range(2)}
    return made, inputs
