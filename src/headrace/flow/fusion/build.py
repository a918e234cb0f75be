"""Writes the groups of a program as dispatch regions, in an order that uses allow."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import Block, Operation, Region, SSAValue

from headrace.base.errors import error
from headrace.flow.control import CONTROL
from headrace.flow.dialect import DispatchRegionOp, ReturnOp, TensorReshapeOp
from headrace.flow.fusion.groups import Group, Program, is_free
from headrace.ir.locations import fused_location
from headrace.tensor import dialect as t


@dataclass(eq=False)
class _Node:
    """A dispatch or a single operation that stays, at its place in the program."""

    place: int
    members: list[Operation]
    group: Group | None


def build_regions(program: Program) -> None:
    """Replaces the function's body."""
    nodes = _nodes(program)
    mapping: dict[SSAValue, SSAValue] = {a: a for a in program.block.args}
    built: list[Operation] = []
    for node in _ordered(program, nodes):
        if node.group is not None:
            built.append(_region(program, node, mapping))
        else:
            built.append(_single(node.members[0], mapping))
    end = program.terminator
    assert end is not None
    for n, value in enumerate(end.operands):
        end.operands[n] = mapping[value]
    for operation in reversed(program.operations):
        operation.detach()
        operation.erase()
    for operation in built:
        program.block.insert_op_before(operation, end)


def _nodes(program: Program) -> list[_Node]:
    nodes: list[_Node] = []
    for group in program.groups:
        members = sorted(group.operations, key=lambda op: program.order[op])
        nodes.append(_Node(program.order[group.root], members, group))
    nodes += [
        _Node(program.order[operation], [operation], None)
        for operation in program.operations
        if isinstance(operation, (t.ParameterOp, *CONTROL)) or operation in program.aliases
    ]
    return nodes


def _makers(nodes: list[_Node]) -> dict[SSAValue, _Node]:
    """Which node makes a value for others: clones are made where they are used."""
    makers: dict[SSAValue, _Node] = {}
    for node in nodes:
        for operation in node.members:
            for value in operation.results:
                makers[value] = node
    return makers


def _needs(node: _Node, makers: dict[SSAValue, _Node]) -> list[_Node]:
    own = {value for operation in node.members for value in operation.results}
    found: dict[_Node, None] = {}
    for operation in node.members:
        for value in operation.operands:
            maker = None if value in own else makers.get(value)
            if maker is not None and maker is not node:
                found[maker] = None
    return list(found)


def _ordered(program: Program, nodes: list[_Node]) -> list[_Node]:
    """Program order of the roots, as far as uses allow."""
    cloned = set(program.clones)
    makers = {
        value: node for value, node in _makers(nodes).items() if value.owner not in cloned
    }
    waiting: dict[_Node, int] = {}
    users: dict[_Node, list[_Node]] = {}
    for node in nodes:
        needs = _needs(node, makers)
        waiting[node] = len(needs)
        for need in needs:
            users.setdefault(need, []).append(node)
    ready = [(node.place, n) for n, node in enumerate(nodes) if not waiting[node]]
    number = {node: n for n, node in enumerate(nodes)}
    heapq.heapify(ready)
    ordered: list[_Node] = []
    while ready:
        _, n = heapq.heappop(ready)
        node = nodes[n]
        ordered.append(node)
        for user in users.get(node, ()):
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, (user.place, number[user]))
    if len(ordered) != len(nodes):
        raise error("HR9206", "dispatches were formed that wait for one another")
    return ordered


def _single(operation: Operation, mapping: dict[SSAValue, SSAValue]) -> Operation:
    if isinstance(operation, t.ReshapeOp):
        made: Operation = TensorReshapeOp.build(
            operands=[mapping[operation.operand]], result_types=[operation.result.type]
        )
    else:
        made = operation.clone(mapping)
    made.location = operation.location
    mapping.update(zip(operation.results, made.results, strict=True))
    return made


def _region(
    program: Program, node: _Node, mapping: dict[SSAValue, SSAValue]
) -> DispatchRegionOp:
    members = set(node.members)
    results = [
        value
        for operation in node.members
        if operation not in program.clones
        for value in operation.results
        if isinstance(operation, t.ScatterOp)
        or any(use.operation not in members for use in value.uses)
    ]
    block = Block()
    inner = dict(mapping)
    for operation in _evaluation_order(results, members, mapping):
        made = operation.clone(inner)
        made.location = operation.location
        inner.update(zip(operation.results, made.results, strict=True))
        block.add_op(made)
    end = ReturnOp.build(operands=[[inner[v] for v in results]])
    block.add_op(end)
    region = DispatchRegionOp.make(Region(block), [v.type for v in results])
    region.location = fused_location(op for op in node.members if not is_free(op))
    mapping.update(zip(results, region.results, strict=True))
    return region


def _evaluation_order(
    results: Sequence[SSAValue], members: set[Operation], known: dict[SSAValue, SSAValue]
) -> list[Operation]:
    """The operations that results need, operands first and from the left.

    The order follows from what is computed alone, not from where it stood in the program,
    so that equal dispatches have equal texts. Constants and what only spreads them come
    along, also where a loop or a result has them stored: a reduction must know its start.
    """
    ordered: dict[Operation, None] = {}
    for result in results:
        pending: list[tuple[SSAValue, bool]] = [(result, False)]
        while pending:
            value, operands_done = pending.pop()
            owner = value.owner
            if not isinstance(owner, Operation) or owner in ordered:
                continue
            if owner not in members and not is_free(owner):
                if value not in known:
                    fact = f"a dispatch uses '{owner.name}', which nothing makes"
                    raise error("HR9207", fact)
                continue
            if operands_done:
                ordered[owner] = None
                continue
            pending.append((value, True))
            pending += [(operand, False) for operand in reversed(owner.operands)]
    return list(ordered)
