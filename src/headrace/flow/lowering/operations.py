"""What the flow stage distinguishes among tensor operations."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

from headrace.base.symbols import ONE
from headrace.ir.types import shape_of
from headrace.tensor import dialect as t

PLACEMENTS = (t.ScatterOp, t.SortOp, t.DynamicUpdateSliceOp)
"""Operations that say where elements go: a kernel of their own."""

REDUCTIONS = (t.ReduceOp, t.ReduceWindowOp, t.DotGeneralOp, t.ConvolutionOp, *PLACEMENTS)
"""Operations that fold: each is a phase of its own, none is ever computed twice."""

SOURCES = (t.ConstantOp, t.IotaOp, t.DimensionOp)
"""Operations without operands whose elements are known where they are used."""

MOVEMENTS = (
    t.BroadcastInDimOp, t.ReshapeOp, t.TransposeOp, t.SliceOp, t.PadOp, t.ConcatenateOp,
    t.ReverseOp, t.GatherOp, t.DynamicSliceOp, t.CopyOp,
)  # fmt: skip
"""Operations whose elements are elements of their operands."""

_EXPENSIVE = frozenset(
    (
        "atan2", "cbrt", "cosine", "erf", "exponential", "exponential_minus_one", "log",
        "log_plus_one", "logistic", "power", "rsqrt", "sine", "sqrt", "tan", "tanh",
    )
)  # fmt: skip


def operation_name(operation: Operation) -> str:
    """The name without its dialect: `add`."""
    return operation.name.partition(".")[2]


def is_reduction(operation: Operation) -> bool:
    return isinstance(operation, REDUCTIONS)


def is_source(operation: Operation) -> bool:
    return isinstance(operation, SOURCES)


def is_movement(operation: Operation) -> bool:
    return isinstance(operation, MOVEMENTS)


def is_elementwise(operation: Operation) -> bool:
    return isinstance(operation, t.ElementwiseOp) and not isinstance(operation, t.CopyOp)


def is_expensive(operation: Operation) -> bool:
    """An elementwise operation that costs tens of instructions."""
    return operation_name(operation) in _EXPENSIVE


def integers(attribute: t.Integers) -> tuple[int, ...]:
    """The values of a list-of-integers property."""
    return tuple(int(v) for v in attribute.get_values())


def expands(operation: Operation) -> bool:
    """Whether it is a broadcast that repeats elements of a non-scalar or scalar operand."""
    if not isinstance(operation, t.BroadcastInDimOp):
        return False
    operand = shape_of(operation.operand)
    result = shape_of(operation.result)
    wide = [s for s in operand if s != ONE]
    return wide != [s for s in result if s != ONE]


def is_splat(operation: Operation) -> bool:
    """A constant with one value everywhere."""
    if not isinstance(operation, t.ConstantOp):
        return False
    from headrace.tensor.build import to_numpy

    array = to_numpy(operation.value).reshape(-1)
    return array.size <= 1 or array.tobytes() == array[:1].tobytes() * array.size


def scalar_constant(value: SSAValue) -> SSAValue | None:
    """The splat constant behind broadcasts and reshapes of a value, if that is what it is."""
    owner = value.owner
    while isinstance(owner, (t.BroadcastInDimOp, t.ReshapeOp, t.TransposeOp)):
        value = owner.operands[0]
        owner = value.owner
    return value if isinstance(owner, t.ConstantOp) and is_splat(owner) else None


def users(values: Sequence[SSAValue]) -> list[Operation]:
    """Operations that use any of the values, each once, in no order that matters."""
    found: dict[Operation, None] = {}
    for value in values:
        for use in value.uses:
            found[use.operation] = None
    return list(found)
