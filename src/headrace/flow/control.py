"""Control flow of the flow stage: functions of the program, run by `flow.if` and `flow.while`.

What regions use from around them are arguments here, so every function is a program of its
own: dispatches are formed, laid out and placed in each by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import FlatSymbolRefAttrConstr, SymbolRefAttr, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import Pure

from headrace.ir.types import ExprsAttr


@irdl_op_definition
class IfOp(IRDLOperation):
    """`%r = flow.if %c then @f else @g(%a, %b) : (types) -> types`: both take the arguments."""

    name = "flow.if"
    condition = operand_def(TensorType)
    then = prop_def(FlatSymbolRefAttrConstr)
    otherwise = prop_def(FlatSymbolRefAttrConstr)
    arguments = var_operand_def(TensorType)
    results_ = var_result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = (
        "$condition `then` $then `else` $otherwise `(` $arguments `)` attr-dict `:` "
        "functional-type(operands, results)"
    )

    @staticmethod
    def make(
        condition: SSAValue,
        then: str,
        otherwise: str,
        arguments: Sequence[SSAValue],
        types: Sequence[Attribute],
    ) -> IfOp:
        """A choice between two functions with results of `types`."""
        return IfOp.build(
            operands=[condition, list(arguments)],
            properties={"then": SymbolRefAttr(then), "otherwise": SymbolRefAttr(otherwise)},
            result_types=[list(types)],
        )


@irdl_op_definition
class WhileOp(IRDLOperation):
    """A loop of two functions: both take the carried values, then the captured ones.

    `condition` returns an i1 scalar, `body` the next carried values. `trip_count` is that of
    `tensor.while`.
    """

    name = "flow.while"
    inputs = var_operand_def(TensorType)
    captured = var_operand_def(TensorType)
    condition = prop_def(FlatSymbolRefAttrConstr)
    body = prop_def(FlatSymbolRefAttrConstr)
    trip_count = opt_prop_def(ExprsAttr)
    results_ = var_result_def(TensorType)
    traits = traits_def(Pure())
    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    @staticmethod
    def make(
        inputs: Sequence[SSAValue],
        captured: Sequence[SSAValue],
        condition: str,
        body: str,
        trip_count: ExprsAttr | None,
    ) -> WhileOp:
        """A loop whose results have the types of its inputs."""
        return WhileOp.build(
            operands=[list(inputs), list(captured)],
            properties={
                "condition": SymbolRefAttr(condition),
                "body": SymbolRefAttr(body),
                "trip_count": trip_count,
            },
            result_types=[[v.type for v in inputs]],
        )

    def callees(self) -> tuple[str, str]:
        """Names of the condition's and the body's function."""
        return (self.condition.root_reference.data, self.body.root_reference.data)


CONTROL = (IfOp, WhileOp)
