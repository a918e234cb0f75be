"""Linear models and support vectors of `ai.onnx.ml`."""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from headrace.base.dtypes import F32
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.ops.ml_scores import (
    best_labels,
    chosen_label,
    integer_labels,
    matrix_input,
    post_transform,
    table,
    transformed,
    two_columns,
)
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import shape_of


def rows_of(c: NodeContext, name: str, count: int) -> Any:
    """A list of floats as a matrix of `count` rows."""
    import numpy as np

    found = np.asarray(c.floats(name) or [], np.float32)
    if count < 1 or found.size == 0 or found.size % count:
        raise c.malformed(f"'{name}' must have {count} rows")
    return found.reshape(count, -1)


def product_with(c: NodeContext, x: SSAValue, rows: Any) -> SSAValue:
    """[batch, features] with each row: [batch, rows]."""
    weights = table(c, rows, rows.dtype)
    c.dims.same(shape_of(x)[1], shape_of(weights)[1])
    return c.build.dot_general(x, weights, contract=((1,), (1,)))


def _scores(c: NodeContext, count: int) -> SSAValue:
    """x * coefficients + intercepts, [batch, count]."""
    x = c.build.convert(matrix_input(c), F32)
    made = product_with(c, x, rows_of(c, "coefficients", count))
    intercepts = c.floats("intercepts")
    if not intercepts:
        return made
    if len(intercepts) != count:
        raise c.malformed(f"'intercepts' must have {count} entries")
    return c.build.binary("add", made, c.along(table(c, intercepts, "f4"), 1, shape_of(made)))


@onnx_op("LinearRegressor", domain="ai.onnx.ml")
def linear_regressor(c: NodeContext) -> SSAValue:
    return transformed(c, _scores(c, c.int("targets", 1)), post_transform(c))


@onnx_op("LinearClassifier", domain="ai.onnx.ml")
def linear_classifier(c: NodeContext) -> list[SSAValue]:
    """One row of coefficients with two labels scores the second of them."""
    b = c.build
    labels = integer_labels(c, "classlabels_ints", "classlabels_strings")
    name = post_transform(c)
    count = len(c.floats("intercepts") or []) or max(len(labels), 1)
    made = _scores(c, count)
    if count > 1:
        return [best_labels(c, made, labels), transformed(c, made, name)]
    bound = 0.5 if name == "LOGISTIC" else 0.0
    value = transformed(c, made, name) if name == "LOGISTIC" else made
    above = b.reshape(b.compare("GT", value, c.scalar_like(bound, value)), shape_of(made)[:1])
    if len(labels) != 2:
        label = chosen_label(c, above, labels[0] if labels else 1, 0)
        return [label, transformed(c, made, name)]
    return [chosen_label(c, above, labels[1], labels[0]), two_columns(c, made, True, name)]


# -- support vectors ------------------------------------------------------------------------


def kernel_values(c: NodeContext, x: SSAValue, vectors: Any) -> SSAValue:
    """The kernel of each row with each support vector: [batch, vectors]."""
    b, kind = c.build, c.string("kernel_type", "LINEAR")
    gamma, shift, degree = (c.floats("kernel_params") or [0.0, 0.0, 0.0])[:3]
    made = product_with(c, x, vectors)
    if kind == "LINEAR":
        return made
    if kind == "RBF":
        # |x - v|^2, with the differences themselves: no cancellation between near ones.
        shape = (*shape_of(made), shape_of(x)[1])
        wide = b.broadcast_in_dim(x, (0, 2), shape)
        given = b.broadcast_in_dim(table(c, vectors, vectors.dtype), (1, 2), shape)
        difference = b.binary("subtract", wide, given)
        square = c.reduce(b.binary("multiply", difference, difference), 0, [2], "add")
        return b.unary("exponential", c.with_scalar("multiply", square, -gamma))
    line = c.with_scalar("add", c.with_scalar("multiply", made, gamma), shift)
    if kind == "SIGMOID":
        return b.unary("tanh", line)
    if kind == "POLY":
        return c.with_scalar("power", line, degree)
    raise c.malformed(f"kernel '{kind}' is unknown")


@onnx_op("SVMRegressor", domain="ai.onnx.ml")
def svm_regressor(c: NodeContext) -> SSAValue:
    """Without support vectors the coefficients are the weights of the features."""
    b = c.build
    x = b.convert(matrix_input(c), F32)
    count = c.int("n_supports", 0)
    weights = rows_of(c, "coefficients", 1)
    if count:
        x = kernel_values(c, x, rows_of(c, "support_vectors", count))
    made = product_with(c, x, weights)
    made = c.with_scalar("add", made, (c.floats("rho") or [0.0])[0])
    if not c.flag("one_class"):
        return transformed(c, made, post_transform(c))
    above = b.compare("GT", made, c.scalar_like(0, made))
    return b.select(above, c.scalar_like(1, made), c.scalar_like(-1, made))
