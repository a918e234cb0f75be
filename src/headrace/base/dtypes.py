"""Element types, under their MLIR names.

A `DType` knows its width and kind; numpy and ml_dtypes load on first use of
`numpy_dtype`, so that `headrace --help` stays fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

Kind = Literal["float", "signed", "unsigned", "bool", "complex"]


@dataclass(frozen=True)
class DType:
    """One element type.

    Attributes:
        name: the MLIR spelling: `f32`, `bf16`, `i8`, `ui8`, `i1`, `complex<f32>`.
            As in StableHLO, `iN` is signed and `i1` is the boolean.
        bits: width of one element; storage rounds up to whole bytes unless packed.
        kind: float, signed, unsigned, bool or complex.
        numpy_name: the name numpy (or ml_dtypes) gives it.
    """

    name: str
    bits: int
    kind: Kind
    numpy_name: str

    @property
    def size_bytes(self) -> int:
        """Bytes of one element in memory."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("signed", "unsigned")

    @property
    def numpy_dtype(self) -> Any:
        """The numpy dtype; ml_dtypes' where numpy has none."""
        return _numpy_dtype(self.numpy_name)

    def __str__(self) -> str:
        return self.name


@cache
def _numpy_dtype(name: str) -> Any:
    import numpy as np

    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


_ALL = (
    DType("f64", 64, "float", "float64"),
    DType("f32", 32, "float", "float32"),
    DType("f16", 16, "float", "float16"),
    DType("bf16", 16, "float", "bfloat16"),
    DType("f8E4M3FN", 8, "float", "float8_e4m3fn"),
    DType("f8E4M3", 8, "float", "float8_e4m3"),
    DType("f8E4M3FNUZ", 8, "float", "float8_e4m3fnuz"),
    DType("f8E4M3B11FNUZ", 8, "float", "float8_e4m3b11fnuz"),
    DType("f8E5M2", 8, "float", "float8_e5m2"),
    DType("f8E5M2FNUZ", 8, "float", "float8_e5m2fnuz"),
    DType("f8E3M4", 8, "float", "float8_e3m4"),
    DType("f8E8M0FNU", 8, "float", "float8_e8m0fnu"),
    DType("f6E2M3FN", 6, "float", "float6_e2m3fn"),
    DType("f6E3M2FN", 6, "float", "float6_e3m2fn"),
    DType("f4E2M1FN", 4, "float", "float4_e2m1fn"),
    DType("i64", 64, "signed", "int64"),
    DType("i32", 32, "signed", "int32"),
    DType("i16", 16, "signed", "int16"),
    DType("i8", 8, "signed", "int8"),
    DType("i4", 4, "signed", "int4"),
    DType("i2", 2, "signed", "int2"),
    DType("ui64", 64, "unsigned", "uint64"),
    DType("ui32", 32, "unsigned", "uint32"),
    DType("ui16", 16, "unsigned", "uint16"),
    DType("ui8", 8, "unsigned", "uint8"),
    DType("ui4", 4, "unsigned", "uint4"),
    DType("ui2", 2, "unsigned", "uint2"),
    DType("i1", 8, "bool", "bool"),
    DType("complex<f32>", 64, "complex", "complex64"),
    DType("complex<f64>", 128, "complex", "complex128"),
)

BY_NAME: dict[str, DType] = {d.name: d for d in _ALL}
"""Every element type under its MLIR name."""

F64, F32, F16, BF16 = (BY_NAME[n] for n in ("f64", "f32", "f16", "bf16"))
I64, I32, I16, I8, I1 = (BY_NAME[n] for n in ("i64", "i32", "i16", "i8", "i1"))
UI64, UI32, UI16, UI8 = (BY_NAME[n] for n in ("ui64", "ui32", "ui16", "ui8"))


def dtype(name: str | DType) -> DType:
    """The element type of that MLIR name. Raises KeyError for an unknown one."""
    return name if isinstance(name, DType) else BY_NAME[name]


def from_numpy(numpy_dtype: Any) -> DType:
    """The element type of a numpy (or ml_dtypes) dtype.

    Raises:
        KeyError: there is none (strings, objects, records).
    """
    import numpy as np

    name = np.dtype(numpy_dtype).name
    for candidate in _ALL:
        if candidate.numpy_name == name:
            return candidate
    raise KeyError(f"no element type for numpy's {name}")
