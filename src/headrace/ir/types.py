"""Tensor types with symbolic sizes: `tensor<?x128xf32, #hr.dims<["batch", ""]>>`.

A static size stands in the type's shape, a symbolic one is `?` there and an expression in
the encoding; `""` marks the static places. Equal expressions are equal dimensions.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache

from xdsl.dialects import builtin
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ComplexType,
    IntegerType,
    NoneAttr,
    Signedness,
    TensorType,
)
from xdsl.ir import Attribute, Data, SSAValue
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from headrace.base.dtypes import BY_NAME, DType
from headrace.base.symbols import Expr, ExprLike, as_expr


def _parse_expressions(parser: AttrParser) -> tuple[str, ...]:
    with parser.in_angle_brackets():
        texts = parser.parse_comma_separated_list(
            parser.Delimiter.SQUARE, parser.parse_str_literal
        )
    for text in texts:
        if text:
            try:
                as_expr(text)
            except ValueError as wrong:
                parser.raise_error(str(wrong))
    return tuple(str(as_expr(t)) if t else "" for t in texts)


def _print_expressions(printer: Printer, texts: tuple[str, ...]) -> None:
    printer.print_string("<[" + ", ".join(f'"{t}"' for t in texts) + "]>")


@irdl_attr_definition
class DimsAttr(Data[tuple[str, ...]]):
    """`#hr.dims<["batch", ""]>`: a tensor type's symbolic sizes; `""` where static."""

    name = "hr.dims"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[str, ...]:
        return _parse_expressions(parser)

    def print_parameter(self, printer: Printer) -> None:
        _print_expressions(printer, self.data)


@irdl_attr_definition
class ExprsAttr(Data[tuple[str, ...]]):
    """`#hr.exprs<["0", "seq - 1"]>`: a list of size expressions as an attribute."""

    name = "hr.exprs"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[str, ...]:
        return _parse_expressions(parser)

    def print_parameter(self, printer: Printer) -> None:
        _print_expressions(printer, self.data)

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return tuple(as_expr(t) for t in self.data)

    @property
    def integers(self) -> tuple[int, ...]:
        """The values where all are constants. Raises ValueError where one is not."""
        return tuple(e.value for e in self.exprs)


def exprs_attr(values: Iterable[ExprLike]) -> ExprsAttr:
    """The attribute for a list of expressions."""
    return ExprsAttr(tuple(str(as_expr(v)) for v in values))


_FLOATS: dict[str, type[Attribute]] = {
    "f64": builtin.Float64Type,
    "f32": builtin.Float32Type,
    "f16": builtin.Float16Type,
    "bf16": builtin.BFloat16Type,
    "f8E4M3FN": builtin.Float8E4M3FNType,
    "f8E4M3": builtin.Float8E4M3Type,
    "f8E4M3FNUZ": builtin.Float8E4M3FNUZType,
    "f8E4M3B11FNUZ": builtin.Float8E4M3B11FNUZType,
    "f8E5M2": builtin.Float8E5M2Type,
    "f8E5M2FNUZ": builtin.Float8E5M2FNUZType,
    "f8E3M4": builtin.Float8E3M4Type,
    "f8E8M0FNU": builtin.Float8E8M0FNUType,
    "f6E2M3FN": builtin.Float6E2M3FNType,
    "f6E3M2FN": builtin.Float6E3M2FNType,
    "f4E2M1FN": builtin.Float4E2M1FNType,
}


@cache
def element_type(kind: DType) -> Attribute:
    """xDSL's type for an element type. `i1` is MLIR's i1, `ui8` is unsigned."""
    if kind.name in _FLOATS:
        return _FLOATS[kind.name]()
    if kind.kind == "bool":
        return IntegerType(1)
    if kind.kind == "complex":
        return ComplexType(element_type(BY_NAME[kind.name[8:-1]]))  # pyright: ignore
    signedness = Signedness.UNSIGNED if kind.kind == "unsigned" else Signedness.SIGNLESS
    return IntegerType(kind.bits, signedness)


@cache
def dtype_of_element(element: Attribute) -> DType:
    """The element type of an xDSL type. Raises KeyError where there is none."""
    return BY_NAME[str(element)]


def tensor_type(kind: DType, shape: Iterable[ExprLike]) -> TensorType:
    """The type of a tensor; static sizes in the shape, symbolic ones in the encoding."""
    return _tensor_type(kind, tuple(as_expr(s) for s in shape))


@lru_cache(maxsize=1 << 14)
def _tensor_type(kind: DType, shape: tuple[Expr, ...]) -> TensorType:
    sizes = [s.value if s.is_constant else DYNAMIC_INDEX for s in shape]
    dims = tuple("" if s.is_constant else str(s) for s in shape)
    encoding = DimsAttr(dims) if any(dims) else NoneAttr()
    return TensorType(element_type(kind), sizes, encoding)


@lru_cache(maxsize=1 << 14)
def shape_of_type(kind: TensorType) -> tuple[Expr, ...]:
    """The shape of a tensor type.

    Raises:
        ValueError: a `?` has no expression.
    """
    encoding = kind.encoding
    sizes = kind.get_shape()
    if DYNAMIC_INDEX not in sizes:
        return tuple(as_expr(s) for s in sizes)
    if not isinstance(encoding, DimsAttr) or len(encoding.data) != len(sizes):
        raise ValueError(f"{kind} has a '?' without an expression in #hr.dims")
    return tuple(
        as_expr(text) if size == DYNAMIC_INDEX else as_expr(size)
        for size, text in zip(sizes, encoding.data, strict=True)
    )


def shape_of(value: SSAValue | Attribute) -> tuple[Expr, ...]:
    """The shape of a tensor value or type. Raises TypeError for anything else."""
    kind = value.type if isinstance(value, SSAValue) else value
    if not isinstance(kind, TensorType):
        raise TypeError(f"{kind} is no tensor type")
    return shape_of_type(kind)


def dtype_of(value: SSAValue | Attribute) -> DType:
    """The element type of a tensor value or type. Raises TypeError for anything else."""
    kind = value.type if isinstance(value, SSAValue) else value
    if not isinstance(kind, TensorType):
        raise TypeError(f"{kind} is no tensor type")
    return dtype_of_element(kind.get_element_type())


def static_shape(value: SSAValue | Attribute) -> tuple[int, ...]:
    """The shape where every size is constant. Raises ValueError otherwise."""
    return tuple(s.value for s in shape_of(value))
