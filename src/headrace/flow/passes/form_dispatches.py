"""Groups tensor operations into dispatch regions.

Level 0 is a dispatch for each reduction and for each run of elementwise operations; level
2 fuses around reductions, so that ResNet-50 is a dispatch per convolution.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import StringAttr, SymbolRefAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from headrace.base.parameters import Source, array_source, expression
from headrace.base.symbols import product
from headrace.flow.control import CONTROL
from headrace.flow.fusion.build import build_regions
from headrace.flow.fusion.consumers import grow
from headrace.flow.fusion.groups import Group, Program, is_free
from headrace.flow.fusion.producers import place_remaining
from headrace.flow.fusion.rows import grow_rows
from headrace.flow.fusion.siblings import join_siblings
from headrace.flow.lowering.operations import is_reduction, is_splat, scalar_constant
from headrace.ir.model import NAME, Model
from headrace.ir.passes import Pass
from headrace.ir.types import dtype_of, shape_of, static_shape
from headrace.kernel.target import Target
from headrace.tensor import dialect as t
from headrace.tensor.build import to_numpy

_BOUND_BYTES = 256
"""A constant operand of a product that is larger becomes a weight."""


@dataclass(frozen=True)
class FormDispatches(Pass):
    """Forms `flow.dispatch.region`s.

    Attributes:
        level: 0: nothing fused around reductions; 2: everything that fits.
        targets: what is compiled for; empty: anything. Attention in 16-bit floats is one
            dispatch where all of them take that well (`Target.fuses_narrow_rows`), and so are
            neighbours (`Target.joins_siblings`).
    """

    level: int = 2
    targets: tuple[Target, ...] = ()

    def run(self, model: Model) -> None:
        narrow = bool(self.targets) and all(x.fuses_narrow_rows for x in self.targets)
        siblings = bool(self.targets) and all(x.joins_siblings for x in self.targets)
        for function in list(model.ir.ops):
            if isinstance(function, FuncOp):
                _Weights(model, function).bind()
                _form(function, self.level, narrow, siblings and self.level > 0)


def _form(function: FuncOp, level: int, narrow_rows: bool, siblings: bool) -> None:
    _erase_dead(function)
    program = Program(function)
    for operation in program.operations if level else ():
        group = grow_rows(program, operation, narrow_rows)
        if group is not None:
            program.add(group)
    for operation in program.operations:
        if is_reduction(operation) and operation not in program.group_of:
            group = grow(program, operation) if level else Group(operation)
            program.add(group)
    place_remaining(program, level)
    _place_returned(program)
    if siblings:
        join_siblings(program)
    build_regions(program)


def _erase_dead(function: FuncOp) -> None:
    block = function.body.block
    for operation in reversed(list(block.ops)):
        if operation is block.last_op or any(r.uses for r in operation.results):
            continue
        operation.detach()
        operation.erase()


def _place_returned(program: Program) -> None:
    """What costs nothing where it is used still needs a dispatch where it is returned, or
    where a reshape, a branch or a loop reads it."""
    wanted: list[SSAValue] = list(program.terminator.operands) if program.terminator else []
    for operation in program.operations:
        if isinstance(operation, CONTROL):
            wanted += operation.operands
    wanted += [alias.operands[0] for alias in program.aliases]
    for value in wanted:
        owner = value.owner
        known = owner in program.group_of or owner in program.aliases
        if isinstance(owner, Operation) and is_free(owner) and not known:
            program.add(Group(owner))


class _Weights:
    """Turns constants that are no splats, and large operands of products, into weights."""

    def __init__(self, model: Model, function: FuncOp) -> None:
        self.model = model
        self.function = function

    def bind(self) -> None:
        for operation in list(self.function.body.block.ops):
            if isinstance(operation, t.ConstantOp) and not is_splat(operation):
                source = array_source(to_numpy(operation.value).copy())
                self._replace(operation.result, source)
            elif isinstance(operation, (t.DotGeneralOp, t.ConvolutionOp)):
                self._bind_splats(operation)

    def _bind_splats(self, operation: Operation) -> None:
        for n, value in enumerate(operation.operands):
            constant = scalar_constant(value)
            if constant is None or not isinstance(constant.owner, t.ConstantOp):
                continue
            count = product(shape_of(value))
            dtype = dtype_of(value)
            if not count.is_constant or count.value * dtype.size_bytes <= _BOUND_BYTES:
                continue
            scalar = to_numpy(constant.owner.value).reshape(-1)[:1].reshape(()).copy()
            source = expression(
                "broadcast_in_dim",
                (array_source(scalar),),
                dtype,
                static_shape(value),
                broadcast_dimensions=(),
            )
            operation.operands[n] = self._parameter(value, source)

    def _replace(self, value: SSAValue, source: Source) -> None:
        value.replace_all_uses_with(self._parameter(value, source))

    def _name(self, value: SSAValue, source: Source) -> str:
        """The user's name of a constant where it has one and no other content has it."""
        digest = source.digest[:16]
        given = value.owner.attributes.get(NAME) if isinstance(value.owner, Operation) else None
        name = given.data if isinstance(given, StringAttr) else f"constant_{digest}"
        known = self.model.parameters.get(name, source)
        return name if known == source else f"{name}.{digest}"

    def _parameter(self, value: SSAValue, source: Source) -> SSAValue:
        name = self._name(value, source)
        self.model.parameters.setdefault(name, source)
        made = t.ParameterOp.build(
            result_types=[value.type], properties={"parameter": SymbolRefAttr(name)}
        )
        owner = value.owner
        assert isinstance(owner, Operation)
        made.location = owner.location
        block = owner.parent_block()
        assert block is not None
        block.insert_op_before(made, owner)
        return made.result
