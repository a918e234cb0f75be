"""Matrix products."""

from __future__ import annotations

from xdsl.ir import SSAValue

from headrace.base.dtypes import DType
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import dtype_of, shape_of


def matmul_values(
    c: NodeContext, lhs: SSAValue, rhs: SSAValue, dtype: DType | None = None
) -> SSAValue:
    """numpy's `matmul`: batch dimensions broadcast, vectors gain and lose a dimension.

    `dtype` is the result's where it is not that of lhs.
    """
    left, right = list(shape_of(lhs)), list(shape_of(rhs))
    if not left or not right:
        raise c.malformed("scalars have no matrix product")
    if len(right) <= 2:
        c.dims.same(left[-1], right[0])
        return c.build.dot_general(lhs, rhs, contract=((len(left) - 1,), (0,)), dtype=dtype)
    if len(left) == 1:
        c.dims.same(left[0], right[-2])
        batch = len(right) - 2
        lhs = c.build.broadcast_in_dim(lhs, (batch,), (*right[:batch], left[0]))
        dims = tuple(range(batch))
        return c.build.dot_general(
            lhs, rhs, batch=(dims, dims), contract=((batch,), (batch,)), dtype=dtype
        )
    shape = c.common_shape(left[:-2], right[:-2])
    lhs = c.build.broadcast_to(lhs, (*shape, *left[-2:]))
    rhs = c.build.broadcast_to(rhs, (*shape, *right[-2:]))
    c.dims.same(left[-1], right[-2])
    n = len(shape)
    dims = tuple(range(n))
    return c.build.dot_general(
        lhs, rhs, batch=(dims, dims), contract=((n + 1,), (n,)), dtype=dtype
    )


@onnx_op("MatMul")
def matmul(c: NodeContext) -> SSAValue:
    return matmul_values(c, c.data(0), c.data(1))


@onnx_op("Gemm")
def gemm(c: NodeContext) -> SSAValue:
    return gemm_values(c)


def gemm_values(c: NodeContext) -> SSAValue:
    """alpha * A' * B' + beta * C, of the node's inputs and attributes."""
    a, b = c.data(0), c.data(1)
    a_axis = 0 if c.flag("transA") else 1
    b_axis = 1 if c.flag("transB") else 0
    if len(shape_of(a)) != 2 or len(shape_of(b)) != 2:
        raise c.malformed("A and B must be matrices")
    c.dims.same(shape_of(a)[a_axis], shape_of(b)[b_axis])
    made = c.build.dot_general(a, b, contract=((a_axis,), (b_axis,)))
    alpha, beta = c.float("alpha", 1.0), c.float("beta", 1.0)
    if alpha != 1.0:
        made = c.with_scalar("multiply", made, _number(alpha, made))
    if not c.has(2) or beta == 0.0:
        return made
    addend = c.data(2)
    if beta != 1.0:
        addend = c.with_scalar("multiply", addend, _number(beta, addend))
    return c.build.binary("add", made, c.broadcast(made, addend)[1])


def _number(value: float, like: SSAValue) -> float | int:
    return value if dtype_of(like).is_float else int(value)
