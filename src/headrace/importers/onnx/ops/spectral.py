"""Fourier transforms, and the weights of mel spectra."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from xdsl.ir import SSAValue

from headrace.base.dtypes import F64, I64
from headrace.base.parameters import array_source
from headrace.base.symbols import Expr, as_expr
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.registry import onnx_op
from headrace.importers.onnx.values import Value
from headrace.importers.onnx.weights import element_dtype
from headrace.ir.types import dtype_of, shape_of

_LONGEST_PRODUCT = 256  # longer transforms are split by a factor of their length
_LARGEST_MATRIX = 1 << 20  # larger matrices of roots are computed, not stored


@dataclass(frozen=True)
class _Parts:
    """Complex numbers as tensors of one shape; `imaginary` is None for real ones."""

    real: SSAValue
    imaginary: SSAValue | None

    @property
    def shape(self) -> tuple[Expr, ...]:
        return shape_of(self.real)


class _Fourier:
    """Transforms along the last dimension, in f64: long sums cancel."""

    def __init__(self, c: NodeContext, sign: int) -> None:
        self.c = c
        self.build = c.build
        self.sign = sign

    def each(self, x: _Parts, change: Any) -> _Parts:
        return _Parts(change(x.real), None if x.imaginary is None else change(x.imaginary))

    def transform(self, x: _Parts, outputs: Expr) -> _Parts:
        """The first `outputs` frequencies of all the elements of the last dimension."""
        length = x.shape[-1]
        if length.is_constant and outputs.is_constant:
            factor = _factor(length.value)
            if length.value > _LONGEST_PRODUCT and factor > 1:
                whole = self._split(x, factor, length.value // factor)
                last = len(x.shape) - 1
                return self.each(whole, lambda v: self.c.slice_axis(v, last, 0, outputs))
        return self.product(x, self.roots(length, outputs, length))

    def _split(self, x: _Parts, first: int, second: int) -> _Parts:
        """A length first x second: transforms of both lengths with a twist between."""
        b, before = self.build, x.shape[:-1]
        rank = len(before)
        swap = (*range(rank), rank + 1, rank)

        def turned(v: SSAValue) -> SSAValue:
            return b.transpose(v, swap)

        x = self.each(x, lambda v: b.reshape(v, (*before, first, second)))
        x = self.transform(self.each(x, turned), as_expr(first))  # [..., second, first]
        twist = self.roots(as_expr(second), as_expr(first), as_expr(first * second))
        x = self.times(x, self.each(twist, lambda v: b.broadcast_to(v, shape_of(x.real))))
        x = self.transform(self.each(x, turned), as_expr(second))  # [..., first, second]
        x = self.each(x, turned)
        return self.each(x, lambda v: b.reshape(v, (*before, first * second)))

    def roots(self, rows: Expr, columns: Expr, length: Expr) -> _Parts:
        """exp(sign 2 pi i row column / length), the angle reduced exactly."""
        import numpy as np

        b, c = self.build, self.c
        if all(e.is_constant for e in (rows, columns, length)):
            r, k, n = rows.value, columns.value, length.value
            if r * k <= _LARGEST_MATRIX:
                turns = np.outer(np.arange(r), np.arange(k)) % n
                angle = self.sign * 2 * np.pi * turns / n
                parts = (c.as_data(c.from_array(f(angle))) for f in (np.cos, np.sin))
                return _Parts(*parts)
        shape = (rows, columns)
        total = b.broadcast_in_dim(c.count([length], I64), (), shape)
        turns = b.binary("multiply", b.iota(I64, shape, 0), b.iota(I64, shape, 1))
        turns = b.convert(b.binary("remainder", turns, total), F64)
        angle = b.binary("divide", turns, b.convert(total, F64))
        angle = c.with_scalar("multiply", angle, self.sign * 2 * math.pi)
        return _Parts(b.unary("cosine", angle), b.unary("sine", angle))

    def product(self, x: _Parts, matrix: _Parts) -> _Parts:
        """x times a matrix [length, outputs], over the last dimension."""
        b = self.build
        last = len(x.shape) - 1

        def dot(v: SSAValue, m: SSAValue) -> SSAValue:
            return b.dot_general(v, m, contract=((last,), (0,)))

        assert matrix.imaginary is not None
        real, imaginary = dot(x.real, matrix.real), dot(x.real, matrix.imaginary)
        if x.imaginary is None:
            return _Parts(real, imaginary)
        crossed = dot(x.imaginary, matrix.imaginary), dot(x.imaginary, matrix.real)
        return _Parts(
            b.binary("subtract", real, crossed[0]), b.binary("add", imaginary, crossed[1])
        )

    def times(self, x: _Parts, y: _Parts) -> _Parts:
        b = self.build

        def of(p: SSAValue, q: SSAValue) -> SSAValue:
            return b.binary("multiply", p, q)

        assert x.imaginary is not None and y.imaginary is not None
        real = b.binary("subtract", of(x.real, y.real), of(x.imaginary, y.imaginary))
        return _Parts(real, b.binary("add", of(x.real, y.imaginary), of(x.imaginary, y.real)))

    def scaled(self, x: _Parts, length: Expr) -> _Parts:
        """Divided by the length."""

        def divide(v: SSAValue) -> SSAValue:
            count = self.build.broadcast_in_dim(self.c.count([length], F64), (), shape_of(v))
            return self.build.binary("divide", v, count)

        return self.each(x, divide)

    def of_length(self, x: _Parts, length: Expr) -> _Parts:
        """The last dimension cut, or filled with zeros."""
        b, size = self.build, x.shape[-1]
        if size == length:
            return x
        low = [0] * len(x.shape)
        zero = b.scalar(0, dtype_of(x.real))
        high = [*low[:-1], length - size]
        return self.each(x, lambda v: b.pad(v, zero, low, high))


def _factor(length: int) -> int:
    """The divisor nearest to the square root; 1 for primes."""
    for candidate in range(math.isqrt(length), 1, -1):
        if length % candidate == 0:
            return candidate
    return 1


def _read(c: NodeContext, x: SSAValue, axis: int) -> _Parts:
    """[..., 1 or 2] as parts in f64, the axis last."""
    b, shape = c.build, shape_of(x)
    rank = len(shape) - 1
    if shape[-1] not in (as_expr(1), as_expr(2)):
        raise c.malformed(f"the last dimension has {shape[-1]} parts, not 1 or 2")
    order = [*(n for n in range(rank) if n != axis), axis]

    def part(n: int) -> SSAValue:
        plane = b.reshape(c.slice_axis(x, rank, n, n + 1), shape[:-1])
        return b.transpose(b.convert(plane, F64), order)

    return _Parts(part(0), part(1) if shape[-1] == as_expr(2) else None)


def _written(c: NodeContext, x: _Parts, axis: int, kind: Any) -> SSAValue:
    """The parts along a new last dimension, the transformed one back at its axis."""
    b, rank = c.build, len(x.shape)
    order = [*range(axis), rank - 1, *range(axis, rank - 1)]
    parts = [v for v in (x.real, x.imaginary) if v is not None]
    planes = [b.convert(b.transpose(v, order), kind) for v in parts]
    return b.concatenate([b.reshape(p, (*shape_of(p), 1)) for p in planes], rank)


@onnx_op("DFT")
def dft(c: NodeContext) -> SSAValue:
    """Forward, or inverse with 1 / length; `onesided` gives, or takes, half the frequencies."""
    x = c.data(0)
    rank = len(shape_of(x))
    if c.opset < 20:
        axis = c.axis("axis", rank, 1)
    else:
        axis = c.normal_axis(c.integers_at(2)[0] if c.has(2) else -2, rank)
    if axis == rank - 1:
        raise c.malformed("the axis cannot be that of the real and imaginary parts")
    inverse, onesided = c.flag("inverse"), c.flag("onesided")
    parts = _read(c, x, axis)
    size = parts.shape[-1]
    default = (size - 1) * 2 if inverse and onesided else size
    length = c.size(1) if c.has(1) else default
    fourier = _Fourier(c, 1 if inverse else -1)
    if inverse and onesided:
        made = _real_inverse(c, fourier, parts, length)
        return _written(c, made, axis, dtype_of(x))
    parts = fourier.of_length(parts, length)
    made = fourier.transform(parts, length // 2 + 1 if onesided else length)
    if inverse:
        made = fourier.scaled(made, length)
    return _written(c, made, axis, dtype_of(x))


def _real_inverse(c: NodeContext, fourier: _Fourier, x: _Parts, length: Expr) -> _Parts:
    """A real signal of half its frequencies: the other half is their mirror."""
    b = c.build
    half = fourier.of_length(x, length // 2 + 1)
    last = len(x.shape) - 1
    # Frequencies 1 .. (length - 1) // 2 once more, backward and conjugate.
    count = (length - 1) // 2
    mirror = fourier.each(
        half, lambda v: b.reverse(c.slice_axis(v, last, 1, count + 1), [last])
    )
    real = b.concatenate([half.real, mirror.real], last)
    imaginary = None
    if half.imaginary is not None and mirror.imaginary is not None:
        turned = b.unary("negate", mirror.imaginary)
        imaginary = b.concatenate([half.imaginary, turned], last)
    made = fourier.transform(_Parts(real, imaginary), length)
    return fourier.scaled(_Parts(made.real, None), length)


@onnx_op("STFT")
def stft(c: NodeContext) -> SSAValue:
    """Frames of the signal `frame_step` apart, times the window, transformed."""
    b, signal = c.build, c.data(0)
    kind = dtype_of(signal)
    if len(shape_of(signal)) == 2:
        signal = b.reshape(signal, (*shape_of(signal), 1))
    parts = _read(c, signal, 1)
    step = c.size(1)
    window = b.convert(c.data(2), F64) if c.has(2) else None
    if c.has(3):
        length = c.size(3)
    elif window is not None:
        length = shape_of(window)[0]
    else:
        raise c.malformed("neither a window nor a frame length is given")
    frames = (parts.shape[1] - length) // step + 1
    grid = (frames, length)
    start = b.binary(
        "multiply",
        b.iota(I64, grid, 0),
        b.broadcast_in_dim(c.count([step], I64), (), grid),
    )
    places = b.binary("add", start, b.iota(I64, grid, 1))
    fourier = _Fourier(c, -1)
    parts = fourier.each(parts, lambda v: b.take(v, places, 1))  # [batch, frames, length]
    if window is not None:
        c.dims.same(shape_of(window)[0], length)
        spread = c.along(window, 2, parts.shape)
        parts = fourier.each(parts, lambda v: b.binary("multiply", v, spread))
    outputs = length // 2 + 1 if c.flag("onesided", True) else length
    return _written(c, fourier.transform(parts, outputs), 2, kind)


@onnx_op("MelWeightMatrix")
def mel_weight_matrix(c: NodeContext) -> Value:
    """Triangles over the bins of a spectrum, at equal distances on the mel scale.

    All inputs are numbers that a model states, so that the matrix is a weight.
    """
    import numpy as np

    bins, length, rate = (int(c.constant(n).reshape(())) for n in range(3))
    low, high = (float(c.constant(n).reshape(())) for n in (3, 4))
    if min(bins, length, rate) < 1:
        raise c.malformed("bins, length and rate must be positive")
    kind = element_dtype(c.int("output_datatype", 1), c.node.place)
    lowest, highest = (2595 * math.log10(1 + f / 700) for f in (low, high))
    step = (highest - lowest) / (bins + 2)
    mels = np.arange(bins + 2) * step + lowest
    hertz = 700 * (10 ** (mels / 2595) - 1)
    edges = ((length + 1) * hertz // rate).astype(np.int64)
    if edges[0] < 0 or edges[-1] > length // 2 + 1:
        raise c.malformed("the edges lie beyond the spectrum")
    place = np.arange(length // 2 + 1)[:, None]
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    rising = np.where(
        centre > left, (place - left) / np.maximum(centre - left, 1), place == centre
    )
    falling = (right - place) / np.maximum(right - centre, 1)
    matrix = np.where(
        (place >= left) & (place <= centre),
        rising,
        np.where((place > centre) & (place < right), falling, 0.0),
    )
    return c.from_source(array_source(matrix.astype(kind.numpy_dtype)))
