"""Stage 2, `stream`: resources with lifetimes and byte sizes, and commands in order.

Operation names and meanings are those of IREE's stream dialect of 2021 (seed 2) where it
has them. Differences, all deliberate:

- Offsets and sizes in bytes are expressions over named dimensions (`#hr.exprs`), not SSA
  values: the plan evaluates them. Text: `64` or `"4*batch"`.
- A program function takes all its inputs and outputs as `external` resources and returns
  nothing once `stream-materialize-copies` has run; argument attributes `stream.io`
  (`input` or `output`), `stream.size`, `hr.name` and `hr.type` say what they are.
- Commands run in order; a function is a tree of straight-line blocks (`commands.py`).

    stream.executable private @ex {
      stream.executable.export public @fn workgroup_count [784, 1, 1]
      builtin.module {
        func.func @fn(%x: !stream.binding, %y: !stream.binding, %n: index) {...}
      }
    }
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xdsl.dialects.builtin import (
    DenseArrayBase,
    IndexType,
    IntegerType,
    StringAttr,
    SymbolNameConstraint,
    SymbolRefAttr,
    i64,
)
from xdsl.ir import Attribute, Dialect, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, NoTerminator, Pure, SymbolOpInterface, SymbolTable
from xdsl.utils.exceptions import VerifyException

from headrace.base.symbols import Expr, ExprLike
from headrace.ir.types import ExprsAttr, exprs_attr
from headrace.stream.commands import CallOp, CopyOp, DispatchOp, FillOp, IfOp, LoopOp
from headrace.stream.syntax import (
    parse_attributes,
    parse_body,
    parse_if,
    parse_integers,
    parse_size,
    parse_sizes,
    parse_symbol,
    print_attributes,
    print_body,
    print_integers,
    print_size,
    print_sizes,
    print_symbol,
)
from headrace.stream.types import BindingType, ResourceType

INTEGERS = DenseArrayBase.constr(i64)


# -- kernels ------------------------------------------------------------------------


@irdl_op_definition
class ExecutableOp(IRDLOperation):
    """Kernels that stand together: exports, and one inner `builtin.module` of functions."""

    name = "stream.executable"
    sym_name = prop_def(SymbolNameConstraint())
    sym_visibility = opt_prop_def(StringAttr)
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), NoTerminator(), SymbolOpInterface(), SymbolTable())

    def __init__(
        self, name: str | StringAttr, body: Region, visibility: str | StringAttr | None = None
    ) -> None:
        super().__init__(
            properties={
                "sym_name": StringAttr.get(name),
                "sym_visibility": None if visibility is None else StringAttr.get(visibility),
            },
            regions=[body],
        )

    @classmethod
    def parse(cls, parser: Parser) -> ExecutableOp:
        visibility, name = parse_symbol(parser)
        attributes, region = parse_body(parser)
        made = cls(name, region, visibility)
        made.attributes.update(attributes)
        return made

    def print(self, printer: Printer) -> None:
        print_symbol(printer, self.sym_visibility, self.sym_name)
        print_body(printer, self, self.body)


@irdl_op_definition
class ExecutableExportOp(IRDLOperation):
    """Makes a function of the inner module an entry point.

    `workgroup_count` says how many workgroups a dispatch runs (x, y, z) where it is known;
    `workgroup_size` how many invocations each has, where the author fixed it.
    """

    name = "stream.executable.export"
    sym_name = prop_def(SymbolNameConstraint())
    sym_visibility = opt_prop_def(StringAttr)
    workgroup_size = opt_prop_def(INTEGERS)
    workgroup_count = opt_prop_def(ExprsAttr)
    traits = traits_def(SymbolOpInterface())

    def __init__(
        self,
        name: str | StringAttr,
        visibility: str | StringAttr | None = None,
        workgroup_size: DenseArrayBase[IntegerType] | None = None,
        workgroup_count: ExprsAttr | None = None,
    ) -> None:
        super().__init__(
            properties={
                "sym_name": StringAttr.get(name),
                "sym_visibility": None if visibility is None else StringAttr.get(visibility),
                "workgroup_size": workgroup_size,
                "workgroup_count": workgroup_count,
            }
        )

    def verify_(self) -> None:
        if self.workgroup_size is not None and len(self.workgroup_size) != 3:
            raise VerifyException("workgroup_size needs x, y and z")
        if self.workgroup_count is not None and len(self.workgroup_count.data) != 3:
            raise VerifyException("workgroup_count needs x, y and z")

    @classmethod
    def parse(cls, parser: Parser) -> ExecutableExportOp:
        visibility, name = parse_symbol(parser)
        size = parse_if(parser, "workgroup_size", lambda: parse_integers(parser))
        count = parse_if(parser, "workgroup_count", lambda: exprs_attr(parse_sizes(parser)))
        made = cls(name, visibility, size, count)
        made.attributes.update(parse_attributes(parser))
        return made

    def print(self, printer: Printer) -> None:
        print_symbol(printer, self.sym_visibility, self.sym_name)
        if self.workgroup_size is not None:
            printer.print_string(" workgroup_size ")
            print_integers(printer, self.workgroup_size)
        if self.workgroup_count is not None:
            printer.print_string(" workgroup_count ")
            print_sizes(printer, self.workgroup_count.exprs)
        print_attributes(printer, self)


@irdl_op_definition
class BindingSubspanOp(IRDLOperation):
    """A view of a binding from `byte_offset` on, e.g. as a tensor or memref.

    `%v = stream.binding.subspan %arg[%offset] : !stream.binding -> memref<?xf32>{%n}`
    """

    name = "stream.binding.subspan"
    binding = operand_def(BindingType)
    byte_offset = operand_def(IndexType)
    dynamic_dims = var_operand_def(IndexType)
    result = result_def()
    traits = traits_def(Pure())

    def __init__(
        self,
        binding: SSAValue,
        byte_offset: SSAValue,
        result_type: Attribute,
        dynamic_dims: Sequence[SSAValue] = (),
    ) -> None:
        super().__init__(
            operands=[binding, byte_offset, list(dynamic_dims)], result_types=[result_type]
        )

    @classmethod
    def parse(cls, parser: Parser) -> BindingSubspanOp:
        binding = parser.parse_unresolved_operand()
        parser.parse_punctuation("[")
        offset = parser.parse_unresolved_operand()
        parser.parse_punctuation("]")
        attributes = parse_attributes(parser)
        parser.parse_punctuation(":")
        kind = parser.parse_type()
        parser.parse_punctuation("->")
        result = parser.parse_type()
        dims = parse_dynamic_dims(parser)
        made = cls(
            parser.resolve_operand(binding, kind),
            parser.resolve_operand(offset, IndexType()),
            result,
            [parser.resolve_operand(d, IndexType()) for d in dims],
        )
        made.attributes.update(attributes)
        return made

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.binding)
        with printer.in_square_brackets():
            printer.print_operand(self.byte_offset)
        print_attributes(printer, self)
        printer.print_string(" : ")
        printer.print_attribute(self.binding.type)
        printer.print_string(" -> ")
        printer.print_attribute(self.result.type)
        print_dynamic_dims(printer, self.dynamic_dims)


def parse_dynamic_dims(parser: Parser) -> list[UnresolvedOperand]:
    """Reads `{%m, %n}` or nothing."""
    if parser.parse_optional_punctuation("{") is None:
        return []
    dims = parser.parse_comma_separated_list(
        parser.Delimiter.NONE, parser.parse_unresolved_operand
    )
    parser.parse_punctuation("}")
    return dims


def print_dynamic_dims(printer: Printer, dims: Sequence[SSAValue]) -> None:
    """Prints what `parse_dynamic_dims` reads."""
    if dims:
        with printer.in_braces():
            printer.print_list(dims, printer.print_operand)


class WorkgroupInfoOp(IRDLOperation):
    """`[0]`, `[1]` or `[2]` (x, y, z) of the running workgroup's place, their number or
    their size: `%x = <name>[0] : index`."""

    dimension = prop_def(INTEGERS)
    result = result_def(IndexType)
    traits = traits_def(Pure())

    def __init__(self, dimension: int) -> None:
        super().__init__(
            properties={"dimension": DenseArrayBase.from_list(i64, [dimension])},
            result_types=[IndexType()],
        )

    @property
    def axis(self) -> int:
        """0, 1 or 2."""
        return int(self.dimension.get_values()[0])

    def verify_(self) -> None:
        if len(self.dimension) != 1 or not 0 <= self.axis <= 2:
            raise VerifyException("a workgroup has dimensions 0, 1 and 2")

    @classmethod
    def parse(cls, parser: Parser) -> WorkgroupInfoOp:
        parser.parse_punctuation("[")
        axis = parser.parse_integer(allow_boolean=False)
        parser.parse_punctuation("]")
        attributes = parse_attributes(parser)
        parser.parse_punctuation(":")
        parser.parse_type()
        made = cls(axis)
        made.attributes.update(attributes)
        return made

    def print(self, printer: Printer) -> None:
        printer.print_string(f"[{self.axis}]")
        print_attributes(printer, self)
        printer.print_string(" : index")


@irdl_op_definition
class DispatchWorkgroupIdOp(WorkgroupInfoOp):
    """Which workgroup this is."""

    name = "stream.dispatch.workgroup.id"


@irdl_op_definition
class DispatchWorkgroupCountOp(WorkgroupInfoOp):
    """How many workgroups run."""

    name = "stream.dispatch.workgroup.count"


@irdl_op_definition
class DispatchWorkgroupSizeOp(WorkgroupInfoOp):
    """How many invocations a workgroup has."""

    name = "stream.dispatch.workgroup.size"


# -- resources ----------------------------------------------------------------------


@irdl_op_definition
class ResourceAllocOp(IRDLOperation):
    """Memory of `size` bytes: `stream.resource.alloc "h" : !stream.resource<transient>{64}`.

    The label is for reports. Where it stands says nothing: the plan places it by use.
    """

    name = "stream.resource.alloc"
    label = opt_prop_def(StringAttr)
    size = prop_def(ExprsAttr)
    result = result_def(ResourceType)

    def __init__(
        self, size: ExprLike, lifetime: str = "transient", label: str | None = None
    ) -> None:
        super().__init__(
            properties={
                "size": exprs_attr([size]),
                "label": None if label is None else StringAttr(label),
            },
            result_types=[ResourceType(lifetime)],
        )

    @classmethod
    def parse(cls, parser: Parser) -> ResourceAllocOp:
        label = parser.parse_optional_str_literal()
        attributes = parse_attributes(parser)
        kind, size = parse_sized_resource(parser)
        made = cls(size, kind.data, label)
        made.attributes.update(attributes)
        return made

    def print(self, printer: Printer) -> None:
        if self.label is not None:
            printer.print_string(" ")
            printer.print_string_literal(self.label.data)
        print_attributes(printer, self)
        print_sized_resource(printer, self.result.type, self.size)


@irdl_op_definition
class ResourceConstantOp(IRDLOperation):
    """A weight: `stream.resource.constant @w : !stream.resource<constant>{401408}`."""

    name = "stream.resource.constant"
    parameter = prop_def(SymbolRefAttr)
    size = prop_def(ExprsAttr)
    result = result_def(ResourceType)
    traits = traits_def(Pure())

    def __init__(self, parameter: str | SymbolRefAttr, size: ExprLike) -> None:
        reference = parameter if isinstance(parameter, SymbolRefAttr) else None
        super().__init__(
            properties={
                "parameter": reference or SymbolRefAttr(str(parameter)),
                "size": exprs_attr([size]),
            },
            result_types=[ResourceType("constant")],
        )

    @classmethod
    def parse(cls, parser: Parser) -> ResourceConstantOp:
        name = parser.parse_symbol_name()
        attributes = parse_attributes(parser)
        _, size = parse_sized_resource(parser)
        made = cls(name.data, size)
        made.attributes.update(attributes)
        return made

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.parameter.root_reference.data)
        print_attributes(printer, self)
        print_sized_resource(printer, self.result.type, self.size)


def parse_sized_resource(parser: Parser) -> tuple[ResourceType, Expr]:
    """Reads ` : !stream.resource<transient>{64}`."""
    parser.parse_punctuation(":")
    kind = parser.parse_type()
    if not isinstance(kind, ResourceType):
        parser.raise_error("expected a !stream.resource")
    parser.parse_punctuation("{")
    size = parse_size(parser)
    parser.parse_punctuation("}")
    return kind, size


def print_sized_resource(printer: Printer, kind: Attribute, size: ExprsAttr) -> None:
    """Prints what `parse_sized_resource` reads."""
    printer.print_string(" : ")
    printer.print_attribute(kind)
    with printer.in_braces():
        print_size(printer, size.exprs[0])


@irdl_op_definition
class SizeOp(IRDLOperation):
    """A size expression as a scalar: `%n = stream.size "batch" : index`."""

    name = "stream.size"
    value = prop_def(ExprsAttr)
    result = result_def()
    traits = traits_def(Pure())

    def __init__(self, value: ExprLike, result_type: Attribute | None = None) -> None:
        super().__init__(
            properties={"value": exprs_attr([value])},
            result_types=[result_type or IndexType()],
        )

    @classmethod
    def parse(cls, parser: Parser) -> SizeOp:
        value = parse_size(parser)
        attributes = parse_attributes(parser)
        parser.parse_punctuation(":")
        made = cls(value, parser.parse_type())
        made.attributes.update(attributes)
        return made

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        print_size(printer, self.value.exprs[0])
        print_attributes(printer, self)
        printer.print_string(" : ")
        printer.print_attribute(self.result.type)


def stream_operations() -> Iterable[type[IRDLOperation]]:
    """Every operation of the stage."""
    return (
        ExecutableOp, ExecutableExportOp, BindingSubspanOp, DispatchWorkgroupIdOp,
        DispatchWorkgroupCountOp, DispatchWorkgroupSizeOp, ResourceAllocOp,
        ResourceConstantOp, SizeOp, DispatchOp, CopyOp, FillOp, IfOp, LoopOp, CallOp,
    )  # fmt: skip


STREAM = Dialect("stream", [*stream_operations()], [BindingType, ResourceType])
