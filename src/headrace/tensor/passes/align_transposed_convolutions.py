"""Makes kernels and outputs of transposed convolutions multiples of their stride.

A transposed convolution (`lhs_dilation` s above 1) is cheapest as s sums, one for each
output position modulo s, each over its share of the taps. They are alike where s divides
the kernel and the output: then they are one sum of products
(`flow/lowering/subpixels.py`). So a known kernel gets zeros behind it, and an output a few
elements more, which are sliced off again::

    conv(x, w[3, 3]) [7]    becomes    slice(conv(x, pad(w)[4, 4]) [8])

Stored kernels grow by at most 4; those that would grow more are left alone. Exact: the
added products are zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import SSAValue

from headrace.base.symbols import ZERO, Expr, product
from headrace.ir.model import Model
from headrace.ir.passes import Pass
from headrace.ir.types import dtype_of, shape_of
from headrace.tensor import dialect as d
from headrace.tensor.passes.fold_constants import fold_to_parameter
from headrace.tensor.rewrite import RewriteBuilder, functions, owner, replace
from headrace.tensor.rules.movement import integer_list
from headrace.tensor.sources import source_of

_MOST_GROWTH = 4


@dataclass(frozen=True)
class AlignTransposedConvolutions(Pass):
    """One walk over the convolutions."""

    def run(self, model: Model) -> None:
        for _function, block in functions(model):
            for operation in list(block.ops):
                if isinstance(operation, d.ConvolutionOp):
                    _align(operation, model)


@dataclass(frozen=True)
class _Dimension:
    """What a spatial dimension lacks.

    Attributes:
        taps: zeros behind the kernel.
        elements: of the output.
    """

    taps: int = 0
    elements: int = 0


def _align(operation: d.ConvolutionOp, model: Model) -> None:
    lacking = [_lacking(operation, n) for n in range(len(shape_of(operation.lhs)) - 2)]
    if not any(n.taps or n.elements for n in lacking):
        return
    kernel = shape_of(operation.rhs)[2:]
    padded = product(k + n.taps for k, n in zip(kernel, lacking, strict=True))
    if padded.value > _MOST_GROWTH * product(kernel).value:
        return
    builder = RewriteBuilder(operation)
    rhs = operation.rhs
    if any(n.taps for n in lacking):
        rhs = _padded(builder, rhs, [n.taps for n in lacking], model)
    high = [
        old + n.taps + n.elements
        for old, n in zip(operation.padding_high.exprs, lacking, strict=True)
    ]
    made = builder.convolution(
        operation.lhs,
        rhs,
        window_strides=integer_list(operation.window_strides),
        padding_low=operation.padding_low.exprs,
        padding_high=high,
        lhs_dilation=integer_list(operation.lhs_dilation),
        rhs_dilation=integer_list(operation.rhs_dilation),
        feature_group_count=integer_list(operation.feature_group_count)[0],
        dtype=dtype_of(operation.result),
    )
    shape = shape_of(operation.result)
    if shape_of(made) != shape:
        none: list[Expr] = [ZERO] * len(shape)
        made = builder.slice(made, none, shape, [1] * len(shape))
    replace(operation, [made])


def _lacking(operation: d.ConvolutionOp, n: int) -> _Dimension:
    """Nothing of a dimension that is not spread, or where it is not known."""
    stride = integer_list(operation.lhs_dilation)[n]
    kernel, result = shape_of(operation.rhs)[2 + n], shape_of(operation.result)[2 + n]
    plain = integer_list(operation.window_strides)[n] == integer_list(operation.rhs_dilation)[n]
    if stride == 1 or not plain or integer_list(operation.rhs_dilation)[n] != 1:
        return _Dimension()
    if not kernel.is_constant or not operation.padding_low.exprs[n].is_constant:
        return _Dimension()
    rest = result % stride
    return _Dimension(-kernel.value % stride, -rest.value % stride if rest.is_constant else 0)


def _padded(
    builder: RewriteBuilder, kernel: SSAValue, taps: list[int], model: Model
) -> SSAValue:
    """The kernel with zeros behind it; stored so where it is stored."""
    none = [0] * (2 + len(taps))
    zero = builder.scalar(0, dtype_of(kernel))
    padded = builder.pad(kernel, zero, none, [0, 0, *taps])
    operation = owner(padded)
    if operation is None or source_of(kernel, model) is None:
        return padded
    return fold_to_parameter(operation, model, may_grow=True) or padded
