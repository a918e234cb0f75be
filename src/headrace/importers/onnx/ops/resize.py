"""Resize and Upsample: separable resampling, one axis after another."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from xdsl.ir import SSAValue

from headrace.base.dtypes import F32, I1
from headrace.base.symbols import Expr, as_expr
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.ops.sampling import Arithmetic
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import dtype_of, shape_of


@dataclass(frozen=True)
class AxisResize:
    """One axis of a resize.

    Attributes:
        axis: which.
        source, target: sizes before and after.
        scale: the factor stated; None where it is target / source.
        region: start and end of the region of interest, normalised.
    """

    axis: int
    source: Expr
    target: Expr
    scale: float | None
    region: tuple[float, float]

    @property
    def ratio(self) -> float:
        """The factor of constant sizes."""
        if self.scale is not None:
            return self.scale
        return self.target.value / self.source.value


@dataclass(frozen=True)
class Method:
    """How values between places are found; the attributes of Resize."""

    mode: str
    coordinates: str
    nearest: str
    cubic: float
    exclude_outside: bool
    antialias: bool
    extrapolation: float


@onnx_op("Upsample", "Resize")
def upsample(c: NodeContext) -> SSAValue:
    """Upsample, and Resize of opset 10: the scales only, asymmetric, rounding down."""
    shape = c.shape(0)
    if c.has_attribute("scales"):
        scales = c.floats("scales") or []
    else:
        scales = [float(s) for s in c.constant(1)]
    if len(scales) != len(shape):
        raise c.malformed(f"{len(scales)} scales for rank {len(shape)}")
    plan = [
        AxisResize(n, size, scaled_size(size, scale), scale, (0.0, 1.0))
        for n, (size, scale) in enumerate(zip(shape, scales, strict=True))
    ]
    mode = c.string("mode", "nearest")
    return _resize(c, plan, Method(mode, "asymmetric", "floor", -0.75, False, False, 0.0))


@onnx_op("Resize", since=11)
def resize(c: NodeContext) -> SSAValue:
    method = Method(
        c.string("mode", "nearest"),
        c.string("coordinate_transformation_mode", "half_pixel"),
        c.string("nearest_mode", "round_prefer_floor"),
        c.float("cubic_coeff_a", -0.75),
        c.flag("exclude_outside"),
        c.flag("antialias"),
        c.float("extrapolation_value"),
    )
    return _resize(c, _plan(c), method)


def _plan(c: NodeContext) -> list[AxisResize]:
    shape = c.shape(0)
    rank = len(shape)
    axes = c.normal_axes(c.ints("axes", range(rank)) or [], rank)
    regions = [(0.0, 1.0)] * rank
    if c.string("coordinate_transformation_mode") == "tf_crop_and_resize":
        region = [float(v) for v in c.constant(1)]
        for n, axis in enumerate(axes):
            regions[axis] = (region[n], region[n + len(axes)])
    has_scales = c.has(2) and c.shape(2) != (as_expr(0),)
    if has_scales:
        # The text scales the size of the region; ONNX's own shapes, its reference and
        # onnxruntime scale that of the whole.
        scales = [float(s) for s in c.constant(2)]
        stated = dict(zip(axes, scales, strict=True))
        return [
            AxisResize(n, shape[n], scaled_size(shape[n], s), s, regions[n])
            for n, s in sorted(stated.items())
        ]
    targets = dict(zip(axes, c.sizes(3), strict=True))
    policy = c.string("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        if not all(targets[n].is_constant and shape[n].is_constant for n in axes):
            raise c.unsupported(f"'keep_aspect_ratio_policy' {policy} where sizes are open")
        pick = min if policy == "not_larger" else max
        scale = pick(targets[n].value / shape[n].value for n in axes)
        return [
            AxisResize(
                n,
                shape[n],
                as_expr(math.floor(scale * shape[n].value + 0.5)),
                scale,
                regions[n],
            )
            for n in sorted(axes)
        ]
    return [
        AxisResize(n, shape[n], target, None, regions[n])
        for n, target in sorted(targets.items())
    ]


def scaled_size(size: Expr, scale: float) -> Expr:
    """floor(size * scale), the scale taken as the fraction it was written as."""
    exact = Fraction(scale).limit_denominator(4096)
    if abs(float(exact) - scale) > abs(scale) * 1e-6:
        exact = Fraction(scale)
    if size.is_constant:
        return as_expr(math.floor(size.value * exact))
    return (size * exact.numerator) // exact.denominator


def _resize(c: NodeContext, plan: list[AxisResize], method: Method) -> SSAValue:
    x, b = c.data(0), c.build
    kind = dtype_of(x)
    computes = method.mode != "nearest"
    if computes and kind != F32:
        x = b.convert(x, F32)
    outside: list[tuple[int, SSAValue]] = []
    for step in plan:
        unchanged = step.source == step.target and step.region == (0.0, 1.0)
        if unchanged and (step.scale is None or step.scale == 1.0):
            continue
        x = _resize_axis(c, x, step, method)
        if method.coordinates == "tf_crop_and_resize":
            arithmetic = Arithmetic(c)
            places = _positions(arithmetic, step, method)
            last = arithmetic("subtract", arithmetic.size(step.source, step.target), 1.0)
            outside.append((step.axis, arithmetic.data(arithmetic.inside(places, last))))
    for axis, mask in outside:
        inside = b.convert(c.along(mask, axis, shape_of(x)), I1)
        x = b.select(inside, x, c.scalar_like(method.extrapolation, x))
    if computes and kind.is_integer:
        x = b.unary("round_nearest_even", x)
    return b.convert(x, kind)


def _resize_axis(c: NodeContext, x: SSAValue, step: AxisResize, method: Method) -> SSAValue:
    if method.mode == "nearest":
        times = _repeats(step, method)
        if times is not None:
            return _repeated(c, x, step.axis, times)
        return _nearest(c, x, step, method)
    if method.antialias and step.ratio < 1:
        return _antialiased(c, x, step, method)
    return _weighted(c, x, step, method)


def _repeats(step: AxisResize, method: Method) -> int | None:
    """How often each element repeats, where nearest is just that."""
    scale = step.scale
    if scale is None and step.source.is_constant and step.target.is_constant:
        scale = step.ratio
    if scale is None or scale != int(scale) or scale < 1:
        return None
    downward = method.coordinates == "asymmetric" and method.nearest == "floor"
    centred = method.coordinates == "half_pixel" and method.nearest.startswith("round")
    return int(scale) if downward or centred else None


def _repeated(c: NodeContext, x: SSAValue, axis: int, times: int) -> SSAValue:
    shape = list(shape_of(x))
    wide = [*shape[: axis + 1], as_expr(times), *shape[axis + 1 :]]
    places = [n if n <= axis else n + 1 for n in range(len(shape))]
    spread = c.build.broadcast_in_dim(x, places, wide)
    shape[axis] = shape[axis] * times
    return c.build.reshape(spread, shape)


def _positions(a: Arithmetic, step: AxisResize, method: Method) -> Any:
    """For each result place, the (fractional) place in the source."""
    index = a.index(step.target)
    source = a.size(step.source, step.target)
    target = a.size(step.target, step.target)
    scale = step.scale if step.scale is not None else a("divide", target, source)
    rule = method.coordinates
    last = a("subtract", source, 1.0)
    steps = a("subtract", target, 1.0)
    several = a("minimum", steps, 1.0)  # 0 where there is one place, else 1
    centred = a("subtract", a("divide", a("add", index, 0.5), scale), 0.5)
    if rule == "half_pixel":
        return centred
    if rule == "pytorch_half_pixel":
        return a("multiply", centred, several)
    if rule == "asymmetric":
        return a("divide", index, scale)
    if rule == "tf_half_pixel_for_nn":
        return a("divide", a("add", index, 0.5), scale)
    if rule == "half_pixel_symmetric":
        adjustment = a("divide", target, a("multiply", source, scale))
        centre = a("divide", source, 2.0)
        return a("add", a("multiply", centre, a("subtract", 1.0, adjustment)), centred)
    if rule == "align_corners":
        if step.scale is not None:  # the definition counts a fractional length
            steps = a("subtract", a("multiply", source, step.scale), 1.0)
        return a("divide", a("multiply", index, last), a("maximum", steps, 1.0))
    if rule == "tf_crop_and_resize":
        start, end = step.region
        reach = a("multiply", last, end - start)
        each = a("divide", reach, a("maximum", steps, 1.0))
        places = a("add", a("multiply", last, start), a("multiply", index, each))
        single = a("multiply", a("subtract", 1.0, several), 0.5)  # in the middle
        return a("add", places, a("multiply", single, reach))
    raise a.c.malformed(f"coordinate_transformation_mode '{rule}' is unknown")


def _nearest(c: NodeContext, x: SSAValue, step: AxisResize, method: Method) -> SSAValue:
    a = Arithmetic(c)
    places = _positions(a, step, method)
    if method.nearest == "round_prefer_floor":
        places = a.ceil(a("subtract", places, 0.5))
    elif method.nearest == "round_prefer_ceil":
        places = a.floor(a("add", places, 0.5))
    elif method.nearest == "floor":
        places = a.floor(places)
    elif method.nearest == "ceil":
        places = a.ceil(places)
    else:
        raise c.malformed(f"nearest_mode '{method.nearest}' is unknown")
    last = a("subtract", a.size(step.source, step.target), 1.0)
    return c.build.take(x, a.clamped_index(places, last), step.axis)


def _taps(a: Arithmetic, places: Any, method: Method) -> list[tuple[Any, Any]]:
    """The source places that a result place takes from, and their weights."""
    floor = a.floor(places)
    t = a("subtract", places, floor)
    if method.mode == "linear":
        return [(floor, a("subtract", 1.0, t)), (a("add", floor, 1.0), t)]
    if method.mode != "cubic":
        raise a.c.malformed(f"mode '{method.mode}' is unknown")
    k = method.cubic
    return [
        (a("add", floor, float(n)), _cubic(a, a("subtract", t, float(n)), k, n))
        for n in range(-1, 3)
    ]


def _cubic(a: Arithmetic, distance: Any, k: float, tap: int) -> Any:
    """The cubic convolution kernel; taps 0 and 1 are near, -1 and 2 far."""
    d = distance if tap <= 0 else a("multiply", distance, -1.0)

    def polynomial(*coefficients: float) -> Any:
        total: Any = a("add", a("multiply", d, 0.0), coefficients[0])
        for coefficient in coefficients[1:]:
            total = a("add", a("multiply", total, d), coefficient)
        return total

    if tap in (0, 1):
        return polynomial(k + 2, -(k + 3), 0.0, 1.0)
    return polynomial(k, -5 * k, 8 * k, -4 * k)


def _weighted(c: NodeContext, x: SSAValue, step: AxisResize, method: Method) -> SSAValue:
    a, b = Arithmetic(c), c.build
    last = a("subtract", a.size(step.source, step.target), 1.0)
    taps = _taps(a, _positions(a, step, method), method)
    if method.exclude_outside:
        taps = [(place, a("multiply", w, a.inside(place, last))) for place, w in taps]
        total = taps[0][1]
        for _, weight in taps[1:]:
            total = a("add", total, weight)
        taps = [(place, a("divide", w, total)) for place, w in taps]
    result: SSAValue | None = None
    for place, weight in taps:
        taken = b.take(x, a.clamped_index(place, last), step.axis)
        term = b.binary("multiply", taken, c.along(a.data(weight), step.axis, shape_of(taken)))
        result = term if result is None else b.binary("add", result, term)
    assert result is not None
    return result


def _antialiased(c: NodeContext, x: SSAValue, step: AxisResize, method: Method) -> SSAValue:
    """A contraction with the matrix of stretched filter weights; constant sizes only."""
    import numpy as np

    source, target, scale = step.source.value, step.target.value, step.ratio
    places = _positions(Arithmetic(c), step, method)
    matrix = _stretched(np.arange(source)[None, :] - places[:, None], scale, method)
    if not method.exclude_outside:
        width = math.ceil(2 / scale) + 1
        for beyond in range(1, width + 1):
            matrix[:, 0] += _stretched(-beyond - places, scale, method)
            matrix[:, -1] += _stretched(source - 1 + beyond - places, scale, method)
    matrix /= matrix.sum(axis=1, keepdims=True)
    weights = c.as_data(c.from_array(matrix.astype(np.float32).reshape(target, source)))
    rank = len(shape_of(x))
    made = c.build.dot_general(x, weights, contract=((step.axis,), (1,)))
    order = [*range(step.axis), rank - 1, *range(step.axis, rank - 1)]
    return c.build.transpose(made, order)


def _stretched(offset: Any, scale: float, method: Method) -> Any:
    """The filter at an offset from the place, as wide as the source is denser."""
    import numpy as np

    d = np.abs(offset) * scale
    if method.mode == "linear":
        return np.maximum(0.0, 1.0 - d)
    k = method.cubic
    near = ((k + 2) * d - (k + 3)) * d * d + 1
    far = ((k * d - 5 * k) * d + 8 * k) * d - 4 * k
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))
