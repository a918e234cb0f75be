"""Transposed convolutions as sums over the taps that hit an element, and no others.

A convolution whose input is spread by `s` (`lhs_dilation`) meets zeros at all but one in
`s` taps, and which ones depends on the output's position modulo `s`. So the output's
dimension becomes two axes, `s*h + i`. With `r = (s - 1 - padding) mod s` the taps of
sub-pixel `i` are `k = s - 1 - (i + r) mod s + s*m`, and the input's element is
`h + m + q + (i + r) floordiv s`: a sum of products like any other, with `i` an axis of the
weights.

`tensor-align-transposed-convolutions` makes kernels and outputs multiples of the stride;
of dimensions that are not, elements are tested as they are read.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.base.symbols import Expr, as_expr, dim
from headrace.flow.lowering.operations import integers
from headrace.ir.types import shape_of
from headrace.tensor import dialect as t


@dataclass(frozen=True)
class Subpixels:
    """One spatial dimension of a transposed convolution.

    Attributes:
        stride: `s`.
        taps: taps of one sub-pixel.
        shift, rest: `q` and `r`.
    """

    stride: int
    taps: int
    shift: int
    rest: int

    def input_index(self, pixel: Expr, within: Expr, tap: Expr) -> Expr:
        """The element of the input that a tap of a sub-pixel reads."""
        later = (within + self.rest) // self.stride if self.rest else as_expr(0)
        return pixel + tap + self.shift + later

    def kernel_index(self, within: Expr, tap: Expr) -> Expr:
        """Its place in the kernel."""
        phase = (within + self.rest) % self.stride if self.rest else within
        return tap * self.stride + (self.stride - 1) - phase

    def is_inside(self, pixels: Expr, size: Expr) -> bool:
        """Whether every tap of every pixel is within an input of `size`."""
        last = pixels - 1 + self.taps - 1 + self.shift + (1 if self.rest else 0)
        beyond = last - (size - 1)
        return self.shift >= 0 and beyond.is_constant and beyond.value <= 0


def subpixels(operation: t.ConvolutionOp) -> tuple[Subpixels | None, ...]:
    """For each spatial dimension how it is cut, None where it is not spread or does not fit."""
    kernel, result = shape_of(operation.rhs)[2:], shape_of(operation.result)[2:]
    strides = integers(operation.lhs_dilation)
    plain = [
        stride == 1 and dilation == 1
        for stride, dilation in zip(
            integers(operation.window_strides), integers(operation.rhs_dilation), strict=True
        )
    ]
    low = operation.padding_low.exprs
    return tuple(
        _of_dimension(kernel[n], result[n], strides[n], low[n]) if plain[n] else None
        for n in range(len(strides))
    )


def _of_dimension(kernel: Expr, result: Expr, stride: int, low: Expr) -> Subpixels | None:
    if stride == 1 or not kernel.is_constant or not low.is_constant:
        return None
    if kernel.value % stride or (result // stride) * stride != result:
        return None
    shift, rest = divmod(stride - 1 - low.value, stride)
    return Subpixels(stride, kernel.value // stride, shift, rest)


def outer_axes(
    operation: t.ConvolutionOp,
) -> tuple[tuple[tuple[str, Expr], ...], tuple[Expr, ...]]:
    """The outer axes of a convolution, and where its result stands in them."""
    cuts = (None, None, *subpixels(operation))
    axes: list[tuple[str, Expr]] = []
    index: list[Expr] = []

    def axis(size: Expr) -> Expr:
        axes.append((f"%d{len(axes)}", size))
        return dim(axes[-1][0])

    for size, cut in zip(shape_of(operation.result), cuts, strict=True):
        if cut is None:
            index.append(axis(size))
        else:
            pixel = axis(size // cut.stride)
            index.append(pixel * cut.stride + axis(as_expr(cut.stride)))
    return tuple(axes), tuple(index)
