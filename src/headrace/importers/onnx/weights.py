"""Tensors stored in or beside an ONNX file, as sources.

External data stays where it stands: the file must lie inside the model's folder
(symbolic links followed), and the place inside the file. Large weights in the model's own
file stay there too (`file_layout`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.base.dtypes import DType, from_numpy
from headrace.base.errors import HeadraceError, error
from headrace.base.parameters import FileSource, Source, array_source
from headrace.importers.onnx.file_layout import Place

if TYPE_CHECKING:
    from onnx import TensorProto


def element_dtype(code: int, at: str) -> DType:
    """The element type for an ONNX element type code.

    Raises:
        HeadraceError HR1110: strings and unknown codes have none.
    """
    from onnx import TensorProto, helper

    try:
        return from_numpy(helper.tensor_dtype_to_np_dtype(code))
    except (KeyError, ValueError, TypeError):
        names = {number: name for name, number in TensorProto.DataType.items()}
        cure = "headrace.backend runs what computes on strings on the host"
        raise error(
            "HR1110",
            f"element type {names.get(code, code)} is not supported",
            at=at,
            helps=cure if code == TensorProto.STRING else "",
        ) from None


@dataclass(frozen=True)
class StoredWeights:
    """Weights whose bytes were left in the model's file.

    Attributes:
        path: of the file.
        places: by the number of the graph's initializer.
    """

    path: Path
    places: Mapping[int, Place]


def tensor_source(tensor: TensorProto, folder: Path | None, at: str) -> Source:
    """Where the elements of a tensor come from.

    Args:
        tensor: from an initializer, a Constant node or an attribute.
        folder: the model's folder, None where the model came as bytes.
        at: the place for messages.

    Raises:
        HeadraceError HR1110 to HR1114: the type is not supported, the data does not fit
            the shape, or external data is not where it may be.
    """
    from onnx import TensorProto

    kind, shape = _type(tensor, at)
    if tensor.data_location == TensorProto.EXTERNAL:
        return _external_source(tensor, kind, shape, folder, at)
    return array_source(_stored_array(tensor, kind, shape, at))


def stored_source(tensor: TensorProto, path: Path, place: Place, at: str) -> Source:
    """Where the elements of a tensor come from whose bytes are in the model's file.

    Args:
        tensor: without data.
        path: of the file.
        place: of the bytes in it.

    Raises:
        HeadraceError HR1110, HR1111: as `tensor_source`.
    """
    kind, shape = _type(tensor, at)
    offset, length = place
    expected = _stored_bytes(kind, shape)
    if length != expected:
        raise _misfit(length, expected, at)
    if _is_packed(kind):
        return array_source(_unpacked(tensor, path, offset, length, at))
    return FileSource(os.path.realpath(path), offset, length, kind, shape)


def tensor_array(tensor: TensorProto, folder: Path | None, at: str) -> Any:
    """The elements of a (small) tensor as a numpy array. Raises as `tensor_source`."""
    source = tensor_source(tensor, folder, at)
    return source.read() if isinstance(source, FileSource) else getattr(source, "array")  # noqa: B009


def _type(tensor: TensorProto, at: str) -> tuple[DType, tuple[int, ...]]:
    kind = element_dtype(tensor.data_type, at)
    shape = tuple(int(d) for d in tensor.dims)
    if any(d < 0 for d in shape):
        raise error("HR1111", f"tensor has the shape {list(shape)}", at=at)
    return kind, shape


def _is_packed(kind: DType) -> bool:
    """Whether ONNX stores several elements in a byte."""
    return kind.kind != "bool" and kind.bits < 8


def _stored_bytes(kind: DType, shape: tuple[int, ...]) -> int:
    count = _element_count(shape)
    return (count * kind.bits + 7) // 8 if _is_packed(kind) else count * kind.size_bytes


def _misfit(size_bytes: int, expected_bytes: int, at: str) -> HeadraceError:
    fact = f"tensor has {size_bytes} bytes of data, its shape needs {expected_bytes}"
    return error("HR1111", fact, at=at)


def _element_count(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def _stored_array(tensor: TensorProto, kind: DType, shape: tuple[int, ...], at: str) -> Any:
    import numpy as np
    from onnx import numpy_helper

    if tensor.HasField("raw_data") and kind.bits >= 8:
        data = tensor.raw_data
        expected = _element_count(shape) * kind.size_bytes
        if len(data) != expected:
            raise _misfit(len(data), expected, at)
        return np.frombuffer(data, kind.numpy_dtype).reshape(shape)
    try:
        return np.asarray(numpy_helper.to_array(tensor)).reshape(shape)
    except (ValueError, TypeError, OverflowError) as wrong:
        raise error(
            "HR1111", "tensor's data does not fit its shape", at=at, notes=str(wrong)
        ) from wrong


def _external_source(
    tensor: TensorProto, kind: DType, shape: tuple[int, ...], folder: Path | None, at: str
) -> Source:
    fields = {str(entry.key): str(entry.value) for entry in tensor.external_data}
    path = _external_path(fields.get("location", ""), folder, at)
    stored_bytes = _stored_bytes(kind, shape)
    try:
        offset = int(fields.get("offset", 0))
        length = int(fields.get("length", stored_bytes))
    except ValueError as wrong:
        raise error(
            "HR1113", "external data has an offset or length that is no number", at=at
        ) from wrong
    available = path.stat().st_size
    if length != stored_bytes:
        raise error(
            "HR1113",
            f"external data has {length} bytes, its shape needs {stored_bytes}",
            at=at,
        )
    if offset < 0 or offset + length > available:
        raise error(
            "HR1113",
            f"external data ends at byte {offset + length}, '{path.name}' has {available}",
            at=at,
        )
    if _is_packed(kind):
        return array_source(_unpacked(tensor, path, offset, length, at))
    return FileSource(str(path), offset, length, kind, shape)


def _unpacked(tensor: TensorProto, path: Path, offset: int, length: int, at: str) -> Any:
    """Elements narrower than a byte, one a byte in memory."""
    from onnx import TensorProto, numpy_helper

    with path.open("rb") as file:
        file.seek(offset)
        data = file.read(length)
    inner = TensorProto(
        dims=tensor.dims, data_type=tensor.data_type, name=tensor.name, raw_data=data
    )
    try:
        return numpy_helper.to_array(inner)
    except ValueError as wrong:
        raise error(
            "HR1111", "tensor's data does not fit its shape", at=at, notes=str(wrong)
        ) from wrong


def _external_path(location: str, folder: Path | None, at: str) -> Path:
    if folder is None:
        raise error(
            "HR1112",
            "the model has external data but came without a folder",
            at=at,
            helps="load it from its file",
        )
    refused: HeadraceError = error(
        "HR1112",
        f"external data '{location}' lies outside the model's folder",
        at=at,
        helps="put the file beside the model",
    )
    if not location or "\0" in location or os.path.isabs(location):
        raise refused
    root = Path(os.path.realpath(folder))
    path = Path(os.path.realpath(root / location))
    if not path.is_relative_to(root):
        raise refused
    if not path.is_file():
        raise error("HR1114", f"external data file '{location}' is not there", at=at)
    return path
