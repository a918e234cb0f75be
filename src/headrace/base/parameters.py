"""Parameters as sources: a place in a file, bytes held, or a pure expression of them.

The compiler never holds weights in its IR. `tensor.parameter @name` names one; the
table beside the module maps the name to a `Source`. Passes build expressions
(`transpose`, `cast`, `pack`, any pure tensor operation); only `artifact/writer` has
them evaluated, one tensor at a time, by the evaluator that `api` hands it.

Equal sources compare equal and have one `digest`, so equal weights are stored once.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias, Union

from headrace.base.dtypes import DType


@dataclass(frozen=True)
class FileSource:
    """Row-major little-endian elements at a place in a file.

    Attributes:
        path: absolute path; importers have checked that it stays inside the model's
            folder and that `offset_bytes + size_bytes` lies inside the file.
        offset_bytes: where the first element stands.
        size_bytes: bytes of all elements.
        dtype, shape: what they are.
    """

    path: str
    offset_bytes: int
    size_bytes: int
    dtype: DType
    shape: tuple[int, ...]

    @cached_property
    def digest(self) -> str:
        return _digest(
            "file", self.path, self.offset_bytes, self.size_bytes, self.dtype.name, self.shape
        )

    def read(self) -> Any:
        """The tensor, read now (not mapped: mapped pages would count as resident).

        Raises:
            OSError, ValueError: the file is gone or shorter than it was.
        """
        import numpy as np

        found = np.empty(self.shape, self.dtype.numpy_dtype)
        data = found.reshape(-1).view(np.uint8).data
        with open(self.path, "rb", buffering=0) as file:
            file.seek(self.offset_bytes)
            while data and (count := file.readinto(data)):
                data = data[count:]
        if data:
            raise ValueError(f"{self.path} is shorter than it was when it was imported")
        return found


@dataclass(frozen=True)
class ArraySource:
    """A numpy array held in memory: small constants, and weights inside a model file.

    Attributes:
        digest: content hash of dtype, shape and bytes; what equality compares.
        array: row-major numpy array of `dtype` and `shape`.
    """

    digest: str
    dtype: DType
    shape: tuple[int, ...]
    array: Any = field(compare=False, repr=False)


def array_source(array: Any) -> ArraySource:
    """The source for a numpy array, keyed by its content."""
    import numpy as np

    from headrace.base.dtypes import from_numpy

    dense = np.require(array, requirements="C").reshape(np.shape(array))
    kind = from_numpy(dense.dtype)
    hashed = hashlib.sha256(dense.reshape(-1).view(np.uint8) if dense.size else b"")
    hashed.update(repr((kind.name, dense.shape)).encode())
    return ArraySource(hashed.hexdigest(), kind, tuple(dense.shape), dense)


@dataclass(frozen=True)
class ExpressionSource:
    """A pure tensor operation over sources.

    Attributes:
        operation: its name: a tensor-stage operation (`transpose`, `multiply`,
            `convert`, ...) or `pack`; `tensor/interp.evaluate_source` gives the meaning.
        operands: what it is applied to.
        attributes: sorted (name, value) pairs; values are str, int, float, bool or
            tuples of them, so that the source hashes.
        dtype, shape: of the result.
    """

    operation: str
    operands: tuple[Source, ...]
    attributes: tuple[tuple[str, Any], ...]
    dtype: DType
    shape: tuple[int, ...]

    @cached_property
    def digest(self) -> str:
        return _digest(
            "expression",
            self.operation,
            tuple(o.digest for o in self.operands),
            self.attributes,
            self.dtype.name,
            self.shape,
        )


Source: TypeAlias = Union[FileSource, ArraySource, ExpressionSource]


def size_bytes(source: Source) -> int:
    """Bytes of the tensor that the source yields."""
    count = 1
    for extent in source.shape:
        count *= extent
    return count * source.dtype.size_bytes


def expression(
    operation: str,
    operands: tuple[Source, ...],
    dtype: DType,
    shape: tuple[int, ...],
    **attributes: Any,
) -> ExpressionSource:
    """Builds an expression with its attributes sorted."""
    return ExpressionSource(
        operation, operands, tuple(sorted(attributes.items())), dtype, shape
    )


def _digest(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()
