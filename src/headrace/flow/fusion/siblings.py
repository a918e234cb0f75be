"""Joins dispatches side by side: elementwise ones that read one activation, of one shape.

Queries and keys are turned by their positions alike, each in a dispatch of a few microseconds;
together they are one launch with two results. Only neighbours, with no reduction between them:
what is computed early must be kept.
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from headrace.flow.fusion.groups import Group, Program, is_free
from headrace.flow.lowering.operations import PLACEMENTS, is_reduction
from headrace.ir.types import shape_of
from headrace.tensor import dialect as t

_WITH_OWN_KERNEL = (t.ConcatenateOp, t.ReshapeOp, t.CopyOp, *PLACEMENTS)
"""Roots whose kernels are no map over the shape of the result."""


def join_siblings(program: Program) -> None:
    """One walk over the groups in program order; a group joins the last one before it."""
    groups = [g for g in program.groups if _is_map(g)]
    groups.sort(key=lambda g: program.order[g.root])
    reductions = sorted(n for o, n in program.order.items() if is_reduction(o))
    before: Group | None = None
    for group in groups:
        if before is not None and _fit(program, before, group, reductions):
            _join(program, before, group)
        else:
            before = group


def _is_map(group: Group) -> bool:
    return not isinstance(group.root, _WITH_OWN_KERNEL) and not any(
        is_reduction(operation) or isinstance(operation, PLACEMENTS)
        for operation in group.operations
    )


def _fit(program: Program, first: Group, second: Group, reductions: list[int]) -> bool:
    begin, end = program.order[first.root], program.order[second.root]
    if any(begin < n < end for n in reductions):
        return False
    if shape_of(first.root.results[0]) != shape_of(second.root.results[0]):
        return False
    shared = set(_inputs(first)) & set(_inputs(second))
    if all(isinstance(v.owner, t.ParameterOp) for v in shared):
        return False
    return not _needs(program, second, first) and not _needs(program, first, second)


def _inputs(group: Group) -> list[SSAValue]:
    return [
        value
        for operation in group.operations
        for value in operation.operands
        if value.owner not in group.operations
        and not (isinstance(value.owner, Operation) and is_free(value.owner))
    ]


def _needs(program: Program, group: Group, other: Group) -> bool:
    """Whether a dispatch waits for another, over others too."""
    pending, seen = [group], {group}
    while pending:
        values, known = _inputs(pending.pop()), set[SSAValue]()
        while values:
            value = values.pop()
            owner = value.owner
            if value in known or not isinstance(owner, Operation):
                continue
            known.add(value)
            maker = program.group_of.get(owner)
            if maker is None:
                values += owner.operands
            elif maker is other:
                return True
            elif maker not in seen:
                seen.add(maker)
                pending.append(maker)
    return False


def _join(program: Program, first: Group, second: Group) -> None:
    first.operations |= second.operations
    program.groups.remove(second)
    for operation in second.operations:
        if program.group_of.get(operation) is second:
            program.group_of[operation] = first
    for operation, groups in program.clones.items():
        if second in groups:
            program.clones[operation] = [g for g in groups if g is not second]
            if first not in program.clones[operation]:
                program.clones[operation].append(first)
