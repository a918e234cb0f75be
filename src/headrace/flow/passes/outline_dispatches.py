"""Each dispatch region becomes an executable and a dispatch of its entry point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
    i32,
)
from xdsl.dialects.func import FuncOp
from xdsl.dialects.func import ReturnOp as FuncReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue

from headrace.base.symbols import ONE, Expr, product
from headrace.flow.dialect import DispatchOp, DispatchRegionOp, ExecutableOp, ReturnOp
from headrace.ir.locations import fused_location, places
from headrace.ir.model import Model
from headrace.ir.passes import Pass
from headrace.ir.types import exprs_attr, shape_of
from headrace.tensor import dialect as t


@dataclass(frozen=True)
class OutlineDispatches(Pass):
    """`flow.executable @<function>_ex_dispatch_<n>` with `@<function>_entry_dispatch_<n>`."""

    def run(self, model: Model) -> None:
        for function in list(model.ir.ops):
            if isinstance(function, FuncOp):
                _outline(function)


def _outline(function: FuncOp) -> None:
    regions = [op for op in function.walk() if isinstance(op, DispatchRegionOp)]
    for number, region in enumerate(regions):
        _outline_region(region, function, number)


def captured(region: DispatchRegionOp) -> list[SSAValue]:
    """Values from outside that a region uses, each once, in order of first use."""
    inside = {value for op in region.body.block.ops for value in op.results}
    found: dict[SSAValue, None] = {}
    for operation in region.body.block.ops:
        for inner in operation.walk():
            for operand in inner.operands:
                own = operand in inside or _is_within(operand, operation)
                if not own:
                    found[operand] = None
    return list(found)


def _is_within(value: SSAValue, operation: Operation) -> bool:
    """Whether a value is defined in a region of the operation (a reduction's body)."""
    owner = value.owner
    block = owner if isinstance(owner, Block) else owner.parent_block()
    while block is not None:
        parent = block.parent_op()
        if parent is operation:
            return True
        block = parent.parent_block() if parent is not None else None
    return False


def workload(shape: Sequence[Expr]) -> tuple[Expr, Expr, Expr]:
    """The result's dimensions, innermost first, those beyond two folded into the third."""
    sizes = [*reversed(shape), ONE, ONE, ONE]
    outermost = product(sizes[2:])
    return sizes[0], sizes[1], outermost


def _outline_region(region: DispatchRegionOp, function: FuncOp, number: int) -> None:
    inputs = captured(region)
    types = [v.type for v in inputs]
    result_types = [r.type for r in region.results]
    block = Block(arg_types=types)
    inner = dict(zip(inputs, block.args, strict=True))
    body = list(region.body.block.ops)
    for operation in body:
        operation.detach()
        for nested in operation.walk():
            for n, operand in enumerate(nested.operands):
                if operand in inner:
                    nested.operands[n] = inner[operand]
        if isinstance(operation, ReturnOp):
            end = FuncReturnOp(*operation.arguments)
            operation.erase()
            block.add_op(end)
        else:
            block.add_op(operation)
    name = function.sym_name.data
    shape = exprs_attr(workload(shape_of(region.results[0])))
    entry = FuncOp(
        f"{name}_entry_dispatch_{number}",
        (types, result_types),
        Region(block),
        arg_attrs=_argument_attributes(inputs),
    )
    entry.attributes["hr.ordinal"] = IntegerAttr(0, i32)
    entry.attributes["hr.workload"] = shape
    # A region leaves out the constants it holds: those that nodes share name them all.
    where = region.location
    if not places(region):
        where = fused_location(op for op in body if not isinstance(op, ReturnOp))
    entry.location = where
    executable = ExecutableOp.build(
        regions=[Region(Block([ModuleOp([entry])]))],
        properties={"sym_name": StringAttr(f"{name}_ex_dispatch_{number}")},
    )
    executable.location = where
    parent = function.parent_block()
    assert parent is not None
    parent.insert_op_before(executable, function)
    reference = SymbolRefAttr(executable.sym_name.data, [entry.sym_name.data])
    dispatch = DispatchOp.make(reference, shape, inputs, result_types)
    dispatch.location = where
    place = region.parent_block()
    assert place is not None
    place.insert_op_before(dispatch, region)
    for old, new in zip(region.results, dispatch.results, strict=True):
        old.replace_all_uses_with(new)
    region.detach()
    region.erase()


def _argument_attributes(inputs: Sequence[SSAValue]) -> ArrayAttr[DictionaryAttr] | None:
    """`hr.constant` for arguments that are weights."""
    weights = [isinstance(v.owner, t.ParameterOp) for v in inputs]
    if not any(weights):
        return None
    constant = DictionaryAttr({"hr.constant": UnitAttr()})
    return ArrayAttr([constant if w else DictionaryAttr({}) for w in weights])
