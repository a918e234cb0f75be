"""Types and constants that VHLO and MLIR's own dialect both spell, in their own numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.base.dtypes import BY_NAME, DType
from headrace.base.symbols import as_expr
from headrace.importers.hlo.tree import HloOpaqueType, HloTensorType, HloType

if TYPE_CHECKING:
    from headrace.importers.hlo.bytecode.entries import EntryCursor

UNKNOWN_SIZE = -(1 << 63)
MOST_DIMENSIONS = 64
_QUANTISED = "!quant.uniform<"


def element(name: str) -> HloType:
    """The type of one element, which is a tensor without dimensions."""
    known = BY_NAME.get("i64" if name == "index" else name)
    return HloOpaqueType(name) if known is None else HloTensorType(known, ())


def spelled(kind: Any) -> str:
    """A type as text has it; an element without a tensor around it."""
    if isinstance(kind, HloTensorType) and not kind.shape and not kind.encoding:
        return kind.dtype.name
    return str(kind)


def tensor(cursor: EntryCursor, shape: list[int], kind: Any, encoding: Any) -> HloType:
    """A tensor type; each size that is not known gets a name."""
    if len(shape) > MOST_DIMENSIONS:
        raise cursor.fail(f"a tensor of {len(shape)} dimensions")
    if any(size < 0 and size != UNKNOWN_SIZE for size in shape):
        raise cursor.fail(f"a tensor of sizes {shape}")
    grid, dtype = "", None
    if isinstance(kind, HloTensorType) and not kind.shape:
        dtype = kind.dtype
    elif isinstance(kind, HloOpaqueType) and kind.text.startswith(_QUANTISED):
        grid = kind.text[len(_QUANTISED) : -1]
        dtype = BY_NAME.get(grid.partition(":")[2].partition(",")[0].partition(":")[0])
    text = encoding or ""
    if dtype is None:
        sizes = "".join(f"{'?' if s == UNKNOWN_SIZE else s}x" for s in shape)
        behind = f", {text}" if text else ""
        return HloOpaqueType(f"tensor<{sizes}{spelled(kind)}{behind}>")
    sizes = tuple(cursor.entries.new_size() if s == UNKNOWN_SIZE else as_expr(s) for s in shape)
    return HloTensorType(dtype, sizes, grid, text)


def function_text(inputs: list[Any], results: list[Any]) -> str:
    """A type of functions as text has it."""
    right = ", ".join(map(str, results))
    right = right if len(results) == 1 else f"({right})"
    return f"({', '.join(map(str, inputs))}) -> {right}"


def float_of_bits(cursor: EntryCursor, kind: DType) -> float:
    """A float attribute: the shortest decimal of its type, as text has it."""
    import numpy as np

    bits = cursor.integer(kind.bits) & ((1 << kind.bits) - 1)
    value = np.array([bits], f"u{kind.size_bytes}").view(kind.numpy_dtype)[0]
    return float(str(value))


def dense(cursor: EntryCursor, kind: Any, data: memoryview) -> Any:
    """The elements of a constant as an array of its shape; one may stand for all."""
    import numpy as np

    if not isinstance(kind, HloTensorType):
        raise cursor.fail(f"a constant of the type {kind}")
    if not all(size.is_constant for size in kind.shape):
        raise cursor.fail("a constant has a size that is not known")
    shape = tuple(size.value for size in kind.shape)
    count = 1
    for size in shape:
        count *= size
    array = _elements(cursor, kind.dtype, data, count)
    if array.size == count:
        return array.reshape(shape)
    if array.size != 1:
        raise cursor.fail(f"{len(data)} bytes do not hold {count} elements of {kind.dtype}")
    return np.broadcast_to(array.reshape(()), shape)


def _elements(cursor: EntryCursor, kind: DType, data: memoryview, count: int) -> Any:
    import numpy as np

    if kind.kind == "bool":
        if len(data) == (count + 7) // 8 and len(data) != count:
            bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
            return bits[:count].astype(np.bool_)
        return np.frombuffer(data, np.uint8) != 0
    narrow = kind.is_integer and kind.bits < 8
    stored = np.dtype(np.int8) if narrow else kind.numpy_dtype
    if len(data) % stored.itemsize:
        raise cursor.fail(f"{len(data)} bytes hold no whole elements of {kind}")
    array = np.frombuffer(data, stored)
    return array.astype(kind.numpy_dtype) if narrow else array
