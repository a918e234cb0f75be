"""Control flow of the tensor stage: `tensor.if` and `tensor.while`, StableHLO's semantics.

Regions hold whole-tensor operations and use values from around them freely. `build_if` and
`build_while` make them; `trip_count` tells how often a loop surely runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, StringAttr, TensorType
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import IsTerminator, Pure

from headrace.base.symbols import ExprLike, product
from headrace.ir.types import ExprsAttr, dtype_of, exprs_attr, shape_of


@irdl_op_definition
class ReturnOp(IRDLOperation):
    """Ends the body of a reduction, a scatter or a sort, and regions of control flow."""

    name = "tensor.return"
    arguments = var_operand_def(TensorType)
    traits = traits_def(IsTerminator(), Pure())
    assembly_format = "$arguments attr-dict `:` type($arguments)"


@irdl_op_definition
class IfOp(IRDLOperation):
    """StableHLO's `if`: the results of the region that the i1 scalar chooses."""

    name = "tensor.if"
    condition = operand_def(TensorType)
    then = region_def("single_block")
    otherwise = region_def("single_block")
    results_ = var_result_def(TensorType)
    traits = traits_def(Pure())


@irdl_op_definition
class WhileOp(IRDLOperation):
    """StableHLO's `while`: `body` on the carried values for as long as `condition` holds.

    Both regions take the carried values; the first returns an i1 scalar, the second the next
    carried values, of the same types. `trip_count` says how often the body runs at most,
    where that is known beforehand: plans weigh by it.
    """

    name = "tensor.while"
    inputs = var_operand_def(TensorType)
    trip_count = opt_prop_def(ExprsAttr)
    condition = region_def("single_block")
    body = region_def("single_block")
    results_ = var_result_def(TensorType)
    traits = traits_def(Pure())


CONTROL = (IfOp, WhileOp)

Fill: TypeAlias = Callable[[Block], Sequence[SSAValue]]
"""Appends a region's operations to its block and says what it returns."""


def region_of(types: Sequence[Attribute], fill: Fill) -> Region:
    """A region with arguments of `types`, ended by what `fill` returns."""
    block = Block(arg_types=types)
    block.add_op(ReturnOp.build(operands=[list(fill(block))]))
    return Region(block)


def make_if(condition: SSAValue, then: Region, otherwise: Region) -> IfOp:
    """The operation; results have the types that the regions return.

    Raises:
        ValueError: the regions return different types.
    """
    types = require_equal_types(then, otherwise)
    return IfOp.build(
        operands=[condition], regions=[then, otherwise], result_types=[list(types)]
    )


def require_equal_types(then: Region, otherwise: Region) -> list[Attribute]:
    """The types that both regions return.

    Raises:
        ValueError: they return different ones.
    """
    types, other = returned_types(then), returned_types(otherwise)
    if types != other:
        raise ValueError(f"the branches return {_show(types)} and {_show(other)}")
    return types


def make_while(
    inputs: Sequence[SSAValue],
    condition: Region,
    body: Region,
    trip_count: ExprLike | None = None,
) -> WhileOp:
    """The operation; results have the types of the inputs.

    Raises:
        ValueError: the body returns other types than it takes.
    """
    types = [v.type for v in inputs]
    if returned_types(body) != types:
        raise ValueError(
            f"the loop carries {_show(types)}, its body returns {_show(returned_types(body))}"
        )
    known = None if trip_count is None else exprs_attr([trip_count])
    return WhileOp.build(
        operands=[list(inputs)],
        properties={"trip_count": known},
        regions=[condition, body],
        result_types=[types],
    )


def returned_types(region: Region) -> list[Attribute]:
    """The types of what a region returns."""
    end = region.block.last_op
    return [v.type for v in end.operands] if isinstance(end, ReturnOp) else []


def _show(types: Sequence[Attribute]) -> str:
    return f"({', '.join(map(str, types))})"


# -- looking through regions -----------------------------------------------------------


def captured_values(operation: Operation) -> list[SSAValue]:
    """Values from around an operation that its regions use, each once, in order of use."""
    found: dict[SSAValue, None] = {}
    for region in operation.regions:
        for inner in region.walk():
            for value in inner.operands:
                if not _is_within(value, operation):
                    found[value] = None
    return list(found)


def used_values(operation: Operation) -> list[SSAValue]:
    """Operands, and the values from around that regions use."""
    if not operation.regions:
        return list(operation.operands)
    return list(dict.fromkeys((*operation.operands, *captured_values(operation))))


def _is_within(value: SSAValue, operation: Operation) -> bool:
    owner = value.owner
    block = owner if isinstance(owner, Block) else owner.parent_block()
    while block is not None:
        parent = block.parent_op()
        if parent is operation:
            return True
        block = parent.parent_block() if parent is not None else None
    return False


def nested_blocks(block: Block) -> Iterator[Block]:
    """The blocks of control flow in a block, innermost first, then the block itself."""
    for operation in list(block.ops):
        if isinstance(operation, CONTROL):
            for region in operation.regions:
                yield from nested_blocks(region.block)
    yield block


# -- what is known when compiling ------------------------------------------------------

_CHEAP_OPERATIONS = 8
_CHEAP_ELEMENTS = 1024


def is_cheap(region: Region) -> bool:
    """Whether a region computes so little that a branch around it costs more."""
    operations = [op for op in region.block.ops if not isinstance(op, ReturnOp)]
    if len(operations) > _CHEAP_OPERATIONS or any(op.regions for op in operations):
        return False
    counts = [product(shape_of(r)) for op in operations for r in op.results]
    return all(c.is_constant and c.value <= _CHEAP_ELEMENTS for c in counts)


def trip_count(loop: WhileOp) -> int | None:
    """How often a loop that counts runs: from a constant, by a constant, below a constant.

    None where it is no such loop. Looks at one carried value: the condition compares it,
    the body adds to it.
    """
    compare = _returned(loop.condition, 0)
    if compare is None or compare.name != "tensor.compare":
        return None
    arguments: list[SSAValue] = list(loop.condition.block.args)
    if compare.operands[0] not in arguments:
        return None
    number = arguments.index(compare.operands[0])
    step = _returned(loop.body, number)
    if step is None or step.name != "tensor.add":
        return None
    carried = loop.body.block.args[number]
    others = [v for v in step.operands if v is not carried]
    parts = [_scalar(loop.inputs[number]), _scalar(compare.operands[1])]
    parts.append(_scalar(others[0]) if len(others) == 1 else None)
    if any(p is None for p in parts):
        return None
    start, limit, by = (int(p) for p in parts if p is not None)
    direction = compare.properties["direction"]
    inclusive = isinstance(direction, StringAttr) and direction.data == "LE"
    below = isinstance(direction, StringAttr) and direction.data in ("LT", "LE")
    if by < 1 or not below:
        return None
    return max(0, -(-(limit + inclusive - start) // by))


def _returned(region: Region, number: int) -> Operation | None:
    end = region.block.last_op
    owner = end.operands[number].owner if isinstance(end, ReturnOp) else None
    return owner if isinstance(owner, Operation) else None


def _scalar(value: SSAValue) -> int | None:
    """The number of an integer constant."""
    owner = value.owner
    attribute = owner.properties.get("value") if isinstance(owner, Operation) else None
    if not isinstance(attribute, DenseIntOrFPElementsAttr) or not dtype_of(value).is_integer:
        return None
    found = attribute.get_values()
    return int(found[0]) if len(found) == 1 else None
