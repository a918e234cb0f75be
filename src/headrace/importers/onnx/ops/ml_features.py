"""Scalers, encoders and the like of `ai.onnx.ml`, on numbers."""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from headrace.base.dtypes import F32, I64, from_numpy
from headrace.base.symbols import as_expr, product
from headrace.importers.onnx.context import NodeContext
from headrace.importers.onnx.ops.ml_scores import table
from headrace.importers.onnx.ops.pooling import lowest
from headrace.importers.onnx.registry import onnx_op
from headrace.ir.types import dtype_of, shape_of

_DOMAIN = "ai.onnx.ml"


def _per_feature(c: NodeContext, values: list[Any], like: SSAValue) -> SSAValue:
    """One number, or one a feature, over the shape of `like`."""
    shape, kind = shape_of(like), dtype_of(like)
    if len(values) == 1:
        return c.build.splat(values[0], kind, shape)
    return c.along(table(c, values, kind.numpy_dtype), len(shape) - 1, shape)


@onnx_op("Scaler", domain=_DOMAIN)
def scaler(c: NodeContext) -> SSAValue:
    x = c.build.convert(c.data(0), F32)
    offset, scale = c.floats("offset") or [0.0], c.floats("scale") or [1.0]
    moved = c.build.binary("subtract", x, _per_feature(c, offset, x))
    return c.build.binary("multiply", moved, _per_feature(c, scale, x))


@onnx_op("Binarizer", domain=_DOMAIN)
def binarizer(c: NodeContext) -> SSAValue:
    x = c.data(0)
    above = c.build.compare("GT", x, c.scalar_like(c.float("threshold"), x))
    return c.build.convert(above, dtype_of(x))


@onnx_op("Normalizer", domain=_DOMAIN)
def normalizer(c: NodeContext) -> SSAValue:
    """Rows over their greatest element, or the sum of their sizes, or their length."""
    b = c.build
    x = b.convert(c.data(0), F32)
    axis, name = len(shape_of(x)) - 1, c.string("norm", "MAX")
    if name == "MAX":
        norm = c.reduce(x, lowest(F32), [axis], "maximum", keep=True)
    elif name == "L1":
        norm = c.reduce(b.unary("abs", x), 0, [axis], "add", keep=True)
    elif name == "L2":
        square = c.reduce(b.binary("multiply", x, x), 0, [axis], "add", keep=True)
        norm = b.unary("sqrt", square)
    else:
        raise c.malformed(f"norm '{name}' is unknown")
    none = b.compare("EQ", norm, c.scalar_like(0, norm))
    norm = b.select(none, c.scalar_like(1, norm), norm)
    return b.binary("divide", x, b.broadcast_to(norm, shape_of(x)))


@onnx_op("Imputer", domain=_DOMAIN)
def imputer(c: NodeContext) -> SSAValue:
    """Puts a value in place of each element that equals another, or of NaN."""
    b, x = c.build, c.data(0)
    if dtype_of(x).is_float:
        values, old = c.floats("imputed_value_floats"), c.float("replaced_value_float")
    else:
        values, old = c.ints("imputed_value_int64s"), c.int("replaced_value_int64")
    if not values:
        raise c.malformed("there is no value to put in")
    missing = b.compare("NE", x, x) if old != old else b.compare("EQ", x, c.scalar_like(old, x))
    return b.select(missing, _per_feature(c, [*values], x), x)


@onnx_op("ArrayFeatureExtractor", domain=_DOMAIN)
def array_feature_extractor(c: NodeContext) -> SSAValue:
    """Elements along the last axis; of a vector one row."""
    b, x = c.build, c.data(0)
    places = b.reshape(c.data(1), (product(c.shape(1)),))
    made = b.take(x, places, len(shape_of(x)) - 1)
    return b.reshape(made, (as_expr(1), *shape_of(made))) if c.rank(0) == 1 else made


@onnx_op("FeatureVectorizer", domain=_DOMAIN)
def feature_vectorizer(c: NodeContext) -> SSAValue:
    """The columns of all inputs, each cut or filled with zeros to its width."""
    b = c.build
    parts: list[SSAValue] = []
    widths = c.ints("inputdimensions") or []
    if len(widths) != len(c.inputs):
        raise c.malformed("'inputdimensions' must have one entry an input")
    for given, width in zip(c.all_data(), widths, strict=True):
        x = b.convert(given, F32)
        x = b.reshape(x, (*shape_of(x), 1)) if len(shape_of(x)) == 1 else x
        have = shape_of(x)[1]
        if not have.is_constant:
            c.dims.same(have, as_expr(width))
        elif have.value > width:
            x = c.slice_axis(x, 1, 0, width)
        elif have.value < width:
            x = b.pad(x, b.scalar(0, F32), (0, 0), (0, width - have.value))
        parts.append(x)
    return b.concatenate(parts, 1)


@onnx_op("OneHotEncoder", domain=_DOMAIN)
def one_hot_encoder(c: NodeContext) -> SSAValue:
    """Zeros for what is no category, also without `zeros`: nothing fails at run time."""
    b = c.build
    categories = c.ints("cats_int64s")
    if not categories:
        raise c.unsupported("categories that are strings")
    x = b.convert(c.data(0), I64)
    shape = (*shape_of(x), as_expr(len(categories)))
    wide = b.broadcast_in_dim(x, range(len(shape) - 1), shape)
    given = c.along(table(c, categories, "i8"), len(shape) - 1, shape)
    return b.convert(b.compare("EQ", wide, given), F32)


# -- LabelEncoder ---------------------------------------------------------------------------


@onnx_op("LabelEncoder", domain=_DOMAIN)
def label_encoder(c: NodeContext) -> SSAValue:
    """Looks each element up among sorted keys: one step halves what is left."""
    import numpy as np

    keys, kind = _entries(c, "keys")
    values, result = _entries(c, "values")
    if len(keys) != len(values) or not len(keys):
        raise c.malformed("there must be as many keys as values")
    pairs = {k: v for k, v in reversed(list(zip(keys, values, strict=True))) if k == k}
    at_nan = next((v for k, v in zip(keys, values, strict=True) if k != k), None)
    b, x = c.build, c.data(0)
    if from_numpy(kind) != dtype_of(x):
        raise c.malformed(f"keys of {from_numpy(kind)} for an input of {dtype_of(x)}")
    default = b.splat(_default(c, result), from_numpy(result), shape_of(x))
    made = default
    if pairs:
        ordered = sorted(pairs)
        steps = (len(ordered) - 1).bit_length()
        ordered += ordered[-1:] * (2**steps - len(ordered))
        known = table(c, ordered, kind)
        at = c.scalar_like(0, b.convert(x, I64))
        for step in reversed(range(steps)):
            further = c.with_scalar("add", at, 2**step)
            reached = b.compare("LE", b.take(known, further, 0), x)
            at = b.select(reached, further, at)
        found = b.take(table(c, [pairs[k] for k in ordered], result), at, 0)
        made = b.select(b.compare("EQ", b.take(known, at, 0), x), found, default)
    if at_nan is None:
        return made
    there = np.asarray(at_nan).astype(result)
    return b.select(b.compare("NE", x, x), c.scalar_like(there, made), made)


def _entries(c: NodeContext, name: str) -> tuple[list[Any], Any]:
    """The keys or values, and their numpy type."""
    import numpy as np

    found = c.tensor(f"{name}_tensor")
    if found is not None and found.dtype.kind in "iuf":
        return list(found.reshape(-1)), found.dtype
    integers, floats = c.ints(f"{name}_int64s"), c.floats(f"{name}_floats")
    if integers:
        return [*integers], np.dtype(np.int64)
    if floats:
        return [*floats], np.dtype(np.float32)
    raise c.unsupported(f"{name} that are strings")


def _default(c: NodeContext, kind: Any) -> Any:
    """What an element that is no key becomes."""
    found = c.tensor("default_tensor")
    if found is not None:
        return found.reshape(-1)[0]
    return c.int("default_int64", -1) if kind.kind in "iu" else c.float("default_float", -0.0)
