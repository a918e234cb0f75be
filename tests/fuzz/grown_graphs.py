"""Graphs grown at random: 1 to 30 tensor operations of random shapes, element types and named
sizes.

A graph is a list of seeds, one for each step; a step draws all that it decides from its own
seed and from what stands before it. So any sublist is a graph too, which is how a failure
is made small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue

from headrace.base.dtypes import BY_NAME, I1, I32, DType
from headrace.base.parameters import Source, array_source
from headrace.base.symbols import Expr, as_expr, product
from headrace.ir.locations import location
from headrace.ir.model import Model
from headrace.ir.types import dtype_of, shape_of, tensor_type
from headrace.tensor.build import TensorBuilder
from headrace.tensor.loops import Stepped, counted_loop

FLOATS = ("f32", "f32", "f32", "f64", "f16", "bf16")
INTEGERS = ("i32", "i32", "i64", "i16", "i8", "ui8", "ui16", "ui32", "ui64")
SHAPES: tuple[tuple[str | int, ...], ...] = (
    ("n", 4), ("n", 4), (3, "m", 5), ("n", "m"), (2, 3, 4), (6,), (), ("n",), (2, 3, 6, 5),
    (1, "m"), ("n", 2, "m"), (8, 8), (17, 3), ("n", 3, 6, 6),
)  # fmt: skip
MOST_ELEMENTS = 20_000


@dataclass(frozen=True)
class Grown:
    """A graph.

    Attributes:
        model: to interpret and to compile.
        inputs: arrays for `main`, in order.
        dims: sizes of the named dimensions.
    """

    model: Model
    inputs: list[Any]
    dims: dict[str, int]


@dataclass
class _Growth:
    builder: TensorBuilder
    dims: dict[str, int]
    pool: list[SSAValue] = field(default_factory=list[SSAValue])
    exact: set[SSAValue] = field(default_factory=set[SSAValue])
    parameters: dict[str, Source] = field(default_factory=dict[str, Source])

    def add(self, value: SSAValue, exact: bool) -> None:
        self.pool.append(value)
        if exact or not _inexact(dtype_of(value)):
            self.exact.add(value)

    def elements(self, shape: Sequence[Expr]) -> int:
        return product(shape).evaluate(self.dims)


def _inexact(dtype: DType) -> bool:
    return dtype.is_float or dtype.kind == "complex"


Step = Callable[[_Growth, Any], None]
STEPS: list[Step] = []


def step(times: int = 1) -> Callable[[Step], Step]:
    def register(function: Step) -> Step:
        STEPS.extend([function] * times)
        return function

    return register


class _NothingFits(Exception):
    """No value of the pool fits what a step wants; the step is left out."""


def _pick(g: _Growth, rng: Any, fits: Callable[[SSAValue], bool] = lambda _: True) -> SSAValue:
    """Recent values more often, so that chains grow."""
    found = [v for v in g.pool if fits(v)]
    if not found:
        raise _NothingFits
    back = min(len(found) - 1, int(rng.geometric(0.35)) - 1)
    return found[len(found) - 1 - back]


def _is_float(v: SSAValue) -> bool:
    return dtype_of(v).is_float


def _is_integer(v: SSAValue) -> bool:
    return dtype_of(v).is_integer


def _alike(g: _Growth, rng: Any, like: SSAValue) -> SSAValue:
    """A second operand: a value of that type, a splat, or a weight spread over it."""
    kind, shape = dtype_of(like), shape_of(like)
    same = [v for v in g.pool if dtype_of(v) == kind and shape_of(v) == shape]
    choice = int(rng.integers(0, 4))
    if choice <= 1 and same:
        return same[int(rng.integers(0, len(same)))]
    constant = [n for n, s in enumerate(shape) if s.is_constant]
    if choice == 2 and constant:
        at = int(rng.choice(constant))
        vector = _parameter(g, rng, kind, (shape[at].value,))
        return g.builder.broadcast_in_dim(vector, [at], shape)
    return g.builder.splat(_values(rng, kind, ()).item(), kind, shape)


def _values(rng: Any, kind: DType, shape: Sequence[int]) -> Any:
    """Small numbers: halves for floats, so that sums of a few are exact."""
    if kind.kind == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    low = 0 if kind.kind == "unsigned" else -6
    array = np.asarray(rng.integers(low, 7, shape))
    return (array / 2 if kind.is_float else array).astype(kind.numpy_dtype)


def _parameter(g: _Growth, rng: Any, kind: DType, shape: tuple[int, ...]) -> SSAValue:
    name = f"w{len(g.parameters)}"
    g.parameters[name] = array_source(_values(rng, kind, shape))
    return g.builder.parameter(name, kind, shape)


# -- elementwise ---------------------------------------------------------------------------


@step(3)
def _unary(g: _Growth, rng: Any) -> None:
    x = _pick(g, rng, lambda v: dtype_of(v).kind != "bool")
    kind, b = dtype_of(x), g.builder
    exact = ["negate", "abs", "sign"] if kind.kind != "unsigned" else []
    if kind.is_integer:
        exact += ["not", "popcnt", "count_leading_zeros"]
    smooth = ["tanh", "logistic", "sine", "cosine", "erf", "cbrt"] if kind.is_float else []
    if kind.is_float and x in g.exact:
        exact += ["floor", "ceil", "round_nearest_even", "round_nearest_afz"]
    name = str(rng.choice(exact + smooth))
    g.add(b.unary(name, x), name in exact and x in g.exact)


@step()
def _guarded(g: _Growth, rng: Any) -> None:
    """Functions with a domain, inside of it."""
    x = _pick(g, rng, _is_float)
    b = g.builder
    one = b.splat(1.0, dtype_of(x), shape_of(x))
    positive = b.binary("add", b.unary("abs", x), one)
    match int(rng.integers(0, 6)):
        case 0:
            made = b.unary("log", positive)
        case 1:
            made = b.unary("sqrt", positive)
        case 2:
            made = b.unary("rsqrt", positive)
        case 3:
            made = b.unary("exponential", b.unary("tanh", x))
        case 4:
            made = b.binary("divide", x, positive)
        case _:
            made = b.binary("power", positive, b.splat(0.5, dtype_of(x), shape_of(x)))
    g.add(made, False)


@step(4)
def _binary(g: _Growth, rng: Any) -> None:
    x = _pick(g, rng)
    y = _alike(g, rng, x)
    kind = dtype_of(x)
    if kind.kind == "bool":
        name = str(rng.choice(["and", "or", "xor"]))
    elif kind.is_integer:
        name = str(rng.choice(["add", "subtract", "multiply", "maximum", "minimum", "and", "or", "xor"]))  # fmt: skip
    else:
        name = str(rng.choice(["add", "subtract", "multiply", "maximum", "minimum", "atan2"]))
    picks = name in ("maximum", "minimum") and x in g.exact and y in g.exact
    g.add(g.builder.binary(name, *((x, y) if rng.random() < 0.7 else (y, x))), picks)


@step()
def _divided(g: _Growth, rng: Any) -> None:
    x = _pick(g, rng, _is_integer)
    b, kind = g.builder, dtype_of(x)
    by = b.splat(int(rng.integers(1, 7)), kind, shape_of(x))
    shifts = ["shift_left", "shift_right_logical", "shift_right_arithmetic"]
    g.add(b.binary(str(rng.choice(["divide", "remainder", *shifts])), x, by), True)


@step(2)
def _compared(g: _Growth, rng: Any) -> None:
    x = _pick(g, rng, lambda v: v in g.exact)
    y = _alike(g, rng, x)
    if y not in g.exact and _inexact(dtype_of(y)) and y in g.pool:
        raise _NothingFits
    g.add(g.builder.compare(str(rng.choice(["EQ", "NE", "LT", "LE", "GT", "GE"])), x, y), True)


@step(2)
def _chosen(g: _Growth, rng: Any) -> None:
    p = _pick(g, rng, lambda v: dtype_of(v) == I1)
    x = _pick(g, rng, lambda v: shape_of(v) == shape_of(p))
    y = _alike(g, rng, x)
    known = x in g.exact and (y in g.exact or y not in g.pool)
    g.add(g.builder.select(p, x, y), known)


@step()
def _clamped(g: _Growth, rng: Any) -> None:
    x = _pick(g, rng, lambda v: dtype_of(v).kind in ("float", "signed"))
    b, kind, shape = g.builder, dtype_of(x), shape_of(x)
    g.add(b.clamp(b.splat(-2, kind, shape), x, b.splat(3, kind, shape)), x in g.exact)


@step(3)
def _converted(g: _Growth, rng: Any) -> None:
    x = _pick(g, rng)
    name = str(rng.choice(["i1", *FLOATS, *INTEGERS]))
    target, source, b = BY_NAME[name], dtype_of(x), g.builder
    if source.is_float and not target.is_float:
        if x not in g.exact:
            raise _NothingFits
        low = 0 if target.kind == "unsigned" else -100
        shape = shape_of(x)
        x = b.clamp(b.splat(low, source, shape), x, b.splat(100, source, shape))
    keeps = x in g.exact and not (_inexact(target) and not _inexact(source) and source.bits > 8)
    g.add(b.convert(x, target), keeps or not _inexact(target))


# -- movement --------------------------------------------------------------------------------


@step(2)
def _transposed(g: _Growth, rng: Any) -> None:
    x = _pick(g, rng, lambda v: len(shape_of(v)) > 1)
    order = [int(n) for n in rng.permutation(len(shape_of(x)))]
    g.add(g.builder.transpose(x, order), x in g.exact)


@step(2)
def _reshaped(g: _Growth, rng: Any) -> None:
    x = _pick(g, rng)
    shape = list(shape_of(x))
    at = int(rng.integers(0, len(shape) + 1))
    if rng.random() < 0.4 or len(shape) < 2:
        shape.insert(at, as_expr(1))
    else:
        at = min(at, len(shape) - 2)
        shape[at : at + 2] = [shape[at] * shape[at + 1]]
    g.add(g.builder.reshape(x, shape), x in g.exact)


@step()
def _spread(g: _Growth, rng: Any) -> None:
    x = _pick(g, rng, lambda v: len(shape_of(v)) < 4)
    shape = list(shape_of(x))
    at = int(rng.integers(0, len(shape) + 1))
    size = [as_expr("n"), as_expr(3), as_expr("m")][int(rng.integers(0, 3))]
    dims = [n + (n >= at) for n in range(len(shape))]
    shape.insert(at, size)
    if g.elements(shape) > MOST_ELEMENTS:
        raise _NothingFits
    g.add(g.builder.broadcast_in_dim(x, dims, shape), x in g.exact)


@step(2)
def _sliced(g: _Growth, rng: Any) -> None:
    x = _pick(g, rng, lambda v: any(s.is_constant and s.value > 1 for s in shape_of(v)))
    shape = shape_of(x)
    start, limit, steps = [0] * len(shape), list(shape), [1] * len(shape)
    at = int(rng.choice([n for n, s in enumerate(shape) if s.is_constant and s.value > 1]))
    size = shape[at].value
    start[at] = int(rng.integers(0, size - 1))
    limit[at] = as_expr(int(rng.integers(start[at] + 1, size + 1)))
    steps[at] = int(rng.integers(1, 3))
    g.add(g.builder.slice(x, start, limit, steps), x in g.exact)


@step(2)
def _padded(g: _Growth, rng: Any) -> None:
    x = _pick(g, rng, lambda v: len(shape_of(v)) > 0)
    rank, kind = len(shape_of(x)), dtype_of(x)
    low, high = ([int(v) for v in rng.integers(0, 3, rank)] for _ in range(2))
    inside = [int(v) for v in (rng.random(rank) < 0.15)]
    shape = shape_of(x)
    if rng.random() < 0.3:
        trimmed = [n for n, s in enumerate(shape) if s.is_constant and s.value > 2]
        for n in trimmed[:1]:
            low[n], inside[n] = -1, 0
    value = g.builder.scalar(_values(rng, kind, ()).item(), kind)
    made = g.builder.pad(x, value, low, high, inside)
    if g.elements(shape_of(made)) > MOST_ELEMENTS:
        raise _NothingFits
    g.add(made, x in g.exact)


@step(2)
def _joined(g: _Growth, rng: Any) -> None:
    x = _pick(g, rng, lambda v: len(shape_of(v)) > 0)
    others = [v for v in g.pool if dtype_of(v) == dtype_of(x) and shape_of(v) == shape_of(x)]
    parts = [x, *(others[int(rng.integers(0, len(others)))] for _ in range(int(rng.integers(1, 3))))]  # fmt: skip
    if g.elements(shape_of(x)) * len(parts) > MOST_ELEMENTS:
        raise _NothingFits
    axis = int(rng.integers(0, len(shape_of(x))))
    g.add(g.builder.concatenate(parts, axis), all(p in g.exact for p in parts))


@step()
def _reversed(g: _Growth, rng: Any) -> None:
    x = _pick(g, rng, lambda v: len(shape_of(v)) > 0)
    g.add(g.builder.reverse(x, [int(rng.integers(0, len(shape_of(x))))]), x in g.exact)


@step()
def _taken(g: _Growth, rng: Any) -> None:
    x = _pick(g, rng, lambda v: any(s.is_constant for s in shape_of(v)))
    axis = int(rng.choice([n for n, s in enumerate(shape_of(x)) if s.is_constant]))
    size = shape_of(x)[axis].value
    places = rng.integers(0, size, int(rng.integers(1, 5))).astype(np.int32)
    indices = g.builder.constant(places)
    g.add(g.builder.take(x, indices, axis), x in g.exact)


@step()
def _windowed_slice(g: _Growth, rng: Any) -> None:
    x = _pick(
        g, rng, lambda v: len(shape_of(v)) in (1, 2) and all(s.is_constant for s in shape_of(v))
    )
    sizes = [s.value for s in shape_of(x)]
    lengths = [int(rng.integers(1, s + 1)) for s in sizes]
    starts = [g.builder.scalar(int(rng.integers(-1, s + 1)), I32) for s in sizes]
    part = g.builder.dynamic_slice(x, starts, lengths)
    if rng.random() < 0.5:
        g.add(part, x in g.exact)
        return
    starts = [g.builder.scalar(int(rng.integers(-1, s + 1)), I32) for s in sizes]
    g.add(g.builder.dynamic_update_slice(x, part, starts), x in g.exact)


@step()
def _counted(g: _Growth, rng: Any) -> None:
    shape = [as_expr(s) for s in SHAPES[int(rng.integers(0, len(SHAPES)))]] or [as_expr(3)]
    kind = BY_NAME[str(rng.choice(["i32", "f32", "i64", "f64"]))]
    g.add(g.builder.iota(kind, shape, int(rng.integers(0, len(shape)))), True)


# -- what combines ---------------------------------------------------------------------------


@step(3)
def _reduced(g: _Growth, rng: Any) -> None:
    x = _pick(g, rng, lambda v: len(shape_of(v)) > 0)
    kind, rank, b = dtype_of(x), len(shape_of(x)), g.builder
    count = int(rng.integers(1, rank + 1))
    axes = sorted(int(n) for n in rng.choice(rank, count, replace=False))
    if kind.kind == "bool":
        name, start = (("and", True), ("or", False))[int(rng.integers(0, 2))]
    else:
        low, high = _extremes(kind)
        name, start = (("add", 0), ("maximum", low), ("minimum", high))[int(rng.integers(0, 3))]
    (made,) = b.reduce(x, b.scalar(start, kind), axes, name)
    g.add(made, name != "add" and x in g.exact)


def _extremes(kind: DType) -> tuple[Any, Any]:
    if kind.is_float:
        return -np.inf, np.inf
    info = np.iinfo(kind.numpy_dtype)
    return int(info.min), int(info.max)


@step(2)
def _multiplied(g: _Growth, rng: Any) -> None:
    x = _pick(
        g, rng, lambda v: _is_float(v) and len(shape_of(v)) > 0 and shape_of(v)[-1].is_constant
    )
    rank, kind = len(shape_of(x)), dtype_of(x)
    depth = shape_of(x)[-1].value
    if depth > 64:
        raise _NothingFits
    weight = _parameter(g, rng, kind, (depth, int(rng.choice([1, 3, 8, 16, 33]))))
    made = g.builder.dot_general(x, weight, contract=([rank - 1], [0]))
    g.add(g.builder.unary("tanh", made) if rng.random() < 0.5 else made, False)


@step()
def _batched_product(g: _Growth, rng: Any) -> None:
    x = _pick(g, rng, lambda v: _is_float(v) and len(shape_of(v)) == 3)
    made = g.builder.dot_general(x, x, contract=([2], [2]), batch=([0], [0]))
    g.add(g.builder.unary("tanh", made), False)


@step()
def _convolved(g: _Growth, rng: Any) -> None:
    x = _pick(g, rng, lambda v: dtype_of(v).name in ("f32", "f64", "f16") and len(shape_of(v)) == 4
              and all(s.is_constant for s in shape_of(v)[1:]))  # fmt: skip
    channels, high, wide = (s.value for s in shape_of(x)[1:])
    size = int(rng.integers(1, 4))
    if high < size or wide < size or channels > 16:
        raise _NothingFits
    weight = _parameter(g, rng, dtype_of(x), (int(rng.choice([1, 4, 5])), channels, size, size))
    made = g.builder.convolution(
        x, weight, window_strides=[int(v) for v in rng.integers(1, 3, 2)],
        padding_low=[int(v) for v in rng.integers(0, 2, 2)],
        padding_high=[int(v) for v in rng.integers(0, 2, 2)],
    )  # fmt: skip
    g.add(g.builder.unary("tanh", made), False)


@step()
def _pooled(g: _Growth, rng: Any) -> None:
    x = _pick(g, rng, lambda v: dtype_of(v).kind in ("float", "signed") and len(shape_of(v)) in (1, 2)
              and all(s.is_constant and s.value > 1 for s in shape_of(v)))  # fmt: skip
    rank, kind, b = len(shape_of(x)), dtype_of(x), g.builder
    low, _ = _extremes(kind)
    name, start = (("add", 0), ("maximum", low))[int(rng.integers(0, 2))]
    (made,) = b.reduce_window(
        [x], [b.scalar(start, kind)],
        lambda inner, p, q: [inner.binary(name, p, q)],
        window_dimensions=[2] * rank, window_strides=[int(v) for v in rng.integers(1, 3, rank)],
        padding_low=[0] * rank, padding_high=[int(v) for v in rng.integers(0, 2, rank)],
    )  # fmt: skip
    g.add(made, name != "add" and x in g.exact)


@step()
def _sorted(g: _Growth, rng: Any) -> None:
    x = _pick(g, rng, lambda v: v in g.exact and len(shape_of(v)) > 0 and dtype_of(v) != I1)
    axis = int(rng.integers(0, len(shape_of(x))))
    direction = str(rng.choice(["LT", "GT"]))
    (made,) = g.builder.sort([x], axis, lambda inner, p, q: [inner.compare(direction, p, q)])
    g.add(made, True)


@step()
def _scattered(g: _Growth, rng: Any) -> None:
    x = _pick(
        g,
        rng,
        lambda v: (
            len(shape_of(v)) == 2
            and all(s.is_constant for s in shape_of(v))
            and dtype_of(v) != I1
        ),
    )
    rows, columns = (s.value for s in shape_of(x))
    count, kind, b = int(rng.integers(1, 4)), dtype_of(x), g.builder
    places = b.constant(rng.integers(0, rows, (count, 1)).astype(np.int32))
    updates = _parameter(g, rng, kind, (count, columns))
    (made,) = b.scatter(
        [x], places, [updates], lambda inner, p, q: [inner.binary("add", p, q)],
        update_window_dims=(1,), inserted_window_dims=(0,),
        scatter_dims_to_operand_dims=(0,), index_vector_dim=1,
    )  # fmt: skip
    g.add(made, False)


@step()
def _normalised(g: _Growth, rng: Any) -> None:
    """A softmax over the last dimension, as models write it."""
    x = _pick(g, rng, lambda v: _is_float(v) and len(shape_of(v)) > 1)
    b, rank, shape = g.builder, len(shape_of(x)), shape_of(x)
    dims = list(range(rank - 1))
    (most,) = b.reduce(x, b.scalar(-np.inf, dtype_of(x)), [rank - 1], "maximum")
    moved = b.unary(
        "exponential", b.binary("subtract", x, b.broadcast_in_dim(most, dims, shape))
    )
    (total,) = b.reduce(moved, b.scalar(0, dtype_of(x)), [rank - 1], "add")
    g.add(b.binary("divide", moved, b.broadcast_in_dim(total, dims, shape)), False)


# -- loops -------------------------------------------------------------------------------------


def _looped(g: _Growth, rng: Any) -> None:
    """A loop that carries values of the graph and stacks some: each next value is another
    carried one, or made of carried ones and of what stands outside."""
    carried = [_pick(g, rng) for _ in range(int(rng.integers(1, 5)))]
    trips = [as_expr("n"), as_expr("m"), as_expr(int(rng.integers(1, 12)))][
        int(rng.integers(0, 3))
    ]
    outer = list(g.pool)
    stacked = [int(n) for n in rng.permutation(len(carried))[: int(rng.integers(0, 3))]]
    if any(g.elements(shape_of(carried[n])) * 12 > MOST_ELEMENTS for n in stacked):
        raise _NothingFits

    def trip(_: SSAValue, values: list[SSAValue]) -> Stepped:
        made: list[SSAValue] = []
        for value in values:
            inside = [*values, *made, *outer]
            alike = [v for v in inside if v.type == value.type]
            made.append(_next(g, rng, value, alike))
        return Stepped(made, [(made if rng.random() < 0.5 else values)[n] for n in stacked])

    backwards = bool(rng.random() < 0.3)
    found = counted_loop(g.builder, trips, carried, trip, reverse=backwards)
    for value in (*found.carried, *found.kept):
        g.add(value, False)


def _next(g: _Growth, rng: Any, value: SSAValue, alike: list[SSAValue]) -> SSAValue:
    """What a trip makes of a value; floats stay about as large as they are."""
    b, kind = g.builder, dtype_of(value)
    other = alike[int(rng.integers(0, len(alike)))]
    choice = int(rng.integers(0, 4))
    if choice == 0:
        return other
    if choice == 1 and len(shape_of(value)) > 1:
        order = list(range(len(shape_of(value))))[::-1]
        turned = b.transpose(other, order)
        return turned if turned.type == value.type else b.reverse(other, [0])
    if kind.kind == "bool":
        return b.binary("xor", value, other)
    if not kind.is_float:
        return b.binary(str(rng.choice(["add", "subtract", "xor", "maximum"])), value, other)
    half = b.splat(0.5, kind, shape_of(value))
    if choice == 2:
        return b.binary("multiply", b.binary("add", value, other), half)
    return b.binary("maximum", b.binary("multiply", value, half), other)


LOOPS_FROM = 10_000
"""Graphs from this number on have loops among their steps; those before stay what they were.
The odd ones bound their dimensions, so that small loops are known to be small."""


def _steps_of(seed: int) -> list[Step]:
    return STEPS if seed < LOOPS_FROM else [*STEPS, *[_looped] * (len(STEPS) // 3)]


# -- whole graphs ------------------------------------------------------------------------------


def seeds_of(seed: int) -> list[int]:
    """The steps of graph number `seed`."""
    rng = np.random.default_rng(seed)
    return [int(s) for s in rng.integers(0, 2**31, int(rng.integers(1, 31)))]


def grow(seed: int, steps: Sequence[int]) -> Grown:
    """The graph of some steps; `seed` decides inputs and sizes."""
    rng = np.random.default_rng([seed, 1])
    dims = {"n": int(rng.integers(1, 9)), "m": int(rng.integers(1, 9))}
    # The first input has both of the named sizes: calls solve them from inputs.
    kinds: list[tuple[DType, list[Expr]]] = [(BY_NAME["f32"], [as_expr("n"), as_expr("m")])]
    for _ in range(int(rng.integers(1, 4))):
        name = str(rng.choice(FLOATS if rng.random() < 0.65 else INTEGERS))
        shape = SHAPES[int(rng.integers(0, len(SHAPES)))]
        kinds.append((BY_NAME[name], [as_expr(s) for s in shape]))
    block = Block(arg_types=[tensor_type(k, s) for k, s in kinds])
    growth = _Growth(TensorBuilder(block, location("grown")), dims)
    for argument in block.args:
        growth.add(argument, True)
    among = _steps_of(seed)
    for number in steps:
        own = np.random.default_rng(number)
        try:
            among[int(own.integers(0, len(among)))](growth, own)
        except _NothingFits:
            continue
    made = [v for v in growth.pool if v not in set(block.args)] or [growth.pool[0]]
    results = [made[-1], *(v for v in made[:-1] if not list(v.uses))][:6]
    block.add_op(ReturnOp(*results))
    function = FuncOp("main", (list(block.arg_types), [r.type for r in results]), Region(block))
    function.properties["arg_attrs"] = _names("x", len(kinds))
    function.properties["res_attrs"] = _names("y", len(results))
    model = Model(ModuleOp([function]), growth.parameters, f"grown {seed}")
    inputs = [_values(rng, k, [s.evaluate(dims) for s in shape]) for k, shape in kinds]
    if seed >= LOOPS_FROM and seed % 2:
        model.dimension_ranges.update({name: (1, 8) for name in dims})
    return Grown(model, inputs, dims)


def _names(letter: str, count: int) -> Any:
    return ArrayAttr(
        [DictionaryAttr({"hr.name": StringAttr(f"{letter}{n}")}) for n in range(count)]
    )
