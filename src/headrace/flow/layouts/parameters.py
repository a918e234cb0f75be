"""Weights in the layout a kernel wants: the last node of a parameter's expression."""

from __future__ import annotations

from dataclasses import replace

from xdsl.dialects.builtin import SymbolRefAttr
from xdsl.ir import SSAValue

from headrace.base.dtypes import UI8, DType
from headrace.base.parameters import Source, expression
from headrace.base.symbols import as_expr
from headrace.flow.layouts.decide import significant
from headrace.flow.layouts.sites import Value
from headrace.ir.model import Model
from headrace.ir.types import dtype_of, static_shape
from headrace.kernel.description import (
    Layout,
    Operand,
    ordered_layout,
    panel_layout,
    transformed_shape,
)
from headrace.kernel.target import LayoutWish
from headrace.tensor.dialect import ParameterOp


def weight_layout(operand: Operand, wish: LayoutWish | None) -> Layout:
    """The layout of a weight; row-major where nothing else is wished."""
    rows = ordered_layout(operand.shape)
    if wish is None or not all(s.is_constant for s in operand.shape):
        return rows
    if wish.panel is not None:
        shape = transformed_shape(operand.shape, wish.transform)
        return replace(panel_layout(shape, wish.order, *wish.panel), transform=wish.transform)
    order = tuple(range(len(operand.shape)))
    if significant(wish.order, operand.shape) == significant(order, operand.shape):
        return rows
    return ordered_layout(operand.shape, wish.order)


class PackedParameters:
    """Adds a parameter for each distinct (weight, layout) of a model.

    The name is the weight's with `$layout0`, `$layout1`, ... behind it; its source is a
    `pack` expression of the weight's.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._names: dict[tuple[str, Layout, tuple[int, ...]], str] = {}
        self._counts: dict[str, int] = {}
        self._values: dict[tuple[SSAValue, str], SSAValue] = {}

    def value(self, value: Value, layout: Layout) -> SSAValue:
        """The tensor of a weight's value that stands in a layout."""
        ssa, origin = value.ssa, value.parameter
        assert origin is not None
        shape = static_shape(ssa)
        if layout == ordered_layout(tuple(as_expr(s) for s in shape)):
            return ssa
        block = origin.parent_block()
        assert block is not None
        name = self._name(origin.parameter.root_reference.data, ssa, layout)
        key = (ssa, name)
        if key not in self._values:
            made = ParameterOp.build(
                properties={"parameter": SymbolRefAttr(name)}, result_types=[ssa.type]
            )
            made.location = origin.location
            made.result.name_hint = origin.result.name_hint
            block.insert_op_before(made, origin)
            self._values[key] = made.result
        return self._values[key]

    def _name(self, origin: str, ssa: SSAValue, layout: Layout) -> str:
        shape = static_shape(ssa)
        key = (origin, layout, shape)
        if key not in self._names:
            number = self._counts.get(origin, 0)
            self._counts[origin] = number + 1
            name = f"{origin}$layout{number}"
            self._names[key] = name
            source = self._model.parameters[origin]
            self._model.parameters[name] = packed(source, dtype_of(ssa), shape, layout)
        return self._names[key]


def packed(source: Source, dtype: DType, shape: tuple[int, ...], layout: Layout) -> Source:
    """The expression that lays a tensor out; reshaped first where its shape differs."""
    if source.shape != shape:
        source = expression("reshape", (source,), dtype, shape)
    if layout.transform:
        after = transformed_shape(tuple(as_expr(s) for s in shape), layout.transform)
        source = expression(layout.transform, (source,), dtype, tuple(s.value for s in after))
    dimensions = layout.dimensions
    size = layout.size.value
    if replace(layout, codes=None) != ordered_layout(tuple(as_expr(s) for s in shape)):
        source = expression(
            "pack",
            (source,),
            dtype,
            (size,),
            strides=tuple(d.stride.value for d in dimensions),
            tiles=tuple(d.tile for d in dimensions),
            tile_strides=tuple(d.tile_stride.value for d in dimensions),
            offset=layout.offset.value,
            size=size,
        )
    codes = layout.codes
    if codes is None:
        return source
    count = codes.packed_bytes(size, dtype.size_bytes)
    words = {"block": codes.block, "base": codes.base, "escapes": codes.escapes}
    return expression("exponent_codes", (source,), UI8, (count,), **words)
