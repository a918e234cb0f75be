"""Stage 1, `flow`: tensor operations grouped into dispatches.

In a function stand `tensor.parameter`, `flow.tensor.reshape` and dispatches; first with
their bodies in place (`flow.dispatch.region`), later outlined to executables. Values are
whole tensors without aliasing; order of execution follows from use alone. Control flow runs
other functions (`control.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import (
    ModuleOp,
    StringAttr,
    SymbolNameConstraint,
    SymbolRefAttr,
    TensorType,
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
    var_result_def,
)
from xdsl.traits import (
    IsolatedFromAbove,
    IsTerminator,
    NoTerminator,
    Pure,
    SymbolOpInterface,
    SymbolTable,
)

from headrace.flow.control import IfOp, WhileOp
from headrace.ir.types import ExprsAttr


@irdl_op_definition
class DispatchRegionOp(IRDLOperation):
    """`%r = flow.dispatch.region -> types { ... flow.return %v : type }`: one dispatch.

    The body holds tensor operations and uses values from around it freely.
    """

    name = "flow.dispatch.region"
    body = region_def("single_block")
    results_ = var_result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = "`->` type($results_) $body attr-dict"

    @staticmethod
    def make(body: Region, types: Sequence[Attribute]) -> DispatchRegionOp:
        """The region operation with results of `types`."""
        return DispatchRegionOp.build(regions=[body], result_types=[list(types)])


@irdl_op_definition
class ReturnOp(IRDLOperation):
    """Ends a dispatch region: its results."""

    name = "flow.return"
    arguments = var_operand_def(TensorType)
    traits = traits_def(IsTerminator(), Pure())
    assembly_format = "$arguments attr-dict `:` type($arguments)"


@irdl_op_definition
class ExecutableOp(IRDLOperation):
    """`flow.executable @name { builtin.module { func.func @entry ... } }`.

    Functions inside are entry points: attribute `hr.ordinal` counts them, `hr.workload`
    is the workload of their (first) dispatch.
    """

    name = "flow.executable"
    sym_name = prop_def(SymbolNameConstraint())
    sym_visibility = opt_prop_def(StringAttr)
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), NoTerminator(), SymbolOpInterface(), SymbolTable())
    assembly_format = "(`visibility` $sym_visibility^)? $sym_name $body attr-dict"

    @property
    def module(self) -> ModuleOp:
        """The module with the entry points."""
        only = self.body.block.first_op
        if not isinstance(only, ModuleOp):
            raise TypeError(f"executable @{self.sym_name.data} holds no module")
        return only


@irdl_op_definition
class DispatchOp(IRDLOperation):
    """`%r = flow.dispatch @executable::@entry[workload](%a, %b) : (types) -> types`."""

    name = "flow.dispatch"
    entry_point = prop_def(SymbolRefAttr)
    workload = prop_def(ExprsAttr)
    arguments = var_operand_def(TensorType)
    results_ = var_result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = (
        "$entry_point `[` $workload `]` `(` $arguments `)` attr-dict `:` "
        "functional-type(operands, results)"
    )

    @staticmethod
    def make(
        entry_point: SymbolRefAttr,
        workload: ExprsAttr,
        arguments: Sequence[SSAValue],
        types: Sequence[Attribute],
    ) -> DispatchOp:
        """A dispatch of an entry point with results of `types`."""
        return DispatchOp.build(
            operands=[list(arguments)],
            result_types=[list(types)],
            properties={"entry_point": entry_point, "workload": workload},
        )


@irdl_op_definition
class TensorReshapeOp(IRDLOperation):
    """The same bytes under another shape: both sides row-major; never a dispatch."""

    name = "flow.tensor.reshape"
    operand = operand_def(TensorType)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = "$operand attr-dict `:` functional-type(operands, results)"


FLOW = Dialect(
    "flow",
    [
        DispatchRegionOp, ReturnOp, ExecutableOp, DispatchOp, TensorReshapeOp, IfOp, WhileOp,
    ],
)  # fmt: skip
