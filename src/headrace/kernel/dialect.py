"""The `kernel` dialect: a whole kernel as one attribute, and the operation that runs it.

Loops and scalars never become xDSL operations: `#kernel.body<...>` holds a `Kernel` in
the grammar of `text.py`.
"""

from __future__ import annotations

from xdsl.ir import Attribute, Data, Dialect
from xdsl.irdl import (
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    prop_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from headrace.ir.raw_text import read_raw
from headrace.kernel.description import Kernel
from headrace.kernel.text import KernelTextError, print_kernel, read_kernel


@irdl_attr_definition
class BodyAttr(Data[Kernel]):
    """`#kernel.body<kernel(...) {...}>`: what one dispatch computes, unscheduled."""

    name = "kernel.body"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Kernel:
        parser.parse_punctuation("<")
        try:
            kernel = read_raw(parser, read_kernel)
        except KernelTextError as wrong:
            parser.raise_error(str(wrong), wrong.offset, wrong.offset + 1)  # pyright: ignore
        parser.parse_punctuation(">")
        return kernel

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<{print_kernel(self.data)}>")


@irdl_op_definition
class ExecuteOp(IRDLOperation):
    """`kernel.execute <kernel(...) {...}>(%a, %b) : (types) -> types`: runs a kernel.

    At the flow stage the operands are the tensors that the kernel reads, in the order of
    its operands, and the results are the tensors it writes, in theirs. From the stream
    stage on there are no results: the operands are all of the kernel's operands in order,
    as resources, and behind them the integer scalars for `Kernel.dims`.
    """

    name = "kernel.execute"
    body = prop_def(BodyAttr)
    arguments = var_operand_def(Attribute)
    results_ = var_result_def(Attribute)
    assembly_format = (
        "$body `(` $arguments `)` attr-dict `:` functional-type(operands, results)"
    )

    @property
    def kernel(self) -> Kernel:
        """The kernel it runs."""
        return self.body.data


KERNEL = Dialect("kernel", [ExecuteOp], [BodyAttr])
