"""What the attributes of resources say: sizes, and what a program function's arguments are."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import StringAttr, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, BlockArgument, SSAValue

from headrace.base.dtypes import DType
from headrace.base.symbols import Expr, ceildiv, product
from headrace.ir.model import ALIAS, NAME
from headrace.ir.types import ExprsAttr, dtype_of, shape_of
from headrace.kernel.description import Layout, Operand
from headrace.stream.dialect import ResourceAllocOp, ResourceConstantOp

ALIGNMENT_BYTES = 64
"""Sizes of resources are multiples of this; plans place them at multiples of it."""

IO = "stream.io"
SIZE = "stream.size"
TYPE = "hr.type"


def aligned(size_bytes: Expr) -> Expr:
    """Rounded up to whole `ALIGNMENT_BYTES`; a tensor without elements takes some too."""
    if size_bytes.is_constant:
        return ceildiv(max(1, size_bytes.value), ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return ceildiv(size_bytes, ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def layout_bytes(layout: Layout, dtype: DType) -> Expr:
    """Bytes a tensor takes in a layout, halo and padding included, not rounded."""
    return layout.size_bytes(dtype)


def operand_bytes(operand: Operand) -> Expr:
    """Bytes of the buffer behind a kernel's operand, not rounded."""
    return layout_bytes(operand.layout, operand.dtype)


def tensor_bytes(kind: Attribute) -> Expr:
    """Bytes of a row-major tensor type, not rounded."""
    return product(shape_of(kind)) * dtype_of(kind).size_bytes


def argument_attributes(argument: BlockArgument) -> Mapping[str, Attribute]:
    """The attribute dictionary of a function's argument; empty where it has none."""
    function = argument.block.parent_op()
    if not isinstance(function, FuncOp) or function.arg_attrs is None:
        return {}
    given = function.arg_attrs.data
    return given[argument.index].data if argument.index < len(given) else {}


def argument_io(argument: BlockArgument) -> str:
    """`input`, `output`, or empty where it is not said."""
    value = argument_attributes(argument).get(IO)
    return value.data if isinstance(value, StringAttr) else ""


def is_input(resource: SSAValue) -> bool:
    """Whether it is an input of the function; written only where an output is its next."""
    return isinstance(resource, BlockArgument) and argument_io(resource) == "input"


def argument_name(argument: BlockArgument) -> str:
    """The user's name of an argument; empty where it has none."""
    value = argument_attributes(argument).get(NAME)
    return value.data if isinstance(value, StringAttr) else ""


def aliased_input(argument: BlockArgument) -> BlockArgument | None:
    """The input whose bytes an output is from the end of a step on, if there is one."""
    value = argument_attributes(argument).get(ALIAS)
    if not isinstance(value, StringAttr):
        return None
    return next(
        a
        for a in argument.block.args
        if argument_io(a) == "input" and argument_name(a) == value.data
    )


def argument_type(argument: BlockArgument) -> TensorType | None:
    """The tensor the user gives or gets; row-major in the resource."""
    value = argument_attributes(argument).get(TYPE)
    return value if isinstance(value, TensorType) else None


def size_of(resource: SSAValue) -> Expr | None:
    """Bytes of a resource where they are said."""
    if isinstance(resource, BlockArgument):
        value = argument_attributes(resource).get(SIZE)
        return value.exprs[0] if isinstance(value, ExprsAttr) else None
    if isinstance(resource.owner, (ResourceAllocOp, ResourceConstantOp)):
        return resource.owner.size.exprs[0]
    return None
