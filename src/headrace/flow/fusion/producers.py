"""Gives every operation that is no reduction its dispatch: that of its consumers, one of
its own, several (computed anew), or none (a reshape moves nothing)."""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from headrace.base.symbols import ONE, Expr, product
from headrace.flow.control import CONTROL
from headrace.flow.fusion.groups import Group, Program, is_free
from headrace.flow.lowering.operations import (
    expands,
    is_elementwise,
    is_expensive,
    is_reduction,
)
from headrace.ir.types import shape_of
from headrace.tensor import dialect as t

_MOST_CLONED = 4
"""The longest chain of cheap operations that is computed anew for each consumer."""

_PLAIN_MOVEMENTS = (t.BroadcastInDimOp, t.TransposeOp, t.SliceOp, t.ReverseOp, t.CopyOp)
"""Movements that are a change of index maps and nothing else."""


def place_remaining(program: Program, level: int) -> None:
    """Walks the program backwards and places what has no group yet."""
    depths: dict[Operation, int] = {}
    for operation in reversed(program.operations):
        known = operation in program.group_of or operation in program.clones
        if known or is_free(operation) or isinstance(operation, (t.ParameterOp, *CONTROL)):
            continue
        if not any(r.uses for r in operation.results):
            continue
        groups, outside = program.groups_using(operation)
        if level == 0:
            _place_plainly(program, operation, groups, outside)
        else:
            _place(program, operation, groups, outside, depths)


def _place_plainly(
    program: Program, operation: Operation, groups: list[Group], outside: bool
) -> None:
    """Level 0: with its consumers where they are one group without a reduction."""
    if not outside and len(groups) == 1 and not is_reduction(groups[0].root):
        program.join(operation, groups[0])
    elif isinstance(operation, t.ReshapeOp) and _is_stored(program, operation.operand, 0):
        program.aliases[operation] = None
    else:
        program.add(Group(operation))


def _place(
    program: Program,
    operation: Operation,
    groups: list[Group],
    outside: bool,
    depths: dict[Operation, int],
) -> None:
    if isinstance(operation, t.ReshapeOp) and (
        outside
        or len(groups) != 1
        or _is_stored(program, operation.operand, 2)
        or not accepts(groups[0], operation)
    ):
        program.aliases[operation] = None
        return
    fits = bool(groups) and not outside and all(accepts(g, operation) for g in groups)
    if fits and len(groups) == 1:
        program.join(operation, groups[0])
        return
    depth = 1 + max(
        (depths.get(use.operation, 0) for result in operation.results for use in result.uses),
        default=0,
    )
    if fits and depth <= _MOST_CLONED and _is_cheap(operation):
        depths[operation] = depth
        program.clone(operation, groups)
        return
    program.add(Group(operation))


def _is_cheap(operation: Operation) -> bool:
    if isinstance(operation, _PLAIN_MOVEMENTS):
        return True
    return is_elementwise(operation) and not is_expensive(operation)


def _is_stored(program: Program, value: SSAValue, level: int) -> bool:
    """Whether a value stands in memory whatever this pass decides later."""
    owner = value.owner
    if not isinstance(owner, Operation) or isinstance(owner, (t.ParameterOp, *CONTROL)):
        return True
    if owner in program.group_of or is_reduction(owner):
        return True
    if isinstance(owner, t.ReshapeOp):
        return _is_stored(program, owner.operand, level)
    return False


def accepts(group: Group, operation: Operation) -> bool:
    """Whether a group gains by computing a producer element by element."""
    users = group.users_of(operation)
    if isinstance(group.root, t.SortOp):
        return False  # it reads each element many times
    if isinstance(operation, t.ConcatenateOp):
        return not is_reduction(group.root) and not _joins_stored(operation)
    if not is_reduction(group.root):
        return True
    feeds_root = any(is_reduction(u) or u in group.prologue for u in users)
    if group.is_contraction or group.is_window:
        of_places = is_elementwise(operation) and _reads_nothing(operation)
        if feeds_root:
            fits = of_places and group.root not in users
            return fits or _fits_prologue(group, operation)
        return of_places or not is_elementwise(operation) or not any(expands(u) for u in users)
    if is_elementwise(operation) and is_expensive(operation):
        return group.reads_once and not any(expands(u) for u in users)
    return True


def _reads_nothing(operation: Operation) -> bool:
    """Whether it is computed from places and constants alone, as a causal mask is: that is less
    than to read it, once for every head of every layer."""
    owners = [value.owner for value in operation.operands]
    return all(
        isinstance(o, Operation) and (is_free(o) or (_is_cheap(o) and _reads_nothing(o)))
        for o in owners
    )


def _fits_prologue(group: Group, operation: Operation) -> bool:
    """Products and windows read each element many times: only plain index maps go in."""
    if isinstance(operation, t.PadOp):
        return not isinstance(group.root, t.DotGeneralOp) and all(
            int(v) == 0 for v in operation.interior_padding.get_values()
        )
    return isinstance(operation, _PLAIN_MOVEMENTS) or _cuts(operation)


def _cuts(operation: Operation) -> bool:
    """A reshape that cuts dimensions in parts or drops those of one element: an index map
    without divisions."""
    if not isinstance(operation, t.ReshapeOp):
        return False
    rest = [s for s in shape_of(operation.result) if s != ONE]
    for size in shape_of(operation.operand):
        if size == ONE:
            continue
        parts: list[Expr] = []
        while rest and product(parts) != size:
            parts.append(rest.pop(0))
        if not parts or product(parts) != size:
            return False
    return not rest


def _joins_stored(operation: t.ConcatenateOp) -> bool:
    """A concatenation of tensors in memory is better made in place."""
    for value in operation.inputs:
        owner = value.owner
        if not isinstance(owner, Operation) or isinstance(owner, (t.ParameterOp, *CONTROL)):
            return True
        if is_reduction(owner):
            return True
    return False
