"""Random numbers: a function of the seed and of each element's place.

Generator: Threefry-2x32 with 20 rounds (Salmon et al., "Parallel Random Numbers: As Easy as
1, 2, 3", 2011), the counter being the element's index. A model is a function, so every call
draws the same numbers. Without the attribute `seed` the node's name seeds, so that two nodes
draw different numbers and a model compiles to the same file each time.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

from xdsl.ir import SSAValue

from headrace.base.dtypes import F32, F64, I1, I32, I64, UI32, UI64, DType
from headrace.base.symbols import Expr, as_expr, product
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.ops.points import working_type
from headrace.importers.onnx.registry import Result, onnx_op
from headrace.importers.onnx.weights import element_dtype
from headrace.ir.types import dtype_of, shape_of

_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
_PARITY = 0x1BD11BDA
_ROUNDS = 20
Words = tuple[SSAValue, SSAValue]


def _key(c: NodeContext) -> tuple[int, int]:
    import numpy as np

    if c.has_attribute("seed"):
        seed = c.node.attributes["seed"]
        number = float(seed.i) if seed.type == seed.INT else float(seed.f)
        return int(np.float32(number).view(np.uint32)), 0
    return zlib.crc32(c.node.label.encode()), 1


def random_words(c: NodeContext, shape: Sequence[Expr]) -> Words:
    """Two independent 32-bit words for every element of a shape."""
    b = c.build
    counters = b.iota(UI64, (product(shape),), 0)
    low = b.reshape(b.convert(counters, UI32), shape)
    high = c.with_scalar("shift_right_logical", counters, 32)
    return _threefry(c, _key(c), (low, b.reshape(b.convert(high, UI32), shape)))


def _threefry(c: NodeContext, key: tuple[int, int], counter: Words) -> Words:
    b = c.build
    keys = (*key, _PARITY ^ key[0] ^ key[1])
    x, y = (c.with_scalar("add", w, k) for w, k in zip(counter, key, strict=True))
    for n in range(_ROUNDS):
        x = b.binary("add", x, y)
        y = b.binary("xor", _rotated(c, y, _ROTATIONS[n % 8]), x)
        if n % 4 == 3:
            turn = n // 4 + 1
            x = c.with_scalar("add", x, keys[turn % 3])
            y = c.with_scalar("add", y, (keys[(turn + 1) % 3] + turn) & 0xFFFFFFFF)
    return x, y


def _rotated(c: NodeContext, x: SSAValue, bits: int) -> SSAValue:
    left = c.with_scalar("shift_left", x, bits)
    return c.build.binary("or", left, c.with_scalar("shift_right_logical", x, 32 - bits))


def _unit(c: NodeContext, words: Sequence[SSAValue], kind: DType) -> SSAValue:
    """0 <= u < 1: 24 bits of the first word for f32, 53 of both for f64."""
    b = c.build
    if kind == F32:
        top = c.with_scalar("shift_right_logical", words[0], 8)
        return c.with_scalar("multiply", b.convert(top, F32), 2.0**-24)
    high = c.with_scalar("shift_right_logical", words[0], 5)
    low = c.with_scalar("shift_right_logical", words[1], 6)
    wide = c.with_scalar("multiply", b.convert(high, F64), 2.0**26)
    return c.with_scalar("multiply", b.binary("add", wide, b.convert(low, F64)), 2.0**-53)


def uniform(c: NodeContext, shape: Sequence[Expr], kind: DType) -> SSAValue:
    """Numbers 0 <= u < 1 of f32 or f64."""
    return _unit(c, random_words(c, shape), kind)


def _normal(c: NodeContext, shape: Sequence[Expr], kind: DType) -> SSAValue:
    """Box and Muller's transform of two uniform numbers."""
    b = c.build
    words = random_words(c, shape)
    if kind == F32:
        first, second = _unit(c, words[:1], F32), _unit(c, words[1:], F32)
    else:  # 32 bits of angle, 53 of distance would need a third word
        first, second = (c.with_scalar("multiply", b.convert(w, F64), 2.0**-32) for w in words)
    rest = b.binary("subtract", c.scalar_like(1, first), first)
    distance = b.unary("sqrt", c.with_scalar("multiply", b.unary("log", rest), -2.0))
    angle = c.with_scalar("multiply", second, 2 * math.pi)
    return b.binary("multiply", distance, b.unary("cosine", angle))


@onnx_op("RandomUniform", "RandomNormal", "RandomUniformLike", "RandomNormalLike")
def random_(c: NodeContext) -> SSAValue:
    name = c.node.op_type
    if name.endswith("Like"):
        shape: Sequence[Expr] = c.shape(0)
        code = c.int("dtype", 0)
        kind = element_dtype(code, c.node.place) if code else c.dtype(0)
    else:
        shape = [as_expr(s) for s in c.ints("shape") or []]
        kind = element_dtype(c.int("dtype", 1), c.node.place)
    if not kind.is_float:
        raise c.malformed(f"random numbers of {kind}")
    work = working_type(kind)
    if name.startswith("RandomUniform"):
        low, high = c.float("low", 0.0), c.float("high", 1.0)
        made = c.with_scalar("multiply", uniform(c, shape, work), high - low)
        return c.build.convert(c.with_scalar("add", made, low), kind)
    made = c.with_scalar("multiply", _normal(c, shape, work), c.float("scale", 1.0))
    return c.build.convert(c.with_scalar("add", made, c.float("mean", 0.0)), kind)


@onnx_op("Bernoulli")
def bernoulli(c: NodeContext) -> SSAValue:
    """1 with the probability that stands at each place, else 0.

    ONNX's own function body draws 1 with the probability 1 - p.
    """
    x = c.data(0)
    code = c.int("dtype", 0)
    kind = element_dtype(code, c.node.place) if code else c.dtype(0)
    work = working_type(dtype_of(x))
    drawn = uniform(c, shape_of(x), work)
    return c.build.convert(c.build.compare("LT", drawn, c.build.convert(x, work)), kind)


@onnx_op("Multinomial")
def multinomial(c: NodeContext) -> SSAValue:
    """Classes drawn by log-probabilities: how many cumulated shares lie below a number."""
    b = c.build
    x = b.convert(c.data(0), F32)
    batch, classes = shape_of(x)
    kind = element_dtype(c.int("dtype", 6), c.node.place)
    if kind not in (I32, I64):
        raise c.malformed(f"classes of {kind}")
    peak = c.reduce(x, -math.inf, [1], "maximum", keep=True)
    share = b.unary("exponential", b.binary("subtract", x, b.broadcast_to(peak, shape_of(x))))
    square = (batch, classes, classes)
    before = b.compare("LE", b.iota(I64, square, 2), b.iota(I64, square, 1))
    spread = b.broadcast_in_dim(share, (0, 2), square)
    sums = c.reduce(b.select(before, spread, c.scalar_like(0, spread)), 0, [2], "add")
    samples = as_expr(c.int("sample_size", 1))
    total = b.broadcast_to(c.slice_axis(sums, 1, classes - 1, classes), (batch, samples))
    drawn = b.binary("multiply", uniform(c, (batch, samples), F32), total)
    wide = (batch, samples, classes)
    passed = b.compare(
        "LE", b.broadcast_in_dim(sums, (0, 2), wide), b.broadcast_in_dim(drawn, (0, 1), wide)
    )
    count = c.reduce(b.convert(passed, kind), 0, [2], "add")
    last = b.broadcast_in_dim(c.count([classes - 1], kind), (), shape_of(count))
    return b.binary("minimum", count, last)


@onnx_op("Dropout", since=12)
def dropout(c: NodeContext) -> list[Result]:
    """Drops nothing unless `training_mode` says so; then by a random mask, the rest scaled."""
    b, value = c.build, c.value(0)
    trains = c.has(2) and (c.known(2) is None or bool(c.constant(2)))
    ratio = float(c.constant(1)) if c.has(1) and c.known(1) is not None else 0.5
    if not trains or (c.known(1) is not None and ratio == 0.0):
        return [value, b.splat(True, I1, value.shape)] if c.wants(1) else [value]
    x = c.data(0)
    kind, work = dtype_of(x), working_type(dtype_of(x))
    share = b.scalar(ratio, work)
    if c.has(1) and c.known(1) is None:
        share = b.reshape(b.convert(c.data(1), work), ())
    drawn = uniform(c, shape_of(x), work)
    kept = b.compare("GE", drawn, b.broadcast_in_dim(share, (), shape_of(x)))
    if c.known(2) is None:  # known only when it runs
        rests = b.unary("not", b.reshape(c.data(2), ()))
        kept = b.binary("or", kept, b.broadcast_in_dim(rests, (), shape_of(x)))
        share = b.select(rests, b.scalar(0, work), share)
    rest = b.binary("subtract", b.scalar(1, work), share)
    scaled = b.binary("divide", b.convert(x, work), b.broadcast_in_dim(rest, (), shape_of(x)))
    made = b.select(kept, scaled, c.scalar_like(0, scaled))
    return [b.convert(made, kind), kept]
