"""Runs generated Triton source in Triton's interpreter, over numpy arrays.

The interpreter wants objects that look like torch tensors; `HostTensor` has just what it
asks for.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np

from headrace.kernel.description import Kernel
from headrace.targets.triton.compile import jit_function
from headrace.targets.triton.naive import generate


class Storage:
    def __init__(self, array: Any) -> None:
        self.array = array

    def data_ptr(self) -> int:
        return self.array.ctypes.data

    def cpu(self) -> Storage:
        return self

    def copy_(self, other: Storage) -> None:
        """Nothing: both are the same memory."""


class HostTensor:
    """A flat numpy array as the interpreter's idea of a tensor."""

    def __init__(self, array: Any, dtype: str) -> None:
        self.array = array
        self.dtype = dtype

    def data_ptr(self) -> int:
        return self.array.ctypes.data

    def untyped_storage(self) -> Storage:
        return Storage(self.array)

    def new_empty(self, size: int, device: str) -> HostTensor:
        return HostTensor(self.array, self.dtype)

    def set_(self, storage: Storage, *layout: Any) -> None:
        self.array = storage.array

    def storage_offset(self) -> int:
        return 0

    def size(self) -> int:
        return self.array.size

    def stride(self) -> int:
        return 1


_NUMPY_OF = {"fp32": "float32", "fp64": "float64"}


def _tensor(array: Any, pointer: str) -> HostTensor:
    name = pointer[1:]
    if name not in _NUMPY_OF:
        name = name.replace("u", "uint") if name[0] == "u" else name.replace("i", "int")
    return HostTensor(array.reshape(-1), _NUMPY_OF.get(name, name))


@contextmanager
def _rounding_bfloat16() -> Iterator[None]:
    """The interpreter cuts fp32 off where bf16 ends; GPUs round to nearest even, and so do we.
    It multiplies the bit patterns of bf16 in `tl.dot`; here their values."""
    module: Any = importlib.import_module("triton.runtime.interpreter")
    language: Any = importlib.import_module("triton.language")
    plain = module._convert_float

    def convert(array: Any, source: Any, target: Any, rounding: Any) -> Any:
        if source == language.float32 and target == language.bfloat16:
            return array.view(np.float32).astype(ml_dtypes.bfloat16).view(np.uint16)
        if source == language.bfloat16 and target == language.float32:
            return array.view(ml_dtypes.bfloat16).astype(np.float32).view(np.uint32)
        return plain(array, source, target, rounding)

    plain_dot = module.InterpreterBuilder.create_dot

    def factor(x: Any) -> Any:
        # numpy sums in another order where a factor is turned.
        values = np.ascontiguousarray(x.data)
        if x.dtype != language.bfloat16:
            return module.TensorHandle(values, x.dtype.scalar)
        wide = values.view(ml_dtypes.bfloat16).astype(np.float32)
        return module.TensorHandle(wide, language.float32)

    def dot(self: Any, a: Any, b: Any, sums: Any, *options: Any) -> Any:
        return plain_dot(self, factor(a), factor(b), sums, *options)

    module._convert_float = convert
    module.InterpreterBuilder.create_dot = dot
    try:
        yield
    finally:
        module._convert_float = plain
        module.InterpreterBuilder.create_dot = plain_dot


def run(
    kernel: Kernel,
    buffers: list[Any],
    dims: Mapping[str, int],
    generator: Callable[[str, Kernel], Any] = generate,
    scratch: Any = None,
    columns: tuple[int, int] | None = None,
) -> None:
    """Runs a kernel in place over flat buffers, one a operand.

    Args:
        scratch: of its own if None.
        columns: the first workgroup along y and how many, of a launch that is cut.
    """
    import triton

    source = generator("kernel_under_test", kernel)
    before = triton.knobs.runtime.interpret
    triton.knobs.runtime.interpret = True
    try:
        function = jit_function(source)
    finally:
        triton.knobs.runtime.interpret = before
    arrays = list(buffers)
    scratch_bytes = source.scratch_bytes.evaluate(dict(dims))
    if sum(kind.startswith("*") for _, kind in source.signature) > len(arrays):
        arrays.append(np.zeros(max(scratch_bytes, 4), np.uint8) if scratch is None else scratch)
    pointers = [kind for _, kind in source.signature if kind.startswith("*")]
    tensors = [_tensor(a, p) for a, p in zip(arrays, pointers, strict=True)]
    sizes = [dims[name] for name in kernel.dims]
    grid = tuple(w.evaluate(dict(dims)) for w in source.workgroups)
    first_y, grid = 0, (*grid,)
    if columns is not None:
        first_y, grid = columns[0], (grid[0], columns[1], grid[2])
    with _rounding_bfloat16():
        function[grid](*tensors, 0, first_y, 0, *sizes, *[0 for _ in source.tensor_maps])
