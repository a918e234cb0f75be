"""Operands as flat buffers in their layouts: packing, unpacking and indexing them in numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headrace.base.dtypes import DType
from headrace.base.exponent_codes import decode, encode
from headrace.base.symbols import Expr, Operation
from headrace.kernel.description import (
    Kernel,
    Layout,
    Operand,
    Scalar,
    ordered_layout,
    transformed_shape,
)
from headrace.tensor.meaning.packing import winograd, winograd_inverse


def pack_operand(array: Any, operand: Operand, dims: Mapping[str, int]) -> Any:
    """The flat buffer in an operand's layout that holds a logical array; halos filled."""
    buffer = np.zeros(operand.layout.size.evaluate(dims), operand.dtype.numpy_dtype)
    write_halo(buffer, operand, dims)
    transform = operand.layout.transform
    buffer[_all_offsets(operand, dims)] = _TRANSFORMS[transform](array) if transform else array
    codes = operand.layout.codes
    return buffer if codes is None else encode(buffer, codes)


def unpack_operand(buffer: Any, operand: Operand, dims: Mapping[str, int]) -> Any:
    """The logical array that stands in a flat buffer in an operand's layout."""
    array = _elements(buffer, operand)[_all_offsets(operand, dims)]
    transform = operand.layout.transform
    return _INVERSES[transform](array) if transform else array


_TRANSFORMS: dict[str, Callable[[Any], Any]] = {"winograd": winograd}
_INVERSES: dict[str, Callable[[Any], Any]] = {"winograd": winograd_inverse}


def _elements(buffer: Any, operand: Operand) -> Any:
    codes, dtype = operand.layout.codes, operand.dtype
    if codes is None:
        return buffer
    return decode(buffer, codes, dtype.size_bytes).view(dtype.numpy_dtype)


def unpacked(kernel: Kernel, buffers: Sequence[Any]) -> tuple[Kernel, Sequence[Any]]:
    """Packed weights as their elements."""
    if not any(o.layout.codes for o in kernel.operands):
        return kernel, buffers
    pairs = zip(buffers, kernel.operands, strict=True)
    plain = (replace(o, layout=replace(o.layout, codes=None)) for o in kernel.operands)
    return replace(kernel, operands=tuple(plain)), [_elements(b, o) for b, o in pairs]


def untransformed(
    kernel: Kernel, buffers: Sequence[Any], dims: Mapping[str, int]
) -> tuple[Kernel, Sequence[Any]]:
    """Transformed weights as they were, row-major (but for rounding)."""
    if not any(o.layout.transform for o in kernel.operands):
        return kernel, buffers
    operands: list[Operand] = []
    given: list[Any] = []
    for operand, buffer in zip(kernel.operands, buffers, strict=True):
        if operand.layout.transform:
            buffer = unpack_operand(buffer, operand, dims).reshape(-1)
            operand = replace(operand, layout=ordered_layout(operand.shape))
        operands.append(operand)
        given.append(buffer)
    return replace(kernel, operands=tuple(operands)), given


def evaluate_index(expr: Expr, names: Mapping[str, Any]) -> Any:
    """An index expression over numpy arrays of integers that broadcast together."""
    total: Any = 0
    for monomial, coefficient in expr.terms:
        product: Any = coefficient
        for atom, power in monomial:
            factor = names[atom] if isinstance(atom, str) else _operation(atom, names)
            for _ in range(power):
                product = product * factor
        total = total + product
    return total


def _operation(atom: Operation, names: Mapping[str, Any]) -> Any:
    values = [evaluate_index(o, names) for o in atom.operands]
    if atom.name == "floordiv":
        return np.floor_divide(*values)
    if atom.name == "mod":
        return np.mod(*values)
    pick = np.maximum if atom.name == "max" else np.minimum
    result = values[0]
    for value in values[1:]:
        result = pick(result, value)
    return result


# -- layouts ------------------------------------------------------------------------


def element_offsets(layout: Layout, index: Sequence[Any], dims: Mapping[str, int]) -> Any:
    """Element offsets of logical indices (arrays that broadcast together)."""
    total: Any = layout.offset.evaluate(dims)
    for i, dimension in zip(index, layout.dimensions, strict=True):
        stride = dimension.stride.evaluate(dims)
        if dimension.tile == 1:
            total = total + i * stride
        else:
            total = total + np.floor_divide(i, dimension.tile) * stride
            total = total + np.mod(i, dimension.tile) * dimension.tile_stride.evaluate(dims)
    return np.asarray(total, np.int64)


def index_grid(ranges: Sequence[tuple[int, int]]) -> list[Any]:
    rank = len(ranges)
    return [
        np.arange(low, high).reshape([-1 if n == m else 1 for m in range(rank)])
        for n, (low, high) in enumerate(ranges)
    ]


def _all_offsets(operand: Operand, dims: Mapping[str, int]) -> Any:
    whole = transformed_shape(operand.shape, operand.layout.transform)
    shape = [s.evaluate(dims) for s in whole]
    offsets = element_offsets(operand.layout, index_grid([(0, s) for s in shape]), dims)
    return np.broadcast_to(offsets, shape)


def write_halo(buffer: Any, operand: Operand, dims: Mapping[str, int]) -> None:
    layout = operand.layout
    if not layout.has_halo or layout.halo_value is None:
        return
    shape = [s.evaluate(dims) for s in operand.shape]
    ranges = [
        (-low, size + high)
        for low, high, size in zip(layout.halo_low, layout.halo_high, shape, strict=True)
    ]
    grid = index_grid(ranges)
    outside: Any = False
    for i, size in zip(grid, shape, strict=True):
        outside = outside | (i < 0) | (i >= size)
    offsets = np.broadcast_to(element_offsets(layout, grid, dims), outside.shape)
    buffer[offsets[outside]] = numpy_scalar(layout.halo_value, operand.dtype)


def numpy_scalar(value: Scalar, dtype: DType) -> Any:
    return np.asarray(value).astype(dtype.numpy_dtype)
