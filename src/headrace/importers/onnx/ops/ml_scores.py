"""What the classifiers and regressors of `ai.onnx.ml` do with their scores.

Where the specification is silent (labels of two classes, the second column) this is what
onnxruntime does.
"""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from headrace.base.dtypes import I64
from headrace.base.symbols import as_expr
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.ops.pooling import first_largest, lowest
from headrace.importers.onnx.ops.softmax import softmax_along
from headrace.ir.types import dtype_of, shape_of

_NUMBERED = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def post_transform(c: NodeContext) -> str:
    """The attribute's name; `TreeEnsemble` gives its number."""
    found = c.attribute("post_transform", (str, int), "NONE")
    if isinstance(found, int) and 0 <= found < len(_NUMBERED):
        return _NUMBERED[found]
    if found not in _NUMBERED:
        raise c.malformed(f"post_transform '{found}' is unknown")
    return found


def transformed(c: NodeContext, scores: SSAValue, name: str) -> SSAValue:
    """Scores of shape [batch, classes] by a transform of that name."""
    if name == "SOFTMAX":
        return softmax_along(c, scores, 1)
    if name == "LOGISTIC":
        return c.build.unary("logistic", scores)
    if name == "SOFTMAX_ZERO":
        return _softmax_zero(c, scores)
    return _probit(c, scores) if name == "PROBIT" else scores


def _softmax_zero(c: NodeContext, scores: SSAValue) -> SSAValue:
    """A softmax to which scores of zero add nothing."""
    b = c.build
    peak = c.reduce(scores, lowest(dtype_of(scores)), [1], "maximum", keep=True)
    peak = b.broadcast_to(peak, shape_of(scores))
    grown = b.unary("exponential", b.binary("subtract", scores, peak))
    small = b.binary("multiply", scores, b.unary("exponential", b.unary("negate", peak)))
    near = b.compare("LE", b.unary("abs", scores), c.scalar_like(1e-7, scores))
    parts = b.select(near, small, grown)
    total = b.broadcast_to(c.reduce(parts, 0, [1], "add", keep=True), shape_of(parts))
    none = b.compare("EQ", total, c.scalar_like(0, total))
    return b.select(none, c.scalar_like(0.5, parts), b.binary("divide", parts, total))


def _probit(c: NodeContext, x: SSAValue) -> SSAValue:
    """sqrt(2) * erfinv(2 x - 1), by Winitzki's formula, as the others compute it."""
    b = c.build
    y = c.with_scalar("subtract", c.with_scalar("multiply", x, 2), 1)
    rest = b.binary(
        "multiply",
        b.binary("subtract", c.scalar_like(1, y), y),
        c.with_scalar("add", y, 1),
    )
    log = b.unary("log", rest)
    half = c.with_scalar("add", c.with_scalar("multiply", log, 0.5), 2 / (3.14159 * 0.147))
    root = b.binary("multiply", half, half)
    root = b.unary("sqrt", b.binary("subtract", root, c.with_scalar("divide", log, 0.147)))
    made = b.unary("sqrt", b.binary("subtract", root, half))
    made = c.with_scalar("multiply", b.binary("multiply", b.unary("sign", y), made), 2**0.5)
    none = b.compare("EQ", rest, c.scalar_like(0, rest))
    return b.select(none, c.scalar_like(0, made), made)


def integer_labels(c: NodeContext, integers: str, strings: str) -> list[int]:
    """The labels of classes.

    Raises:
        HeadraceError HR1204: they are strings.
    """
    if c.attribute(strings, list, None):
        raise c.unsupported("labels that are strings")
    return c.ints(integers) or []


def best_labels(c: NodeContext, scores: SSAValue, labels: list[int]) -> SSAValue:
    """For each row the label of the first greatest score; its place without labels."""
    b, kind = c.build, dtype_of(scores)
    places = b.iota(I64, shape_of(scores), 1)
    starts = [b.scalar(lowest(kind), kind), b.scalar((1 << 63) - 1, I64)]
    best = b.reduce([scores, places], starts, [1], first_largest)[1]
    if not labels:
        return best
    # Rows of NaN alone have no greatest score; they get the last label.
    best = b.clamp(c.scalar_like(0, best), best, c.scalar_like(len(labels) - 1, best))
    return b.take(table(c, labels, I64.numpy_dtype), best, 0)


def chosen_label(c: NodeContext, yes: SSAValue, on_true: int, on_false: int) -> SSAValue:
    """One of two labels for each row of booleans."""
    shape = shape_of(yes)
    return c.build.select(
        yes, c.build.splat(on_true, I64, shape), c.build.splat(on_false, I64, shape)
    )


def two_columns(c: NodeContext, score: SSAValue, complement: bool, name: str) -> SSAValue:
    """[batch, 1] as the scores of two classes: (1 - s, s) as complements, else (-s, s).

    Args:
        name: of the transform: LOGISTIC is that of (-s, s), PROBIT has one column, the
            others change nothing.
    """
    b = c.build
    if name == "PROBIT":
        return _probit(c, score)
    if complement and name != "LOGISTIC":
        other = b.binary("subtract", c.scalar_like(1, score), score)
        return b.concatenate([other, score], 1)
    both = b.concatenate([b.unary("negate", score), score], 1)
    return b.unary("logistic", both) if name == "LOGISTIC" else both


def table(c: NodeContext, values: Any, kind: Any) -> SSAValue:
    """Numbers of an attribute as a constant or, if there are many, as a weight."""
    import numpy as np

    return c.as_data(c.from_array(np.asarray(values, kind)))


def matrix_input(c: NodeContext) -> SSAValue:
    """Input 0 as [batch, features]: a vector is one row."""
    x, shape = c.data(0), c.shape(0)
    if len(shape) > 2 or not shape:
        raise c.malformed("the input must be a vector or a matrix")
    return c.build.reshape(x, (as_expr(1), *shape)) if len(shape) == 1 else x
