"""What nodes on strings mean, in numpy: strings are arrays of objects of type `str`.

Pictures in files are here too: how large they are stands in them.

`host_op` registers a function of (attributes, inputs), which returns the outputs. An input
that is left out is None.
"""

from __future__ import annotations

import io
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from headrace.base.dtypes import from_numpy

Attributes: TypeAlias = Mapping[str, Any]
HostFunction: TypeAlias = Callable[[Attributes, Sequence[Any]], Any]

ML = "ai.onnx.ml"
HOST_OPS: dict[tuple[str, str], HostFunction] = {}
"""(domain, operator) -> its meaning."""


def host_op(*names: str, domain: str = "") -> Callable[[HostFunction], HostFunction]:
    """Registers the meaning of operators."""

    def register(function: HostFunction) -> HostFunction:
        for name in names:
            HOST_OPS[domain, name] = function
        return function

    return register


def strings(values: Any) -> Any:
    """An array of `str`, of whatever numpy takes for strings; bytes are UTF-8."""
    array = np.asarray(values, dtype=object)
    flat = [v.decode() if isinstance(v, bytes) else str(v) for v in array.reshape(-1)]
    made = np.empty(len(flat), dtype=object)
    made[:] = flat
    return made.reshape(array.shape)


# -- computing on strings -----------------------------------------------------------------------


@host_op("StringConcat")
def string_concat(_: Attributes, inputs: Sequence[Any]) -> Any:
    return strings(inputs[0] + inputs[1])


@host_op("StringSplit")
def string_split(given: Attributes, inputs: Sequence[Any]) -> Any:
    """The parts, filled up with empty strings along a new last axis, and how many they are."""
    (x,) = inputs
    separator = given.get("delimiter") or None
    most = given.get("maxsplit", -1)
    parts = [text.split(separator, most) for text in x.reshape(-1)]
    width = max(map(len, parts), default=0)
    filled = [[*row, *[""] * (width - len(row))] for row in parts]
    counts = np.array([len(row) for row in parts], np.int64).reshape(x.shape)
    return strings(filled).reshape(*x.shape, width), counts


@host_op("RegexFullMatch")
def regex_full_match(given: Attributes, inputs: Sequence[Any]) -> Any:
    """RE2's syntax is a part of Python's."""
    pattern = re.compile(given["pattern"])
    (x,) = inputs
    found = [pattern.fullmatch(text) is not None for text in x.reshape(-1)]
    return np.array(found, bool).reshape(x.shape)


@host_op("StringNormalizer")
def string_normalizer(given: Attributes, inputs: Sequence[Any]) -> Any:
    """Without stop words and in one case; of [C] or [1, C], where nothing is left one empty
    string."""
    (x,) = inputs
    stop = set(given.get("stopwords", ()))
    exact = bool(given.get("is_case_sensitive", 0))
    change = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}[
        given.get("case_change_action", "NONE")
    ]
    if not exact:
        stop = {word.lower() for word in stop}
    kept: list[str] = []
    for text in x.reshape(-1):
        plain = _without_accents(text)
        if (plain if exact else plain.lower()) not in stop:
            kept.append(change(plain))
    made = strings(kept or [""])
    return made.reshape(1, -1) if x.ndim == 2 else made


def _without_accents(text: str) -> str:
    if text.isascii():
        return text
    parts = unicodedata.normalize("NFKD", text)
    return "".join(c for c in parts if not unicodedata.combining(c))


@host_op("Equal")
def equal(_: Attributes, inputs: Sequence[Any]) -> Any:
    return np.asarray(inputs[0] == inputs[1], bool)


@host_op("Cast")
def cast(given: Attributes, inputs: Sequence[Any]) -> Any:
    """Numbers as people write them, and back."""
    from onnx import TensorProto, helper

    (x,) = inputs
    if given["to"] == TensorProto.STRING:
        if x.dtype == bool:
            return strings(x.astype(np.int64))
        return strings(x)
    kind = from_numpy(helper.tensor_dtype_to_np_dtype(given["to"])).numpy_dtype
    if kind.kind in "iu":
        return np.array([int(t) for t in x.reshape(-1)]).astype(kind).reshape(x.shape)
    return np.array([float(t) for t in x.reshape(-1)]).astype(kind).reshape(x.shape)


# -- labels ---------------------------------------------------------------------------------------


@host_op("LabelEncoder", domain=ML)
def label_encoder(given: Attributes, inputs: Sequence[Any]) -> Any:
    """Values of keys, a default for what is none. Version 1 has one list for both ways."""
    (x,) = inputs
    if "classes_strings" in given:
        places = {name: n for n, name in enumerate(given["classes_strings"])}
        if x.dtype == object:
            return _looked_up(x, places, given.get("default_int64", -1), np.int64)
        names = dict(enumerate(given["classes_strings"]))
        return _looked_up(x, names, given.get("default_string", "_Unused"), object)
    keys, _ = _entries(given, "keys")
    values, kind = _entries(given, "values")
    default = given.get("default_tensor")
    if default is not None:
        default = default.reshape(-1)[0]
    elif kind is object:
        default = given.get("default_string", "_Unused")
    elif np.dtype(kind).kind in "iu":
        default = given.get("default_int64", -1)
    else:
        default = given.get("default_float", -0.0)
    return _looked_up(x, dict(reversed(list(zip(keys, values, strict=True)))), default, kind)


def _entries(given: Attributes, name: str) -> tuple[list[Any], Any]:
    """Keys or values, and their numpy type: `object` for strings."""
    tensor = given.get(f"{name}_tensor")
    if tensor is not None:
        flat = list(strings(tensor) if tensor.dtype.kind in "OSU" else tensor.reshape(-1))
        return flat, object if tensor.dtype.kind in "OSU" else tensor.dtype
    for end, kind in (("strings", object), ("int64s", np.int64), ("floats", np.float32)):
        if f"{name}_{end}" in given:
            return list(given[f"{name}_{end}"]), kind
    raise ValueError(f"there are no {name}")


def _looked_up(x: Any, table: Mapping[Any, Any], default: Any, kind: Any) -> Any:
    flat = [table.get(v, default) for v in x.reshape(-1)]
    made = np.empty(len(flat), kind)
    made[:] = flat
    return strings(made).reshape(x.shape) if kind is object else made.reshape(x.shape)


@host_op("CategoryMapper", domain=ML)
def category_mapper(given: Attributes, inputs: Sequence[Any]) -> Any:
    (x,) = inputs
    names, numbers = given["cats_strings"], given["cats_int64s"]
    if x.dtype == object:
        table = dict(zip(names, numbers, strict=True))
        return _looked_up(x, table, given.get("default_int64", -1), np.int64)
    table = dict(zip(numbers, names, strict=True))
    return _looked_up(x, table, given.get("default_string", "_Unused"), object)


@host_op("OneHotEncoder", domain=ML)
def one_hot_encoder(given: Attributes, inputs: Sequence[Any]) -> Any:
    (x,) = inputs
    wanted = strings(given["cats_strings"])
    return np.asarray(x[..., None] == wanted, bool).astype(np.float32)


@host_op("ZipMap", domain=ML)
def zip_map(given: Attributes, inputs: Sequence[Any]) -> Any:
    """A list with a dictionary a row: label to score."""
    labels = given.get("classlabels_strings") or given["classlabels_int64s"]
    (x,) = inputs
    return [dict(zip(labels, row.tolist(), strict=True)) for row in x.reshape(-1, len(labels))]


# -- pictures -----------------------------------------------------------------------------------


@host_op("ImageDecoder")
def image_decoder(given: Attributes, inputs: Sequence[Any]) -> Any:
    """The pixels of a file that Pillow reads: u8 [height, width, channels]."""
    from PIL import Image

    layout = given.get("pixel_format", "RGB")
    modes = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}
    with Image.open(io.BytesIO(inputs[0].tobytes())) as picture:
        pixels = np.array(picture.convert(modes[layout]))
    if layout == "Grayscale":
        return pixels[:, :, None]
    return np.ascontiguousarray(pixels[:, :, ::-1]) if layout == "BGR" else pixels


# -- strings that only move -------------------------------------------------------------------------


@host_op("Identity")
def identity(_: Attributes, inputs: Sequence[Any]) -> Any:
    return inputs[0]


@host_op("Shape")
def shape(given: Attributes, inputs: Sequence[Any]) -> Any:
    sizes = np.array(inputs[0].shape, np.int64)
    return sizes[given.get("start", 0) : given.get("end", len(sizes))]


@host_op("Size")
def size(_: Attributes, inputs: Sequence[Any]) -> Any:
    return np.array(inputs[0].size, np.int64)


@host_op("Reshape")
def reshape(given: Attributes, inputs: Sequence[Any]) -> Any:
    x = inputs[0]
    wanted = [int(n) for n in inputs[1]]
    if not given.get("allowzero", 0):
        wanted = [x.shape[n] if size == 0 else size for n, size in enumerate(wanted)]
    return x.reshape(wanted)


@host_op("Flatten")
def flatten(given: Attributes, inputs: Sequence[Any]) -> Any:
    (x,) = inputs
    axis = given.get("axis", 1)
    rows = int(np.prod(x.shape[:axis] if axis >= 0 else x.shape[: x.ndim + axis]))
    return x.reshape(rows, -1) if x.size else x.reshape(rows, 0)


def _axes(given: Attributes, inputs: Sequence[Any]) -> tuple[int, ...] | None:
    axes = inputs[1] if len(inputs) > 1 else given.get("axes")
    return None if axes is None else tuple(int(a) for a in axes)


@host_op("Squeeze")
def squeeze(given: Attributes, inputs: Sequence[Any]) -> Any:
    return np.squeeze(inputs[0], _axes(given, inputs))


@host_op("Unsqueeze")
def unsqueeze(given: Attributes, inputs: Sequence[Any]) -> Any:
    return np.expand_dims(inputs[0], _axes(given, inputs) or ())


@host_op("Transpose")
def transpose(given: Attributes, inputs: Sequence[Any]) -> Any:
    return np.transpose(inputs[0], given.get("perm"))


@host_op("Concat")
def concat(given: Attributes, inputs: Sequence[Any]) -> Any:
    return np.concatenate(inputs, given["axis"])


@host_op("Gather")
def gather(given: Attributes, inputs: Sequence[Any]) -> Any:
    return np.take(inputs[0], inputs[1], given.get("axis", 0))


@host_op("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(_: Attributes, inputs: Sequence[Any]) -> Any:
    made = np.take(inputs[0], inputs[1].reshape(-1), -1)
    return made.reshape(1, -1) if made.ndim == 1 else made


@host_op("Where")
def where(_: Attributes, inputs: Sequence[Any]) -> Any:
    return np.where(*inputs)


@host_op("Expand")
def expand(_: Attributes, inputs: Sequence[Any]) -> Any:
    x, wanted = inputs
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(int(n) for n in wanted)))
