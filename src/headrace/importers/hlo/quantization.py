"""Rounding to the grid of a quantised type (see `quantized_text.py`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from headrace.base.dtypes import BY_NAME, DType
from headrace.importers.hlo.helpers import result_type
from headrace.importers.hlo.registry import Value, converter
from headrace.importers.hlo.tree import HloOperation
from headrace.ir.types import dtype_of, shape_of
from headrace.tensor.build import TensorBuilder

if TYPE_CHECKING:
    from headrace.importers.hlo.convert import FunctionConverter

_GRID = re.compile(
    r"(?P<storage>\w+)(?:<(?P<low>-?\d+):(?P<high>-?\d+)>)?:(?P<expressed>\w+)"
    r"(?::(?P<axis>\d+))?,\s*(?P<parameters>.*)"
)


@dataclass(frozen=True)
class Grid:
    """What `!quant.uniform` says.

    Attributes:
        storage: of the integers.
        low, high: their least and greatest.
        axis: the dimension that has a scale for each element, None for one scale.
        scales, zero_points: of the grid.
    """

    storage: DType
    low: int
    high: int
    axis: int | None
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]


def parse_grid(text: str) -> Grid:
    """Reads `i8<-127:127>:f32:0, {0.5:-3, 0.25}`.

    Raises:
        ValueError: the text says something else.
    """
    found = _GRID.fullmatch(text.strip())
    # MLIR's dialect writes `u8` for the unsigned.
    name = re.sub(r"^u(?=\d)", "ui", found["storage"]) if found is not None else ""
    if found is None or name not in BY_NAME:
        raise ValueError(f"'!quant.uniform<{text}>' cannot be read")
    storage = BY_NAME[name]
    signed = storage.kind == "signed"
    low = -(1 << (storage.bits - 1)) if signed else 0
    high = (1 << (storage.bits - (1 if signed else 0))) - 1
    scales: list[float] = []
    zero_points: list[int] = []
    for item in found["parameters"].strip("{} ").split(","):
        scale, _, zero_point = item.strip().partition(":")
        scales.append(float(scale))
        zero_points.append(int(zero_point or 0))
    return Grid(
        storage,
        int(found["low"]) if found["low"] else low,
        int(found["high"]) if found["high"] else high,
        int(found["axis"]) if found["axis"] else None,
        tuple(scales),
        tuple(zero_points),
    )


def _spread(
    builder: TensorBuilder, grid: Grid, values: Sequence[float], like: SSAValue
) -> SSAValue:
    """Numbers of a grid in the type and shape of a tensor."""
    import numpy as np

    kind, shape = dtype_of(like), shape_of(like)
    if grid.axis is None:
        return builder.splat(values[0], kind, shape)
    array = np.asarray(values).astype(kind.numpy_dtype)
    return builder.broadcast_in_dim(builder.constant(array), [grid.axis], shape)


def _restored(builder: TensorBuilder, grid: Grid, stored: SSAValue, like: SSAValue) -> SSAValue:
    """(stored - zero point) * scale."""
    value = builder.convert(stored, dtype_of(like))
    zero = _spread(builder, grid, grid.zero_points, like)
    scale = _spread(builder, grid, grid.scales, like)
    return builder.binary("multiply", builder.binary("subtract", value, zero), scale)


def _stored(b: TensorBuilder, grid: Grid, x: SSAValue) -> SSAValue:
    """The integers for floats: clamped where they do not fit, halves to even, NaN to 0."""
    kind, shape = dtype_of(x), shape_of(x)
    scaled = b.binary("divide", x, _spread(b, grid, grid.scales, x))
    moved = b.binary("add", scaled, _spread(b, grid, grid.zero_points, x))
    low, high = (b.splat(v, kind, shape) for v in (grid.low, grid.high))
    rounded = b.clamp(low, b.unary("round_nearest_even", moved), high)
    return b.convert(rounded, grid.storage)


@converter("headrace.quantize")
def _quantize(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    """Floats on the grid, through the integers that stand for them."""
    b, x = at.builder, at.operand(operation, 0)
    grid = parse_grid(str(operation.attributes["grid"]))
    return [_restored(b, grid, _stored(b, grid, x), x)]


@converter("headrace.store")
def _store(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    grid = parse_grid(str(operation.attributes["grid"]))
    return [_stored(at.builder, grid, at.operand(operation, 0))]


@converter("headrace.restore")
def _restore(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    b, stored = at.builder, at.operand(operation, 0)
    grid = parse_grid(str(operation.attributes["grid"]))
    kind = result_type(operation).dtype
    return [_restored(b, grid, stored, b.splat(0, kind, shape_of(stored)))]


@converter("headrace.dequantize")
def _dequantize(at: FunctionConverter, operation: HloOperation) -> Sequence[Value]:
    """The floats are on their grid already."""
    return [at.operand(operation, 0)]
