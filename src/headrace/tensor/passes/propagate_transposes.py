"""Moves transposes to where they cancel, or to where an operation takes them in.

Operations that compute the same in any order of dimensions (elementwise, pads, slices,
concatenations, windows) form *groups* between those that do not (convolutions, products,
reshapes). For each group the pass counts the elements that transposes at its border move,
as it stands and under each order that a bordering transpose suggests, and turns the
whole group to the cheapest. Reductions and products take transposes in; those of
parameters are free (`fold_constants` folds them), those of broadcasts too.

An NHWC model loses all but the first and last transpose this way.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Block, Operation, SSAValue

from headrace.ir.model import Model
from headrace.ir.passes import Pass
from headrace.ir.types import shape_of
from headrace.tensor import dialect as d
from headrace.tensor.permutations import (
    Permutation,
    compose,
    identity,
    inverse,
    moves_nothing,
    rebuilt,
    tensor_operands,
    weight,
)
from headrace.tensor.rewrite import (
    RewriteBuilder,
    apply_rules,
    functions,
    owner,
    replace,
    users,
)
from headrace.tensor.rules import movement, transposes
from headrace.tensor.rules.movement import integer_list
from headrace.tensor.sources import known_values

_ROUNDS = 6
_RULES = {**movement.RULES, **transposes.RULES}


@dataclass(frozen=True)
class PropagateTransposes(Pass):
    """Rounds of: absorb, then turn groups; until nothing gets cheaper."""

    def run(self, model: Model) -> None:
        for _function, block in functions(model):
            if not any(isinstance(op, d.TransposeOp) for op in block.ops):
                continue
            for _ in range(_ROUNDS):
                apply_rules(block, _RULES)
                if not _turn_groups(block):
                    break
            apply_rules(block, _RULES)
            apply_rules(block, transposes.CLEANUP)


@dataclass
class _Group:
    """Connected agnostic operations, in block order."""

    operations: list[Operation]

    def inputs(self) -> list[SSAValue]:
        """Values from outside that share the group's dimensions, each once."""
        inside = set(self.operations)
        found: dict[SSAValue, None] = {}
        for operation in self.operations:
            for value in tensor_operands(operation) or []:
                if value.owner not in inside:
                    found[value] = None
        return list(found)

    def outputs(self) -> list[SSAValue]:
        """Values that an operation outside uses."""
        inside = set(self.operations)
        return [
            result
            for operation in self.operations
            for result in operation.results
            if any(user not in inside for user in users(result))
        ]


def _groups(block: Block) -> list[_Group]:
    parent: dict[Operation, Operation] = {}

    def root(operation: Operation) -> Operation:
        while parent[operation] is not operation:
            parent[operation] = parent[parent[operation]]
            operation = parent[operation]
        return operation

    for operation in block.ops:
        shared = tensor_operands(operation)
        if shared is None or len(shape_of(operation.results[0])) < 2:
            continue
        parent[operation] = operation
        for value in shared:
            producer = value.owner
            if isinstance(producer, Operation) and producer in parent:
                parent[root(producer)] = root(operation)
    found: dict[Operation, _Group] = {}
    for operation in block.ops:
        if operation in parent:
            found.setdefault(root(operation), _Group([])).operations.append(operation)
    return list(found.values())


def _turn_groups(block: Block) -> bool:
    known = known_values(block)
    turned = False
    for group in _groups(block):
        rank = len(shape_of(group.operations[0].results[0]))
        best, least = identity(rank), _cost(group, identity(rank), known)
        if least == 0:
            continue
        for candidate in _candidates(group):
            cost = _cost(group, candidate, known)
            if cost < least:
                best, least = candidate, cost
        if best != identity(rank):
            _turn(group, best)
            turned = True
    return turned


def _candidates(group: _Group) -> list[Permutation]:
    found: dict[Permutation, None] = {}
    for value in group.inputs():
        producer = owner(value)
        if isinstance(producer, d.TransposeOp):
            found[tuple(integer_list(producer.permutation))] = None
    for value in group.outputs():
        for user in users(value):
            if isinstance(user, d.TransposeOp):
                found[inverse(tuple(integer_list(user.permutation)))] = None
    return sorted(found)


def _cost(group: _Group, permutation: Permutation, known: set[SSAValue]) -> int:
    """Elements that transposes at the border move if `v = transpose(v', permutation)`."""
    inside = set(group.operations)
    inputs = sum(_input_cost(v, permutation, known, inside) for v in group.inputs())
    return inputs + sum(_output_cost(v, permutation, inside) for v in group.outputs())


def _moved(permutation: Permutation, value: SSAValue) -> int:
    """Elements that `transpose(value, permutation)` moves."""
    shape = shape_of(value)
    return 0 if moves_nothing(permutation, shape) else weight(shape)


def _input_cost(
    value: SSAValue, permutation: Permutation, known: set[SSAValue], inside: set[Operation]
) -> int:
    back = inverse(permutation)
    producer = owner(value)
    if value in known or isinstance(producer, d.IotaOp):
        return 0
    if isinstance(producer, d.TransposeOp):
        first = tuple(integer_list(producer.permutation))
        source = producer.operand
        if any(user not in inside for user in users(value)):
            # Others keep the transpose; what the group reads may be its source.
            remains = _moved(first, source)
            rest = compose(first, back)
            return remains + (0 if rest == first else _moved(rest, source))
        return _moved(compose(first, back), source)
    if isinstance(producer, d.BroadcastInDimOp):
        small = producer.operand
        if small in known or len(shape_of(small)) < 2:
            return 0
        # It stays whole where its dimensions keep their order.
        dims = [permutation[n] for n in integer_list(producer.broadcast_dimensions)]
        return 0 if dims == sorted(dims) else weight(shape_of(small))
    return _moved(back, value)


def _output_cost(value: SSAValue, permutation: Permutation, inside: set[Operation]) -> int:
    cost = 0
    shape = shape_of(value)
    needs_it_all = False
    for user in users(value):
        if user in inside:
            continue
        if isinstance(user, d.TransposeOp):
            total = compose(permutation, tuple(integer_list(user.permutation)))
            source_shape = [shape[n] for n in inverse(permutation)]
            cost += 0 if moves_nothing(total, source_shape) else weight(shape)
        elif isinstance(user, d.ReduceOp) and len(user.inputs) == 1:
            _, rest = transposes.reduced_permutation(permutation, integer_list(user.dimensions))
            result = user.results[0]
            cost += 0 if rest == tuple(sorted(rest)) else weight(shape_of(result))
        elif not (isinstance(user, d.DotGeneralOp) and _absorbs(user, value, permutation)):
            needs_it_all = True
    return cost + (_moved(permutation, value) if needs_it_all else 0)


def _absorbs(user: d.DotGeneralOp, value: SSAValue, permutation: Permutation) -> bool:
    sides = (
        (user.lhs, user.lhs_batching_dimensions, user.lhs_contracting_dimensions),
        (user.rhs, user.rhs_batching_dimensions, user.rhs_contracting_dimensions),
    )
    return all(
        transposes.absorbed(permutation, integer_list(batch), integer_list(contract))
        is not None
        for operand, batch, contract in sides
        if operand is value
    )


def _turn(group: _Group, permutation: Permutation) -> None:
    """Rebuilds every operation of the group; borders get transposes, which then cancel."""
    back = inverse(permutation)
    mapping: dict[SSAValue, SSAValue] = {}
    for operation in group.operations:
        builder = RewriteBuilder(operation)
        for value in tensor_operands(operation) or []:
            if value not in mapping:
                mapping[value] = builder.transpose(value, back)
        made = builder.insert(rebuilt(operation, mapping, permutation))
        values: list[SSAValue] = []
        for new in made.results:
            outside = builder.transpose(new, permutation)
            mapping[outside] = new
            values.append(outside)
        replace(operation, values)
