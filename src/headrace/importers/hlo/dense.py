"""Elements of a `dense<...>` attribute as MLIR prints them, for every element type.

Python's bindings hand out arrays of numpy's own types only; complex numbers, bf16 and
everything narrower than a byte are read from the text.
"""

from __future__ import annotations

import re
from typing import Any

from headrace.base.dtypes import BY_NAME, DType

_COMPLEX = re.compile(r"\(([^,()]+),([^,()]+)\)")
_PARTS = {"complex<f32>": BY_NAME["f32"], "complex<f64>": BY_NAME["f64"]}


def parse_elements(body: str | bytes | memoryview, kind: DType, count: int = 0) -> Any:
    """A flat numpy array of the elements between `dense<` and `>`.

    Args:
        body: a list (nested, decimal, hexadecimal bits for floats), one element, or the
            raw bytes as `"0x..."`; or the raw bytes. One element may stand for all.
        kind: of the elements.
        count: of elements, which tells bits of booleans from bytes.

    Raises:
        ValueError: the text holds something else.
    """
    import numpy as np

    if not isinstance(body, str):
        return _raw(body, kind, count)
    text = body.strip()
    if text.startswith('"'):
        if not text.startswith('"0x'):
            raise ValueError("a string that holds no bytes")
        return _raw(bytes.fromhex(text[3:].rstrip('"')), kind, count)
    if kind.kind == "complex":
        part = _PARTS[kind.name]
        pairs = _COMPLEX.findall(text)
        flat = parse_elements(" ".join(x for pair in pairs for x in pair), part)
        return flat.view(kind.numpy_dtype)
    words = text.replace("[", " ").replace("]", " ").replace(",", " ").split()
    if kind.kind == "bool":
        return np.array([word in ("true", "1", "-1") for word in words], np.bool_)
    if kind.is_integer:
        values = np.array([int(w, 0) for w in words], dtype=object)
        return values.astype(np.int64 if kind.name != "ui64" else np.uint64).astype(
            kind.numpy_dtype
        )
    return np.array([_float(word, kind) for word in words], dtype=kind.numpy_dtype)


def _raw(data: bytes | memoryview, kind: DType, count: int) -> Any:
    import numpy as np

    if kind.kind == "bool":
        if len(data) == 1:
            return np.array([data[0] != 0])
        if len(data) < count <= 8 * len(data):
            bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
            return bits[:count].astype(np.bool_)
        return np.frombuffer(data, np.uint8) != 0
    if kind.is_integer and kind.bits < 8:
        return np.frombuffer(data, np.int8).astype(kind.numpy_dtype)
    return np.frombuffer(data, dtype=kind.numpy_dtype)


def _float(word: str, kind: DType) -> Any:
    import numpy as np

    if word[:2].lower() == "0x":
        bits = np.array([int(word, 16)], dtype=f"u{kind.size_bytes}")
        return bits.view(kind.numpy_dtype)[0]
    return np.asarray(float(word)).astype(kind.numpy_dtype)
