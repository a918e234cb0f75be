"""Random tensor programs: every operation that the flow stage lowers, in odd company."""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue

from headrace.base.dtypes import F32, I1, I32, I64
from headrace.base.parameters import array_source
from headrace.base.symbols import ONE, as_expr, product
from headrace.ir.model import Model
from headrace.ir.types import dtype_of, shape_of, tensor_type
from headrace.tensor.build import TensorBuilder

UNARY = ["abs", "negate", "tanh", "logistic", "exponential", "floor", "sign", "cosine"]
BINARY = ["add", "subtract", "multiply", "maximum", "minimum"]


class GraphMaker:
    """Grows one random function; every choice comes from the seed.

    Attributes:
        values: f32 tensors made so far.
    """

    def __init__(self, seed: int, symbolic: bool = False) -> None:
        self.random = np.random.default_rng(seed)
        batch = "batch" if symbolic else 2
        self.inputs = [(batch, 4, 6), (batch, 6), (batch, 3, 6, 6)]
        types = [tensor_type(F32, shape) for shape in self.inputs]
        types.append(tensor_type(I64, (batch, 3)))
        self.block = Block(arg_types=types)
        self.parameters: dict[str, object] = {}
        self.build = TensorBuilder(self.block)
        self.values: list[SSAValue] = list(self.block.args[:3])
        self.indices = self.block.args[3]

    def pick(self, rank: int | None = None) -> SSAValue:
        """A recent value; of a rank where one is asked for and there is one."""
        fitting = [v for v in self.values if rank is None or len(shape_of(v)) == rank]
        fitting = fitting or self.values
        weights = np.arange(1, len(fitting) + 1, dtype=float) ** 2
        return fitting[self.random.choice(len(fitting), p=weights / weights.sum())]

    def parameter(self, shape: tuple[int, ...]) -> SSAValue:
        array = self.random.standard_normal(shape).astype(np.float32)
        name = f"w{len(self.parameters)}"
        self.parameters[name] = array_source(array)
        return self.build.parameter(name, F32, shape)

    def like(self, value: SSAValue) -> SSAValue:
        """Something that broadcasts to a value's shape, or is of it already."""
        shape = shape_of(value)
        same = [v for v in self.values if shape_of(v) == shape and v is not value]
        kind = self.random.integers(4)
        if kind == 0 and same:
            return same[self.random.integers(len(same))]
        if kind == 1:
            return self.build.splat(np.float32(self.random.normal()), F32, shape)
        if kind == 2 and shape and shape[-1].is_constant:
            return self.build.broadcast_to(self.parameter((shape[-1].value,)), shape)
        return value

    def step(self) -> None:
        """Adds one operation or one well-known group of them."""
        steps = [
            self.unary, self.unary, self.binary, self.binary, self.binary, self.reduce,
            self.mean, self.dot, self.convolution, self.pool, self.transpose, self.reshape,
            self.slice, self.pad, self.concatenate, self.reverse, self.gather, self.softmax,
            self.layer_norm, self.gate, self.select, self.argmax, self.iota,
            self.dynamic_slice, self.update, self.keep,
        ]  # fmt: skip
        made = steps[self.random.integers(len(steps))]()
        if made is not None and len(shape_of(made)) <= 5:
            constant = [s for s in shape_of(made) if s.is_constant]
            if product(constant).value <= 4096:
                self.values.append(made)

    def unary(self) -> SSAValue:
        return self.build.unary(UNARY[self.random.integers(len(UNARY))], self.pick())

    def binary(self) -> SSAValue:
        value = self.pick()
        other = self.like(value)
        sides = (value, other) if self.random.integers(2) else (other, value)
        return self.build.binary(BINARY[self.random.integers(len(BINARY))], *sides)

    def keep(self) -> SSAValue:
        return self.build.unary("copy", self.pick())

    def _axes(self, rank: int) -> list[int]:
        count = int(self.random.integers(1, rank + 1))
        return sorted(self.random.choice(rank, count, replace=False).tolist())

    def reduce(self) -> SSAValue | None:
        value = self.pick()
        rank = len(shape_of(value))
        if not rank:
            return None
        kind = ["add", "maximum", "minimum"][self.random.integers(3)]
        start = self.build.scalar({"add": 0.5, "maximum": -np.inf, "minimum": np.inf}[kind])
        scalars = [v for v in self.values if not shape_of(v)]
        if scalars and self.random.integers(2):
            start = scalars[0]
        return self.build.reduce(value, start, self._axes(rank), kind)[0]

    def _spread(self, folded: SSAValue, value: SSAValue, axes: list[int]) -> SSAValue:
        """A reduction's result at every place it came from, by one of two roads."""
        shape = shape_of(value)
        kept = [n for n in range(len(shape)) if n not in axes]
        if self.random.integers(2):
            thin = [ONE if n in axes else s for n, s in enumerate(shape)]
            return self.build.broadcast_in_dim(
                self.build.reshape(folded, thin), range(len(shape)), shape
            )
        return self.build.broadcast_in_dim(folded, kept, shape)

    def mean(self) -> SSAValue | None:
        value = self.pick()
        shape = shape_of(value)
        if not shape:
            return None
        axes = self._axes(len(shape))
        total = self.build.reduce(value, self.build.scalar(0.0), axes, "add")[0]
        eighth = self.build.splat(0.125, F32, shape_of(total))
        scaled = self.build.binary("multiply", total, eighth)
        return self.build.binary("subtract", value, self._spread(scaled, value, axes))

    def softmax(self) -> SSAValue | None:
        value = self.pick()
        shape = shape_of(value)
        if not shape:
            return None
        axes = [len(shape) - 1]
        top = self.build.reduce(value, self.build.scalar(-np.inf), axes, "maximum")[0]
        shifted = self.build.binary("subtract", value, self._spread(top, value, axes))
        powers = self.build.unary("exponential", shifted)
        total = self.build.reduce(powers, self.build.scalar(0.0), axes, "add")[0]
        return self.build.binary("divide", powers, self._spread(total, value, axes))

    def layer_norm(self) -> SSAValue | None:
        value = self.pick()
        shape = shape_of(value)
        if not shape or not shape[-1].is_constant:
            return None
        axes, build = [len(shape) - 1], self.build
        zero = build.scalar(0.0)
        count = build.splat(float(shape[-1].value), F32, shape[:-1])
        mean = build.binary("divide", build.reduce(value, zero, axes, "add")[0], count)
        centred = build.binary("subtract", value, self._spread(mean, value, axes))
        if self.random.integers(2):
            squares = build.reduce(
                build.binary("multiply", centred, centred), zero, axes, "add"
            )
            variance = build.binary("divide", squares[0], count)
        else:
            squares = build.reduce(build.binary("multiply", value, value), zero, axes, "add")
            raw = build.binary("divide", squares[0], count)
            variance = build.binary("subtract", raw, build.binary("multiply", mean, mean))
        safe = build.binary("add", variance, build.splat(0.5, F32, shape[:-1]))
        spread = self._spread(build.unary("rsqrt", safe), value, axes)
        normal = build.binary("multiply", centred, spread)
        return build.binary("multiply", normal, self.like(normal))

    def gate(self) -> SSAValue:
        value = self.pick()
        return self.build.binary("multiply", value, self.build.unary("logistic", value))

    def dot(self) -> SSAValue | None:
        value = self.pick(2 + int(self.random.integers(2)))
        shape = shape_of(value)
        if len(shape) < 2 or not shape[-1].is_constant:
            return None
        if self.random.integers(3) == 0 and len(shape) == 3:
            return self.build.dot_general(value, value, batch=([0], [0]), contract=([2], [2]))
        weight = self.parameter((shape[-1].value, 5))
        made = self.build.dot_general(value, weight, contract=([len(shape) - 1], [0]))
        return self.build.binary("add", made, self.like(made))

    def convolution(self) -> SSAValue | None:
        value = self.pick(4)
        shape = shape_of(value)
        if len(shape) != 4 or not all(s.is_constant for s in shape[1:]):
            return None
        channels, height, width = (s.value for s in shape[1:])
        if min(height, width) < 2:
            return None
        groups = channels if self.random.integers(3) == 0 else 1
        outputs = channels * 2 if groups > 1 else 4
        kernel = self.parameter((outputs, channels // groups, 2, 2))
        made = self.build.convolution(
            value,
            kernel,
            window_strides=[int(self.random.integers(1, 3)), 1],
            padding_low=[int(self.random.integers(2)), 0],
            padding_high=[1, int(self.random.integers(2))],
            lhs_dilation=[1, int(self.random.integers(1, 3))],
            feature_group_count=groups,
        )
        bias = self.build.broadcast_in_dim(self.parameter((outputs,)), [1], shape_of(made))
        return self.build.binary("add", made, bias)

    def pool(self) -> SSAValue | None:
        value = self.pick(4)
        shape = shape_of(value)
        small = any(s.is_constant and s.value < 2 for s in shape[2:])
        if len(shape) != 4 or not all(s.is_constant for s in shape[1:]) or small:
            return None
        kind, start = [("maximum", -np.inf), ("add", 0.0)][self.random.integers(2)]
        return self.build.reduce_window(
            value,
            self.build.scalar(start),
            kind,
            window_dimensions=[1, 1, 2, 2],
            window_strides=[1, 1, 2, 1],
            padding_low=[0, 0, int(self.random.integers(2)), 0],
            padding_high=[0, 0, 0, int(self.random.integers(2))],
        )[0]

    def transpose(self) -> SSAValue:
        value = self.pick()
        order = self.random.permutation(len(shape_of(value))).tolist()
        return self.build.transpose(value, order)

    def reshape(self) -> SSAValue:
        value = self.pick()
        shape = list(shape_of(value))
        kind = self.random.integers(3)
        if kind == 0 and len(shape) >= 2:
            at = int(self.random.integers(len(shape) - 1))
            shape[at : at + 2] = [shape[at] * shape[at + 1]]
        elif kind == 1:
            shape.insert(int(self.random.integers(len(shape) + 1)), ONE)
        else:
            even = [n for n, s in enumerate(shape) if s.is_constant and s.value % 2 == 0]
            if even:
                at = even[self.random.integers(len(even))]
                shape[at : at + 1] = [shape[at] // 2, as_expr(2)]
        return self.build.reshape(value, shape)

    def slice(self) -> SSAValue | None:
        value = self.pick()
        shape = shape_of(value)
        wide = [n for n, s in enumerate(shape) if s.is_constant and s.value > 2]
        if not wide:
            return None
        at = wide[self.random.integers(len(wide))]
        start = [1 if n == at else 0 for n in range(len(shape))]
        steps = [int(self.random.integers(1, 3)) if n == at else 1 for n in range(len(shape))]
        return self.build.slice(value, start, shape, steps)

    def pad(self) -> SSAValue:
        value = self.pick()
        rank = len(shape_of(value))
        low = self.random.integers(-1, 2, rank).tolist()
        high = self.random.integers(0, 2, rank).tolist()
        for n, size in enumerate(shape_of(value)):
            if not size.is_constant or size.value < 2:
                low[n] = 0
        between = (self.random.integers(4, size=rank) == 0).astype(int).tolist()
        fill = float(self.random.integers(-1, 2))
        return self.build.pad(value, self.build.scalar(fill), low, high, between)

    def concatenate(self) -> SSAValue | None:
        value = self.pick()
        shape = shape_of(value)
        if not shape:
            return None
        at = int(self.random.integers(len(shape)))
        return self.build.concatenate([value, self.like(value), value], at)

    def reverse(self) -> SSAValue | None:
        value = self.pick()
        rank = len(shape_of(value))
        return self.build.reverse(value, self._axes(rank)) if rank else None

    def gather(self) -> SSAValue | None:
        if self.random.integers(2):
            return self.build.take(self.parameter((7, 6)), self.indices, 0)
        value = self.pick()
        rank = len(shape_of(value))
        if not rank or rank > 3:
            return None
        return self.build.take(value, self.indices, int(self.random.integers(rank)))

    def select(self) -> SSAValue:
        value = self.pick()
        other = self.like(value)
        return self.build.select(self.build.compare("LT", value, other), other, value)

    def iota(self) -> SSAValue | None:
        value = self.pick()
        shape = shape_of(value)
        if not shape:
            return None
        counted = self.build.iota(I32, shape, int(self.random.integers(len(shape))))
        return self.build.binary("add", value, self.build.convert(counted, F32))

    def argmax(self) -> SSAValue | None:
        value = self.pick()
        shape = shape_of(value)
        if not shape:
            return None
        at = int(self.random.integers(len(shape)))
        counted = self.build.iota(I32, shape, at)
        starts = [self.build.scalar(-np.inf), self.build.scalar(0, I32)]

        def larger(inner, a, i, b, j):
            # The smaller index wins a tie, so that the order of folding does not matter.
            tie = inner.binary("and", inner.compare("EQ", a, b), inner.compare("LE", i, j))
            first = inner.binary("or", inner.compare("GT", a, b), tie)
            return [inner.select(first, a, b), inner.select(first, i, j)]

        top, place = self.build.reduce([value, counted], starts, [at], larger)
        return self.build.binary("add", top, self.build.convert(place, F32))

    def dynamic_slice(self) -> SSAValue | None:
        value = self.pick()
        shape = shape_of(value)
        if not shape or not all(s.is_constant for s in shape[-1:]):
            return None
        start = [self.build.scalar(0, I64)] * (len(shape) - 1)
        first = self.build.slice(self.indices, [0, 0], [1, 1], [1, 1])
        start.append(self.build.reshape(first, ()))
        sizes = [*shape[:-1], max(shape[-1].value - 2, 1)]
        return self.build.dynamic_slice(value, start, sizes)

    def update(self) -> SSAValue | None:
        value = self.pick()
        shape = shape_of(value)
        if not shape or not shape[-1].is_constant or shape[-1].value < 2:
            return None
        part = self.build.slice(
            value, [0] * len(shape), [*shape[:-1], shape[-1] - 1], [1] * len(shape)
        )
        start = [self.build.scalar(0, I64)] * (len(shape) - 1) + [self.build.scalar(5, I64)]
        return self.build.dynamic_update_slice(value, self.build.unary("negate", part), start)

    def finish(self) -> Model:
        """The model; its outputs are the last value and one other."""
        results = [self.values[-1]]
        other = self.pick()
        if other not in results:
            results.append(other)
        if self.random.integers(4) == 0:
            flags = self.build.compare("GE", results[0], results[0])
            assert dtype_of(flags) == I1
            results.append(flags)
        types = [a.type for a in self.block.args]
        self.block.add_op(ReturnOp(*results))
        function = FuncOp(
            "main", (types, [r.type for r in results]), Region(self.block), "public"
        )
        return Model(ModuleOp([function]), dict(self.parameters), "random")


def random_model(seed: int, steps: int = 12, symbolic: bool = False) -> Model:
    """A model of about `steps` operations and operation groups."""
    maker = GraphMaker(seed, symbolic)
    for _ in range(steps):
        maker.step()
    return maker.finish()


def random_inputs(seed: int, batch: int = 2) -> list[np.ndarray]:
    """Inputs for `random_model`; indices run out of range now and then."""
    random = np.random.default_rng(seed + 1)
    shapes = [(batch, 4, 6), (batch, 6), (batch, 3, 6, 6)]
    floats = [random.standard_normal(s).astype(np.float32) for s in shapes]
    return [*floats, random.integers(-1, 8, (batch, 3))]
