"""Every entry point's tensor operations become one `kernel.execute`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from xdsl.dialects.func import FuncOp
from xdsl.dialects.func import ReturnOp as FuncReturnOp
from xdsl.ir import Operation

from headrace.base.errors import Diagnostic, Problems
from headrace.flow.executables import entries, executables, kernel_of
from headrace.flow.lowering.frame import CannotFuse
from headrace.flow.lowering.kernel import build_kernel
from headrace.ir.locations import fused_location, places
from headrace.ir.model import Model
from headrace.ir.passes import Pass
from headrace.kernel.description import Precision
from headrace.kernel.dialect import BodyAttr, ExecuteOp
from headrace.kernel.shortened import sums_products
from headrace.kernel.verify import verify_kernel


@dataclass(frozen=True)
class ConvertToKernels(Pass):
    """Builds the kernel of each entry point; operands are row-major.

    Attributes:
        precision: of those that sum products of f32 (`Kernel.precision`).
    """

    precision: Precision = "ieee"

    def run(self, model: Model) -> None:
        problems = Problems()
        for executable in executables(model.ir):
            for entry in entries(executable):
                if kernel_of(entry) is None:
                    _convert(entry, self.precision, problems)
        problems.raise_if_any()


def _convert(entry: FuncOp, precision: Precision, problems: Problems) -> None:
    block = entry.body.block
    operations = list(block.ops)
    end = operations.pop()
    assert isinstance(end, FuncReturnOp)
    where = _places(operations)
    try:
        kernel = build_kernel(operations, block.args, end.operands, constant_arguments(entry))
    except CannotFuse as reason:
        fact = f"the operations of @{entry.sym_name.data} make no kernel: {reason}"
        problems.add(Diagnostic("HR9204", fact, where))
        return
    if sums_products(kernel):
        kernel = replace(kernel, precision=precision)
    verify_kernel(kernel, where)
    made = ExecuteOp.build(
        operands=[list(block.args)],
        result_types=[[v.type for v in end.operands]],
        properties={"body": BodyAttr(kernel)},
    )
    made.location = fused_location(operations)
    block.insert_op_before(made, end)
    for n, result in enumerate(made.results):
        end.operands[n] = result
    for operation in reversed(operations):
        operation.detach()
        operation.erase()


def _places(operations: list[Operation]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for operation in operations:
        found.update(dict.fromkeys(places(operation)))
    return tuple(found)


def constant_arguments(entry: FuncOp) -> list[bool]:
    """For each argument of an entry point whether every dispatch binds a weight to it."""
    count = len(entry.body.block.args)
    if entry.arg_attrs is None:
        return [False] * count
    return ["hr.constant" in attributes.data for attributes in entry.arg_attrs.data]
